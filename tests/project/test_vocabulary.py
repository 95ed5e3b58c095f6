"""One vocabulary: what a document says of a thread, and what a person reads, come from one table."""

import ast
import re
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest
from rich.text import Text

from signoff.front.cards import COLOURS, ending
from signoff.front.database import Database
from signoff.front.report import Status, of_outcome
from signoff.front.threads import Row, in_words
from signoff.graph import outcome as outcomes
from signoff.graph.history.reader import Wait
from signoff.graph.machine import Event
from signoff.graph.rules import RULES
from signoff.graph.vocabulary import (
    CLAIMS,
    ENDED,
    REASONS,
    STATUSES,
    VERIFIED,
    WAITS,
    following,
    heading,
    stands,
)
from signoff.page import page
from signoff.session.history import Turn
from signoff.session.status import Condition
from tests.house import ROOT, product_files
from tests.support.benches.cli import Bench, steps
from tests.support.benches.page import TASK, outcome, read, run_of
from tests.support.benches.page_shown import DONE, badge, last_card

# By the names of limits, which are reasons too, these say something else: what is used, and what is left.
TABLES_OF_LIMITS = {
    "graph/rules.py": {"a reason"},
    "graph/texts.py": {"a reason"},
}
TONES = {"verified": "green", "asserted": "amber", "unverified": "red"}
ENDS: dict[str, dict[str, Any]] = {
    **{f"{v}, {c}": {"verified": v, "claim": c} for v, c in product(TONES, ("done", "partial"))},
    "a claim that is none of ours": {"claim": None},
    "a limit": {"status": "limit", "reason": "turns", "claim": None, "verified": None},
    "an error": {"status": "error", "reason": "model_error", "claim": None, "verified": None},
    "a reason of somebody's own": {
        "status": "error",
        "reason": "solar flare",
        "claim": None,
        "verified": None,
    },
}


def test_the_words_are_those_of_the_types() -> None:
    assert set(VERIFIED) == {*get_args(outcomes.Outcome.model_fields["verified"].annotation)[0].__args__}
    assert set(CLAIMS) == set(get_args(outcomes.Claim))
    assert set(ENDED) == set(get_args(outcomes.Status))
    assert {*get_args(Status), *ENDED} <= set(STATUSES)
    assert {str(found) for found in Condition} - {"unknown", "ended"} <= set(STATUSES)
    # The next word in a dialogue is waited for like an answer.
    assert set(WAITS) == {*Wait} - {Wait.WORD}


def test_every_reason_that_the_machine_gives_has_its_words() -> None:
    ends = {rule.name for rule in RULES if rule.event in (Event.EXHAUSTED, Event.FAILED, Event.CANCELLED)}
    written = {
        str(keyword.value.value)
        for path in (ROOT / "nodes").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Ending"
        for keyword in node.keywords
        if keyword.arg == "reason" and isinstance(keyword.value, ast.Constant)
    }
    assert {"model_error", "review_deadlock", "superseded"} <= written
    # A success has the name of its finishing tool.
    assert set(REASONS) == {*ends, *written, "finish_task"}


def test_every_error_that_a_rule_ends_with_says_what_to_do() -> None:
    for rule in RULES:
        if rule.event in (Event.FAILED, Event.CANCELLED):
            assert REASONS[rule.name].error, rule.name
        if rule.event is Event.EXHAUSTED:
            assert following(rule.name).endswith("continue where it stopped."), rule.name


def test_no_other_table_stands_beside_these() -> None:
    """A mapping, or a list, of several of the words elsewhere would have to follow every change of them."""
    known = {**dict.fromkeys(WAITS, "a wait"), **dict.fromkeys(REASONS, "a reason")} | {"question": "a wait"}
    found = dict[str, set[str]]()
    for path in product_files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Dict):
                keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
                for kind in ("a wait", "a reason"):
                    if len([key for key in keys if known.get(str(key)) == kind]) > 2:
                        found.setdefault(str(path.relative_to(ROOT)), set()).add(kind)
    assert found.pop("graph/vocabulary.py") == {"a wait", "a reason"}
    advice = "take the words from graph/vocabulary.py; where the keys only share a name, list the file here"
    assert found == TABLES_OF_LIMITS, advice


def test_each_row_of_verified_has_a_colour_of_its_own() -> None:
    assert {name: word.tone for name, word in VERIFIED.items()} == TONES


@pytest.mark.parametrize("case", ENDS)
def test_the_first_word_and_the_colour_are_the_same_everywhere(case: str) -> None:
    ended = outcome(summary="x", **ENDS[case])
    known = heading(ended)
    if ended["status"] == "success":
        assert known.title.split(":")[0].lower() == ended["verified"]
        assert known.tone == TONES[ended["verified"]]
    card = ending(of_outcome(ended, "t1", Database("", named=False)))
    assert (card.title, card.colour) == (known.title, COLOURS[known.tone])
    row = Row(
        "t1", ended["status"], ended["claim"], ended["reason"], 1, "", "x", None, None, ended["verified"]
    )
    assert in_words(row) == Text(known.title, style=COLOURS[known.tone])
    root = read(page(run_of(Turn(TASK, 1, ""), ended=ended)))
    last = last_card(root)
    assert last.all(class_="title")[0].text == f"{known.sign} {known.title}"
    assert known.tone in last.classes
    assert badge(root) == (f"{known.sign} {known.title}", {known.tone})


@pytest.mark.parametrize("status", [name for name in STATUSES if name not in ENDED])
def test_a_thread_that_has_not_ended_is_told_by_its_status(status: str) -> None:
    found = stands(status, None, outcome())
    assert (found.title, found.tone) == (STATUSES[status].shown, STATUSES[status].tone)


def test_a_status_of_another_version_is_shown_as_it_is() -> None:
    assert stands("asleep").title == "asleep"


DOCUMENTS = {
    "success": ([DONE], ()),
    "limit": (["'talk'"], ("--turns", "1")),
    "error": (["RuntimeError('down')"], ()),
    "waiting": (['call("ask_user", question="Which?")'], ()),
}


@pytest.mark.parametrize("status", DOCUMENTS)
def test_every_document_says_the_same_status(status: str, tmp_path: Path) -> None:
    script, words = DOCUMENTS[status]
    bench = Bench(tmp_path)
    bench.model(steps(*script))
    said = [bench.json("run", "Do it", "--thread", "t1", *words)["status"]]
    said += [bench.json("show", "t1")["status"]]
    rows: Any = bench.json("threads")
    said += [rows[0]["status"]]
    assert said == [status] * 3


def test_nothing_else_names_them() -> None:
    """A second table would soon say something else."""
    root = Path(__file__).parents[2]
    sources = [
        path for name in ("signoff", "graph", "nodes", "tools") for path in (root / name).rglob("*.py")
    ]
    phrases = "|".join(map(re.escape, (VERIFIED["asserted"].meaning, REASONS["turns"].shown, "no check ran")))
    found = {path.resolve() for path in sources if re.search(phrases, path.read_text("utf-8"))}
    assert found == {(root / "graph/vocabulary.py").resolve()}
