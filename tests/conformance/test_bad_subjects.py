"""Subjects that hang, flood, crash or do nothing: each is told in a sentence, scores nothing, and is gone."""

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from loopcheck.bench import Bench
from loopcheck.case import load_cases
from loopcheck.conduct import CASES, Part, work
from loopcheck.driver import run_case
from loopcheck.explain import explain
from loopcheck.faults import ELSEWHERE, ENDS, FAULTS, KILLS, Fault
from loopcheck.play import play
from loopcheck.process import NoAnswer
from loopcheck.subjects import Subject
from tests.conformance.tiny import LOOK, TASKS

pytestmark = pytest.mark.slow

SUITE = Path(__file__).parents[2] / "conformance"
MARK = "LOOPCHECK_TEST"
PATIENCE = 0.5
FEW_CASES = ("approved_later", "crash_after_effect", "limit_said")
FEW_FAULTS = (KILLS[0], ENDS[1], ELSEWHERE)
MEGABYTES = 110
"""By how much the suite may grow. It grows by 50 to 87 for the subject that shouts, the most after many other
tests in the same process; if it kept what that one sends, it would grow by 90 more."""
SECONDS = 60
"""What a few cases and tasks may take, on a machine with much else to do."""


def bad(way: str) -> list[str]:
    return [sys.executable, str(Path(__file__).parent / "subjects" / "bad.py"), way]


@pytest.fixture(autouse=True)
def nobody_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No process that a test has started outlives it: all of them inherit a mark."""
    monkeypatch.setenv(MARK, str(tmp_path))
    yield
    end = time.monotonic() + 5
    while left(f"{MARK}={tmp_path}") and time.monotonic() < end:
        time.sleep(0.05)
    assert left(f"{MARK}={tmp_path}") == []


def left(mark: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_text())
        except OSError:
            continue  # it has just ended, or is another user's
    return found


@contextmanager
def within_bounds() -> Iterator[None]:
    """Neither the suite's memory nor its time goes beyond its bounds."""
    begun, before = time.monotonic(), resident()
    most, over = [before], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            most.append(max(resident(), most.pop()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    assert most[0] - before < MEGABYTES * 2**20
    assert time.monotonic() - begun < SECONDS


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


UNUSABLE = "What it says of itself cannot be used: "


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("never serves", "It did not serve within 1 s."),
        (
            "crashes at start",
            "It ended with status 1 before it served. It printed last: There is no module named sense.",
        ),
        ("speaks another protocol", "It speaks protocol 2; this suite speaks 1."),
        ("names no protocol", "GET / did not answer with a JSON object that names its `protocol`."),
        ("does not speak JSON", "It answered with something else than JSON: b'<html>Welcome!</html>'."),
        ("says nothing of itself", "What it says of itself has no 'versions'."),
        ("lacks a list", f"{UNUSABLE}`versions` and `lacks` are objects."),
        (
            "lacks what there is not",
            f"{UNUSABLE}`lacks` names the feature 'crashes', which CASES.md does not know.",
        ),
        ("speaks a protocol that is no number", "It speaks protocol True; this suite speaks 1."),
        ("has no version", f"{UNUSABLE}`versions` names no version of a package."),
        ("lacks without a reason", f"{UNUSABLE}`lacks` does not say why it names `crash`."),
        (
            "claims a finishing call and has none",
            f"{UNUSABLE}`finish` has no call, and `lacks` does not name `finish_call`.",
        ),
        (
            "claims a structured answer and has none",
            f"{UNUSABLE}`finish` has no structured answer, and `lacks` does not name `structured`.",
        ),
        (
            "claims questions and has none",
            f"{UNUSABLE}`ask` is null, and `lacks` does not name `ask`.",
        ),
        (
            "claims sub-agents and has none",
            f"{UNUSABLE}`delegation` is null, and `lacks` does not name `children`.",
        ),
        ("serves with an error", 'GET / answered 503: {"protocol": 1, "framework": "No good", "versions": '),
        ("has no way to finish", f"{UNUSABLE}`finish` has no template for `any`."),
        (
            "has a template of no shape",
            f'{UNUSABLE}`ask` is neither {{"text": …}} nor {{"name": …, "args": {{…}}}}.',
        ),
        (
            "asks for an unknown value",
            f"{UNUSABLE}`finish.any` asks for $answer; there are: text, value, json.",
        ),
    ],
)
def test_what_does_not_serve_is_told_in_a_sentence(way: str, told: str) -> None:
    with within_bounds(), pytest.raises(NoAnswer) as found:
        Bench(bad(way), start=1.0 if way == "never serves" else 30.0)
    assert str(found.value).startswith(told)
    assert len(str(found.value)) < 300


