"""Approvals: which calls a person must approve, what they are asked, and how their answer is read.

The formats are those of LangChain's human-in-the-loop middleware (`HITLRequest`, `decisions`), so that
existing inboxes and chat pages can answer. The words of agent inboxes (`accept`, `ignore`, `response`) are
accepted, too. A rule in the form of LangChain's `InterruptOnConfig` is fully supported: `allowed_decisions`,
`when`, `description` and `args_schema`. A rule may also say that the program runs the call, and not the
graph: "hand_over", or the key `hand_over` beside what a person decides before. Any other key or word is
rejected, since a typo would switch an approval off.
"""

import hashlib
import inspect
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from langchain_core.messages import ToolCall

from signoff.graph.arguments import describe, flag
from signoff.graph.errors import SetupError
from signoff.graph.foreign import gets_past, schema_check, valid_text
from signoff.graph.kinds import Kind

if TYPE_CHECKING:
    from langgraph.prebuilt.tool_node import ToolCallRequest

DECISIONS = ("approve", "edit", "reject", "respond")
When = Callable[["ToolCallRequest"], Any]
Describe = Callable[[ToolCall, Any, Any], Any]

HAND_OVER = "hand_over"
"""The rule for calls that the program runs; as a key, it stands beside what a person decides before."""
_KNOWN = ("allowed_decisions", "when", "description", "args_schema", HAND_OVER)


@dataclass(frozen=True)
class Review:
    """What a person may decide about a call: `allowed` is empty for a call that needs nobody.

    description: the text for the person, or a function of the tool call, the state and the runtime.
    args_schema: the JSON schema of edited arguments. when: a predicate that decides whether a call needs a
    person at all. problem: why the policy failed. hand_over: the program runs the call.
    """

    allowed: tuple[str, ...] = ()
    description: str | Describe | None = None
    args_schema: Mapping[str, Any] | None = None
    when: When | None = field(default=None, repr=False)
    problem: str = ""
    hand_over: bool = False

    def describe(self, call: ToolCall, state: Any, runtime: Any, default: str) -> str:
        """The description of the call for the person; `default` if the rule has none, or fails."""
        found: Any = self.description
        problem = f"its approval policy failed: {self.problem}" if self.problem else ""
        if callable(found):
            try:
                found = found(call, state, runtime)
                found = None if found is None else str(found)
            except BaseException as error:
                if gets_past(error):
                    raise
                # A failing description must not keep a person from deciding.
                found, problem = None, f"its description failed: {_error_line(error)}"
        told = default if found is None else valid_text(found)
        return f"{told} ({problem})" if problem else told


NOBODY = Review()
ANYBODY = Review(DECISIONS)


def read_rule(name: str, rule: Any) -> Review:
    """The review for a rule that is not a function. Raises SetupError for an invalid one."""
    if isinstance(rule, bool):
        return ANYBODY if rule else NOBODY
    if rule == HAND_OVER:
        return Review(hand_over=True)
    if not isinstance(rule, Mapping):
        return Review(_decisions(name, rule, rule))
    if unknown := [key for key in rule if key not in _KNOWN]:
        raise SetupError(
            f"approvals for {name!r} has the key {unknown[0]!r}; the keys are: {', '.join(_KNOWN)}."
        )
    when, description, schema = rule.get("when"), rule.get("description"), rule.get("args_schema")
    handed = flag(f"hand_over of the approvals for {name!r}", rule.get(HAND_OVER, False))
    if when is not None:
        check_function(f"when of the approvals for {name!r}", when, 1)
    if callable(description):
        check_function(f"description of the approvals for {name!r}", description, 3)
    elif not isinstance(description, str | None):
        raise SetupError(f"description of the approvals for {name!r} is {description!r:.80}; pass text.")
    allowed = _decisions(name, rule.get("allowed_decisions"), rule)
    return Review(
        allowed, description, None if schema is None else _schema(name, schema), when, hand_over=handed
    )


