"""Histories with a fault, each beside a twin that is clean."""

from typing import NamedTuple

from signoff.lint import FaultKind
from tests.support.lint.writers import Ai, History, Res, Use, User, ai

Expected = tuple[FaultKind, int, str | None]


def work(call_id: str, path: str = "a", name: str = "write") -> Use:
    return Use(name, call_id, f'{{"path": "{path}"}}')


def finish(call_id: str = "f", name: str = "finish_task") -> Use:
    return Use(name, call_id, '{"summary": "All of it."}')


GO = User()
END: History = [ai(finish()), Res("f", "accepted")]
CUT = Use("write", "w", '{"path": "a')


class Pair(NamedTuple):
    """faulty: with the faults `found`, each at a line of it. clean: the same without any."""

    faulty: History
    found: list[Expected]
    clean: History


def poll(count: int, *, same: bool = True, paths: str = "a") -> list[Ai | Res]:
    """`count` times the same call, with the same result or with a new one each time."""
    return [
        line
        for n in range(count)
        for line in (ai(work(f"c{n}", paths[n % len(paths)])), Res(f"c{n}", "ok" if same else f"{n} %"))
    ]


PAIRS = {
    "a call is never answered": Pair(
        [GO, ai(work("w")), *END],
        [(FaultKind.DANGLING, 1, "w")],
        [GO, ai(work("w")), Res("w"), *END],
    ),
    "one of two calls is never answered": Pair(
        [GO, ai(work("w"), work("x", "b")), Res("w"), *END],
        [(FaultKind.DANGLING, 1, "x")],
        [GO, ai(work("w"), work("x", "b")), Res("x"), Res("w"), *END],
    ),
    "a finish in the middle is never answered": Pair(
        [GO, ai(finish("e")), User("more"), *END],
        [(FaultKind.DANGLING, 1, "e")],
        [GO, ai(finish("e")), Res("e"), User("more"), ai(finish())],
    ),
    "an answer has no call": Pair(
        [GO, Res("ghost"), *END],
        [(FaultKind.NO_CALL, 1, "ghost")],
        [GO, ai(work("ghost")), Res("ghost"), *END],
    ),
    "an answer stands before its call": Pair(
        [GO, Res("w"), ai(work("w")), *END],
        [(FaultKind.NO_CALL, 1, "w"), (FaultKind.DANGLING, 2, "w")],
        [GO, ai(work("w")), Res("w"), *END],
    ),
    "a call is answered twice": Pair(
        [GO, ai(work("w")), Res("w"), Res("w", "again"), *END],
        [(FaultKind.ANSWERED_TWICE, 3, "w")],
        [GO, ai(work("w"), work("x", "b")), Res("w"), Res("x", "again"), *END],
    ),
    "an id comes twice": Pair(
        [GO, ai(work("0")), Res("0"), ai(work("0", "b")), Res("0"), *END],
        [(FaultKind.SAME_ID, 3, "0")],
        [GO, ai(work("0")), Res("0"), ai(work("1", "b")), Res("1"), *END],
    ),
    "work after a finish": Pair(
        [GO, *END, ai(work("w")), Res("w")],
        [(FaultKind.WORK_AFTER, 3, "w")],
        [GO, *END, User("and now that"), ai(work("w")), Res("w"), ai(finish("g")), Res("g")],
    ),
    "work after a finish in the same reply": Pair(
        [GO, ai(finish(), work("w")), Res("f"), Res("w")],
        [(FaultKind.WORK_AFTER, 1, "w")],
        [GO, ai(finish(), work("w")), Res("f"), Res("w", "not run", failed=True)],
    ),
    "work after a finish that was refused is none": Pair(
        [GO, *END, ai(work("w")), Res("w"), ai(finish("g")), Res("g")],
        [(FaultKind.WORK_AFTER, 3, "w"), (FaultKind.FINISH_AGAIN, 5, "g")],
        [GO, ai(finish()), Res("f", "not yet", failed=True), ai(work("w")), Res("w"), ai(finish("g"))],
    ),
    "a finish is repeated": Pair(
        [GO, *END, ai(finish("g")), Res("g")],
        [(FaultKind.FINISH_AGAIN, 3, "g")],
        [GO, *END],
    ),
    "ten finishes in one reply": Pair(
        [GO, ai(finish(), finish("g"), finish("h")), Res("f"), Res("g"), Res("h")],
        [(FaultKind.FINISH_AGAIN, 1, "g"), (FaultKind.FINISH_AGAIN, 1, "h")],
        [GO, ai(finish(), finish("g")), Res("f"), Res("g", "not run", failed=True)],
    ),
    "a phase is no end": Pair(
        [GO, ai(finish("p")), Res("p"), ai(work("w")), Res("w")],
        [(FaultKind.WORK_AFTER, 3, "w")],
        [
            *(GO, ai(Use("finish_task", "p", '{"summary": "x", "completion_percentage": 60}')), Res("p")),
            *(ai(work("w")), Res("w"), *END),
        ],
    ),
    "a finish with a failed sibling": Pair(
        [GO, ai(work("w"), finish()), Res("w", "no such file", failed=True), Res("f")],
        [(FaultKind.FAILED_SIBLING, 1, "f")],
        [
            *(GO, ai(work("w"), finish("e")), Res("w", "no such file", failed=True)),
            *(Res("e", "refused", failed=True), *END),
        ],
    ),
    "a blind finish": Pair(
        [GO, ai(work("w"), finish()), Res("w"), Res("f")],
        [(FaultKind.BLIND, 1, "f")],
        [GO, ai(work("w")), Res("w"), ai(Use("think", "t"), finish()), Res("t"), Res("f")],
    ),
    "the same call, the same result": Pair(
        [GO, *poll(3), *END], [(FaultKind.REPEAT, 1, "c0")], [GO, *poll(3, same=False), *END]
    ),
    "a cycle of two": Pair(
        [GO, ai(work("w", "z")), Res("w"), *poll(6, paths="ab"), *END],
        [(FaultKind.REPEAT, 3, "c0")],
        [GO, *poll(5, paths="ab"), *END],
    ),
    "a cycle of three": Pair(
        [GO, *poll(9, paths="abc"), *END], [(FaultKind.REPEAT, 1, "c0")], [GO, *poll(9, paths="abcd"), *END]
    ),
    "talk hides no repetition": Pair(
        [GO, *poll(1), ai(work("x")), Res("x"), ai("Hm."), ai(work("y")), Res("y"), *END],
        [(FaultKind.REPEAT, 1, "c0")],
        [GO, *poll(1), ai(work("x")), Res("x"), User("again"), ai(work("y")), Res("y"), *END],
    ),
    "a promise, then nothing": Pair(
        [GO, ai(work("w")), Res("w"), ai("I found the bug. I'll patch it now…")],
        [(FaultKind.PROMISE, 3, None)],
        [GO, ai(work("w")), Res("w"), ai("I found the bug. I'll patch it now…", work("x")), Res("x"), *END],
    ),
    "a promise, then a person has to ask": Pair(
        [GO, ai("I found the bug. I'll patch it now…"), User("And?"), ai(work("w")), Res("w"), *END],
        [(FaultKind.PROMISE, 1, None)],
        [GO, ai("I found the bug. Shall I patch it?"), User("Yes."), ai(work("w")), Res("w"), *END],
    ),
    "a call that was cut ran": Pair(
        [GO, ai(work("w"), cut=True), Res("w"), *END],
        [(FaultKind.TRUNCATED, 1, "w")],
        [GO, ai(work("w"), cut=True), Res("w", "not run", failed=True), *END],
    ),
    "arguments that were cut ran": Pair(
        [GO, ai(CUT), Res("w"), *END],
        [(FaultKind.TRUNCATED, 1, "w")],
        [GO, ai(CUT), Res("w", "no JSON", failed=True), *END],
    ),
    "it ends with words": Pair(
        [GO, ai(work("w")), Res("w"), ai("All is done.")],
        [(FaultKind.NO_FINISH, 3, None)],
        [GO, ai(work("w")), Res("w"), *END, ai("All is done.")],
    ),
    "it ends with a result": Pair(
        [GO, ai(work("w")), Res("w")],
        [(FaultKind.NO_FINISH, 2, None)],
        [GO, ai(work("w")), Res("w"), ai(Use("ask_user", "a"))],
    ),
    "it ends with a person's words": Pair(
        [GO, *END, User("and now?")],
        [(FaultKind.NO_FINISH, 3, None)],
        [User("hello"), GO, *END],
    ),
    "it ends with an answered question": Pair(
        [GO, ai(Use("ask_user", "a")), Res("a", "blue")],
        [(FaultKind.NO_FINISH, 2, None)],
        [GO, ai(Use("ask_user", "a")), Res("a", "blue"), *END],
    ),
}
