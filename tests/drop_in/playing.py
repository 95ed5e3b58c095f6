"""What the tests of this folder share: tools, a thread in memory, hooks, and what came of a run."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from langchain.agents import middleware as chain
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from signoff.models import ScriptedModel, call
from tests.support.plays import TEXTS

GO: Any = {"messages": [("user", "go")]}
THREAD: Any = {"configurable": {"thread_id": "t"}}
FINISH = call("finish_task", summary="Done.")
CONTROLS = ["finish_task", "ask_user", "think"]
ACCEPTED = ("success", "finish_task")
POLICY: Mapping[str, Any] = {"texts": TEXTS, "model_retries": None}


class Bank:
    """A tool that looks and one that pays, which fails above 5; and what was paid, or tried to be."""

    def __init__(self) -> None:
        self.paid: list[int] = []

        @tool
        def look(at: str = "it") -> str:
            """Look."""
            return f"seen {at}"

        @tool
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            if amount > 5:
                raise ValueError("too much")
            return f"paid {amount}"

        look.metadata = {"kind": "read"}
        self.look, self.pay = look, pay

    @property
    def tools(self) -> list[BaseTool]:
        return [self.look, self.pay]


def paying(then: Callable[[str], Any] = lambda name: None, **metadata: Any) -> tuple[Any, list[str]]:
    """A tool that pays somebody and then does this, and whom it has paid."""
    paid: list[str] = []

    def pay(name: str) -> str:
        """Pay."""
        paid.append(name)
        return then(name) or f"paid {name}"

    return StructuredTool.from_function(pay, metadata=metadata), paid


def memory() -> dict[str, Any]:
    return {"checkpointer": InMemorySaver(), "store": InMemoryStore()}


def play(agent: Any, given: Any = GO, **options: Any) -> dict[str, Any]:
    """The state after a run, on the thread if there is a saver."""
    return dict(agent.invoke(given, THREAD if agent.checkpointer else None, **options))


def ended(state: Mapping[str, Any]) -> tuple[str, str]:
    return state["outcome"]["status"], state["outcome"]["reason"]


def results(state: Mapping[str, Any], *names: str) -> list[str]:
    """The results of the calls of these tools, or of all."""
    found = [message for message in state["messages"] if message.type == "tool"]
    return [message.text for message in found if not names or message.name in names]


def labels(state: Mapping[str, Any], *names: str) -> list[str]:
    """The first words of these results: of one that is ours the name of its text, by `TEXTS`."""
    return [text.split()[0] for text in results(state, *names)]


def texts(state: Mapping[str, Any], kind: str = "human") -> list[str]:
    return [message.text for message in state["messages"] if message.type == kind]


@contextmanager
def warned(*categories: str) -> Iterator[list[warnings.WarningMessage]]:
    """Exactly these kinds of warning are given, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught
    assert sorted(each.category.__name__ for each in caught) == sorted(categories)


def hook(name: str, does: Callable[[Any], Any], *targets: str, whose: str = "") -> Any:
    """A middleware with one hook, which may jump to the targets."""

    def body(state: Any, runtime: Any) -> Any:
        return does(state)

    body.__name__ = whose or f"my_{name}"
    return getattr(chain, name)(can_jump_to=list(targets) or None)(body)


def jumps(to: str, *, once: bool = True, **more: Any) -> Callable[[Any], Any]:
    """What a hook does that jumps, the first time or always."""
    times: list[int] = []

    def does(_: Any) -> Any:
        times.append(1)
        assert len(times) < 99, "nobody ends it"
        return {"jump_to": to, **more} if len(times) == 1 or not once else None

    return does


def around(does: Callable[[Any, Any], Any], name: str = "around", **options: Any) -> Any:
    """A middleware around each call of the model."""

    def wrap(request: Any, handler: Any) -> Any:
        return does(request, handler)

    wrap.__name__ = name
    return chain.wrap_model_call(**options)(wrap)


def around_tools(does: Callable[[Any, Any], Any], name: str = "around_tools") -> Any:
    def wrap(request: Any, handler: Any) -> Any:
        return does(request, handler)

    wrap.__name__ = name
    return chain.wrap_tool_call(wrap)


def scripted(script: Any) -> Any:
    """A model, or that of a script."""
    return script if isinstance(script, BaseChatModel) else ScriptedModel(script)
