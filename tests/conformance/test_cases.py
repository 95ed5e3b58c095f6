"""The cases of Loopcheck as data: they name what they use, and a file with a fault is refused."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from loopcheck.case import FEATURES, FOLDER, THEMES, Case, Do, load_cases, read_case
from loopcheck.judge import CHECKS, STATUSES, WINDOW, walk
from loopcheck.reading import BadFile
from loopcheck.replies import Ask, Call, Delegate

CASES_MD = (FOLDER.parent.parent / "CASES.md").read_text()
CASES = load_cases()


def parts(case: Case) -> list[Any]:
    below = [(*role.script, role.then) for role in case.roles]
    return [part for script in [(*case.script, case.then), *below] for said in script for part in said.parts]


def test_every_file_is_a_case_with_one_question_and_one_promise() -> None:
    assert sorted(case.name for case in CASES) == sorted(file.stem for file in FOLDER.iterdir())
    assert len(CASES) >= 60
    assert {case.theme for case in CASES} == set(THEMES)
    for case in CASES:
        assert (case.question[-1], case.question.count("?"), case.right[-1]) == ("?", 1, "."), case.name
        assert len(case.promise) <= 120, case.name
        # The first thing that it asks for is that the model was shown the message.
        words = [check.words for check in case.must if getattr(check, "words", "")]  # type: ignore[attr-defined]
        assert words[0] == case.steps[0].text, case.name


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.name))
def test_a_case_names_the_features_and_tools_that_it_uses(case: Case) -> None:
    setup = case.setup
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
    assert set(case.needs) == {name for name, is_used in used.items() if is_used}
    called = {part.name for part in parts(case) if isinstance(part, Call)}
    assert called - {"erase"} <= set(setup.tools)
    given = [part for part in parts(case) if isinstance(part, Delegate)]
    assert {part.task for part in given} == {role.task for role in case.roles}
    assert {part.name for part in given} == set(setup.helpers)


Change = Callable[[dict[str, Any]], object]
BAD: dict[str, Change] = {
    # where the file is wrong, and what makes it so
    "must[1].check": lambda c: c["must"][1].update(check="wait"),
    "'must'": lambda c: c.pop("must"),
    "tool 'play'": lambda c: c["must"][2].update(tool="play"),
    "step 3": lambda c: c["must"][1].update(before_step=3),
    "steps[0].do": lambda c: c["steps"][0].update(do="shout"),
    "theme": lambda c: c.update(theme="Fun"),
    "name: ": lambda c: c.update(name="other"),
}


@pytest.mark.parametrize("place", BAD)
def test_a_file_that_is_not_as_it_should_be_is_refused_with_the_place(place: str, tmp_path: Path) -> None:
    file = tmp_path / "approved_later.json"
    given = json.loads((FOLDER / file.name).read_text())
    BAD[place](given)
    file.write_text(json.dumps(given))
    with pytest.raises(BadFile, match=re.escape(place)) as refused:
        read_case(file)
    assert str(refused.value).startswith(f"{tmp_path.name}/approved_later.json: ")


def test_the_manual_explains_every_name() -> None:
    names = {*json.loads((FOLDER / "long_run.json").read_text()), "disputed"}
    names |= {*FEATURES, *CHECKS, *STATUSES, *get_args(Do), *WINDOW, *THEMES}
    names |= {field for kind in CHECKS.values() for field in kind.reads}
    assert [name for name in names if f"`{name}`" not in CASES_MD and f"**{name}**" not in CASES_MD] == []
    assert [name for name, what in FEATURES.items() if f"| `{name}` | {what}" not in CASES_MD] == []


def test_every_check_is_used_by_a_case() -> None:
    checks = [check for case in CASES for one in (*case.must, *case.must_not) for check in walk(one)]
    assert {type(check) for check in checks} == set(CHECKS.values())
