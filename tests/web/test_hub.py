"""Threads of the web application: all see the same, each answer counts once, and a run is nobody's."""

import html
import json
import re
import signal
from typing import Any

import pytest

from signoff import Session, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call
from tests.support.benches.page import read
from tests.support.benches.served import ASK, DONE, LOOK, RUN, New, Place, Served, Thread, at_once
from tests.support.process_table import gone
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

CONFIRM = """call(
    "finish_task", summary="Set.", pending_issues=["Nobody tried."], requires_user_confirmation=True
)"""
HELD = f"[{LOOK}, held({LOOK}), {LOOK}, {DONE}]"
PORT = f"[{ASK}, {RUN}, {CONFIRM}]"


def users(thread: Thread) -> list[str]:
    return [message["content"] for message in thread.look().messages if message["role"] == "user"]


def test_a_whole_task_that_two_people_see(new: New) -> None:
    thread = new(PORT)
    with thread.reading() as ada, thread.reading() as bob, thread.reading("another") as other:
        assert thread.write(settings=thread.settings) == 200
        for reader in (ada, bob):
            reader.sees("Which port?", 'data-text="8080"')
        asked = thread.asked()
        other.until(lambda: other.lists(thread.name, "Which port?"))
        thread.answered("1")
        code, told = thread.post("answer", texts=["2"], **asked)
        assert (code, told["late"]) == (409, True)
        for reader in (ada, bob):
            reader.sees("Waiting for approval", "echo it ran")
        edited = {"command": "echo edited >> ran.txt; cat ran.txt", "timeout": 30}
        thread.answered(f"edit: {json.dumps(edited)}")
        for reader in (ada, bob):
            reader.sees("Please confirm", "A person changed this call")
        thread.answered("yes")
        with thread.reading() as late:
            for reader in (ada, bob, late):
                reader.sees("Asserted: done", "Which port?")
            assert ada.parts == bob.parts == late.parts
        assert ada.numbers == sorted(set(ada.numbers)), "no event comes twice"
        ada.types("edited")
    assert thread.ran() == "edited\n"


def test_a_pause_counts_from_the_first_step_on(new: New) -> None:
    thread = new(f"[held({LOOK}), {LOOK}, {DONE}]")
    for request in ({"what": "write", "text": thread.task}, {"what": "move", "move": "go_on"}):
        assert thread.post(**request)[0] == 200
        assert thread.post("move", move="pause")[0] == 200
        thread.release()
        assert thread.look().state["condition"] == "paused"
    for what, body in (("move", {"move": "pause"}), ("fork", {}), ("delete", {})):
        assert thread.post(what, "no-such-thread", **body)[0] == 422


# --- what begins a task, however often it is sent ---


def test_what_is_sent_again_begins_nothing(new: New, second: Served) -> None:
    thread = new(f"[{DONE}, held({DONE})]")
    for _ in range(2):
        assert thread.write(request="r1", settings=thread.settings) == 200
        thread.look()
    elsewhere = thread.on(second)
    again = at_once(*[lambda: thread.write("Again", request="r2")] * 6)
    assert (again, thread.write("More", request="r3")) == ([200] * 6, 409)
    assert elsewhere.write("Again", request="r2") == 200
    thread.release()
    assert users(elsewhere) == users(thread) == [thread.task, "Again"]


def test_an_id_that_is_none_or_has_other_words_is_refused(new: New) -> None:
    thread = new(f"[{DONE}] * 9")
    for request_id in ("a b", "a\n", "x" * 101, "../x", "é"):
        assert thread.write(request=request_id) == 422
    assert users(thread) == []
    assert thread.write(request="r1") == 200
    reply = next(message["id"] for message in thread.look().messages if message["role"] == "assistant")
    assert [thread.write("Go on", request=name) for name in ("r1", reply)] == [422, 422]
    assert users(thread) == [thread.task]


SETTINGS: dict[str, dict[str, Any]] = {
    "a folder that there is not": {"workspace": "/nowhere"},
    "a model that cannot be had": {"model": "scripted:/nowhere/model.py"},
    "tools that there are not": {"tools": "hammer"},
    **{f"{turns[:9]!r} turns": {"turns": turns} for turns in ("two", "0", "9" * 5_000)},
}


def test_settings_that_do_not_fit_begin_nothing_and_may_be_mended(new: New) -> None:
    thread = new(f"[{LOOK}, {DONE}]")
    for name, wrong in SETTINGS.items():
        code, told = thread.post("write", text=thread.task, request="r1", settings=thread.settings | wrong)
        ((_, value),) = wrong.items()
        assert code == 422, name
        assert value.rpartition(":")[2][:60] in told["problem"], name
    assert users(thread) == []
    assert thread.write(request="r1", settings=thread.settings | {"turns": "1"}) == 200
    assert thread.look().last["result"]["reason"] == "turns"
    assert thread.write("More", settings={"turns": 9}) == 422
    assert thread.post("move", move="go_on", turns="two")[0] == 422
    assert thread.look().last["result"]["reason"] == "turns"


# --- two servers on one database, each in a process of its own ---


def test_of_many_answers_at_once_one_counts(new: New, second: Served) -> None:
    here = new(PORT)
    there = here.on(second)
    with there.reading() as reader:
        here.begin()
        reader.sees("Which port?")
        here.answered("1")
        asked = here.asked()
        answers = at_once(
            *(lambda each=each: each.post("answer", texts=["approve"], **asked) for each in [here, there] * 6)
        )
        assert sorted(code for code, _ in answers) == [200] + [409] * 11
        reader.sees("Please confirm")
    assert here.ran() == "it ran\n"


