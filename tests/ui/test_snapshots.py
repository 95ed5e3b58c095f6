"""How the main screens look: compared with pictures that a person has looked at.

After a change that is meant: `pytest tests/ui/test_snapshots.py --snapshot-update`, and look at them again.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from signoff import Session, build_graph
from signoff.front.database import Database
from signoff.front.settings import Given
from signoff.front.threads import Row
from signoff.models import ScriptedModel, call, reply
from signoff.models.scripted import Step
from signoff.session.events import Ended, SessionEvent
from signoff.tools.files import workspace_tools
from signoff.tools.terminal import terminal_tool
from signoff.ui.app import SignoffApp, Threads

pytestmark = pytest.mark.slow

Compare = Callable[..., bool]
WORKED: list[Step] = [
    call("think", thought="First I look at what is there.", approach="small steps", status="Working"),
    reply("I look at the settings.", call("read_file", path="config.py")),
    "That may be all there is to it.",
    reply("Now I change it.", call("edit_file", path="config.py", old="3000", new="8080")),
    reply("Once more.", call("edit_file", path="config.py", old="3000", new="8080")),
]
DONE = call("finish_task", summary="The port in config.py is 8080 now; nothing else was touched.")
ASKS = call("ask_user", question="Which port do you want?", options=["8080", "9090"])
SHELL = call("run_shell", command="python -m pytest -q")
CONFIRM = call("finish_task", summary="The port is 8080.", pending_issues=["The README still says 3000."])
BLOCKED = call("finish_task", summary="There is no config.py to change.", outcome="blocked")

SCREENS: dict[str, tuple[Sequence[Step], tuple[int, int], list[str]]] = {
    "done": ([*WORKED, DONE], (140, 50), []),
    "done, opened and found": ([*WORKED, DONE], (140, 50), ["escape", "slash", *"pasted"]),
    "a question": ([*WORKED[:2], ASKS], (120, 40), []),
    "an approval": ([*WORKED[:2], SHELL], (120, 40), []),
    "a confirmation": ([CONFIRM], (120, 30), []),
    "blocked": ([BLOCKED], (100, 30), []),
    "an error": ([], (100, 30), []),
    "small": ([*WORKED[:2], ASKS], (40, 10), []),
    "the keys": ([DONE], (100, 36), ["f1"]),
}


def thread(folder: Path, script: Sequence[Step]) -> Database:
    """A database with one thread in which the script was played."""
    workspace = folder / "project"
    workspace.mkdir()
    (workspace / "config.py").write_text("PORT = 3000\n")
    database = Database(str(folder / "threads.sqlite"), named=True)
    with database.open() as storage:
        tools = [*workspace_tools(workspace), terminal_tool(workspace)]
        model = ScriptedModel(list(script))
        Session(
            build_graph(model, tools, storage=storage, approvals={"terminal": True}), "calm-otter-47"
        ).run("Change the port to 8080")
    return database


def steady(event: SessionEvent) -> SessionEvent:
    """The event without what differs from run to run."""
    return Ended({**event.outcome, "seconds_active": 1.5}) if isinstance(event, Ended) else event


@pytest.mark.parametrize("name", SCREENS)
@pytest.mark.sample(3)
def test_screen(name: str, tmp_path: Path, snap_compare: Compare) -> None:
    script, size, keys = SCREENS[name]
    database = thread(tmp_path, script)

    async def settle(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, SignoffApp)
        desk = app.desk
        await pilot.pause()
        assert desk.story is not None
        desk.story = replace(desk.story, events=[steady(event) for event in desk.story.events])
        desk.conversation.begin("calm-otter-47", desk.story.events)
        desk.prompt.cursor_blink = False
        desk.status.facts.seconds = 75.0
        desk.status.refresh()
        await pilot.press(*keys)
        await pilot.pause(0.3)

    with database.open() as storage:
        given = Given(workspace=tmp_path / "project", model="gpt-5", tools="files,shell")
        app = SignoffApp(database, storage, given, "calm-otter-47")
        assert snap_compare(app, terminal_size=size, run_before=settle)


def test_the_list_of_threads(tmp_path: Path, snap_compare: Compare) -> None:
    database = thread(tmp_path, [DONE])
    known: dict[str, Any] = {"claim": None, "reason": None, "changed": "", "waits_for": None, "what": None}
    rows = [
        Row(**{**known, "thread_id": "calm-otter-47", "status": "success", "turns": 7,
               "task": "Change the port"}),
        Row(**{**known, "thread_id": "keen-fox-12", "status": "waiting", "waits_for": "answer", "turns": 2,
               "task": "Deploy", "what": "To which server?"}),
        Row(**{**known, "thread_id": "[red]x[/red]", "status": "stopped", "turns": 3, "task": "\x1b[31mred"}),
    ]  # fmt: skip

    async def opened(pilot: Pilot[None]) -> None:
        pilot.app.push_screen(Threads(rows, "keen-fox-12"))
        await pilot.pause(0.3)

    with database.open() as storage:
        given = Given(workspace=tmp_path / "project", model="gpt-5")
        app = SignoffApp(database, storage, given, "calm-otter-47")
        assert snap_compare(app, terminal_size=(100, 30), run_before=opened)
