"""The words that a terminal pane itself writes: its title, the agent's command, remarks."""

from signoff.cli.safe import cut, one_line, plain

PROMPT = r"\[\e[1;34m\]\w\[\e[0m\] \$ "
"""What bash shows while it waits, as in `PS1`: the folder."""

_MOST_LINES = 12
_MOST_CHARACTERS = 1_500
_TITLE = 60
_ASKS = {"line": "asks for a line of input", "password": "asks for a password"}


def title(running: str | None, waiting_for: str | None) -> str:
    """What the terminal does: nothing, a command of the agent, or asking the person."""
    if running is None:
        return "terminal · idle"
    if waiting_for in _ASKS:
        return f"terminal · {_ASKS[waiting_for]}"
    return f"terminal · $ {cut(one_line(running), _TITLE)}"


def announced(command: str) -> str:
    """A command of the agent as if it had been typed; a long one is cut."""
    lines = plain(cut(command.strip(), _MOST_CHARACTERS)).split("\n")
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"… {len(lines) - _MOST_LINES} more lines"]
    return "\x1b[1;32m$\x1b[39m " + "\n  ".join(lines)


def remark(words: str) -> str:
    """Words of the application itself."""
    return f"\x1b[2;3m[{one_line(words)}]"