def reviewed(found: Review, name: str, args: Mapping[str, Any], runtime: Any = None) -> Review:
    """The review of one call: none, if its `when` returns false. A failing `when` lets no call through."""
    if found.when is None:
        return found
    # Few rules have a `when`, and LangGraph's prebuilt package is slow to import.
    from langgraph.prebuilt.tool_node import ToolCallRequest

    call = ToolCall(name=name, args=dict(args), id=None, type="tool_call")
    try:
        missing: Any = _NotHere()
        asked = ToolCallRequest(
            tool_call=call, tool=None, state=missing, runtime=missing if runtime is None else runtime
        )
        asks = bool(found.when(asked))
    except BaseException as error:
        if gets_past(error):
            raise
        return Review(found.allowed, found.description, found.args_schema, problem=_error_line(error))
    return found if asks else NOBODY


def check_function(what: str, function: Any, arguments: int) -> bool:
    """Whether the function has a parameter `context` after this many arguments.

    Raises SetupError for a function that cannot be called with them, a generator, and an async function: what
    these return would always count as a yes.
    """
    if not callable(function) or inspect.isclass(function):
        raise SetupError(f"{what} is {describe(function)}; pass a function.")
    if inspect.isgeneratorfunction(function):
        raise SetupError(f"{what} is a generator; pass a function that returns True or False.")
    if any(map(inspect.iscoroutinefunction, (function, getattr(function, "__call__", None)))):  # noqa: B004  what it calls
        raise SetupError(f"{what} is an async function; pass a plain one.")
    try:
        found = inspect.signature(function)
    except ValueError:
        return False  # A function of C may say nothing of its arguments.
    if "context" in found.parameters:
        with suppress(TypeError):
            found.bind(*[None] * arguments, context=None)
            return True
    try:
        found.bind(*[None] * arguments)
    except TypeError as error:
        raise SetupError(f"{what} must accept {arguments} arguments ({error}).") from error
    return False


def _schema(name: str, given: Any) -> dict[str, Any]:
    """The schema as plain JSON, since it is saved with the pending request."""
    what = f"args_schema of the approvals for {name!r}"
    try:
        schema = json.loads(json.dumps(dict(given)))
    except (TypeError, ValueError) as error:
        raise SetupError(f"{what} is {given!r:.80}; pass a JSON schema.") from error
    schema_check(schema, what)
    found: dict[str, Any] = schema
    return found


def handed_over(policy: "Policy | None", kinds: Mapping[str, Kind]) -> set[str]:
    """The tools whose calls the program runs, by the rule of each or of its kind. kinds: by tool."""
    rules = policy if isinstance(policy, Mapping) else {}
    return {name for name, kind in kinds.items() if _hands_over(rules.get(name, rules.get(kind)))}


def _hands_over(rule: Any) -> bool:
    return rule == HAND_OVER or (isinstance(rule, Mapping) and rule.get(HAND_OVER) is True)


def _decisions(name: str, listed: Any, rule: Any) -> tuple[str, ...]:
    known = ", ".join(DECISIONS)
    if not isinstance(listed, list | tuple) or not listed:
        raise SetupError(
            f"approvals for {name!r} is {rule!r:.200}; pass True, False, 'hand_over', a function, a list "
            f"of: {known}, or a mapping with such a list as allowed_decisions."
        )
    if wrong := [word for word in listed if word not in DECISIONS]:
        raise SetupError(f"approvals for {name!r} lists {wrong[0]!r}; the decisions are: {known}.")
    return tuple(listed)


def _error_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]


class _NotHere:
    """A placeholder for the state and the runtime, which a `when` does not get: whether a call needs a person
    must be the same after a restart. Using it raises an error that says so, and a person is asked about the
    call."""

    def _refuse(self, *_: Any) -> NoReturn:
        raise SetupError(
            "`when` gets the tool call alone, no state and no runtime but a context_schema's context"
        )

    __getattr__ = __getitem__ = __bool__ = __len__ = __iter__ = __contains__ = __eq__ = _refuse
    __hash__ = None  # type: ignore[assignment]  # nothing that cannot be compared has one


class _ContextAlone(_NotHere):
    """A placeholder for the runtime that has only the context of the run."""

    def __init__(self, context: Any) -> None:
        self.context = context


_OF_A_FINISH = ("approve", "reject")
_KINDS = tuple(str(kind) for kind in Kind if kind is not Kind.CONTROL)
RuleFunction = Callable[..., Any]
Rule = bool | Literal["hand_over"] | Sequence[str] | Mapping[str, Any] | RuleFunction
Policy = Mapping[str, Rule] | Callable[..., bool]
"""Who decides on a call, and who runs it: rules by tool or kind, or a function of tool and arguments, which
says whether a person must approve. A function may also have a parameter `context`."""

