"""An agent with plain `Guards`, whose processes die, and whose provider repeats the ids of calls."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig

from signoff import Limits, outcome_of
from signoff.guards import Guards
from signoff.models import ScriptedModel
from tests.simulate.cast import Stage, tools_of
from tests.simulate.choices import Choices
from tests.simulate.clock import VirtualClock
from tests.simulate.storage import Database, Killed, MemoryStorage, Process

REPLIES = (
    "finish",
    "count",
    "act",
    "count twice",
    "act, finish",
    "look, look",
    "talk",
    "malformed",
    "cut act",
)
THREAD: RunnableConfig = {"configurable": {"thread_id": "a"}}
TOOLS = ("act", "count", "look")


class GuardedWorld:
    """One thread of an agent, and what is known of it."""

    def __init__(self, choices: Choices, met: Counter[str]) -> None:
        self.choices, self.met, self.clock = choices, met, VirtualClock()
        self.stage = Stage(choices, self.clock, running="a")
        self.database, self.left = Database(), 0
        self.owners: dict[str, str] = {}
        self.open()

    def open(self) -> None:
        """As a new process does."""
        self.process = Process(moment=self.moment)
        self.stage.moment = self.moment
        storage = MemoryStorage(self.database, self.process, is_held=False)
        self.agent: Any = create_agent(
            ScriptedModel(lambda messages: self.stage.say(messages, REPLIES)),
            [tool for tool in tools_of(self.stage) if tool.name in TOOLS],
            middleware=[Guards(Limits(turns=6))],
            checkpointer=storage.checkpointer,
            store=storage.store,
        )

    def moment(self, what: str) -> None:
        self.left -= 1
        if self.left == 0:
            self.process.die()

    def play(self) -> None:
        """Plays the schedule. Raises AssertionError with the law that was broken."""
        with self.clock.ticks():
            for number in range(1 + self.choices.below(3)):
                self.task({"messages": [("user", f"do it #{number}")]}, THREAD)
                if self.choices.once_in(2):
                    self.task(None, self.earlier())

    def earlier(self) -> RunnableConfig:
        """A point that the thread has passed, from which it goes on once more."""
        points = [*self.agent.get_state_history(THREAD)]
        self.met["goes back"] += 1
        config: RunnableConfig = self.choices.of(points).config
        return config

    def task(self, given: Any, config: RunnableConfig) -> None:
        """One task, to its end, by as many processes as it takes."""
        for _ in range(4):
            self.left = 1 + self.choices.below(40) if self.choices.once_in(3) else 0
            try:
                result = self.agent.invoke(given, config)
            except Killed:
                pass
            except BaseException:
                if not self.process.is_dead:
                    raise
            if not self.process.is_dead:
                self.holds(result["messages"])
                assert outcome_of(result).status in ("success", "limit", "error"), "law 2: no end"
                return
            self.met["fault: kill"] += 1
            self.open()
            messages = self.agent.get_state(THREAD).values.get("messages", ())
            self.holds(messages)
            is_known = given and any(m.text == given["messages"][0][1] for m in messages)
            given, config = None if is_known else given, THREAD

    def holds(self, messages: Sequence[BaseMessage]) -> None:
        """Law 6: at most once, and told as it was."""
        self.met["guards: law 6"] += 1
        answers = {m.tool_call_id: m.text for m in messages if isinstance(m, ToolMessage)}
        for text, reply_id in counted(messages):
            owner = self.owners.setdefault(text, reply_id)
            assert owner == reply_id, f"law 6: {text!r} is told of a call of another reply"
        for (_, token), times in self.stage.effects.items():
            assert times == 1, f"law 6: {token} took place {times} times"
            assert token not in self.stage.never, f"law 7: {token} took place, and must not"
        for message in messages:
            for call in message.tool_calls if isinstance(message, AIMessage) else ():
                text = answers.get(call["id"] or "", "")
                took_place = self.stage.effects["a", text.removeprefix("did ")]
                assert not text.startswith("did e") or took_place, f"law 6: {text!r} did not take place"


def counted(messages: Sequence[BaseMessage]) -> Iterator[tuple[str, str]]:
    """What was counted, and the reply that made the call."""
    made = dict[str, str]()
    for message in messages:
        if isinstance(message, AIMessage):
            made |= {call["id"] or "": message.id or "" for call in message.tool_calls}
        elif isinstance(message, ToolMessage) and re.fullmatch(r"counted \d+", message.text):
            yield message.text, made[message.tool_call_id]
