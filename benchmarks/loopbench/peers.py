"""The frameworks on the bench: where their environments are, and how these are made."""

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent.parent / ".bench"
OWN = "signoff"
GUARDED = {
    "langchain-guarded": "create_agent with Guards",
    "deepagents-guarded": "deepagents with Guards",
}


@dataclass(frozen=True)
class Peer:
    """A framework. packages: what its environment holds, pinned; none for Signoff and its guards, which
    run in this one."""

    name: str
    title: str
    packages: Sequence[str] = ()

    @property
    def python(self) -> Path:
        return ENVIRONMENTS / self.name / "bin" / "python" if self.packages else Path(sys.executable)

    @property
    def adapter(self) -> Path:
        return HERE / "adapters" / f"{self.name.replace('-', '_')}.py"

    @property
    def problem(self) -> str:
        """Why it cannot run; empty when it can."""
        if not self.adapter.exists():
            return "no adapter"
        return "" if self.python.exists() else "not installed"


def _table() -> dict[str, object]:
    return tomllib.loads((HERE / "peers.toml").read_text())


def peers() -> list[Peer]:
    """Signoff first, the others in the order of peers.toml, then agents that its guards stand in."""
    found = [(name, given) for name, given in _table().items() if isinstance(given, dict)]
    others = [Peer(name, given["title"], given["packages"]) for name, given in found]
    return [Peer(OWN, "Signoff"), *others, *(Peer(name, title) for name, title in GUARDED.items())]


def install(peer: Peer) -> None:
    """Makes the peer's environment anew. Raises CalledProcessError when it cannot be made."""
    if not peer.packages:
        return
    uv = shutil.which("uv") or str(HERE.parent.parent / ".tools" / "bin" / "uv")
    folder = str(ENVIRONMENTS / peer.name)
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", "3.11", folder], check=True)
    pinned = ["--exclude-newer", str(_table()["as_of"]), *peer.packages]
    subprocess.run([uv, "pip", "install", "--quiet", "--python", str(peer.python), *pinned], check=True)
