"""`python -m benchmarks.overhead.pages`: writes the docs page and the pictures from the recorded results."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.overhead import pictures
from benchmarks.overhead.client import TURNS as CLIENT_TURNS
from benchmarks.overhead.client import ClientCost
from benchmarks.overhead.crowd import OWN, QUICK, TURNS, Crowd
from benchmarks.overhead.measure import SUBJECTS, Figure
from benchmarks.overhead.record import RESULTS, Recorded
from benchmarks.overhead.sessions import BUDGET, LONGEST, PRICES, Session
from benchmarks.overhead.stored import RUNS, Stored
from benchmarks.overhead.stored import TURNS as STORED_TURNS
from benchmarks.overhead.subjects import sessions as sizes
from benchmarks.overhead.targets import Result

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE, PICTURES = DOCS / "benchmarks" / "overhead.md", DOCS / "pictures"
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

_HEAD = """\
# What a turn costs

Every framework runs the same script: the model calls a trivial tool in each turn and finishes in the last
one. The model answers at once, so the benchmark measures the framework alone. The subjects run alternately,
so that anything that slows the machine down slows all of them: compare figures within a table, not between
machines. "Equal features" adds the middleware for `create_agent` that comes closest to Signoff's features:
limits on model and tool calls, summaries, approvals. "Stretch" is the value that we would like to reach.

In the row "Signoff", tools have no time limit (`tool_seconds=None`), since they have none in the other
frameworks; so a tool that runs alone needs no thread. "Default settings" is `build_graph(model, tools)` with
only the turn limit raised: tools have a limit of 120 seconds, so each call of a sync tool runs in a thread
that can be abandoned. "A tool that writes" is the same with a tool that does not declare that it only reads;
with a storage, each of its calls is then recorded before it begins, so that it runs at most once.

