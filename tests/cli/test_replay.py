"""`signoff replay`: a stored thread is decided again as it was; what would be decided otherwise is named."""

import shutil
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from signoff import Session
from signoff.session.as_test import why_it_fails
from signoff.storage.sqlite import sqlite_storage, thread_lock
from tests.released import FILES, name_of, unpack
from tests.storage.test_replay import explained
from tests.support.benches.cli import Bench, one_sentence, steps

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DONE = 'call("finish_task", summary="All done.")'
LOOK = 'call("read_file", path="config.py")'
SAME = "The same: Signoff "
GRAPH = """
from signoff.models import ScriptedModel
from tests.released import graph_for

def graph():
    return graph_for({name!r}, ScriptedModel([]), None, [])
"""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def looked(bench: Bench) -> Bench:
    """A bench with a thread that looked three times and finished."""
    bench.model(steps(LOOK, LOOK, LOOK, DONE))
    bench.run()
    return bench


def test_a_thread_is_decided_as_it_was_with_every_sort_of_step_in_it(bench: Bench) -> None:
    bench.run()
    assert bench("replay", "t1").stdout.startswith(SAME), "it waits for an answer"
    bench("resume", "t1", "8080")
    bench.run("And once more")
    result = bench("replay", "t1")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(SAME)


@pytest.mark.parametrize(
    ("options", "turn", "what", "stored", "now"),
    [
        (
            ("--turns", "2"),
            1,
            "rule",
            "think → think: nothing else applies",
            "near_limit → remind: 1 of 2",
        ),
        (
            ("--turns", "1"),
            1,
            "rule",
            "think → think: nothing else applies",
            "turns → exhausted: 1 of 1",
        ),
        (("--tokens", "10"), 1, "rule", "think → think: nothing else applies", "tokens → exhausted: "),
        (("--approve", "read"), 1, "event", "work", "needs approval"),
    ],
)
def test_the_first_difference_is_shown_with_both_reasons(
    looked: Bench, options: tuple[str, ...], turn: int, what: str, stored: str, now: str
) -> None:
    result = looked("replay", "t1", *options)
    head, was, then, *_ = result.stdout.splitlines()
    assert result.exit_code == 1
    assert f" decides otherwise at turn {turn}, " in head
    assert f"stored: {what} {stored}" in was
    assert f"now: {what} {now}" in then
    document = looked.json("replay", "t1", *options)
    assert (document["differences"][0]["turn"], document["differences"][0]["stored"]) == (turn, stored)


def test_nothing_is_changed_and_nothing_runs(looked: Bench) -> None:
    def held() -> list[Any]:
        with sqlite_storage(looked.database) as storage:
            return [list(storage.checkpointer.list(None)), list(storage.store.search((), limit=1_000))]

    before = held()
    looked.config.unlink()
    assert looked("replay", "t1").exit_code == 0
    assert looked("replay", "t1", "--turns", "2").exit_code == 1
    assert held() == before


def test_a_model_that_is_gone_is_not_missed(looked: Bench) -> None:
    for file in looked.folder.glob("model*.py"):
        file.unlink()
    assert looked("replay", "t1").exit_code == 0


def test_bad_input_is_told_in_a_sentence(looked: Bench, tmp_path: Path) -> None:
    one_sentence(looked("replay", "nobody"), "There is no thread 'nobody'")
    one_sentence(looked("replay", "t1", "--database", str(tmp_path / "none.sqlite")), "There is no thread")
    one_sentence(looked("replay", "t1", "--version", "/nowhere"), "/nowhere", "not a checkout of Signoff")
    one_sentence(looked("replay", "t1", "--graph", "nothing"), "package.module:graph")
    one_sentence(looked("replay", "t1", "--graph", "x:y", "--turns", "3"), "leave out --turns")
    with thread_lock(looked.database, "t1"):
        one_sentence(looked("replay", "t1"), "is running elsewhere")


@pytest.mark.parametrize("packed", FILES, ids=name_of)
def test_a_thread_of_another_program_is_decided_by_the_graph_that_is_named(
    bench: Bench, packed: Path, tmp_path: Path
) -> None:
    """Of every released version, whose threads name no settings."""
    name, file = "waits for an answer", tmp_path / "graph.py"
    file.write_text(GRAPH.format(name=name))
    database = ("--database", str(unpack(packed, tmp_path)))
    one_sentence(bench("replay", name, *database), "not begun by the command line", "--graph")
    document = bench.json("replay", name, *database, "--graph", f"{file}:graph")
    assert document["decided"] > 3

    def found(one: dict[str, Any]) -> Any:
        return type("Found", (), one)()

    assert [one for one in document["differences"] if not explained(packed, found(one))] == []


TEAM = """\
from signoff import build_graph, delegate
from signoff.models import ScriptedModel, call

done = call("finish_task", summary="Done.")
think = call("think", thought="Hm.")

def team(turns, storage=None):
    child = build_graph(ScriptedModel([think, think, done]), limits={{"turns": turns}})
    model = ScriptedModel([call("child", task="go"), done])
    return build_graph(model, [delegate("child", child, description="Works.")], storage=storage)

graph = team({turns})
"""


