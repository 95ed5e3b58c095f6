"""The tagged text protocol, read: which calls a reply makes, in their order, and what finishes a task."""

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
    "odd characters": ("\ud800\x00\u2028```\x85<PLAN", []),
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
    "an unknown tool": ('<CALL name="fly">{}</CALL>', ["fly {}"]),
}  # fmt: skip


FENCES: Mapping[str, tuple[str, list[str]]] = {
    "python": ("```python\nx\n```", ["run: x"]),
    "another language": ("```bash\nrm -rf /\n```", []),
    "indented": ("  ```python\n  if x:\n      y\n  ```", ["run: if x:\n    y"]),
    "a fence in a long string": ('```python\ns = """\n```\n"""\n```', ['run: s = """\n```\n"""']),
    "left open": ("<PLAN>p</PLAN>\n```python\nx", ["think: p", "open run_python"]),
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
    "whole, without its closing tag": ('<CALL name="a">{"x": 1}\n' + PLAN, ["think: Look.", 'a {"x": 1}']),
    "no JSON": ('<CALL name="a">{x: 1}</CALL>\n' + CODE, ["open a", RUN]),
    "cut by another part": ('<CALL name="a">{"x": \n' + PLAN, ["think: Look.", "open a"]),
    "nested too deep": ('<CALL name="a">' + '{"x":' * 5000 + "1" + "}" * 5000 + "</CALL>", ["open a"]),
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


def test_nothing_in_a_reply_that_was_cut_finishes() -> None:
    with_code = f"{DONE}\n```python\nx"
    assert told(with_code, truncated=True)[-2:] == ["open run_python", "open finish_task"]


# The state update: the approach and the status that are noted.
FIELDS: Mapping[str, tuple[str, str]] = {
    "as the form has them": ("Approach: a\nStatus: b", "think: : a: b"),
    "the current approach": ("Current Approach: a\nCurrent Status: b", "think: : a: b"),
    "one line, a comma": ("Approach: a, then c, status: b", "think: : a, then c: b"),
    "a status within the approach": ("Approach: keep the status: open", "think: : keep the status: open"),
}


@pytest.mark.parametrize("case", FIELDS)
def test_the_fields_of_a_state_update(case: str) -> None:
    text, thought = FIELDS[case]
    assert told(f"<STATE_UPDATE>\n{text}\n</STATE_UPDATE>") == [thought]


WORKING = "<STATE_UPDATE>Approach: a\nStatus: Working</STATE_UPDATE>"


def test_after_a_failure_the_status_of_code_is_debugging() -> None:
    assert told(f"{WORKING}\n{CODE}", debugging=True)[0] == "think: : a: Debugging"
    assert told(f"{PLAN}\n{CODE}", debugging=True)[0] == "think: Look.: Debugging"
