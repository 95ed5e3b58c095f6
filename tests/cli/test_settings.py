"""What a thread runs with: options, its last run, the environment and `signoff.toml`; model and database.

Seen through `signoff show`, which tells the settings of a thread.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import ToolException

from signoff import sqlite_storage
from signoff.tools import workspace_tools
from tests.support.benches.cli import Bench, offered, one_sentence, steps
from tests.support.benches.cli_steps import ASK, DONE, LOOK

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


@pytest.fixture
def bench(bench: Bench) -> Bench:
    bench.env |= {"SIGNOFF_CONFIG": None, "XDG_CONFIG_HOME": str(bench.folder / "home")}
    bench.env["HOME"] = str(bench.folder)
    bench.model(f"[{DONE}] * 9")
    return bench


@pytest.fixture
def own(bench: Bench) -> Path:
    """Where the user's file is looked for."""
    folder = bench.folder / "home" / "signoff"
    folder.mkdir(parents=True)
    return folder / "signoff.toml"


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(0o600)
    return path


def used(bench: Bench, thread: str = "t1") -> dict[str, Any]:
    """What a thread runs with."""
    found: dict[str, Any] = bench.json("show", thread)["settings"]
    return found


TAGGED = ["--protocol", "tagged"]
# The options of the run before, the options of this one, the environment, the user's file; the turns.
PLACES: dict[str, tuple[list[str] | None, list[str], dict[str, str], str, int]] = {
    "the default": (None, [], {}, "", 30),
    "the file": (None, [], {}, "turns = 2", 2),
    "the environment": (None, [], {"SIGNOFF_TURNS": "3"}, "turns = 2", 3),
    "the thread": (["--turns", "4"], [], {"SIGNOFF_TURNS": "3"}, "turns = 2", 4),
    "an option": (["--turns", "4"], ["--turns", "5"], {"SIGNOFF_TURNS": "3"}, "turns = 2", 5),
    "another protocol": (["--turns", "4"], TAGGED, {}, "turns = 2", 2),
}


@pytest.mark.parametrize("case", PLACES)
def test_the_first_place_that_has_a_value_decides(bench: Bench, own: Path, case: str) -> None:
    before, options, env, text, turns = PLACES[case]
    if before is not None:
        assert bench.run("x", *before).exit_code == 0
    written(own, text)
    bench.run("y", *options, **env)
    assert used(bench)["turns"] == turns


def test_a_thread_keeps_what_it_ran_with_also_that_it_had_no_limit(bench: Bench, own: Path) -> None:
    bench.run("x")
    fresh = {"turns": 30, "talk_turns": 5, "tokens": None, "seconds": None, "model_seconds": 300}
    written(own, "tokens = 9\nseconds = 9\nbase_url = 'http://x/v1'\n")
    bench("run", "y", "-t", "t1", OPENAI_BASE_URL="http://y")
    assert {"base_url": None, "workspace": str(bench.workspace), **fresh}.items() <= used(bench).items()
    bench.run("z", "--turns", "7", "--seconds", "1.5", "--approve", "write")
    bench("run", "z", "-t", "t1", "--turns", "3")
    assert {"turns": 3, "seconds": 1.5, "approve": ["write"]}.items() <= used(bench).items()


