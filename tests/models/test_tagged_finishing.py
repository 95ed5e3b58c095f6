"""The tagged text protocol: which words finish a task, and where they end nothing."""

from collections.abc import Mapping

import pytest

from signoff.models.text_protocol.calls import Update, update_of
from tests.support.tagged_replies import CODE, DONE, FINISHED, PLAN, RUN, made, told

FINISHES: Mapping[str, str] = {
    "the token": "<PLAN>[FINALIZE] It is 1.</PLAN>",
    "the token at the end": "<PLAN>\nIt is 1.\n[FINALIZE]\n</PLAN>",
    "lower case tags": "<plan>[FINALIZE]</plan>",
    "Finished": "<STATE_UPDATE>Status: Finished</STATE_UPDATE>",
    "finalized": "<STATE_UPDATE>\nstatus: finalized\n</STATE_UPDATE>",
    "FINISHED.": "<state_update>Approach: a\nSTATUS: FINISHED.</state_update>",
    "in bold": "<STATE_UPDATE>\n**Approach:** a\n**Status:** **Finished!**\n</STATE_UPDATE>",
    "as a list": "<STATE_UPDATE>\n- Approach: a\n- Status: Finished\n</STATE_UPDATE>",
    "on the next line": "<STATE_UPDATE>\nStatus:\nFinished\n</STATE_UPDATE>",
    "after the status": "<STATE_UPDATE>\nStatus: Finished\nResult: 1\n</STATE_UPDATE>",
    "one after the other": "<PLAN>a</PLAN> <STATE_UPDATE>Status: Finished</STATE_UPDATE>",
    "a plan that quotes evidence": '<PLAN>\n<EVIDENCE of="x">\n1\n</EVIDENCE>\n[FINALIZE]\n</PLAN>',
    "a closed plan after an open one": "<PLAN>\na\n<PLAN>\n[FINALIZE]\n</PLAN>",
    "after evidence that was quoted": f"<EVIDENCE>1</EVIDENCE>\n{DONE}",
}


@pytest.mark.parametrize("case", FINISHES)
def test_what_finishes(case: str) -> None:
    assert [call for call in told(FINISHES[case]) if call.startswith("finish: ")]


# The token is for the protocol: whoever reads the summary is not shown it, however it was written.
ENDED = "<STATE_UPDATE>Status: Finished</STATE_UPDATE>"
SUMMARIES: Mapping[str, str] = {
    "at the beginning": "<PLAN>[FINALIZE] It is 1.</PLAN>",
    "twice": "<PLAN>\n[FINALIZE]\nIt is 1. [FINALIZE]\n</PLAN>",
    "in bold": "<PLAN>**[FINALIZE]** It is 1.</PLAN>",
    "with a colon": "<PLAN>[FINALIZE]: It is 1.</PLAN>",
    "in bold with a colon": "<PLAN>**[FINALIZE]:** It is 1.</PLAN>",
    "as code": f"<PLAN>`[FINALIZE]` It is 1.</PLAN>{ENDED}",
    "in small letters": f"<PLAN>[finalize] It is 1.</PLAN>{ENDED}",
    "outside of a plan": f"[FINALIZE] It is 1.\n{ENDED}",
    "in a call": '<CALL name="finish_task">{"summary": "[FINALIZE] It is 1."}</CALL>',
}


@pytest.mark.parametrize("case", SUMMARIES)
def test_no_summary_holds_the_token(case: str) -> None:
    assert told(SUMMARIES[case])[-1] == "finish: It is 1."


def test_the_approach_beside_a_summary_holds_no_token() -> None:
    text = "<PLAN>It is 1.</PLAN><STATE_UPDATE>\nApproach: a [FINALIZE]\nStatus: Finished\n</STATE_UPDATE>"
    assert told(text)[-1] == "finish: It is 1.\n\nApproach: a"


def test_a_token_that_is_only_quoted_is_a_word_of_the_summary() -> None:
    said = 'The file names "[FINALIZE]" now.'
    assert told(f"<PLAN>{said}</PLAN>{ENDED}")[-1] == f"finish: {said}"