@pytest.mark.parametrize(
    ("command", "url", "told"),
    [
        (["/nowhere"], "", "It cannot be started: [Errno 2] No such file or directory: '/nowhere'."),
        ([], "localhost:80", "'localhost:80' is not the address of a subject; use http://HOST:PORT."),
        ([], "http://a:b", "'http://a:b' is not the address of a subject; use http://HOST:PORT."),
        ([], "http://a:99999", "'http://a:99999' is not the address of a subject; use http://HOST:PORT."),
        (
            [],
            "https://a.example",
            "'https://a.example' is not the address of a subject; use http://HOST:PORT.",
        ),
        (bad("speaks another protocol"), "", "It speaks protocol 2; this suite speaks 1."),
    ],
)
def test_what_does_not_run_is_absent_with_the_reason(
    tmp_path: Path, command: Sequence[str], url: str, told: str
) -> None:
    part = Part(Subject("bad", "Bad", "given", given=command, url=url), CASES)
    assert work(part, tmp_path) == f"it did not start: {told}"
    assert list(tmp_path.iterdir()) == []


NO_ANSWER, TOO_MUCH = "It gave no answer within 0.5 s.", "POST /step answered with more than 4,000,000 bytes."
NO_JSON, NOT_SHOWN = "It answered with something else than JSON", "the model was not shown the message"
WAYS = {
    "hangs in its setup": f"it could not be set up: {NO_ANSWER}",
    "hangs in a step": NO_ANSWER,
    "calls the model for ever": NO_ANSWER,
    "calls tools for ever": NO_ANSWER,
    "drips an answer": NO_ANSWER,
    "drips a header": NO_ANSWER,
    "crashes in a step": "Its process died.",
    "answers half of it": "It broke its answer off.",
    "answers too much": TOO_MUCH,
    "answers for ever": TOO_MUCH,
    "answers no JSON": NO_JSON,
    "nests its answer": NO_JSON,
    "nests its answer a little": NO_JSON,
    "is never ready": "it could not be set up: It answered the setup with {'status': 'not ready'}, not with",
    "shouts": "",
    "speaks oddly": "",
    "answers with 500": 'POST /step answered 500: {"status": "success"}',
    "reports an unknown status": "It reported the status 'fine'; there are: success, limit, error, question",
    "reports no list of calls": "What it reported as `pending` is no list of calls.",
    "says success": NOT_SHOWN,
    "says error": NOT_SHOWN,
    "says limit": NOT_SHOWN,
    "says question": NOT_SHOWN,
    "says approval": NOT_SHOWN,
    "says refused": NOT_SHOWN,
    "prints for ever": NOT_SHOWN,
    "leaves a child": NOT_SHOWN,
    "leaves a daemon": NOT_SHOWN,
    "leaves a child as it crashes": "Its process died.",
}
SLOW = {"answers half of it", "shouts"}
"""The suite waits whether it dies, or reads much, each time."""
PATIENT = {"shouts": 30.0}
"""Seconds for a step of what is to get through with it."""
LONGEST = 4_000
"""Characters of why something failed."""
ways = pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.thorough] if way in SLOW else []) for way in WAYS]
)


@ways
def test_what_is_no_good_scores_nothing_and_is_told(way: str, capfd: pytest.CaptureFixture[str]) -> None:
    """It claims all that there is, so nothing is left out."""
    few = [case for case in load_cases() if case.name in FEW_CASES]
    with within_bounds(), Bench(bad(way), patience=PATIENT.get(way, PATIENCE)) as bench:
        cells = [run_case(bench, case) for case in few]
        explained = [explain(case, bench.hello, cell) for case, cell in zip(few, cells, strict=True)]
        played = [play(bench, "bad", LOOK, Fault(name), 1) for name in FEW_FAULTS]
    assert [cell.mark for cell in cells] == ["fail"] * len(few)
    assert [cell.why for cell in cells if WAYS[way] not in cell.why] == []
    assert [text for text in explained if len(text) > 10 * LONGEST or "\x1b" in text] == []
    whys = [*(cell.why for cell in cells), *(one.why for one in played)]
    assert [len(why) for why in whys if len(why) > LONGEST] == []
    assert [one for one in played if one.right or not one.claimed or not one.why] == []
    assert "Traceback" not in capfd.readouterr().err


