"""Prices of a shop, in cents."""


def total(prices: list[int], discount: int = 0) -> int:
    """The sum of all prices, less `discount` per cent, rounded down."""
    return sum(prices) * (100 + discount) // 100


def shipping(cents: int) -> int:
    """What sending an order costs: nothing from 50.00 on."""
    return 0 if cents > 5000 else 490


def written(cents: int) -> str:
    """A price as a person writes it, such as 3.05."""
    return f"{cents // 100}.{cents % 100}"
