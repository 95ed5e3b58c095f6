"""The middleware classes of LangChain and deepagents: each does what it is for, or is refused by a sentence.

What is tested is what docstrings and source say of each class; the names of the functions are in the
comments. LangChain's own tests, of its source distribution, stand in `langchain_tests/`.
"""

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain.agents import middleware
from langchain.agents.middleware import (
    AgentMiddleware,
    AgentState,
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    HumanInTheLoopMiddleware,
    LLMToolEmulator,
    ModelCallLimitMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    PIIMiddleware,
    SummarizationMiddleware,
    TodoListMiddleware,
    ToolCallLimitMiddleware,
    ToolErrorMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, tool
from langgraph.types import Command

from signoff import SetupError, build_graph, sqlite_storage
from signoff.graph.inside.installing import install_hint
from signoff.guards import Guards
from signoff.models import ScriptedModel, call
from signoff.nodes.middleware.given import REFUSED, why_refused
from tests.drop_in.langchain_tests.conftest import LEFT_OUT
from tests.middleware import table
from tests.support.cases.middleware import CASES, FINISH, classes, graph, look, results, script

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "middleware.md"
BETA = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")
# LangChain's shell leaves a pipe to the collector.
OPEN = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@BETA
@OPEN
@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
def test_a_class_does_what_it_is_for(kind: type, way: str) -> None:
    CASES[kind](way)


def test_every_class_stands_in_the_table_of_the_page() -> None:
    """`python -m tests.middleware` prints it."""
    assert [kind for kind in classes().values() if (kind in CASES) is (why_refused(kind) is not None)] == []
    assert "\n".join(table()) in PAGE.read_text("utf-8")


def test_every_refusal_is_of_a_class_that_there_is() -> None:
    known = [*classes().values(), Guards]
    assert {kind.__mro__[0].__module__ for kind in known if why_refused(kind)} == set(REFUSED)


def test_what_is_left_out_of_langchains_own_tests_stands_in_them() -> None:
    files = (Path(__file__).parent / "langchain_tests").glob("test_*.py")
    text = "".join(path.read_text("utf-8") for path in files)
    defined = re.findall(r"^ *(?:async def|def|class) (\w+)", text, re.M)
    assert LEFT_OUT.keys() - set(defined) == set()


class Mine(ModelCallLimitMiddleware):
    """Made of one that is refused."""


class Clashing(AgentState[Any]):
    decision: str


class OwnReducer(AgentState[Any]):
    messages: Annotated[list[Any], lambda old, new: new]  # the mistake


class Shadows(AgentMiddleware[Any, Any, Any]):
    state_schema = Clashing


class Marks(AgentMiddleware[Any, Any, Any]):
    state_schema = type("Marked", (), {})


class Reduces(AgentMiddleware[Any, Any, Any]):
    state_schema = OwnReducer


MODEL = ScriptedModel([FINISH])
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "a class": (
        lambda: [TodoListMiddleware],
        r"holds the class TodoListMiddleware; write TodoListMiddleware\(…\)",
    ),
    "not a list": (lambda: TodoListMiddleware(), r"middleware= is .* not a list; write middleware=\[Todo"),
    "something else": (lambda: [len], "pass instances of LangChain's AgentMiddleware"),
    "one name twice": (
        lambda: [TodoListMiddleware(), TodoListMiddleware()],
        "Two middleware are named 'TodoListMiddleware'; remove one of them",
    ),
    "a channel of the machine's": (lambda: [Shadows()], "Shadows, Clashing, has the channel 'decision'"),
    "a state that is not a TypedDict": (lambda: [Marks()], "Marks, Marked, is not a TypedDict"),
    "a reducer for the history": (lambda: [Reduces()], "gives 'messages' a reducer of its own"),
    "a person's decisions": (lambda: [HumanInTheLoopMiddleware({"look": True})], r"write approvals=\{…\}"),
    "a limit of model calls": (lambda: [ModelCallLimitMiddleware(run_limit=1)], r"limits=Limits\(turns=…\)"),
    "one made of it": (lambda: [Mine(run_limit=1)], r"holds Mine, which .* limits=Limits\(turns=…\)"),
    "a limit of tool calls": (lambda: [ToolCallLimitMiddleware(run_limit=1)], r"Limits\(tool_calls=…\)"),
    "the guards of another agent": (lambda: [Guards()], "holds Guards, which .* those of the graph itself"),
    "summaries": (lambda: [SummarizationMiddleware(MODEL)], r"write prompt_tokens=…, and compaction='model'"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_sentence_when_the_graph_is_built(case: str) -> None:
    given, said = MISTAKES[case]
    with pytest.raises(SetupError, match=said) as raised:
        build_graph(MODEL, [look], middleware=given())
    assert "\n" not in str(raised.value)


def test_two_tools_of_one_name_are_told() -> None:
    @tool
    def write_todos() -> str:
        """Write."""
        return ""

    with pytest.raises(SetupError, match="Two tools are named 'write_todos'"):
        build_graph(MODEL, [write_todos], middleware=[TodoListMiddleware()])


def test_without_langchain_the_command_that_installs_it_is_named() -> None:
    program = (
        "import sys; sys.modules['langchain'] = None\n"
        "from signoff import build_graph\n"
        "from signoff.models import ScriptedModel\n"
        "build_graph(ScriptedModel([]))\n"
        "try:\n    build_graph(ScriptedModel([]), middleware=[object()])\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert re.fullmatch(rf"SetupError .*{re.escape(install_hint('langchain'))}\n", done.stdout)


def flaky(fails: int, error: type[Exception] = ValueError, **metadata: Any) -> tuple[BaseTool, list[int]]:
    """A tool that fails so many times, and how often it has run."""
    ran: list[int] = []

    @tool
    def work() -> str:
        """Work."""
        ran.append(1)
        if len(ran) <= fails:
            raise error("no luck")
        return "worked"

    work.metadata = {"kind": "read", **metadata}
    return work, ran


# Of `ToolRetryMiddleware`: the tool fails so often; how often it ran, and the result.
RETRIES: dict[str, tuple[dict[str, Any], int, int, str]] = {
    "max_retries": ({"max_retries": 2}, 2, 3, "worked"),
    "one failure too many": (
        {"max_retries": 1},
        2,
        2,
        "Tool 'work' failed after 2 attempts with ValueError: no luck",
    ),
    "on_failure: error": ({"max_retries": 1, "on_failure": "error"}, 2, 2, "ValueError: no luck"),
    "on_failure: a function": (
        {"max_retries": 0, "on_failure": lambda error: f"so: {error}"},
        1,
        1,
        "so: no luck",
    ),
    "retry_on: another error": ({"retry_on": (KeyError,)}, 1, 1, "ValueError: no luck"),
    "retry_on: a function": ({"retry_on": lambda error: "luck" in str(error)}, 1, 2, "worked"),
    "tools: not this one": ({"tools": ["other"]}, 1, 1, "ValueError: no luck"),
    "tools: this one": ({"tools": ["work"]}, 1, 2, "worked"),
}


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("case", RETRIES)
def test_tool_retry(case: str, way: str) -> None:
    options, fails, runs, result = RETRIES[case]
    work, ran = flaky(fails)
    built = graph(script(call("work")), ToolRetryMiddleware(initial_delay=0, **options), tools=[work])
    found = played(built, way)
    assert (len(ran), results(found)[0].startswith(result)) == (runs, True), results(found)


def played(built: Any, way: str = "sync") -> dict[str, Any]:
    asked = {"messages": [("user", "go")]}
    return dict(built.invoke(asked) if way == "sync" else asyncio.run(built.ainvoke(asked)))


# Of `ModelRetryMiddleware`: the script, how often the model is asked, how it ends, and what it says.
MODEL_RETRIES: dict[str, tuple[dict[str, Any], int, int, str, str]] = {
    "max_retries": ({"max_retries": 2}, 2, 3, "finish_task", ""),
    "on_failure: error": ({"max_retries": 1, "on_failure": "error"}, 2, 2, "model_error", "no luck"),
    # LangChain's run ends with this text as its answer; here it is a reply without a call, so no end.
    "on_failure: continue": (
        {"max_retries": 1},
        2,
        3,
        "finish_task",
        "Model call failed after 2 attempts with ValueError: no luck",
    ),
    "on_failure: a function": (
        {"max_retries": 0, "on_failure": lambda e: f"so: {e}"},
        1,
        2,
        "finish_task",
        "so: no",
    ),
    "retry_on: another error": (
        {"retry_on": (KeyError,), "on_failure": "error"},
        1,
        1,
        "model_error",
        "no luck",
    ),
}


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("case", MODEL_RETRIES)
def test_model_retry(case: str, way: str) -> None:
    options, fails, calls, reason, said = MODEL_RETRIES[case]
    model = ScriptedModel([*[ValueError("no luck")] * fails, FINISH])
    given = ModelRetryMiddleware(initial_delay=0, **options)
    found = played(graph(model, given, model_retries=None), way)
    assert (len(model.seen), found["outcome"]["reason"]) == (calls, reason)
    told = [m.text for m in found["messages"] if m.type == "ai"] + [found["outcome"]["error"] or ""]
    assert any(said in text for text in told)


# Of `ModelFallbackMiddleware.wrap_model_call`: each model in turn; the last error is raised.
FALLBACKS: dict[str, tuple[int, str, list[int]]] = {
    "the first serves": (0, "finish_task", [1, 0, 0]),
    "the second serves": (1, "finish_task", [1, 1, 0]),
    "the third serves": (2, "finish_task", [1, 1, 1]),
    "none serves": (3, "model_error", [1, 1, 1]),
}


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("case", FALLBACKS)
def test_model_fallback(case: str, way: str) -> None:
    broken, reason, asked = FALLBACKS[case]
    models = [ScriptedModel([ConnectionError(f"down {n}") if n < broken else FINISH]) for n in range(3)]
    found = played(graph(models[0], ModelFallbackMiddleware(*models[1:]), model_retries=None), way)
    assert (found["outcome"]["reason"], [len(one.seen) for one in models]) == (reason, asked)
    if reason == "model_error":
        assert "down 2" in found["outcome"]["error"]
    else:
        # Each of them is asked with the same tools, the control tools among them.
        assert models[broken].seen[0].tool_names[-3:] == ["finish_task", "ask_user", "think"]


# Of `ClearToolUsesEdit.apply`: the results that the third call of the model is shown.
EDITS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "below the trigger": ({"trigger": 100_000}, ["a: long", "b: long"]),
    "keep": ({"trigger": 10, "keep": 1}, ["[cleared]", "b: long"]),
    "keep none": ({"trigger": 10, "keep": 0}, ["[cleared]", "[cleared]"]),
    "placeholder": ({"trigger": 10, "keep": 1, "placeholder": "(gone)"}, ["(gone)", "b: long"]),
    "exclude_tools": ({"trigger": 10, "keep": 0, "exclude_tools": ("look",)}, ["a: long", "b: long"]),
}


@pytest.mark.parametrize("case", EDITS)
def test_context_editing(case: str) -> None:
    options, shown = EDITS[case]
    model = script(call("look", at="a"), call("look", at="b"))
    found = played(graph(model, ContextEditingMiddleware(edits=[ClearToolUsesEdit(**options)])))
    told = [m.text for m in model.seen[2].messages if m.type == "tool"]
    assert all(text.startswith(begin) for text, begin in zip(told, shown, strict=True))
    assert [text[:7] for text in results(found)[:2]] == ["a: long", "b: long"]


# Of `PIIMiddleware._process_content`: how "ann@example.com" is shown.
STRATEGIES: dict[str, str] = {
    "redact": r"\[REDACTED_EMAIL\]",
    "mask": r"ann@\*+\.com",
    "hash": r"<email_hash:[0-9a-f]{8}>",
}


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("place", ["input", "output", "tool_results"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_pii(strategy: Any, place: str, way: str) -> None:
    """The task, its reply and its results are the same ones, in other words."""

    @tool
    def find() -> str:
        """Find."""
        return "ann@example.com"

    where: dict[str, Any] = {
        f"apply_to_{name}": name == place for name in ("input", "output", "tool_results")
    }
    given = PIIMiddleware("email", strategy=strategy, **where)
    model = ScriptedModel([["ann@example.com", call("find")], FINISH])
    built = build_graph(model, [find], middleware=[given])
    asked = {"messages": [("user", "ann@example.com")]}
    found = built.invoke(asked) if way == "sync" else asyncio.run(built.ainvoke(asked))
    at = ["input", "output", "tool_results"].index(place)
    texts = [m.text for m in found["messages"][:3]]
    assert re.fullmatch(STRATEGIES[strategy], texts[at])
    assert [text for n, text in enumerate(texts) if n != at] == ["ann@example.com"] * 2
    assert (found["outcome"]["status"], found["outcome"]["turns"]) == ("success", 2)
    assert found["outcome"]["task"] == found["messages"][0].id


def test_pii_that_blocks_ends_the_task() -> None:
    """LangChain raises PIIDetectionError out of the run; here it is the outcome."""
    model = ScriptedModel([FINISH])
    built = build_graph(model, [], middleware=[PIIMiddleware("email", strategy="block")])
    outcome = built.invoke({"messages": [("user", "ann@example.com")]})["outcome"]
    assert (outcome["status"], outcome["reason"], len(model.seen)) == ("error", "middleware", 0)
    assert "PIIDetectionError" in outcome["error"]


# Of `LLMToolEmulator.wrap_tool_call`: which tools are played.
EMULATED: dict[str, tuple[Any, str]] = {
    "all": (None, "played"),
    "this": (["other"], "played"),
    "none": ([], "other"),
}


@pytest.mark.parametrize("case", EMULATED)
def test_tool_emulator(case: str) -> None:
    tools, result = EMULATED[case]
    given = LLMToolEmulator(tools=tools, model=ScriptedModel([AIMessage("played")]))
    assert results(played(graph(script(call("other")), given)))[0] == result


def test_tool_error() -> None:
    """What `on_error` gives None for is raised on, and is a result by Signoff's own rule."""
    given = ToolErrorMiddleware(on_error=lambda error, request: None)
    found = played(graph(script(call("look", at="nothing")), given))
    assert results(found)[0] == "ValueError: there is nothing to look at"


def test_todos_stand_in_the_prompt_beside_the_callers_words() -> None:
    model = script()
    played(graph(model, TodoListMiddleware(system_prompt="Plan."), system_prompt="Be kind."))
    told = model.seen[0].messages[0].text
    assert told.index("Be kind.") < told.index("Plan.") < told.index("finish_task")


SINCE_1_5 = pytest.mark.skipif(not hasattr(middleware, "AutoModeMiddleware"), reason="LangChain 1.4")


@SINCE_1_5
@BETA
@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_route_is_read_from_the_storage_by_another_process(tmp_path: Path, way: str) -> None:
    from tests.support.judge import Judge, route_by

    judge = Judge(answer=route_by("large"))
    config: Any = {"configurable": {"thread_id": "one"}}

    def gone_on(given: Any, *steps: Any) -> dict[str, Any]:
        choices = {
            "easy": middleware.ModelChoice(ScriptedModel([]), "Small."),
            "hard": middleware.ModelChoice(ScriptedModel(steps), "Large."),
        }
        router = middleware.ModelRouterMiddleware(choices=choices, instructions="Which?", classifier=judge)
        with sqlite_storage(tmp_path / "threads.sqlite") as storage:
            built = build_graph(ScriptedModel([]), [], middleware=[router], storage=storage)
            found = (
                built.invoke(given, config) if way == "sync" else asyncio.run(built.ainvoke(given, config))
            )
            return dict(found)

    asked: Any = {"messages": [("user", "A large task.")]}
    assert gone_on(asked, call("ask_user", question="Which?"))["__interrupt__"]
    found = gone_on(Command(resume="The red one."), FINISH)
    assert (found["outcome"]["status"], found["model_route"].choice, len(judge.seen)) == (
        "success",
        "hard",
        1,
    )


@SINCE_1_5
@BETA
def test_a_router_without_an_answer_ends_the_task() -> None:
    """LangChain raises the classifier's error out of the run; here it is the outcome."""
    from tests.support.judge import Judge, no_answer

    choices = {"easy": middleware.ModelChoice(ScriptedModel([]), "Small.")}
    judge = Judge(answer=no_answer)
    router = middleware.ModelRouterMiddleware(choices=choices, instructions="Which?", classifier=judge)
    outcome = played(graph(script(), router))["outcome"]
    assert (outcome["status"], outcome["reason"]) == ("error", "middleware")
    assert "before_agent of the middleware ModelRouterMiddleware failed" in outcome["error"]


@SINCE_1_5
@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_call_that_cannot_be_judged_does_not_run(way: str) -> None:
    from tests.support.judge import Judge, no_answer

    work, ran = flaky(0)
    judge = Judge(answer=no_answer)
    given = middleware.AutoModeMiddleware(tools=["work"], classifier=judge)
    found = played(graph(script(call("work")), given, tools=[work]), way)
    assert (results(found)[0], ran) == ("ConnectionError: down", [])


# Of `ModelRefusalMiddleware`: how each provider's package tells a refusal.
REFUSALS: dict[str, dict[str, Any]] = {
    "openai": {"additional_kwargs": {"refusal": "No."}, "response_metadata": {"model_provider": "openai"}},
    "anthropic": {
        "response_metadata": {
            "model_provider": "anthropic",
            "stop_reason": "refusal",
            "stop_details": {"explanation": "No.", "category": "bio"},
        }
    },
    "google": {
        "response_metadata": {
            "model_provider": "google_genai",
            "finish_reason": "SAFETY",
            "finish_message": "No.",
        }
    },
}


@SINCE_1_5
@pytest.mark.parametrize("streaming", ["always", "never"])
@pytest.mark.parametrize("provider", REFUSALS)
def test_a_refusal_is_a_model_error(provider: str, streaming: Any) -> None:
    model = ScriptedModel([AIMessage("", **REFUSALS[provider]), FINISH])
    given = middleware.ModelRefusalMiddleware()
    outcome = played(graph(model, given, streaming=streaming))["outcome"]
    assert (outcome["status"], outcome["reason"], len(model.seen)) == ("error", "model_error", 1)
    assert "ModelRefusalError: Model refused" in outcome["error"]
    assert "The model refuses this task: write what you want in other words" in outcome["error"]


@SINCE_1_5
@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_refusal_is_retried_by_its_class(way: str) -> None:
    from langchain_core.exceptions import ModelRefusalError

    retries = ModelRetryMiddleware(retry_on=(ModelRefusalError,), initial_delay=0)
    model = ScriptedModel([AIMessage("", **REFUSALS["openai"]), FINISH])
    found = played(graph(model, retries, middleware.ModelRefusalMiddleware()), way)
    assert (found["outcome"]["reason"], len(model.seen)) == ("finish_task", 2)