@pytest.mark.parametrize("to", [[], ["--version", str(ROOT)]], ids=["here", "by another version"])
def test_a_difference_below_is_shown_with_the_way_to_it(bench: Bench, tmp_path: Path, to: list[str]) -> None:
    made: dict[str, Any] = {}
    exec(TEAM.format(turns=3), made)
    with sqlite_storage(bench.database) as storage:
        Session(made["team"](3, storage), "t").run("go")
    for turns, code, says in ((3, 0, "The same: "), (2, 1, "decides otherwise at child / turn 1, decide")):
        file = tmp_path / f"team_{turns}.py"
        file.write_text(TEAM.format(turns=turns))
        found = bench("replay", "t", "--graph", f"{file}:graph", *to)
        assert (found.exit_code, says in found.stdout) == (code, True), found.output


def test_a_thread_with_delegates_becomes_a_test(bench: Bench, tmp_path: Path) -> None:
    made: dict[str, Any] = {}
    exec(TEAM.format(turns=3), made)
    with sqlite_storage(bench.database) as storage:
        Session(made["team"](3, storage), "t").run("go")
    (file := tmp_path / "team.py").write_text(TEAM.format(turns=3))
    found = bench("replay", "t", "--graph", f"{file}:graph", "--to-test", "-")
    assert found.exit_code == 0, found.output
    assert why_it_fails(found.stdout) == ""
    assert why_it_fails(found.stdout.replace("turns=3", "turns=2")) != ""


Edit = Callable[[Path], None]


def edited(file: str, old: str, new: str) -> Edit:
    def edit(checkout: Path) -> None:
        path = checkout / "signoff" / file
        text = path.read_text("utf-8")
        assert text.count(old) == 1, (file, old)
        path.write_text(text.replace(old, new), "utf-8")

    return edit


def checkout(folder: Path, *edits: Edit) -> str:
    """A checkout of this version with these edits."""
    shutil.copytree(ROOT / "signoff", folder / "signoff", ignore=shutil.ignore_patterns("__pycache__"))
    for edit in edits:
        edit(folder)
    return str(folder)


RENAMED = edited("graph/rules.py", 'Rule("think", Event', 'Rule("ponder", Event')
ALIASED = edited(
    "graph/machine.py",
    "RULE_ALIASES: Mapping[str, str] = MappingProxyType({})",
    'RULE_ALIASES: Mapping[str, str] = MappingProxyType({"think": "ponder"})',
)
WITHOUT_ITS_CLAIM = edited("graph/rules.py", '    Rule("claimed", Event.CLAIMED, _claimed),\n', "")


@pytest.mark.parametrize(
    ("edits", "code", "says"),
    [
        ((), 0, ["The same: Signoff "]),
        (
            (WITHOUT_ITS_CLAIM,),
            1,
            ["at turn 4, decide", "claimed → claimed: finish_task stands", "now: rule think → think"],
        ),
        ((RENAMED,), 1, ["stored: rule think → think", "now: rule ponder → think"]),
        ((RENAMED, ALIASED), 0, ["The same: Signoff "]),
    ],
    ids=["the same", "without a rule", "a renamed rule", "a renamed rule with its old name"],
)
def test_another_version_names_the_first_rule_that_decides_otherwise(
    looked: Bench, tmp_path: Path, edits: tuple[Edit, ...], code: int, says: list[str]
) -> None:
    result = looked("replay", "t1", "--version", checkout(tmp_path / "other", *edits))
    assert result.exit_code == code, result.output
    assert [part for part in says if part not in result.stdout] == []


def installed(folder: Path, *edits: Edit) -> Path:
    """An environment in which this version is installed with these edits, beside the packages of this one."""
    venv.create(folder, symlinks=True)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    checkout(site, *edits)
    (site / "packages.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return folder


@pytest.mark.parametrize("named", ["its folder", "its Python"])
def test_another_version_may_be_an_installed_one(looked: Bench, tmp_path: Path, named: str) -> None:
    place = installed(tmp_path / "other", WITHOUT_ITS_CLAIM)
    python = Path(sysconfig.get_path("scripts", "venv", {"base": str(place)})) / "python"
    result = looked("replay", "t1", "--version", str(place if named == "its folder" else python))
    assert (result.exit_code, "now: rule think → think" in result.stdout) == (1, True), result.output
    shutil.rmtree(next(place.glob("lib/*/site-packages/signoff")))
    one_sentence(looked("replay", "t1", "--version", str(place)), "No Signoff is installed at", str(place))


def test_a_version_that_cannot_do_it_is_named(looked: Bench, tmp_path: Path) -> None:
    older = edited("cli/app.py", '    "replay": "signoff.cli.replay:replay",\n', "")
    listed = edited("cli/app.py", '"show", "replay", ', '"show", ')
    before = checkout(tmp_path / "older", older, listed)
    one_sentence(looked("replay", "t1", "--version", before), "has no `signoff replay`", "older")
    broken = checkout(tmp_path / "broken", edited("graph/rules.py", "class Budget:", "class Budget(:"))
    one_sentence(looked("replay", "t1", "--version", broken), "could not replay", "SyntaxError")
