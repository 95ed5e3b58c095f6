"""The embedded model's time to its first token, in a first run and in the next one."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.overhead.targets import Result
from signoff.graph.errors import SetupError
from signoff.models.local.weights import WeightsState, weights_path, weights_state

MOST = 0.1
"""The largest share of the first run's time that the next run may take to its first token."""
_MOST_SECONDS = 230.0
_PROGRAM = """
import sys, time
from signoff import build_graph
from signoff.models.local import WORKED_EXAMPLES, local_model
from signoff.tools.files import workspace_tools
with local_model(max_tokens=16) as model:
    model.start()
    graph = build_graph(model, workspace_tools(sys.argv[1]), system_prompt=WORKED_EXAMPLES)
    begun = time.perf_counter()
    for chunk, _ in graph.stream({"messages": [("user", sys.argv[2])]}, stream_mode="messages"):
        if chunk.content or getattr(chunk, "tool_call_chunks", ()):
            print(time.perf_counter() - begun, flush=True)
            break
"""


@dataclass(frozen=True)
class FirstTokens:
    """Seconds to the first token in two successive processes, with different tasks."""

    first: float
    again: float


def first_tokens() -> FirstTokens:
    """Measures both from an empty cache. Raises SetupError if the model is not installed."""
    if weights_state() is not WeightsState.VERIFIED:
        raise SetupError(
            "The embedded model was not measured: it is not installed "
            "(run `python -m signoff.models.local install`)."
        )
    weights = weights_path()
    with TemporaryDirectory() as cache, TemporaryDirectory() as workspace:
        for file in (weights, weights.with_suffix(".verified.json")):
            (Path(cache) / file.name).symlink_to(file)
        (Path(workspace) / "a.txt").write_text("Title\n")
        return FirstTokens(
            _seconds(cache, workspace, "Change the title in a.txt."),
            _seconds(cache, workspace, "Which files are there?"),
        )


def _seconds(cache: str, workspace: str, task: str) -> float:
    command = [sys.executable, "-c", _PROGRAM, workspace, task]
    env = {**os.environ, "SIGNOFF_CACHE": cache}
    env.pop("SIGNOFF_PROMPT_CACHE", None)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env=env, timeout=_MOST_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise SetupError(
            f"The embedded model was not measured: no token within {_MOST_SECONDS:g} seconds. Measure it "
            "when nothing else runs."
        ) from None
    return float(done.stdout)


def waiting(found: FirstTokens | None) -> list[Result]:
    """Returns the second run's wait as a share of the first one's."""
    if found is None:
        return []
    beside = (
        "time, not CPU, from the task to the first chunk; tools and prompt of `signoff run`; the server is "
        "already running; the second process has another task"
    )
    name = "time to the embedded model's first token, second run over the first"
    return [Result(name, found.again / found.first, MOST, "times", beside=beside)]
