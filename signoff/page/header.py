"""The head of a page: what thread it is, how it stands, and its figures."""

from pathlib import Path

from signoff.front.threads import status_of
from signoff.graph.vocabulary import heading
from signoff.graph.vocabulary import stands as stands_in_words
from signoff.models.choose import SCRIPTED
from signoff.page.ending import title_of
from signoff.page.html import Child, Html, line, tag
from signoff.page.run import Run
from signoff.page.words import moment, prose, took

_MOST_WORDS = 400


def header(run: Run) -> Html:
    """Thread, state, model, workspace, when, and the sums over all its tasks."""
    tone, sign, word = stands(run)
    asked = next((words for chapter in run.chapters for words in chapter.words), "")
    badge = tag("p", tag("span", sign, class_="mark", aria_hidden="true"), " ", word, class_=f"badge {tone}")
    return tag(
        "header",
        tag("p", "Signoff", tag("span", " · the record of a run"), class_="brand"),
        tag("div", tag("h1", line(run.thread_id, 500), dir="auto"), badge, class_="top"),
        prose(line(asked, _MOST_WORDS), _MOST_WORDS, "lead") if asked.strip() else None,
        tag("dl", _figures(run), class_="figures"),
        tag("dl", _about(run), class_="about"),
        class_=f"page-head {tone}",
    )


def stands(run: Run) -> tuple[str, str, str]:
    """How the thread stands: a colour, a sign, words."""
    if run.running:
        return "blue", "▶", "Running"
    waiting = run.standing.waiting
    if run.now.outcome is None and waiting:
        found = stands_in_words(status_of(run.standing), waiting.waits_for)
        return found.tone, found.sign, found.title[:1].upper() + found.title[1:]
    if run.now.outcome is None:
        return "amber", "‖", title_of(run.now)
    found = heading(run.now.outcome)
    return found.tone, found.sign, line(found.title, 200)


def _figures(run: Run) -> list[Html]:
    totals = run.totals
    tasks = len(run.chapters)
    shown: list[tuple[str, str]] = [
        *([("Tasks", f"{tasks:,}")] if tasks > 1 else []),
        ("Turns", f"{totals.turns:,}"),
        ("Tokens", f"{'about ' if totals.estimated else ''}{totals.tokens:,}"),
        ("Active", took(totals.active)),
        *([("Waiting for people", took(totals.waiting))] if totals.waiting else []),
    ]
    return [_row(name, value) for name, value in shown]


def _about(run: Run) -> list[Html]:
    settings, steps = run.settings, run.steps
    began = moment(steps[0].at) if steps else None
    limit = f"{settings.turns:,} turns a task" if settings else None
    rows: list[tuple[str, Child]] = [
        ("Model", tag("code", line(_model(settings.model), 200)) if settings else None),
        ("Workspace", tag("code", line(_home(settings.workspace), 300)) if settings else None),
        ("Limit", limit),
        ("Forked" if run.fork else "Began", began),
        ("Last change", moment(run.standing.changed)),
    ]
    return [_row(name, value) for name, value in rows if value]


def _row(name: str, value: Child) -> Html:
    return tag("div", tag("dt", name), tag("dd", value))


def _model(name: str) -> str:
    """The model; a script by the name of its file, wherever that is."""
    return f"{SCRIPTED}{Path(name.removeprefix(SCRIPTED)).name}" if name.startswith(SCRIPTED) else name


def _home(folder: str) -> str:
    """The folder, without the name of whose it is."""
    home = str(Path.home())
    return f"~{folder.removeprefix(home)}" if Path(folder).is_relative_to(home) and home != "/" else folder
