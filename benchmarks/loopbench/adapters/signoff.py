"""Signoff: one `Session` on a SQLite file."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from kit import READS, Kit
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr
from wire import Adapter, Refused, Report, Setup

from signoff import (
    Approval,
    Confirmation,
    Decision,
    Failed,
    Finished,
    Limits,
    Paused,
    Question,
    Session,
    ThreadError,
    build_graph,
    expire,
    sqlite_storage,
)

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

    def __init__(self, setup: Setup, kit: Kit) -> None:
        super().__init__(setup, kit)
        self._opened = sqlite_storage(setup.folder / "threads.sqlite")
        limits: dict[str, Any] = {"turns": setup.turns, "tool_calls": setup.tool_calls}
        self._graph = build_graph(
            ChatOpenAI(base_url=setup.url, api_key=SecretStr("none"), model="scripted"),
            [_tool(function) for function in kit.functions()],
            limits=Limits(**{name: value for name, value in limits.items() if value is not None}),
            storage=self._opened.__enter__(),
            approvals=dict.fromkeys(setup.approve, True),
            response_format=City if setup.finish == "structured" else None,
            checks=[self._check] if setup.gate else [],
        )
        self._session = Session(self._graph, setup.thread)

    def _check(self) -> str | None:
        return self.kit.gate()

    def say(self, text: str) -> Report:
        return self._report(self._session.run, text)

    def decide(self, decisions: Sequence[Mapping[str, Any]]) -> Report:
        waiting = self._session.status().waiting
        calls = waiting.calls if isinstance(waiting, Approval) else ()
        names = [call.name for call in calls] or [""] * len(decisions)
        given = [_decision(one, name) for one, name in zip(decisions, names, strict=True)]
        return self._report(self._session.resume, {"decisions": given})

    def answer(self, text: str) -> Report:
        return self._report(self._session.resume, text)

    def resume(self) -> Report:
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
            return _told(move(given))
        except ThreadError as error:
            raise Refused(str(error)) from error


def _tool(function: Any) -> StructuredTool:
    kind = "read" if function.__name__ in READS else "write"
    return StructuredTool.from_function(function, parse_docstring=True, metadata={"kind": kind})


def _decision(one: Mapping[str, Any], name: str) -> dict[str, Any]:
    if one["type"] == "edit":
        return {"type": "edit", "edited_action": {"name": name, "args": one["args"]}}
    return dict(one)


def _told(decision: Decision) -> Report:
    match decision:
        case Finished(outcome=outcome):
            # As JSON: a session gives an instance of the type that was asked for.
            final = outcome.summary if outcome.result is None else outcome.model_dump(mode="json")["result"]
            status = outcome.status if outcome.status == "limit" or outcome.succeeded else "error"
            return Report(status, f"{outcome.status}, {outcome.reason}, {outcome.claim}", final)
        case Failed(error=error, outcome=outcome):
            return Report("stopped" if outcome.reason in STOPPED else "error", f"{outcome.reason}: {error}")
        case Question(text=text):
            return Report("question", text)
        case Confirmation(problem=problem):
            return Report("question", f"a person is to confirm the finish: {problem}")
        case Approval(calls=calls):
            return Report("approval", pending=[{"name": c.name, "args": dict(c.args)} for c in calls])
        case Paused(by=by):
            return Report("stopped", f"paused by {by}")
    return Report("error", f"an unexpected {type(decision).__name__}")
