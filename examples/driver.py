"""The agent thinks, the driver runs its commands for all to see, the agent observes, and thinks on."""

import subprocess

from signoff import Action, Answer, Ended, Message, Outcome, Question, Session, Waiting, build_graph
from signoff.models import ScriptedModel, call, reply


def shell(command: str) -> str:
    """Run a command in the terminal."""
    raise NotImplementedError("the driver runs it")


def run(command: str) -> dict[str, str]:
    print("$", command)
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    print(done.stdout, end="")
    return {"output": done.stdout + done.stderr, "status": "error" if done.returncode else "success"}


LOST = {"output": "It may have run already; look first.", "status": "error"}
script = [
    reply("I look at what is here.", call("shell", command="echo hello > note.txt; ls *.txt")),
    "There is a note.",
    call("ask_user", question="Shall I read it?"),
    call("shell", command="cat note.txt"),
    call("finish_task", summary="The note says hello."),
]
with build_graph(
    ScriptedModel(script), [shell], approvals={"shell": "hand_over"}, storage="threads.sqlite"
) as graph:
    session = Session(graph, "driven")
    decision = session.step("Read the note.")
    while True:
        match decision:
            case Message(text=text):
                print(text)
                decision = session.step()
            case Action(args=args, unknown=False, interrupt_id=wait):
                decision = session.step(Answer(run(args["command"]), wait))
            case Action(interrupt_id=wait):  # handed out before, and nobody said what became of it
                decision = session.step(Answer(LOST, wait))
            case Question(text=text, interrupt_id=wait):
                print(text, "yes")
                decision = session.step(Answer("yes", wait))
            case Waiting(interrupt_id=wait):  # an approval, a finish to confirm
                print(decision.document(), "yes")
                decision = session.step(Answer("yes", wait))
            case Ended(outcome=Outcome(status="error", error=text)):
                print(text)
                break
            case Ended(outcome=outcome):
                print(outcome.status, "-", outcome.summary)
                break
            case _:  # Paused
                break
