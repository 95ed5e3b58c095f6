"""The command that adds an extra is right for each way by which Signoff came onto this machine."""

import json
import re
import sys
from importlib import metadata
from typing import Any

import pytest

from signoff import SetupError, build_graph
from signoff.models import ScriptedModel

GIT = {"vcs": "git", "commit_id": "0a1b", "requested_revision": "main"}


class Installed:
    """What an installer has recorded of this package."""

    def __init__(self, installer: str, origin: dict[str, Any] | None) -> None:
        self.files = {"INSTALLER": installer, "direct_url.json": json.dumps(origin) if origin else None}

    def read_text(self, name: str) -> str | None:
        return self.files.get(name)


def command(monkeypatch: pytest.MonkeyPatch, installed: Installed | None) -> str:
    """The command that an error names for an extra that is missing."""

    others = metadata.distribution

    def distribution(name: str) -> Any:
        if name != "signoff":
            return others(name)
        if installed is None:
            raise metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(metadata, "distribution", distribution)
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    with pytest.raises(SetupError) as raised:
        build_graph(ScriptedModel([]), limits={"cost": 1})
    (found,) = re.findall(r"(?:uv )?pip install .*", str(raised.value))
    return str(found)


FROM: dict[str, tuple[dict[str, Any] | None, str]] = {
    "a package index": (None, 'pip install "signoff[prices]"'),
    "a clone": (
        {"url": "file:///home/ada/my%20signoff", "dir_info": {"editable": True}},
        'pip install --editable "/home/ada/my signoff[prices]"',
    ),
    "git": (
        {"url": "https://git.example/signoff.git", "vcs_info": GIT},
        'pip install "signoff[prices] @ git+https://git.example/signoff.git@0a1b"',
    ),
}


@pytest.mark.skipif(sys.platform == "win32", reason="its paths look different")
@pytest.mark.parametrize("origin", FROM)
def test_the_extra_comes_from_where_the_package_came_from(
    origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded, expected = FROM[origin]
    assert command(monkeypatch, Installed("pip\n", recorded)) == expected


def test_an_environment_of_uv_holds_no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    assert command(monkeypatch, Installed("uv", None)) == 'uv pip install "signoff[prices]"'
    monkeypatch.delenv("VIRTUAL_ENV")
    assert command(monkeypatch, Installed("uv", None)).startswith("uv pip install --python ")
