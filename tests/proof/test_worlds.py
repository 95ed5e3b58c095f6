"""Every state that a run can reach, in worlds of every sort: all properties hold in all of them."""

import pytest

from signoff.graph.errors import IllegalEvent
from signoff.graph.machine import TRANSITIONS, Event, State
from signoff.nodes.node import Node, Report
from signoff.verify.alphabet import ALPHABET
from signoff.verify.explore import Explorer
from signoff.verify.properties import PROPERTIES
from tests.proof.worlds import WORLDS, machine

QUICK = ("errors", "refusals", "odd ids", "few tokens", "more turns")
WORLD_NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in WORLDS]


@pytest.mark.parametrize("name", WORLD_NAMES)
def test_every_property_holds_in_every_state(name: str) -> None:
    found = Explorer(WORLDS[name]()).run()
    assert found.broken == []
    assert found.states > 50


@pytest.mark.slow
def test_every_state_and_every_event_of_the_machine_is_visited() -> None:
    visited: set[tuple[State | None, Event | None]] = set()
    for name in WORLDS:
        visited |= Explorer(WORLDS[name](), thorough=False).run().reported
    assert visited >= {(state, event) for state, row in TRANSITIONS.items() for event in row}


def test_every_reply_is_said_somewhere() -> None:
    said = {reply for make in WORLDS.values() for reply in make().replies}
    assert said == set(ALPHABET)


def test_each_property_has_a_name_and_a_sentence_of_its_own() -> None:
    assert (
        len({one.name for one in PROPERTIES}) == len({one.sentence for one in PROPERTIES}) == len(PROPERTIES)
    )


@pytest.mark.parametrize("state", State)
def test_an_illegal_event_raises_and_changes_nothing(state: State) -> None:
    given = machine()
    point = given.begin([("user", "do it")], 0)
    before = {**point.state, "messages": list(point.messages)}
    for event in set(Event) - set(TRANSITIONS[state]) if TRANSITIONS[state] else ():
        node = Node(state, given.kit, lambda *_, said=event: Report(said, {"stop": "changed"}))
        with pytest.raises(IllegalEvent):
            node.invoke(point.state)
        assert point.state == before
