"""Makes the picture of a trace in Arize Phoenix: `.bench/phoenix/bin/python -m tests.trace_picture`.

Needs chromium, and an environment of its own: `uv venv .bench/phoenix`, then `uv pip install --python
.bench/phoenix/bin/python arize-phoenix -e ".[otel]"`. In another shell Phoenix has just begun:
`PHOENIX_WORKING_DIR=$(mktemp -d) .bench/phoenix/bin/phoenix serve`. A scripted task with a delegate asks a
question; another process answers it. Both are one trace.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "trace.png"
ADDRESS = "http://127.0.0.1:6006"


def search(what: str) -> str:
    """Search."""
    return f"{what}: it is 13 metres high."


def run(folder: Path, part: str) -> None:
    """One of the two processes."""
    from signoff import Session, build_graph, delegate, sqlite_storage
    from signoff.models import ScriptedModel, call
    from signoff.session.tracing import tracing

    child = [call("search", what="the lighthouse"), call("finish_task", summary="It is 13 metres high.")]
    before = [
        call("research", task="How high is the lighthouse?"),
        call("ask_user", question="In feet, too?"),
    ]
    after = [call("search", what="feet"), call("finish_task", summary="13 metres, 43 feet.")]
    below = build_graph(ScriptedModel(child), [search], name="researcher")
    research = delegate("research", below, description="Finds something out.")
    with sqlite_storage(folder / "threads.sqlite") as storage:
        model = ScriptedModel(before if part == "begin" else after)
        graph = build_graph(model, [search, research], storage=storage, name="editor")
        session = Session(graph, "lighthouse", config={"callbacks": tracing(graph)})
        if part == "begin":
            session.run("How high is the lighthouse?")
        else:
            session.resume("yes")


def asked(query: str) -> Any:
    """What Phoenix answers to a GraphQL query."""
    body = json.dumps({"query": query}).encode()
    request = urllib.request.Request(f"{ADDRESS}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)["data"]


SPANS = """{ projects { edges { node { id spans(first: 50) { edges { node {
    name parentId trace { traceId } } } } } } } }"""


def shown() -> tuple[str, list[dict[str, Any]]]:
    """The id of Phoenix's project and its spans, when all have come."""
    for _ in range(300):
        with suppress(OSError, ValueError):
            (project,) = [one["node"] for one in asked(SPANS)["projects"]["edges"]]
            spans = [one["node"] for one in project["spans"]["edges"]]
            if len(spans) >= 10:
                return project["id"], spans
        time.sleep(1)
    raise TimeoutError("Phoenix does not show them")


def main() -> None:
    env = {**os.environ, "SIGNOFF_OTEL": "content", "OTEL_EXPORTER_OTLP_ENDPOINT": ADDRESS}
    with tempfile.TemporaryDirectory() as folder:
        for part in ("begin", "end"):
            subprocess.run([sys.executable, "-m", "tests.trace_picture", part, folder], env=env, check=True)
    project, spans = shown()
    roots = [span for span in spans if not span["parentId"]]
    print(f"{len(spans)} spans, {len(roots)} without one above: {[span['name'] for span in roots]}")
    assert len(roots) == 1, "both processes are one trace"
    take(project, roots[0]["trace"]["traceId"])


def take(project: str, trace: str) -> None:
    """The page of the trace, as chromium shows it."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1400,820"]
    address = f"{ADDRESS}/projects/{project}/traces/{trace}"
    picture = ["--virtual-time-budget=25000", f"--screenshot={PICTURE}", address]
    subprocess.run(["chromium", *flags, *picture], check=True, capture_output=True, timeout=180)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in ("begin", "end"):
        run(Path(sys.argv[2]), sys.argv[1])
    else:
        main()
