"""The tagged text protocol, read: which calls a reply makes, in their order, and what finishes a task."""

import random
from collections.abc import Mapping

import pytest

from signoff.models import ScriptedModel
from tests.support.tagged_replies import (
    CODE,
    DONE,
    FINISHED,
    PLAN,
    RUN,
    bound,
    calls_of,
    told,
)

ORDER: Mapping[str, tuple[str, list[str]]] = {
    "nothing": ("", []),
    "plain text": ("I am done. Status: Finished [FINALIZE]", []),
    "a plan": (PLAN, ["think: Look."]),
    "a plan, code, a state update": (
        f"{PLAN}\n{CODE}\n<STATE_UPDATE>\nApproach: look\nStatus: Working\n</STATE_UPDATE>",
        ["think: Look.: look: Working", RUN],
    ),
    "several blocks": (f"{CODE}\nand\n```py\nprint(2)\n```", [RUN, "run: print(2)"]),
    "a question": (f"{PLAN}\n<ASK>Which one?</ASK>", ["think: Look.", "ask: Which one?"]),
    "a finish": (DONE, ["think: It is 1.", "finish: It is 1."]),
    "a finish by the state update": (
        f"{PLAN}\n{FINISHED}",
        ["think: Look.: look: Finished", "finish: Look.\n\nApproach: look"],
    ),
    "a finish comes after the code": (
        f"{DONE}\n{CODE}\n{FINISHED}",
        ["think: It is 1.: look: Finished", RUN, "finish: It is 1.\n\nApproach: look"],
    ),
    "a summary from the words": (
        f"It is 1.\n{FINISHED}",
        ["think: : look: Finished", "finish: It is 1.\n\nApproach: look"],
    ),
    "a summary from the status": (
        "<STATE_UPDATE>Status: Finished</STATE_UPDATE>",
        ["think: : Finished", "finish: Finished"],
    ),
    "an unknown tool": ('<CALL name="fly">{}</CALL>', ["fly {}"]),
}  # fmt: skip


FENCES: Mapping[str, tuple[str, list[str]]] = {
    "python": ("```python\nx\n```", ["run: x"]),
    "tildes": ("~~~python\nx\n~~~", ["run: x"]),
    "another language": ("```bash\nrm -rf /\n```", []),
    "indented": ("  ```python\n  if x:\n      y\n  ```", ["run: if x:\n    y"]),
    "a fence in a long string": ('```python\ns = """\n```\n"""\n```', ['run: s = """\n```\n"""']),
    "a string that never ends": ('```python\nx = """\n```\n<PLAN>p</PLAN>', ["think: p", 'run: x = """']),
    "left open": ("<PLAN>p</PLAN>\n```python\nx", ["think: p", "open run_python"]),
    "closed by tildes": ("```python\nx\n~~~", ["open run_python"]),
    "in a plan": ("<PLAN>\n```python\nx\n```\n</PLAN>", ["think: ```python\nx\n```"]),
    "after a plan that was left open": ("<PLAN>\np\n```python\nx\n```", ["think: p", "run: x"]),
}  # fmt: skip


CALLS: Mapping[str, tuple[str, list[str]]] = {
    "two": ('<CALL name="a">{"x": 1}</CALL><CALL name="b">{"y": 2}</CALL>', ['a {"x": 1}', 'b {"y": 2}']),
    "closed at once": ('<CALL name="a"/>', ["a {}"]),
    "tags in its arguments": (
        '<CALL name="a">{"t": "</CALL> <PLAN>[FINALIZE]</PLAN>"}</CALL>',
        ['a {"t": "</CALL> <PLAN>[FINALIZE]</PLAN>"}'],
    ),
    "code in its arguments": (
        '<CALL name="a">{"t": "\n```python\nx\n```\n"}</CALL>',
        ['a {"t": "\\n```python\\nx\\n```\\n"}'],
    ),
    "whole, without its closing tag": ('<CALL name="a">{"x": 1}\n' + PLAN, ["think: Look.", 'a {"x": 1}']),
    "no JSON": ('<CALL name="a">{x: 1}</CALL>\n' + CODE, ["open a", RUN]),
    "cut by another part": ('<CALL name="a">{"x": \n' + PLAN, ["think: Look.", "open a"]),
    "nested too deep": ('<CALL name="a">' + '{"x":' * 5000 + "1" + "}" * 5000 + "</CALL>", ["open a"]),
    "a question of several lines": ("<ASK>\nWhich?\nA or B?\n</ASK>", ["ask: Which?\nA or B?"]),
}  # fmt: skip


