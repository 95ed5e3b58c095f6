"""Prices of a shop, in cents."""


def total(prices: list[int], discount: int = 0) -> int:
    """The sum of all prices, less `discount` per cent, rounded down."""
    return sum(prices) * (100 + discount) // 100
