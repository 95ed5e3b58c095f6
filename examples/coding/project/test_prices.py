from prices import shipping, total, written


def test_sum() -> None:
    assert total([250, 150]) == 400


def test_discount() -> None:
    assert total([1000], discount=20) == 800


def test_small_orders_pay_for_shipping() -> None:
    assert shipping(4999) == 490


def test_shipping_is_free_from_50() -> None:
    assert shipping(5000) == 0


def test_price_in_words() -> None:
    assert written(305) == "3.05"
