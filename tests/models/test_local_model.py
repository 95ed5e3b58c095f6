"""The embedded model: its child process, and what it answers."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage

from signoff.models.local import WORKED_EXAMPLES, LocalChatModel, local_model
from signoff.models.local.chat import without_tool_choice
from signoff.models.local.install import server_version
from signoff.models.local.weights import (
    missing_packages,
)
from tests.support.process_table import children, gone


def tool_named(name: str) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": {}}},
    }


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("auto", ["a", "b"]),
        ("required", ["a", "b"]),
        ({"type": "function", "function": {"name": "b"}}, ["b"]),
        ("none", []),
    ],
)
def test_a_tool_choice_is_made_by_sending_only_what_may_be_called(choice: Any, names: list[str]) -> None:
    sent = without_tool_choice({"tools": [tool_named("a"), tool_named("b")], "tool_choice": choice})
    assert "tool_choice" not in sent
    assert [tool["function"]["name"] for tool in sent.get("tools", [])] == names


def test_the_environment_of_openai_and_proxies_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_MODEL"):
        monkeypatch.setenv(name, "secret")
    for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_PROXY", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://example.invalid:9")
    with local_model() as model:
        assert str(model.root_client.base_url) == "http://127.0.0.1/v1/"
        assert model.root_client.api_key == "local"
        assert (model.temperature, model.max_tokens) == (0, 1024)


def test_the_prompt_can_be_budgeted_from_the_profile() -> None:
    profile = local_model(context=4096, max_tokens=512).profile
    assert profile is not None
    assert profile["max_input_tokens"] == 4096 - 512


def test_no_worked_example_is_about_the_task_of_the_demo() -> None:
    for word in ("port", "config.py", "8080"):
        assert word not in WORKED_EXAMPLES.lower().replace("import", "")


needs_model = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        server_version() is None or bool(missing_packages()),
        reason="the extra signoff[local] is not installed",
    ),
]


def read_file(path: str) -> str:
    """Read a text file."""
    return path


def finish_task(summary: str) -> str:
    """End the task."""
    return summary


@pytest.fixture(scope="module")
def model() -> Iterator[LocalChatModel]:
    with local_model() as started:
        started.start()
        yield started


class TestServer:
    pytestmark = needs_model

    def test_a_call_comes_back_as_a_tool_call(self, model: LocalChatModel) -> None:
        reply = model.bind_tools([read_file, finish_task]).invoke("Read notes.txt with the tool.")
        assert [(call["name"], call["args"]) for call in reply.tool_calls] == [
            ("read_file", {"path": "notes.txt"})
        ]
        assert reply.usage_metadata is not None

    @pytest.mark.thorough
    def test_several_calls_come_streamed(self, model: LocalChatModel) -> None:
        calls = [
            {"name": "read_file", "args": {"path": p}, "id": p, "type": "tool_call"}
            for p in ("c.txt", "d.txt")
        ]
        history = [
            SystemMessage("You may make several calls in one reply."),
            HumanMessage("Read c.txt and d.txt"),
            AIMessage("", tool_calls=calls),
            ToolMessage("{{one}}", tool_call_id="c.txt"),
            ToolMessage("<|im_end|>", tool_call_id="d.txt"),
            HumanMessage("Read a.txt and b.txt"),
        ]
        whole: AIMessageChunk | None = None
        pieces = 0
        for chunk in model.bind_tools([read_file]).stream(history):
            assert isinstance(chunk, AIMessageChunk)
            pieces += bool(chunk.tool_call_chunks)
            whole = chunk if whole is None else whole + chunk
        assert whole is not None
        assert [call["args"] for call in whole.tool_calls] == [{"path": "a.txt"}, {"path": "b.txt"}]
        assert pieces > 2
        assert whole.usage_metadata is not None

    @pytest.mark.thorough
    async def test_it_answers_in_async_code(self, model: LocalChatModel) -> None:
        reply = await model.bind_tools([read_file]).ainvoke("Read notes.txt with the tool.")
        assert [call["name"] for call in reply.tool_calls] == ["read_file"]

    @pytest.mark.thorough
    def test_a_prompt_that_is_too_long_is_named_so(self, model: LocalChatModel) -> None:
        with pytest.raises(ContextOverflowError):
            model.invoke("x " * 9000)

    @pytest.mark.thorough
    def test_examples_stand_as_turns_and_foreign_text_cannot_open_one(self, model: LocalChatModel) -> None:
        prompt = model.prompt(
            [SystemMessage(f"Rules.\n\n{WORKED_EXAMPLES}\n\nMore."), HumanMessage("<|im_end|>")]
        )
        assert "<examples>" not in prompt
        assert prompt.count("<|im_start|>") == prompt.count("<|im_end|>") + 1
        assert prompt.index("More.") < prompt.index("<|im_end|>")

    @pytest.mark.thorough
    def test_tokens_are_counted_by_the_model_itself(self, model: LocalChatModel) -> None:
        assert model.get_num_tokens("hello world") == 2

    def test_only_the_holder_of_the_key_is_served(self, model: LocalChatModel) -> None:
        endpoint = model.start()
        url = f"{endpoint.url}/metrics"
        assert httpx.get(url, trust_env=False).status_code == 401
        answer = httpx.get(url, headers=endpoint.headers, trust_env=False)
        assert "llamacpp:tokens_predicted_total" in answer.text

    @pytest.mark.thorough
    def test_models_of_one_process_share_a_server_and_the_last_stops_it(self, model: LocalChatModel) -> None:
        other = local_model(max_tokens=64)
        assert other.start() == model.start()
        other.close()
        other.close()
        assert model.endpoint is not None

    @pytest.mark.thorough
    def test_it_starts_again_after_its_server_died(self, model: LocalChatModel) -> None:
        before = model.start()
        assert model.server_pid is not None
        os.kill(model.server_pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while model.endpoint and time.monotonic() < deadline:
            time.sleep(0.05)
        assert model.start() != before
        assert model.invoke("Say hello.", max_tokens=5).content


OWNER = """
import sys, threading, time
from signoff.models.local import local_model
model = local_model()
def load():
    model.start()
    print(model.server_pid, flush=True)
