"""A research lead with two researchers and a writer. No letter leaves before a person has approved it.

python examples/team/agent.py                # a script plays the models; works up to the letter, and waits
python examples/team/agent.py --approve      # in another process: goes on where it stood
python examples/team/agent.py --reject "Too early"
python examples/team/agent.py --model anthropic:claude-sonnet-4-5      # a real one; needs its key
"""

import argparse
import sys
from pathlib import Path

from langgraph.types import Command

from signoff import build_graph, delegate, outcome_of, sqlite_storage
from signoff.models import ScriptedModel, call
from signoff.tools import workspace_tools

DOCUMENTS = Path(__file__).parent.parent / "research" / "documents"
QUESTION = "When does the council have to act on the lighthouse? Write to it."


# 1. What leaves the machine: the one tool with an effect. Here it writes into a folder.
def letter_tool(outbox: Path):
    def send_letter(to: str, text: str) -> str:
        """Send a letter. It cannot be taken back."""
        outbox.mkdir(exist_ok=True)
        letter = outbox / f"{to}.txt"
        letter.write_text(text + "\n", "utf-8")
        return f"Sent to {to}."

    return send_letter


# 2. The scripts. Each model says its next reply, whichever process asks it, and begins anew with each task.
def played(*replies):
    def script(messages):
        found = replies[sum(message.type == "ai" for message in messages) % len(replies)]
        return found(messages) if callable(found) else found

    return ScriptedModel(script)


def ended(done, not_done):
    """The end of a task whose last call decides how it ends."""

    def reply(messages):
        if messages[-1].status == "error":
            return call("finish_task", summary=not_done, outcome="partial")
        return call("finish_task", summary=done)

    return reply


LETTER = "Dear council, the tower has about 92 years left before fewer than 20 metres remain."
SCRIPTS = {
    "archivist": played(
        call("read_file", path="council.txt"),
        call("finish_task", summary="It acts once fewer than 20 metres are left."),
    ),
    "surveyor": played(
        call("read_file", path="survey.txt"),
        call("finish_task", summary="31 metres were left in 2019; 12 cm are lost every year."),
    ),
    "writer": played(
        call("send_letter", to="council", text=LETTER),
        ended("The letter is sent.", "The letter is written, and may not leave."),
    ),
    "lead": played(
        [
            call("archivist", task="When has the council decided to act?"),
            call("surveyor", task="How far is the edge from the tower, and how fast does it move?"),
        ],
        call("writer", task="Write to the council: 31 - 20 metres at 12 cm a year last about 92 years."),
        ended(
            "The council has until about 2111; the letter tells it so.",
            "The council has until about 2111; it was not told.",
        ),
    ),
}


# 3. The team. A delegate is a graph of its own, with its own tools and limits; it lives in the lead's thread.
#    The lead's policy holds for all below it: a call that writes needs a person, whoever makes it.
def make_team(model, outbox: Path, storage):
    def member(name, tools, prompt, turns):
        graph = build_graph(
            model or SCRIPTS[name], tools, system_prompt=prompt, limits={"turns": turns}, name=name
        )
        return delegate(name, graph, description=prompt)

    reading = [one for one in workspace_tools(DOCUMENTS) if one.metadata["kind"] == "read"]
    return build_graph(
        model or SCRIPTS["lead"],
        [
            member("archivist", reading, "Finds what the council has decided, from its minutes.", 10),
            member("surveyor", reading, "Finds what was measured, from the surveys.", 10),
            member("writer", [letter_tool(outbox)], "Writes letters from the facts it is given.", 5),
        ],
        system_prompt="Let the researchers find the facts, and the writer write the letter.",
        approvals={"write": True},
        limits={"turns": 10, "tool_calls": 40, "children": 6},
        storage=storage,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="A research lead with two researchers and a writer.")
    parser.add_argument("question", nargs="?", default=QUESTION)
    parser.add_argument("--database", default="team.sqlite")
    parser.add_argument("--outbox", type=Path, default=Path("outbox"))
    parser.add_argument("--approve", action="store_true", help="let the letter go")
    parser.add_argument("--reject", metavar="WHY", help="say why it must not go")
    parser.add_argument("--model", metavar="PROVIDER:NAME", help="a real model; default: scripts")
    given = parser.parse_args()

    config = {"configurable": {"thread_id": "lighthouse"}}
    with sqlite_storage(given.database) as storage:
        team = make_team(given.model, given.outbox, storage)
        if waits := team.get_state(config).interrupts:
            decision = {"type": "reject", "message": given.reject} if given.reject else {"type": "approve"}
            if not (given.approve or given.reject):
                show(waits)
                return 0
            result = team.invoke(
                Command(resume={waiting.id: {"decisions": [decision]} for waiting in waits}), config
            )
        else:
            result = team.invoke({"messages": [("user", given.question)]}, config)
    if "__interrupt__" in result:
        show(result["__interrupt__"])
        return 0
    outcome = outcome_of(result)
    print(f"{outcome.status}, {outcome.claim}: {outcome.summary or outcome.error}")
    if outcome.tree:
        print(f"{outcome.tree.delegates} delegates, {outcome.tree.turns} turns of all together")
    return 0 if outcome.status == "success" else 1


def show(waits) -> None:
    for waiting in waits:
        for asked in waiting.value["action_requests"]:
            print(f"{' > '.join(waiting.value.get('path', ['lead']))} wants {asked['name']}:")
            for name, value in asked["args"].items():
                print(f"  {name}: {value}")
    print("Say --approve, or --reject WHY.")


if __name__ == "__main__":
    sys.exit(main())