YES = {"approve", "approved", "accept", "yes", "y", "ok", "true"}
NO = {"reject", "rejected", "ignore", "no", "n", "false"}
SHOWN_DIGITS = 6
_NAMED = re.compile(r"\s*(?P<word>[A-Za-z]+)@(?P<id>[\w-]*)(?P<rest>.*)", re.S)
_PRINTED = re.compile(rf"(?:approved?|reject(?:ed)?|yes|no)@[0-9a-f]{{{SHOWN_DIGITS}}}(?:\W.*)?", re.I | re.S)
_CALL_ID = ("call_id", "tool_call_id", "callId", "toolCallId", "id")
_LONGEST_ID = 80
_LONGEST_PROBLEM = 200
_INBOX = {"accept": "approve", "ignore": "reject", "response": "respond"}


@dataclass(frozen=True)
class ApprovalDecision:
    """A person's decision on one call. `args` are the edited arguments, `message` the reason or answer."""

    type: str
    args: Mapping[str, Any] | None = None
    message: str = ""


class Approvals:
    """A policy: by tool name or by kind (True, False, "hand_over", the allowed decisions, LangChain's
    `InterruptOnConfig`, or a function of the arguments), or one function of tool name and arguments that
    returns whether a person must approve.

    The rule of a tool replaces that of its kind. If a function raises or returns something invalid, approval
    is required, which is the safe reading. Raises SetupError for an invalid policy, and for one that names an
    unknown tool.
    """

    def __init__(
        self,
        policy: Policy | None,
        kinds: Mapping[str, Kind],
        *,
        has_context: bool = False,
        below: Collection[str] = (),
        later: Collection[str] = (),
        driven: Collection[str] = (),
        finishes: Collection[str] = (),
    ) -> None:
        """below: the tools of the delegates, to which the policy applies, too. later: the delegates whose
        tools are not all known yet. driven: the tools whose calls the program runs. finishes: the finishing
        tools; a rule for one, by its name, has a person confirm each finish."""
        self.policy = policy if policy is not None else {}
        self.kinds = kinds
        self.driven = driven
        self._rules: dict[str, Review | RuleFunction] = {}
        self._asking = set[str]()
        self._runtime: _ContextAlone | None = None
        self._above: tuple[Approvals, ...] = ()
        if isinstance(self.policy, Mapping):
            unknown = set(self.policy) - set(kinds) - set(below) - set(_KINDS) - set(finishes)
            if unknown:
                raise SetupError(_unknown(sorted(map(str, unknown)), bool(below), later))
            for name, rule in self.policy.items():
                if callable(rule) and check_function(f"approvals for {name!r}", rule, 1):
                    self._asking.add(name)
                self._rules[name] = rule if callable(rule) else read_rule(name, rule)
                if name in finishes and rule is not True and not _may_confirm(self._rules[name]):
                    raise SetupError(
                        f"approvals for the finishing tool {name!r} is {rule!r:.200}; pass True, False, a "
                        f"function, or a list of: {', '.join(_OF_A_FINISH)}."
                    )
                if _hands_over(rule) and name not in driven and name not in _KINDS:
                    raise SetupError(
                        f"approvals hands over {name!r}, which is no tool of this graph itself; write it in "
                        "the approvals of the graph that has the tool."
                    )
        elif callable(self.policy):
            if check_function("approvals", self.policy, 2):
                self._asking.add("")
        else:
            raise SetupError(
                f"approvals is {self.policy!r:.200}; pass a mapping of tool names or kinds, such as "
                f"{_example(self.policy)}, or a function."
            )
        # A `when` finds the context in the runtime, as in LangChain.
        tells = has_context and any(callable(rule) or rule.when for rule in self._rules.values())
        self.by_context = bool(self._asking) or tells or (has_context and callable(self.policy))
        """Whether a decision may depend on the context of the run: see `within`."""

    def within(self, context: Any) -> "Approvals":
        """The policy for a run with this context."""
        here = copy(self)
        here._runtime = _ContextAlone(context)
        return here

    def below(self, others: Sequence["Approvals"]) -> "Approvals":
        """The policy of a delegate, where the strictest of its own and `others`, those of the graphs above
        it, applies. All of them use the kinds of the delegate's tools."""
        here = copy(self)
        here._above = tuple(other._with_kinds(self.kinds) for other in others if other.judges)
        return here

    def _with_kinds(self, kinds: Mapping[str, Kind]) -> "Approvals":
        here = copy(self)
        here.kinds = {**self.kinds, **kinds}
        return here

    @property
    def asks(self) -> bool:
        """Whether it could require approval of any call."""
        own = callable(self.policy) or any(callable(rule) or rule.allowed for rule in self._rules.values())
        return own or bool(self._above)

    @property
    def judges(self) -> bool:
        """Whether it says anything of any call."""
        return callable(self.policy) or any(rule is not NOBODY for rule in self._rules.values())

    def confirms(self, name: str, args: Mapping[str, Any]) -> bool:
        """Whether a person must confirm a finish by this tool: a kind, or a function for all tools, does not
        mean it, nor does the policy of a graph above."""
        return name in self._rules and bool(self._own_review(name, args).allowed)

    def allowed(self, name: str, args: Mapping[str, Any]) -> tuple[str, ...]:
        """The decisions that a person may make on this call; empty if it needs nobody."""
        return self.review(name, args).allowed

    def review(self, name: str, args: Mapping[str, Any]) -> Review:
        """What a person may decide about this call, with its description."""
        found = self._own_review(name, args)
        for above in self._above:
            review = above._own_review(name, args)
            if review.hand_over and not review.allowed and name not in self.driven:
                # No program can run a call of a delegate, so it must not run unasked.
                review = ANYBODY
            found = _stricter(found, review)
        return found

    def _own_review(self, name: str, args: Mapping[str, Any]) -> Review:
        rule: Any = self.policy
        key = ""
        if isinstance(rule, Mapping):
            key = name if self._rules.get(name) else self.kinds.get(name, Kind.WRITE)
            rule = self._rules.get(key) or NOBODY
        if isinstance(rule, Review):
            return reviewed(rule, name, args, self._runtime)
        try:
            given = (args,) if key else (name, args)
            told = {"context": getattr(self._runtime, "context", None)} if key in self._asking else {}
            found = rule(*given, **told)
            if isinstance(found, Mapping | list | tuple):
                return reviewed(read_rule(name, found), name, args, self._runtime)
            return ANYBODY if found else NOBODY
        except BaseException as error:
            if gets_past(error):
                raise
            # A failing policy must not let a call through.
            return replace(ANYBODY, problem=f"{type(error).__name__}: {error}"[:200])


