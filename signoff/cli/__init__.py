"""The command line of Signoff."""

from signoff.cli.app import main

__all__ = ["main"]