`python -m benchmarks.overhead --check` runs it on your machine; `--help` shows how to run parts of it.
"""


def write() -> None:
    """Writes the page and its pictures. Raises SetupError if the plotting package is missing."""
    PAGE.write_text(page())
    pictures.draw(Recorded.read(RESULTS), PICTURES)


def page() -> str:
    """Returns the page: the recorded results in text and tables."""
    recorded = Recorded.read(RESULTS)
    sections = [
        f"{_HEAD}\n{measured(recorded)}",
        f"## CPU a turn\n\n{_picture('CPU per turn, by the length of the run', pictures.CPU)}",
        _figures(recorded.figures, "cpu", "Milliseconds of CPU per turn, without storage.", stored=False),
        _figures(recorded.figures, "cpu", "The same with every step saved in SQLite.", stored=True),
        *([f"## Guards for an agent that exists\n\n{_guards(recorded.guards)}"] if recorded.guards else []),
        f"## Place on disk\n\n{_picture('KB on disk per turn, by the length of the run', pictures.DISK)}",
        _figures(recorded.figures, "kilobytes", "KB on disk per turn.", stored=True),
        f"## Many runs at once\n\n{_picture('Seconds until all runs had ended', pictures.CROWD)}",
        _crowds(recorded.crowds),
        f"## With a real client\n\n{_picture('CPU per turn with a real client', pictures.CLIENT)}",
        _clients(recorded.clients),
        *([f"## Tokens and dollars\n\n{_sessions(recorded.sessions)}"] if recorded.sessions else []),
        *([f"## Starting\n\n{_starting(recorded)}"] if recorded.start else []),
        *([f"## SQLite and PostgreSQL\n\n{_stored(recorded.stored)}"] if recorded.stored else []),
        f"## The targets\n\n{targets(recorded.results())}",
    ]
    return "\n\n".join(sections) + "\n"


def measured(recorded: Recorded) -> str:
    """Returns when, where and with which versions the results were measured."""
    cores = recorded.machine["cores"]
    words = _NUMBERS[cores] if cores < len(_NUMBERS) else str(cores)
    noun = "core" if cores == 1 else "cores"
    versions = ", ".join(f"{name} {version}" for name, version in recorded.versions.items())
    return (
        f"Measured {pictures.days(recorded)} on a machine with {words} {noun} ({recorded.machine['system']}, "
        f"Python {recorded.machine['python']}), with {versions}."
    )


def _picture(words: str, name: str) -> str:
    return f"![{words}](../pictures/{name})"


def _figures(figures: Sequence[Figure], value: str, words: str, *, stored: bool) -> str:
    """Returns a table with a row per subject and a column per length."""
    chosen = [one for one in figures if one.stored == stored]
    lengths = sorted({one.turns for one in chosen})
    found = {(one.subject, one.turns): float(getattr(one, value)) for one in chosen}
    known = {name for name, _ in found}
    rows = [
        [_name(one.name), *(_number(found.get((one.name, turns))) for turns in lengths)]
        for one in SUBJECTS
        if one.name in known
    ]
    return f"{words}\n\n{table(['turns', *(f'{turns:,}' for turns in lengths)], rows)}"


def _guards(figures: Sequence[Figure]) -> str:
    found = {(one.subject, one.stored): one.cpu for one in figures}
    rows = [
        [name, *(_number(found.get((name, stored))) for stored in (False, True))]
        for name in dict.fromkeys(one.subject for one in figures)
    ]
    words = (
        f"Milliseconds of CPU per turn in runs of {figures[0].turns} turns, the minimum of {figures[0].runs} "
        "runs. [Guards](../how-to/guards.md) apply their rules to the whole history, but in each turn they "
        "read only what is new."
    )
    return f"{words}\n\n{table(['', 'no storage', 'SQLite'], rows)}"


def _crowds(crowds: Sequence[Crowd]) -> str:
    columns = list(dict.fromkeys((one.runs, one.model) for one in crowds))
    found = {(one.subject, one.runs, one.model): one.wall for one in crowds}
    rows = [
        [_name(subject), *(_number(found.get((subject, *key))) for key in columns)]
        for subject in dict.fromkeys(one.subject for one in crowds)
    ]
    names = [f"{runs:,} runs, model {_seconds(model)}" for runs, model in columns]
    words = f"Seconds until the last run had ended; {TURNS} turns per run, all in one process with asyncio."
    return f"{words}\n\n{table(['', *names], rows)}"


def _clients(costs: Sequence[ClientCost]) -> str:
    columns = sorted({one.chunks for one in costs})
    found = {(one.subject, one.chunks): one.cpu for one in costs}
    first = {one.subject: one.first for one in costs if one.chunks == columns[0]}
    rows = [
        [
            _name(subject),
            *(_number(found.get((subject, chunks))) for chunks in columns),
            _number(first.get(subject)),
        ]
        for subject in dict.fromkeys(one.subject for one in costs)
    ]
    words = (
        "Milliseconds of CPU per turn in the client's process (ChatOpenAI for the first three frameworks, "
        "OpenAI's SDK for the others), with a provider on loopback in another process; runs of "
        f"{CLIENT_TURNS} turns, medians. Signoff streams by default; `auto` and `never` are values of "
        "`streaming=` ([Any model](../how-to/models.md#streaming)). The others stream only if a caller "
        'listens. "Listened to" means `stream_mode="messages"`, `run_stream_events` or `run_streamed`; for '
        f"these rows the last column is the time from the call to the first token, with {columns[0]} chunks; "
        "the provider's share of it is negligible."
    )
    heads = ["", *(f"{chunks:,} chunks" for chunks in columns), "first token, ms"]
    return f"{words}\n\n{table(heads, rows)}"


def _sessions(found: Sequence[Session]) -> str:
    plain = [one for one in found if one.budget is None]
    lengths = sorted({one.turns for one in plain})
    by_key = {(one.subject, one.turns): one for one in plain}
    rows = []
    for subject in dict.fromkeys(one.subject for one in plain):
        each = [by_key.get((subject, turns)) for turns in lengths]
        first = next(one.first for one in each if one)
        read = [_thousands(one.read + one.cached) if one else "" for one in each]
        dollars = [f"{one.dollars:.3f}" if one else "" for one in each]
        rows.append([_name(subject), f"{first:,}", *read, *dollars])
    heads = ["", "first request", *(f"{turns:,} turns" for turns in lengths)]
    heads += [f"{turns:,} turns, dollars" for turns in lengths]
    words = (
        "Prompt tokens and cost of one session, with a simulated provider whose cache serves any prefix that "
        f"a request shares with an earlier one; {PRICES}. Tokens are counted with o200k in the data sent "
        "over the wire. The model makes one call per turn, with about "
        f"{sizes.ARGUMENT // 4} tokens of arguments and {sizes.RESULT // 4} tokens of result."
    )
    shortened = [
        [
            _name(one.subject),
            f"{one.dollars:.3f}",
            *map(_thousands, (one.read, one.cached, one.written, one.summaries)),
        ]
        for one in found
        if one.budget == BUDGET
    ]
    told = (
        f"The same {LONGEST} turns with prompts of at most {BUDGET:,} tokens. With its defaults, the "
        "middleware finds nothing to summarise in one long task, and drops the old turns. deepagents "
        "summarises at 85 % of the model's context; the context is chosen so that this is the same size. "
        "pydantic-ai and OpenAI Agents do not summarise by themselves."
    )
    costs = ["", "dollars", "read", "from the cache", "written", "summary calls"]
    return f"{words}\n\n{table(heads, rows)}\n\n{told}\n\n{table(costs, shortened)}"


def _thousands(number: int) -> str:
    return f"{number:,}"


def _starting(recorded: Recorded) -> str:
    rows = [[f"`{name}`", f"{seconds:.2f}"] for name, seconds in recorded.start.items()]
    words = "Seconds of CPU of a whole process, with compiled bytecode and one thread in the database."
    shown = f"{words}\n\n{table(['', 'CPU seconds'], rows)}"
    if recorded.first_tokens is None:
        return shown
    first, again = recorded.first_tokens.first, recorded.first_tokens.again
    return (
        f"{shown}\n\nThe [embedded model](../how-to/models.md#the-embedded-model) takes {first:.1f} seconds "
        f"to the first token of a first run, and {again:.1f} in the next process, with another task, because "
        "it stores its evaluated prompt."
    )


def _stored(found: Sequence[Stored]) -> str:
    rows = [[_name(one.subject), one.storage, f"{one.turns_a_second:.0f}", f"{one.cpu:.2f}"] for one in found]
    words = (
        f"{RUNS} runs of {STORED_TURNS} turns at once, in one process with asyncio; the model answers "
        "immediately. CPU is that of the process with the runs. `python -m benchmarks.overhead --parts "
        "postgres` prints these figures."
    )
    return f"{words}\n\n{table(['', 'storage', 'turns per second', 'CPU ms per turn'], rows)}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _seconds(model: float) -> str:
    return f"{model * 1e3:g} ms" if model <= QUICK else f"{model:g} s"


def targets(results: Sequence[Result]) -> str:
    """Returns a table of the targets with the measured values, and how many are met."""
    rows = [
        [
            one.name,
            f"{one.measured:.2f} {one.unit}".strip(),
            f"{one.most:.3g} {one.unit}".strip(),
            "" if one.stretch is None else f"{one.stretch:g} {one.unit}",
            "met" if one.met else "**missed**",
            one.beside,
        ]
        for one in results
    ]
    met = sum(one.met for one in results)
    heads = ["target", "measured", "at most", "stretch", "", "of what"]
    return f"{met} of {len(results)} are met.\n\n{table(heads, rows)}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table, with numbers aligned to the right."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _name(subject: str) -> str:
    return "**Signoff**" if subject == OWN.name else subject.replace(f"{OWN.name},", "Signoff,")


if __name__ == "__main__":
    write()
