"""The packages that workers need beside those of Signoff."""

from collections.abc import Iterator
from contextlib import contextmanager

from signoff.graph.errors import SetupError


@contextmanager
def packages() -> Iterator[None]:
    """Around their imports: raises SetupError, which says how to install them, when one is missing."""
    try:
        yield
    except ImportError as error:
        raise SetupError(
            f"Workers need packages that are missing ({error}): pip install 'signoff[workers]'."
        ) from error
