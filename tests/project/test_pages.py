"""README and docs: what they show runs as it stands, and prints what stands beside it.

- A `python` block is a program. It prints the `text` block behind it, or else what stands as a comment beside
  each `print`; without either, nothing. One with a `title` is a file, which the following ones find. One that
  is a part of a program in `examples/` is tested with that.
- A `console` block is a session: what stands behind `$` is run and prints what follows, `…` being anything.
- In a `sh` block every command exists, with its options.
- A page has one folder: a program finds what those before it have left.
"""

import os
import re
import shlex
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from signoff.cli.app import app
from tests.support.benches.cli import CLEAN
from tests.support.pages import ROOT, Block, blocks, pages, read
from tests.support.programs import run_program

# What these show needs more than a folder: tests/server/test_studio_docs.py runs it.
ELSEWHERE = ("docs/how-to/studio.md",)
# They start servers, workers or programs as processes of their own, again and again.
SLOW = {f"docs/how-to/{name}.md" for name in ("acp", "mcp", "testing", "workers")}
EXAMPLES = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "examples").glob("*.py")))
DATABASE = "postgresql://me:secret@db.example:5432/threads"


def shown(page: str, *languages: str) -> list[Block]:
    return [one for one in blocks(page) if one.language in languages]


RUN = [page for page in pages() if shown(page, "python", "console") and page not in ELSEWHERE]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.thorough if page in SLOW else ()) for page in RUN]
)
def test_what_a_page_shows_runs_as_it_stands(
    page: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    database = request.getfixturevalue("postgres_url") if DATABASE in read(page) else DATABASE
    for block in shown(page, "python", "console", "toml", "json"):
        text = block.text.replace(DATABASE, database)
        if block.title is not None:
            file = tmp_path / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        elif block.language == "console":
            _session(block, text, tmp_path)
        elif block.language == "python" and block.text not in EXAMPLES:
            _program(block, text, tmp_path)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of somebody who has set nothing, and whose folders are empty."""
    for name in CLEAN:
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / ".home" / name))
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "none")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "100")


def _program(block: Block, text: str, folder: Path) -> None:
    file = folder / "program.py"
    file.write_text(text, encoding="utf-8")
    printed = run_program(file, folder=folder)
    beside = "".join(f"{said}\n" for said in re.findall(r"^ *print\(.*\)  # (.*)$", text, re.M))
    wanted = beside if block.after is None else block.after
    assert printed == wanted, block.place
    assert wanted or "print(" not in text, f"{block.place}: say what it prints"


def _session(block: Block, text: str, folder: Path) -> None:
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    for command, wanted in re.findall(r"^\$ ([^\n]*)\n(.*?)(?=^\$ |\Z)", text, re.M | re.S):
        words = shlex.split(command, comments=True)
        if words[0] == "signoff":
            with chdir(folder):
                said = CliRunner().invoke(app, words[1:], env=CLEAN).output
        elif words[0] == "python" and _runs_here(folder / words[1]):
            said = run_program(folder / words[1], *words[2:], folder=folder)
        else:
            # A shell would tell of a program that kills itself.
            program = words if words[0] == "python" else ["bash", "-c", command]
            said = subprocess.run(program, cwd=folder, **options).stdout
        found = re.escape(_steady(wanted)).replace("…", ".*")
        assert re.fullmatch(found, _steady(said), re.S), f"{block.place}: {command}\n{said}"


def _runs_here(file: Path) -> bool:
    """Whether it is a program, and not one that kills its process."""
    return file.suffix == ".py" and "os.kill" not in file.read_text("utf-8")


def _steady(text: str) -> str:
    """Without what differs from run to run: how long something took, and spaces at the end of a line."""
    # A turn says how long it took only where that can be felt.
    text = re.sub(r"( tokens) · \d+(\.\d+)? s$", r"\1", text, flags=re.M)
    text = re.sub(r"\b\d+(\.\d+)? s\b", "0 s", text)
    return re.sub(r" +$", "", text, flags=re.M).strip("\n")


def test_every_command_exists_with_its_options() -> None:
    lines = [
        (page, line.removeprefix("$ "))
        for page in pages()
        for block in shown(page, "sh", "console")
        for line in block.text.replace("\\\n", " ").splitlines()
        if block.language == "sh" or line.startswith("$ ")
    ]
    assert len(lines) > 100
    assert {(page, line): why for page, line in lines if (why := _wrong(line))} == {}


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


def test_every_link_outside_of_the_docs_leads_to_a_file() -> None:
    links = [
        link
        for page in pages()
        if not page.startswith("docs/")
        for link in re.findall(r"\]\(([^)\s]+)\)", read(page))
        if "://" not in link
    ]
    assert len(links) > 10
    assert [link for link in links if not (ROOT / link.partition("#")[0]).exists()] == []


def test_the_readme_and_the_docs_are_short() -> None:
    assert len(read("README.md").splitlines()) <= 150
    assert len([page for page in pages() if page.startswith("docs/")]) <= 50