def test_the_example_of_the_docs(bench: Bench, own: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", DOCS.read_text("utf-8"), re.S)
    written(own, example)
    wanted = {
        "model": "qwen3-coder",
        "base_url": "http://127.0.0.1:8080/v1",
        "turns": 50,
        "tools": ["files", "shell"],
        "approve": ["terminal"],
        "checks": ["make test"],
    }
    # Nobody answers at that address, and nobody waits for it.
    bench.run("x", "--model-tries", "1", SIGNOFF_MODEL=None, SIGNOFF_DATABASE=None)
    found = bench.json("show", "t1", SIGNOFF_DATABASE=None)["settings"]
    assert wanted.items() <= found.items()
    assert (bench.folder / "threads.sqlite").exists()


def test_the_docs_have_every_option_with_its_variables_and_its_help(bench: Bench) -> None:
    rows = DOCS.read_text("utf-8").split("| --- | --- | --- | --- |\n")[1].splitlines()
    options = [re.findall(r"`([^`]+)`", row.rpartition("|")[0].rpartition(" | ")[0]) for row in rows]
    shown = bench("run", "--help", COLUMNS="200", TERMINAL_WIDTH="200").stdout
    named = re.findall(r"│\s+(--[\w-]+)", shown)
    own = {"--thread", "--submit", "--queue", "--graph", "--config", "--json", "--quiet", "--help"}
    assert {option for option, *_ in options} == set(named) - own
    for option, variable, *others in options:
        assert f"SIGNOFF_{others[-1].upper()}" == variable, option


# The user's file.


def test_one_that_was_named_is_named_again(bench: Bench, own: Path) -> None:
    written(own, "turns = 7")
    database = bench.folder / "other.sqlite"
    other = written(bench.folder / "other.toml", f"database = '{database}'\nturns = 1\n")
    bench.model('["Hm."] * 9')
    bench.env["SIGNOFF_DATABASE"] = None
    (how,) = offered(bench.run("x", "--config", str(other)).stdout).values()
    assert how == ["resume", "--config", str(other), "--database", str(database), "t1"]
    assert "t1" in bench("threads", SIGNOFF_CONFIG=str(other)).stdout


HOSTILE = 'model = "m"\nbase_url = "http://h/v1"\ntools = ["shell"]\napprove = "none"\nturns = 1'


def test_one_of_the_workspace_or_the_current_folder_is_ignored(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("signoff.toml", ".signoff/signoff.toml", "signoff/signoff.toml"):
        (bench.workspace / place).parent.mkdir(exist_ok=True)
        written(bench.workspace / place, HOSTILE)
    monkeypatch.chdir(bench.workspace)
    # What the specification says of a relative folder: it is no folder.
    for thread, home in (("t1", bench.env["XDG_CONFIG_HOME"]), ("t2", ".")):
        env = {"XDG_CONFIG_HOME": home, "HOME": str(bench.folder / "nobody"), "SIGNOFF_TOOLS": "files"}
        assert bench.run("x", "--approve", "write", thread=thread, **env).exit_code == 0
        kept = {"base_url": None, "turns": 30, "tools": ["files"], "approve": ["write"]}
        assert {**kept, "model": bench.env["SIGNOFF_MODEL"]}.items() <= used(bench, thread).items()


def test_one_in_the_workspace_is_refused_when_it_is_named(bench: Bench) -> None:
    inside = written(bench.workspace / "mine.toml", "turns = 3")
    link, within = bench.folder / "link.toml", bench.workspace / "link.toml"
    link.symlink_to(inside)
    within.symlink_to(written(bench.folder / "mine.toml", "turns = 3"))
    for path in (inside, link, within):
        one_sentence(bench.run("x", "--config", str(path)), str(path), "--config none")


def test_the_model_cannot_write_it(bench: Bench, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(own.parent.parent))
    tools = {tool.name: tool for tool in workspace_tools(bench.folder)}
    with pytest.raises(ToolException):
        tools["write_file"].invoke({"path": str(own.relative_to(bench.folder)), "content": HOSTILE})
    assert not own.exists()


def test_one_that_others_may_write_or_own_is_refused(bench: Bench, own: Path) -> None:
    written(own, "turns = 3").chmod(0o620)
    one_sentence(bench("threads"), f"chmod go-w {own}")
    if os.getuid() == 0:
        os.chown(written(own, "turns = 3"), 12_345, -1)
        one_sentence(bench("threads"), str(own))


# What the file holds; what the one sentence names beside the place, and what it wants.
WRONG: Mapping[str, tuple[str | bytes, str, str]] = {
    "too long": ("#" * 200_000, "", "100,000"),
    "an unknown key": ("turn = 3", "turn in", "turns, tokens"),
    "a key": ("api_key = 's3cret'", "api_key in", "turns, tokens"),
    "a protocol": ("protocol = 'soap'", "protocol in", "tools or tagged"),
    "a relative database": ("database = 'x.sqlite'", "database in", "/ or ~"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_in_the_file_is_one_sentence_that_names_it(case: str, bench: Bench, own: Path) -> None:
    text, named, wanted = WRONG[case]
    written(own, text)
    result = bench.run("x")
    one_sentence(result, f"{named} {own}".strip(), wanted)
    assert "s3cret" not in result.stderr


def test_what_is_wrong_in_the_environment_is_one_sentence_that_names_it(bench: Bench) -> None:
    one_sentence(bench.run("x", SIGNOFF_APPROVE="terminl"), "SIGNOFF_APPROVE", "terminl")


UNREADABLE: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "without an end": lambda path: path.symlink_to("/dev/zero"),
    "no text": lambda path: written(path, b"caf\xe9"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_file_that_is_named_is_read_to_a_bound_and_never_waited_for(case: str, bench: Bench) -> None:
    file = bench.folder / "left.txt"
    UNREADABLE[case](file)
    for words in (["--system-prompt", f"@{file}"], [*TAGGED, "--constitution", str(file)]):
        one_sentence(bench.run("x", *words), str(file))
    one_sentence(bench("threads", "--config", str(file)), str(file))


URL = "http://me:hunter2@127.0.0.1:9/v1?key=hunter2#hunter2"


def test_where_model_and_address_come_from_and_no_secret_is_kept(bench: Bench) -> None:
    script, elsewhere = (
        bench.env["SIGNOFF_MODEL"] or "",
        {"SIGNOFF_MODEL": "e", "OPENAI_BASE_URL": "http://e"},
    )
    address = "http://127.0.0.1:9/v1"
    for words, env, kept in (
        (["--model", "o", "--base-url", URL], elsewhere, ("o", address)),
        # The thread's own; an address is that of its model.
        ([], elsewhere, ("o", address)),
        (["--model", script], {}, (script, None)),
    ):
        # Nobody answers there.
        bench.run("x", *words, "--model-tries", "1", "--model-seconds", "5", **env)
        assert (used(bench)["model"], used(bench)["base_url"]) == kept
        with sqlite_storage(bench.database) as storage:
            assert "hunter2" not in str([item.value for item in storage.store.search((), limit=100)])


def test_the_first_place_that_names_a_database_decides_and_commands_name_it_again(
    bench: Bench, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bench.folder)
    bench.model(steps(LOOK, ASK))
    env: dict[str, str | None] = {"SIGNOFF_DATABASE": None, "XDG_DATA_HOME": str(bench.folder / "data")}
    written(own, f"database = '{bench.folder / 'file.sqlite'}'")
    for options, variable, name in (
        (["-d", "option.sqlite"], "variable.sqlite", "option.sqlite"),
        ([], "variable.sqlite", "variable.sqlite"),
        ([], "", "file.sqlite"),
    ):
        shown = bench.run("x", *options, thread="t1", **{**env, "SIGNOFF_DATABASE": variable}).stdout
        words = offered(shown)["Answer"]
        assert words[words.index("--database") + 1] == str(bench.folder / name)
    own.unlink()
    assert "--database" not in offered(bench.run("x", thread="t1", **env).stdout)["Answer"]
    assert list((bench.folder / "data").rglob("threads.sqlite")) != []