def _may_confirm(rule: "Review | RuleFunction") -> bool:
    return callable(rule) or (not rule.hand_over and set(rule.allowed) <= set(_OF_A_FINISH))


def _example(policy: Any) -> str:
    """How to write what was meant by a policy that is no mapping."""
    return f"{{'write': {policy!r}}}" if policy in (True, HAND_OVER) else "{'write': True}"


def _unknown(names: Sequence[str], below: bool, later: Collection[str]) -> str:
    """The error for a policy that names an unknown tool, or one that is not known yet."""
    kinds = ", ".join(_KINDS)
    if not later:
        of_these = "of this graph or of a delegate" if below else "of this graph"
        return f"approvals names {names}, which is neither a tool {of_these} nor a kind ({kinds})."
    delegates = ", ".join(map(repr, sorted(later)))
    return (
        f"approvals names {names}, which is no tool that is known when the graph is built, and no kind "
        f"({kinds}). The graph of {delegates}, or one below it, is made by a function, so that its tools are "
        "not known yet: write the kind, or a function of (tool name, arguments), or name the tool in the "
        "approvals of that graph."
    )


def _stricter(own: Review, above: Review) -> Review:
    """Both combined: a person is asked if either asks, and may decide what both allow."""
    if not own.allowed or not above.allowed:
        return own if own.allowed else above
    both = tuple(one for one in own.allowed if one in above.allowed)
    return replace(own, allowed=both or ("reject",))


