"""LangChain's own tests of middleware and agents hold for `build_graph`, but for those declared here.

They are in the source distribution of the version that uv.lock names, under the MIT licence. It is fetched
for the run into `.bench/`; nothing of it is kept in this repository. They run as they are, in a process of
their own, in which `create_agent` is that of langchain_agents.py.

Not run are the files without an agent in them, and those of what a Signoff graph refuses or does otherwise as
a whole: a person's decisions, both call limits, summaries, structured answers by strategies, tools that a
middleware brings while it runs, names of agents, the repair of unreadable calls, and LangChain's diagrams,
traces and streams.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".bench" / "langchain"
FOLDER = "tests/unit_tests/agents"
FILES = (
    "middleware/core/test_decorators.py",
    "middleware/core/test_framework.py",
    "middleware/core/test_sync_async_wrappers.py",
    "middleware/core/test_tools.py",
    "middleware/core/test_wrap_*.py",
    "middleware/implementations/test_auto_mode.py",
    "middleware/implementations/test_model_[fr]*.py",
    "middleware/implementations/test_pii.py",
    "middleware/implementations/test_shell_tool.py",
    "middleware/implementations/test_todo.py",
    "middleware/implementations/test_tool_[ers]*.py",
    "middleware_typing/test_*.py",
    "test_injected_runtime_create_agent.py",
    "test_kwargs_tool_runtime_injection.py",
    "test_state_schema.py",
    "test_subagent_streaming.py",
    "test_system_message.py",
)
FEWEST = 240
"""So many tests that build an agent have to hold, else they were not found."""

_RAISED = "an error of a tool is a result that the model reads, never raised out of the run"
_OUTCOME = "an error of a middleware is the outcome of the task, never raised out of the run"
_ONE_WAY = "it is a SetupError before the first call; LangChain raises NotImplementedError at the call"
_ENDED = "a jump to the end before an accepted finish is an outcome of its own, and no success"
_NO_TASK = "without a message of a person there is no task, and no middleware runs"
_STRUCTURED = "a structured answer is an argument of the finish; no strategy and no middleware writes it"
_UNKNOWN = "an input that the graph does not have is a SetupError; LangGraph drops it"
_IN_PLACE = "the messages of a request are the prompt's own: what is appended to them is no history"
_STREAMED = "LangChain's transformers of streams are not taken over, and a finish is a message, too"
_DRAWN = "the drawing shows the states of the machine"
_UNFINISHED = "a reply without a call ends no task: the model is asked again, and the script has no more"
# The names of tests and of classes, as patterns of whole names.
DIFFERENT: Mapping[str, str] = {
    "test_tool_error_none_propagates": _RAISED,
    r"test_tool_retry_\w+_(raises|reraises|filter|behavior)": _RAISED,
    "test_classifier_failure_terminates_agent_run": _RAISED,
    "test_tool_retry_parallel_interrupt_with_successful_sibling": (
        "reads that run beside each other are saved together: one that has ended runs again after the answer"
    ),
    "test_unknown_tool_raises_error": _OUTCOME,
    "TestCommand(Goto|Resume|Graph)Disallowed": _OUTCOME,
    "test_non_reducer_key_conflict_raises": "of two writes without a reducer the last one counts",
    r"test_\w*(sync|async)_only\w*": _ONE_WAY,
    r"test_\w*with_only_async\w*": _ONE_WAY,
    "test_async_dynamic_prompt_skipped_on_sync_invoke": _ONE_WAY,
    "test_(async_)?can_jump_to_integration": _ENDED,
    "test_create_agent_(async_)?jump": _NO_TASK,
    "test_missing_human_message_is_rejected": _NO_TASK,
    "test_tools_to_model_edge_with_structured_and_regular_tool_calls": _STRUCTURED,
    "test_command_structured_response_conflicts_with_model_response": _STRUCTURED,
    "test_structured_response_preserved": _STRUCTURED,
    "test_refusal_with_provider_strategy": _STRUCTURED,
    "test_create_agent_dict_response_format": "its schema is no JSON schema, which is a SetupError",
    "test_public_private_state_for_custom_middleware": _UNKNOWN,
    "test_state_schema_with_private_state_field": _UNKNOWN,
    "test_create_agent_(async_)?invoke": _IN_PLACE,
    "test_on_model_call": "messages of a person behind each other are one in the prompt",
    "test_agent_routes_using_latest_human_message": "the caller's messages are copied before they get an id",
    "test_tool_runtime_config_access": "the recursion limit of a run is not that of its tools",
    "test_tool_runtime_name_based_injection": "what is injected is said by the annotation, not by the name",
    "test_refusal_is_opt_in": _UNFINISHED,
    "test_non_refusals_pass_through": _UNFINISHED,
    "test_stream_surfaces_refusal": _OUTCOME,
    "test_transformer_registered_before_messages_transformer_on_agent": _STREAMED,
    "Test(PII|LLMToolEmulator)StreamingEndToEnd": _STREAMED,
    "test_(emulation|selection)_call_stays_off_the_messages_stream": _STREAMED,
    "test_simple_agent_graph": _DRAWN,
    "test_agent_graph_with_jump_to_end_as_after_agent": _DRAWN,
    "test_async_middleware_with_can_jump_to_graph_snapshot": _DRAWN,
    "test_default_model_deprecated_and_missing_langchain_anthropic_raises_clear_error": (
        "the package that it wants missing is there"
    ),
}


def uv(*arguments: str) -> None:
    program = shutil.which("uv") or ROOT / ".tools" / "bin" / "uv"
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"It needs the package index, or {KEPT} from another machine: {done.stderr}"


def distribution() -> Path:
    """The archive that uv.lock names, with its sum."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))
    package = next(package for package in lock["package"] if package["name"] == "langchain")
    archive = KEPT / f"langchain-{package['version']}.tar.gz"
    if not archive.exists():
        wanted = ("--no-deps", "--no-binary", "langchain", f"langchain=={package['version']}")
        uv("tool", "run", "pip", "download", "--quiet", "--dest", str(KEPT), *wanted)
    assert package["sdist"]["hash"] == f"sha256:{hashlib.sha256(archive.read_bytes()).hexdigest()}"
    return archive


