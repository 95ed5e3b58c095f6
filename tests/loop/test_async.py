"""The contract of the async driver: it does what the sync one does, in forty tasks of every kind."""

from collections.abc import Iterator, Mapping
from itertools import islice

import pytest

from tests.finish import test_checks, test_confirm, test_finish, test_review
from tests.loop import test_questions, test_talk_and_limits, test_tasks
from tests.support.plays import Play, check
from tests.support.ways import GRAPH_WAYS

TABLES: Mapping[str, Mapping[str, Play]] = {
    "tasks": test_tasks.PLAYS,
    "talk and limits": test_talk_and_limits.SCRIPTS,
    "a dialogue": test_talk_and_limits.DIALOGUES,
    "questions": test_questions.PLAYS,
    "a finish": test_finish.FINISHES,
    "checks": test_checks.PLAYS,
    "review": test_review.PLAYS,
    "confirmation": test_confirm.PLAYS,
}


def spread() -> Iterator[tuple[str, Play]]:
    """Five cases of each table, as far from each other as they can be."""
    for table, plays in TABLES.items():
        for name, case in islice(plays.items(), 0, None, max(1, len(plays) // 5)):
            yield f"{table}: {name}", case


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in spread()])
def test_ainvoke_does_what_invoke_does(case: Play) -> None:
    check(case, GRAPH_WAYS["ainvoke"])
