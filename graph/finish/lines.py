"""Calls and results on one line, for outcomes, questions and refusals."""

from signoff.graph.history.replies import Call

CALL = 160
RESULT = 200
_ARGUMENT = 60


def line(text: str, most: int) -> str:
    """`text` on one line; if it is long, its beginning and its end, which has the exit code."""
    flat = " ".join(text.split())
    if len(flat) <= most:
        return flat
    tail = most // 3
    return f"{flat[: most - tail - 3]} … {flat[len(flat) - tail :]}"


def shown_call(call: Call) -> str:
    """The call on one line, with short arguments."""
    arguments = ", ".join(f"{name}={line(repr(value), _ARGUMENT)}" for name, value in call.args.items())
    return line(f"{call.name}({arguments})", CALL)
