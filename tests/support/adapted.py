"""The arguments of `build_graph`, where those of its policy and controls stand beside the others."""

from typing import Any

from signoff import standard_controls
from signoff.graph.policy import LoopPolicy


def adapted(**options: Any) -> dict[str, Any]:
    policy = {name: options.pop(name) for name in LoopPolicy.model_fields if name in options}
    controls = {name: options.pop(name) for name in ("rounds", "answer") if name in options}
    if controls:
        options["control_tools"] = standard_controls(**controls)
    return {**options, "policy": policy}
