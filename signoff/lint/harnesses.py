"""The special features of the chat messages of AgentDojo, inspect and tau2-bench.

Also reads SWE-agent's and mini-swe-agent's messages: tool calls, or commands in the text of a reply, whose
output is the next message. Both end when their environment accepts a submission.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from signoff.lint import providers
from signoff.lint.pieces import Item, call, looks_failed, mapping, text_of, word
from signoff.lint.trace import Entry, Result, TraceCall, TraceMessage, TraceReply


def is_agentdojo(item: Item) -> bool:
    """Whether this can only be a message of AgentDojo's.

    Its text blocks use `content`, calls name their function as a text and have `args`, and a result contains
    its call.
    """
    return (
        any(part.get("type") == "text" and "content" in part for part in _parts(item, "content"))
        or any(isinstance(part.get("function"), str) and "args" in part for part in _calls(item))
        or (item.get("role") == "tool" and isinstance(item.get("tool_call"), dict))
    )


def is_inspect(item: Item) -> bool:
    """Whether this can only be a message of inspect's.

    Its calls and results name their function as a text, and messages name their source.
    """
    role = item.get("role")
    return (
        any(isinstance(part.get("function"), str) and "arguments" in part for part in _calls(item))
        or (role == "tool" and isinstance(item.get("function"), str))
        or (role in ("user", "assistant") and item.get("source") in ("input", "generate"))
    )


def is_tau2(item: Item) -> bool:
    """Whether this can only be a message of tau2-bench's: a call and a result name their requestor."""
    return "requestor" in item or any("requestor" in part for part in _calls(item))


def _calls(item: Item) -> list[Item]:
    return _parts(item, "tool_calls") if item.get("role") == "assistant" else []


def _parts(item: Item, key: str) -> list[Item]:
    found = item.get(key)
    return [part for part in found if isinstance(part, dict)] if isinstance(found, list) else []


SUBMIT = "submit"
"""The name of the call that ends a run, also if it is a command with a certain output."""

_WORD = r"(?:COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT|MINI_SWE_AGENT_FINAL_OUTPUT)"
_ECHOED = re.compile(rf"\becho\s+[\"']?{_WORD}\b")
_FENCED = re.compile(r"```(?:mswea_bash_command|bash|sh)[ \t]*\r?\n(.*?)\r?\n?```", re.DOTALL)
_OFFERED = re.compile(rf"\bsubmit\b|\b{_WORD}\b")


def is_swe_agent(item: Item) -> bool:
    """Whether this can only be a message of SWE-agent's."""
    if item.get("role") == "tool":
        return isinstance(item.get("tool_call_ids"), list)
    return item.get("role") == "assistant" and "action" in item and ("thought" in item or "agent" in item)


def is_mini(item: Item) -> bool:
    """Whether this can only be a message of mini-swe-agent's.

    That is: the instructions say how to submit, or a reply has a command in its fence.
    """
    text = _plain(item.get("content"))
    if item.get("role") == "assistant":
        return "```mswea_bash_command" in text
    return item.get("role") in ("system", "user") and bool(_ECHOED.search(text))


def read_swe_agent(items: Sequence[Item], _: bool = False) -> Iterator[Entry]:
    """Returns the entries of the messages, without demonstrations. Raises Unreadable for wrong types."""
    return _read(items, _action)


def read_mini(items: Sequence[Item], _: bool = False) -> Iterator[Entry]:
    """Returns the entries of the messages. Raises Unreadable for wrong types."""
    return _read(items, _fenced)


def offers(items: Sequence[Item]) -> frozenset[str]:
    """Returns the finishing command, if the instructions name it."""
    first = next((at for at, item in enumerate(items) if item.get("role") == "assistant"), len(items))
    texts = (_plain(item.get("content")) for item in items[:first])
    return frozenset({SUBMIT}) if any(_OFFERED.search(text) for text in texts) else frozenset()


def _read(items: Sequence[Item], command: Callable[[int, Item, str], Iterator[TraceCall]]) -> Iterator[Entry]:
    """Yields the entries. command: returns the call in the text of a reply.

    After the first reply no person writes any more: a user message is the output of the command before it, or
    a reminder of the program.
    """
    final = max((at for at, item in enumerate(items) if item.get("role") == "assistant"), default=-1)
    last: TraceReply | None = None
    for at, item in enumerate(items):
        role = item.get("role")
        if item.get("is_demo"):
            continue
        if role == "user" and last is not None:
            found: Iterable[Entry] = _observed(at, item, last)
        elif role == "exit":
            found = _exit(at, item, last)
        else:
            found = providers.read_chat(at, item)
        for entry in found:
            if isinstance(entry, TraceReply):
                calls = entry.calls or tuple(command(at, item, entry.text))
                entry = last = replace(entry, calls=tuple(map(_rename_submit, calls)))
            elif isinstance(entry, Result) and at < final and _submits(entry, last):
                # The environment ends the run when it accepts a submission: it did not accept this one.
                entry = replace(entry, failed=True)
            yield entry


def _observed(at: int, item: Item, last: TraceReply) -> Iterator[Entry]:
    waits = next((made for made in last.calls if not made.id), None)
    text = text_of(at, item.get("content"))
    yield Result(at, "", text, looks_failed(text), waits.name) if waits else TraceMessage(at, genuine=False)


def _exit(at: int, item: Item, last: TraceReply | None) -> Iterator[Entry]:
    """Returns the end of a mini-swe-agent run: a submission answers its call, all else is not a message."""
    status = mapping(at, "extra", item.get("extra")).get("exit_status")
    made = next((made for made in last.calls if made.name == SUBMIT), None) if last else None
    if status == "Submitted" and made:
        yield Result(at, made.id, text_of(at, item.get("content")), name=made.name)


def _action(at: int, item: Item, _: str) -> Iterator[TraceCall]:
    """Returns the command in a reply of SWE-agent, as a call named by its first word."""
    written = word(at, "the action", item.get("action")).strip()
    if written:
        yield call(at, "", written.split()[0], {"command": written})


def _fenced(at: int, _: Item, text: str) -> Iterator[TraceCall]:
    """Returns the command in a reply of mini-swe-agent, which accepts exactly one."""
    found = _FENCED.findall(text)
    if len(found) == 1:
        yield call(at, "", "bash", {"command": found[0].strip()})


def _rename_submit(made: TraceCall) -> TraceCall:
    return replace(made, name=SUBMIT) if _ECHOED.search(made.arguments.replace('\\"', '"')) else made


def _submits(result: Result, last: TraceReply | None) -> bool:
    return any(made.name == SUBMIT and made.id == result.id for made in (last.calls if last else ()))


def _plain(content: object) -> str:
    """Returns the text of a content of any type."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
