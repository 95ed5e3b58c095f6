"""The cases of Loopcheck as data: what their files hold, what is refused, and what CASES.md says of them."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from loopcheck.case import FEATURES, FOLDER, THEMES, Case, Do, load_cases, read_case
from loopcheck.judge import CHECKS, STATUSES, WINDOW, Check, walk
from loopcheck.reading import BadFile
from loopcheck.replies import Ask, Call, Delegate
from loopcheck.table import group_by_theme

CASES_MD = FOLDER.parent.parent / "CASES.md"
each = pytest.mark.parametrize("case", load_cases(), ids=lambda case: str(case.name))


def parts(case: Case) -> list[Any]:
    below = [(*role.script, role.then) for role in case.roles]
    return [part for script in [(*case.script, case.then), *below] for said in script for part in said.parts]


def test_every_file_is_a_case_and_no_name_is_there_twice() -> None:
    assert sorted(case.name for case in load_cases()) == sorted(file.stem for file in FOLDER.iterdir())
    assert sum(map(len, group_by_theme(load_cases()).values())) == len(load_cases()) >= 60
    assert all(group_by_theme(load_cases())[theme] for theme in THEMES)


@each
def test_a_case_asks_one_question_promises_one_thing_and_says_what_is_right(case: Case) -> None:
    assert case.question.endswith("?")
    assert case.question.count("?") == 1
    assert case.right.endswith(".")
    assert case.promise.endswith(".")
    assert len(case.promise) <= 120


@each
def test_a_case_uses_only_the_tools_of_its_setup(case: Case) -> None:
    called = {part.name for part in parts(case) if isinstance(part, Call)}
    assert called - {"erase"} <= set(case.setup.tools)
    assert set(case.setup.approve) <= set(case.setup.tools)


@each
def test_a_case_names_the_features_that_it_uses(case: Case) -> None:
    setup, needs = case.setup, set(case.needs)
    used = {
        "ask": setup.asks or any(isinstance(part, Ask) for part in parts(case)),
        "approval": bool(setup.approve),
        "approval_ids": any(step.by_id for step in case.steps),
        "structured": setup.finish == "structured",
        "finish_call": setup.finish == "call",
        "turn_limit": setup.turns is not None,
        "call_limit": setup.tool_calls is not None,
        "gate": bool(setup.gate),
        "crash": any(step.kill for step in case.steps),
        "durable_wait": any(step.fresh for step in case.steps),
        "one_runner": any(step.at_once > 1 for step in case.steps),
        "deadline": any(step.do == "expire" for step in case.steps),
        "stop": any(step.stop for step in case.steps),
        "children": bool(setup.helpers),
        "child_limit": setup.helper_turns is not None,
        "tree_limit": setup.tree_turns is not None,
        "child_wait": bool(setup.helpers and setup.approve),
        "child_durable": bool(setup.helpers) and any(step.fresh for step in case.steps),
        "recursion": setup.recursive,
        "edit": any(one["type"] == "edit" for step in case.steps for one in step.decisions),
        "compaction": "page" in setup.tools,
    }
    # No case needs a thread's memory, or several messages that end by a call; tasks do.
    assert {*used, "memory", "finish_again"} == set(FEATURES)
    assert needs == {name for name, is_used in used.items() if is_used}


@each
def test_every_sub_agent_of_a_case_has_a_script_of_its_own(case: Case) -> None:
    tasks = {part.task for part in parts(case) if isinstance(part, Delegate)}
    called = {part.name for part in parts(case) if isinstance(part, Delegate)}
    assert tasks == {role.task for role in case.roles}
    assert called == set(case.setup.helpers)


@each
def test_the_first_thing_a_case_asks_for_is_that_the_model_was_shown_the_message(case: Case) -> None:
    words = [check.words for check in case.must if getattr(check, "words", "")]  # type: ignore[attr-defined]
    assert words[0] == case.steps[0].text


def test_most_cases_name_a_thread_in_public() -> None:
    links = [case.link for case in load_cases() if case.link]
    pattern = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull|discussions)/\d+")
    assert all(pattern.fullmatch(link) for link in links)
    assert len(links) == len(set(links)) >= 50


def test_repeated_replies_are_numbered() -> None:
    (case,) = [case for case in load_cases() if case.name == "long_run"]
    names = [part.args["name"] for said in case.script for part in said.parts if isinstance(part, Call)]
    assert names == [f"page {number}" for number in range(1, 41)]
    assert case.reply(40) == case.then
    assert case.reply(3, cornered=True) == case.cornered


@pytest.fixture
def given() -> dict[str, Any]:
    """A case that can be read."""
    file: dict[str, Any] = json.loads((FOLDER / "approved_later.json").read_text())
    return file


Change = Callable[[dict[str, Any]], object]
BAD: list[tuple[str, Change, str]] = [
    ("unknown check", lambda c: c["must"][1].update(check="wait"), "must[1].check: there is no check"),
    ("no check", lambda c: c["must"][1].pop("check"), "must[1]: the field 'check' is missing"),
    ("unknown feature", lambda c: c.update(needs=["magic"]), "needs[0]: there is no feature"),
    ("no must", lambda c: c.pop("must"), "the field 'must' is missing"),
    ("empty must", lambda c: c.update(must=[]), "must: it is empty"),
    ("no why", lambda c: c["must"][0].pop("why"), "must[0]: the field 'why' is missing"),
    ("typo", lambda c: c["must"][0].update(word="x"), "must[0].word: there is no such field"),
    ("no words", lambda c: c["must"][0].pop("words"), "must[0]: one of these fields is missing"),
    ("two counts", lambda c: c["must"][2].update(at_least=1), "must[2]: these fields exclude each other"),
    ("unknown status", lambda c: c["must"][1].update(status=["ok"]), "must[1].status[0]: there is no status"),
    ("unknown tool", lambda c: c["must"][2].update(tool="play"), "must[2]: the setup has no tool 'play'"),
    ("unknown task", lambda c: c["must"][0].update(who="Go."), "must[0]: there is no role"),
    ("no such step", lambda c: c["must"][1].update(before_step=3), "must[1]: there is no step 3"),
    ("step 0", lambda c: c["must"][1].update(before_step=0), "must[1].before_step: it is 0"),
    (
        "uncounted step",
        lambda c: (c["steps"][0].update(times=2), c["must"][1].update(before_step=2)),
        "a step before step 2 has `times`",
    ),
    (
        "bad pattern",
        lambda c: _pattern(c["must"][0], "("),
        "must[0].pattern: it is not a valid regular expression",
    ),
    (
        "inner why",
        lambda c: c["must"].append({"check": "any", "why": "x", "of": [c["must"][0]]}),
        "must[4].of[0].why: there is no such field",
    ),
    ("unknown step", lambda c: c["steps"][0].update(do="shout"), "steps[0].do: there is no kind of step"),
    (
        "unknown part",
        lambda c: c["then"].update(parts=[{"say": "x"}]),
        "then.parts[0]: a part of a reply needs",
    ),
    ("no parts", lambda c: c.update(then={}), "then: a reply needs `parts` or an `error`"),
    ("unknown theme", lambda c: c.update(theme="Fun"), "theme: there is no theme"),
    ("other name", lambda c: c.update(name="other"), "name: it differs from the file name"),
    ("no link", lambda c: c.update(link="see the forum"), "link: a link to a public thread"),
    ("text for number", lambda c: c.update(version="1"), "version: a number is required"),
    ("list for text", lambda c: c.update(right=[]), "right: a text is required"),
    ("empty promise", lambda c: c.update(promise=" "), "promise: it is empty"),
]


def _pattern(check: dict[str, Any], pattern: str) -> None:
    check["pattern"] = pattern
    check.pop("words")


@pytest.mark.parametrize(("change", "told"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_file_that_is_not_as_it_should_be_is_refused(
    tmp_path: Path, given: dict[str, Any], change: Change, told: str
) -> None:
    file = tmp_path / "approved_later.json"
    change(given)
    file.write_text(json.dumps(given))
    with pytest.raises(BadFile, match=re.escape(told)) as refused:
        read_case(file)
    assert str(refused.value).startswith(f"{tmp_path.name}/approved_later.json: ")


@pytest.mark.parametrize("text", ["", "[1, ", '{"name": "x", "name": "y"}'])
def test_what_is_no_json_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(BadFile, match=r"x\.json"):
        read_case(file)


def named() -> Iterator[str]:
    """What CASES.md has to explain: every name that a file of a case may hold."""
    yield from json.loads((FOLDER / "long_run.json").read_text())
    yield from ("disputed", *FEATURES, *CHECKS, *STATUSES, *get_args(Do), *WINDOW, *THEMES)
    for kind in CHECKS.values():
        yield from kind.reads


def test_the_manual_explains_every_name() -> None:
    text = CASES_MD.read_text()
    missing = sorted(name for name in set(named()) if f"`{name}`" not in text and f"**{name}**" not in text)
    assert missing == []


def test_the_manual_tells_what_every_feature_is() -> None:
    text = CASES_MD.read_text()
    assert [name for name, what in FEATURES.items() if f"| `{name}` | {what}" not in text] == []


def test_the_manual_shows_a_case_as_it_is() -> None:
    (shown,) = re.findall(r"```json\n(.*?)```", CASES_MD.read_text(), re.DOTALL)
    found, file = json.loads(shown), json.loads((FOLDER / "failed_sibling.json").read_text())
    assert file["right"].startswith(found["right"].rstrip("… "))
    assert {**found, "right": file["right"]} == file


def test_every_check_is_used_by_a_case() -> None:
    every: list[Check] = [
        found for case in load_cases() for one in (*case.must, *case.must_not) for found in walk(one)
    ]
    assert {type(check) for check in every} == set(CHECKS.values())
