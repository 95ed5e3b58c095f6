"""How much the tests notice: seeded mutants of the product, put into clones of the repository one by one.

- `python -m tests.mutants map CLONE [OPTION…]` runs a clone's tests once under coverage, pytest with these
  options, and keeps which test reaches which line, and how long the tests of a file take.
- `draw --seed S --count N [--also CLONE]` prints N mutants, one line of JSON each; with `--also` only such as
  an older clone has, too. Whoever judges strikes out those that change nothing but a text, a type or speed
  before anything has run.
- `fixes --seed S` prints commits that change product and tests and whose part of the product can be taken
  back, in an order that the seed draws. Whoever judges strikes out those that mend nothing.
- `run FILE CLONE…` puts each of either into each clone, runs the tests that reach its lines, the quickest
  first, for at most 45 seconds (90 for a fix), and appends to FILE.results what became of it:
  `killed` by which test, or `alive`, also when time is up. An interrupted run goes on where it stopped.
"""

import argparse
import ast
import json
import random
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest

ROOMS = ("graph", "nodes", "tools", "signoff/session", "signoff/storage", "signoff/guards")
PRODUCT = ("graph", "nodes", "tools", "signoff")
SECONDS, SECONDS_OF_A_FIX = 45, 90
FIRST = 24
"""Tests in the first call of pytest; each further call has twice as many, since all are collected first."""
MAP = "build/reached.json"
TESTS = "not thorough"
SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


@dataclass(frozen=True)
class Mutant:
    """One change of a file: `before` becomes `after` in the row `row`, the `nth` such place of the file."""

    file: str
    row: str
    before: str
    after: str
    nth: int = 0


@dataclass(frozen=True)
class Place:
    """Where a mutant is in a file: its line, and the bytes that it replaces."""

    line: int
    start: int
    end: int


@dataclass(frozen=True)
class Fix:
    """A commit whose part of the product is taken back."""

    commit: str
    title: str


