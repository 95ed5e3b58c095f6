"""The store in PostgreSQL: what it keeps, and that a claim is atomic."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from signoff import StorageError, postgres_storage

VALUES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"a": [1, 2.5, None, {"b": True}]}, {"a": [1, 2.5, None, {"b": True}]}),
    ({"a": "x\0y"}, {"a": "x\ufffdy"}),
    ({"a": ["\ud800"]}, {"a": ["\ufffd"]}),
    ({"a": "\\u0000"}, {"a": "\\u0000"}),
    ({"a": 10**30}, {"a": 10**30}),
]


@pytest.mark.parametrize(("given", "kept"), VALUES)
def test_the_store_keeps_any_text(given: dict[str, Any], kept: dict[str, Any], postgres_url: str) -> None:
    names = ("signoff", "journal", "t")
    with postgres_storage(postgres_url) as storage:
        storage.store.put(names, "put\0", given)
        assert storage.store.swap(names, "swapped\0", None, given)
        assert storage.store.swap(names, "swapped\0", given, {"next": given})
        found = asyncio.run(storage.store.abatch([]))
        assert found == []
        for key, value in [("put\0", kept), ("swapped\0", {"next": kept})]:
            item = storage.store.get(names, key)
            assert item is not None
            assert item.value == value


def test_a_value_that_is_no_json_is_refused_and_the_storage_goes_on(postgres_url: str) -> None:
    with postgres_storage(postgres_url) as storage:
        with pytest.raises(StorageError, match="refused a request"):
            storage.store.put(("a",), "k", {"n": float("nan")})
        storage.store.put(("a",), "k", {"n": 1})
        assert len(storage.store.search(("a",))) == 1


@pytest.mark.parametrize("before", [None, {"status": "started", "attempt": 1}])
def test_of_many_that_claim_the_same_entry_one_gets_it(
    before: dict[str, Any] | None, postgres_url: str
) -> None:
    names = ("signoff", "journal", "t", "r")
    with postgres_storage(postgres_url) as storage:
        for nth in range(20):
            key = f"call-{nth}"
            if before is not None:
                storage.store.put(names, key, before)
            with ThreadPoolExecutor(8) as pool:
                got = list(
                    pool.map(lambda who, k=key: storage.store.swap(names, k, before, {"who": who}), range(8))
                )
            item = storage.store.get(names, key)
            assert item is not None
            assert [who for who, won in enumerate(got) if won] == [item.value["who"]]


def test_a_swap_looks_at_the_whole_value(postgres_url: str) -> None:
    with postgres_storage(postgres_url) as storage:
        swap = storage.store.swap
        assert not swap(("a",), "k", {}, {"n": 1})
        assert swap(("a",), "k", None, {"n": 1, "m": {"x": []}})
        assert not swap(("a",), "k", None, {"n": 2})
        assert not swap(("a",), "k", {"n": 1}, {"n": 2})
        assert swap(("a",), "k", {"m": {"x": []}, "n": 1}, {"n": 2})
        assert [item.value for item in storage.store.search(("a",))] == [{"n": 2}]
