"""Ids of calls that are theirs alone in the history."""

from collections.abc import Set as AbstractSet

from langchain_core.messages import AIMessage

from signoff.graph.replies import Reply, with_call_ids


def unique_ids(reply: Reply, taken: AbstractSet[str]) -> AIMessage | None:
    """The reply with an id of its own for every open call; None when each has one already.

    Providers repeat "call_0" in every reply, or give none. The new id is made from the reply's id and the
    position of the call, so that a repetition of this step makes the same one.
    """
    seen = set[str]()
    fresh: dict[int, str] = {}
    for call in reply.calls:
        if reply.open(call) and (not call.id or call.id in seen or call.id in taken):
            fresh[call.index] = reply.own_id(call)
        seen.add(fresh.get(call.index, call.id))
    return with_call_ids(reply.message, fresh) if fresh else None
