"""A machine and its delegates, without LangGraph: the state of all of them, and what may happen next.

The code that runs delegates is the real one. Only the checkpoints that it reads and the runs that it starts
are simulated: such a run does nothing by itself. Each machine below runs one state at a time, in every
possible order of two machines, and is entered again, as after a crash. Steps that no other machine can
observe are not interleaved.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, cast

from langchain_core.messages import ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointTuple
from langgraph.errors import GraphInterrupt
from langgraph.pregel import Pregel
from langgraph.types import Command, Interrupt, StateSnapshot

from signoff.graph.history.task import read
from signoff.graph.machine import Event, State, enters
from signoff.graph.rules import SHARED
from signoff.nodes.delegates.descent import DESCENT, Descent
from signoff.nodes.delegates.graphs import deps_of, graph_of
from signoff.nodes.delegates.ledger import in_tree
from signoff.nodes.delegates.run import Children, caught, settled
from signoff.nodes.node import Dependencies, NodeContext, Work
from signoff.nodes.requests import Operation
from signoff.verify.choices import (
    ANSWER,
    MOST_STEPS,
    OUTSIDE,
    REPLY,
    STEP,
    Possibility,
    World,
    agreed,
    answers,
    outside,
)
from signoff.verify.machine import (
    Machine,
    MachinePoint,
    MachineStep,
    Names,
    Symbol,
    drive,
    merged,
)

TOP = ""
"""The namespace of the machine at the top."""


class UnfinishedChild(BaseException):
    """A called machine is still running, so the node that waits for it does not complete."""


class CallOf(NamedTuple):
    """A delegate call: the namespace of the calling machine, its reply and the call id."""

    above: str
    reply_id: str
    call_id: str


@dataclass(frozen=True)
class TreePoint:
    """A point in a run of all machines. below: the called machines, by namespace; calls: the calls that
    started them. The top machine's point has the store, and how many events may still come."""

    top: MachinePoint
    below: Mapping[str, MachinePoint] = field(default_factory=dict)
    calls: Mapping[str, CallOf] = field(default_factory=dict)
    path: tuple[str, ...] = ()

    def at(self, ns: str) -> MachinePoint:
        """The machine in this namespace, with the shared parts."""
        own = self.top if ns == TOP else self.below[ns]
        return replace(own, shelf=self.top.shelf, outside=self.top.outside)

    def moved(self, ns: str, point: MachinePoint) -> "TreePoint":
        """This point after a step of the machine in the namespace."""
        if ns == TOP:
            return replace(self, top=point)
        top = replace(self.top, shelf=point.shelf, outside=point.outside)
        return replace(self, top=top, below={**self.below, ns: point})

    @property
    def all(self) -> Mapping[str, MachinePoint]:
        return {TOP: self.top, **self.below}

    def is_live(self, ns: str) -> bool:
        """Whether anything still waits for this machine's result."""
        if ns == TOP:
            return self.top.place is not None
        above, _, call_id = self.calls[ns]
        messages = self.all[above].messages
        answered = any(isinstance(m, ToolMessage) and m.tool_call_id == call_id for m in messages)
        return self.is_live(above) and not answered


@dataclass(frozen=True)
class TreeStep:
    """One step of one machine. before, after: all machines; step: the step of the one in `ns`."""

    before: TreePoint
    after: TreePoint
    ns: str
    step: MachineStep


@dataclass(frozen=True)
class Part:
    """The parts of one simulated machine. names: its tools; replies: what its model may say; deps: its
    dependencies, if they differ from those of its graph."""

    names: Names
    replies: Mapping[str, Symbol]
    deps: Dependencies | None = None


