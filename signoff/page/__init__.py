"""One self-contained HTML page of a thread, for sharing."""

from signoff.front.record.run import Run
from signoff.page.page import STDOUT, page, save

__all__ = ["STDOUT", "Run", "page", "save"]
