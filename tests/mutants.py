"""How much the tests notice: seeded mutants of the product, put into clones of the repository one by one.

- `python -m tests.mutants map CLONE [PLACE…]` runs a clone's tests, or those of the places, once under
  coverage, and keeps which test file reaches which line, and how long it takes.
- `draw --seed S --count N` prints N mutants, one line of JSON each. Whoever judges strikes out those that
  change nothing but a text, a type or speed before anything has run.
- `run FILE CLONE…` puts each into each clone, runs the test files that reach its line, the quickest first,
  for at most 45 seconds, and appends to FILE.results what became of it: `killed` by which test, or `alive`,
  also when time is up. An interrupted run goes on where it stopped.
"""

import argparse
import ast
import json
import random
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOMS = ("graph", "nodes", "tools", "signoff/session", "signoff/storage", "signoff/guards")
SECONDS = 45
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
    """One change: the text from `start` to `end` (bytes) of a file is replaced."""

    file: str
    line: int
    start: int
    end: int
    before: str
    after: str


def mutants_of(file: str, text: str) -> Iterator[Mutant]:
    """Every mutant of a file."""
    offsets = [0]
    for row in text.encode().splitlines(keepends=True):
        offsets.append(offsets[-1] + len(row))
    for node, changed in _changes(ast.parse(text)):
        start = offsets[node.lineno - 1] + node.col_offset
        end = offsets[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        yield Mutant(file, node.lineno, start, end, text.encode()[start:end].decode(), changed)


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


def draw(seed: int, count: int, root: Path) -> list[Mutant]:
    """`count` of all mutants of the rooms, each as likely as any other."""
    files = sorted(path for room in ROOMS for path in (root / room).rglob("*.py"))
    found = [
        one for path in files for one in mutants_of(str(path.relative_to(root)), path.read_text("utf-8"))
    ]
    return random.Random(seed).sample(found, count)


def write_map(clone: Path, places: list[str]) -> None:
    """Runs a clone's tests under coverage, one context for each test, and keeps what each file reaches."""
    data = clone / "build" / "reached.coverage"
    data.parent.mkdir(exist_ok=True)
    settings = clone / "build" / "reached.ini"
    settings.write_text(
        "[run]\ndynamic_context = test_function\nconcurrency = thread\n"
        f"data_file = {data}\nparallel = true\nsource = {','.join(ROOMS)}\npatch = subprocess\n"
    )
    command = [
        "-m",
        "coverage",
        "run",
        f"--rcfile={settings}",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
    ]
    options = ["-n", "2", "--dist", "loadfile", "-m", TESTS, "--timeout", "600", "--durations", "0", *places]
    done = subprocess.run([python(clone), *command, *options], cwd=clone, capture_output=True, text=True)
    print(done.stdout[-2000:])
    subprocess.run(
        [python(clone), "-m", "coverage", "combine", f"--rcfile={settings}"], cwd=clone, check=True
    )
    (clone / MAP).write_text(json.dumps({"lines": _reached(clone, data), "seconds": _seconds(done.stdout)}))


def _reached(clone: Path, data: Path) -> dict[str, dict[str, list[str]]]:
    """For each file of the product, the test modules that reach each line."""
    from coverage import CoverageData

    kept = CoverageData(str(data))
    kept.read()
    reached: dict[str, dict[str, list[str]]] = {}
    for file in kept.measured_files():
        name = str(Path(file).resolve().relative_to(clone.resolve()))
        for line, contexts in kept.contexts_by_lineno(file).items():
            modules = {_test_file(clone, context) for context in contexts} - {""}
            reached.setdefault(name, {})[str(line)] = sorted(modules)
    return reached


def _test_file(clone: Path, context: str) -> str:
    """The test file of a context such as `tests.graph.test_rules.test_it`; empty if it is none."""
    parts = context.split(".")
    for length in range(len(parts), 0, -1):
        file = "/".join(parts[:length]) + ".py"
        if parts[0] == "tests" and (clone / file).is_file():
            return file
    return ""


def _seconds(out: str) -> dict[str, float]:
    """How long the tests of each file took, from pytest's list of durations."""
    took: dict[str, float] = {}
    for row in out.splitlines():
        words = row.split()
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
                fate = tried(Mutant(**json.loads(row)), clone)
                with results.open("a") as lines:
                    lines.write(json.dumps({"clone": str(clone), "number": number, **fate}) + "\n")
                print(number, clone, fate, flush=True)


def tried(mutant: Mutant, clone: Path) -> dict[str, str]:
    """What becomes of a mutant in a clone."""
    reached = json.loads((clone / MAP).read_text())
    lines = reached["lines"].get(mutant.file, {})
    # A line that only an import runs counts for all that reach its file.
    files = lines.get(str(mutant.line)) or sorted({test for tests in lines.values() for test in tests})
    files.sort(key=lambda one: reached["seconds"].get(one, 0.0))
    if not files:
        return {"fate": "alive", "why": "no test reaches its file"}
    path = clone / mutant.file
    whole = path.read_bytes()
    if whole[mutant.start : mutant.end].decode() != mutant.before:
        raise SystemExit(f"{path} is not the file that the mutant was drawn from.")
    path.write_bytes(whole[: mutant.start] + mutant.after.encode() + whole[mutant.end :])
    try:
        return _killed(clone, files)
    finally:
        path.write_bytes(whole)


def _killed(clone: Path, files: list[str]) -> dict[str, str]:
    command = [python(clone), "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", TESTS, *files]
    begun = time.monotonic()
    process = subprocess.Popen(
        command, cwd=clone, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        out, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.terminate()
        out, _ = process.communicate()
        return {"fate": "alive", "why": "time is up"}
    failed = next((row for row in out.splitlines() if row.startswith(("FAILED", "ERROR"))), "")
    if process.returncode == 0:
        return {"fate": "alive", "why": f"all of {len(files)} files pass"}
    return {"fate": "killed", "why": f"{failed[:150]} ({time.monotonic() - begun:.0f} s)"}


def python(clone: Path) -> str:
    return str(clone / ".venv" / "bin" / "python")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    commands = parser.add_subparsers(dest="command", required=True)
    mapping = commands.add_parser("map")
    mapping.add_argument("clone", type=Path)
    mapping.add_argument("places", nargs="*")
    drawing = commands.add_parser("draw")
    drawing.add_argument("--seed", type=int, required=True)
    drawing.add_argument("--count", type=int, required=True)
    running = commands.add_parser("run")
    running.add_argument("file", type=Path)
    running.add_argument("clones", type=Path, nargs="+")
    given = parser.parse_args()
    if given.command == "map":
        write_map(given.clone.resolve(), given.places)
    elif given.command == "draw":
        for one in draw(given.seed, given.count, Path.cwd()):
            print(json.dumps(asdict(one)))
    else:
        run(given.file, given.clones)


if __name__ == "__main__":
    main()
