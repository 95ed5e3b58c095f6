"""README and docs: what they show runs as it stands, and prints what stands beside it.

- A `python` block is a program. It prints the `text` block behind it, or else what stands as a comment beside
  each `print`; without either, nothing. One with a `title` is a file, which the following ones find. One that
  is a part of a program in `examples/` is tested with that.
- A `console` block is a session: what stands behind `$` is run and prints what follows, `…` being anything.
- In a `sh` block every command exists, with its options.
- A page has one folder: a program finds what those before it have left.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from signoff.cli.app import app
from tests.support.benches.cli import CLEAN
from tests.support.pages import DOCS, ROOT, Block, blocks, pages, read
from tests.support.prepared import Prepared, PreparedPython, run_python

# What a page shows needs more than a folder: its own test says what.
OWN_TESTS = {
    "docs/how-to/studio.md": "tests/server/test_studio_docs.py",
}
EXAMPLES = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "examples").glob("*.py")))
DATABASE = "postgresql://me:secret@db.example:5432/threads"


def shown(page: str, *languages: str) -> list[Block]:
    return [one for one in blocks(page) if one.language in languages]


RUN = [page for page in pages() if shown(page, "python", "console") and page not in OWN_TESTS]
ON_A_SERVER = [page for page in RUN if DATABASE in read(page)]


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in RUN if page not in ON_A_SERVER])
def test_what_a_page_shows_runs_as_it_stands(page: str, tmp_path: Path) -> None:
    _run(page, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", ON_A_SERVER)
def test_what_a_page_shows_of_postgresql_runs_as_it_stands(
    page: str, tmp_path: Path, postgres_url: str
) -> None:
    _run(page, tmp_path, postgres_url)


def _run(page: str, folder: Path, database: str = DATABASE) -> None:
    env = _environment(folder)
    for block in shown(page, "python", "console", "toml", "json"):
        text = block.text.replace(DATABASE, database)
        if block.title is not None:
            file = folder / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        elif block.language == "console":
            _session(block, text, folder, env)
        elif block.language == "python" and block.text not in EXAMPLES:
            _program(block, text, folder, env)


def _environment(folder: Path) -> dict[str, str]:
    """Of somebody who has set nothing, and whose folders are empty."""
    own = {
        **{name: str(folder / ".home" / name) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")},
        **dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), "none"),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "COLUMNS": "100",
    }
    return {name: value for name, value in os.environ.items() if name not in CLEAN} | own


def _program(block: Block, text: str, folder: Path, env: dict[str, str]) -> None:
    file = folder / "program.py"
    file.write_text(text, encoding="utf-8")
    done = run_python("-W", "error", str(file), cwd=folder, env=env)
    assert (done.returncode, done.stderr) == (0, ""), block.place
    beside = "".join(f"{said}\n" for said in re.findall(r"^ *print\(.*\)  # (.*)$", text, re.M))
    wanted = beside if block.after is None else block.after
    assert done.stdout == wanted, block.place
    assert wanted or "print(" not in text, f"{block.place}: say what it prints"


def _session(block: Block, text: str, folder: Path, env: dict[str, str]) -> None:
    for command, wanted in re.findall(r"^\$ ([^\n]*)\n(.*?)(?=^\$ |\Z)", text, re.M | re.S):
        with _started(command, folder, env) as process:
            said, _ = process.communicate()
        found = re.escape(_steady(wanted)).replace("…", ".*")
        assert re.fullmatch(found, _steady(said), re.S), f"{block.place}: {command}\n{said}"


def _started(command: str, folder: Path, env: dict[str, str]) -> Any:
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    words = shlex.split(command, comments=True)
    prepared = {"signoff": Prepared, "python": PreparedPython}.get(words[0])
    if prepared is not None:
        return prepared(words[1:], cwd=folder, env=env, stdin=subprocess.DEVNULL, **streams)
    return subprocess.Popen(["bash", "-c", command], cwd=folder, env=env, **streams)


def _steady(text: str) -> str:
    """Without what differs from run to run: how long something took, and spaces at the end of a line."""
    text = re.sub(r"\b\d+(\.\d+)? s\b", "0 s", text)
    return re.sub(r" +$", "", text, flags=re.M).strip("\n")


@pytest.mark.parametrize("page", pages())
def test_every_command_exists_with_its_options(page: str) -> None:
    lines = [
        line
        for block in shown(page, "sh", "console")
        for line in block.text.replace("\\\n", " ").splitlines()
        if block.language == "sh" or line.startswith("$ ")
    ]
    wrong = {line: why for line in lines if (why := _wrong(line.removeprefix("$ ")))}
    assert wrong == {}


def _wrong(line: str) -> str | None:
    """What is wrong with a command of the docs; None when there is such a command."""
    words = [word for word in shlex.split(line, comments=True) if not re.match(r"^\w+=", word)]
    match words:
        case ["signoff", *rest]:
            return _wrong_signoff(rest)
        case ["make", target, *_]:
            found = re.search(rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text(), re.M)
            return None if found else "no such target"
        case ["python", "-m", module, *_] if module.startswith(("tests.", "benchmarks.")):
            path = ROOT / module.replace(".", "/")
            return None if path.with_suffix(".py").exists() or path.is_dir() else "no such module"
        case ["python", file, *_] if file.startswith("examples/"):
            return None if (ROOT / file).exists() else "no such example"
        case ["pip", "install", *names]:
            extras = [one for name in names for one in re.findall(r"signoff\[([\w,-]+)\]", name)]
            known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            unknown = {one for names in extras for one in names.split(",")} - set(known)
            return f"no such extra: {unknown}" if unknown else None
    return None


def _wrong_signoff(words: list[str]) -> str | None:
    command: Any = get_command(app)
    while words and (inside := getattr(command, "commands", {}).get(words[0])):
        command, words = inside, words[1:]
    if hasattr(command, "commands") and words and not words[0].startswith("-"):
        return f"no such command: {words[0]}"
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--help"}
    passes_on = command.ignore_unknown_options if hasattr(command, "ignore_unknown_options") else False
    unknown = {word.partition("=")[0] for word in words if word.startswith("-") and word != "-"} - known
    return None if passes_on or not unknown else f"no such option: {unknown}"


@pytest.mark.parametrize("page", pages())
def test_what_is_data_can_be_read(page: str) -> None:
    for block in shown(page, "json", "toml"):
        (json.loads if block.language == "json" else tomllib.loads)(block.text)


@pytest.mark.parametrize("page", [page for page in pages() if not page.startswith("docs/")])
def test_every_link_outside_of_the_docs_leads_to_a_file(page: str) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", read(page))
    missing = [link for link in links if "://" not in link and not (ROOT / link.partition("#")[0]).exists()]
    assert missing == []


def test_the_readme_is_short() -> None:
    assert len(read("README.md").splitlines()) <= 150


def test_the_docs_have_at_most_fifty_pages() -> None:
    assert len([page for page in pages() if page.startswith("docs/")]) <= 50


def test_every_page_is_one_that_is_run_or_has_a_test_of_its_own() -> None:
    assert all((ROOT / test).exists() for test in OWN_TESTS.values())
    assert {f"docs/{path.relative_to(DOCS).as_posix()}" for path in DOCS.rglob("*.md")} <= set(pages())
