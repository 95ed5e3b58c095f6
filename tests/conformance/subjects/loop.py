"""A small agent loop as a subject: `python loop.py [WORDS]`.

It keeps its thread in a file, and does what its user may rely on. WORDS: what it is careless in.
"""

import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from loopcheck.case import FEATURES

careless = set(sys.argv[1:])
HAS = {"ask", "crash", "durable_wait", "finish_again", "finish_call", "memory"}
HELLO: dict[str, Any] = {
    "protocol": 1,
    "framework": "A small loop",
    "versions": {"loop": "1.0"},
    "finish": {"any": {"text": "$text"}, "call": {"name": "done", "args": {"summary": "$text"}}},
    "ask": {"name": "ask_user", "args": {"question": "$text"}},
    "lacks": dict.fromkeys(FEATURES.keys() - HAS, "it is small"),
}
Message = dict[str, Any]
SETUP: Message = {}
KEPT: dict[str, list[Message]] = {}
"""The threads that this process knows, by folder."""
MOST_TRIES, MOST_TURNS = 4, 100


class Thread:
    """Its messages, in a file."""

    def __init__(self) -> None:
        self.file = Path(SETUP["folder"]) / "thread.json"
        found = json.loads(self.file.read_text()) if self.file.exists() else []
        self.messages = KEPT.setdefault(SETUP["folder"], found)

    def add(self, message: Message, *, save: bool = True) -> None:
        self.messages.append(message)
        if save and "forgets in another process" not in careless:
            new = self.file.with_suffix(".new")
            new.write_text(json.dumps(self.messages))
            new.replace(self.file)

    def result(self, call: Message, text: str) -> None:
        late = "keeps results late" in careless
        self.add({"role": "tool", "tool_call_id": call["id"], "content": text}, save=not late)

    def forget(self) -> None:
        self.messages.clear()
        self.file.unlink()

    def waiting(self) -> list[Message]:
        """The calls of the last reply that have no result."""
        places = [at for at, one in enumerate(self.messages) if one["role"] == "assistant"]
        since = self.messages[places[-1] :] if places else []
        answered = [one.get("tool_call_id") for one in since]
        return [call for one in since for call in one.get("tool_calls") or () if call["id"] not in answered]


def post(url: str, body: Any) -> tuple[int, Message]:
    request = urllib.request.Request(url, json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
    except (OSError, http.client.HTTPException):
        return 0, {}


def ask_the_model(thread: Thread) -> Message | None:
    """Its reply; None when it does not come."""
    body = {"model": "scripted", "messages": thread.messages, "tools": offered()}
    for tried in range(1 if "tries once" in careless else MOST_TRIES):
        time.sleep(0.05 * tried)
        status, said = post(f"{SETUP['model']}/chat/completions", body)
        if status == 200:
            choice: Message = said["choices"][0]
            return {**choice["message"], "reason": choice["finish_reason"]}
    return None


def offered() -> list[Message]:
    named = [{key: one[key] for key in ("name", "description", "parameters")} for one in SETUP["tools"]]
    return [{"type": "function", "function": one} for one in named]


def step(order: Message) -> Message:
    thread = Thread()
    calls = thread.waiting()
    match order["do"]:
        case "say":
            thread.add({"role": "user", "content": order["text"]})
        case "answer":
            thread.result(calls[0], order["text"])
        case "resume" if not thread.messages:
            return {"status": "refused"}
        case "resume" if "takes what was cut short for done" in careless:
            return {"status": "success", "final": "Done."}
        case "resume" if "runs calls again" not in careless:
            for call in calls:
                thread.result(call, "It was interrupted, and may or may not have taken place.")
    return run(thread)


def run(thread: Thread) -> Message:
    for _ in range(MOST_TURNS):
        if told := take(thread, thread.waiting()):
            return told
        said = ask_the_model(thread)
        if said is None:
            if "forgets all with an error" in careless:
                thread.forget()
            return {"status": "error", "words": "the model gives no reply"}
        reason = said.pop("reason")
        thread.add(said)
        if reason == "length" and "takes a cut reply for the end" in careless:
            return {"status": "success", "final": said["content"]}
        if not said.get("tool_calls"):
            if SETUP["finish"] == "any" or "believes words" in careless:
                return {"status": "success", "final": said["content"]}
            thread.add({"role": "user", "content": "Go on, and call `done` at the end."})
    return {"status": "error", "words": "it takes too long"}


def take(thread: Thread, calls: list[Message]) -> Message | None:
    """Runs what was called. How the step ends; None when the model has to be asked."""
    ends = [call for call in calls if call["function"]["name"] == "done" and arguments(call)]
    if len(ends) > 1 and "breaks at a second finish" in careless:
        return {"status": "error", "words": "two calls of done"}
    failed = False
    for call in [call for call in calls if call not in ends]:
        args = arguments(call)
        if call["function"]["name"] == "ask_user":
            return {"status": "question", "words": args["question"]}
        status, text = (0, "It was cut off: nothing was done.") if args is None else use(thread, call, args)
        failed = failed or status != 200
        if "drops results" not in careless:
            thread.result(call, text)
    if not ends:
        return None
    if failed and "believes a finish beside a failure" not in careless:
        for call in ends:
            thread.result(call, "Not yet: a call beside it failed.")
        return None
    for call in ends:
        thread.result(call, "Done.")
    return {"status": "success", "final": arguments(ends[0])["summary"]}


def use(thread: Thread, call: Message, args: Message) -> tuple[int, str]:
    if "knows calls by their ids alone" in careless:
        for one in thread.messages:
            if one.get("tool_call_id") == call["id"]:
                return 200, one["content"]
    status, said = post(f"{SETUP['tools_url']}/call/{call['function']['name']}", args)
    return status, said.get("result") or said.get("error") or "it failed"


def arguments(call: Message) -> Any:
    """None for what is no JSON."""
    try:
        return json.loads(call["function"]["arguments"])
    except ValueError:
        return None


class Subject(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        self.say(HELLO)

    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/setup":
            SETUP.update(order)
            self.say({"status": "ready"})
        else:
            self.answer(order)

    def answer(self, order: Message) -> None:
        self.say(step(order))

    def say(self, answer: Mapping[str, Any]) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", int(os.environ["LOOPCHECK_PORT"])), Subject).serve_forever()
