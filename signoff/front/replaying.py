"""The graph of a stored thread, made again so that the thread can be decided once more."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from langchain_core.messages import BaseMessage

from signoff.front.database import OpenStorage
from signoff.front.settings import Given, flag, recall, settle
from signoff.front.working import for_waiting, graph_of, policy_of, working_tools
from signoff.graph.build import Graph
from signoff.graph.errors import SetupError, quote_id
from signoff.models.choose import Chosen, choose_model
from signoff.models.scripted import ScriptedModel
from signoff.session.status import look, reading_graph

_UNASKED = "unasked"
"""Stands for the key of a model that is never called."""


@contextmanager
def graph_again(
    storage: OpenStorage, thread_id: str, given: Given, named: str | None = None
) -> Iterator[Graph]:
    """The graph that the thread was run with: the one at `named` (`MODULE:GRAPH`), else the one that its
    remembered settings make, with what was given in their place.

    It is not to be run: its model may be none. Raises SetupError for a thread of another program without
    `named`, and for what the graph cannot be made with.
    """
    if named is not None:
        if given.options:
            options = ", ".join(map(flag, given.options))
            raise SetupError(f"The graph that --graph names has settings of its own; leave out {options}.")
        # Most threads are those of the command line, which need none of it.
        from signoff.verify.worlds import load_graph

        yield load_graph(named).copy({"checkpointer": storage.checkpointer, "store": storage.store})
        return
    before = recall(storage.store, thread_id)
    if before is None:
        raise SetupError(
            f"Thread {quote_id(thread_id)} was not begun by the command line, so its graph is not "
            "known here; name it with --graph package.module:graph, or --graph path/to/file.py:graph."
        )
    settings = settle(given, before, os.environ)
    waiting = look(reading_graph(storage), thread_id).waiting
    with working_tools(settings, lambda _: None) as own:
        tools, handed_over = for_waiting(own, waiting)
        policy = policy_of(settings, tools, waiting)
        chosen = _unasked(settings.model, settings.base_url)
        with chosen.resource:
            yield graph_of(settings, chosen, tools, storage, policy, handed_over)


def load_function(named: str) -> Callable[[str], str]:
    """The function at `package.module:name` or `path/to/file.py:name`.

    Raises SetupError when there is none.
    """
    from signoff.verify.worlds import load  # as above

    found: Callable[[str], str] = load(named)
    if not callable(found):
        raise SetupError(f"{named} is of type {type(found).__name__}; name a function of a text.")
    return found


def _unasked(name: str, base_url: str | None) -> Chosen:
    """The model, of which only the profile and the prices are asked; one without either where it cannot be
    had here any more."""
    try:
        return choose_model(name, base_url, {"OPENAI_API_KEY": _UNASKED, **os.environ})
    except SetupError:
        return Chosen(ScriptedModel(_refuse_to_ask), "", nullcontext())


def _refuse_to_ask(messages: list[BaseMessage]) -> str:
    raise SetupError("A thread that is decided again asks no model.")
