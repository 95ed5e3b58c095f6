"""The middleware classes of LangChain and of deepagents, each in a small run of a Signoff graph.

A case builds a graph with the middleware, runs it and asserts what the class is for. Its first line of words
stands in the table of docs/how-to/middleware.md.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from deepagents import middleware as deep
from deepagents.backends import FilesystemBackend
from deepagents.middleware.patch_tool_calls import PatchToolCallsMiddleware
from langchain.agents import middleware as chain
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import BaseTool, tool

from signoff import build_graph
from signoff.graph.build import Graph
from signoff.models import ScriptedModel, call
from signoff.models.scripted import Step

FINISH = call("finish_task", summary="Done.")
PACKAGES = {"langchain": chain, "deepagents": deep}


@tool
def look(at: str) -> str:
    """Look at something."""
    if at == "nothing":
        raise ValueError("there is nothing to look at")
    return f"{at}: " + "long " * 200


look.metadata = {"kind": "read"}


@tool
def other() -> str:
    """Do something else."""
    return "other"


class Known(ScriptedModel):
    """A scripted model that says that it is a provider's."""

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return {**super()._get_ls_params(stop, **kwargs), "ls_provider": "openai"}


class Picky(ScriptedModel):
    """A scripted model that gives structured output, which the picked tools are."""

    def with_structured_output(self, schema: Any, **kwargs: Any) -> Any:
        return RunnableLambda(lambda _: {"tools": ["look"]})


def graph(model: ScriptedModel, *given: Any, tools: list[BaseTool] | None = None, **options: Any) -> Graph:
    return build_graph(model, [look, other] if tools is None else tools, middleware=list(given), **options)


def ran(built: Graph, way: str, **given: Any) -> dict[str, Any]:
    """The state after a run that succeeded."""
    asked = {"messages": [("user", "Write to ann@example.com.")], **given}
    found = built.invoke(asked) if way == "sync" else asyncio.run(built.ainvoke(asked))
    assert found["outcome"]["status"] == "success", found["outcome"]
    return dict(found)


def results(found: Mapping[str, Any]) -> list[str]:
    return [message.text for message in found["messages"] if message.type == "tool"]


def script(*steps: Step) -> ScriptedModel:
    return ScriptedModel([*steps, FINISH])


def offered(model: ScriptedModel, at: int = 0) -> list[str]:
    return model.seen[at].tool_names


def context_editing(way: str) -> None:
    """Old results are cleared from the prompt; the history keeps them."""
    model = script(call("look", at="a"), call("look", at="b"))
    edit = chain.ClearToolUsesEdit(trigger=50, keep=1)
    found = ran(graph(model, chain.ContextEditingMiddleware(edits=[edit])), way)
    assert next(m.text for m in model.seen[2].messages if m.type == "tool") == "[cleared]"
    assert results(found)[0].startswith("a: ")


def file_search(way: str) -> None:
    """Its tools find files."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "a.py").write_text("needle = 1\n")
        given = chain.FilesystemFileSearchMiddleware(root_path=folder, use_ripgrep=False)
        found = ran(graph(script(call("glob_search", pattern="*.py")), given), way)
    assert "/a.py" in results(found)[0]


def emulator(way: str) -> None:
    """A model imitates the tool, which does not run."""
    played = ScriptedModel([AIMessage("sunny")])
    found = ran(graph(script(call("other")), chain.LLMToolEmulator(model=played)), way)
    assert results(found)[0] == "sunny"


def selector(way: str) -> None:
    """A model picks the tools; the control tools are always offered, too."""
    model = script(call("look", at="a"))
    ran(graph(model, chain.LLMToolSelectorMiddleware(model=Picky(script=[]))), way)
    assert offered(model) == ["look", "finish_task", "ask_user", "think"]


def fallback(way: str) -> None:
    """If the first model fails, the next one is called."""
    first, second = ScriptedModel([ConnectionError("down")]), script()
    given = chain.ModelFallbackMiddleware(second)
    found = ran(graph(first, given, model_retries=None), way)
    assert (len(first.seen), len(second.seen), found["outcome"]["turns"]) == (1, 1, 1)


def model_retry(way: str) -> None:
    """A failed call is retried; with `on_failure="error"`, the last failure is a `model_error`."""
    model = ScriptedModel([ValueError("once"), FINISH])
    ran(graph(model, chain.ModelRetryMiddleware(initial_delay=0), model_retries=None), way)
    assert len(model.seen) == 2


def pii(way: str) -> None:
    """Redacts the history's texts; not streamed chunks, nor arguments, as the summary of a finish."""
    tells = {"name": "finish_task", "args": {"summary": "To a@b.com."}, "id": "f1"}
    says = AIMessage("Wrote to a@b.com.", tool_calls=[tells])
    given = chain.PIIMiddleware("email", apply_to_output=True)
    found = ran(graph(ScriptedModel([says]), given), way)
    assert found["messages"][0].text == "Write to [REDACTED_EMAIL]."
    assert found["messages"][1].text == "Wrote to [REDACTED_EMAIL]."
    assert found["outcome"]["summary"] == "To a@b.com."