@dataclass
class Standing:
    """The positions of all machines while a node of the top machine waits for others.

    running: machines that can run; waiting: machines that wait for a person; begun: machines with nothing
    saved yet, with their input; done: the node's step, once all have ended; asked: what it waits for.
    """

    running: dict[str, "Member"] = field(default_factory=dict)
    waiting: dict[str, "Member"] = field(default_factory=dict)
    begun: dict[str, Any] = field(default_factory=dict)
    calls: dict[str, CallOf] = field(default_factory=dict)
    done: dict[str, MachineStep] = field(default_factory=dict)
    asked: Sequence[Interrupt] = ()


class Member(Machine):
    """One machine of the tree. ns: its namespace; descent: what the machine above passes down to it."""

    def __init__(
        self, deps: Dependencies, names: Names, ns: str, descent: Descent | None, tree: "Tree"
    ) -> None:
        if descent is not None:
            box = replace(deps.toolbox, approvals=deps.toolbox.approvals.below(descent.policies))
            deps = replace(deps, toolbox=box, limits=descent.within(deps.limits))
        super().__init__(replace(deps, readings={}), names)
        self.ns = ns
        self._descent = descent
        self._tree = tree

    def place(self) -> Mapping[str, Any]:
        node = f"{self.ns}|node:0" if self.ns else "node:0"
        handed = self._descent.config if self._descent is not None else {}
        return {"checkpoint_ns": node, "checkpoint_id": None, **handed}

    def work(self, state: State) -> Work:
        return in_tree(state, super().work(state))

    def saver(self) -> BaseCheckpointSaver[Any]:
        return self._tree.saver

    def carry_out(self, request: Any, run: NodeContext) -> Any:
        if isinstance(request, Children):
            parts = list(map(request.steps, request.children))
            for child in request.children:
                call = CallOf(child.run.ns, child.reply_id, child.call.id)
                self._tree.standing.calls[child.ns] = call
            answer = partial(self.carry_out, run=run)
            works: list[Callable[[], ToolMessage]] = [partial(drive, one, answer) for one in parts]
            return settled(request.children, list(map(caught, works)))
        if isinstance(request, Operation) and isinstance(request.call, partial):
            graph = getattr(request.call.func, "__self__", None)
            if isinstance(graph, Pregel):
                return self._played(graph, request.call)
        return request.do(run)

    def _played(self, graph: Any, call: "partial[Any]") -> Any:
        match call.func.__name__:
            case "get_state":
                return self._tree.looked_at(call.args[0])
            case "invoke":
                return self._tree.entered(graph, *call.args)
        raise NotImplementedError(f"{call.func.__name__} of a graph is not played")

    def delegates(self, point: MachinePoint) -> bool:
        """Whether the next step waits for other machines."""
        if point.place is not State.EXECUTE or not self.deps.toolbox.delegates:
            return False
        due = read(point.state, self.deps.toolbox).due
        return bool(due) and due[0].name in self.deps.toolbox.delegates


class _Saver(BaseCheckpointSaver[Any]):
    """A read-only checkpointer for the machines."""

    def __init__(self, tree: "Tree") -> None:
        super().__init__()
        self._tree = tree

    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        point = self._tree.now.below.get(config["configurable"]["checkpoint_ns"])
        if point is None:
            return None
        values = {} if point.place is None else {f"branch:to:{point.place}": None}
        return CheckpointTuple(config, cast(Checkpoint, {"channel_values": values}), cast(Any, {}))


