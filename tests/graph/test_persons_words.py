"""What a person said reaches every later prompt word for word, however often older turns are summarised. Only
where it alone takes more than half of the prompt are the oldest words shortened, with a mark that says so."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.messages.utils import count_tokens_approximately as tokens
from langchain_core.tools import tool

from signoff import Limits, Session, build_graph
from signoff.models import ScriptedModel, call
from signoff.session import expire
from tests.support.compacted import MARKED, asks_for_notes, summary_of, text_of
from tests.support.plays import THREAD, assert_sendable, saved

BUDGET = 6_000
"""The characters of half of the prompt."""
NOTES = "Some pages were read."
CUT = re.compile(r"\[CUT ([\d,]+) of ([\d,]+)\]")
WISH = "For readers who know nothing of it, and above all: " + "never name a price; " * 12 + "never."
FINISH = call("finish_task", summary="Written.")
ASKS = call("ask_user", question="Any wish?")
CONFIRMS = call("finish_task", summary="A draft.", requires_user_confirmation=True)
PAYS = call("pay", amount=3)


@tool
def read_page(number: int) -> str:
    """Read a page."""
    return f"Page {number}. " + "Once upon a time. " * 120


@tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


read_page.metadata = {"kind": "read"}


class Writer:
    """A model that begins with these replies, and then reads twelve pages in each task. Where it is asked for
    notes, it takes none of what people said."""

    def __init__(self, *first: Any) -> None:
        self.replies = self.script(first)
        self.model = ScriptedModel(self.step)

    def script(self, first: Sequence[Any]) -> Iterator[Any]:
        yield from first
        numbers = count()
        while True:
            yield from (call("read_page", number=next(numbers)) for _ in range(12))
            yield FINISH

    def step(self, messages: Sequence[BaseMessage]) -> Any:
        return NOTES if asks_for_notes(messages) else next(self.replies)

    @property
    def prompts(self) -> list[list[BaseMessage]]:
        """The prompts of its turns."""
        return [seen.messages for seen in self.model.seen if not asks_for_notes(seen.messages)]


def session_of(model: ScriptedModel, **policy: Any) -> Session[Any]:
    graph = build_graph(
        model,
        [read_page, pay],
        limits=Limits(turns=99),
        approvals={"pay": True},
        policy={"prompt_tokens": BUDGET, "compaction": "lines", "texts": MARKED, **policy},
        **saved(),
    )
    return Session(graph, "t")


def answers(given: Any) -> Callable[[Session[Any]], Any]:
    """Begins a task, and answers what it waits for."""
    return lambda session: (session.run("Write."), session.resume(given))


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
REPORT = {"type": "file", "base64": "AAAA", "mime_type": "application/pdf", "filename": "report.pdf"}
IN_PARTS = HumanMessage([{"type": "text", "text": WISH}, PICTURE, REPORT])
# What the model replies first, and how a person says it.
WAYS: dict[str, tuple[list[Any], Callable[[Session[Any]], Any]]] = {
    "the task": ([], lambda session: session.run(WISH)),
    "a part of a message with a picture and a document": ([], lambda session: session.run([IN_PARTS])),
    "an answer to a question": ([ASKS], answers(WISH)),
    "a reason for a rejection": ([PAYS], answers({"type": "reject", "message": WISH})),
    "a finish sent back": ([CONFIRMS], answers(WISH)),
    "a word at a confirmation": ([CONFIRMS], answers({"confirmed": True, "feedback": WISH})),
    "a word in a dialogue": (["What is it for?"], answers(WISH)),
}


def by_another_model() -> ScriptedModel:
    return Writer().model


BY_MODELS = [("an answer to a question", "model"), ("the task", by_another_model)]


@pytest.mark.parametrize(("way", "by"), [*((way, "lines") for way in WAYS), *BY_MODELS])
def test_words_are_whole_in_every_later_prompt(way: str, by: Any) -> None:
    first, said = WAYS[way]
    writer = Writer(*first)
    talk = {"talk": "natural"} if "dialogue" in way else {}
    session = session_of(writer.model, compaction=by() if callable(by) else by, **talk)
    said(session)
    session.run("Go on with part 2.")
    prompts = writer.prompts
    begins = next(at for at, prompt in enumerate(prompts) if WISH in text_of(prompt))
    assert begins <= len(first)
    assert len({summary_of(prompt) for prompt in prompts}) > 2
    for prompt in prompts[begins:]:
        assert WISH in text_of(prompt)
        assert tokens(prompt) <= BUDGET
        assert_sendable(prompt)
    assert text_of(prompts[-1]).count(WISH) == 1, "the words stand in it once"


def test_the_words_stand_in_order_each_with_what_it_is_about() -> None:
    writer = Writer(ASKS, PAYS, CONFIRMS)
    session = session_of(writer.model)
    session.run(
        [HumanMessage([{"type": "text", "text": "As here:"}, REPORT, PICTURE]), HumanMessage("Begin.")]
    )
    session.resume("In two lines:\nno prices.")
    session.resume({"type": "reject", "message": "Nothing is for sale."})
    session.resume("Too short.")
    session.run("Now the next one.")
    session.run("And the last.")
    assert summary_of(writer.prompts[-1]).partition("WORDS\n")[2].splitlines() == [
        "- As here:",
        "[file report.pdf application/pdf]",
        "[image_url]",
        "- Begin.",
        "- to ask_user(question='Any wish?'): In two lines:",
        "no prices.",
        "- to pay(amount=3): Nothing is for sale.",
        "- to finish_task(summary='A draft.', requires_user_confirmation=True): Too short.",
        "- Now the next one.",
    ]


def test_a_default_at_a_deadline_is_nobodys_words() -> None:
    default = "As it was. " * 40
    writer = Writer(call("ask_user", question="Any wish?", default_answer=default, deadline_seconds=0.01))
    session = session_of(writer.model)
    session.run("Write.")
    assert expire(session.graph, "t", now=time.time() + 9)
    session.run()
    session.run("Now the next one.")
    assert default.strip() not in text_of(writer.prompts[-1])
    assert default[:80] in text_of(writer.prompts[-1])


# More than half of the prompt.


def long(name: str, part: float) -> str:
    """A text that takes this part of the budget, and has its name at both ends."""
    return f"{name} begins. {'so on ' * int(BUDGET * 4 * part / 6)}{name} ends."


# What people say, and of which of it only both ends are shown later.
OVER: dict[str, tuple[list[str], set[str]]] = {
    "one alone": ([long("a", 0.7)], {"a"}),
    "one that is larger than the prompt": ([long("a", 0.1), long("b", 1.5), long("c", 0.1)], {"a", "b"}),
    "none at half": ([long("a", 0.245), long("b", 0.245)], set()),
}


@pytest.mark.parametrize("name", OVER)
def test_the_oldest_are_shortened_where_words_alone_take_more_than_half(name: str) -> None:
    texts, cut = OVER[name]
    writer = Writer(*[call("ask_user", question=f"What is {n}?") for n in range(len(texts))])
    session = session_of(writer.model)
    session.run("Write.")
    for text in texts:
        session.resume(text)
    session.run("Now the next one.")
    prompt = text_of(writer.prompts[-1])
    assert tokens(writer.prompts[-1]) <= BUDGET
    for text in texts:
        assert (text in prompt) is (text[0] not in cut)
        assert f"{text[0]} begins." in prompt, "both ends stay"
        assert f"{text[0]} ends." in prompt
    sizes = [[int(number.replace(",", "")) for number in found] for found in CUT.findall(prompt)]
    assert [size for _, size in sizes] == [len(text) for text in texts if text[0] in cut]
    assert all(0 < left < size for left, size in sizes)
    held = text_of(session.graph.get_state(THREAD).values["messages"])
    assert all(text in held for text in texts), "the thread has them"


def test_of_hundreds_of_messages_the_oldest_are_counted() -> None:
    writer = Writer()
    session = session_of(writer.model)
    notes = [f"Note {number}: there is nothing for sale." for number in range(500)]
    session.run([HumanMessage(note) for note in notes])
    session.run("Now the next one.")
    prompt = writer.prompts[-1]
    ((left, size),) = re.findall(r"- OLDER ([\d,]+) of ([\d,]+)", text_of(prompt))
    first = int(left.replace(",", ""))
    assert tokens(prompt) <= BUDGET
    assert 100 < first < 499
    assert int(size.replace(",", "")) == sum(map(len, notes[:first]))
    assert notes[first] in text_of(prompt), "the first that is shown"
    assert notes[-1] in text_of(prompt)


@pytest.mark.parametrize("part", [0.4, 1.2], ids=["beside results", "too long alone"])
def test_in_a_last_turn_that_is_too_large_an_answer_gives_way_last(part: float) -> None:
    answer = long("a", part)
    writer = Writer([*[call("read_page", number=number) for number in range(14)], ASKS])
    session = session_of(writer.model)
    session.run("Write.")
    session.resume(answer)
    prompt = writer.prompts[1]
    assert tokens(prompt) <= BUDGET
    assert (answer in text_of(prompt)) is (part < 1)
    assert "a begins." in text_of(prompt)
    assert "a ends." in text_of(prompt)
