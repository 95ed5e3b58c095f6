"""The middleware of one graph, as its states use it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage

from signoff.graph.machine import State
from signoff.graph.state import AgentState
from signoff.nodes.middleware.given import Given, checked, either, has
from signoff.nodes.middleware.hooks import Hooks, hooks_of
from signoff.nodes.middleware.model_calls import WrappedCall, spent_on, wrapped_call
from signoff.nodes.middleware.tool_calls import atool_call, tool_call
from signoff.nodes.node import NodeContext, Work, WrongWay
from signoff.nodes.requests import Part

_WRAPS = ("wrap_model_call", "wrap_tool_call")


@dataclass(frozen=True)
class Ways:
    """Checks before a model call that all wrappers support this mode, sync or async; LangChain raises only
    when a wrapper is called.

    missing: wrappers with one mode only, as (middleware, the missing method).
    """

    missing: Sequence[tuple[str, str]]

    def do(self, run: NodeContext) -> None:
        for whose, way in self.missing:
            if not way.startswith("a"):
                raise WrongWay(
                    f"The middleware {whose} has only a{way}, which a sync run cannot await; run the graph "
                    f"with `ainvoke` or `astream`, or add {way}."
                )

    async def ado(self, run: NodeContext) -> None:
        for whose, way in self.missing:
            if way.startswith("a"):
                raise WrongWay(
                    f"The middleware {whose} has only {way[1:]}, which would block the event loop; run "
                    f"the graph with `invoke` or `stream`, or add {way}."
                )


class Stack:
    """The middleware of one graph, the first one outermost; see `Middleware` in `nodes/node.py`."""

    def __init__(self, given: Sequence[Any]) -> None:
        self.given = checked(given)
        self._hooks = Hooks(hooks_of(self.given))
        self._models, self._tools = (self._around(wrap) for wrap in _WRAPS)
        self._ways = Ways(
            [
                (one.name, way)
                for wrap in _WRAPS
                for one in self._around(wrap)
                for way in (wrap, f"a{wrap}")
                if not has(one, way)
            ]
        )

    def _around(self, wrap: str) -> tuple[Given, ...]:
        return tuple(one for one in self.given if either(one, wrap))

    @property
    def tools(self) -> list[Any]:
        """Their tools, in LangChain's order."""
        return [tool for one in self.given for tool in getattr(one, "tools", None) or ()]

    @property
    def schemas(self) -> dict[str, Any]:
        """Their state schemas, by middleware."""
        return {one.name: one.state_schema for one in self.given}

    @property
    def wraps_models(self) -> bool:
        return bool(self._models)

    @property
    def wraps_tools(self) -> bool:
        return bool(self._tools)

    def works(self, works: Mapping[State, Work]) -> Mapping[State, Work]:
        return self._hooks.works(works, lambda: self._ways)

    def model_call(self, call: Any, state: AgentState, run: NodeContext) -> Part[WrappedCall]:
        return (yield from wrapped_call(self._models, call, state, run))

    def spent_on(self, dropped: Sequence[tuple[AIMessage, int]], state: AgentState) -> Any:
        return spent_on(dropped, state)

    def tool_call(self, job: Any) -> Any:
        return tool_call(self._tools, job)

    async def atool_call(self, job: Any) -> Any:
        return await atool_call(self._tools, job)

    def last_word(self, state: AgentState, run: NodeContext) -> Part[tuple[dict[str, Any], str]]:
        return (yield from self._hooks.last_word(state, run))
