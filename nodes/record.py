"""Outcomes in the store: one for each task of a thread."""

from urllib.parse import quote

from langgraph.store.base import BaseStore, PutOp

from signoff.graph.outcome import Outcome


def label(thread_id: str | None) -> str:
    """A thread id as one label of a store's namespace, where no dot is allowed."""
    return (
        quote(thread_id or "", safe=" !#$&'()*+,/:;=?@[]", errors="surrogatepass").replace(".", "%2E") or "-"
    )


def record(outcome: Outcome) -> PutOp:
    """The operation that records `outcome`. The same task is recorded once, however often this runs."""
    namespace = ("signoff", "outcomes", label(outcome.thread_id))
    return PutOp(namespace, outcome.task or "-", outcome.model_dump())


def recorded(store: BaseStore, thread_id: str) -> list[Outcome]:
    """The outcomes of a thread, in the order in which its tasks ended."""
    items = store.search(("signoff", "outcomes", label(thread_id)), limit=1000)
    ordered = sorted(items, key=lambda item: item.created_at)
    return [Outcome.model_validate(item.value) for item in ordered]
