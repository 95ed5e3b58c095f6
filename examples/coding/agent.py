"""A coding agent on a failing test suite: it has finished when the suite passes, and not when it says so.

    python examples/coding/agent.py                                         # a script plays the model
    python examples/coding/agent.py --model anthropic:claude-sonnet-4-5     # a real one; needs its key

Each run works on a fresh copy of `project`, in a temporary folder that it names at the end. It needs pytest
and bash. The model's commands run as you, in no sandbox.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from signoff import Ended, Session, build_graph, sqlite_storage
from signoff.events import CallFinished, Said
from signoff.models import ScriptedModel, call
from signoff.tools import terminal_tool, workspace_tools

ORIGINAL = Path(__file__).parent / "project"
TASK = "Some tests of this project fail. Find out why, and fix the code; leave the tests as they are."
RUN_TESTS = "python -B -m pytest -q"

# 1. The script: a model that fixes two of three bugs and says that it is done. It is refused, reads what the
#    suite says, fixes the third, and finishes again.
script = [
    call("run_shell", command=RUN_TESTS),
    [call("read_file", path="prices.py"), call("read_file", path="test_prices.py")],
    ["The discount is added instead of taken off, and an order of exactly 50.00 pays for shipping.",
     call("edit_file", path="prices.py", old="(100 + discount)", new="(100 - discount)"),
     call("edit_file", path="prices.py", old="cents > 5000", new="cents >= 5000")],
    call("finish_task", summary="Fixed the discount and the shipping. All tests pass."),
    ["The suite says that a test still fails: the cents need two digits.",
     call("edit_file", path="prices.py", old="{cents % 100}", new="{cents % 100:02}")],
    call("run_shell", command=RUN_TESTS),
    call("finish_task", summary="Fixed the discount, the limit of free shipping, and cents below ten."),
]  # fmt: skip


# 2. The check. It passes by returning True; what else it returns goes back to the model, as the reason of the
#    refusal. It takes the code from the workspace and the tests from the original, so that changing a test
#    gains nothing, and it runs them in a fresh copy, so that no old bytecode is trusted.
def suite_check(workspace: Path):
    def the_suite_passes(claim):
        with tempfile.TemporaryDirectory() as fresh:
            shutil.copytree(
                workspace, fresh, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
            )
            for name in ("test_prices.py", "pytest.ini"):
                shutil.copy(ORIGINAL / name, fresh)
            command = [sys.executable, "-m", "pytest", "-q"]
            done = subprocess.run(command, cwd=fresh, capture_output=True, text=True, check=False)
        return True if done.returncode == 0 else f"The suite fails:\n{(done.stdout + done.stderr)[-2000:]}"

    return the_suite_passes


# 3. The agent: files, a terminal, the check, and a bound for what it may use.
def make_agent(model, workspace: Path, storage):
    return build_graph(
        model,
        [*workspace_tools(workspace), terminal_tool(workspace)],
        system_prompt=f"You are a careful programmer. Run the tests by `{RUN_TESTS}`.",
        checks=[suite_check(workspace)],
        limits={"turns": 30},
        storage=storage,
    )


# 4. The run, told as it happens. `finish_task` is a call like others: here one that may be refused.
def main() -> int:
    parser = argparse.ArgumentParser(description="A coding agent on a failing test suite.")
    parser.add_argument("--model", metavar="PROVIDER:NAME", help="a real model; default: a script")
    model = parser.parse_args().model or ScriptedModel(script)

    folder = Path(tempfile.mkdtemp(prefix="signoff-coding-"))
    workspace = folder / "project"
    shutil.copytree(ORIGINAL, workspace, ignore=shutil.ignore_patterns("__pycache__"))
    with sqlite_storage(folder / "threads.sqlite") as storage:
        session = Session(make_agent(model, workspace, storage), "fix")
        for event in session.events(TASK, tokens=False):
            match event:
                case Said(text=text) if text:
                    print(text)
                case CallFinished(name=name, ok=ok, result=result):
                    print(f"{name}: {'ok' if ok else result}")
    decision = event.decision  # the last event says what the run came to
    if not isinstance(decision, Ended):
        print(f"It waits for a person: {decision.document()}")
        return 3
    outcome = decision.outcome
    print(f"{outcome.status}, {outcome.verified}, refusals {outcome.refusals}: {outcome.summary}")
    print(f"The fixed project: {workspace}")
    return 0 if outcome.status == "success" else 1


if __name__ == "__main__":
    sys.exit(main())
