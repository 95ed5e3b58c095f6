"""The middleware classes of LangChain and deepagents: each does what it is for, or is refused.

LangChain's own tests of them are those of test_langchain_suite.py; here is one case each of what a Signoff
graph adds to it, and what it makes of their errors. docs/how-to/middleware.md has a row for every class.
"""

import gc
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import deepagents.middleware as deep
import pytest
from deepagents.backends import FilesystemBackend
from deepagents.middleware.patch_tool_calls import PatchToolCallsMiddleware
from langchain.agents import middleware as chain
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool

from signoff import SetupError, build_graph
from signoff.guards import Guards
from signoff.models import ScriptedModel, call
from tests.drop_in.guarding import BETA, SINCE_1_5
from tests.drop_in.playing import ACCEPTED, CONTROLS, FINISH, POLICY, ended, labels, play, results

pytestmark = BETA
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "middleware.md"
# LangChain's shell leaves a pipe to the collector, which has to find it in its own test.
OPEN = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
MAIL: Any = {"messages": [("user", "Write to ann@example.com.")]}


@tool
def look(at: str) -> str:
    """Look at something."""
    if at == "nothing":
        raise ValueError("there is nothing to look at")
    return f"{at}: " + "long " * 200


@tool
def other() -> str:
    """Do something else."""
    return "other"


look.metadata = {"kind": "read"}


def script(*steps: Any) -> ScriptedModel:
    return ScriptedModel([*steps, FINISH])


def ran(model: ScriptedModel, *middleware: Any, given: Any = MAIL, **options: Any) -> dict[str, Any]:
    """The state after a run that succeeded."""
    found = play(build_graph(model, [look, other], middleware=middleware, policy=POLICY, **options), given)
    assert ended(found) == ACCEPTED, found["outcome"]
    return found


def result_of(step: Any, *middleware: Any) -> str:
    """The first result in a run with this first step."""
    return results(ran(script(*(step if isinstance(step, tuple) else [step])), *middleware))[0]


def prompt_of(*middleware: Any) -> str:
    model = script()
    ran(model, *middleware)
    return model.seen[0].messages[0].text


def backend(folder: Path) -> Any:
    return FilesystemBackend(root_dir=folder, virtual_mode=True)


def test_context_editing() -> None:
    model = script(call("look", at="a"), call("look", at="b"))
    edit = chain.ClearToolUsesEdit(trigger=50, keep=1)
    found = ran(model, chain.ContextEditingMiddleware(edits=[edit]))
    assert next(m.text for m in model.seen[2].messages if m.type == "tool") == "[cleared]"
    assert results(found)[0].startswith("a: ")