def helpers() -> Path:
    """A folder with what one of the files imports beside what our own tests have."""
    folder = KEPT / "helpers"
    if not (folder / "pytest_mock").exists():
        uv("pip", "install", "--quiet", "--no-deps", "--target", str(folder), "pytest-mock")
    return folder


def played(folder: Path) -> ElementTree.Element:
    """The report of the tests below `folder`. Their own conftest.py needs packages that we do not have."""
    report = folder / "report.xml"
    files = sorted(path for pattern in FILES for path in (folder / FOLDER).glob(pattern))
    settings = ("-c", os.devnull, "--rootdir", ".", "--noconftest", "-p", "no:cacheprovider", "-W", "ignore")
    plugin = ("-p", "langchain_agents", "-o", "asyncio_mode=auto", "--timeout", "120")
    path = os.pathsep.join(map(str, (Path(__file__).parent, helpers(), ROOT)))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *settings, *plugin, "--junitxml", str(report), *files],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stdout[-3000:] + done.stderr[-3000:]
    return ElementTree.parse(report).getroot()


def names(case: ElementTree.Element) -> Iterator[str]:
    yield case.attrib["name"].partition("[")[0]
    yield case.attrib["classname"].rpartition(".")[2]


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_langchains_own_tests_hold_for_build_graph(tmp_path: Path) -> None:
    archive = distribution()
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    failed: dict[str, str] = {}
    different: set[str] = set()
    agents = 0
    for case in played(tmp_path / archive.name.removesuffix(".tar.gz")).iter("testcase"):
        bad = next((found for found in case if found.tag in ("failure", "error")), None)
        if bad is None:
            agents += any(int(one.attrib["value"]) > 0 for one in case.iter("property"))
        elif known := {each for each in DIFFERENT if any(re.fullmatch(each, name) for name in names(case))}:
            different |= known
        else:
            failed[f"{case.attrib['classname']}::{case.attrib['name']}"] = bad.attrib.get("message", "")
    assert failed == {}
    assert DIFFERENT.keys() - different == set(), "these hold by now: they are not declared any more"
    assert agents >= FEWEST
