"""Signoff: one `Session` on a SQLite file."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from kit import Kit
from langchain_core.tools import BaseTool, StructuredTool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr
from wire import Adapter, Refused, Report, Setup, named

from signoff import (
    Approval,
    Decision,
    Ended,
    Limits,
    Outcome,
    Paused,
    Question,
    Session,
    ThreadError,
    build_graph,
    delegate,
    sqlite_storage,
)
from signoff.session import expire

STOPPED = ("cancelled", "superseded")


class City(BaseModel):
    """A city."""

    city: str
    population: int


class Signoff(Adapter):
    framework = "Signoff"
    packages = ("signoff", "langgraph")
    finish: ClassVar = {
        "any": {"name": "finish_task", "args": {"summary": "$text"}},
        "structured": {"name": "finish_task", "args": {"summary": "$text", "result": "$value"}},
    }
    ask: ClassVar = {
        "name": "ask_user",
        "args": {"question": "$text", "default_answer": "$default", "deadline_seconds": "$seconds"},
    }
    delegation: ClassVar = {"name": "$name", "args": {"task": "$text"}}

    def __init__(self, setup: Setup, kit: Kit) -> None:
        super().__init__(setup, kit)
        self._opened = sqlite_storage(setup.folder / "threads.sqlite")
        self._model = ChatOpenAI(base_url=setup.url, api_key=SecretStr("none"), model="scripted")
        tools = [self._delegate(name) for name in setup.helpers] or self._tools()
        self._graph = build_graph(
            self._model,
            tools,
            limits=_limits(turns=setup.turns, tool_calls=setup.tool_calls, tree_turns=setup.tree_turns),
            storage=self._opened.__enter__(),
            system_prompt=setup.system,
            approvals=dict.fromkeys(() if setup.helpers else setup.approve, True),
            response_format=City if setup.finish == "structured" else None,
            checks=[self._check] if setup.gate else [],
        )
        self._session = Session(self._graph, setup.thread)

    def _tools(self) -> list[BaseTool]:
        return [_tool(function, function.__name__ in self.kit.reads) for function in self.kit.functions()]

    def _delegate(self, name: str) -> BaseTool:
        itself = delegate(name, lambda: graph, description="Does a task.")
        graph = build_graph(
            self._model,
            [*self._tools(), itself] if self.setup.recursive else self._tools(),
            limits=_limits(turns=self.setup.helper_turns),
            approvals=dict.fromkeys(self.setup.approve, True),
        )
        return delegate(name, graph, description="Does a task.")

    def _check(self) -> str | None:
        return self.kit.gate()

    def say(self, text: str) -> Report:
        return self._report(self._session.run, text)

    def decide(self, decisions: Sequence[Mapping[str, Any]]) -> Report:
        """Answers what waits, in turn: a delegate's answer is bound to its own wait. Each decision names its
        call; one whose call waits nowhere goes to the first wait, which says that it does not fit."""
        waits = [one for one in self._session.status().waits if isinstance(one, Approval)]
        if not waits:
            return self._report(
                self._session.resume, {"decisions": [_decision(one, "") for one in decisions]}
            )
        calls = {call.id: (wait, call.name) for wait in waits for call in wait.calls}
        answers: dict[str, list[dict[str, Any]]] = {}
        for id, one in named(list(calls), decisions):
            wait, name = calls.get(id, (waits[0], ""))
            answers.setdefault(wait.interrupt_id, []).append({**_decision(one, name), "call_id": id})
        report = Report("error", "nothing was answered")
        for interrupt_id, given in answers.items():
            report = self._report(
                partial(self._session.resume, interrupt_id=interrupt_id), {"decisions": given}
            )
        return report

    def answer(self, text: str) -> Report:
        return self._report(self._session.resume, text)

    def resume(self) -> Report:
        outcome = self._session.status().outcome
        if outcome is not None and outcome.status == "error":
            return self._report(lambda _: self._session.go_on(), None)
        return self._report(self._session.run, None)

    def expire(self) -> Report:
        expire(self._graph, self.setup.thread, now=time.time() + 86_400)
        return self.resume()

    def stop(self) -> None:
        self._session.stop()

    def close(self) -> None:
        self._opened.__exit__(None, None, None)

    def _report(self, move: Any, given: Any) -> Report:
        try:
            decision = move(given)
            return _told(decision, self._session.status().waits)
        except ThreadError as error:
            raise Refused(str(error)) from error


def _limits(**given: int | None) -> Limits:
    """Those that are set."""
    set_ones: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return Limits(**set_ones)


def _tool(function: Any, reads: bool) -> StructuredTool:
    kind = "read" if reads else "write"
    return StructuredTool.from_function(function, parse_docstring=True, metadata={"kind": kind})


def _decision(one: Mapping[str, Any], name: str) -> dict[str, Any]:
    if one["type"] == "edit":
        return {"type": "edit", "edited_action": {"name": name, "args": one["args"]}}
    return {key: value for key, value in one.items() if key != "id"}


def _told(decision: Decision, waits: Sequence[Any]) -> Report:
    match decision:
        case Ended(outcome=Outcome(status="error") as outcome):
            return Report(
                "stopped" if outcome.reason in STOPPED else "error", f"{outcome.reason}: {outcome.error}"
            )
        case Ended(outcome=outcome):
            # As JSON: a session gives an instance of the type that was asked for.
            final = outcome.summary if outcome.result is None else outcome.model_dump(mode="json")["result"]
            status = outcome.status if outcome.status == "limit" or outcome.succeeded else "error"
            return Report(status, f"{outcome.status}, {outcome.reason}, {outcome.claim}", final)
        case Question(text=text):
            return Report("question", text)
        case Approval(finishes=True, problem=problem):
            return Report("question", f"a person is to confirm the finish: {problem}")
        case Approval():
            calls = [call for wait in waits if isinstance(wait, Approval) for call in wait.calls]
            pending = [{"name": c.name, "args": dict(c.args), "id": c.id} for c in calls]
            return Report("approval", pending=pending)
        case Paused(by=by):
            return Report("stopped", f"paused by {by}")
    return Report("error", f"an unexpected {type(decision).__name__}")
