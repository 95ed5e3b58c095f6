"""The texts that a model reads in the tagged text protocol, in one place.

`TaggedTexts` can be replaced as a whole, for another language say. Fields in braces are filled in where the
text is used; the tags themselves, `[FINALIZE]`, `Approach:`, `Status:` and `Finished` are the protocol's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from signoff.graph.texts import check_template

DEFAULT: str = """\
- Say only what the evidence shows. Never make up a result.
- Find out by running something; do not guess what it would give.
- When something failed, find the cause before you try again.
- Finish only when the evidence shows that the whole task is done."""
"""The constitution: the principles of the work."""

_FORM = """\
# Form of every reply
You have no function calling. You act by writing exactly this, and then you stop:

<PLAN>
What the evidence shows, and what you do next.
</PLAN>
{action}
<STATE_UPDATE>
Approach: how you go about the task, in a few words
Status: Working
</STATE_UPDATE>

The next message brings the result as <EVIDENCE>. Never write evidence yourself."""

_CODE = """\

```python
print("one step of Python; only what is printed can be seen")
```
"""

_CALL = """\

<CALL name="tool">{"argument": "value"}</CALL>
"""

_CALLING = """\
- Any tool below: <CALL name="tool">{"argument": "value"}</CALL>, one or more, in place of the code or after \
it. The arguments are one JSON object."""

_FINISHING = """\
- `{finish}`: when the evidence shows that all is done, reply without code, write [FINALIZE] and the \
result in the plan, and `Status: Finished` in the state update. Written anywhere else they end nothing. \
To end as "partial", "blocked" or "impossible": <CALL name="{finish}">{"summary": "why", "outcome": \
"blocked"}</CALL>, if need be with "pending_issues": [], "completion_percentage": 50, "next_phase": "what"."""

_EXAMPLE = """\
<examples>
[user]
What is the sum of the squares from 1 to 5?
[you]
<PLAN>
Nothing is computed yet. I compute the sum with Python.
</PLAN>

```python
print(sum(n * n for n in range(1, 6)))
```

<STATE_UPDATE>
Approach: compute it with Python
Status: Working
</STATE_UPDATE>
[user]
<EVIDENCE of="run_python" status="ok">
55
</EVIDENCE>
[you]
<PLAN>
[FINALIZE] The sum of the squares from 1 to 5 is 55, computed with Python.
</PLAN>

<STATE_UPDATE>
Approach: compute it with Python
Status: Finished
</STATE_UPDATE>
</examples>"""


_FILLED_IN: Mapping[str, Mapping[str, Any]] = {
    "running": {"code": "text", "description": "text"},
    "thinking": {"think": "text"},
    "asking": {"ask": "text"},
    "principles": {"constitution": "text"},
    "current": {"approach": "text", "status": "text"},
    "required_tool": {"tool": "text"},
    "older": {"count": 1},
}


@dataclass(frozen=True)
class TaggedTexts:
    """The texts of the protocol. Replace single fields, or all of them.

    form: of a reply, `{action}` being `code` or `call`. translation and the four after it: how a reply says
    what the rules of the loop, and its reminders, call by the names of tools. example: for work with code.
    current, failing, required, required_tool: the end of the last message. noted: the answer to a reply that
    does nothing. open_code, open_call: what is said of a part that was left open. older: marks what is left
    out of older evidence.

    In running, thinking, asking, principles, current, required_tool and older only the names of the default
    may stand in braces (SetupError for others), and a brace that is to be shown is doubled. In every other
    text braces stand for themselves, since they show the model JSON.
    """

    form: str = _FORM
    code: str = _CODE
    call: str = _CALL
    translation: str = "Where the rules and reminders say that you call a tool, this is how you write it:"
    running: str = "- `{code}`: a ```python block. {description}"
    calling: str = _CALLING
    thinking: str = "- `{think}`: the plan and the state update."
    asking: str = "- `{ask}`: <ASK>your question</ASK>"
    finishing: str = _FINISHING
    principles: str = "# Principles\n{constitution}"
    tools: str = "# Tools for CALL, with the JSON schema of their arguments\n{tools}"
    example: str = _EXAMPLE
    current: str = "<CURRENT>\nApproach: {approach}\nStatus: {status}\n</CURRENT>"
    no_approach: str = "none yet"
    no_status: str = "Starting"
    failing: str = "The last execution failed. Find the cause in the evidence and put it right."
    required: str = "This reply must act: with code, a CALL, an ASK, or the finish. Text alone does nothing."
    required_tool: str = "This reply must use {tool}."
    noted: str = "Noted. Go on with the next step."
    open_code: str = (
        "Nothing was run: the code block was left open. Write it again, with ``` on a line of its own at its "
        "end."
    )
    open_call: str = (
        "Nothing was done: a tag was left open, or the arguments are not one JSON object. Write it again, "
        "with its closing tag."
    )
    older: str = "\n[… {count:,} characters of older evidence left out …]\n"

    def __post_init__(self) -> None:
        for name, values in _FILLED_IN.items():
            check_template(f"The text {name}", getattr(self, name), values)


DEFAULT_TAGGED_TEXTS = TaggedTexts()
