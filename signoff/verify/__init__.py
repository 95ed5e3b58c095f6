"""A graph, model-checked: what may happen to it in every order, and what must hold in each."""

from typing import TYPE_CHECKING

from signoff.public import lazily

if TYPE_CHECKING:
    from signoff.verify.checking import CheckedProperty, ExploredWorld, Verification, verify_graph

__all__ = ["CheckedProperty", "ExploredWorld", "Verification", "verify_graph"]

__getattr__ = lazily(
    __name__,
    {
        "signoff.verify.checking": (
            "CheckedProperty",
            "ExploredWorld",
            "Verification",
            "verify_graph",
        )
    },
)
