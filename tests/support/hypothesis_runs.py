"""How Hypothesis plays drawn cases."""

from typing import Any

from hypothesis import HealthCheck, Phase, settings


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