def test_filesystem_file_search(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("needle = 1\n")
    given = chain.FilesystemFileSearchMiddleware(root_path=str(tmp_path), use_ripgrep=False)
    assert "/a.py" in result_of(call("glob_search", pattern="*.py"), given)


def test_llm_tool_emulator() -> None:
    played = ScriptedModel([AIMessage("sunny")])
    assert result_of(call("other"), chain.LLMToolEmulator(model=played)) == "sunny"


class Picky(ScriptedModel):
    """A scripted model that gives structured output, which the picked tools are."""

    def with_structured_output(self, schema: Any, **kwargs: Any) -> Any:
        return RunnableLambda(lambda _: {"tools": ["look"]})


def test_llm_tool_selector() -> None:
    model = script(call("look", at="a"))
    ran(model, chain.LLMToolSelectorMiddleware(model=Picky(script=[])))
    assert model.seen[0].tool_names == ["look", *CONTROLS]


def test_model_fallback() -> None:
    models = [ScriptedModel([ConnectionError("down")]), ScriptedModel([ConnectionError("down")]), script()]
    found = ran(models[0], chain.ModelFallbackMiddleware(*models[1:]))
    assert ([len(one.seen) for one in models], found["outcome"]["turns"]) == ([1, 1, 1], 1)
    assert models[2].seen[0].tool_names == ["look", "other", *CONTROLS]


def test_model_retry() -> None:
    model = ScriptedModel([ValueError("once"), FINISH])
    ran(model, chain.ModelRetryMiddleware(initial_delay=0))
    assert len(model.seen) == 2


def test_pii() -> None:
    """The task, its reply and its results are the same ones in other words; arguments stay."""
    said = AIMessage("To a@b.com.", tool_calls=[{"name": "look", "args": {"at": "a@b.com"}, "id": "l"}])
    given = chain.PIIMiddleware("email", apply_to_output=True, apply_to_tool_results=True)
    found = ran(ScriptedModel([said, FINISH]), given)
    assert all("[REDACTED_EMAIL]" in message.text for message in found["messages"][:3])
    assert found["messages"][1].tool_calls[0]["args"] == {"at": "a@b.com"}
    assert (found["outcome"]["turns"], found["outcome"]["task"]) == (2, found["messages"][0].id)


class OfOpenAI(ScriptedModel):
    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return {**super()._get_ls_params(stop, **kwargs), "ls_provider": "openai"}


def test_provider_tool_search() -> None:
    model = OfOpenAI(script=[FINISH])
    ran(model, chain.ProviderToolSearchMiddleware(searchable_tools=["look"]))
    assert model.seen[0].tool_names == ["look", "other", "tool_search", *CONTROLS]


@OPEN
def test_shell_tool(tmp_path: Path) -> None:
    steps = call("shell", command="cd /; X=5"), call("shell", command="echo $X $PWD")
    assert "5 /" in results(ran(script(*steps), chain.ShellToolMiddleware(tmp_path)))[1]
    gc.collect()


def test_todo_list() -> None:
    todos = [{"content": "look", "status": "pending"}]
    twice = [call("write_todos", todos=todos), call("write_todos", todos=[])]
    model = script(call("write_todos", todos=todos), twice)
    found = ran(model, chain.TodoListMiddleware(system_prompt="Plan."), system_prompt="Be kind.")
    answers = [m.status for m in found["messages"] if m.type == "tool"]
    assert (found["todos"], answers) == (todos, ["success", "error", "error", "success"])
    words = [model.seen[0].messages[0].text.index(word) for word in ("Be kind.", "Plan.", "finish_task")]
    assert words == sorted(words)


def test_tool_error() -> None:
    told = chain.ToolErrorMiddleware(on_error=lambda error, _: f"Told: {error}")
    assert result_of(call("look", at="nothing"), told) == "Told: there is nothing to look at"


def test_tool_retry() -> None:
    given = chain.ToolRetryMiddleware(initial_delay=0, max_retries=1, on_failure=lambda error: f"so: {error}")
    assert result_of(call("look", at="nothing"), given) == "so: there is nothing to look at"


@SINCE_1_5
def test_auto_mode() -> None:
    """A blocked call voids a finish beside it, also by a misspelled name; a control tool is not judged."""
    from tests.support.judge import Judge, risk_of

    judge = Judge(answer=risk_of("cellar", "Done."))
    given = chain.AutoModeMiddleware(tools=["look", "finish_task"], classifier=judge)
    found = ran(script([call("Look", at="cellar"), FINISH], call("look", at="roof")), given)
    assert [labels(found)[1], results(found)[2][:5]] == ["<refused>", "roof:"]
    assert [one["tool_call"]["name"] for one in judge.seen] == ["look", "look"]


REFUSAL = AIMessage(
    "",
    additional_kwargs={"refusal": "I will not."},
    response_metadata={"model_provider": "openai"},
    usage_metadata={"input_tokens": 100, "output_tokens": 10, "total_tokens": 110},
)


@SINCE_1_5
def test_model_refusal() -> None:
    first, second = ScriptedModel([REFUSAL]), script()
    found = ran(first, chain.ModelFallbackMiddleware(second), chain.ModelRefusalMiddleware())
    assert (len(first.seen), len(second.seen), found["outcome"]["turns"]) == (1, 1, 1)
    assert found["outcome"]["usage"]["input_tokens"] > 100


@SINCE_1_5
def test_model_router() -> None:
    from tests.support.judge import Judge, route_by

    easy, hard = ScriptedModel([]), script(call("look", at="a"))
    choices = {"easy": chain.ModelChoice(easy, "Small."), "hard": chain.ModelChoice(hard, "Large.")}
    judge = Judge(answer=route_by("Write"))
    router = chain.ModelRouterMiddleware(choices=choices, instructions="Which?", classifier=judge)
    found = ran(easy, router)
    assert (found["model_route"].choice, len(hard.seen), len(judge.seen)) == ("hard", 2, 1)


def test_async_sub_agent() -> None:
    agent: Any = {"name": "far", "description": "Far away.", "graph_id": "far", "url": "http://127.0.0.1:9"}
    model = script(call("list_async_tasks"))
    ran(model, deep.AsyncSubAgentMiddleware(async_subagents=[agent]))
    assert "start_async_task" in model.seen[0].tool_names


def test_filesystem(tmp_path: Path) -> None:
    given = deep.FilesystemMiddleware(backend=backend(tmp_path), tool_token_limit_before_evict=100)
    steps = call("write_file", file_path="/a.txt", content="hello"), call("look", at="a")
    found = ran(script(*steps), given)
    assert (tmp_path / "a.txt").read_text() == "hello"
    assert len(results(found)[1]) < 1_000 or "large" in results(found)[1]


def test_memory(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Be brief.")
    given = deep.MemoryMiddleware(backend=backend(tmp_path), sources=["/AGENTS.md"])
    assert "Be brief." in prompt_of(given)


def test_rubric() -> None:
    """A finish that its grader does not accept is refused with the grader's words."""

    def grade(result: str, **gap: str) -> Any:
        criterion = {"name": "short", "passed": not gap, **gap}
        return call("GraderResponse", result=result, explanation="Because.", criteria=[criterion])

    grader = ScriptedModel([grade("needs_revision", gap="It is too long."), grade("satisfied")])
    model = ScriptedModel([FINISH, call("finish_task", summary="Short.")])
    found = ran(model, deep.RubricMiddleware(model=grader), given={**MAIL, "rubric": "It is short."})
    assert (labels(found)[0], found["outcome"]["refusals"]) == ("<refused>", 1)
    assert "It is too long." in results(found)[0]


def test_skills(tmp_path: Path) -> None:
    place = tmp_path / "skills" / "sums"
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text("---\nname: sums\ndescription: Adds numbers.\n---\nAdd them.\n")
    given = deep.SkillsMiddleware(backend=backend(tmp_path), sources=["/skills/"])
    assert "Adds numbers." in prompt_of(given)


def test_sub_agent(tmp_path: Path) -> None:
    agent: Any = {"name": "helper", "description": "Helps.", "system_prompt": "Help.", "tools": []}
    agent["model"] = ScriptedModel([AIMessage("helped")])
    given = deep.SubAgentMiddleware(backend=backend(tmp_path), subagents=[agent])
    assert result_of(call("task", description="Help.", subagent_type="helper"), given) == "helped"


def test_unsupported_content() -> None:
    model = script()
    model.profile = {"image_inputs": False}
    image = {"type": "image", "base64": "aGk=", "mime_type": "image/png"}
    asked = {"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]}
    ran(model, deep.UnsupportedContentMiddleware(), given={"messages": [asked]})
    assert "image" not in {block["type"] for block in model.seen[0].messages[1].content_blocks}


MODEL = ScriptedModel([FINISH])


def summaries(folder: Path) -> Any:
    return deep.SummarizationMiddleware(MODEL, backend=backend(folder))


# One of each class that is refused, and what the error says to write.
REFUSED: Mapping[str, tuple[Callable[[Path], Any], str]] = {
    "HumanInTheLoopMiddleware": (lambda _: chain.HumanInTheLoopMiddleware({"look": True}), "approvals="),
    "ModelCallLimitMiddleware": (lambda _: chain.ModelCallLimitMiddleware(run_limit=1), "Limits(turns="),
    "PatchToolCallsMiddleware": (lambda _: PatchToolCallsMiddleware(), "leave it out"),
    "SummarizationMiddleware of langchain": (lambda _: chain.SummarizationMiddleware(MODEL), "'compaction'"),
    "SummarizationMiddleware of deepagents": (summaries, "'compaction'"),
    "SummarizationToolMiddleware": (
        lambda folder: deep.SummarizationToolMiddleware(summaries(folder)),
        "'compaction'",
    ),
    "ToolCallLimitMiddleware": (lambda _: chain.ToolCallLimitMiddleware(run_limit=1), "Limits(tool_calls="),
    "Guards": (lambda _: Guards(), "leave it out"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_class_that_is_refused_says_what_to_write(name: str, tmp_path: Path) -> None:
    build, said = REFUSED[name]
    given = build(tmp_path)
    made_of_it = type("Mine", (type(given),), {})
    with pytest.raises(SetupError) as raised:
        build_graph(MODEL, [look], middleware=[given])
    assert said in str(raised.value)
    given.__class__ = made_of_it
    with pytest.raises(SetupError, match="Mine"):
        build_graph(MODEL, [look], middleware=[given])


def snake(name: str) -> str:
    """`model_fallback` for `ModelFallbackMiddleware`: the test of a class that works is named so."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name.removesuffix("Middleware"))
    return words.lower()


def test_the_page_says_of_every_class_whether_it_works() -> None:
    known = {
        (name, package.__name__.split(".")[0])
        for package in (chain, deep)
        for name in package.__all__
        if isinstance(kind := getattr(package, name), type) and issubclass(kind, AgentMiddleware)
    }
    known = {each for each in known if each[0] != "AgentMiddleware"} | {
        ("PatchToolCallsMiddleware", "deepagents")
    }
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (\w+) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert {(name, package) for name, package, _ in rows} >= known
    refused = {name.partition(" ")[0] for name in REFUSED} - {"Guards"}
    assert {name for name, _, how in rows if f"test_{snake(name)}" not in globals()} == refused
    assert {name for name, _, how in rows if how == "refused"} == refused


def test_a_text_that_is_blocked_ends_the_task_with_an_error() -> None:
    blocks = chain.PIIMiddleware("email", strategy="block")
    found = play(build_graph(script(), [look], middleware=[blocks], policy=POLICY), MAIL)
    assert ended(found) == ("error", "middleware")
    assert "PIIDetectionError" in found["outcome"]["error"]
