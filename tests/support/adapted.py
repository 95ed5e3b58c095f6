"""The arguments of `build_graph`, of options as test cases pass them through a bench: one name for each."""

from collections.abc import Mapping
from typing import Any

from signoff import standard_controls
from signoff.graph.policy import LoopPolicy
from signoff.tools.approvals import DECISIONS

_OF_CONTROLS = ("rounds", "answer")


def adapted(**options: Any) -> dict[str, Any]:
    """policy: from the names of `LoopPolicy`. control_tools: from `rounds` and `answer`.
    approvals: with the names in `hand_over`."""
    policy = {name: options.pop(name) for name in LoopPolicy.model_fields if name in options}
    if policy:
        options["policy"] = {**options.get("policy", {}), **policy}
    controls = {name: options.pop(name) for name in _OF_CONTROLS if name in options}
    if controls:
        assert "control_tools" not in options, "the bench must say it in standard_controls(…)"
        options["control_tools"] = standard_controls(**controls)
    if handed := options.pop("hand_over", ()):
        options["approvals"] = _handed_over(handed, options.get("approvals") or {})
    return options


def _handed_over(names: Any, approvals: Mapping[Any, Any]) -> dict[Any, Any]:
    rules = dict(approvals)
    for name in names:
        decisions = rules.get(name, False)
        decisions = DECISIONS if decisions is True else decisions
        rules[name] = {"allowed_decisions": decisions, "hand_over": True} if decisions else "hand_over"
    return rules