def request(
    calls: Sequence[tuple[str, str, Mapping[str, Any]]], reviews: Sequence[Review], told: Sequence[str]
) -> dict[str, Any]:
    """The payload of the interrupt for `(call id, tool, arguments)`, one for all calls that need a person.

    told: the description of each.
    """
    return {
        "type": "approval",
        "call_ids": [call_id for call_id, _, _ in calls],
        "action_requests": [
            {"name": name, "args": dict(args), "description": words}
            for (_, name, args), words in zip(calls, told, strict=True)
        ],
        "review_configs": [
            {
                "action_name": name,
                "allowed_decisions": list(review.allowed),
                **({} if review.args_schema is None else {"args_schema": dict(review.args_schema)}),
            }
            for (_, name, _), review in zip(calls, reviews, strict=True)
        ],
    }


def content_id(interrupt_id: str, *shown: Any) -> str:
    """A short id of what an interrupt shows a person; `approve@ID` decides on exactly that.

    It includes the interrupt's id, so that the next call gets a different one, even with the same tool and
    arguments.
    """
    text = json.dumps([interrupt_id, *shown], sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:SHOWN_DIGITS]


def content_id_of_calls(interrupt_id: str, calls: Iterable[tuple[str, str, Mapping[str, Any]]]) -> str:
    """`shown_id` of the calls `(call id, tool, arguments)` of an approval."""
    return content_id(interrupt_id, [[call_id, name, dict(args)] for call_id, name, args in calls])


def take_ids(answer: Any) -> tuple[Any, frozenset[str]]:
    """Splits an answer into the answer without its short ids, and these ids: the one in `approve@3f2a91` or
    `reject@3f2a91: why`, or `shown` in decisions."""
    if isinstance(answer, Mapping) and "decisions" in answer:
        inner, named = _without_ids(answer["decisions"])
        return {**answer, "decisions": inner}, named | _without_id(answer)[1]
    return _without_ids(answer)


def _without_ids(given: Any) -> tuple[Any, frozenset[str]]:
    if not isinstance(given, list | tuple):
        return _without_id(given)
    pairs = [_without_id(one) for one in given]
    return [one for one, _ in pairs], frozenset[str]().union(*(named for _, named in pairs))


def _without_id(answer: Any) -> tuple[Any, frozenset[str]]:
    if isinstance(answer, Mapping):
        return answer, frozenset([str(answer["shown"]).lower()] if "shown" in answer else [])
    found = _NAMED.match(answer) if isinstance(answer, str) else None
    if found is None or found["word"].lower() not in YES | NO:
        return answer, frozenset()
    return f"{found['word']}{found['rest']}", frozenset([found["id"].lower()])


def looks_named(answer: Any) -> bool:
    """Whether an answer is a decision word with a short id: such an answer is never meant as text."""
    return isinstance(answer, str) and _PRINTED.fullmatch(answer.strip()) is not None


def read_answer(
    answer: Any,
    calls: Sequence[tuple[str, Mapping[str, Any]]],
    allowed: Sequence[Sequence[str]],
    *,
    ids: Sequence[str] = (),
    shown: str = "",
    schemas: Sequence[Mapping[str, Any] | None] = (),
) -> list[ApprovalDecision]:
    """One decision for each of `calls` (tool, arguments). Raises ValueError, with the reason, for an invalid
    answer.

    ids: the call ids; decisions that name them apply to those calls, in any order. shown: the short id of
    what waits; an answer with another one is invalid. schemas: for the arguments of an edit.
    """
    answer, named = take_ids(answer)
    if other := sorted(named - {shown}):
        raise ValueError(f"{other[0][:_LONGEST_ID]!r} is not the id of what waits now; look at that first")
    given = answer.get("decisions", answer) if isinstance(answer, Mapping) else answer
    beside = answer.get("call_ids") if isinstance(answer, Mapping) else None
    if isinstance(given, Mapping):
        given = [given]
    if isinstance(given, bool | str):
        given = [given] * (len(beside) if isinstance(beside, list | tuple) else len(calls))
    if not isinstance(given, Sequence):
        raise ValueError(f"give one decision for each of the {len(calls)} calls")
    ordered = _in_order(given, beside, ids or [""] * len(calls))
    if len(ordered) != len(calls):
        raise ValueError(f"{len(ordered)} decisions for {len(calls)} calls; pass one for each, in order")
    found = [_decision(one, name) for one, (name, _) in zip(ordered, calls, strict=True)]
    for decision, may, (name, _) in zip(found, allowed, calls, strict=True):
        if decision.type not in may:
            raise ValueError(f"{decision.type!r} is not allowed for {name}; allowed: {', '.join(may)}")
    for decision, schema, (name, _) in zip(found, schemas or [None] * len(calls), calls, strict=True):
        if decision.args is not None and schema and (problem := _misfit(decision.args, schema)):
            raise ValueError(f"the edited arguments of {name} do not fit: {problem}")
    return found


