"""One self-contained HTML page of a thread, for sharing."""

from signoff.page.page import page
from signoff.page.run import Run
from signoff.page.save import STDOUT, save

__all__ = ["STDOUT", "Run", "page", "save"]
