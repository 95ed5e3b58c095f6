"""Machines that call each other: what must hold of all of them together.

`make proof` explores all of their worlds, with the abstraction, and breaks what runs them; here are two.
"""

import pytest

from signoff.verify.tree_explore import TreeExplorer
from tests.proof.compositions import COMPOSITIONS


@pytest.mark.parametrize("name", ["two ask", "finish beside"])
def test_every_property_holds_in_every_state(name: str) -> None:
    found = TreeExplorer(COMPOSITIONS[name](), thorough=False).run()
    assert found.broken == []
    assert found.states > 25
