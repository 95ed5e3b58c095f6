"""The versions of langchain with which `Guards` is tested. Checked without importing langchain."""

from importlib.metadata import PackageNotFoundError, version

from signoff.graph.errors import SetupError
from signoff.graph.inside.installing import install_hint

# Before 1.4.2, a finish that another middleware answers with, a cache say, does not end the loop.
LOWEST, BELOW = (1, 4, 2), (2,)


def check_version() -> None:
    """Raises SetupError if langchain is not installed, or in a version with which Guards is not tested."""
    try:
        found = version("langchain")
    except PackageNotFoundError:
        hint = install_hint("langchain")
        raise SetupError(f"Guards are for LangChain's agents, which are not installed; run: {hint}") from None
    parts = tuple(int(part) for part in found.split(".")[:3] if part.isdigit())
    if not LOWEST <= parts < BELOW:
        raise SetupError(
            f"Guards is tested with langchain 1.4.2 up to, but not including, 2; this is {found}. "
            "Install one of these versions."
        )
