"""The agent thinks, the driver runs its commands for all to see, the agent observes, and thinks on."""

import subprocess

from signoff import Action, Answer, Failed, Finished, Message, Question, Session, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call, reply


def shell(command: str) -> str:
    """Run a command in the terminal."""
    raise NotImplementedError("the driver runs it")


script = [
    reply("I look at what is here.", call("shell", command="echo hello > note.txt; ls *.txt")),
    "There is a note.",
    call("ask_user", question="Shall I read it?"),
    call("shell", command="cat note.txt"),
    call("finish_task", summary="The note says hello."),
]
with sqlite_storage("threads.sqlite") as storage:
    graph = build_graph(ScriptedModel(script), tools=[shell], hand_over=["shell"], storage=storage)
    session = Session(graph, "driven")
    decision = session.step("Read the note.")
    while not isinstance(decision, Finished | Failed):
        match decision:
            case Message(text=text):
                print(text)
                decision = session.step()
            case Action(args=args):
                print("$", args["command"])
                done = subprocess.run(args["command"], shell=True, capture_output=True, text=True)
                print(done.stdout, end="")
                decision = session.step(Answer({"output": done.stdout, "exit_code": done.returncode}))
            case Question(text=text):
                print(text, "yes")
                decision = session.step(Answer("yes"))
    print(decision.outcome.status, "-", decision.outcome.summary)
