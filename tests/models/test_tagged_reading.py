"""The tagged text protocol, read: which calls a reply makes, in which order."""

import time
from collections.abc import Mapping

import pytest
from langchain_core.utils.json import parse_partial_json

from signoff.models.text_protocol.calls import ToolNames, calls_of
from signoff.models.text_protocol.reading import read_text
from tests.support.tagged_replies import CODE, DONE, FINISHED, PLAN, RUN, TOOLS, made, told

ORDER: Mapping[str, tuple[str, list[str]]] = {
    "nothing": ("", []),
    "plain text": ("I am done. Status: Finished [FINALIZE]", []),
    "a plan": (PLAN, ["think: Look."]),
    "a plan, code, a state update": (
        f"{PLAN}\n{CODE}\n<STATE_UPDATE>\nApproach: look\nStatus: Working\n</STATE_UPDATE>",
        ["think: Look.: look: Working", RUN],
    ),
    "the plan after the code": (f"{CODE}\n{PLAN}", ["think: Look.", RUN]),
    "no plan": (CODE, [RUN]),
    "words around": (f"Well.\n{PLAN}\nSo:\n{CODE}\nThat is it.", ["think: Look.", RUN]),
    "several blocks": (f"{CODE}\nand\n```py\nprint(2)\n```", [RUN, "run: print(2)"]),
    "two plans": (f"{PLAN}\n{CODE}\n<PLAN>More.</PLAN>", ["think: Look.\n\nMore.", RUN]),
    "the last state update counts": (
        f"{FINISHED}\n<STATE_UPDATE>Approach: anew\nStatus: Working</STATE_UPDATE>",
        ["think: : anew: Working"],
    ),
    "code, a call, code": (
        f'{CODE}\n<CALL name="write_file">{{"path": "a"}}</CALL>\n{CODE}',
        [RUN, 'write_file {"path": "a"}', RUN],
    ),
    "a question": (f"{PLAN}\n<ASK>Which one?</ASK>", ["think: Look.", "ask: Which one?"]),
    "a question before the code": (f"<ASK>Which?</ASK>\n{CODE}", ["ask: Which?", RUN]),
    "a finish": (DONE, ["think: It is 1.", "finish: It is 1."]),
    "a finish by the state update": (
        f"{PLAN}\n{FINISHED}",
        ["think: Look.: look: Finished", "finish: Look.\n\nApproach: look"],
    ),
    "a finish comes after the code": (
        f"{DONE}\n{CODE}\n{FINISHED}",
        ["think: It is 1.: look: Finished", RUN, "finish: It is 1.\n\nApproach: look"],
    ),
    "a finish after a question": (
        f"{DONE}\n<ASK>Sure?</ASK>",
        ["think: It is 1.", "ask: Sure?", "finish: It is 1."],
    ),
    "a finish that is called": (
        f'<CALL name="finish_task">{{"summary": "no", "outcome": "blocked"}}</CALL>\n{CODE}\n{DONE}',
        ["think: It is 1.", RUN, "finish: no"],
    ),
    "a summary from the words": (
        f"It is 1.\n{FINISHED}",
        ["think: : look: Finished", "finish: It is 1.\n\nApproach: look"],
    ),
    "a summary from nothing": ("<PLAN>[FINALIZE]</PLAN>", ["think: ", "finish: Finished."]),
    "a summary from the status": (
        "<STATE_UPDATE>Status: Finished</STATE_UPDATE>",
        ["think: : Finished", "finish: Finished"],
    ),
    "an unknown tool": ('<CALL name="fly">{}</CALL>', ["fly {}"]),
}  # fmt: skip


@pytest.mark.parametrize("case", ORDER)
def test_the_calls_of_a_reply_in_order(case: str) -> None:
    text, expected = ORDER[case]
    assert told(text) == expected
    assert told(text.replace("\n", "\r\n")) == [call.replace("\r", "") for call in expected]
    assert told(text.replace("\n", "\r")) == expected


