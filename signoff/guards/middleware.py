"""`Guards`: the rules of the machine as one LangChain middleware, for `create_agent` and deepagents.

Each hook is a walk through the machine's states (`steps.py`). `wrap_model_call` settles the tool results,
calls the model if the rules say so, and routes its reply. A reply without a call ends LangChain's loop:
`after_agent` judges that end, and jumps back to the model unless the task has ended. `wrap_tool_call` runs
due calls, and leaves a finish, and any calls after it, alone. So no hook adds a step to a turn.
"""

import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any, cast
from uuid import uuid4

from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableBinding, RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.config import get_config
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command
from pydantic import TypeAdapter

from signoff.graph import clock
from signoff.graph.arguments import listed
from signoff.graph.compiled.settings import checked_format, checked_limits, checked_policy
from signoff.graph.errors import JournalWarning, SetupError
from signoff.graph.foreign import LIMIT, gets_past, outputs_folder
from signoff.graph.history.replies import Call
from signoff.graph.inside.private import channels_of
from signoff.graph.limits import Limits
from signoff.graph.machine import ENTRIES, Event, State
from signoff.graph.messages import KEY, marks, slim
from signoff.graph.policy import LoopPolicy
from signoff.graph.rules import LOOSER, ToolChoice, tool_choice
from signoff.graph.state import Ending
from signoff.graph.texts import FINISH_NAME
from signoff.guards.known_tools import (
    PROVIDED,
    called_kinds,
    check_kind,
    kinds_in,
    make_unseen,
    name_of,
    tool_of_kind,
)
from signoff.guards.made_up import without_made_up
from signoff.guards.steps import (
    NO_JOURNAL,
    TOLD_OF_NO_JOURNAL,
    TOO_LONG,
    WAITS,
    GuardedRun,
    GuardPosition,
    Walk,
    begin,
    due_calls,
    prompt_of,
    with_ids,
)
from signoff.guards.versions import check_version
from signoff.nodes.execute import runs_again
from signoff.nodes.model.advice import advise, is_empty_stream, is_too_long, secrets_of
from signoff.nodes.model.guard import guarded as guarded_model
from signoff.nodes.model.guard import has_last_step, in_call, without_streaming
from signoff.nodes.model.heard import Heard
from signoff.nodes.model.messages import is_streamed
from signoff.nodes.model.models import BoundModels
from signoff.nodes.model.refused import refused_reply, unfinished
from signoff.nodes.model.sent import last_step
from signoff.nodes.model.shown import shown_after, shown_to
from signoff.nodes.model.trying import Tries
from signoff.nodes.node import NO_BUDGET, Dependencies, Report
from signoff.nodes.requests import Part, acarry_out, carry_out
from signoff.nodes.tool_calls.inject import Injector
from signoff.nodes.tool_calls.output import reading
from signoff.nodes.tool_calls.run import ResultWriter, once
from signoff.tools.checks import AnyCheck, make_checks
from signoff.tools.control import (
    ControlTool,
    ResponseFormat,
    answers_by,
    completed,
    goes_in_rounds,
    result_check,
    result_shape,
    standard_controls,
)
from signoff.tools.toolbox import is_provided, make_toolbox, provider_name

try:
    from langchain.agents.middleware import (
        AgentMiddleware,
        ExtendedModelResponse,
        ModelRequest,
        ModelResponse,
    )
    from langchain.agents.middleware.types import hook_config

    from signoff.guards.calls import Goes, GuardedRequest, HandlerCall, Running, Start
    from signoff.guards.in_front import is_put_off, put_off, tool_of, unseen_reply
    from signoff.guards.saved import reply_is_saved
    from signoff.guards.state import GuardedState, check_channels, filled
except ImportError:
    check_version()
    raise

_ALL = RemoveMessage(id=REMOVE_ALL_MESSAGES)
# LangChain's loop asks the model.
_NO_MODELS = BoundModels(cast(Any, None), None)

Request = ModelRequest[Any]
Response = ModelResponse[Any]


