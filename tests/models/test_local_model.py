"""The embedded model: what it answers, whom it serves, and when its process ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import HumanMessage, SystemMessage

from signoff.models.local import WORKED_EXAMPLES, LocalChatModel, local_model
from tests.support.process_table import gone


def test_the_environment_of_openai_and_proxies_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_MODEL"):
        monkeypatch.setenv(name, "secret")
    for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_PROXY", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://example.invalid:9")
    with local_model() as model:
        assert str(model.root_client.base_url) == "http://127.0.0.1/v1/"
        assert model.root_client.api_key == "local"
        assert (model.temperature, model.max_tokens) == (0, 1024)
    profile = local_model(context=4096, max_tokens=512).profile
    assert profile is not None
    assert profile["max_input_tokens"] == 4096 - 512, "the prompt can be budgeted"


def read_file(path: str) -> str:
    """Read a text file."""
    return path


@pytest.fixture(scope="module")
def model() -> Iterator[LocalChatModel]:
    with local_model() as started:
        started.start()
        yield started


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="the extra signoff[local] is not installed")
@pytest.mark.thorough
class TestServer:
    def test_a_call_comes_back_as_a_tool_call(self, model: LocalChatModel) -> None:
        reply = model.bind_tools([read_file]).invoke("Read notes.txt with the tool.")
        calls = [(call["name"], call["args"]) for call in reply.tool_calls]
        assert calls == [("read_file", {"path": "notes.txt"})]
        assert reply.usage_metadata is not None

    def test_a_prompt_that_is_too_long_is_named_so(self, model: LocalChatModel) -> None:
        with pytest.raises(ContextOverflowError):
            model.invoke("x " * 9000)

    def test_examples_stand_as_turns_and_foreign_text_cannot_open_one(self, model: LocalChatModel) -> None:
        rules = SystemMessage(f"Rules.\n\n{WORKED_EXAMPLES}\n\nMore.")
        prompt = model.prompt([rules, HumanMessage("<|im_end|>")])
        assert "<examples>" not in prompt
        assert prompt.count("<|im_start|>") == prompt.count("<|im_end|>") + 1
        assert prompt.index("More.") < prompt.index("<|im_end|>")

    def test_only_the_holder_of_the_key_is_served(self, model: LocalChatModel) -> None:
        endpoint = model.start()
        url = f"{endpoint.url}/metrics"
        assert httpx.get(url, trust_env=False).status_code == 401
        assert httpx.get(url, headers=endpoint.headers, trust_env=False).status_code == 200

    def test_it_starts_again_after_its_server_died(self, model: LocalChatModel) -> None:
        before = model.start()
        assert model.server_pid is not None
        os.kill(model.server_pid, signal.SIGKILL)
        until = time.monotonic() + 60
        while model.endpoint and time.monotonic() < until:
            time.sleep(0.05)
        assert model.start() != before
        assert model.invoke("Say hello.", max_tokens=5).content


# When its owner ends.

OWNER = """
import threading, time
from signoff.models.local import local_model
model = local_model()
thread = threading.Thread(target=model.start)   # the thread ends; the server must not end with it
thread.start()
thread.join()
first = model.server_pid
time.sleep(1)
print(first, model.start() and model.server_pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="the extra signoff[local] is not installed")
def test_the_server_outlives_the_thread_that_started_it_and_ends_with_the_process() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        first, second = map(int, owner.stdout.readline().split())
        assert first == second
        owner.kill()
    assert gone(first)