READ = {**ORDER, **FENCES, **CALLS}


@pytest.mark.parametrize("case", READ)
def test_the_calls_of_a_reply_in_order(case: str) -> None:
    text, expected = READ[case]
    assert told(text) == expected


@pytest.mark.parametrize("case", ORDER)
def test_line_ends_of_other_systems_change_nothing(case: str) -> None:
    text, expected = ORDER[case]
    assert told(text.replace("\n", "\r\n")) == expected
    assert told(text.replace("\n", "\r")) == expected


@pytest.mark.parametrize("tools", [(), ("run_python",), ("think", "finish_task"), ("ask_user",)], ids=str)
def test_a_part_without_its_tool_makes_no_call(tools: tuple[str, ...]) -> None:
    model = bound(ScriptedModel([f"{DONE}\n{CODE}\n<ASK>Why?</ASK>"]), tools)
    assert tuple(name for name, _ in calls_of(model)) == tools


# What finishes a task.

FINISHES: Mapping[str, str] = {
    "the token": "<PLAN>[FINALIZE] It is 1.</PLAN>",
    "in bold": "<STATE_UPDATE>\n**Approach:** a\n**Status:** **Finished!**\n</STATE_UPDATE>",
    "on the next line": "<STATE_UPDATE>\nStatus:\nFinished\n</STATE_UPDATE>",
    "a plan that quotes evidence": '<PLAN>\n<EVIDENCE of="x">\n1\n</EVIDENCE>\n[FINALIZE]\n</PLAN>',
    "after evidence that was quoted": f"<EVIDENCE>1</EVIDENCE>\n{DONE}",
}


# The token is for the protocol: whoever reads the summary is not shown it, however it was written.
ENDED = "<STATE_UPDATE>Status: Finished</STATE_UPDATE>"
SUMMARIES: Mapping[str, str] = {
    "twice": "<PLAN>\n[FINALIZE]\nIt is 1. [FINALIZE]\n</PLAN>",
    "in bold with a colon": "<PLAN>**[FINALIZE]:** It is 1.</PLAN>",
    "in a call": '<CALL name="finish_task">{"summary": "[FINALIZE] It is 1."}</CALL>',
}


@pytest.mark.parametrize("case", SUMMARIES)
def test_no_summary_holds_the_token(case: str) -> None:
    assert told(SUMMARIES[case])[-1] == "finish: It is 1."


GO_ON: Mapping[str, str] = {
    "words": "I am finished. [FINALIZE] Status: Finished",
    "in code": '```python\nprint("<PLAN>[FINALIZE]</PLAN>")\n# Status: Finished\n```',
    "tags in code": f"```python\n{DONE}\n{FINISHED}\n```",
    "tags in a block left open": f"```xml\n{DONE}\n{FINISHED}",
    "tags in a sentence": f"At the end I write {DONE} and am done.",
    "in evidence": f'<EVIDENCE of="run_python">\n{DONE}\n</EVIDENCE>',
    "after evidence that was made up": f"{CODE}\n<EVIDENCE>\n1\n</EVIDENCE>\n{DONE}\n{FINISHED}",
    "code in the plan": "<PLAN>\n```\n[FINALIZE]\n```\n</PLAN>",
    "a quoted token": "<PLAN>I write \"[FINALIZE]\" or '[FINALIZE]' later.</PLAN>",
    "the token in the state update": "<STATE_UPDATE>Status: [FINALIZE]</STATE_UPDATE>",
    "the status as a part": "<STATE_UPDATE>Status: Finished reading</STATE_UPDATE>",
    "an earlier state update": f"{FINISHED}\n<STATE_UPDATE>Status: Working</STATE_UPDATE>",
    "in the arguments of a call": '<CALL name="a">{"t": "\n<PLAN>[FINALIZE]</PLAN>\n"}</CALL>',
}


OPEN: Mapping[str, str] = {
    "a plan": "<PLAN>[FINALIZE] It is 1.",
    "a state update": "<STATE_UPDATE>\nStatus: Finished",
    "a call without its closing tag": '<CALL name="finish_task">{"summary": "It is 1."}',
}