class Guards(AgentMiddleware[Any, Any, Any]):
    """Signoff's rules for a LangChain agent: `create_agent(model, tools, middleware=[Guards()])`.

    The task ends only by `finish_task`, a limit or an error, and `outcome_of(agent.invoke(…))` says which.
    With a `response_format` that has an instance of it as the result, if the agent is `guarded`; else write
    `outcome_of(result, response_format)`. Put it first in `middleware=`, so that it wraps retries and
    fallbacks. Only middleware that closes something in `after_agent`, or adds tools to a request, goes before
    it.

    limits, control_tools, checks, response_format: as in `build_graph`. policy: its `talk` and `texts`, since
    the rest is the agent's own matter.

    Raises SetupError for anything that cannot work, with one sentence that says what to write instead.
    """

    state_schema: type[Any] = GuardedState

    def __init__(
        self,
        limits: Limits | Mapping[str, Any] | None = None,
        control_tools: Sequence[ControlTool] | None = None,
        checks: Sequence[AnyCheck] = (),
        response_format: ResponseFormat | None = None,
        policy: LoopPolicy | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        check_version()
        loop, shape = _policy(policy), checked_format(response_format)
        given = (
            standard_controls() if control_tools is None else listed("control_tools", control_tools, "[…]")
        )
        self._controls = completed(given, loop.texts, shape, deadlines=True)
        if goes_in_rounds(given) or answers_by(given) != "summary":
            raise SetupError(
                "Guards has no rounds= and no answer= of standard_controls, since the agent's loop writes "
                "its messages; leave them out, or use build_graph."
            )
        box = make_toolbox([], self._controls)
        texts = loop.texts if FINISH_NAME in box.controls else loop.texts.naming(box.controls.finish)
        self._dialogue = loop.talk == "natural"
        bounds = checked_limits(limits)
        if bounds.cost is not None and bounds.prices is None:
            raise SetupError("A limit of cost needs prices; write limits=Limits(cost=…, prices=Prices(…)).")
        self.tools: Sequence[BaseTool] = [tool_of(control) for control in self._controls]
        self._direct = next((tool.name for tool in self.tools if tool.return_direct), None)
        self._own = {tool.name: tool for tool in self.tools}
        self._deps = Dependencies(
            own=_NO_MODELS,
            by_name=_no_models,
            required=loop.talk == "strict",
            toolbox=replace(box, dialogue=self._dialogue),
            limits=bounds,
            texts=texts,
            system_prompt="",
            prompt_tokens=NO_BUDGET,
            tool_seconds=None,
            result_chars=LIMIT,
            ask_unknown=False,
            injector=Injector(list(box.run_tools.values())),
            outputs=outputs_folder(),
            checks=make_checks(checks),
            any_channel=True,
            shape=result_shape(shape),
            result_check=result_check(shape),
        )
        self._known: dict[str, BaseTool] = {}
        self._made: dict[tuple[str, ...], tuple[tuple[Any, ...], Dependencies]] = {}
        self._before: tuple[BaseChatModel, bool, BaseChatModel] | None = None
        self._warned = set[str]()

    @property
    def shape(self) -> TypeAdapter[Any] | None:
        """The type of the result; None without a `response_format`, and for a JSON schema."""
        return self._deps.shape

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Takes a new input, which enters in the same state whatever state the thread was in."""
        if state.get("guards") is None:
            # They are empty before the first input, unless other code has written to them.
            check_channels(filled(state))
        read = with_ids(without_made_up(state))
        walk = self._walk(read, is_input=True)
        # Other middleware may remove messages before the next hook of this one.
        walk.note()
        walk.run.give_back()
        position: GuardPosition | None = state.get("guards")
        walk.at = State.COMPRESS
        # Going on has already set its entry.
        entered = state.get("event") if state.get("event") in ENTRIES else str(Event.INPUT)
        update = {"event": entered, **walk.channels(position["tools"] if position else {})}
        return update if read is state else {"messages": [_ALL, *read["messages"]], **update}

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return self.before_agent(state, runtime)

    def wrap_model_call(
        self, request: Request, handler: Callable[[Request], Response]
    ) -> ExtendedModelResponse[Any]:
        run, steps = self._model_call(request, handler)
        return carry_out(steps, run)

    async def awrap_model_call(
        self, request: Request, handler: Callable[[Request], Awaitable[Response]]
    ) -> ExtendedModelResponse[Any]:
        run, steps = self._model_call(request, handler)
        return await acarry_out(steps, run)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        run, steps = self._tool_call(request, handler)
        return carry_out(steps, run)

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        run, steps = self._tool_call(request, handler)
        return await acarry_out(steps, run)

    @hook_config(can_jump_to=["model", "tools"])
    def after_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        run, steps = self._judge(state)
        return carry_out(steps, run)

    @hook_config(can_jump_to=["model", "tools"])
    async def aafter_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        run, steps = self._judge(state)
        return await acarry_out(steps, run)

    def _model_call(
        self, request: Request, handler: Callable[[Request], Any]
    ) -> tuple[GuardedRun, Part[ExtendedModelResponse[Any]]]:
        self._learn(request)
        walk = self._walk(request.state, request.tools)
        return walk.run, self._turn(walk, request, handler)

    def _turn(
        self, walk: Walk, request: Request, handler: Callable[[Request], Any]
    ) -> Part[ExtendedModelResponse[Any]]:
        if walk.is_over:
            raise SetupError(_BACK)
        yield from walk.to_model()
        if walk.at is State.CALL_LLM:
            yield from self._ask(walk, request, handler)
        walk.note()
        walk.run.give_back()
        update = walk.channels(kinds_in(walk.run.deps.toolbox))
        return ExtendedModelResponse(ModelResponse(result=walk.messages), Command(update=update))

    def _ask(self, walk: Walk, request: Request, handler: Callable[[Request], Any]) -> Part[None]:
        system, messages = prompt_of(walk, request.messages, request.system_message)
        offered = tool_choice(walk.task, walk.run.deps.required)
        heard, begins, tries = Heard(), clock.now(), Tries(unstreamed=walk.task.unstreamed)
        guard = partial(self._guarded, heard=heard, tries=tries, config=walk.run.config)
        tools = self._with_controls(request.tools)
        asked = GuardedRequest.of(request, guard, system_message=system, messages=messages, tools=tools)
        try:
            if (too_long := walk.run.config.get("configurable", {}).get(TOO_LONG)) is not None:
                raise too_long
            response = yield from _chosen(asked, offered, handler, heard, tries)
            reply = _with_marks(response, heard, offered, begins, walk, tries)
            # Any other reply that broke off is kept as a cut one, and the model is asked again.
            if isinstance(full := unfinished(reply), ContextOverflowError) and not reply.tool_calls:
                raise full
        except Exception as error:
            # Middleware around this one may shorten a history that is too long, and ask again.
            if gets_past(error) or (isinstance(error, ContextOverflowError) and error is not too_long):
                raise
            if is_too_long(error) and error is not too_long:
                raise ContextOverflowError(str(error)) from error
            if (refused := refused_reply(error)) is None:
                said = advise(error, secrets_of(request.model))
                ending = Ending(task=walk.task.id, status="error", reason="model_error", error=said)
                walk.take(Report(Event.FAILED, {"ending": ending}))
                yield from walk.go()
                return
            reply = _with_marks(ModelResponse(result=[refused]), Heard(), offered, begins, walk, tries)
        walk.take(Report(Event.REPLIED, {"messages": [reply]}))
        # The rest waits until the reply is saved.
        yield from walk.step()

    def _with_controls(self, tools: Sequence[Any]) -> list[Any]:
        """The tools with the control tools added: other middleware may have selected only some tools."""
        there = set(map(id, tools))
        return [*tools, *(tool for tool in self.tools if id(tool) not in there)]

    def _guarded(self, model: Any, *, heard: Heard, tries: Tries, config: RunnableConfig) -> Any:
        """The model with the guard that makes what is sent, since other middleware may add to the prompt, and
        that closes a stream once a finish in it is complete."""
        if isinstance(model, RunnableBinding):
            inner = self._guarded(model.bound, heard=heard, tries=tries, config=config)
            return model.model_copy(update={"bound": inner})
        if tries.unstreamed:
            model = without_streaming(model)
        if not isinstance(model, BaseChatModel) or has_last_step(model):
            return model
        cuts, before = is_streamed(model, "auto", config), self._before
        if before is None or before[0] is not model or before[1] is not cuts:
            sent = partial(last_step, model, deps=self._deps)
            before = self._before = model, cuts, guarded_model(model, self._deps.toolbox, sent, cuts=cuts)
        return in_call(before[2], heard, tries.stays_without_streaming) if cuts else before[2]

    def _tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]
    ) -> tuple[GuardedRun, Part[ToolMessage | Command[Any]]]:
        state: Any = request.state
        own = getattr(request.runtime, "tools", None) or ()
        told = state["guards"]["tools"] if state.get("guards") else ()
        here = [tool for tool in own if tool.name in told]
        run = begin(self._deps_for(state, here), get_config(), state)
        return run, self._call(run, state, request, handler)

    def _call(
        self,
        run: GuardedRun,
        state: Any,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Any],
    ) -> Part[ToolMessage | Command[Any]]:
        if (unseen := unseen_reply(state)) is not None:
            if self._direct is None:
                raise SetupError(_IN_FRONT)
            answers = put_off(state["messages"][unseen:], self._direct, run.deps.texts)
            return Command(update={"messages": answers})
        position: GuardPosition | None = state.get("guards")
        found = due_calls(state["messages"], run).get(request.tool_call["id"] or "")
        if found is None or position is None or position["at"] != State.EXECUTE:
            # A finish, or a call after it: the machine answers it.
            return Command()
        reply_id, call = found
        writer = ResultWriter(call, state, run, None, clock.monotonic())
        is_effect = run.deps.toolbox.is_effect(call.name)
        journalled = is_effect and self._has_journal(run, call)
        asking = HandlerCall(handler, self._resolve(request, call))
        running = Running(asking, writer, Start() if journalled else None)
        try:
            if is_effect and not (yield from reply_is_saved(run.config)) and journalled:
                self._warn_once(_NOT_SAVED, call)
            if not journalled:
                (result,) = yield running
                written = result.written
            else:
                again = partial(runs_again, call, None, run)
                written = yield from once(call, reply_id, state, run, again=again, job=running)
        except Goes as gone:
            return gone.output  # type: ignore[no-any-return]  # whatever it is, LangGraph checks it
        update = {key: value for one in written.updates for key, value in one.items()}
        if not update and len(written.messages) == 1 and isinstance(written.messages[0], ToolMessage):
            return written.messages[0]
        return Command(update={**update, "messages": written.messages})

    def _resolve(self, request: ToolCallRequest, call: Call) -> ToolCallRequest:
        """The request for the tool that the call means, if its name was slightly misspelled."""
        own = getattr(request.runtime, "tools", None) or ()
        known = next((tool for tool in own if tool.name == call.name), self._known.get(call.name))
        if request.tool is not None:
            return request.override(tool=reading(request.tool))
        if known is None:
            return request
        named = ToolCall(name=call.name, args=dict(call.args), id=call.id, type="tool_call")
        return request.override(tool_call=named, tool=reading(known))

    def _has_journal(self, run: GuardedRun, call: Call) -> bool:
        told = TOLD_OF_NO_JOURNAL in run.config.get("configurable", {})
        if run.store is None and run.can_ask and not told:
            self._warn_once(NO_JOURNAL, call)
        return run.store is not None

    def _warn_once(self, text: str, call: Call) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn(text.format(name=call.name), JournalWarning, stacklevel=3)

    def _judge(self, state: Any) -> tuple[GuardedRun, Part[dict[str, Any] | None]]:
        at = unseen_reply(state)
        if at is None or self._is_jump(state):
            walk = self._walk(state)
            return walk.run, self._end(walk)
        unseen = state["messages"][at:]
        walk = self._walk(state, unseen=unseen)
        return walk.run, self._unseen_end(walk, unseen)

    def _end(self, walk: Walk) -> Part[dict[str, Any] | None]:
        yield from walk.hear(ends=True)
        position: GuardPosition | None = walk.given.get("guards")
        if walk.is_over and not walk.said_since:
            return None
        last = walk.task.last
        # LangChain's loop ends by itself only at a reply without a valid call.
        if walk.is_over:
            # Later messages of other middleware belong to it.
            walk.end_later()
        elif last is not None and not last.message.tool_calls and walk.at in (State.NUDGE, State.DECIDE):
            yield from walk.go()
        elif walk.at not in WAITS:
            yield from walk.fail("middleware", _PAST)
        return _goes_on(walk, position["tools"] if position else {})

    def _unseen_end(self, walk: Walk, unseen: Sequence[Any]) -> Part[dict[str, Any]]:
        """Settles a reply that no hook has seen, like one of the model. walk: up to it. unseen: it and what
        follows it.

        It is taken out if the task ends before it, or a person answers what was asked before it. Else it gets
        an id of its own: LangGraph writes one into the object that it is given, and a cache may give the same
        object again, which would replace this reply.
        """
        yield from walk.to_model()
        if walk.at is not State.CALL_LLM or walk.paused:
            return _goes_on(walk, kinds_in(walk.run.deps.toolbox), unseen)
        first, *results = [one.model_copy(update={"id": None}) for one in unseen if not is_put_off(one)]
        response = ModelResponse[Any](result=[first])
        reply = _with_marks(response, Heard(), ToolChoice.ALL, clock.now(), walk, Tries())
        walk.take(Report(Event.REPLIED, {"messages": [reply, *results]}))
        yield from walk.step()
        yield from walk.go()
        return _goes_on(walk, kinds_in(walk.run.deps.toolbox), unseen)

    def _is_jump(self, state: Any) -> bool:
        """Whether the last reply may not come from the model's node: a middleware has said it after the end,
        or has jumped there. Another hook at the end hides the jump, which matters before the first reply: a
        later one would come again, and the limits end that."""
        if is_put_off(state["messages"][-1]):
            return False
        at, channels = state["guards"]["at"], channels_of(get_config().get("configurable", {}))
        ends = [name for name in channels if name.endswith(".after_agent")]
        return not at or state.get("jump_to") == "end" or (at == State.COMPRESS and len(ends) != 1)

    def _learn(self, request: Request) -> None:
        if request.response_format is not None:
            raise SetupError(
                "create_agent(response_format=…) ends the agent by itself; write Guards(response_format=…)."
            )
        own = self._own
        for tool in request.tools:
            name = name_of(tool)
            if name in own and tool is not own[name]:
                raise SetupError(
                    f"The tool {name!r} has the name of a control tool of Guards; rename it, or leave the "
                    "second Guards out."
                )

    def _walk(
        self, state: Any, tools: Sequence[Any] = (), unseen: Sequence[Any] = (), *, is_input: bool = False
    ) -> Walk:
        """unseen: the last messages, from a reply that no hook has seen: the walk begins before them."""
        run = begin(self._deps_for(state, tools, unseen), get_config(), state)
        given = {**state, "messages": state["messages"][: -len(unseen)]} if unseen else state
        return Walk(given, run, f"{self.name}.before_agent", is_input, pauses_here=bool(unseen))

    def _deps_for(
        self, state: Mapping[str, Any], tools: Sequence[Any] = (), unseen: Sequence[BaseMessage] = ()
    ) -> Dependencies:
        """The dependencies of the states in this thread, with its tools as far as known here. unseen: a reply
        that may call others, too."""
        position: GuardPosition | None = state.get("guards")
        kinds = dict(position["tools"]) if position is not None else {}
        controls = self._deps.toolbox.controls
        own = [tool for tool in tools if isinstance(tool, BaseTool)]
        here = {tool.name: tool for tool in own if tool.name not in controls}
        self._known |= here
        for name in here:
            kinds.setdefault(name, "")
        for tool in tools if len(own) < len(tools) else ():
            if is_provided(tool) and (name := provider_name(tool)) not in controls:
                kinds.setdefault(name, PROVIDED)
        if unseen or not kinds:
            # No tools are known yet: LangChain's own node judges the calls of an import.
            kinds = called_kinds(unseen or state.get("messages") or (), controls) | kinds
        found = tuple(
            here.get(name) or tool_of_kind(self._known.get(name), kind) or kind
            for name, kind in kinds.items()
        )
        names = tuple(kinds)
        made = self._made.get(names)
        if made is None or made[0] != found:
            for tool in here.values():
                check_kind(tool)
            pairs = zip(names, found, strict=True)
            given = [make_unseen(name, tool) if isinstance(tool, str) else tool for name, tool in pairs]
            box = replace(make_toolbox(given, self._controls), dialogue=self._dialogue)
            made = self._made[names] = found, replace(self._deps, toolbox=box)
        return made[1]


class _Signed:
    """A hook with a stored signature: LangChain's LangSmith integration inspects it in each call, traced or
    not, and Python computes that of a bound method each time."""

    def __init__(self, hook: Callable[..., Any]) -> None:
        whole = signature(hook)
        self._hook = hook
        self._signature = whole.replace(parameters=list(whole.parameters.values())[1:])

    def __get__(self, guards: Guards | None, owner: type[Guards]) -> Callable[..., Any]:
        if guards is None:
            return self._hook
        bound: Any = partial(self._hook, guards)
        bound.__signature__ = self._signature
        return cast(Callable[..., Any], bound)


for _name in ("wrap_model_call", "awrap_model_call", "wrap_tool_call", "awrap_tool_call"):
    setattr(Guards, _name, _Signed(vars(Guards)[_name]))

_NOT_SAVED = (
    "{name} may change something, and the reply that calls it is not saved: a call that is cut short by a "
    'crash may run twice. Run the agent with durability="async" or "sync", or pass it to guarded().'
)
_PAST = (
    "The agent ended before a finish was accepted: another middleware, or a tool that returns directly, went "
    "past the guards. Go on, and the thread continues from here."
)
_IN_FRONT = (
    "A middleware in front of Guards answers the model's calls, and without a control tool of the effect "
    "CONTINUE nothing would end its replies; put it after Guards."
)
_BACK = (
    "A middleware jumps back to the model after the task has ended, and nothing would end it again; remove "
    "its jump, or jump only if state.get('outcome') is None."
)


def _policy(given: Any) -> LoopPolicy:
    """The policy, of which the agent with the guards decides all but these two."""
    policy = checked_policy(given)
    if others := sorted(policy.model_fields_set - {"talk", "texts"}):
        raise SetupError(
            f"The policy of Guards names {others[0]!r}, which is the agent's own matter; Guards reads "
            "talk and texts."
        )
    return policy


def _no_models(name: str) -> BoundModels:
    raise SetupError(f"This run names the model {name[:80]!r}, but the agent's own model is asked.")


def _chosen(
    request: Request, offered: ToolChoice, handler: Callable[[Request], Any], heard: Heard, tries: Tries
) -> Part[Response]:
    """The model's reply; with a looser tool choice if the provider rejects this one, and with text in the
    place of pictures and documents in results if it may have rejected these. If the stream ends with nothing
    in it, which no client repeats, it is asked once more."""
    choice, was_empty = offered, False
    while True:
        asked = request if choice is ToolChoice.ALL else request.override(tool_choice="any")
        try:
            response: Response = yield HandlerCall(handler, asked, heard.listening())
            return response
        except Exception as error:
            if refused_reply(error) is not None:
                raise
            if not was_empty and is_empty_stream(error):
                was_empty = True
                continue
            refused = "tool_choice" in str(error).replace(" ", "_").lower()
            if refused and choice is not ToolChoice.ALL:
                choice = LOOSER[ToolChoice.REQUIRED]
                continue
            if (text := shown_after(error, shown_to(request.model, request.messages))) is None:
                raise
            request = request.override(messages=text)


def _with_marks(
    response: Response, heard: Heard, offered: ToolChoice, begins: float, walk: Walk, tries: Tries
) -> AIMessage:
    """The model's reply, with its marks and a unique id."""
    said = [message for message in response.result if isinstance(message, AIMessage)]
    if not said:
        raise SetupError("A middleware within Guards gave no AIMessage in place of the model's reply.")
    message, ends = heard.as_received(said[-1]), clock.now()
    notes: dict[str, Any] = {**marks(message), "at": ends, "seconds": ends - begins, **tries.marks()}
    if offered is ToolChoice.CONTROLS:
        notes["controls_only"] = True
    message.response_metadata = {**message.response_metadata, KEY: notes}
    taken = walk.run.reader(walk.state).index.places
    if message.id is None or message.id in taken:
        # Not derived from its position, which may recur when messages are removed: the journal uses this id.
        message.id = f"{message.id or 'reply'}-{uuid4()}"
    return slim(message)


def _goes_on(walk: Walk, tools: Mapping[str, str], dropped: Iterable[BaseMessage] = ()) -> dict[str, Any]:
    """What the hook at the end writes and takes out of the messages, and where the loop goes on."""
    walk.note()
    walk.run.give_back()
    removed = [RemoveMessage(id=message.id or "") for message in dropped]
    update = {"messages": [*removed, *walk.messages], **walk.channels(tools)}
    if walk.at is None:
        return update
    return {**update, "jump_to": "tools" if walk.at is State.EXECUTE else "model"}
