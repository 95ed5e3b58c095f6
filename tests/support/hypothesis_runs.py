"""What tests of drawn cases share: how Hypothesis plays them, and their options as programs."""

import argparse
import random
from typing import Any

from hypothesis import HealthCheck, Phase, settings

from tests.support.arguments import at_least


def drawn_settings(examples: int, number: int | None, **more: Any) -> settings:
    """So many examples of any length; without a seed `number` always the same ones."""
    return settings(
        max_examples=examples,
        derandomize=number is None,
        database=None,
        deadline=None,
        print_blob=True,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        **more,
    )


def program_options(about: str | None, cases: str, most: int) -> argparse.ArgumentParser:
    """The options of a program that plays up to `most` of these cases."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument(f"--{cases}", type=at_least(1), default=most)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    return parser
