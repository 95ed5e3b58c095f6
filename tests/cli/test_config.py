"""Where options come from: the command line, the thread, the environment, `signoff.toml`."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import ToolException

from signoff.front.database import database
from signoff.front.settings import (
    Given,
    Options,
    Settings,
    config_file,
    environment,
    flag,
    settle,
    user_file,
    variables,
)
from signoff.graph.errors import SetupError
from signoff.tools.files import workspace_tools
from tests.support.benches.cli import Bench, offered, one_sentence, steps

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
DONE = steps('call("finish_task", summary="All done.")')
POSIX = pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    made.env |= {"SIGNOFF_CONFIG": None, "XDG_CONFIG_HOME": str(tmp_path / "home")}
    return made


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
    """What a thread runs with, as `signoff show` says it."""
    found: dict[str, Any] = bench.json("show", thread)["settings"]
    return found


class TestPlaces:
    BEFORE = Settings(workspace="/usr", model="gpt-x", turns=4, talk_turns=5, tools=("files",))
    CASES: Mapping[str, tuple[dict[str, Any], Settings | None, dict[str, str], str, int]] = {
        "default": ({}, None, {}, "", 30),
        "file": ({}, None, {}, "turns = 2", 2),
        "environment": ({}, None, {"SIGNOFF_TURNS": "3"}, "turns = 2", 3),
        "empty variable": ({}, None, {"SIGNOFF_TURNS": ""}, "turns = 2", 2),
        "thread": ({}, BEFORE, {"SIGNOFF_TURNS": "3"}, "turns = 2", 4),
        "option": ({"turns": 5}, BEFORE, {"SIGNOFF_TURNS": "3"}, "turns = 2", 5),
        "another protocol": ({"protocol": "tagged"}, BEFORE, {}, "turns = 2", 2),
        "another protocol alone": ({"protocol": "tagged"}, BEFORE, {}, "", 10),
    }

    @pytest.mark.parametrize("case", CASES)
    def test_the_first_place_that_has_a_value_decides(self, case: str, tmp_path: Path) -> None:
        options, before, env, text, turns = self.CASES[case]
        given = Given(**options, config=written(tmp_path / "signoff.toml", text))
        assert settle(given, before, {"SIGNOFF_WORKSPACE": "/usr", **env}).turns == turns

    def test_a_thread_that_has_no_limit_gets_none(self, tmp_path: Path) -> None:
        config = written(tmp_path / "signoff.toml", "tokens = 9\nseconds = 9\nbase_url = 'http://x/v1'\n")
        kept = settle(Given(config=config), self.BEFORE, {"OPENAI_BASE_URL": "http://y"})
        assert (kept.tokens, kept.seconds, kept.base_url) == (None, None, None)

    def test_the_example_of_the_docs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
        monkeypatch.delenv("SIGNOFF_CONFIG", raising=False)
        monkeypatch.chdir("/usr")
        (tmp_path / ".config" / "signoff").mkdir(parents=True)
        (example,) = re.findall(r"```toml\n(.*?)```", DOCS.read_text("utf-8"), re.S)
        config = config_file(None, {})
        assert config is None
        written(tmp_path / ".config" / "signoff" / "signoff.toml", example)
        config = config_file(None, {})
        found = settle(Given(config=config), None, {})
        assert found == Settings(
            workspace="/usr",
            model="qwen3-coder",
            base_url="http://127.0.0.1:8080/v1",
            turns=50,
            talk_turns=5,
            tools=("files", "shell"),
            approve=("terminal",),
            checks=("make test",),
            approve_by=f"approve in {config}",
        )
        assert database(None, {}, config).where == str(tmp_path / "threads.sqlite")

    def test_the_docs_have_every_option_with_its_help(self) -> None:
        rows = [
            f"| `{flag(name)}` | {', '.join(f'`{one}`' for one in variables(name))} | `{name}` | "
            f"{field.description} |"
            for name, field in Options.model_fields.items()
        ]
        table = DOCS.read_text("utf-8").split("| --- | --- | --- | --- |\n")[1].splitlines()
        assert table == rows

    def test_lists_and_texts_are_read_alike(self, tmp_path: Path) -> None:
        for text in ("tools = 'files, python'", "tools = ['files', 'python']"):
            place = user_file(written(tmp_path / "signoff.toml", text))
            assert settle(Given(workspace=tmp_path, **place.values), None, {}).tools == ("files", "python")
        for nothing in ("tools = 'none'", "tools = ['none']", "tools = []"):
            place = user_file(written(tmp_path / "signoff.toml", nothing))
            assert settle(Given(workspace=tmp_path, **place.values), None, {}).tools == ()
        one = environment({"SIGNOFF_CHECKS": "pytest -q"}).values
        assert settle(Given(workspace=tmp_path, **one), None, {}).checks == ("pytest -q",)


class TestFiles:
    def test_the_users_file_is_read(self, bench: Bench, own: Path) -> None:
        written(own, "turns = 7\ntools = ['files']\n")
        bench.model(DONE)
        assert bench.run("x").exit_code == 0
        assert (used(bench)["turns"], used(bench)["tools"]) == (7, ["files"])
        assert bench.run("x", "--config", "none", thread="t2").exit_code == 0
        assert used(bench, "t2")["turns"] == 30

    def test_a_file_that_was_named_is_named_again(self, bench: Bench, own: Path, tmp_path: Path) -> None:
        written(own, "turns = 7")
        other = written(tmp_path / "other.toml", f"database = '{tmp_path / 'other.sqlite'}'\nturns = 1\n")
        bench.model('["Hm."] * 9')
        bench.env["SIGNOFF_DATABASE"] = None
        result = bench.run("x", "--config", str(other))
        assert result.exit_code == 3
        (how,) = offered(result.stdout).values()
        named = ["--database", str(tmp_path / "other.sqlite")]
        assert how == ["extend", "--config", str(other), *named, "t1", "10"]
        assert (tmp_path / "other.sqlite").exists()
        assert "t1" in bench("threads", SIGNOFF_CONFIG=str(other)).stdout

    def test_a_database_with_a_password_stays_in_the_file(self, tmp_path: Path) -> None:
        config = written(tmp_path / "signoff.toml", "database = 'postgresql://me:s3cret@h/db'")
        found = database(None, {}, config)
        assert (found.where, found.options) == ("postgresql://me:s3cret@h/db", [])

    HOSTILE = """
