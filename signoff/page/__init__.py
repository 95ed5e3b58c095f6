"""One self-contained HTML page of a thread, for sharing."""

from signoff.page.page import STDOUT, page, save
from signoff.page.run import Run

__all__ = ["STDOUT", "Run", "page", "save"]
