"""The machine without one of its rules: a property notices each. `make proof` breaks everything else, too."""

import pytest

from signoff.graph.rules import RULES
from tests.proof.exploring import ANY, explored
from tests.proof.mutations_of_rules import DROPPED, RULE_MUTATIONS


@pytest.mark.parametrize("rule", DROPPED)
def test_a_rule_that_is_missing_is_noticed(rule: str) -> None:
    found = explored(RULE_MUTATIONS[f"no rule {rule!r}"])
    assert {broken.name for broken in found.broken} & set(ANY)


def test_every_rule_but_five_is_left_out_once() -> None:
    assert set(DROPPED) | {"seconds", "not_ready", "children", "depth", "tree_turns"} == {
        rule.name for rule in RULES
    }
