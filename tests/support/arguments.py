"""What the programs among the tests and benchmarks take as an argument."""

import argparse
from collections.abc import Callable


def at_least(least: int) -> Callable[[str], int]:
    """A `type=` of argparse: a whole number that is not below `least`. With nothing to do a program would
    say that all went right."""

    def whole(text: str) -> int:
        if not text.strip().isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} up")
        return int(text)

    return whole
