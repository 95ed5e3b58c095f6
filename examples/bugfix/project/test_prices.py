from prices import total


def test_sum() -> None:
    assert total([250, 150]) == 400


def test_discount() -> None:
    assert total([1000], discount=20) == 800
