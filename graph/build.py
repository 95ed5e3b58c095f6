"""Builds the machine as a LangGraph graph, and validates the arguments."""

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import SystemMessage
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from signoff.graph.compiled.graph import DurableGraph, JournalledGraph
from signoff.graph.compiled.settings import (
    PromptFunction,
    cache_way,
    check_storage,
    checked_function,
    checked_limits,
    checked_models,
    checked_name,
    checked_prompt,
    checked_retries,
    checked_texts,
    describe,
    flag,
    listed,
    one_of,
    positive,
)
from signoff.graph.errors import ApprovalWarning, JournalWarning, SetupError
from signoff.graph.foreign import LIMIT, outputs_folder
from signoff.graph.inside.installing import install_hint
from signoff.graph.inside.private import LEAN, has
from signoff.graph.inside.speed import plain_tools
from signoff.graph.limits import MODEL_SECONDS, Limits, Prices
from signoff.graph.outcome import ResultT
from signoff.graph.schemas.context import context_form
from signoff.graph.schemas.state import state_schemas
from signoff.graph.texts import DEFAULT_TEXTS, FINISH_NAME, Texts
from signoff.nodes.delegates.graphs import check_prices
from signoff.nodes.model.models import ModelSet, Streaming, SummaryWriter, keeper_of, prompt_budget, renamed
from signoff.nodes.model.prices import highest, prices_of
from signoff.nodes.model.retries import ModelRetries
from signoff.nodes.node import Dependencies, OnFailure
from signoff.nodes.tool_calls.inject import Injector
from signoff.tools.approvals import Policy
from signoff.tools.checks import Check, make_checks
from signoff.tools.control import (
    ControlTool,
    finishing,
    result_check,
    result_shape,
    standard_controls,
)
from signoff.tools.processes.held import used_by
from signoff.tools.toolbox import Toolbox, make_toolbox

Graph = DurableGraph

# LangGraph counts super-steps per invocation and raises when they run out. The machine has its own limits, in
# turns, and every run ends by one of those; this one must never be reached first.
_NO_STEP_LIMIT = 2**31 - 1


_RETRIES = ModelRetries()


class Storage(Protocol):
    """A checkpointer and a store on the same database."""

    @property
    def checkpointer(self) -> BaseCheckpointSaver[Any]: ...

    @property
    def store(self) -> BaseStore: ...