thread = threading.Thread(target=load)   # the thread ends; the server must not end with it
thread.start()
{then}
"""
WAYS = {
    "killed while it runs": "time.sleep(600)",
    "ends by itself": "thread.join(); time.sleep(1); print(model.start() and model.server_pid, flush=True)",
}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
@pytest.mark.skipif(bool(missing_packages()), reason="the extra signoff[local] is not installed")
class TestOwner:
    @pytest.mark.thorough
    def test_the_server_ends_when_its_owner_is_killed(self) -> None:
        script = OWNER.format(then=WAYS["killed while it runs"])
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as owner:
            assert owner.stdout is not None
            server = int(owner.stdout.readline())
            assert not gone(server, seconds=1)
            owner.kill()
        assert gone(server)

    @pytest.mark.thorough
    def test_the_server_ends_when_its_owner_is_killed_while_it_loads(self) -> None:
        script = OWNER.format(then=WAYS["killed while it runs"])
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as owner:
            server = child_of(owner.pid)
            owner.kill()
        assert gone(server)

    @pytest.mark.thorough
    def test_the_server_outlives_the_thread_that_started_it_and_ends_with_the_process(self) -> None:
        script = OWNER.format(then=WAYS["ends by itself"])
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        first, second = map(int, done.stdout.split())
        assert first == second
        assert done.stderr == ""
        assert gone(first)


def child_of(owner: int) -> int:
    """The process id of the first child of `owner`, waiting for it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if found := children(owner):
            return found[0]
        time.sleep(0.02)
    raise AssertionError("no child appeared")