def mutants_of(file: str, text: str) -> Iterator[tuple[Mutant, Place]]:
    """Every mutant of a file."""
    rows, whole, met = text.splitlines(), text.encode(), Counter[Mutant]()
    offsets = [0]
    for line in whole.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    for node, changed in _changes(ast.parse(text)):
        start = offsets[node.lineno - 1] + node.col_offset
        end = offsets[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        one = Mutant(file, rows[node.lineno - 1].strip(), whole[start:end].decode(), changed)
        yield replace(one, nth=met[one]), Place(node.lineno, start, end)
        met[one] += 1


def _changes(tree: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """The parts that can be changed, and what they become. Types, decorators and asserts are left alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Assert | ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield from _changed(node)
        yield from _changes(_without_types(node))


def _without_types(node: ast.AST) -> ast.AST:
    kept = {"annotation", "returns", "decorator_list", "type_params", "bases"}
    fields = {name: value for name, value in ast.iter_fields(node) if name not in kept}
    bare: ast.AST = type("Bare", (ast.AST,), {"_fields": tuple(fields)})(**fields)
    return bare


def _changed(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    match node:
        case ast.Compare(left=left, ops=[how], comparators=[right]) if type(how) in SWAPPED:
            yield node, f"({ast.unparse(ast.Compare(left, [SWAPPED[type(how)]()], [right]))})"
        case ast.BoolOp(op=how, values=values):
            other = ast.Or() if isinstance(how, ast.And) else ast.And()
            yield node, f"({ast.unparse(ast.BoolOp(other, values))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, f"({ast.unparse(operand)})"
        case ast.Constant(value=bool() as value):
            yield node, str(not value)
        case ast.Constant(value=int() as value):
            yield node, str(value + 1)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as how, right=right):
            other_sign = ast.Sub() if isinstance(how, ast.Add) else ast.Add()
            yield node, f"({ast.unparse(ast.BinOp(left, other_sign, right))})"
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            yield test, f"(not ({ast.unparse(test)}))"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield node, "return None"
        case ast.Expr(value=ast.Call()):
            yield node, "pass"


def all_mutants(root: Path) -> list[Mutant]:
    """All mutants of the rooms."""
    files = sorted(path for room in ROOMS for path in (root / room).rglob("*.py"))
    return [
        one for path in files for one, _ in mutants_of(str(path.relative_to(root)), path.read_text("utf-8"))
    ]


def draw(seed: int, count: int, also: Path | None) -> list[Mutant]:
    """`count` of all mutants, or of those that a clone has, too, each as likely as any other."""
    found = all_mutants(Path.cwd())
    if also is not None:
        there = set(all_mutants(also))
        found = [one for one in found if one in there]
    return random.Random(seed).sample(found, count)


def fixes(seed: int) -> Iterator[Fix]:
    """The commits that change product and tests and whose part of the product can be taken back."""
    commits = _git(Path.cwd(), "log", "--min-parents=1", "--max-parents=1", "--format=%H %s").splitlines()
    random.Random(seed).shuffle(commits)
    for row in commits:
        commit, _, title = row.partition(" ")
        changed = _git(Path.cwd(), "show", "--format=", "--name-only", commit).splitlines()
        rooms = {name.split("/")[0] for name in changed}
        if "tests" in rooms and rooms & set(PRODUCT) and _without(Path.cwd(), commit):
            yield Fix(commit, title)


def _without(clone: Path, commit: str) -> str:
    """What `git revert` would change in the product; empty if it changes nothing or meets a conflict."""
    before = _git(
        clone, "commit-tree", f"{commit}^^{{tree}}", "-p", commit, "-m", f"Take back {commit}"
    ).strip()
    merge = ["git", "merge-tree", "--write-tree", "--name-only", "--no-messages", "HEAD", before]
    merged = subprocess.run(merge, cwd=clone, capture_output=True, text=True)
    tree, *conflicts = merged.stdout.splitlines()
    if any(name.split("/")[0] in PRODUCT for name in conflicts):
        return ""
    return _git(clone, "diff", "--binary", "HEAD", tree, "--", *PRODUCT)


def _git(clone: Path, *command: str) -> str:
    return subprocess.run(
        ["git", *command], cwd=clone, check=True, capture_output=True, text=True, errors="replace"
    ).stdout


def write_map(clone: Path, options: Sequence[str]) -> None:
    """Runs a clone's tests under coverage, one context for each test, and keeps what each file reaches."""
    data = clone / "build" / "reached.coverage"
    data.parent.mkdir(exist_ok=True)
    settings = clone / "build" / "reached.ini"
    settings.write_text(
        "[run]\ndynamic_context = test_function\nconcurrency = multiprocessing, thread\n"
        f"data_file = {data}\nparallel = true\nsource = {','.join(ROOMS)}\npatch = subprocess\n"
    )
    coverage = [python(clone), "-m", "coverage"]
    command = [*coverage, "run", f"--rcfile={settings}", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    more = ["-m", TESTS, "--timeout", "600", "--durations", "0", *options]
    done = subprocess.run([*command, *more], cwd=clone, capture_output=True, text=True)
    print(done.stdout[-2000:])
    subprocess.run([*coverage, "combine", f"--rcfile={settings}"], cwd=clone, check=True)
    lines = _reached(clone, data)
    seconds = _each(_seconds(done.stdout), lines)
    (clone / MAP).write_text(json.dumps({"lines": lines, "seconds": seconds}))


def _reached(clone: Path, data: Path) -> dict[str, dict[str, list[str]]]:
    """For each file of the product, the tests that reach each line."""
    from coverage import CoverageData

    kept = CoverageData(str(data))
    kept.read()
    listed = [python(clone), "-m", "pytest", "--collect-only", "-q", "-m", TESTS]
    out = subprocess.run(listed, cwd=clone, capture_output=True, text=True).stdout
    tests = {row.partition("[")[0] for row in out.splitlines() if "::" in row}
    reached: dict[str, dict[str, list[str]]] = {}
    for file in kept.measured_files():
        name = str(Path(file).resolve().relative_to(clone.resolve()))
        for line, contexts in kept.contexts_by_lineno(file).items():
            found = {_test(clone, context) for context in contexts} & tests
            reached.setdefault(name, {})[str(line)] = sorted(found)
    return reached


def _test(clone: Path, context: str) -> str:
    """The test of a context such as `tests.graph.test_rules.test_it`; empty if it is none."""
    parts = context.split(".")
    for length in range(len(parts), 0, -1):
        file = "/".join(parts[:length]) + ".py"
        if parts[0] == "tests" and (clone / file).is_file():
            return "::".join([file, *parts[length:]])
    return ""


def _each(took: dict[str, float], lines: dict[str, dict[str, list[str]]]) -> dict[str, float]:
    """How long each test takes, if those of a file share its time evenly."""
    tests = {test for of_file in lines.values() for found in of_file.values() for test in found}
    shares = Counter(test.partition("::")[0] for test in tests)
    return {test: took.get(file, 0.0) / shares[file] for test in tests for file in [test.partition("::")[0]]}


def _seconds(out: str) -> dict[str, float]:
    """How long the tests of each file took, from pytest's list of durations."""
    took: dict[str, float] = {}
    for row in out.splitlines():
        # The name of a case may have spaces.
        words = row.split(maxsplit=2)
        if len(words) == 3 and words[0].endswith("s") and words[1] in ("call", "setup", "teardown"):
            file = words[2].partition("::")[0]
            took[file] = took.get(file, 0.0) + float(words[0][:-1])
    return took


def run(file: Path, clones: list[Path]) -> None:
    """Puts each mutant into each clone, and appends what became of it."""
    results = file.with_suffix(".results")
    known = [json.loads(row) for row in results.read_text().splitlines()] if results.exists() else []
    done = {(one["clone"], one["number"]) for one in known}
    for number, row in enumerate(file.read_text().splitlines()):
        for clone in clones:
            if (str(clone), number) not in done:
                given = json.loads(row)
                tried = (
                    _fix_tried(Fix(**given), clone) if "commit" in given else _tried(Mutant(**given), clone)
                )
                with results.open("a") as lines:
                    lines.write(json.dumps({"clone": str(clone), "number": number, **tried}) + "\n")
                print(number, clone, tried, flush=True)


def _tried(mutant: Mutant, clone: Path) -> dict[str, str]:
    """What becomes of a mutant in a clone."""
    path = clone / mutant.file
    whole = path.read_bytes()
    place = dict(mutants_of(mutant.file, whole.decode()))[mutant]
    path.write_bytes(whole[: place.start] + mutant.after.encode() + whole[place.end :])
    try:
        return _fate(clone, {mutant.file: [place.line]}, SECONDS)
    finally:
        path.write_bytes(whole)


def _fix_tried(fix: Fix, clone: Path) -> dict[str, str]:
    """What becomes of a commit's part of the product that is taken back in a clone."""
    change = _without(clone, fix.commit)
    subprocess.run(["git", "apply"], cwd=clone, input=change, check=True, text=True)
    try:
        return _fate(clone, _changed_lines(_git(clone, "diff", "-U0")), SECONDS_OF_A_FIX)
    finally:
        _git(clone, "checkout", "--", *PRODUCT)
        _git(clone, "clean", "-fdq", "--", *PRODUCT)


def _changed_lines(difference: str) -> dict[str, list[int]]:
    """The lines of each file, as it was, that a difference changes."""
    lines: dict[str, list[int]] = {}
    name = ""
    for row in difference.splitlines():
        if row.startswith("--- a/"):
            name = row.removeprefix("--- a/")
        elif found := re.match(r"@@ -(\d+)(?:,(\d+))? ", row):
            first, count = int(found[1]), int(found[2] or 1)
            lines.setdefault(name, []).extend(range(first, first + max(1, count)))
    return lines


def _fate(clone: Path, lines: dict[str, list[int]], seconds: float) -> dict[str, str]:
    """Whether one of the tests that reach these lines fails now, the quickest first."""
    kept = json.loads((clone / MAP).read_text())
    tests = set[str]()
    for name, numbers in lines.items():
        reached = kept["lines"].get(name, {})
        # A line that only an import runs counts for all that reach its file.
        exact = {test for number in numbers for test in reached.get(str(number), ())}
        tests |= exact or {test for found in reached.values() for test in found}
    queue = sorted(tests, key=lambda one: (kept["seconds"][one], one))
    begun, size = time.monotonic(), FIRST
    while queue:
        left = begun + seconds - time.monotonic()
        failed = _failed(clone, queue[:size], left) if left > 0 else None
        if failed is None:
            return {"fate": "alive", "why": "time is up"}
        if failed:
            return {"fate": "killed", "why": f"{failed[:150]} ({time.monotonic() - begun:.0f} s)"}
        queue, size = queue[size:], 2 * size
    return {"fate": "alive", "why": f"all of {len(tests)} tests pass"}


def _failed(clone: Path, tests: Sequence[str], seconds: float) -> str | None:
    """The first of these tests that fails, empty if none does; None if time is up."""
    command = [python(clone), "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", TESTS, *tests]
    process = subprocess.Popen(
        command, cwd=clone, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        out, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.communicate()
        return None
    if process.returncode in (0, pytest.ExitCode.NO_TESTS_COLLECTED):
        return ""
    rows = (row for row in out.splitlines() if row.startswith(("FAILED", "ERROR")))
    return next(rows, f"pytest ended with {process.returncode}")


def python(clone: Path) -> str:
    return str(clone / ".venv" / "bin" / "python")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    commands = parser.add_subparsers(dest="command", required=True)
    mapping = commands.add_parser("map")
    mapping.add_argument("clone", type=Path)
    mapping.add_argument("options", nargs="*", default=["-n", "2", "--dist", "loadfile"])
    drawing = commands.add_parser("draw")
    drawing.add_argument("--seed", type=int, required=True)
    drawing.add_argument("--count", type=int, required=True)
    drawing.add_argument("--also", type=Path)
    fixing = commands.add_parser("fixes")
    fixing.add_argument("--seed", type=int, required=True)
    running = commands.add_parser("run")
    running.add_argument("file", type=Path)
    running.add_argument("clones", type=Path, nargs="+")
    given = parser.parse_args()
    match given.command:
        case "map":
            write_map(given.clone.resolve(), given.options)
        case "draw":
            for one in draw(given.seed, given.count, given.also):
                print(json.dumps(asdict(one)))
        case "fixes":
            for fix in fixes(given.seed):
                print(json.dumps(asdict(fix)))
        case _:
            run(given.file, [clone.resolve() for clone in given.clones])


if __name__ == "__main__":
    main()