def build_graph(
    model: BaseChatModel | str,
    tools: Sequence[BaseTool | Callable[..., Any] | dict[str, Any]] | None = (),
    *,
    system_prompt: str | SystemMessage | PromptFunction | None = "",
    cache: Literal["auto", "anthropic", "openai"] | None = None,
    context_schema: type | None = None,
    state_schema: type | None = None,
    middleware: Sequence[Any] = (),
    limits: Limits | Mapping[str, Any] | None = None,
    storage: Storage | None = None,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    store: BaseStore | None = None,
    control_tools: Sequence[ControlTool] | None = None,
    approvals: Policy | None = None,
    hand_over: Collection[str] = (),
    unknown_outcomes: Literal["tell", "ask"] = "tell",
    on_failure: OnFailure = "keep",
    texts: Texts = DEFAULT_TEXTS,
    prompt_tokens: int | None = None,
    compaction: SummaryWriter = None,
    model_seconds: float | None = MODEL_SECONDS,
    model_retries: ModelRetries | None = _RETRIES,
    fallbacks: Sequence[BaseChatModel | str] = (),
    streaming: Streaming = "always",
    tool_seconds: float | None = 120.0,
    result_chars: int = LIMIT,
    talk: Literal["strict", "balanced", "natural"] = "balanced",
    response_format: type[ResultT] | Mapping[str, Any] | None = None,
    checks: Sequence[Check] = (),
    checks_folder: str | Path | None = None,
    check_seconds: float = 60.0,
    rounds: bool = False,
    answer: Literal["summary", "argument", "none"] = "summary",
    name: str | None = None,
    select_tools: Callable[[Mapping[str, Any], Any], Iterable[Any] | None] | None = None,
    parallel: int | None = None,
) -> DurableGraph[ResultT]:
    """The agent loop as a compiled LangGraph graph.

    model: a LangChain chat model with tool calling, or its name as "provider:model", for LangChain's
        `init_chat_model` (extra `signoff[langchain]`). Not one in a wrapper, such as `bind` or `with_retry`.
    tools: LangChain tools, or functions with docstrings; `metadata={"kind": "read"}` declares that a tool
        changes nothing, so its calls may run in parallel. A dict (`{"type": "web_search"}`) is a tool that
        the model's provider runs: it is offered to the model, its results are part of the replies, and
        nothing runs here.
    system_prompt: comes before the rules of the loop, which are always sent. A string; a SystemMessage, whose
        content blocks and cache marks are kept (the rules follow as a separate block, and a mark on the last
        block moves to it, so that it covers both); or a function of (state, context), sync or async, that
        returns either. The function is called before each model call and counts against its time limit.
    cache: makes the provider cache the part of the prompt that stays the same from call to call. "anthropic":
        `cache_control` marks on the system prompt and on the last message. "openai": a `prompt_cache_key` for
        each thread. "auto": whichever the model's provider needs.
    context_schema: a dataclass, a pydantic model or a TypedDict for the fields of a run's `context` beyond
        Signoff's own. Tools read it from `ToolRuntime.context`; functions for checks and approvals receive it
        if they have a parameter `context`.
    state_schema: a TypedDict of additional state channels, as in LangGraph: Annotated with a reducer where
        writes are to be merged. It may extend MessagesState or LangChain's AgentState. The input and tools
        (`Command(update=…)`) write these channels, and callers read them. They hold plain values and
        messages, which can be stored.
    middleware: LangChain's `AgentMiddleware`, the first one outermost (extra `signoff[langchain]`). Their
        hooks, wrappers, tools and channels work as in `create_agent`; control tools pass through none of
        them, and a tool that may change something runs once. Middleware that duplicates the machine's work is
        rejected. See docs/how-to/middleware.md.
    limits: `Limits(turns=30)`, or a mapping of the same names. A `cost` without `prices` uses the model's
        prices in `genai-prices` (extra `signoff[prices]`).
    storage: `sqlite_storage(path)`; or pass your own `checkpointer` and `store`. Without either, the graph
        runs but cannot pause: a question ends the task with the reason `needs_person`. With it, every step is
        saved before the next one begins (`durability="sync"`); this cannot be weakened when tools have
        effects.
    control_tools: replace `finish_task`, `ask_user` and `think`, the `standard_controls()`; see there for
        their options. The model learns of a question's deadline only if there is a checkpointer.
    approvals: the calls that a person must approve, by tool or kind (`{"run_shell": True, "write":
        ["approve", "reject"]}`), or a function of (tool name, arguments). One `interrupt` asks for all calls.
        A rule may be LangChain's `InterruptOnConfig`: `allowed_decisions`, `when` (called with the tool call,
        without state and runtime), `description` (a string, or a function of tool call, state and runtime),
        and `args_schema` (a JSON schema for edited arguments). If one of these functions fails, the person is
        asked.
    hand_over: tools or kinds whose calls the graph does not run but hands to its driver, by an `interrupt`.
    unknown_outcomes: how to handle a call that had started when its process was killed: "tell" the model that
        its outcome is unknown, or "ask" a person whether to run it again.
    on_failure: what happens to the effects of a task that ends without success. "keep": they stay. "undo":
        they are undone, newest first, by the `metadata["undo"]` of their tools; approvals apply to these
        calls, too. "ask": the same, once a person has agreed. `outcome.undo` lists what was undone and what
        was not. To undo on request: `Session.undo()`, `signoff undo`. See docs/how-to/undo.md.
    prompt_tokens: the token budget of the prompt; above it, old turns are summarised. Default: 80 % of the
        context size in the model's profile, at most 200,000; else 100,000. The estimate is corrected by the
        provider's own count.
    compaction: who writes the summary that replaces old turns. "lines": one line per turn, exact and free.
        "model": the model, in one extra call on its current prompt, which the provider's cache serves. The
        call counts in the outcome's usage but not as a turn, and no tool call in it runs. Or pass another
        chat model, which is called without tools. If the summary fails, is refused, truncated or too long,
        calls a tool, or takes longer than 60 seconds, lines are used instead. Default: "model" when
        the model's profile has a context size and `prompt_tokens` is at least 16,000; else "lines", since a
        small prompt is summarised every few turns (and a script for `ScriptedModel`, which has no profile,
        has no step for it).
    model_seconds: how long the model may be silent, before the first chunk of its reply and between two
        chunks (before the whole reply, if it does not stream); None for no limit. After that the call is
        cancelled (in sync code: abandoned in its thread), and the task ends as `model_error`; a call that
        has returned nothing yet is retried once first. The context's `model_seconds` takes precedence. A
        reply of more than 2,000,000 characters (text, reasoning and arguments) is cut off, and the task ends
        as `model_error`, too.
    model_retries: how often, and after which delays, a model call is retried after a transient error (a rate
        limit, a server error, a dropped connection); None for never. The graph uses a copy of the model in
        which the client's own retries are off. See docs/how-to/models.md.
    fallbacks: models, or names of models, to try in this order when the ones before them have failed.
    streaming: "always" streams each reply, so that the inner guard can cut it short and stop the provider.
        "auto" streams when something consumes the chunks (`stream_mode="messages"`, `astream_events`, a
        session's tokens, a callback with `on_llm_new_token`); otherwise the reply comes whole, which saves
        the CPU time of a stream, and only time limits can cut it short. "never": no reply is streamed.
    tool_seconds: how long one call may take before its result is "timed out"; None for no limit, in which
        case a call that runs alone uses the run's own thread. A tool's `metadata["seconds"]` takes
        precedence.
    result_chars: a longer result loses its middle; the full text is kept in a file that the result names.
    talk: how to treat a reply without a tool call. "balanced": two reminders, then a call is required
        (`tool_choice`), then a control call, then the limit `talk_turns`. "strict": a call is required from
        the start. "natural": the reply goes to the user like a question, which makes a dialogue; without a
        checkpointer, the same as "balanced".

    response_format: a pydantic model, a dataclass, a TypedDict or a JSON schema: `finish_task` then requires
        a `result` that matches it, and the outcome carries that result. A claim of "blocked" or "impossible"
        needs none. `outcome_of(graph.invoke(…)).result` is an instance of the type.
    checks: must pass before a claim of "done" is accepted. Functions may have parameters named `claim`,
        `messages`, `state` and `context`, and pass by returning True or None; shell commands run in
        `checks_folder` (default: the current directory) and pass with exit code 0. All of them run, each for
        at most `check_seconds`; their output goes back to the model. A check may run more than once: see
        tools/checks.py.
    rounds: plan, execute, think. A reply may hold a batch of up to eight calls; after each batch the model is
        asked to think about the results, or to finish, before the next one. Each batch costs one extra turn.
    answer: the content of the final message, an `AIMessage` for the caller: `result["messages"][-1]`. It is
        not a turn, and the model never sees it. "summary": the summary of the finish; after a limit, an error
        or a claim other than "done", it starts by saying that the work is not finished, and why. "argument":
        `finish_task` gets an argument `answer` for it. "none": no such message.
    name: the name of the graph, in traces and in multi-agent systems; also set on the final message. Default:
        "signoff", and no name on the message.
    select_tools: a function of (state, context) that returns, before each model call, the names of the
        `tools` to offer; None for all. Control tools are always offered. A call of a tool that was not
        offered is not run. The same selection produces the same request bytes, so the provider's cache still
        hits. If the function fails, hangs or names an unknown tool, the task ends as an error, which `retry`
        can continue.
    parallel: the maximum number of read calls that run in parallel. Default: 8 for sync tools, which take a
        thread each, and no limit for coroutines.

    Resources that tools hold open (shells, interpreters, MCP servers) are closed with the graph: by
    `graph.close()`, with `storage`, when the graph is garbage-collected, and at the latest when the program
    exits.

    Raises SetupError for anything that cannot work, with one sentence that says what to write instead: a
    value of the wrong type (a single tool, a path as storage, a class instead of an instance), two tools with
    the same name, a tool that shadows a control tool, a model without tool calling, a policy that names an
    unknown tool.
    Warns (JournalWarning) when tools with effects are used with a checkpointer but no store: a crash could
    then run an effect twice; and (ApprovalWarning) when there are approvals and no checkpointer, so that
    nobody can be asked.
    """
    models = checked_models(model, fallbacks)
    texts = checked_texts(texts)
    check_storage(storage, checkpointer, store)
    around = _around(middleware)
    tools = listed("tools", tools, "[my_tool]")
    if around is not None:
        tools = [*around.tools, *tools]
    hand_over = listed("hand_over", hand_over, '["terminal"]')
    waits = storage is not None or checkpointer is not None
    given = standard_controls(texts, deadlines=waits) if control_tools is None else _controls(control_tools)
    source = one_of("answer", answer, ("summary", "argument", "none"))
    finishes = finishing(given, response_format, answer=source == "argument")
    prompt, function = checked_prompt(system_prompt)
    form = context_form(context_schema)
    schemas = state_schemas(state_schema, None if around is None else around.schemas)
    box = make_toolbox(tools, finishes, approvals, hand_over, has_context=form is not None)
    if FINISH_NAME not in box.controls:
        texts = texts.naming(box.controls.finish)
    mode = one_of("talk", talk, ("strict", "balanced", "natural"))
    box = replace(box, dialogue=mode == "natural", rounds=flag("rounds", rounds))
    _warn_without_journal(box, checkpointer, store)
    if storage is None and checkpointer is None and box.approvals.asks:
        warnings.warn(
            "approvals= needs a checkpointer to wait for a person: without one, calls that need approval are "
            "not run. Pass storage=sqlite_storage(…), or checkpointer=; if a server (`langgraph dev`) or a "
            "parent graph brings its own, none is needed.",
            ApprovalWarning,
            stacklevel=2,
        )
    given_budget = positive("prompt_tokens", prompt_tokens, whole=True)
    most = prompt_budget(*models) if given_budget is None else given_budget
    when: Streaming = one_of("streaming", streaming, ("always", "auto", "never"))
    bounds, priced = checked_limits(limits), None
    if bounds.prices is None:
        priced = partial(_priced, models)
        if bounds.cost is not None:
            bounds = bounds.model_copy(update={"prices": priced("")})
    if bounds.cost is not None:
        check_prices(box.delegates.values())
    asked = ModelSet(models, box, compaction, most, checked_retries(model_retries), when)
    own = asked.bound()
    deps = Dependencies(
        own=own,
        by_name=asked.by_name(),
        required=mode == "strict",
        toolbox=box,
        limits=bounds,
        priced=priced,
        texts=texts,
        system_prompt=prompt,
        prompt_function=function,
        cache=_one_way(cache, models),
        prompt_tokens=most,
        model_seconds=positive("model_seconds", model_seconds),
        tool_seconds=positive("tool_seconds", tool_seconds),
        result_chars=positive("result_chars", result_chars, whole=True, none=False),
        on_failure=one_of("on_failure", on_failure, ("keep", "undo", "ask")),
        ask_unknown=one_of("unknown_outcomes", unknown_outcomes, ("tell", "ask")) == "ask",
        injector=Injector([*box.run_tools.values(), *(found.tool for found in box.undos.values())]),
        plain=plain_tools(box.run_tools.values()),
        outputs=outputs_folder(),
        checks=make_checks(checks, checks_folder, positive("check_seconds", check_seconds, none=False)),
        streaming=when,
        keeper=keeper_of(own.asked[0].offers),
        answers=source != "none",
        name=checked_name(name),
        shape=result_shape(response_format),
        result_check=result_check(response_format),
        parallel=positive("parallel", parallel, whole=True),
        pick=checked_function("select_tools", select_tools, "state, context"),
        context_form=form,
        channels=schemas.channels,
        middleware=around,
    )
    # Imported here because importing `build_graph` alone should not load every node.
    from signoff.graph.compiled.states import declare

    graph = declare(deps, schemas=schemas).compile(
        checkpointer=storage.checkpointer if storage else checkpointer,
        store=storage.store if storage else store,
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
    return graph.with_config(recursion_limit=_NO_STEP_LIMIT)


def _priced(models: Sequence[Any], name: str) -> Prices:
    """The prices of the model, or of the model `name` if given; with several models the highest, so that a
    limit holds for whichever answers."""
    first, *others = models
    first = renamed(first, name) if name else first
    return highest([prices_of(model) for model in (first, *others)])


def _one_way(cache: Any, models: Sequence[Any]) -> str | None:
    """The provider whose prompt cache is used; None if not given and the models' providers differ."""
    ways = {cache_way(cache, model) for model in models}
    return ways.pop() if len(ways) == 1 else None


def _warn_without_journal(
    box: Toolbox, checkpointer: BaseCheckpointSaver[Any] | None, store: BaseStore | None
) -> None:
    effects = [name for name in box.run_tools if box.is_effect(name) and not box.is_driven(name)]
    if checkpointer is not None and store is None and effects:
        warnings.warn(
            f"{', '.join(effects)} may change something, and without a store there is no journal: a call "
            "interrupted by a crash may run twice. Pass store=, or storage=sqlite_storage(…).",
            JournalWarning,
            stacklevel=3,
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


def _controls(given: Sequence[ControlTool]) -> Sequence[ControlTool]:
    found = listed("control_tools", given, "[ControlTool(my_tool, Effect.FINISH)]")
    for control in found:
        if not isinstance(control, ControlTool):
            raise SetupError(
                f"control_tools= holds {describe(control)}; write ControlTool(tool, Effect.FINISH) in "
                "its place."
            )
    return found
