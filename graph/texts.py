"""The texts that the model reads, as a value that can be replaced as a whole, for another language say:
`build_graph(..., texts=Texts(...))`. The words themselves stand in `wording.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from signoff.graph.wording import (
    AMOUNTS,
    ASK_USER,
    CONTRACT,
    CONTRACT_LINES,
    DIGEST,
    FINISH_NAME,
    FINISH_TASK,
    MATERIAL,
    NUDGES,
    REFUSALS,
    REQUEST_MORE_TURNS,
    RESULTS,
    ROUNDS,
    SUMMARISE,
    SYSTEM,
    THINK,
)


@dataclass(frozen=True)
class Texts:
    """The texts that the model reads. Replace single fields, or all of them.

    `nudges`, `results`, `refusals` and `contract_lines` are looked up by the names used in the defaults; a
    name that is not given keeps its default. `summarise` and `material` are read by the model that writes
    the digest.
    """

    system: str = SYSTEM
    rounds: str = ROUNDS
    finish_task: str = FINISH_TASK
    ask_user: str = ASK_USER
    think: str = THINK
    request_more_turns: str = REQUEST_MORE_TURNS
    amounts: Mapping[str, str] = field(default_factory=lambda: AMOUNTS)
    nudges: Mapping[str, str] = field(default_factory=lambda: NUDGES)
    results: Mapping[str, str] = field(default_factory=lambda: RESULTS)
    refusals: Mapping[str, str] = field(default_factory=lambda: REFUSALS)
    digest: str = DIGEST
    contract: str = CONTRACT
    contract_lines: Mapping[str, str] = field(default_factory=lambda: CONTRACT_LINES)
    summarise: str = SUMMARISE
    material: str = MATERIAL

    def __post_init__(self) -> None:
        for name, default in (
            ("amounts", AMOUNTS),
            ("nudges", NUDGES),
            ("results", RESULTS),
            ("refusals", REFUSALS),
            ("contract_lines", CONTRACT_LINES),
        ):
            object.__setattr__(self, name, MappingProxyType({**default, **getattr(self, name)}))

    def naming(self, finish: str) -> "Texts":
        """The texts with `finish` as the name of the finishing tool."""
        if finish == FINISH_NAME:
            return self
        renamed = {part.name: _renamed(getattr(self, part.name), finish) for part in fields(self)}
        return replace(self, **renamed)


def _renamed(text: Any, finish: str) -> Any:
    if isinstance(text, Mapping):
        return {key: _renamed(part, finish) for key, part in text.items()}
    return text.replace(FINISH_NAME, finish) if isinstance(text, str) else text


DEFAULT_TEXTS = Texts()
