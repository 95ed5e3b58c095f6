"""What a thread runs with: settings that it remembers, the choice of a model, and which database."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from signoff import SetupError, sqlite_storage
from signoff.front.database import database
from signoff.front.settings import Given, Settings, recall, remember, settle
from signoff.models import ScriptedModel
from signoff.models.choose import check_model, choose_model


class TestSettings:
    BEFORE = Settings(workspace="/", model="gpt-a", base_url="http://a/v1", turns=7, talk_turns=3)
    CASES: Mapping[str, tuple[Given, Settings | None, dict[str, str], str, str | None]] = {
        "nothing": (Given(), None, {}, "local", None),
        "option": (Given(model="m"), None, {"SIGNOFF_MODEL": "e"}, "m", None),
        "environment": (
            Given(),
            None,
            {"SIGNOFF_MODEL": "e", "OPENAI_BASE_URL": "http://e"},
            "e",
            "http://e",
        ),
        "the thread's": (Given(), BEFORE, {"SIGNOFF_MODEL": "e"}, "gpt-a", "http://a/v1"),
        "option on a thread": (Given(model="m"), BEFORE, {}, "m", None),
        "address on a thread": (Given(base_url="http://b"), BEFORE, {}, "gpt-a", "http://b"),
        "local by name": (Given(model="local"), BEFORE, {"OPENAI_BASE_URL": "http://e"}, "local", None),
    }

    @pytest.mark.parametrize("case", CASES)
    def test_where_the_model_comes_from(self, case: str) -> None:
        given, before, env, model, base_url = self.CASES[case]
        settled = settle(given, before, env)
        assert (settled.model, settled.base_url) == (model, base_url)

    def test_limits_and_workspace_are_the_threads_unless_given(self, tmp_path: Path) -> None:
        kept = settle(Given(), self.BEFORE, {})
        assert (kept.workspace, kept.turns, kept.talk_turns) == ("/", 7, 3)
        given = settle(Given(workspace=tmp_path, turns=2, talk_turns=1), self.BEFORE, {})
        assert (given.workspace, given.turns, given.talk_turns) == (str(tmp_path), 2, 1)
        fresh = settle(Given(), None, {})
        assert (fresh.workspace, fresh.turns, fresh.talk_turns) == (str(Path.cwd()), 30, 5)

    @pytest.mark.parametrize("thread_id", ["t", "a.b", "100%", "*", ".", "é\n"])
    def test_a_thread_remembers_its_own_settings(self, tmp_path: Path, thread_id: str) -> None:
        with sqlite_storage(tmp_path / "db") as storage:
            remember(storage.store, f"{thread_id}2", self.BEFORE.model_copy(update={"turns": 2}))
            assert recall(storage.store, thread_id) is None
            remember(storage.store, thread_id, self.BEFORE)
            assert recall(storage.store, thread_id) == self.BEFORE

    def test_no_secret_is_remembered(self, tmp_path: Path) -> None:
        secret = self.BEFORE.model_copy(
            update={"base_url": "https://me:hunter2@host:99/v1?key=hunter2#hunter2"}
        )
        with sqlite_storage(tmp_path / "db") as storage:
            remember(storage.store, "t", secret)
            found = recall(storage.store, "t")
        assert found is not None
        assert found.base_url == "https://host:99/v1"
        files = [file for file in tmp_path.rglob("*") if file.is_file()]
        assert not [file for file in files if b"hunter2" in file.read_bytes()]


class TestChoice:
    def test_an_openai_compatible_server(self) -> None:
        model = choose_model("m", "http://127.0.0.1:1/v1", {"OPENAI_API_KEY": "k"}).model
        assert isinstance(model, ChatOpenAI)
        assert isinstance(model.openai_api_key, SecretStr)
        assert model.openai_api_key.get_secret_value() == "k"
        assert (model.model_name, model.openai_api_base) == ("m", "http://127.0.0.1:1/v1")

    def test_an_address_needs_no_key_and_openai_does(self) -> None:
        assert choose_model("m", "http://127.0.0.1:1/v1", {}).model
        for attempt in (choose_model, check_model):
            with pytest.raises(SetupError, match="OPENAI_API_KEY"):
                attempt("m", None, {})

    @pytest.mark.parametrize("url", ["localhost:8000", "ftp://h/v1", "http://", "/v1", "http//h"])
    def test_what_is_no_address(self, url: str) -> None:
        with pytest.raises(SetupError, match="not a web address"):
            check_model("m", url, {"OPENAI_API_KEY": "k"})

    SCRIPTS: Mapping[str, tuple[str, str | None]] = {
        "model": ("from signoff.models import ScriptedModel\nmodel = ScriptedModel(['hi'])", None),
        "script": ("script = ['hi']", None),
        "neither": ("x = 1", "defines neither"),
        "broken": ("1 / 0", "ZeroDivisionError"),
        "no python": ("no python here", "SyntaxError"),
    }

    @pytest.mark.parametrize("case", SCRIPTS)
    def test_a_scripted_model_from_a_file(self, tmp_path: Path, case: str) -> None:
        source, problem = self.SCRIPTS[case]
        (tmp_path / "model.py").write_text(source)
        name = f"scripted:{tmp_path / 'model.py'}"
        if problem:
            with pytest.raises(SetupError, match=problem):
                choose_model(name, None, {})
        else:
            model = choose_model(name, None, {}).model
            assert isinstance(model, ScriptedModel)
            assert model.invoke("?").text == "hi"


ADDRESSES = {
    "plain": ("postgresql://h/db", "postgresql://h/db"),
    "user": ("postgres://me@h:5/db", "postgres://me@h:5/db"),
    "password": ("postgresql://me:pw@h/db?a=b", "postgresql://me@h/db?a=b"),
    "empty password": ("postgresql://me:@h/db", "postgresql://me@h/db"),
    "password with an at": ("postgresql://me:p@pw@h/db", "postgresql://me@h/db"),
    "password in the query": ("postgresql://h/db?password=pw&a=b", "postgresql://h/db?a=b"),
    "password at the end": ("postgresql://h/db?a=b&password=pw", "postgresql://h/db?a=b"),
    "password alone": ("postgresql://h/db?password=pw", "postgresql://h/db"),
    "key's password": ("postgresql://h/db?sslpassword=pw&sslkey=k", "postgresql://h/db?sslkey=k"),
    "several hosts": ("postgresql://me:pw@h1:1,h2:2/db", "postgresql://me@h1:1,h2:2/db"),
}


class TestDatabase:
    @pytest.mark.parametrize("case", ADDRESSES)
    def test_an_address_is_shown_without_its_password(self, case: str) -> None:
        given, shown = ADDRESSES[case]
        found = database(given, {})
        assert (found.where, str(found), found.options) == (given, shown, ["--database", shown])
        kept = database(None, {"SIGNOFF_DATABASE": given})
        assert (kept.where, kept.options) == (given, []), "the environment names it for the next command, too"

    def test_a_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        path = str(tmp_path / "db")
        for found in (database("db", {}), database(None, {"SIGNOFF_DATABASE": "db"})):
            assert (str(found), found.options, found.exists()) == (path, ["--database", path], False)
        assert database("a", {"SIGNOFF_DATABASE": "b"}).where == str(tmp_path / "a")

    def test_the_default_need_not_be_named(self) -> None:
        for found in (database(None, {}), database(None, {"SIGNOFF_DATABASE": ""})):
            assert (found.where.endswith("threads.sqlite"), found.options) == (True, [])
