"""The command that adds a package or an extra to this installation of Signoff.

The right command depends on how Signoff was installed: from a package index, a clone, a git repository or a
built file. The installer has recorded that (`direct_url.json`, PEP 610).
"""

import json
import os
import shlex
import sys
from collections.abc import Callable
from importlib import metadata
from urllib.parse import urlsplit
from urllib.request import url2pathname

NAME = "signoff"


def install_hint(extra: str = "", *packages: str) -> str:
    """The command that installs Signoff's extra, and other packages with it.

    >>> install_hint("langchain", "langchain-groq")  # installed from a package index, by pip
    'pip install "signoff[langchain]" langchain-groq'
    """
    try:
        read: Callable[[str], str | None] = metadata.distribution(NAME).read_text
    except metadata.PackageNotFoundError:
        # Neither installed nor linked: the folder is on PYTHONPATH.
        return command_for(None, None, extra, *packages)
    return command_for(read("direct_url.json"), read("INSTALLER"), extra, *packages)


def command_for(direct_url: str | None, installer: str | None, extra: str, *packages: str) -> str:
    """The command for what the installer has recorded; None if it has recorded nothing."""
    words = [_program(installer)]
    if extra:
        words.append(_requirement(json.loads(direct_url) if direct_url else None, extra))
    return " ".join([*words, *packages])


def _program(installer: str | None) -> str:
    if (installer or "").strip() != "uv":
        return "pip install"
    # An environment made by uv has no pip; one that is not active must be named.
    active = os.environ.get("VIRTUAL_ENV") == sys.prefix
    return "uv pip install" if active else f"uv pip install --python {shlex.quote(sys.prefix)}"


def _requirement(origin: dict[str, object] | None, extra: str) -> str:
    """The package with its extra, from its original source."""
    url = str(origin["url"]) if origin else ""
    match origin:
        case {"vcs_info": {"vcs": str(vcs), "commit_id": str(commit)}}:
            return f'"{NAME}[{extra}] @ {vcs}+{url}@{commit}"'
        case {"dir_info": {"editable": True}}:
            return f'--editable "{url2pathname(urlsplit(url).path)}[{extra}]"'
        case {"url": _}:
            return f'"{NAME}[{extra}] @ {url}"'
        case _:
            return f'"{NAME}[{extra}]"'