class Tree:
    """Runs the machines of one graph and of its delegates. parts: the parts of each, by the name of the
    delegate, the top machine under an empty name."""

    def __init__(self, deps: Dependencies, parts: Mapping[str, Part]) -> None:
        self.parts = parts
        self.saver = _Saver(self)
        self.top = Member(deps, parts[TOP].names, TOP, None, self)
        self.now = TreePoint(self.top.begin([("user", "do it")], 0))
        self.standing = Standing()
        limits = self.top.deps.limits
        self.bounds = {name: most for name in SHARED if (most := getattr(limits, name)) is not None}
        self._plain: dict[str, Member] = {TOP: self.top}

    def plain(self, ns: str) -> Member:
        """The machine on its own, to compare and judge its points."""
        if ns not in self._plain:
            above, _, own = ns.rpartition("|")
            name = own.partition(":")[0]
            graph = graph_of(self.plain(above).deps.toolbox.delegates[name])
            self._plain[ns] = self._member(graph, ns, None)
        return self._plain[ns]

    def _member(self, graph: Any, ns: str, descent: Descent | None) -> Member:
        name = ns.rpartition("|")[2].partition(":")[0]
        part = self.parts[name]
        deps = part.deps or deps_of(graph)
        return Member(deps, part.names, ns, descent, self)

    def stand(self, point: TreePoint) -> Standing:
        """Runs the node that waits for others, as after a crash, until one of them must run."""
        self.now, self.standing = point, Standing()
        with_shelf = point.at(TOP)
        try:
            step = self.top.step(with_shelf)
        except UnfinishedChild:
            return self.standing
        if step.asked:
            self.standing.asked = step.asked
        else:
            self.standing.done[TOP] = step
        return self.standing

    def looked_at(self, config: Any) -> StateSnapshot:
        point = self.now.below[config["configurable"]["checkpoint_ns"]]
        following = () if point.place is None else (str(point.place),)
        return StateSnapshot(dict(point.state), following, config, None, None, None, (), ())

    def entered(self, graph: Any, given: Any, config: Any) -> Any:
        """The immediate result of a machine's run: its values if it has ended; else it waits, or must run."""
        ns = config["configurable"]["checkpoint_ns"]
        member = self._member(graph, ns, config["configurable"].get(DESCENT))
        point = self.now.below.get(ns)
        if point is None or given is not None:
            self.standing.begun[ns] = given
            self.standing.running[ns] = member
            raise UnfinishedChild
        if point.place is None:
            return dict(point.state)
        if point.waiting is not None:
            self.standing.waiting[ns] = member
            raise GraphInterrupt([Interrupt(value=point.waiting, id=ns)])
        if member.delegates(point):
            step = member.step(self.now.at(ns))
            if step.asked:
                raise GraphInterrupt(list(step.asked))
            self.standing.done[ns] = step
        self.standing.running[ns] = member
        raise UnfinishedChild


_INSIDE = (State.COMPRESS, State.DECIDE, State.ROUTE_TOOLS, State.REVIEW, State.NUDGE)
"""States whose steps no other machine can observe, and in which a kill changes nothing."""
_IN_LEDGER = (State.COMPRESS, State.ROUTE_TOOLS)
"""The states among them that write to the ledger, if the tree has one."""

Way = tuple[Possibility, Sequence[TreeStep]]
"""What happens, and the steps of one machine until another could observe it."""


