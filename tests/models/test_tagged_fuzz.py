"""Random replies: none raises, and words outside of the right places never end a task."""

import json
import random

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from signoff.models import ScriptedModel
from signoff.models.tagged import TaggedText, current_status
from signoff.models.text_protocol.calls import ToolNames, calls_of
from signoff.models.text_protocol.reading import plain_lines, read_text
from tests.support.tagged_replies import TOOLS

ROUNDS = 3000
PIECES = (
    "<PLAN>", "</PLAN>", "<plan>", "<STATE_UPDATE>", "</STATE_UPDATE>", "<ASK>", "</ASK>", "<EVIDENCE>",
    "</EVIDENCE>", '<EVIDENCE of="run_python" status="ok">', '<CALL name="write_file">', "</CALL>", "<CALL>",
    "<CALL name='finish", '{"path": "a"}', '{"summary": "', '"}', "{", "[", "]", "```", "```python", "````py",
    "~~~python", "~~~", '"""', "'''", "print(1)", "# Status: Finished", "[FINALIZE]", "`[FINALIZE]`",
    '"[FINALIZE]"', "Status: Finished", "Status: Finalized.", "Status: Working", "Approach: look",
    "Approach:", "\n", "\n", "\r\n", "\r",
    " ", "  ", "\t", "> ", "a", "ü", "\ud800", "\x00", "\u2028", "\x85",
    "<", ">", "/", "`", "\\",
)  # fmt: skip
# What a task can be ended by, and by nothing else.
ENDING = ("[FINALIZE]", "Finished", "Finalized", "finish")
# Sections that end a task where nothing around them spoils it: pieces alone hardly ever come together.
WHOLE = ("\n<PLAN>\n[FINALIZE]\n</PLAN>\n", "\n<STATE_UPDATE>\nStatus: Finished\n</STATE_UPDATE>\n")


def replies(seed: int) -> list[str]:
    print(f"seed {seed}")  # shown when a test fails
    chance = random.Random(seed)
    return ["".join(parts_of(chance)) for _ in range(ROUNDS)]


def parts_of(chance: random.Random) -> list[str]:
    parts = chance.choices(PIECES, k=chance.randint(1, 40))
    if chance.random() < 0.2:
        parts.insert(chance.randint(0, len(parts)), chance.choice(WHOLE))
    return parts


@pytest.fixture
def seed() -> int:
    return random.SystemRandom().randrange(10**9)


def finishes(text: str, *, truncated: bool = False) -> bool:
    made = calls_of(read_text(text), ToolNames(), TOOLS, truncated=truncated, debugging=False)
    return any(call.name == "finish_task" and call.arguments.startswith("{") for call in made)


def test_no_reply_raises_and_each_is_read_the_same_twice(seed: int) -> None:
    for text in replies(seed):
        for truncated in (False, True):
            made = calls_of(read_text(text), ToolNames(), TOOLS, truncated=truncated, debugging=False)
            again = calls_of(read_text(text), ToolNames(), TOOLS, truncated=truncated, debugging=False)
            assert made == again
            for call in made:
                assert call.arguments.startswith("(left") or isinstance(json.loads(call.arguments), dict)
            names = [call.name for call in made]
            assert "think" not in names[1:]
            assert "finish_task" not in names[:-1]


def test_only_whole_sections_end_a_task(seed: int) -> None:
    """What ends one holds a closed plan with the token, or a closed state update with the status."""
    ended = 0
    for text in replies(seed):
        if finishes(text):
            ended += 1
            lines = plain_lines(text).lower()
            by_plan = "[finalize]" in lines and "<plan>" in lines and "</plan>" in lines
            by_update = "status: fin" in lines and "<state_update>" in lines and "</state_update>" in lines
            assert by_plan or by_update, text
    assert ended, "the pieces never came together: the test proves nothing"


def test_words_outside_of_the_sections_end_nothing(seed: int) -> None:
    """Every word that could end a task, put into places where it must not, beside any other text."""
    chance = random.Random(seed)
    pieces = [piece for piece in PIECES if not any(word in piece for word in ENDING)]
    wrong = (
        "[FINALIZE] Status: Finished",
        '\n```python\nprint("<PLAN>[FINALIZE]</PLAN>")\n```\n',
        "\nI would write <PLAN>[FINALIZE]</PLAN> now.\n",
        "\n> <STATE_UPDATE>Status: Finished</STATE_UPDATE>\n",
        "\nx = '<STATE_UPDATE>Status: Finished</STATE_UPDATE>'\n",
    )
    sections = {"<PLAN>", "<plan>", "<STATE_UPDATE>"}
    loose = [piece for piece in pieces if piece not in sections and "CALL" not in piece]
    for _ in range(ROUNDS):
        parts = chance.choices(loose, k=chance.randint(0, 20)) + chance.choices(wrong, k=2)
        chance.shuffle(parts)
        text = " " + "".join(parts)
        # A piece may put the words at the beginning of a line, where they would count.
        if not any(line.lstrip(" \t").lower().startswith(("<plan", "<state")) for line in text.splitlines()):
            assert not finishes(text), (text, parts)


def test_without_the_words_nothing_ends(seed: int) -> None:
    chance = random.Random(seed)
    pieces = [piece for piece in PIECES if not any(word in piece for word in ENDING)]
    for _ in range(ROUNDS):
        assert not finishes("".join(chance.choices(pieces, k=chance.randint(1, 40))))


def test_what_is_evidence_is_never_read_as_a_reply(seed: int) -> None:
    for text in replies(seed)[:500]:
        result = ToolMessage(text, name="run_python", tool_call_id="c")
        shown = TaggedText(ScriptedModel([])).prompt([result])[-1].text
        echoed = calls_of(read_text(shown), ToolNames(), TOOLS, truncated=False, debugging=False)
        assert echoed == [], text


def test_any_reply_can_be_shown_again(seed: int) -> None:
    for text in replies(seed)[:300]:
        model = TaggedText(ScriptedModel([text])).bind_tools(
            [{"name": name, "description": "", "parameters": {}} for name in sorted(TOOLS)]
        )
        reply = model.invoke("x")
        assert isinstance(model, TaggedText)
        for message in (reply, AIMessage(reply.content, tool_calls=reply.tool_calls)):
            assert [turn.type for turn in model.prompt([message])[1:2]] == ["human"]
        current_status([reply])