def tool_search(way: str) -> None:
    """Offers the provider's own tool search; with other providers it fails, as `model_error`."""
    model = Known(script=[FINISH])
    ran(graph(model, chain.ProviderToolSearchMiddleware(searchable_tools=["look"])), way)
    assert offered(model) == ["look", "other", "tool_search", "finish_task", "ask_user", "think"]


def shell(way: str) -> None:
    """Its shell stays open between calls, and ends with the task."""
    with TemporaryDirectory() as folder:
        steps = call("shell", command="cd /; X=5"), call("shell", command="echo $X $PWD")
        found = ran(graph(script(*steps), chain.ShellToolMiddleware(folder)), way)
    assert "5 /" in results(found)[1]


def todo(way: str) -> None:
    """The list is a channel of the state; two lists in one reply are refused."""
    todos = [{"content": "look", "status": "pending"}]
    twice: Step = [call("write_todos", todos=todos), call("write_todos", todos=[])]
    found = ran(graph(script(call("write_todos", todos=todos), twice), chain.TodoListMiddleware()), way)
    assert found["todos"] == todos
    assert sum("should never be called multiple times" in text for text in results(found)) == 2


def tool_error(way: str) -> None:
    """Its text reports a failure; all other failures are still results."""
    given = chain.ToolErrorMiddleware(on_error=lambda error, request: f"Told: {error}")
    found = ran(graph(script(call("look", at="nothing")), given), way)
    assert results(found)[0] == "Told: there is nothing to look at"


def tool_retry(way: str) -> None:
    """Calls of `read` or idempotent tools are retried; any other tool runs once."""
    tries: list[str] = []

    @tool
    def flaky() -> str:
        """Fails at first."""
        tries.append("try")
        if len(tries) < 3:
            raise ValueError("not yet")
        return "at last"

    flaky.metadata = {"kind": "read"}
    found = ran(graph(script(call("flaky")), chain.ToolRetryMiddleware(initial_delay=0), tools=[flaky]), way)
    assert (results(found)[0], len(tries)) == ("at last", 3)


def auto_mode(way: str) -> None:
    """A decision model blocks risky calls, which voids a finish beside them; control tools are not judged."""
    from tests.support.judge import Judge, risk_of

    judge = Judge(answer=risk_of("cellar", "Done."))
    given = chain.AutoModeMiddleware(tools=["look", "finish_task"], classifier=judge)
    # Its name is slightly misspelled, which is no way around.
    found = ran(graph(script([call("Look", at="cellar"), FINISH], call("look", at="roof")), given), way)
    blocked, refused, seen, _ = results(found)
    assert "was blocked because it was classified as risky" in blocked
    assert refused.startswith("Refused: look in the same reply did not succeed")
    assert seen.startswith("roof: ")
    assert [one["tool_call"]["name"] for one in judge.seen] == ["look", "look"]


def model_refusal(way: str) -> None:
    """A refusal is an error: a `ModelFallbackMiddleware` before it goes on, else it is a `model_error`."""
    refusal = AIMessage(
        "",
        additional_kwargs={"refusal": "I will not."},
        response_metadata={"model_provider": "openai"},
        usage_metadata={"input_tokens": 100, "output_tokens": 10, "total_tokens": 110},
    )
    first, second = ScriptedModel([refusal]), script()
    around = chain.ModelFallbackMiddleware(second), chain.ModelRefusalMiddleware()
    found = ran(graph(first, *around), way)
    assert (len(first.seen), len(second.seen), found["outcome"]["turns"]) == (1, 1, 1)
    assert found["outcome"]["usage"]["input_tokens"] > 100


def model_router(way: str) -> None:
    """A decision model picks the model once in a task; its answer is a channel of the state."""
    from tests.support.judge import Judge, route_by

    easy, hard, judge = ScriptedModel([]), script(call("look", at="a")), Judge(answer=route_by("Write"))
    choices = {"easy": chain.ModelChoice(easy, "Small."), "hard": chain.ModelChoice(hard, "Large.")}
    given = chain.ModelRouterMiddleware(choices=choices, instructions="Which?", classifier=judge)
    found = ran(graph(ScriptedModel([]), given), way)
    assert (len(easy.seen), len(hard.seen), len(judge.seen)) == (0, 2, 1)
    assert found["model_route"].choice == "hard"


def async_sub_agents(way: str) -> None:
    """Its tools and its part of the prompt are added; the agents that they start run on another server."""
    agent: Any = {"name": "far", "description": "Far away.", "graph_id": "far", "url": "http://127.0.0.1:9"}
    model = script(call("list_async_tasks"))
    found = ran(graph(model, deep.AsyncSubAgentMiddleware(async_subagents=[agent])), way)
    assert "No" in results(found)[0]
    assert "start_async_task" in offered(model)


def deep_files(way: str) -> None:
    """Its file tools work on a backend on disk; long results are moved to files."""
    with TemporaryDirectory() as folder:
        backend = FilesystemBackend(root_dir=folder, virtual_mode=True)
        given = deep.FilesystemMiddleware(backend=backend, tool_token_limit_before_evict=100)
        steps = call("write_file", file_path="/a.txt", content="hello"), call("look", at="a")
        found = ran(graph(script(*steps), given), way)
        assert (Path(folder) / "a.txt").read_text() == "hello"
    assert "too large" in results(found)[1].lower()


