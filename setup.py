"""What pyproject.toml cannot say: the addresses, the README with whole links, and the links of the sdist."""

import os
import posixpath
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from setuptools import setup
from setuptools.command.sdist import sdist

# Where the project will be published is not yet known: this is the one place that holds a placeholder, and no
# released version is built before it is gone. (`.example` belongs to nobody.)
ADDRESS = "https://git.example/signoff"

ROOT = Path(__file__).parent
# A fenced block stays as it is. A link within a picture's brackets does not occur.
_PATH = r"(?!https?:|mailto:|data:|#)(?P<path>[^)\s\"]+)"
_TARGET = re.compile(
    r"^(?P<fence>`{3,}|~{3,}).*?^(?P=fence)"
    r"|(?P<picture>!\[[^\]]*\]\(|\bsrc(?:set)?=\")"
    + _PATH
    + r"|(?P<link>\]\(|\bhref=\"|^\[[^\]]+\]:\s+)"
    # The name of a group may stand but once.
    + _PATH.replace("<path>", "<page>"),
    re.MULTILINE | re.DOTALL,
)


def with_whole_links(text: str, version: str) -> str:
    """A page of Markdown in this folder, its relative links and pictures as addresses of that version."""
    # A version that is not released has no tag.
    at = "HEAD" if "dev" in version else f"v{version}"

    def whole(found: re.Match[str]) -> str:
        if before := found["picture"]:
            return f"{before}{ADDRESS}/raw/{at}/{posixpath.normpath(found['path'])}"
        if before := found["link"]:
            return f"{before}{ADDRESS}/blob/{at}/{posixpath.normpath(found['page'])}"
        return found[0]

    return _TARGET.sub(whole, text)


class WithLinks(sdist):  # type: ignore[misc]  # setuptools ships no types
    """Of a folder's link setuptools packs nothing; in the source the package is whole only with its links."""

    def make_release_tree(self, base_dir: str, files: Sequence[str]) -> None:
        super().make_release_tree(base_dir, files)
        for link in sorted(ROOT.glob("signoff/*")):
            if link.is_symlink():
                os.symlink(os.readlink(link), Path(base_dir, "signoff", link.name))


if __name__ == "__main__":
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    if ".example" in ADDRESS and "dev" not in version:
        sys.exit("setup.py: write the project's address into ADDRESS before you build a version to publish.")
    setup(
        cmdclass={"sdist": WithLinks},
        long_description=with_whole_links((ROOT / "README.md").read_text("utf-8"), version),
        long_description_content_type="text/markdown",
        project_urls={
            "Source": ADDRESS,
            "Documentation": f"{ADDRESS}/tree/HEAD/docs",
            "Changelog": f"{ADDRESS}/blob/HEAD/CHANGELOG.md",
            "Issues": f"{ADDRESS}/issues",
        },
    )