def test_one_watches_what_the_other_runs(new: New, second: Served) -> None:
    here = new(HELD)
    there = here.on(second)
    with there.reading():
        pass
    with there.reading() as reader:
        assert here.write(settings=here.settings) == 200
        reader.sees("data-elsewhere", "read_file")
        assert there.write("And this") == 409
        assert there.post("move", move="pause")[0] == 200
        here.release()
        reader.sees("Stopped", 'data-move="go_on"')
        assert there.post("move", move="go_on")[0] == 200
        reader.sees("Asserted: done")
    assert users(here) == [here.task]


def test_a_thread_that_has_begun_keeps_its_settings_on_every_server(new: New, second: Served) -> None:
    thread = new(f"[{ASK}, call('run_shell', command='echo it ran >> ran.txt'), {DONE}]", approve="none")
    thread.begin()
    assert thread.on(second).answered("1").last["result"]["status"] == "success"
    assert thread.ran() == "it ran\n"


def test_a_thread_of_a_program_is_shown_and_never_run_with_other_tools(new: New, place: Place) -> None:
    thread = new(PORT)
    asking = ScriptedModel([call("ask_user", question="Which port?", options=["8080", "9090"])])
    with sqlite_storage(place.database) as storage:
        Session(build_graph(asking, storage=storage), thread.name).run("do it")
    assert "Which port?" in "".join(thread.parts().values())
    before = thread.look()
    for code, told in (
        thread.answer("8080"),
        thread.post("write", text="more"),
        thread.post("move", move="stop"),
    ):
        assert (code, "--graph" in told["problem"]) == (422, True)
    assert thread.look().interrupts == before.interrupts


LINES = [f"echo step {number}" for number in range(1_000)]
WHOLE: dict[str, tuple[str, list[str]]] = {
    # What waits, and what a person must see of it before it counts.
    "a script": (f"call('run_shell', command={chr(10).join(LINES)!r})", LINES),
    "a change": (
        f"call('edit_file', path='config.py', old='PORT', new={chr(10).join(LINES)!r})",
        ["config.py", "PORT", *LINES],
    ),
    "a question": (f"call('ask_user', question={chr(10).join(LINES)!r}, options={LINES[:90]!r})", LINES),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_waits_is_shown_whole(new: New, name: str) -> None:
    step, parts = WHOLE[name]
    thread = new(f"[{step}]", approve="terminal,write")
    thread.begin()
    asked = read(thread.parts()["ask"]).one(class_="asked")
    assert asked.all(class_="left-out") == []
    assert [part for part in parts if part not in asked.text] == []


def test_hostile_words_are_text_wherever_they_stand(new: New) -> None:
    evil = "<img src=x onerror=alert(1)><script>alert(1)</script>\\u202e"
    thread = new(f"""[
        reply("{evil}", call("think", thought="{evil}", approach="{evil}", status="{evil}")),
        call("run_shell", command="echo '{evil}'"),
        call("ask_user", question="{evil}", options=["{evil}", "b"]),
        call("finish_task", summary="{evil}", pending_issues=["{evil}"], requires_user_confirmation=True),
    ]""")
    words = evil.encode().decode("unicode-escape")
    with thread.reading() as reader:
        assert thread.write(f"{words} {thread.name}", settings=thread.settings) == 200
        # Where a person edits what waits, too.
        reader.sees("\\u202e")
        shown = [*reader.parts.values()]
        for answer in ("approve", "1", "yes"):
            thread.answered(answer)
        reader.sees("Asserted: done", "&lt;script&gt;")
        shown += [*reader.parts.values(), *(event["list"] for _, event in reader.events if "list" in event)]
    assert [sign for sign in ("<img", "<script", "\u202e") if sign in "".join(shown)] == []


CUT = f"""[
    call("run_shell", command="echo ran >> ran.txt; [ -e released ] || exec sleep 600"),
    {DONE}, {DONE},
]"""


def test_a_command_of_a_killed_server_runs_again_only_when_somebody_says_so(
    served: Served, second: Served, new: New
) -> None:
    threads = [new(CUT, approve="none") for _ in range(3)]
    for thread in threads:
        assert thread.on(second).write(settings=thread.settings) == 200
        wait_until(thread.ran)
    again, unknown, protocol = threads
    shells = second.children()
    second.end(signal.SIGKILL)
    assert gone(*shells, seconds=60), "nothing outlives its server"
    with again.reading() as reader:
        reader.sees("data-again")
        assert 'data-move="go_on"' not in reader.parts["moves"]
        assert again.ran() == "ran\n"
        early = {"interrupt_id": again.asked()["interrupt_id"]}
        again.release()
        answers = at_once(*[lambda: again.post("again", **early)] * 3)
        assert sorted(code for code, _ in answers) == [200, 409, 409]
        reader.sees("Asserted: done")
    assert (again.post("again", **early)[0], again.ran()) == (409, "ran\nran\n")

    (text,) = re.findall(r'data-text="([^"]+)"', unknown.parts()["ask"])
    result = next(
        message for message in unknown.answered(html.unescape(text)).messages if message["role"] == "tool"
    )
    assert (result["metadata"]["signoff"]["ok"], unknown.ran()) == (False, "ran\n")

    seen = protocol.look()
    (waiting,) = seen.interrupts
    assert (waiting["reason"], waiting["metadata"]["signoff"]["unknown"]) == ("action", True)
    assert (seen.state["moves"], protocol.look().interrupts) == (["stop"], [waiting])
    seen = protocol.agui(**seen.answer("It ran; I have looked."))
    assert (seen.results()[0], protocol.ran()) == ("It ran; I have looked.", "ran\n")