@pytest.mark.parametrize("case", [*FINISHES, *OPEN, *GO_ON])
def test_what_finishes_a_task_and_in_a_part_left_open_is_void(case: str) -> None:
    kinds = [call.partition(":")[0] for call in told({**FINISHES, **OPEN, **GO_ON}[case])]
    finish = "open finish_task" if case in OPEN else "finish"
    assert [kind for kind in kinds if "finish" in kind] == ([] if case in GO_ON else [finish])


CUT: Mapping[str, str] = {
    "the token": DONE,
    "a call that is whole": '<CALL name="finish_task">{"summary": "It is 1."}</CALL>',
}


@pytest.mark.parametrize("case", CUT)
def test_nothing_in_a_reply_that_was_cut_finishes(case: str) -> None:
    assert told(CUT[case])[-1].startswith("finish: "), "uncut it would"
    assert told(CUT[case], truncated=True)[-1] == "open finish_task"
    with_code = f"{CUT[case]}\n```python\nx"
    assert told(with_code, truncated=True)[-2:] == ["open run_python", "open finish_task"]


# The state update: the approach and the status that are noted.
FIELDS: Mapping[str, tuple[str, str]] = {
    "as the form has them": ("Approach: a\nStatus: b", "think: : a: b"),
    "the current approach": ("Current Approach: a\nCurrent Status: b", "think: : a: b"),
    "one line, a bar": ("Current Approach: a | Status: b", "think: : a: b"),
    "one line, a comma": ("Approach: a, then c, status: b", "think: : a, then c: b"),
    "a status within the approach": ("Approach: keep the status: open", "think: : keep the status: open"),
    "an approach of two lines": ("Approach: a\nand c\nStatus: b", "think: : a\nand c: b"),
}


@pytest.mark.parametrize("case", FIELDS)
def test_the_fields_of_a_state_update(case: str) -> None:
    text, thought = FIELDS[case]
    assert told(f"<STATE_UPDATE>\n{text}\n</STATE_UPDATE>") == [thought]


WORKING = "<STATE_UPDATE>Approach: a\nStatus: Working</STATE_UPDATE>"
FORCED: Mapping[str, tuple[str, str]] = {
    "code beside a status": (f"{WORKING}\n{CODE}", "think: : a: Debugging"),
    "code without a status": (f"{PLAN}\n{CODE}", "think: Look.: Debugging"),
    "a status without code": (WORKING, "think: : a: Working"),
}


@pytest.mark.parametrize("case", FORCED)
def test_after_a_failure_the_status_of_code_is_debugging(case: str) -> None:
    text, first = FORCED[case]
    assert told(text, debugging=True)[0] == first


# Drawn replies: none raises, and words outside of the right places never end a task.

ROUNDS = 200
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
# Sections that end a task where nothing around them spoils it: pieces alone hardly ever come together.
WHOLE = ("\n<PLAN>\n[FINALIZE]\n</PLAN>\n", "\n<STATE_UPDATE>\nStatus: Finished\n</STATE_UPDATE>\n")


@pytest.fixture
def draw() -> random.Random:
    seed = random.SystemRandom().randrange(10**9)
    print(f"seed {seed}")  # shown when a test fails
    return random.Random(seed)


def drawn(draw: random.Random) -> str:
    parts = draw.choices(PIECES, k=draw.randint(1, 40))
    if draw.random() < 0.2:
        parts.insert(draw.randint(0, len(parts)), draw.choice(WHOLE))
    return "".join(parts)


def test_no_reply_raises_and_only_whole_sections_end_a_task(draw: random.Random) -> None:
    """What ends one holds a closed plan with the token, or a closed state update with the status."""
    ended = 0
    for text in (drawn(draw) for _ in range(ROUNDS)):
        made = told(text)
        names = [call.split(":")[0].split(" ")[0] for call in made]
        assert "think" not in names[1:]
        assert not {"finish", "finish_task"} & set(names[:-1])
        if made and made[-1].startswith("finish: "):
            ended += 1
            lines = " ".join(text.lower().split())
            by_plan = all(part in lines for part in ("[finalize]", "<plan>", "</plan>"))
            by_update = all(part in lines for part in ("status: fin", "<state_update>", "</state_update>"))
            assert by_plan or by_update or "<call" in lines, text
    assert ended, "the pieces never came together: the test proves nothing"