def memory(way: str) -> None:
    """The contents of its memory files are added to the prompt."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "AGENTS.md").write_text("Be brief.")
        backend = FilesystemBackend(root_dir=folder, virtual_mode=True)
        model = script()
        ran(graph(model, deep.MemoryMiddleware(backend=backend, sources=["/AGENTS.md"])), way)
    assert "Be brief." in model.seen[0].messages[0].text


def rubric(way: str) -> None:
    """If its grader does not accept a finish, the finish is refused with the grader's words."""
    verdicts = iter([("needs_revision", False), ("satisfied", True)])

    def grade(name: str, passed: bool) -> Step:
        one = {"name": "short", "passed": passed, **({} if passed else {"gap": "It is too long."})}
        return call("GraderResponse", result=name, explanation="Because.", criteria=[one])

    grader = ScriptedModel([grade(*one) for one in verdicts])
    model = ScriptedModel([FINISH, call("finish_task", summary="Short.")])
    given = deep.RubricMiddleware(model=grader)
    found = ran(graph(model, given), way, rubric="It is short.")
    assert results(found)[0].startswith("Refused: ")
    assert "It is too long." in results(found)[0]
    assert found["outcome"]["refusals"] == 1


def skills(way: str) -> None:
    """The skills that it finds are added to the prompt."""
    with TemporaryDirectory() as folder:
        place = Path(folder) / "skills" / "sums"
        place.mkdir(parents=True)
        (place / "SKILL.md").write_text("---\nname: sums\ndescription: Adds numbers.\n---\nAdd them.\n")
        backend, model = FilesystemBackend(root_dir=folder, virtual_mode=True), script()
        ran(graph(model, deep.SkillsMiddleware(backend=backend, sources=["/skills/"])), way)
    assert "Adds numbers." in model.seen[0].messages[0].text


def sub_agents(way: str) -> None:
    """Its tool runs another agent, and returns that agent's answer."""
    agent: Any = {
        "name": "helper",
        "description": "Helps.",
        "system_prompt": "Help.",
        "model": ScriptedModel([AIMessage("helped")]),
        "tools": [],
    }
    with TemporaryDirectory() as folder:
        backend = FilesystemBackend(root_dir=folder, virtual_mode=True)
        given = deep.SubAgentMiddleware(backend=backend, subagents=[agent])
        steps = call("task", description="Help.", subagent_type="helper")
        found = ran(graph(script(steps), given), way)
    assert results(found)[0] == "helped"


def unsupported(way: str) -> None:
    """In the prompt, blocks that the model's profile excludes are replaced."""
    model = script()
    model.profile = {"image_inputs": False}
    image = {"type": "image", "base64": "aGk=", "mime_type": "image/png"}
    asked = {"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]}
    ran(graph(model, deep.UnsupportedContentMiddleware()), way, messages=[asked])
    assert "image" not in {block["type"] for block in model.seen[0].messages[1].content_blocks}


# LangChain 1.4 does not have them.
_SINCE_1_5: Mapping[type, Callable[[str], None]] = (
    {
        chain.AutoModeMiddleware: auto_mode,
        chain.ModelRefusalMiddleware: model_refusal,
        chain.ModelRouterMiddleware: model_router,
    }
    if hasattr(chain, "AutoModeMiddleware")
    else {}
)
CASES: Mapping[type, Callable[[str], None]] = {
    chain.ContextEditingMiddleware: context_editing,
    chain.FilesystemFileSearchMiddleware: file_search,
    chain.LLMToolEmulator: emulator,
    chain.LLMToolSelectorMiddleware: selector,
    chain.ModelFallbackMiddleware: fallback,
    chain.ModelRetryMiddleware: model_retry,
    chain.PIIMiddleware: pii,
    chain.ProviderToolSearchMiddleware: tool_search,
    chain.ShellToolMiddleware: shell,
    chain.TodoListMiddleware: todo,
    chain.ToolErrorMiddleware: tool_error,
    chain.ToolRetryMiddleware: tool_retry,
    deep.AsyncSubAgentMiddleware: async_sub_agents,
    deep.FilesystemMiddleware: deep_files,
    deep.MemoryMiddleware: memory,
    deep.RubricMiddleware: rubric,
    deep.SkillsMiddleware: skills,
    deep.SubAgentMiddleware: sub_agents,
    deep.UnsupportedContentMiddleware: unsupported,
    **_SINCE_1_5,
}


def classes() -> dict[tuple[str, str], type]:
    """The middleware classes that the two packages export, and the one that `create_deep_agent` adds, by
    package and name."""
    found = {
        (package, name): getattr(module, name)
        for package, module in PACKAGES.items()
        for name in module.__all__
    }
    found["deepagents", PatchToolCallsMiddleware.__name__] = PatchToolCallsMiddleware
    return {
        place: one
        for place, one in sorted(found.items())
        if isinstance(one, type) and issubclass(one, AgentMiddleware) and one is not AgentMiddleware
    }
