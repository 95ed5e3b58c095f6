"""Builds the LangGraph graph of the machine, and checks what it is given."""

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import SystemMessage
from langchain_core.runnables import Runnable
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
    renamed_option,
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
from signoff.nodes.model.wrapped import unwrapped
from signoff.nodes.node import REPLY_CHARS, Dependencies, OnFailure
from signoff.nodes.tool_calls.inject import Injector
from signoff.tools.approvals import Policy
from signoff.tools.checks import Check, make_checks
from signoff.tools.control import (
    ControlTool,
    finishing,
    more_turns_control,
    result_shape,
    standard_controls,
)
from signoff.tools.processes.held import used_by
from signoff.tools.toolbox import Toolbox, make_toolbox

Graph = DurableGraph

# LangGraph counts super-steps per invocation and raises when they are used up. The machine has limits of its
# own, in turns, and ends every run by them; this one must never be reached first.
_NO_STEP_LIMIT = 2**31 - 1


_RETRIES = ModelRetries()
_COMPACTION_SECONDS = 60.0


class Storage(Protocol):
    """A checkpointer and a store of one database."""

    @property
    def checkpointer(self) -> BaseCheckpointSaver[Any]: ...

    @property
    def store(self) -> BaseStore: ...


def build_graph(
    model: BaseChatModel | Runnable[Any, Any] | str,
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
    compaction_seconds: float = _COMPACTION_SECONDS,
    model_seconds: float | None = MODEL_SECONDS,
    model_retries: ModelRetries | None = _RETRIES,
    fallbacks: Sequence[BaseChatModel | Runnable[Any, Any] | str] = (),
    streaming: Streaming = "always",
    reply_chars: int = REPLY_CHARS,
    tool_seconds: float | None = 120.0,
    result_chars: int = LIMIT,
    talk: Literal["strict", "balanced", "natural"] = "balanced",
    more_turns: Literal["never", "once", "ask"] = "never",
    response_format: type[ResultT] | Mapping[str, Any] | None = None,
    checks: Sequence[Check] = (),
    checks_folder: str | Path | None = None,
    check_seconds: float = 60.0,
    evidence: bool = False,
    finish_alone: bool = False,
    rounds: bool = False,
    answer: Literal["summary", "argument", "none"] = "summary",
    name: str | None = None,
    select_tools: Callable[[Mapping[str, Any], Any], Iterable[Any] | None] | None = None,
    parallel: int | None = None,
    view_tokens: int | None = None,
    digest: SummaryWriter = None,
    digest_seconds: float | None = None,
) -> DurableGraph[ResultT]:
    """The agent loop as a compiled LangGraph graph.

    model: a LangChain chat model with tool calling, also one that is wrapped by `bind`, `with_config`,
        `with_retry`, `with_fallbacks`, `configurable_fields` or `configurable_alternatives`; or its name as
        "provider:model", for LangChain's `init_chat_model` (extra `signoff[langchain]`).
    tools: LangChain tools, or functions with docstrings; `metadata={"kind": "read"}` says that a tool changes
        nothing, so that its calls may run in parallel. A dict (`{"type": "web_search"}`) is a tool that the
        model's provider runs itself: the model is told of it, its results stand in the replies, and nothing
        of it runs here.
    system_prompt: stands before the rules of the loop, which are always told. Text; a SystemMessage, whose
        content blocks and cache marks are kept (the rules are a block of their own after them, and a mark on
        the last block moves there, so that it covers both); or a function of (state, context) that returns
        either, plain or async, which is asked before each call of the model, within its bounds of time.
    cache: has the provider cache what is the same from call to call. "anthropic": `cache_control` marks on
        the system prompt and on the last message. "openai": a `prompt_cache_key` for each thread. "auto": as
        the provider of the model needs it.
    context_schema: a dataclass, a pydantic model or a TypedDict of what a run is given in its `context`
        beside Signoff's own fields: tools find it in `ToolRuntime.context`, and functions of checks and
        approvals get it when they ask for `context`.
    state_schema: a TypedDict of further channels of the state, as for LangGraph: Annotated with a reducer,
        where writes are to be joined. It may be made of MessagesState, or of LangChain's AgentState. The
        input and tools (`Command(update=…)`) write them, callers get them. They hold what can be stored:
        plain values and messages.
    middleware: LangChain's `AgentMiddleware`, the first around all others (extra
        `signoff[langchain]`). Their hooks, wrappers, tools and channels work as in `create_agent`; the
        control tools pass through none of them, and a tool that may change something runs once. Those that
        do what the machine does are refused. See docs/how-to/middleware.md.
    limits: `Limits(turns=30)`, or a mapping of the same names. A `cost` without `prices` goes by those of the
        model in `genai-prices` (extra `signoff[prices]`).
    storage: `sqlite_storage(path)`; or give a `checkpointer` and a `store` of your own. Without either, the
        graph runs but cannot pause: a question ends the task with the reason `needs_person`. With it, every
        step is saved before the next begins (`durability="sync"`), always so when tools have effects.
    control_tools: in place of `finish_task`, `ask_user` and `think`, which are `standard_controls()`; there
        is what more they can ask of the model. Of a question's deadline it is told where there is a
        checkpointer.
    approvals: which calls a person must approve, by tool or kind (`{"run_shell": True, "write": ["approve",
        "reject"]}`), or a function of (tool name, arguments). One `interrupt` asks for all calls. A rule
        may be LangChain's `InterruptOnConfig`: `allowed_decisions`, `when` (of the tool call; it gets no
        state and no runtime), `description` (text, or a function of tool call, state and runtime), and
        `args_schema` (a JSON schema for edited arguments). What fails asks.
    hand_over: tools or kinds whose calls the graph does not run but yields to its driver, by an `interrupt`.
    unknown_outcomes: what to do about a call that had started when its process was killed: "tell" the model
        that its outcome is unknown, or "ask" a person whether to run it again.
    on_failure: what becomes of the effects of a task that ends without success. "keep": they stay. "undo":
        they are undone, the newest first, by what their tools declare as `metadata["undo"]`; the approvals
        hold for that, too. "ask": the same, once a person has agreed. `outcome.undo` lists what was undone
        and what stands. On request: `Session.undo()`, `signoff undo`. See docs/how-to/undo.md.
    prompt_tokens: the budget of what the model is shown; above it old turns are summarised. Default: 80 % of
        the context that the model's profile names, at most 200,000; else 100,000. The provider's own count
        corrects it.
    compaction: who writes the summary that stands for old turns. "lines": one line a turn, exact and free.
        "model": the model, in one more call on the prompt that it has, which a provider's cache serves. It
        counts in the outcome's usage, is no turn, and nothing that it calls is run. Or another chat model for
        it, without tools. A text that fails, is refused, truncated or too long, calls a tool, or does not
        come within `compaction_seconds`, is replaced by lines. Default: "model" when the model's profile
        names its context and `prompt_tokens` is at least 16,000; else "lines", since a small prompt is
        summarised every few turns (and a script for `ScriptedModel`, which has no profile, has no step for
        it).
    model_seconds: how long the model may be silent, before the first piece of its reply and between two
        (before all of it, when it does not stream); None for no limit. Then the connection is closed, and the
        task ends as `model_error`; a call that has not brought a word is tried once more first. The context's
        `model_seconds` goes before.
    model_retries: how often, and after which waits, a model call is tried again after an error that may pass
        (a rate limit, a fault of the server, a connection that drops); None for never. The retries of the
        model's own package are turned off in the copy that the graph asks. See docs/how-to/models.md.
    fallbacks: models, or names of models, that are asked in their order when those before them have failed.
    streaming: "always" streams each reply, so that the inner guard can end it, and stops the provider.
        "auto" streams when somebody takes the pieces (`stream_mode="messages"`, `astream_events`, a session's
        tokens, a callback with `on_llm_new_token`), else the reply comes whole: cheaper for this process by
        the CPU of a stream, and only limits of time can end it. "never": all replies come whole.
    reply_chars: a reply with more characters (words, thoughts and arguments) is closed, and the task ends as
        `model_error`.
    tool_seconds: how long one call may take before its result is "timed out"; None for no limit: then a call
        that runs alone runs in the run's own thread. A tool's `metadata["seconds"]` goes before.
    result_chars: a longer result loses its middle; the full text is kept in a file that the result names.
    talk: what a reply without a call means. "balanced": two reminders, then a call is required
        (`tool_choice`), then one of a control tool, then the limit `talk_turns`. "strict": a call is required
        from the start. "natural": the reply is put to the user like a question, so that talking is a
        dialogue; without a checkpointer like "balanced".
    more_turns: whether the model may ask for more turns than its limit, by `request_more_turns`, once in a
        task. "once": it gets them, at most as many again as the limit. "ask": a person is asked, as for an
        approval, and may change the number. "never": it has no such tool.

    response_format: a pydantic model, a dataclass, a TypedDict or a JSON schema: `finish_task` then needs a
        `result` of this shape, which the outcome carries. A claim of "blocked" or "impossible" needs none.
        `outcome_of(graph.invoke(…)).result` is an instance of the type.
    checks: what must hold before a claim of "done" is accepted: functions, which may ask for `claim`,
        `messages`, `state` and `context` by name and pass by returning True or None, and commands for the
        shell, which run in `checks_folder` (default: the process's own) and pass with exit code 0. All run,
        each for at most `check_seconds`; what they say goes back to the model. They may run again: see
        tools/checks.py.
    evidence: `finish_task` may cite calls, which must have succeeded and be newer than the last change.
    finish_alone: a finish beside a work call in the same reply is refused: the results are to be seen first.
    rounds: plan, execute, think. A reply may carry a batch of up to eight calls; after each batch the model
        is asked to think about the results, or to finish, before the next. Each batch costs a turn more.
    answer: what the last message says, an `AIMessage` for whoever asked: `result["messages"][-1]`. It is no
        turn, and the model is not shown it. "summary": the summary of the finish; after a limit or an error,
        and with a claim that is not "done", first that the work is not finished, and why. "argument":
        `finish_task` gets an argument for it, `answer`. "none": there is no such message.
    name: of the graph, in traces and as an agent among others; it stands on the last message, too. Default:
        "signoff", and no name on the message.
    select_tools: a function of (state, context) that picks, before each model call, which of `tools` are
        offered, by name; None for all. Control tools are always offered. A call of a tool that was not
        offered is not run. The same choice makes the same bytes, so that a provider's cache holds. When it
        fails, hangs, or picks what there is not, the task ends as an error, and `retry` goes on.
    parallel: how many calls of tools that only read run in parallel at most. Default: 8 of sync tools,
        which take a thread each, and of coroutines as many as there are.
    view_tokens, digest, digest_seconds: the former names of `prompt_tokens`, `compaction` and
        `compaction_seconds`, which still work and warn (DeprecationWarning).

    What tools hold open (shells, interpreters, servers of MCP) ends with the graph: by `graph.close()`, with
    `storage`, when nothing refers to the graph any more, and at the latest with the program.

    Raises SetupError for whatever cannot work, in one sentence that says what to write: a value of another
    type (a single tool, a path for a storage, a class in place of an instance), tools with one name, a tool
    that shadows a control tool, a model without tool calling, a policy that names what does not exist.
    Warns (JournalWarning) when tools with effects are used with a checkpointer but no store: a crash could
    then run an effect twice; and (ApprovalWarning) when there are approvals and no checkpointer, so that
    nobody can be asked.
    """
    prompt_tokens = renamed_option("view_tokens", view_tokens, "prompt_tokens", prompt_tokens, None)
    compaction = renamed_option("digest", digest, "compaction", compaction, None)
    compaction_seconds = renamed_option(
        "digest_seconds", digest_seconds, "compaction_seconds", compaction_seconds, _COMPACTION_SECONDS
    )
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
    controls = [*given, *_more_turns(more_turns, texts)]
    source = one_of("answer", answer, ("summary", "argument", "none"))
    finishes = finishing(
        controls, response_format, evidence=flag("evidence", evidence), answer=source == "argument"
    )
    prompt, function = checked_prompt(system_prompt)
    form = context_form(context_schema)
    schemas = state_schemas(state_schema, None if around is None else around.schemas)
    box = make_toolbox(tools, finishes, approvals, hand_over, has_context=form is not None)
    if FINISH_NAME not in box.controls:
        texts = texts.naming(box.controls.finish)
    mode = one_of("talk", talk, ("strict", "balanced", "natural"))
    box = replace(
        box, dialogue=mode == "natural", ask_for_turns=more_turns == "ask", rounds=flag("rounds", rounds)
    )
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
    most = (
        prompt_budget(*(found.model for found in unwrapped(models))) if given_budget is None else given_budget
    )
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
        by_config=asked.by_config(own),
        required=mode == "strict",
        toolbox=box,
        limits=bounds,
        priced=priced,
        texts=texts,
        system_prompt=prompt,
        prompt_function=function,
        cache=_one_way(cache, models),
        prompt_tokens=most,
        compaction_seconds=positive("compaction_seconds", compaction_seconds, none=False),
        model_seconds=positive("model_seconds", model_seconds),
        reply_chars=positive("reply_chars", reply_chars, whole=True, none=False),
        tool_seconds=positive("tool_seconds", tool_seconds),
        result_chars=positive("result_chars", result_chars, whole=True, none=False),
        on_failure=one_of("on_failure", on_failure, ("keep", "undo", "ask")),
        ask_unknown=one_of("unknown_outcomes", unknown_outcomes, ("tell", "ask")) == "ask",
        injector=Injector([*box.run_tools.values(), *(found.tool for found in box.undos.values())]),
        plain=plain_tools(box.run_tools.values()),
        outputs=outputs_folder(),
        checks=make_checks(checks, checks_folder, positive("check_seconds", check_seconds, none=False)),
        finish_alone=flag("finish_alone", finish_alone),
        evidence=evidence,
        streaming=when,
        keeper=keeper_of(own.offers),
        answers=source != "none",
        name=checked_name(name),
        shape=result_shape(response_format),
        parallel=positive("parallel", parallel, whole=True),
        pick=checked_function("select_tools", select_tools, "state, context"),
        context_form=form,
        channels=schemas.channels,
        middleware=around,
    )
    # What the states do is imported for a graph: whoever imports this name may not build one yet.
    from signoff.graph.compiled.states import declare

    graph = declare(deps, schemas=schemas).compile(
        checkpointer=storage.checkpointer if storage else checkpointer,
        store=storage.store if storage else store,
        name=deps.name or "signoff",
    )
    # LangGraph's `compile` makes its own class; ours differs in its durability and in holding the thread.
    effects = any(box.is_effect(name) for name in box.run_tools)
    if has(*LEAN):
        from signoff.graph.inside.nodes import lean  # made of what these names stand for

        lean(graph)
    graph.__class__ = JournalledGraph if effects else DurableGraph
    assert isinstance(graph, DurableGraph), "the class was set in the line above"
    used_by(graph.builder, graph.checkpointer, box.run_tools.values())
    return graph.with_config(recursion_limit=_NO_STEP_LIMIT)


