"""`loopcheck`: runs subjects on public tasks under faults and on unit cases, and prints the results."""

import argparse
import fcntl
import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from datetime import date
from io import TextIOWrapper
from itertools import product
from pathlib import Path
from subprocess import CalledProcessError
from urllib.parse import urlsplit

from loopcheck import VERSION
from loopcheck.bench import Bench
from loopcheck.case import load_cases
from loopcheck.conduct import CASES, Part, list_parts, tell
from loopcheck.driver import run_case
from loopcheck.explain import explain
from loopcheck.outside import line
from loopcheck.parts import Processes
from loopcheck.picture import draw
from loopcheck.play import TURNS
from loopcheck.process import NoAnswer, find_address
from loopcheck.real import (
    Provider,
    RealRun,
    choose_tasks,
    estimate_start,
    list_ways,
    play_real,
    save_real,
    write_pairs,
)
from loopcheck.results import Apart, Results, gather
from loopcheck.sources.registry import SOURCES
from loopcheck.subjects import Subject, install, install_sources, list_subjects
from loopcheck.table import write_case_table, write_table

WHAT = (CASES, *SOURCES)
SEEDS = (1, 2)


def main() -> int:
    given = _arguments()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Anything that a subject says can be printed.
            stream.reconfigure(errors="replace")
    # So that a process that is told to end also ends its subjects.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        status = int(given.does(given))
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        kept = "; finished runs are kept, and `run` continues from them" if given.does is _run else ""
        print(f"loopcheck: stopped{kept}", file=sys.stderr)
        return 130
    except _Wrong as wrong:
        print(f"loopcheck: {wrong}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader has closed the pipe, as `head` does. Python flushes the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


class _Wrong(Exception):
    """The command cannot be carried out: why, and what to do instead."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="loopcheck", description=__doc__)
    parser.add_argument("--version", action="version", version=f"loopcheck {VERSION}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run subjects and print the table")
    _choose(run)
    run.add_argument("--what", nargs="+", choices=WHAT, default=WHAT, metavar="PART", help=", ".join(WHAT))
    run.add_argument(
        "--seeds",
        nargs="+",
        type=int,
        default=SEEDS,
        metavar="N",
        help="the seeds that select tasks and faults",
    )
    run.add_argument("--full", action="store_true", help="run every task instead of a sample")
    run.add_argument(
        "--jobs", type=_above_zero, default=2, help="number of parts to run in parallel (default: 2)"
    )
    run.add_argument(
        "--folder", type=Path, default=Path("loopcheck-runs"), help="the folder for finished runs"
    )
    run.add_argument("--anew", action="store_true", help="run everything again, even what has finished")
    run.add_argument("--json", type=Path, metavar="FILE", help="also save the results to this file")
    run.add_argument("--strict", action="store_true", help="exit with status 1 if a claim fails")
    run.set_defaults(does=_run)

    one = commands.add_parser("explain", help="run one unit case and print it event by event")
    one.add_argument("case")
    _choose(one)
    one.set_defaults(does=_explain)

    real = commands.add_parser("real", help="run tasks with a real model, ending with text and with a call")
    _choose(real)
    real.add_argument("--model", required=True, help="the provider's name of the model")
    real.add_argument(
        "--base-url",
        required=True,
        type=_api,
        help="address of an OpenAI-compatible API, such as http://…/v1",
    )
    real.add_argument(
        "--key", default="OPENAI_API_KEY", metavar="VARIABLE", help="environment variable with the API key"
    )
    real.add_argument(
        "--prices",
        nargs=2,
        type=float,
        default=(0, 0),
        metavar="$",
        help="price per million input and output tokens",
    )
    real.add_argument("--what", nargs="+", choices=[*SOURCES], default=[*SOURCES], metavar="SOURCE")
    real.add_argument("--seed", type=int, default=1)
    real.add_argument("--tasks", type=_above_zero, default=5, help="tasks from each source (default: 5)")
    real.add_argument(
        "--room",
        type=_above_zero,
        metavar="TOKENS",
        help="only tasks whose first request has at most this many tokens",
    )
    real.add_argument(
        "--turns",
        type=_above_zero,
        default=TURNS,
        help=f"the turn limit of a run (default: {TURNS}); a lower one for a model that is slow",
    )
    real.add_argument("--json", type=Path, metavar="FILE", help="also save the runs to this file")
    real.set_defaults(does=_real)

    make = commands.add_parser("install", help="create the environments of the sources and subjects")
    chosen = make.add_mutually_exclusive_group()
    chosen.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only for these subjects")
    chosen.add_argument(
        "--sources", action="store_true", help="only for the sources, to test your own subject"
    )
    make.set_defaults(does=_install)

    show = commands.add_parser("show", help="print saved results as tables; of several files, side by side")
    show.add_argument("files", nargs="+", type=Path, metavar="FILE")
    show.add_argument(
        "--svg", type=Path, metavar="FILE", help="also draw the tasks under faults to this file"
    )
    show.set_defaults(does=_show)

    known = commands.add_parser("list", help="list the subjects, sources and cases")
    known.set_defaults(does=_list)
    return parser.parse_args()


def _choose(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these subjects")
    which.add_argument("--command", type=_words, help="the command that starts your own subject")
    which.add_argument(
        "--url", type=_address, help="the address of your own running subject, which the suite cannot kill"
    )
    parser.add_argument("--name", type=_name, default="own", help="the name of your own subject in files")


def _words(text: str) -> list[str]:
    try:
        found = shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}: {text}") from None
    if not found:
        raise argparse.ArgumentTypeError("it is empty")
    return found


def _address(text: str) -> str:
    try:
        find_address(text)
    except NoAnswer as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _api(text: str) -> str:
    with suppress(ValueError):
        if urlsplit(text).scheme in ("http", "https") and urlsplit(text).hostname:
            return text
    raise argparse.ArgumentTypeError(f"{text!r} is not an address such as http://localhost:8000/v1")


def _name(text: str) -> str:
    if not re.fullmatch(r"\w[\w-]*", text):
        raise argparse.ArgumentTypeError(f"a name consists of letters, digits, - and _, unlike {text!r}")
    return text


def _above_zero(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("a number above 0")
    return number


def _chosen(given: argparse.Namespace) -> list[Subject]:
    if given.command or given.url:
        return [Subject(given.name, given.name, "given", given=given.command or [], url=given.url or "")]
    return _named(given.only)


def _named(names: Sequence[str]) -> list[Subject]:
    every = list_subjects()
    if not every:
        raise _Wrong(
            "The package alone has only the unit cases, for your own subject: pass --command or --url. "
            "The other subjects and the public sources need a checkout of the repository."
        )
    unknown = [name for name in names if name not in {one.name for one in every}]
    if unknown:
        there = ", ".join(one.name for one in every)
        raise _Wrong(f"There is no subject {unknown[0]!r}; the subjects are: {there}.")
    return [one for one in every if not names or one.name in names]


def _run(given: argparse.Namespace) -> int:
    # Otherwise an hour of measuring could be lost at the end.
    file = _writable(given.json)
    whole = list_parts(_chosen(given), given.what, given.seeds, full=given.full)
    # A running subject is one process, and takes one run at a time.
    absent = _worked(whole, given.folder, 1 if given.url else given.jobs, anew=given.anew)
    results = gather(whole, given.folder, absent, date.today().isoformat())
    if file:
        results.save(file)
    print(write_table(results, load_cases()))
    own_is_absent = bool(absent) and bool(given.command or given.url)
    return int(own_is_absent or (given.strict and any(column.fails for column in results.columns)))


def _writable(file: Path | None) -> Path | None:
    if file and (file.is_dir() or not file.parent.is_dir()):
        raise _Wrong(f"Cannot write to {file}; name a file in an existing folder.")
    return file


def _worked(whole: Sequence[Part], folder: Path, jobs: int, *, anew: bool) -> dict[str, str]:
    """Prints why subjects did not run."""
    absent: dict[str, str] = {}
    parts = Processes(folder)
    with _only_one(folder), ThreadPoolExecutor(jobs) as pool:
        for part in whole if anew else ():
            part.file(folder).unlink(missing_ok=True)
        try:
            begun = {pool.submit(parts.run, part): part for part in whole}
            for done in as_completed(begun):
                if why := done.result():
                    absent[begun[done].subject.name] = why
                    tell(f"{begun[done].name}: {why}")
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            parts.end()
            raise
    return absent


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Creates and locks the folder: two runs that write the same files would corrupt both."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise _Wrong(f"Cannot keep results in {folder}: {error}.") from None
    with lock as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise _Wrong(
                f"Another run writes to {folder}; wait for it to end, or pass another --folder."
            ) from None
        yield


def _explain(given: argparse.Namespace) -> int:
    case = next((one for one in load_cases() if one.name == given.case), None)
    if case is None:
        raise _Wrong(
            f"There is no case {given.case!r}; the cases are: {', '.join(c.name for c in load_cases())}."
        )
    served = False
    for subject in _chosen(given):
        if subject.problem:
            print(f"{subject.title}: {subject.problem}\n")
            continue
        try:
            with Bench(subject.command, subject.url) as bench:
                print(explain(case, bench.hello, run_case(bench, case)))
                served = True
        except NoAnswer as error:
            print(f"{subject.title}: it did not start: {error}\n")
    return int(not served)


def _real(given: argparse.Namespace) -> int:
    price_in, price_out = given.prices
    provider = Provider.from_key(
        given.key, url=given.base_url, model=given.model, price_in=price_in, price_out=price_out
    )
    file, runs = _writable(given.json), list[RealRun]()
    try:
        for run in _played(given, provider):
            runs.append(run)
            tell(f"{run.subject}: {run.task} {run.way} {run.end}, solved: {run.solved}")
    finally:
        # Also after an interruption: the finished runs have been paid for.
        if file and runs:
            save_real(runs, provider, date.today().isoformat(), file, turns=given.turns)
    if not runs:
        raise _Wrong("No task was run.")
    print(write_pairs(runs, provider))
    return 0


def _played(given: argparse.Namespace, provider: Provider) -> Iterator[RealRun]:
    chosen = [subject for subject in _chosen(given) if not subject.problem]
    for source in given.what:
        try:
            every = SOURCES[source].tasks()
        except ModuleNotFoundError as error:
            raise _Wrong(f"{source} is not installed ({error}); run `loopcheck install`.") from None
        tasks = choose_tasks(every, given.seed, given.tasks, given.room)
        fit = len([one for one in every if given.room is None or estimate_start(one) <= given.room])
        tell(f"{source}: {len(tasks)} of the {fit} tasks that are small enough, of {len(every)} in all")
        for subject in chosen:
            try:
                with Bench(subject.command, subject.url) as bench:
                    for task, way in product(tasks, list_ways(bench)):
                        yield play_real(
                            bench, subject.name, task, way, given.seed, provider, turns=given.turns
                        )
            except NoAnswer as error:
                tell(f"{subject.name}: it did not start: {error}")


def _install(given: argparse.Namespace) -> int:
    chosen = [] if given.sources else _named(given.only)
    if given.sources:
        _named([])
    tell("installing the public sources")
    install_sources()
    for subject in chosen:
        tell(f"installing {subject.title}")
        try:
            install(subject)
        except (OSError, CalledProcessError) as error:
            # The others can run without it; the table shows that it is not installed.
            tell(f"{subject.title} could not be installed: {error}")
    return 0


def _show(given: argparse.Namespace) -> int:
    picture = _writable(given.svg)
    results = _read(given.files[0])
    for file in given.files[1:]:
        try:
            results = results.beside(_read(file))
        except Apart as error:
            raise _Wrong(f"{file} cannot be combined with the files before it: {error}.") from None
    if results.suite != VERSION:
        raise _Wrong(
            f"These are results of the suite's version {results.suite}, and this is {VERSION}: their cases "
            "are not the same. Show them with that version."
        )
    versions = {case.name: case.version for case in load_cases()}
    for column in results.columns:
        column.cases = {name: one for name, one in column.cases.items() if versions.get(name) == one[2]}
    if picture and not results.sources:
        raise _Wrong("These results have no task runs, so there is nothing to draw.")
    print(f"{write_table(results, load_cases())}\n\n{write_case_table(results, load_cases())}")
    if picture:
        picture.write_text(draw(results))
    return 0


def _read(file: Path) -> Results:
    try:
        return Results.read(file)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        why = f" ({line(error, 100)})" if type(error) is ValueError else ""
        told = f"{file} contains no results{why}; name a file saved by `loopcheck run --json`."
        raise _Wrong(told) from error


def _list(_: argparse.Namespace) -> int:
    print("Subjects:", *(f"  {one.name:20} {one.problem or one.title}" for one in list_subjects()), sep="\n")
    print("Sources:", *(f"  {one.name:20} {one.title} ({one.licence})" for one in SOURCES.values()), sep="\n")
    print("Cases:", *(f"  {one.name:20} {one.promise}" for one in load_cases()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
