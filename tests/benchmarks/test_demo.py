"""The demo: its check sees what is wrong, its cards say what was seen, its worked examples claim no more."""

import importlib.util
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from signoff.models.local import WORKED_EXAMPLES
from signoff.models.local.install import model_info
from tests.support.benches.cli import Bench, steps

# pytest does not put it there, and the benchmarks are in no installed package.
sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import demo

ROOT = Path(__file__).parents[2]
PORT = 18_123
OTHERS = range(20_000, 60_000)


def check_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo_check", ROOT / "examples" / "demo_check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check = check_module()


def copy_of_sample(folder: Path, port: int | None = PORT) -> Path:
    copy = folder / "project"
    copy.mkdir()
    for file in check.ORIGINAL.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    if port is not None:
        change(copy / "config.py", "PORT = 3000", f"PORT = {port}")
    return copy


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "another port": (lambda f: change(f / "config.py", str(PORT), "1"), "PORT is 1"),
    "the port as text": (lambda f: change(f / "config.py", str(PORT), f"'{PORT}'"), f"PORT is '{PORT}'"),
    "another setting": (lambda f: change(f / "config.py", "Hello", "Bye"), "GREETING is 'Bye'"),
    "no Python": (lambda f: change(f / "config.py", "HOST", "HOST ="), "cannot be imported: SyntaxError"),
    "a line of comment": (lambda f: change(f / "config.py", "DEBUG", "# Off.\nDEBUG"), "+# Off."),
    "another file": (lambda f: change(f / "app.py", "small", "big"), "app.py has other changes"),
    "a file more": (lambda f: (f / "notes.md").write_text("x"), "added or removed: notes.md"),
    "a file less": (lambda f: (f / "README.md").unlink(), "added or removed: README.md"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", WRONG)
def test_the_check_names_what_is_wrong(case: str, tmp_path: Path) -> None:
    spoil, told = WRONG[case]
    copy = copy_of_sample(tmp_path)
    spoil(copy)
    with pytest.raises(ValueError, match=re.escape(told)):
        check.main(PORT, copy)


@pytest.mark.slow
def test_the_check_runs_the_service_and_says_what_it_saw(tmp_path: Path) -> None:
    port = random.choice(OTHERS)
    copy = copy_of_sample(tmp_path, port)
    before = sorted(copy.iterdir())
    said = check.main(port, copy)
    assert said.startswith(f"PORT is {port}; app.py answers 'Hello' on port ")
    assert sorted(copy.iterdir()) == before


@pytest.mark.slow
def test_a_service_that_does_not_start_is_found(tmp_path: Path) -> None:
    copy = copy_of_sample(tmp_path)
    change(copy / "app.py", "import config", "import confg")
    with pytest.raises(ValueError, match=r"app\.py has ended: ModuleNotFoundError"):
        check.answer(PORT, copy, "127.0.0.1")


@pytest.mark.parametrize("words", [[], ["x"], ["0"], ["65536"], ["80", "81"], ["80.5"]])
def test_what_is_no_port_is_refused_before_the_demo_begins(words: list[str]) -> None:
    with pytest.raises(ValueError, match="give a whole number from 1 to 65535"):
        check.port_of(words)


EDIT = f'call("edit_file", path="config.py", old="PORT = 3000", new="PORT = {PORT}")'
CHECK = f'{sys.executable} "{ROOT / "examples" / "demo_check.py"}" {PORT}'


@pytest.mark.slow
def test_a_claim_that_fails_the_check_is_sent_back_before_the_readers_eyes(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for file in check.ORIGINAL.iterdir():
        (bench.workspace / file.name).write_bytes(file.read_bytes())
    early = 'call("finish_task", summary="The port was changed and checked.")'
    bench.model(steps(early, EDIT, f'call("finish_task", summary="The port is {PORT}.")'))
    result = bench.run("Change the port", "--check", CHECK)
    back, _, card = result.stdout.partition("\nVerified: done\n")
    assert (result.exit_code, back.count("The port was changed and checked.")) == (0, 1)
    assert "config.py is not right: PORT is 3000" in back
    assert f"PORT is {PORT}; app.py answers 'Hello'" in card
    shown = bench.json("show", "t1")
    assert (shown["outcome"]["verified"], shown["settings"]["checks"]) == ("verified", [CHECK])


def test_a_task_without_a_check_is_amber_and_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.model(steps('call("finish_task", summary="It is done.")'))
    shown = bench.run("Do it").stdout
    assert "\nAsserted: done\n" in shown
    assert "no check ran; the words are the model's own" in shown
    assert not demo.CLAIMS_A_CHECK.search(shown)


def test_a_thread_remembers_its_checks_until_it_is_told_otherwise(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    finish = 'call("finish_task", summary="Done.")'
    bench.model(steps(finish, finish, finish))
    said = [
        bench.run(*words).stdout.count("Verified: done")
        for words in (("Do it", "--check", "true"), ("And that",), ("And this", "--check", "none"))
    ]
    assert said == [1, 1, 0]


@pytest.mark.slow
def test_only_the_demos_own_task_has_its_check() -> None:
    own, others = demo.command([f"PORT={PORT}"]), demo.command(["TASK=Say hello"])
    assert own[own.index("--check") + 1] == f"python ../../examples/demo_check.py {PORT}"
    assert "--check" not in others


EXAMPLES = re.findall(r"\[user\]\n.*?(?=\n\[user\]\n|\n</examples>)", WORKED_EXAMPLES, re.S)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: text.split("\n")[1])
def test_no_worked_example_claims_what_no_tool_has_shown(example: str) -> None:
    before, _, after = example.rpartition('"summary": "')
    summary = after.partition('"}}')[0].replace('\\"', '"')
    named = set(re.findall(r"[\w.]*[\d_.\"][\w.\"]*\w|\b[A-Z]{2,}\b", summary))
    assert named, "it names something of the task"
    assert [word for word in named if word.strip('".') not in before.replace('\\"', '"')] == []
    assert not re.search(r"check|verif|test|nothing|no other|only|as they were|touched", summary, re.I)


class TestTheRecordedSweep:
    def test_every_green_card_is_true(self) -> None:
        runs = [one for one in demo.recorded() if one.port is not None]
        assert len({one.port for one in runs}) == len(runs) == demo.RUNS
        assert all(one.true for one in runs)
        assert sum(one.tone == "green" for one in runs) > 0

    def test_no_card_says_checked_where_nothing_was(self) -> None:
        own = [one for one in demo.recorded() if one.port is None]
        assert [one.task for one in own] == list(demo.OWN)
        assert all(one.true and one.tone == "amber" for one in own)
        assert not any(demo.CLAIMS_A_CHECK.search(one.card) for one in own)

    def test_the_readme_quotes_it(self) -> None:
        runs = [one for one in demo.recorded() if one.port is not None]
        green = sum(one.tone == "green" for one in runs)
        assert f"{green} green cards of {len(runs)} runs" in " ".join(
            (ROOT / "README.md").read_text().split()
        )


@pytest.mark.thorough
@pytest.mark.embedded
@pytest.mark.skipif(not model_info().ready, reason="the embedded model is not installed")
def test_a_task_of_the_readers_own_with_the_embedded_model() -> None:
    """The demo itself runs as it is, by `make demo`, after the tests."""
    found = list(demo.sweep(0, demo.OWN[2:], random.randrange(2**32)))
    assert [one.true for one in found] == [True], found