def _priced(models: Sequence[Any], name: str) -> Prices:
    """The prices of the model, under another name if one is given; of several the highest, so that a limit
    holds whichever is asked."""
    asked = [found.model for found in unwrapped(models)]
    if name:
        asked[0] = renamed(asked[0], name)
    return highest([prices_of(model) for model in asked])


def _one_way(cache: Any, models: Sequence[Any]) -> str | None:
    """The provider whose prompt cache is used; None when it is not given and differs between the models."""
    ways = {cache_way(cache, found.model) for found in unwrapped(models)}
    return ways.pop() if len(ways) == 1 else None


def _warn_without_journal(
    box: Toolbox, checkpointer: BaseCheckpointSaver[Any] | None, store: BaseStore | None
) -> None:
    effects = [name for name in box.run_tools if box.is_effect(name) and not box.is_driven(name)]
    if checkpointer is not None and store is None and effects:
        warnings.warn(
            f"{', '.join(effects)} may change something, and without a store there is no journal: a call "
            "that is cut short by a crash may run twice. Pass store=, or storage=sqlite_storage(…).",
            JournalWarning,
            stacklevel=3,
        )


def _around(given: Any) -> Any:
    """The middleware as the states work with it; None where there is none. LangChain is not a dependency of
    this module."""
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


def _more_turns(policy: str, texts: Texts) -> list[ControlTool]:
    known = one_of("more_turns", policy, ("never", "once", "ask"))
    return [] if known == "never" else [more_turns_control(texts)]
