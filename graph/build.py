"""Builds the machine as a LangGraph graph, and validates the arguments."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import SystemMessage
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from signoff.graph.arguments import listed
from signoff.graph.compiled.graph import DurableGraph, JournalledGraph
from signoff.graph.compiled.other_names import answers_other_names
from signoff.graph.compiled.settings import (
    check_storage,
    checked_format,
    checked_limits,
    checked_model,
    checked_name,
    checked_policy,
    checked_prompt,
    is_address,
    opened,
)
from signoff.graph.errors import ApprovalWarning, JournalWarning, SetupError
from signoff.graph.foreign import outputs_folder
from signoff.graph.inside.installing import install_hint
from signoff.graph.inside.private import LEAN, has
from signoff.graph.inside.speed import plain_tools
from signoff.graph.limits import Limits, Prices
from signoff.graph.outcome import ResultT
from signoff.graph.policy import LoopPolicy
from signoff.graph.schemas.context import context_form
from signoff.graph.schemas.state import state_schemas
from signoff.graph.texts import FINISH_NAME
from signoff.nodes.delegates.graphs import check_prices
from signoff.nodes.model.models import ModelSet, keeper_of, prompt_budget, renamed
from signoff.nodes.model.prices import prices_of
from signoff.nodes.node import Dependencies
from signoff.nodes.tool_calls.inject import Injector
from signoff.tools.approvals import Policy
from signoff.tools.checks import AnyCheck, make_checks
from signoff.tools.control import (
    ControlTool,
    answers_by,
    completed,
    goes_in_rounds,
    result_check,
    result_shape,
    standard_controls,
)
from signoff.tools.processes.held import close_with, used_by
from signoff.tools.toolbox import Toolbox, make_toolbox

if TYPE_CHECKING:
    from signoff.storage.threads import Storage

Graph = DurableGraph

# LangGraph counts super-steps per invocation and raises when they run out. The machine has its own limits, in
# turns, and every run ends by one of those; this one must never be reached first.
_NO_STEP_LIMIT = 2**31 - 1


@answers_other_names
def build_graph(
    model: BaseChatModel | str,
    tools: Sequence[BaseTool | Callable[..., Any] | dict[str, Any]] | None = (),
    *,
    system_prompt: str | SystemMessage | None = "",
    middleware: Sequence[Any] = (),
    limits: Limits | Mapping[str, Any] | None = None,
    response_format: type[ResultT] | Mapping[str, Any] | None = None,
    checks: Sequence[AnyCheck] = (),
    approvals: Policy | None = None,
    control_tools: Sequence[ControlTool] | None = None,
    storage: "Storage | str | PathLike[str] | None" = None,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    store: BaseStore | None = None,
    context_schema: type | None = None,
    state_schema: type | None = None,
    name: str | None = None,
    policy: LoopPolicy | Mapping[str, Any] | None = None,
) -> DurableGraph[ResultT]:
    """The agent loop as a compiled LangGraph graph.

    model: a LangChain chat model with tool calling, or its name as "provider:model", for LangChain's
        `init_chat_model` (extra `signoff[langchain]`). Not one in a wrapper, such as `bind` or `with_retry`.
    tools: LangChain tools, or functions with docstrings; `metadata={"kind": "read"}` declares that a tool
        changes nothing, so its calls may run in parallel. A dict (`{"type": "web_search"}`) is a tool that
        the model's provider runs: it is offered to the model, its results are part of the replies, and
        nothing runs here.
    system_prompt: comes before the rules of the loop, which are always sent. A string, or a SystemMessage,
        whose content blocks and cache marks are kept (the rules follow as a separate block, and a mark on the
        last block moves to it, so that it covers both). A prompt that depends on the run is a middleware
        (LangChain's `dynamic_prompt`).
    middleware: LangChain's `AgentMiddleware`, the first one outermost (extra `signoff[langchain]`). Their
        hooks, wrappers, tools and channels work as in `create_agent`; control tools pass through none of
        them, and a tool that may change something runs once. Middleware that duplicates the machine's work is
        rejected. See docs/how-to/middleware.md.
    limits: `Limits(turns=30)`, or a mapping of the same names. A `cost` without `prices` uses the model's
        prices in `genai-prices` (extra `signoff[prices]`).
    response_format: a pydantic model, a dataclass, a TypedDict or a JSON schema: `finish_task` then requires
        a `result` that matches it, and the outcome carries that result. A claim of "blocked" or "impossible"
        needs none. `outcome_of(graph.invoke(…)).result` is an instance of the type. LangChain's
        `ToolStrategy(T)` and `ProviderStrategy(T)` count as `T`.
    checks: must pass before a claim of "done" is accepted. Functions may have parameters named `claim`,
        `messages`, `state` and `context`, and pass by returning True or None; shell commands run in the
        current directory and pass with exit code 0. `Check(run, folder=…, seconds=…)` sets another folder or
        time. All of them run; their output goes back to the model. A check may run more than once: see
        tools/checks.py.
    approvals: who decides on a call, by tool or kind (`{"run_shell": True, "write": ["approve", "reject"]}`),
        or a function of (tool name, arguments) that says whether a person must approve. The rule of a tool
        replaces that of its kind. One `interrupt` asks for all calls. A rule may be LangChain's
        `InterruptOnConfig`: `allowed_decisions`, `when` (called with the tool call, without state and
        runtime), `description` (a string, or a function of tool call, state and runtime), and `args_schema`
        (a JSON schema for edited arguments). If one of these functions fails, the person is asked. The rule
        "hand_over": the graph does not run the call but hands it to its driver, by an `interrupt`;
        `{"allowed_decisions": […], "hand_over": True}`: once a person has approved it. A rule for the
        finishing tool, by its name, has a person confirm each finish.
    control_tools: replace `finish_task`, `ask_user` and `think`, the `standard_controls()`; see there for
        their options. The model learns of a question's deadline only if the graph can wait.
    storage: `sqlite_storage(path)` or `postgres_storage(url)`; or a path or URL, which the graph opens
        itself, and closes with `close()` or at the end of `with build_graph(…) as graph:`. Without it (or a
        checkpointer) the graph runs but cannot pause: a question ends the task with the reason
        `needs_person`. With it, every step is saved before the next one begins (`durability="sync"`); this
        cannot be weakened when tools have effects.
    checkpointer, store: LangGraph's own, instead of `storage`.
    context_schema: a dataclass, a pydantic model or a TypedDict for the fields of a run's `context` beyond
        Signoff's own. Tools read it from `ToolRuntime.context`; functions for checks and approvals receive it
        if they have a parameter `context`.
    state_schema: a TypedDict of additional state channels, as in LangGraph: Annotated with a reducer where
        writes are to be merged. It may extend MessagesState or LangChain's AgentState. The input and tools
        (`Command(update=…)`) write these channels, and callers read them. They hold plain values and
        messages, which can be stored.
    name: the name of the graph, in traces and in multi-agent systems; also set on the final message. Default:
        "signoff", and no name on the message.
    policy: what nearly every program leaves as it is, as `LoopPolicy(…)` or a mapping of its names: how to
        treat talk, streaming, times, retries, summaries, what happens to the effects of a task that failed.

    Resources that tools hold open (shells, interpreters, MCP servers) are closed with the graph: by
    `graph.close()`, with `storage`, when the graph is garbage-collected, and at the latest when the program
    exits.

    Raises SetupError for anything that cannot work, with one sentence that says what to write instead: a
    value of the wrong type (a single tool, a class instead of an instance), two tools with the same name, a
    tool that shadows a control tool, a tool that no call could satisfy, a model without tool calling, a
    policy that names an unknown tool. Warns (JournalWarning) when tools with effects are used with a
    checkpointer but no store: a crash could then run an effect twice; and (ApprovalWarning) when there are
    approvals and no checkpointer, so that nobody can be asked.
    """
    model, loop = checked_model(model), checked_policy(policy)
    shape = checked_format(response_format)
    check_storage(storage, checkpointer, store)
    around = _around(middleware)
    tools = listed("tools", tools, "[my_tool]")
    if around is not None:
        tools = [*around.tools, *tools]
    waits = storage is not None or checkpointer is not None
    given = standard_controls() if control_tools is None else _controls(control_tools)
    controls = completed(given, loop.texts, shape, deadlines=waits)
    form = context_form(context_schema)
    schemas = state_schemas(state_schema, None if around is None else around.schemas)
    box = make_toolbox(tools, controls, approvals, has_context=form is not None)
    texts = loop.texts if FINISH_NAME in box.controls else loop.texts.naming(box.controls.finish)
    box = replace(box, dialogue=loop.talk == "natural", rounds=goes_in_rounds(controls))
    _warn_without_journal(box, checkpointer, store)
    if storage is None and checkpointer is None and box.approvals.asks:
        warnings.warn(
            "approvals= needs a checkpointer to wait for a person: without one, calls that need approval are "
            "not run. Pass storage=sqlite_storage(…), or checkpointer=; if a server (`langgraph dev`) or a "
            "parent graph brings its own, none is needed.",
            ApprovalWarning,
            stacklevel=3,
        )
    most = prompt_budget(model) if loop.prompt_tokens is None else loop.prompt_tokens
    bounds, priced = checked_limits(limits), None
    if bounds.prices is None:
        priced = partial(_priced, model)
        if bounds.cost is not None:
            bounds = bounds.model_copy(update={"prices": priced("")})
    if bounds.cost is not None:
        check_prices(box.delegates.values())
    models = ModelSet(model, box, loop.compaction, most, loop.model_retries, loop.streaming)
    own = models.bound()
    deps = Dependencies(
        own=own,
        by_name=models.by_name(),
        required=loop.talk == "strict",
        toolbox=box,
        limits=bounds,
        priced=priced,
        texts=texts,
        system_prompt=checked_prompt(system_prompt),
        prompt_tokens=most,
        model_seconds=loop.model_seconds,
        tool_seconds=loop.tool_seconds,
        result_chars=loop.result_chars,
        on_failure=loop.on_failure,
        ask_unknown=loop.unknown_outcomes == "ask",
        injector=Injector([*box.run_tools.values(), *(found.tool for found in box.undos.values())]),
        plain=plain_tools(box.run_tools.values()),
        outputs=outputs_folder(),
        checks=make_checks(checks),
        streaming=loop.streaming,
        keeper=keeper_of(own.asked.offers),
        answers=answers_by(controls) != "none",
        name=checked_name(name),
        shape=result_shape(shape),
        result_check=result_check(shape),
        parallel=loop.parallel,
        context_form=form,
        channels=schemas.channels,
        middleware=around,
    )
    # Imported here because importing `build_graph` alone should not load every node.
    from signoff.graph.compiled.states import declare

    with ExitStack() as stack:
        opens = is_address(storage)
        held: Any = stack.enter_context(opened(cast(Any, storage))) if opens else storage
        graph = declare(deps, schemas=schemas).compile(
            checkpointer=checkpointer if held is None else held.checkpointer,
            store=store if held is None else held.store,
            name=deps.name or "signoff",
        )
        # LangGraph's `compile` returns its own class; ours adds durability and holds the thread.
        effects = any(box.is_effect(name) for name in box.run_tools)
        if has(*LEAN):
            from signoff.graph.inside.nodes import lean  # needs the private names checked above

            lean(graph)
        graph.__class__ = JournalledGraph if effects else DurableGraph
        assert isinstance(graph, DurableGraph), "the class was set in the line above"
        used_by(graph.builder, graph.checkpointer, box.run_tools.values())
        if opens:
            close_with(graph.builder, stack.pop_all().close)
    return graph.with_config(recursion_limit=_NO_STEP_LIMIT)


def _priced(model: Any, name: str) -> Prices:
    """The prices of the model, or of the model `name` if given."""
    return prices_of(renamed(model, name) if name else model)


def _warn_without_journal(
    box: Toolbox, checkpointer: BaseCheckpointSaver[Any] | None, store: BaseStore | None
) -> None:
    effects = [name for name in box.run_tools if box.is_effect(name) and not box.is_driven(name)]
    if checkpointer is not None and store is None and effects:
        warnings.warn(
            f"{', '.join(effects)} may change something, and without a store there is no journal: a call "
            "interrupted by a crash may run twice. Pass store=, or storage=sqlite_storage(…).",
            JournalWarning,
            stacklevel=4,
        )


def _around(given: Any) -> Any:
    """The middleware in the form that the nodes use; None if there is none. Imported lazily, since LangChain
    is an optional dependency."""
    found = listed("middleware", given, "[TodoListMiddleware()]")
    if not found:
        return None
    try:
        from signoff.nodes.middleware.stack import Stack
    except ImportError as error:
        raise SetupError(
            f"middleware= is for LangChain's, which is not installed; run: {install_hint('langchain')}"
        ) from error
    return Stack(found)


def _controls(given: Any) -> list[ControlTool]:
    return listed("control_tools", given, '[*standard_controls(), ControlTool(my_tool, "finish")]')
