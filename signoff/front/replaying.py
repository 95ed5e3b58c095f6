"""Rebuilds the graph of a stored thread for a replay."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from langchain_core.messages import BaseMessage

from signoff import Graph, SetupError
from signoff.front.database import OpenStorage
from signoff.front.options import check_own_graph
from signoff.front.settings import Given, recall, settle
from signoff.front.working import for_waiting, graph_of, policy_of, working_tools
from signoff.models import ScriptedModel
from signoff.models.choose import Chosen, choose_model
from signoff.session.status import look, reading_graph
from signoff.text import quote_id

_UNASKED = "unasked"
"""A placeholder for the key of a model that is never called."""


@contextmanager
def graph_again(
    storage: OpenStorage, thread_id: str, given: Given, named: str | None = None
) -> Iterator[Graph]:
    """Returns the graph that the thread ran with: the one at `named` (`MODULE:GRAPH`), else the one from its
    saved settings, overridden by the given ones.

    Do not run it: its model may be a placeholder. Raises SetupError for a thread of another program without
    `named`, and if the graph cannot be built.
    """
    if named is not None:
        check_own_graph(named, given)
        # Most threads belong to the command line, which needs none of it.
        from signoff.load import load_graph

        yield load_graph(named).copy({"checkpointer": storage.checkpointer, "store": storage.store})
        return
    before = recall(storage.store, thread_id)
    if before is None:
        raise SetupError(
            f"Thread {quote_id(thread_id)} was not begun by the command line, so its graph is not "
            "known here; name it with --graph package.module:graph, or --graph path/to/file.py:graph."
        )
    settings = settle(given, before, os.environ)
    waiting = look(reading_graph(storage), thread_id).wait()
    with working_tools(settings, lambda _: None) as own:
        tools, handed_over = for_waiting(own, waiting)
        policy = policy_of(settings, tools, waiting)
        chosen = _unasked(settings.model, settings.base_url)
        with chosen.resource:
            yield graph_of(settings, chosen, tools, storage, policy, handed_over)


def load_function(named: str) -> Callable[[str], str]:
    """Returns the function at `package.module:name` or `path/to/file.py:name`.

    Raises SetupError if there is none.
    """
    from signoff.load import load  # as above

    found: Callable[[str], str] = load(named)
    if not callable(found):
        raise SetupError(f"{named} is of type {type(found).__name__}; name a function that takes a text.")
    return found


def _unasked(name: str, base_url: str | None) -> Chosen:
    """Returns the model, of which only profile and prices are used; a placeholder without them if it is no
    longer available."""
    try:
        return choose_model(name, base_url, {"OPENAI_API_KEY": _UNASKED, **os.environ})
    except SetupError:
        return Chosen(ScriptedModel(_refuse_to_ask), "", nullcontext())


def _refuse_to_ask(messages: list[BaseMessage]) -> str:
    raise SetupError("A replay calls no model.")