@dataclass(frozen=True)
class TreeWorld:
    """A graph with delegates, and what may happen to it: `events` from outside, at most `outside` of them."""

    name: str
    tree: Tree
    events: Sequence[str] = ()
    outside: int = 0

    def begin(self) -> TreePoint:
        top = self.tree.top.begin([("user", "do it")], self.outside)
        return TreePoint(top, path=("a task",))

    def successors(self, point: TreePoint, standing: Standing | None) -> Iterator[Way]:
        """Yields everything that may happen at `point`. standing: the positions of the machines, while the
        top one waits for others."""
        top, kills = self.tree.top, tuple({"kill"} & set(self.events))
        self.tree.now = point
        if standing is None:
            yield from self._of(top, point, self.events)
            return
        point = replace(point, calls={**point.calls, **standing.calls})
        if TOP in standing.done:
            yield from self._of(top, point, kills)
        for ns, member in self._moving(standing):
            if ns in standing.begun:
                begun = _begun(point, ns, standing.begun[ns], member)
                yield Possibility(STEP, f"{_called(point, ns)} begins"), self._on(begun, member)
            else:
                yield from self._of(member, point, kills)
        if not standing.running and not standing.done:
            yield from self._answered(standing, point)
        for name in self.events if point.top.outside else ():
            after = None if name == "kill" else outside(name, point.at(TOP), top)
            if after is not None:
                step = MachineStep(point.top, after)
                yield Possibility(OUTSIDE, name), [TreeStep(point, replace(point, top=after), TOP, step)]

    @property
    def _inside(self) -> Collection[State]:
        return set(_INSIDE) - set(_IN_LEDGER) if self.tree.bounds else _INSIDE

    def _moving(self, standing: Standing) -> list[tuple[str, Member]]:
        """The running machines that may take a step: one that starts does so alone, since nothing observes
        it."""
        alone = [(ns, member) for ns, member in standing.running.items() if ns in standing.begun]
        return alone[:1] or list(standing.running.items())

    def _of(self, member: Member, point: TreePoint, events: Sequence[str]) -> Iterator[Way]:
        """Yields what one machine may do by itself."""
        ns = member.ns
        replies = self.tree.parts[ns.rpartition("|")[2].partition(":")[0]].replies
        world = World(ns, member, tuple(replies), events, self.outside, alphabet=replies)
        for choice, step in world.successors(point.at(ns)):
            name = f"{_called(point, ns)}: {choice.name}".removesuffix(": ") if ns else choice.name
            begun = TreeStep(point, point.moved(ns, step.after), ns, step)
            steps = self._on(begun, member) if choice.sort in (STEP, REPLY) else [begun]
            yield replace(choice, name=name), steps

    def _on(self, step: TreeStep, member: Member) -> Sequence[TreeStep]:
        """The step, and the following ones that no other machine observes and that no outside event can
        interrupt."""
        steps, ns = [step], member.ns
        while (at := steps[-1].after.at(ns)).place in self._inside and len(steps) <= MOST_STEPS:
            if ns == TOP and at.outside and self.events != ("kill",):
                break
            before, made = steps[-1].after, member.step(at)
            steps.append(TreeStep(before, before.moved(ns, made.after), ns, made))
        return steps

    def _answered(self, standing: Standing, point: TreePoint) -> Iterator[Way]:
        """Yields each answer to each interrupt that waits at the top, by id."""
        for asked in standing.asked:
            member, before = standing.waiting[asked.id], point.at(asked.id)
            for choice in answers(before.waiting or {}):
                given = replace(before, agreed=before.agreed | agreed(before, choice))
                step = member.step(given, answer=choice.value)
                answered = TreeStep(point, point.moved(asked.id, step.after), asked.id, step)
                name = f"{_called(point, asked.id)}: {choice.name}"
                yield Possibility(ANSWER, name), self._on(answered, member)


def _begun(point: TreePoint, ns: str, given: Any, member: Member) -> TreeStep:
    """The first step of a machine: its input is saved."""
    if ns not in point.below:
        after = member.begin(given["messages"], point.top.outside)
        before = after
    else:
        before = point.at(ns)
        update: dict[str, Any] = dict((given.update if isinstance(given, Command) else given) or {})
        event = Event(update.get("event", Event.INPUT))
        state = merged(before.state, update)
        after = replace(before, place=enters(event), state=state, waiting=None, via=event)
    after = replace(after, shelf=point.top.shelf)
    return TreeStep(point, point.moved(ns, after), ns, MachineStep(before, after))


def _called(point: TreePoint, ns: str) -> str:
    """The names of the delegates that lead to a machine, which tell its steps from those of others: of
    several calls with the same name in a reply, all but the first are numbered."""
    above, reply_id, call_id = point.calls[ns]
    name = ns.rpartition("|")[2].partition(":")[0]
    reply: Any = next(message for message in point.all[above].messages if message.id == reply_id)
    number = [one["id"] for one in reply.tool_calls if one["name"] == name].index(call_id) + 1
    own = name if number == 1 else f"{name} {number}"
    return own if above == TOP else f"{_called(point, above)}/{own}"


def path(ns: str) -> str:
    """The names of the delegates that lead to a machine."""
    return "/".join(part.partition(":")[0] for part in ns.split("|"))
