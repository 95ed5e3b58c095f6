"""The run from its first message to where it stands: task by task, turn by turn."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from signoff.graph.foreign import counted
from signoff.page.ending import ended, stopped, waiting
from signoff.page.html import Child, Html, hidden, joined, tag
from signoff.page.run import Run
from signoff.page.turns import sign_of, turn
from signoff.page.way import way
from signoff.page.words import folded, moment, prose
from signoff.session.history import Chapter, Turn

MOST_BYTES = 2_400_000
"""Of the whole timeline: a page is to be sent around, and opened on a phone."""
_PIECE_BYTES = 300_000
_ROOMS = (16_000, 3_000, 400, 60)
_MOST_WORDS = 20
_MOST_SIGNS = 160


@dataclass(frozen=True)
class Piece:
    """A part of the timeline that is on the page whole or not at all. task: its number, from 1."""

    task: int
    html: Html
    turn: bool = False

    @property
    def size(self) -> int:
        return len(self.html.markup.encode(errors="replace"))


def timeline(run: Run, most: int = MOST_BYTES) -> Html:
    """All pieces; of a run that is too long for a page, the first and the last."""
    pieces = list(_pieces(run))
    if not pieces:
        return tag("p", "Nothing has happened in this thread yet.", class_="quiet")
    before, after = _kept(pieces, most)
    gap = pieces[before : len(pieces) - after]
    shown: list[Piece] = [*pieces[:before]]
    if gap:
        turns = sum(piece.turn for piece in gap)
        told = f"{counted(turns, 'turn')} left out here: the run is too long for one page."
        shown.append(Piece(gap[0].task, tag("p", f"… {told} …", class_="left-out gap")))
    shown += pieces[len(pieces) - after :]
    sections = groupby(shown, key=lambda piece: piece.task)
    return joined(tag("section", [p.html for p in found], class_="task") for _, found in sections)


def overview(run: Run) -> Html | None:
    """A sign for each turn, each a link to it; None when there are too few or too many."""
    found = [(at, one) for at, chapter in enumerate(run.chapters, 1) for one in chapter.turns]
    if not 3 < len(found) <= _MOST_SIGNS:
        return None
    several = len(run.chapters) > 1
    links = [_link(run, at, one, several=several) for at, one in found]
    return tag("nav", tag("ol", links), class_="overview", aria_label="Turns")


def _link(run: Run, at: int, found: Turn, *, several: bool) -> Html:
    sign, look, told = sign_of(run, found)
    named = f"Task {at}, turn {found.number}: {told}" if several else f"Turn {found.number}: {told}"
    link = tag("a", tag("span", sign, aria_hidden="true"), hidden(named), href=f"#{_anchor(at, found)}",
               class_=look, title=named)  # fmt: skip
    return tag("li", link, class_="begins" if several and found.number == 1 and at > 1 else None)


def _kept(pieces: Sequence[Piece], most: int) -> tuple[int, int]:
    """How many pieces stand before and after the gap; all before when there is room for all."""
    if sum(piece.size for piece in pieces) <= most:
        return len(pieces), 0
    before = max(1, _fitting(pieces, most * 2 // 5))
    return before, max(1, _fitting(pieces[: before - 1 : -1], most * 3 // 5))


def _fitting(pieces: Iterable[Piece], room: int) -> int:
    for at, piece in enumerate(pieces):
        room -= piece.size
        if room < 0:
            return at
    return at + 1


def _pieces(run: Run) -> Iterator[Piece]:
    forked = run.fork is None
    for at, chapter in enumerate(run.chapters, 1):
        fork_here = run.fork is not None and run.fork in run.entries.get(chapter.task, ())
        entry = None if fork_here else way(run.entries.get(chapter.task, ()))
        yield Piece(at, _small(partial(_begin, run, at, chapter, entry)))
        for one in chapter.turns:
            if not forked and one.steps:
                forked = True
                yield Piece(at, _fork(run, chapter))
            yield Piece(at, _small(partial(turn, run, one, _anchor(at, one))), turn=True)
        if not forked and chapter is run.chapters[-1]:
            yield Piece(at, _fork(run, chapter))
        if end := _end(run, chapter):
            yield Piece(at, end)
    known = {chapter.task for chapter in run.chapters}
    outcome = run.standing.outcome
    if not run.chapters or (outcome and outcome["task"] not in known):
        yield Piece(len(run.chapters) + 1, _last(run))


def _begin(run: Run, at: int, chapter: Chapter, entry: Html | None, most: int) -> Html:
    number = f" {at}" if len(run.chapters) > 1 else ""
    head, left, tail = folded(chapter.words, _MOST_WORDS)
    words: list[Child] = [prose(text, most) for text in head]
    if left:
        words.append(tag("p", f"… {counted(left, 'more message')} left out of this page", class_="left-out"))
    words += [prose(text, most) for text in tail]
    title = tag("h2", f"Task{number}")
    who = tag("p", "The user wrote", class_="title")
    return joined([title, tag("section", who, words, class_="you") if chapter.words else None, entry])


def _fork(run: Run, chapter: Chapter) -> Html:
    at = moment(run.fork.at) if run.fork else None
    told = "Forked here: what stands above was copied from another thread."
    sign = tag("span", "↳", class_="mark", aria_hidden="true")
    entry = way(run.entries.get(chapter.task, ()))
    return tag("div", tag("p", sign, " ", told, " ", at, class_="note"), entry, class_="forked")


def _end(run: Run, chapter: Chapter) -> Html | None:
    outcome = run.outcomes.get(chapter.task)
    current = chapter is run.chapters[-1]
    if outcome and not (current and run.now.outcome is None):
        return _small(partial(ended, run.ending(outcome), run.confirmation(chapter)))
    return _last(run) if current else None


def _last(run: Run) -> Html:
    """Where a thread stands that has not ended, or that has ended without a task."""
    report = run.now
    if report.outcome is not None:
        return _small(partial(ended, report, None))
    if found := report.waiting:
        return _small(partial(waiting, found, report))
    return stopped(report, running=run.running)


def _small(make: Callable[[int], Html]) -> Html:
    """The piece with as much text as makes it no larger than a piece may be."""
    for room in _ROOMS:
        made = make(room)
        if len(made.markup) <= _PIECE_BYTES:
            break
    return made


def _anchor(task: int, found: Turn) -> str:
    return f"turn-{task}-{found.number}"
