"""Every text that the model reads, in one place.

`Texts` can be replaced as a whole, for another language say: `build_graph(..., texts=Texts(...))`.
Fields in braces are filled in where the text is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

SYSTEM = """\
You work on the user's task by calling tools, step by step, until it is completely done.

How this ends:
- Call `finish_task` when the task is absolutely done, and only then. It ends the task at once.
- Nothing else ends it. Text without a tool call does not end the task: you are asked to go on.
- If you need something only the user knows, call `ask_user`. Do not guess it and do not ask in plain text.
- `think` notes a thought or the progress. It does no work.

Before you call `finish_task`, ask yourself: Are all steps done? Is a check forgotten? Is the result as \
expected? If you are unsure, go on working.
Look at the results of your work before you finish. Call `finish_task` alone and once, after the last result.
If the task cannot be done, say so honestly: call `finish_task` with outcome "partial", "blocked" or \
"impossible" and the reason in the summary."""

FINISH_TASK = """\
End the task. Call it when all steps are done, the results are checked and nothing is left to do.
The summary says what was done, which files were touched, the key results and any cautions \
(100 to 500 characters are a good length)."""

ASK_USER = """\
Ask the user one question and wait for the answer. Use it only for what you cannot find out with the other \
tools: a decision, a missing fact, a permission. The task goes on with the answer."""

THINK = "Write down a thought, a plan or the progress so far. It does no work and does not end the task."

NUDGES: Mapping[str, str] = MappingProxyType(
    {
        "talked": (
            "You answered with text only. Text does not end the task. If everything is done, call finish_task "
            "now with a summary. If something is left, call the tool for the next step."
        ),
        "empty": "Your reply was empty. Call the tool for the next step, or finish_task if everything is done.",
        "truncated": (
            "Your reply was cut off at the length limit, and its tool calls were not run. Say it again in "
            "smaller steps: one call at a time, with shorter arguments."
        ),
        "filtered": (
            "Your last reply was a refusal or was stopped by a content filter. Go on with the part of the task "
            "that you can do, or call finish_task with outcome 'blocked' and the reason."
        ),
        "near_limit": (
            "You have {left} turn(s) left in this task. If the work is done, call finish_task now. If not, do "
            "the most important step next, and finish with outcome 'partial' if the rest does not fit."
        ),
        "refused": "Your finish_task was refused: {reason}",
        "resumed": "The task goes on. Continue where it stopped.",
    }
)

RESULTS: Mapping[str, str] = MappingProxyType(
    {
        "thought": "Noted. Go on with the next step.",
        "accepted": "Accepted. The task has ended.",
        "refused": "Refused: {reason}",
        "malformed": (
            "The arguments of {name} are not valid JSON ({error}). Nothing was run. Call it again with complete "
            "JSON arguments."
        ),
        "invalid": "The arguments of {name} do not fit: {error} Nothing was run. Call it again, corrected.",
        "unknown": "There is no tool {name!r}. Nothing was run. The tools are: {tools}.",
        "truncated": "Not run: the reply was cut off at the length limit. Call {name} again in a smaller step.",
        "too_many": "Not run: at most {limit} calls in one reply. Call {name} again in the next reply.",
        "after_control": "Not run: a call after {control} in the same reply is never run.",
        "superseded": "Superseded, not run: the user wrote a new message before this call could run.",
        "left_behind": "Not run: the conversation went on before this call could run.",
        "ended": "Not run: the task has ended.",
        "no_answer": "(the user gave an empty answer)",
        "timeout": (
            "{name} did not come back within {seconds:g} seconds; whether it took effect is not known. Check "
            "before you repeat it, or try a smaller step."
        ),
        "unsupported": "{name} returned something that this loop cannot apply ({type}).",
        "unknown_outcome": (
            "Outcome unknown: {name} was started, but the process ended before its result was saved. It may or "
            "may not have taken effect. Check before you repeat it."
        ),
        "rejected": "Not run: the user rejected this call. {reason}",
        "responded": "{message}",
        "edited": "(The user changed the arguments to {args}.)\n{result}",
        "not_approved": "Not run: {name} needs a person's approval, and there is none for exactly this call.",
        "nobody": "Not run: {name} needs {who}, and this run cannot wait for one. Go on without it.",
        "taken_back": "Superseded, not run. The user wrote instead: {words}",
        "no_artifact": "(The tool's artifact was dropped: it cannot be saved.)",
        "pending": "(no result yet)",
    }
)

REFUSALS: Mapping[str, str] = MappingProxyType(
    {
        "arguments": "the arguments do not fit: {error} Call finish_task again, corrected.",
        "empty_summary": "the summary is empty. Say in the summary what was done and what the result is.",
        "siblings": (
            "{names} in the same reply did not succeed, so the claim is void. Look at the results, put it right, "
            "and call finish_task alone."
        ),
        "unfinished": (
            "outcome 'done' means that nothing is left, but you reported {open}. Do the rest first, or finish "
            "with outcome 'partial'."
        ),
    }
)

DIGEST = """\
The older part of this conversation was folded to save space. What happened in it, one line a turn:
{lines}"""


@dataclass(frozen=True)
class Texts:
    """The texts that the model reads. Replace single fields, or all of them.

    `nudges`, `results` and `refusals` are looked up by the names used in the defaults; a name that is not
    given keeps its default.
    """

    system: str = SYSTEM
    finish_task: str = FINISH_TASK
    ask_user: str = ASK_USER
    think: str = THINK
    nudges: Mapping[str, str] = field(default_factory=lambda: NUDGES)
    results: Mapping[str, str] = field(default_factory=lambda: RESULTS)
    refusals: Mapping[str, str] = field(default_factory=lambda: REFUSALS)
    digest: str = DIGEST

    def __post_init__(self) -> None:
        for name, default in (("nudges", NUDGES), ("results", RESULTS), ("refusals", REFUSALS)):
            object.__setattr__(self, name, MappingProxyType({**default, **getattr(self, name)}))


DEFAULT_TEXTS = Texts()
