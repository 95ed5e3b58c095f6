"""Signoff with a real client of OpenAI's API: streamed always, when somebody listens, or never; and heard."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from clients import listened, model_of  # type: ignore[import-not-found]  # it lies beside this file
from scripted import TASK, counted, step  # type: ignore[import-not-found]  # as above

from signoff import Limits, build_graph


def _signoff(
    turns: int, database: str | None, *, url: str, chunks: int, listens: bool = False, **given: Any
) -> Callable[[], Any]:
    model = model_of(url, chunks, turns)
    graph = build_graph(
        model,
        [step],
        limits=Limits(turns=turns),
        policy={"tool_seconds": None, "compaction": "lines", **given},
    )
    heard: Callable[[], Any] = listened(graph, turns * chunks)

    def run() -> None:
        outcome = graph.invoke(TASK)["outcome"]
        assert outcome["status"] == "success", outcome

    return heard if listens else lambda: counted(run)


SUBJECTS: dict[str, Callable[..., Callable[[], Any]]] = {
    "signoff": _signoff,
    "signoff, auto": partial(_signoff, streaming="auto"),
    "signoff, never": partial(_signoff, streaming="never"),
    "signoff, listened to": partial(_signoff, listens=True),
    "signoff, auto, listened to": partial(_signoff, streaming="auto", listens=True),
}