def patience(way: str) -> float:
    """Seconds for a step: there are hundreds, and one that never answers takes all of them each time."""
    return PATIENCE if WAYS[way] == NOT_SHOWN else PATIENCE / 3


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "way",
    [way for way in WAYS if WAYS[way] == NOT_SHOWN]
    + ["hangs in a step", "calls the model for ever", "crashes in a step"],
)
def test_what_is_no_good_scores_nothing_in_any_case(way: str) -> None:
    with Bench(bad(way), patience=patience(way)) as bench:
        assert [case.name for case in load_cases() if run_case(bench, case).mark != "fail"] == []


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "way",
    ["says success", "says error", "says question", "leaves a child", "hangs in a step", "crashes in a step"],
)
def test_what_is_no_good_scores_nothing_in_any_task(way: str) -> None:
    with Bench(bad(way), patience=patience(way)) as bench:
        played = [play(bench, "bad", task, Fault(name), 1) for task in TASKS for name in FAULTS]
    assert [one for one in played if one.right or not one.claimed] == []


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_what_calls_the_model_once_and_gives_up_is_right_where_an_honest_error_is_and_in_no_task() -> None:
    with Bench(bad("gives up"), patience=10) as bench:
        marks = [run_case(bench, case).mark for case in load_cases()]
        played = [play(bench, "bad", task, Fault(name), 1) for task in TASKS for name in FAULTS]
    told = f"right in {marks.count('ok')} of the {len(marks)} unit cases"
    assert told in " ".join((SUITE / "README.md").read_text().split())
    assert [one for one in played if one.right or not one.claimed] == []


def suite_with(words: str, folder: Path, *, start_new_session: bool = False) -> "subprocess.Popen[str]":
    """The suite on a subject that hangs in its first step, when it has come there."""
    more = ["--folder", str(folder)] if words.startswith("run") else []
    own = ["--command", shlex.join(bad("hangs in a step")), "--name", "own", *more]
    command = [sys.executable, "-m", "loopcheck", *words.split(), *own]
    suite = subprocess.Popen(
        command, cwd=SUITE, stderr=subprocess.PIPE, text=True, start_new_session=start_new_session
    )
    while not (folder / "hangs").exists() and suite.poll() is None:
        time.sleep(0.05)
    return suite


MORE = "run --jobs 1 --what cases agentdojo tau2 bfcl --seeds 1 2 3"


@pytest.mark.parametrize("words", ["run --what cases", MORE, "explain promise"])
def test_a_suite_that_is_told_to_end_ends_its_subject_and_begins_nothing_more(
    tmp_path: Path, words: str
) -> None:
    with suite_with(words, tmp_path) as suite:
        suite.terminate()
        _, told = suite.communicate(timeout=30)
    assert suite.returncode == 130
    kept = "; finished runs are kept, and `run` continues from them" if words.startswith("run") else ""
    assert f"loopcheck: stopped{kept}\n" in told
    assert [file.name for file in tmp_path.glob("own.*")] == ["own.cases.jsonl"] * words.startswith("run")


def test_an_interrupt_from_a_terminal_ends_all_that_runs(tmp_path: Path) -> None:
    """It comes to every process of the terminal at once, and twice from who is in a hurry."""
    with suite_with(MORE, tmp_path, start_new_session=True) as suite:
        os.killpg(suite.pid, signal.SIGINT)
        _, told = suite.communicate(timeout=30)
    assert (suite.returncode, "Traceback" in told) == (130, False)


def test_a_subject_that_runs_already_plays_one_part_at_a_time(tmp_path: Path) -> None:
    port = "19998"
    with subprocess.Popen(bad("is never ready"), env={**os.environ, "LOOPCHECK_PORT": port}) as subject:
        own = ["--url", f"http://127.0.0.1:{port}", "--folder", str(tmp_path)]
        words = ["run", "--jobs", "2", "--what", "cases", "agentdojo", "--seeds", "1", *own]
        done = subprocess.run(
            [sys.executable, "-m", "loopcheck", *words], cwd=SUITE, capture_output=True, text=True, timeout=90
        )
        subject.kill()
    parts = [line.split(":")[0] for line in done.stderr.splitlines()]
    assert parts == sorted(parts, key=["own.cases", "own.agentdojo.1"].index)
    assert len(set(parts)) == 2


def test_two_suites_do_not_write_the_same_files(tmp_path: Path) -> None:
    with suite_with(MORE, tmp_path) as suite:
        with suite_with(MORE, tmp_path) as second:
            _, told = second.communicate(timeout=30)
        suite.terminate()
        suite.communicate(timeout=30)
    assert second.returncode == 2
    assert f"Another run writes to {tmp_path}; wait for it to end, or pass another --folder." in told


def test_what_does_not_end_when_it_is_asked_to_is_killed() -> None:
    with within_bounds(), Bench(bad("does not end")):
        pass
