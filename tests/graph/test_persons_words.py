"""What a person said reaches every later prompt word for word, however often older turns are summarised. Only
where it alone takes more than half of the prompt are the oldest words shortened, with a mark that says so."""

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.messages.utils import count_tokens_approximately as tokens
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from signoff import Approval, Limits, Session, build_graph, expire
from signoff.graph.texts import HISTORY_SUMMARY, NOTE_DOWN, SUMMARISE
from signoff.models import ScriptedModel, call
from tests.support.histories import assert_sendable

BUDGET = 6_000
HALF = BUDGET // 2 * 4
"""The characters of half of the prompt."""
SUMMARY = HISTORY_SUMMARY.split("\n")[0]
REQUESTS = (NOTE_DOWN[:40], SUMMARISE[:40])


def is_request(messages: Sequence[BaseMessage]) -> bool:
    """Whether a summary is asked for: by a message of its own, or joined with what was said last."""
    return any(request in message.text for message in messages for request in REQUESTS)


NOTES = "Some pages were read."
CUT = re.compile(r"\[… ([\d,]+) of ([\d,]+) characters left out; the thread has them\]")
WISH = (
    "For readers who know nothing of it, in short sentences, and above all: "
    + "never name a price; " * 12
    + "never."
)
FINISH = call("finish_task", summary="Written.")
CONFIG: Any = {"configurable": {"thread_id": "t"}}


def read_page(number: int) -> str:
    """Read a page."""
    return f"Page {number}. " + "Once upon a time. " * 120


read_page.metadata = {"kind": "read"}  # type: ignore[attr-defined]  # as anybody sets it on a function


def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


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
        asked = is_request(messages)
        return NOTES if asked else next(self.replies)

    @property
    def prompts(self) -> list[list[BaseMessage]]:
        """The prompts of its turns."""
        shown = (seen.messages for seen in self.model.seen)
        return [messages for messages in shown if not is_request(messages)]


def session_of(writer: Writer, **settings: Any) -> Session[Any]:
    memory: dict[str, Any] = {"checkpointer": InMemorySaver(), "store": InMemoryStore()}
    options: dict[str, Any] = {"prompt_tokens": BUDGET, "compaction": "lines", "limits": Limits(turns=99)}
    return Session(build_graph(writer.model, [read_page, pay], **memory, **options | settings), "t")


def text_of(prompt: Sequence[BaseMessage]) -> str:
    return "\n".join(message.text for message in prompt)


def summaries(prompts: Sequence[Sequence[BaseMessage]]) -> int:
    """The number of different summaries."""
    return len({m.text for prompt in prompts for m in prompt if m.text.startswith(SUMMARY)})


def write(session: Session[Any], words: str = WISH) -> Any:
    """Sends a message, whatever the thread waits for."""
    return session.graph.invoke({"messages": [HumanMessage(words)]}, CONFIG)


ASKS = call("ask_user", question="Any wish?")
CONFIRMS = call("finish_task", summary="A draft.", requires_user_confirmation=True)
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
REPORT = {"type": "file", "base64": "AAAA", "mime_type": "application/pdf", "filename": "report.pdf"}

Way = tuple[list[Any], Callable[[Session[Any]], Any]]
WAYS: dict[str, Way] = {
    "the task": ([], lambda session: session.run(WISH)),
    "a message beside others": (
        [],
        lambda session: session.run([HumanMessage("Hello."), HumanMessage(WISH), HumanMessage("Begin.")]),
    ),
    "a part of a message with a picture and a document": (
        [],
        lambda session: session.run([HumanMessage([{"type": "text", "text": WISH}, PICTURE, REPORT])]),
    ),
    "an answer to a question": ([ASKS], lambda session: (session.run("Write."), session.resume(WISH))),
    "a message while a question waits": (
        [ASKS],
        lambda session: (
            session.run("Write."),
            write(session),
        ),
    ),
    "a reason for a rejection": (
        [call("pay", amount=3)],
        lambda session: (session.run("Pay."), session.resume({"type": "reject", "message": WISH})),
    ),
    "a message while an approval waits": (
        [call("pay", amount=3)],
        lambda session: (
            session.run("Pay."),
            write(session),
        ),
    ),
    "an answer in place of a tool": (
        [call("pay", amount=3)],
        lambda session: (session.run("Pay."), session.resume({"type": "respond", "message": WISH})),
    ),
    "a finish sent back": ([CONFIRMS], lambda session: (session.run("Write."), session.resume(WISH))),
    "a finish sent back by a message": (
        [CONFIRMS],
        lambda session: (
            session.run("Write."),
            write(session),
        ),
    ),
    "a word at a confirmation": (
        [CONFIRMS],
        lambda session: (session.run("Write."), session.resume({"confirmed": True, "feedback": WISH})),
    ),
    "a word in a dialogue": (
        ["What is it for?"],
        lambda session: (session.run("Write."), session.resume(WISH)),
    ),
}
WRITERS = ["lines", "model", "another model"]