def _misfit(args: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    try:
        return schema_check(schema, "args_schema")(dict(args))
    except SetupError:
        return ""  # The package is missing here; the graph, where it is installed, checks, too.
    except Exception as error:  # noqa: BLE001  a reference that leads nowhere, say; nodes must not raise here
        return f"their schema cannot be used ({type(error).__name__}: {error})"[:_LONGEST_PROBLEM]


def _in_order(given: Sequence[Any], beside: Any, ids: Sequence[str]) -> Sequence[Any]:
    """The decisions in the order of the calls: by the ids that they name, else by position.

    beside: ids in a separate list, as in the request.
    """
    named = [_call_named(one) for one in given]
    if beside is not None:
        if not isinstance(beside, list | tuple) or len(beside) != len(given):
            raise ValueError(f"call_ids must name one call for each of the {len(given)} decisions")
        if any(own not in (None, other) for own, other in zip(named, beside, strict=True)):
            raise ValueError("call_ids and a decision name different calls")
        named = list(beside)
    missing = named.count(None)
    if missing == len(named):
        return given
    if missing:
        raise ValueError("only some of the decisions name their call; name it in all of them, or in none")
    if unknown := [one for one in named if not one or one not in ids]:
        raise ValueError(f"no call {str(unknown[0])[:_LONGEST_ID]!r} waits; these do: {', '.join(ids)}")
    places = {one: at for at, one in reversed(list(enumerate(named)))}
    if doubled := [one for at, one in enumerate(named) if places[one] != at]:
        raise ValueError(f"the call {doubled[0]!r} is decided on twice")
    if left := [one for one in ids if one not in places]:
        raise ValueError(f"there is no decision for the call {left[0]!r}; pass one for each call")
    return [given[places[one]] for one in ids]


def _call_named(decision: Any) -> Any:
    """The call id that a decision names; None if it names none."""
    if not isinstance(decision, Mapping):
        return None
    # In an inbox's edit, `args` contains the action; otherwise they are the tool's own arguments.
    inside = [decision.get("edited_action"), decision.get("args")]
    actions = [one for one in inside if isinstance(one, Mapping) and "args" in one]
    named = [one[key] for one in (decision, *actions) for key in _CALL_ID if one.get(key) is not None]
    if any(one != named[0] for one in named):
        raise ValueError(f"a decision names two calls, {named[0]!r} and {named[-1]!r}")
    return named[0] if named else None


def _decision(given: Any, name: str) -> ApprovalDecision:
    if isinstance(given, bool):
        return ApprovalDecision("approve" if given else "reject")
    if isinstance(given, str):
        word = given.strip().lower()
        if word in YES:
            return ApprovalDecision("approve")
        if re.split(r"\W", word, maxsplit=1)[0] not in NO:
            raise ValueError(f"{given.strip()[:_LONGEST_ID]!r} is not a decision; use approve or reject")
        return ApprovalDecision("reject", message="" if word in NO else given.strip())
    if not isinstance(given, Mapping) or not isinstance(given.get("type"), str):
        raise ValueError(f"{given!r} is not a decision; use {{'type': 'approve'}} or reject, edit, respond")
    kind = _INBOX.get(given["type"], given["type"])
    if kind not in DECISIONS:
        raise ValueError(f"{given['type']!r} is not a decision; use one of: {', '.join(DECISIONS)}")
    if kind == "edit":
        return ApprovalDecision("edit", args=_edited(given, name))
    message = given.get("message", given.get("args"))
    if kind == "respond" and not isinstance(message, str):
        raise ValueError("respond needs a message")
    return ApprovalDecision(kind, message=message if isinstance(message, str) else "")


def _edited(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    action = given.get("edited_action", given.get("args"))
    if not isinstance(action, Mapping) or not isinstance(action.get("args"), Mapping):
        raise ValueError("edit needs edited_action with the name and the new args")
    edited = action.get("name", action.get("action", name))
    if edited != name:
        raise ValueError(f"edit may change the arguments of {name}, not the tool")
    args: Mapping[str, Any] = action["args"]
    return args