FENCES: Mapping[str, tuple[str, list[str]]] = {
    "python": ("```python\nx\n```", ["run: x"]),
    "Python": ("```Python\nx\n```", ["run: x"]),
    "python3": ("```python3\nx\n```", ["run: x"]),
    "py with a title": ("``` py title=a.py\nx\n```", ["run: x"]),
    "tildes": ("~~~python\nx\n~~~", ["run: x"]),
    "four backticks": ("````python\ns = '```'\n```\n````", ["run: s = '```'\n```"]),
    "no language": ("```\nx\n```", []),
    "another language": ("```bash\nrm -rf /\n```", []),
    "pycon": ("```pycon\n>>> 1\n```", []),
    "empty": ("```python\n\n```", []),
    "indented": ("  ```python\n  if x:\n      y\n  ```", ["run: if x:\n    y"]),
    "right after a tag": ("<PLAN>p</PLAN>```python\nx\n```", ["think: p", "run: x"]),
    "within a line": ("see ```python\nx\n```", []),
    "a fence within a line of code": ("```python\ns = '```'\n```", ["run: s = '```'"]),
    "a fence in a long string": ('```python\ns = """\n```\n"""\n```', ['run: s = """\n```\n"""']),
    "in a string of apostrophes": ("```python\ns = '''\n```\n'''\nx\n```", ["run: s = '''\n```\n'''\nx"]),
    "quotes in a comment": ('```python\nx # """\n```\ntext\n```\nno\n```', ['run: x # """']),
    "quotes in a string": ("```python\nx = \"'''\"\n```\n```\nno\n```", ["run: x = \"'''\""]),
    "an escaped quote": ('```python\nx = """\\"""\n```\n"""\n```', ['run: x = """\\"""\n```\n"""']),
    "a string that never ends": ('```python\nx = """\n```\n<PLAN>p</PLAN>', ["think: p", 'run: x = """']),
    "left open": ("<PLAN>p</PLAN>\n```python\nx", ["think: p", "open run_python"]),
    "left open with nothing": ("```python", ["open run_python"]),
    "left open in another language": ("```\n<PLAN>p</PLAN>", []),
    "closed by tildes": ("```python\nx\n~~~", ["open run_python"]),
    "closed by too few": ("````python\nx\n```", ["open run_python"]),
    "closed with words": ("```python\nx\n``` end", ["open run_python"]),
    "in a plan": ("<PLAN>\n```python\nx\n```\n</PLAN>", ["think: ```python\nx\n```"]),
    "in a state update": (
        "<STATE_UPDATE>\nApproach: a\n```python\nx\n```\n</STATE_UPDATE>",
        ["think: : a"],
    ),
    "after a plan that was left open": ("<PLAN>\np\n```python\nx\n```", ["think: p", "run: x"]),
    "only in the plan, and then": (
        "<PLAN>\n```python\nx\n```\n</PLAN>\n```python\ny\n```",
        ["think: ```python\nx\n```", "run: y"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FENCES)
def test_what_is_code(case: str) -> None:
    text, expected = FENCES[case]
    assert told(text) == expected


CALLS: Mapping[str, tuple[str, list[str]]] = {
    "two": ('<CALL name="a">{"x": 1}</CALL><CALL name="b">{"y": 2}</CALL>', ['a {"x": 1}', 'b {"y": 2}']),
    "lower case, apostrophes": ("<call name='a'>{}</call>", ["a {}"]),
    "no quotes": ("<CALL name=a>{}</CALL>", ["a {}"]),
    "no arguments": ('<CALL name="a"></CALL>', ["a {}"]),
    "closed at once": ('<CALL name="a"/>', ["a {}"]),
    "in a block": ('<CALL name="a">\n```json\n{"x": 1}\n```\n</CALL>', ['a {"x": 1}']),
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
    "no object": ('<CALL name="a">[1]</CALL>', ["open a"]),
    "cut": ('<CALL name="a">{"x": "12', ["open a"]),
    "cut by another part": ('<CALL name="a">{"x": \n' + PLAN, ["think: Look.", "open a"]),
    "nested too deep": ('<CALL name="a">' + '{"x":' * 5000 + "1" + "}" * 5000 + "</CALL>", ["open a"]),
    "a number too long": ('<CALL name="a">{"x": ' + "1" * 5000 + "}</CALL>", ["open a"]),
    "no name": ("<CALL>{}</CALL>", []),
    "in a sentence": ('Then I write <CALL name="a">{}</CALL> here.', []),
    "a question left open": ("<ASK>Which", ["open ask_user"]),
    "a question in a block": ("```\n<ASK>Which?</ASK>\n```", []),
    "a question of several lines": ("<ASK>\nWhich?\nA or B?\n</ASK>", ["ask: Which?\nA or B?"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CALLS)
def test_calls_and_questions(case: str) -> None:
    text, expected = CALLS[case]
    assert told(text) == expected


@pytest.mark.parametrize(
    ("bound", "calls"),
    [
        (set(), []),
        ({"run_python"}, ["run_python"]),
        ({"think", "finish_task"}, ["think", "finish_task"]),
        ({"ask_user"}, ["ask_user"]),
    ],
)
def test_a_part_without_its_tool_makes_no_call(bound: set[str], calls: list[str]) -> None:
    reading = read_text(f"{DONE}\n{CODE}\n<ASK>Why?</ASK>")
    found = calls_of(reading, ToolNames(), bound, truncated=False, debugging=False)
    assert [call.name for call in found] == calls


def test_other_names_of_the_tools() -> None:
    names = ToolNames("exec", "note", "question", "done")
    reading = read_text(f"{DONE}\n{CODE}\n<ASK>Why?</ASK>")
    found = calls_of(reading, names, set(vars(names).values()), truncated=False, debugging=False)
    assert [call.name for call in found] == ["note", "exec", "question", "done"]


def test_what_was_left_open_is_no_json_for_any_parser() -> None:
    for text in ("```python\n{}", '<CALL name="a">{"x": "1', "<ASK>{}", "<PLAN>[FINALIZE] {}"):
        call = calls_of(read_text(text), ToolNames(), TOOLS, truncated=False, debugging=False)[-1]
        with pytest.raises(ValueError, match="Expecting value"):
            parse_partial_json(call.arguments)


UNITS = (
    "a", " ", "\n", " \n", "<", "`", "```\n", "```python\n", "~~~\n", '"""', "'", "\\",
    "<PLAN>", "\n<PLAN>\n", "</PLAN>", "<PLAN>[FINALIZE]</PLAN>", "\n<PLAN>\n```a\n",
    "<PLAN>\n```\n</PLAN>\n", "```python\nx\n```\n<PLAN>\n", "```python\n\\'''\n```\n",
    "```python\n'''\n~~~\n", "\n```python\nx = '''\n```\n", '\n<CALL name="a">{', '\n<CALL name="a">[',
    '\n<CALL name="a">{"', '\n<CALL name="a">{"</CALL>":1,"k":"', '\n<CALL name="a">{"a":1}</CALL>',
    "\n<CALL ", "\n<ASK>\n", "\n<EVIDENCE>\n", "\n<EVIDENCE", "<STATE_UPDATE>\nStatus: x\n", "Approach:\n",
    "Approach: a Status: b, ", "\nApproach: ", " Status", ",status:",
)  # fmt: skip


@pytest.mark.parametrize(
    "before", ["", "```python\n", "<PLAN>\n", '<CALL name="a">{"t": "', "<STATE_UPDATE>\n"]
)
@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.thorough
def test_the_time_grows_with_the_length_only(before: str) -> None:
    """Square time would be hundreds of times more for some of these."""

    def seconds(unit: str, size: int) -> float:
        text, took = before + unit * (size // len(unit)), []
        for _ in range(3):
            begun = time.process_time()
            made(text)
            took.append(time.process_time() - begun)
            if took[-1] < 0.2:
                break
        # The garbage of other tests may be collected meanwhile.
        return min(took)

    found = {unit: (seconds(unit, 10_000), seconds(unit, 200_000)) for unit in UNITS}
    assert not {unit: (few, many) for unit, (few, many) in found.items() if many > 0.2 + 60 * few}


def test_a_reply_of_a_megabyte() -> None:
    block = f"```python\n{'x = 1  # it is' * 700}\n```\n"
    text = f"{PLAN}\n{block * 100}{FINISHED}"
    assert len(text) > 900_000
    begun = time.process_time()
    assert len(told(text)) == 102
    assert time.process_time() - begun < 2