@pytest.mark.sample(12)
@pytest.mark.parametrize("by", WRITERS)
@pytest.mark.parametrize("way", WAYS)
def test_words_are_whole_in_every_later_prompt(way: str, by: str) -> None:
    first, said = WAYS[way]
    writer = Writer(*first)
    settings: dict[str, Any] = {"compaction": Writer().model if by == "another model" else by}
    if "dialogue" in way:
        settings["talk"] = "natural"
    session = session_of(writer, approvals={"pay": True}, **settings)
    said(session)
    for number in range(3):
        session.run(f"Go on with part {number}.")
    prompts = writer.prompts
    begins = next(at for at, prompt in enumerate(prompts) if WISH in text_of(prompt))
    assert begins <= len(first)
    assert summaries(prompts) > 2
    for prompt in prompts[begins:]:
        assert WISH in text_of(prompt)
        assert tokens(prompt) <= BUDGET
        assert_sendable(prompt)
    assert text_of(prompts[-1]).count(WISH) == 1, "the words stand in it once"


def test_the_words_stand_in_order_each_with_what_it_is_about() -> None:
    first = [ASKS, call("pay", amount=3), CONFIRMS]
    writer = Writer(*first)
    session = session_of(writer, approvals={"pay": True})
    session.run(
        [HumanMessage([{"type": "text", "text": "As in this one:"}, REPORT, PICTURE]), HumanMessage("Begin.")]
    )
    session.resume("In two lines:\nno prices.")
    session.resume({"type": "reject", "message": "Nothing is for sale."})
    session.resume("Too short.")
    session.run("Now the next one.")
    session.run("And the last.")
    (summary,) = [message.text for message in writer.prompts[-1] if message.text.startswith(SUMMARY)]
    assert summary.partition("What people said in it")[2].splitlines()[1:] == [
        "- As in this one:",
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
    session = session_of(writer)
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


OVER: dict[str, tuple[list[str], set[str], set[str]]] = {
    "the first of two": ([long("a", 0.3), long("b", 0.3)], {"a"}, {"b"}),
    "the first two of three": ([long("a", 0.2), long("b", 0.2), long("c", 0.4)], {"a", "b"}, {"c"}),
    "one alone": ([long("a", 0.7)], {"a"}, set()),
    "one that is larger than the prompt": (
        [long("a", 0.1), long("b", 1.5), long("c", 0.1)],
        {"a", "b"},
        {"c"},
    ),
    "none at half": ([long("a", 0.245), long("b", 0.245)], set(), {"a", "b"}),
}


@pytest.mark.parametrize("as_answers", [True, False], ids=["answers", "tasks"])
@pytest.mark.parametrize("name", OVER)
def test_the_oldest_are_shortened_where_words_alone_take_more_than_half(name: str, as_answers: bool) -> None:
    texts, cut, whole = OVER[name]
    writer = Writer(
        *([call("ask_user", question=f"What is {n}?") for n in range(len(texts))] if as_answers else [])
    )
    session = session_of(writer)
    if as_answers:
        session.run("Write.")
    for text in texts:
        session.resume(text) if as_answers else session.run(text)
    session.run("Now the next one.")
    prompt = text_of(writer.prompts[-1])
    assert tokens(writer.prompts[-1]) <= BUDGET
    for text in texts:
        assert (text in prompt) is (text[0] in whole)
        assert text[0] in cut | whole
        assert f"{text[0]} begins." in prompt, "both ends stay"
        assert f"{text[0]} ends." in prompt
    sizes = [(int(left.replace(",", "")), int(size.replace(",", ""))) for left, size in CUT.findall(prompt)]
    assert [size for _, size in sizes] == [len(text) for text in texts if text[0] in cut]
    assert all(0 < left < size for left, size in sizes)
    held = text_of(session.graph.get_state(CONFIG).values["messages"])
    assert all(text in held for text in texts), "the thread has them"


def test_of_thousands_of_messages_the_oldest_are_counted() -> None:
    writer = Writer()
    session = session_of(writer)
    session.run([HumanMessage(f"Note {number}.") for number in range(3_000)])
    session.run("Now the next one.")
    prompt = writer.prompts[-1]
    ((left, size),) = re.findall(
        r"\(([\d,]+) older messages of people, ([\d,]+) characters, are only", text_of(prompt)
    )
    assert tokens(prompt) <= BUDGET
    assert f"Note {left.replace(',', '')}." in text_of(prompt), "the first that is shown"
    assert 2_999 > int(left.replace(",", "")) > 100
    assert int(size.replace(",", "")) == sum(
        len(f"Note {number}.") for number in range(int(left.replace(",", "")))
    )
    assert "Note 2999." in text_of(prompt)


def test_a_prompt_that_a_provider_calls_too_long_halves_the_room_of_words_too() -> None:
    writer = Writer(*[call("ask_user", question=f"What is {number}?") for number in range(2)])
    session = session_of(writer)
    session.run("Write.")
    session.resume(long("a", 0.2))
    session.resume(long("b", 0.2))
    assert long("a", 0.2) in text_of(writer.prompts[-1])
    writer.replies = iter([ContextOverflowError("too long"), FINISH])
    session.run("Now the next one.")
    before, after = writer.prompts[-2:]
    assert long("a", 0.2) in text_of(before)
    assert long("a", 0.2) not in text_of(after)
    assert "a begins." in text_of(after)
    assert tokens(after) <= tokens(before) // 2


def test_an_answer_is_not_truncated_as_a_result_is() -> None:
    """The last turn alone is larger than the prompt: the results beside the answer give way."""
    pages = [call("read_page", number=number) for number in range(14)]
    answer = long("a", 0.4)
    writer = Writer([*pages, ASKS])
    session = session_of(writer)
    session.run("Write.")
    session.resume(answer)
    prompt = writer.prompts[1]
    assert answer in text_of(prompt)
    assert tokens(prompt) <= BUDGET
    assert "characters left out; the full text is in" in text_of(prompt)


def test_an_answer_that_alone_takes_more_than_half_gives_way_last() -> None:
    answer = long("a", 1.2)
    writer = Writer([call("read_page", number=1), ASKS])
    session = session_of(writer)
    session.run("Write.")
    session.resume(answer)
    prompt = writer.prompts[1]
    assert answer not in text_of(prompt)
    assert "a begins." in text_of(prompt)
    assert "a ends." in text_of(prompt)
    assert tokens(prompt) <= BUDGET


# Drawn threads.


class Talk:
    """A drawn thread: what people say in it, in tasks, answers, and decisions, and how many characters."""

    def __init__(self, seed: int, by: str) -> None:
        self.draw = random.Random(seed)
        self.said: list[str] = []
        self.model = ScriptedModel(self.step)
        self.seen: list[tuple[int, list[BaseMessage]]] = []
        self.pages = count()
        compaction = Writer().model if by == "another model" else by
        self.session = session_of(self, approvals={"pay": True}, compaction=compaction)  # type: ignore[arg-type]

    def step(self, messages: Sequence[BaseMessage]) -> Any:
        if is_request(messages):
            return NOTES * self.draw.randint(1, 200)
        self.seen.append((len(self.said), list(messages)))
        ways: list[Any] = [
            ASKS,
            call("pay", amount=next(self.pages)),
            CONFIRMS,
            FINISH,
            [call("read_page", number=next(self.pages)) for _ in range(self.draw.randint(1, 6))],
            "I think of it. " * self.draw.randint(1, 200),
        ]
        return self.draw.choices(ways, [2, 2, 1, 2, 9, 1])[0]

    def words(self) -> str:
        size = self.draw.choice([1, 50, 200, 600, 2_000])
        self.said.append(
            f"Wish {len(self.said)}: " + " ".join(str(self.draw.random()) for _ in range(size // 18 + 1))
        )
        return self.said[-1]

    def move(self) -> None:
        words, waiting = self.words(), self.session.status().waiting
        if waiting is None:
            self.session.run(words)
        elif self.draw.random() < 0.3:
            write(self.session, words)
        elif isinstance(waiting, Approval):
            kind = self.draw.choice(["reject", "respond"])
            self.session.resume({"type": kind, "message": words})
        else:
            self.session.resume(words)


SEEDS = [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(3, 24))]


@pytest.mark.parametrize("seed", SEEDS)
def test_words_below_half_are_whole_in_every_prompt_of_a_drawn_thread(seed: int) -> None:
    talk = Talk(seed, WRITERS[seed % 3])
    for _ in range(25):
        talk.move()
    assert summaries([prompt for _, prompt in talk.seen]) > 2
    for said, prompt in talk.seen:
        text = text_of(prompt)
        assert tokens(prompt) <= BUDGET
        if sum(map(len, talk.said[:said])) <= HALF:
            assert all(words in text for words in talk.said[:said])
        else:
            assert talk.said[said - 1] in text, "the last words are whole"