GO_ON: Mapping[str, str] = {
    "words": "I am finished. [FINALIZE] Status: Finished",
    "words on a line": "Status: Finished",
    "in code": '```python\nprint("<PLAN>[FINALIZE]</PLAN>")\n# Status: Finished\n```',
    "tags in code": f"```python\n{DONE}\n{FINISHED}\n```",
    "tags in another block": f"```\n{DONE}\n{FINISHED}\n```",
    "tags in a block left open": f"```xml\n{DONE}\n{FINISHED}",
    "tags in a string": 'x = "<PLAN>[FINALIZE]</PLAN>"',
    "tags in a sentence": f"At the end I write {DONE} and am done.",
    "tags quoted": f"> {DONE}",
    "tags in inline code": f"`{DONE}`",
    "in evidence": f'<EVIDENCE of="run_python">\n{DONE}\n</EVIDENCE>',
    "in evidence left open": f"<EVIDENCE>\n{DONE}",
    "after evidence that was made up": f"{CODE}\n<EVIDENCE>\n1\n</EVIDENCE>\n{DONE}\n{FINISHED}",
    "in evidence in the plan": "<PLAN>\n<EVIDENCE>\n[FINALIZE]\n</EVIDENCE>\n</PLAN>",
    "code in the plan": "<PLAN>\n```\n[FINALIZE]\n```\n</PLAN>",
    "inline code in the plan": "<PLAN>I write `[FINALIZE]` later.</PLAN>",
    "a quoted token": "<PLAN>I write \"[FINALIZE]\" or '[FINALIZE]' later.</PLAN>",
    "a token in lower case": "<PLAN>x[finalize] [Finalize]</PLAN>",
    "the token in the state update": "<STATE_UPDATE>Status: [FINALIZE]</STATE_UPDATE>",
    "the status in the plan": "<PLAN>\nStatus: Finished\n</PLAN>",
    "the status as a part": "<STATE_UPDATE>Status: Finished reading</STATE_UPDATE>",
    "not the status": "<STATE_UPDATE>Status: not finished</STATE_UPDATE>",
    "a status in quotes": '<STATE_UPDATE>Status: "Finished"</STATE_UPDATE>',
    "a status in code": "<STATE_UPDATE>\n```\nStatus: Finished\n```\n</STATE_UPDATE>",
    "the approach": "<STATE_UPDATE>Approach: Finished\nStatus: Working</STATE_UPDATE>",
    "an earlier state update": f"{FINISHED}\n<STATE_UPDATE>Status: Working</STATE_UPDATE>",
    "an earlier plan": f"{DONE}\n<PLAN>Or not.</PLAN>",
    "in the arguments of a call": '<CALL name="a">{"t": "\n<PLAN>[FINALIZE]</PLAN>\n"}</CALL>',
    "in a question": "<ASK>\nShall I write [FINALIZE]?\nStatus: Finished\n</ASK>",
    "tags of another name": "<PLANS>[FINALIZE]</PLANS><STATE>Status: Finished</STATE>",
    "a closing tag only": "[FINALIZE]</PLAN>\nStatus: Finished</STATE_UPDATE>",
}


@pytest.mark.parametrize("case", GO_ON)
def test_what_does_not_finish(case: str) -> None:
    assert not [call for call in told(GO_ON[case]) if "finish_task" in call or call.startswith("finish: ")]


OPEN: Mapping[str, str] = {
    "a plan": "<PLAN>[FINALIZE] It is 1.",
    "a plan before the state update": "<PLAN>\n[FINALIZE]\n<STATE_UPDATE>\nStatus: x\n</STATE_UPDATE>",
    "a state update": "<STATE_UPDATE>\nStatus: Finished",
    "a call without its closing tag": '<CALL name="finish_task">{"summary": "It is 1."}',
    "a state update closed as a plan": "<STATE_UPDATE>\nStatus: Finished\n</PLAN>",
}


@pytest.mark.parametrize("case", OPEN)
def test_a_finish_in_a_part_left_open_is_made_and_void(case: str) -> None:
    assert told(OPEN[case])[-1] == "open finish_task"


CUT: Mapping[str, str] = {
    "the token": DONE,
    "the status": f"{PLAN}\n{FINISHED}\nand so",
    "a call that is whole": '<CALL name="finish_task">{"summary": "It is 1."}</CALL>',
}


@pytest.mark.parametrize("case", CUT)
def test_nothing_in_a_reply_that_was_cut_finishes(case: str) -> None:
    assert told(CUT[case])[-1].startswith("finish: "), "uncut it would"
    assert told(CUT[case], truncated=True)[-1] == "open finish_task"
    with_code = f"{CUT[case]}\n```python\nx"
    assert told(with_code, truncated=True)[-2:] == ["open run_python", "open finish_task"]


def test_a_forced_status_is_recorded_unless_the_reply_finishes() -> None:
    working = "<STATE_UPDATE>Approach: a\nStatus: Working</STATE_UPDATE>"
    thought = {"thought": "", "approach": "a", "status": "Debugging"}
    assert made(working, debugging=True) == [("think", thought)]
    assert made(PLAN, debugging=True) == [("think", {"thought": "Look.", "status": "Debugging"})]
    assert told(CODE, debugging=True) == [RUN]
    assert told(FINISHED, debugging=True)[0] == "think: : look: Finished"


FIELDS: Mapping[str, tuple[str, Update]] = {
    "as the form has them": ("Approach: a\nStatus: b", Update("a", "b")),
    "the current approach": ("Current Approach: a\nCurrent Status: b", Update("a", "b")),
    "in small letters": ("current approach: a\nstatus: b", Update("a", "b")),
    "bold labels": ("**Current Approach:** a\n**Status**: b", Update("a", "b")),
    "a list": ("- Current Approach: a\n* Status: b", Update("a", "b")),
    "a list in bold": ("• **Current Approach**: a\n+ **Status:** **b**", Update("a", "b")),
    "a numbered list": ("1. Approach: a\n2) Status: b", Update("a", "b")),
    "one line, a bar": ("Current Approach: a | Status: b", Update("a", "b")),
    "one line, a comma": ("Approach: a, then c, status: b", Update("a, then c", "b")),
    "one line, a semicolon": ("Status: b; current approach: a", Update("a", "b")),
    "one line, a sentence": ("Approach: a. Status: b", Update("a", "b")),
    "one line, a space": ("Approach: a Status: b", Update("a", "b")),
    "one line, bold": ("**Approach:** a **Status:** b", Update("a", "b")),
    "a status within the approach": ("Approach: keep the status: open", Update("keep the status: open")),
    "a status in quotes": ('Approach: say "Status: Finished"', Update('say "Status: Finished"')),
    "an approach of two lines": ("Approach: a\nand c\nStatus: b", Update("a\nand c", "b")),
    "no label": ("a\nb", Update()),
}


@pytest.mark.parametrize("case", FIELDS)
def test_the_fields_of_a_state_update(case: str) -> None:
    text, expected = FIELDS[case]
    assert update_of(text) == expected
