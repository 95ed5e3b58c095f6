"""The small ones of the worlds; `make proof` explores all of them."""

import pytest

from signoff.graph.errors import IllegalEvent
from signoff.graph.machine import TRANSITIONS, Event, State
from signoff.nodes.node import Node, Report
from signoff.verify.explore import Explorer
from signoff.verify.machine import ALPHABET
from signoff.verify.properties import PROPERTIES
from tests.proof.worlds import WORLDS, machine


@pytest.mark.parametrize("name", ["errors", "refusals"])
def test_every_property_holds_in_every_state(name: str) -> None:
    found = Explorer(WORLDS[name]()).run()
    assert found.broken == []
    assert found.states > 50


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
        node = Node(state, given.deps, lambda *_, said=event: Report(said, {"stop": "changed"}))
        with pytest.raises(IllegalEvent):
            node.invoke(point.state)
        assert point.state == before
