"""What the store keeps of tasks that have ended, one entry for each task of a thread."""

from urllib.parse import quote

from langgraph.store.base import BaseStore, GetOp, PutOp

from signoff.graph.outcome import Outcome

OUTCOMES = "outcomes"
FIGURES = "figures"
RATINGS = "ratings"


def label(thread_id: str | None) -> str:
    """A thread id as one label of a store's namespace, where no dot is allowed."""
    return (
        quote(thread_id or "", safe=" !#$&'()*+,/:;=?@[]", errors="surrogatepass").replace(".", "%2E") or "-"
    )


def place(sort: str, thread_id: str | None, task: str) -> tuple[tuple[str, ...], str]:
    """The namespace and the key of an entry. `sort`: OUTCOMES, FIGURES or RATINGS."""
    return ("signoff", sort, label(thread_id)), task or "-"


def record(outcome: Outcome) -> PutOp:
    """The operation that records `outcome`. The same task is recorded once, however often this runs."""
    return PutOp(*place(OUTCOMES, outcome.thread_id, outcome.task), outcome.model_dump())


def look_up(outcome: Outcome) -> GetOp:
    """The operation that reads what is recorded of the same task."""
    return GetOp(*place(OUTCOMES, outcome.thread_id, outcome.task))


def recorded(store: BaseStore, thread_id: str) -> list[Outcome]:
    """The outcomes of a thread, in the order in which its tasks ended."""
    items = store.search(("signoff", OUTCOMES, label(thread_id)), limit=1000)
    ordered = sorted(items, key=lambda item: item.created_at)
    return [Outcome.model_validate(item.value) for item in ordered]