model = "gpt-x"
base_url = "http://evil.example/v1"
tools = ["files", "shell", "python"]
approve = "none"
turns = 1
database = "/tmp/evil.sqlite"
"""

    @pytest.mark.parametrize("place", ["signoff.toml", ".signoff/signoff.toml", "signoff/signoff.toml"])
    def test_a_file_of_the_workspace_or_the_current_folder_is_ignored(
        self, place: str, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench.model(DONE)
        for folder in (bench.workspace, tmp_path / "elsewhere"):
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            written(folder / place, self.HOSTILE)
            monkeypatch.chdir(folder)
            # What the specification says of a relative folder: it is no folder.
            for home in (bench.env["XDG_CONFIG_HOME"], ".", ""):
                env = {"XDG_CONFIG_HOME": home, "HOME": str(tmp_path / "nobody"), "SIGNOFF_TOOLS": "files"}
                thread = f"{folder.name}{len(home or '')}"
                assert bench.run("x", "--approve", "write", thread=thread, **env).exit_code == 0
                found = used(bench, thread)
                assert (found["base_url"], found["turns"]) == (None, 30)
                assert (found["tools"], found["approve"]) == (["files"], ["write"])
                assert found["model"] == bench.env["SIGNOFF_MODEL"]

    def test_a_file_in_the_workspace_is_refused_when_it_is_named(self, bench: Bench, tmp_path: Path) -> None:
        inside = written(bench.workspace / "mine.toml", "turns = 3")
        link = tmp_path / "link.toml"
        link.symlink_to(inside)
        outside = written(tmp_path / "mine.toml", "turns = 3")
        within = bench.workspace / "link.toml"
        within.symlink_to(outside)
        for path in (inside, link, within):
            result = bench.run("x", "--config", str(path))
            one_sentence(result, str(path), "in the workspace", "--config none")

    def test_the_model_cannot_write_the_users_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
        tools = {tool.name: tool for tool in workspace_tools(tmp_path)}
        call = {"path": ".config/signoff/signoff.toml", "content": self.HOSTILE}
        with pytest.raises(ToolException, match="Signoff's own files"):
            tools["write_file"].invoke(call)
        assert not (tmp_path / ".config" / "signoff" / "signoff.toml").exists()


WRONG: Mapping[str, tuple[str | bytes, list[str]]] = {
    "not TOML": ("turns =", ["is not valid TOML", "such as: turns = 20"]),
    "not text": (b"model = '\xff'", ["is not valid TOML"]),
    "too deep": ("a = " + "[" * 90_000, ["is not valid TOML"]),
    "too long": ("#" * 200_000, ["more than 100,000 bytes"]),
    "unknown key": ("turn = 3", ["turn in {}", "is not a setting", "turns, tokens"]),
    "table": ("[run]\nturns = 3", ["run in {}", "is not a setting"]),
    "another case": ("Turns = 3", ["Turns in {}", "is not a setting"]),
    "a key": ("api_key = 's3cret'", ["api_key in {}", "is not a setting"]),
    "the file itself": ("config = '/x'", ["config in {}", "is not a setting"]),
    "no turns": ("turns = 0", ["turns in {} is 0", "a whole number from 1 on"]),
    "garbage turns": ("turns = 'many'", ["turns in {} is 'many'", "a whole number"]),
    "true turns": ("turns = true", ["turns in {} is true", "write a number"]),
    "endless seconds": ("seconds = inf", ["seconds in {} is inf", "a number above 0"]),
    "no seconds": ("model_seconds = nan", ["model_seconds in {} is nan", "a number above 0"]),
    "model": ("model = 3", ["model in {} is 3", "write a text"]),
    "rounds": ("rounds = 'perhaps'", ["rounds in {} is 'perhaps'", "true or false"]),
    "protocol": ("protocol = 'soap'", ["protocol in {} is 'soap'", "use tools or tagged"]),
    "tools": (
        "tools = ['files', 'shel']",
        ["tools in {} names 'shel'", "use files, shell, python, python-write, or none"],
    ),
    "tool": ("tools = 3", ["tools in {} is 3", "a list of texts"]),
    "control": ("approve = ['control']", ["approve in {} cannot name control"]),
    "approve": ("approve = ['terminl']", ["approve in {} names 'terminl'", "read, write, terminal"]),
    "check": ("checks = ['']", ["checks in {} is empty", "'pytest -q'"]),
    "workspace": ("workspace = 'project'", ["workspace in {} is 'project'", "beginning with / or ~"]),
    "constitution": ("constitution = 'x.md'", ["constitution in {} is 'x.md'", "beginning with / or ~"]),
    "prompt": ("system_prompt = '@x.md'", ["system_prompt in {} is '@x.md'", "beginning with / or ~"]),
    "script": ("model = 'scripted:x.py'", ["model in {} is 'scripted:x.py'", "beginning with / or ~"]),
    "database": ("database = 'x.sqlite'", ["database in {} is 'x.sqlite'", "beginning with / or ~"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_in_the_file_is_one_sentence(case: str, bench: Bench, own: Path) -> None:
    text, parts = WRONG[case]
    written(own, text)
    if case == "model":
        # Else that of the variable counts.
        bench.env["SIGNOFF_MODEL"] = None
    one_sentence(bench.run("x"), *(part.format(own) for part in parts))


VARIABLES: Mapping[str, tuple[dict[str, str], list[str]]] = {
    "turns": ({"SIGNOFF_TURNS": "0"}, ["SIGNOFF_TURNS is '0'", "a whole number from 1 on"]),
    "tools": ({"SIGNOFF_TOOLS": "shel"}, ["SIGNOFF_TOOLS names 'shel'"]),
    "approve": ({"SIGNOFF_APPROVE": "terminl"}, ["SIGNOFF_APPROVE names 'terminl'"]),
    "rounds": ({"SIGNOFF_ROUNDS": "perhaps"}, ["SIGNOFF_ROUNDS is 'perhaps'", "true or false"]),
    "no file": ({"SIGNOFF_CONFIG": "/no/such.toml"}, ["no file /no/such.toml", "SIGNOFF_CONFIG names"]),
}


@pytest.mark.parametrize("case", VARIABLES)
def test_what_is_wrong_in_the_environment_is_one_sentence(case: str, bench: Bench) -> None:
    env, parts = VARIABLES[case]
    one_sentence(bench.run("x", **env), *parts)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--config", "/no/such.toml"], ["no file /no/such.toml", "--config names"]),
        (["--config", ""], ["--config is empty", "or none"]),
        (["--config", "/"], ["/ is not a file"]),
        (["--seconds", "nan"], ["--seconds"]),
    ],
)
def test_what_is_wrong_on_the_command_line_is_one_sentence(
    words: list[str], parts: list[str], bench: Bench
) -> None:
    one_sentence(bench.run("x", *words), *parts)


@POSIX
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o664])
def test_a_file_that_others_may_write_is_refused(mode: int, bench: Bench, own: Path) -> None:
    written(own, "turns = 3").chmod(mode)
    one_sentence(bench("threads"), "Other users may change", f"chmod go-w {own}")


@pytest.mark.skipif(sys.platform == "win32" or os.getuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_refused(bench: Bench, own: Path) -> None:
    os.chown(written(own, "turns = 3"), 12_345, -1)
    one_sentence(bench("threads"), "belong to another user")


@POSIX
def test_a_pipe_is_not_waited_for(bench: Bench, own: Path) -> None:
    os.mkfifo(own)
    one_sentence(bench("threads"), f"{own} is not a file")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tools": "shel"}, "--tools names 'shel'"),
        ({"turns": "many"}, "--turns is 'many'; write a whole number"),
        ({"config": 3}, "--config is 3; write a path"),
        ({"turn": 3}, "--turn is not a setting"),
    ],
)
def test_a_wrong_value_is_one_sentence_in_python_too(options: dict[str, Any], told: str) -> None:
    with pytest.raises(SetupError, match=told):
        Given(**options)
