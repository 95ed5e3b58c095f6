"""Shows a conversation with tools to a model that knows only text: the prompt of the tagged protocol.

A reply of another model is rewritten in the form of the protocol.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from signoff.graph.blocks import block_text
from signoff.graph.messages import is_line, marks, nudge_kind
from signoff.models.text_protocol.calls import ToolNames
from signoff.models.text_protocol.reading import plain_lines
from signoff.models.text_protocol.status import Position, position, tagged_notes
from signoff.models.text_protocol.texts import DEFAULT_TAGGED_TEXTS, TaggedTexts


def written(message: AIMessage, names: ToolNames) -> str:
    """Returns the reply as its model wrote it, without evidence that it made up.

    A reply with tool calls, for example of another model, is rewritten in the form of this protocol.
    """
    notes = tagged_notes(message)
    if notes is not None:
        text = plain_lines(message.text)
        return text[: notes.get("upto", len(text))].rstrip()
    calls = [_written(call["name"], call["args"], names) for call in message.tool_calls]
    return "\n\n".join(part for part in (message.text.strip(), *calls) if part)


def _written(name: str, args: Mapping[str, Any], names: ToolNames) -> str:
    if name == names.think:
        return "\n\n".join(part for part in (_section("PLAN", args.get("thought")), _state(args)) if part)
    if name == names.code and isinstance(args.get("code"), str):
        return _fenced(args["code"])
    if name == names.ask and set(args) == {"question"}:
        return _section("ASK", args["question"])
    if name == names.finish and set(args) == {"summary"}:
        return _section("PLAN", f"[FINALIZE] {args['summary']}")
    return f'<CALL name="{name}">{json.dumps(args, ensure_ascii=False)}</CALL>'


def _state(args: Mapping[str, Any]) -> str:
    lines = [f"{key.capitalize()}: {args[key]}" for key in ("approach", "status") if args.get(key)]
    return _section("STATE_UPDATE", "\n".join(lines))


def _section(tag: str, text: Any) -> str:
    return f"<{tag}>\n{text}\n</{tag}>" if text else ""


def _fenced(code: str) -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", code)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}python\n{code.rstrip()}\n{fence}"


Content = str | list[Any]
_TAG = re.compile(r"<(?=/?(?:PLAN|STATE_UPDATE|CALL|ASK|EVIDENCE|CURRENT)\b)", re.IGNORECASE)


@dataclass(frozen=True)
class Prompt:
    """Turns messages into the messages of the inner model.

    tools: the bound tools, as OpenAI-style functions. choice: the name of a tool that must be called, "any",
    or None. executors: the tools that execute something. older: how many characters are shown of a result
    from before the last turn; a failed one is shown in full until the next execution. standing: the position
    of the work, when more is known of it than `messages` show.
    """

    constitution: str
    names: ToolNames = field(default_factory=ToolNames)
    tools: Sequence[Mapping[str, Any]] = ()
    choice: str | None = None
    executors: Sequence[str] = ()
    older: int = 1000
    texts: TaggedTexts = field(default=DEFAULT_TAGGED_TEXTS)
    standing: Position | None = None

    def messages(self, shown: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Returns the prompt for `shown`: a system message, then user and assistant in turn, the user last.

        Without tools it is only `shown`, as text.
        """
        # In text a result is the user's, so that nothing need stand between it and what is said after it.
        shown = [message for message in shown if not is_line(message)]
        now = self.standing or position(shown, self.executors, self.names.think)
        failed = now.evidence if now.failing else None
        rules, end = (self._rules(), self._current(shown, now, failed)) if self.tools else ((), "")
        system = [message.text for message in shown if isinstance(message, SystemMessage)]
        head = "\n\n".join(part for part in (*system, *rules) if part)
        turns = [*self._turns(shown, failed), ("user", end)]
        return [*([SystemMessage(head)] if head else []), *_merged(turns, self.texts.noted)]

    def _rules(self) -> Iterator[str]:
        texts, names = self.texts, self.names
        by_name = {tool["name"]: tool for tool in self.tools}
        own = (names.code, names.think, names.ask)
        called = [tool for name, tool in by_name.items() if name not in (*own, names.finish)]
        yield texts.principles.format(constitution=self.constitution) if self.constitution else ""
        yield texts.form.replace("{action}", texts.code if names.code in by_name else texts.call)
        code = by_name.get(names.code, {})
        ways = {
            names.code: texts.running.format(code=names.code, description=code.get("description", "")),
            names.think: texts.thinking.format(think=names.think),
            names.ask: texts.asking.format(ask=names.ask),
            names.finish: texts.finishing.replace("{finish}", names.finish),
        }
        lines = [way for name, way in ways.items() if name in by_name]
        yield "\n".join([texts.translation, *lines, *([texts.calling] if called else [])])
        ending = [tool for name, tool in by_name.items() if name == names.finish and _needs_more(tool)]
        listed = [*called, *ending]
        yield texts.tools.replace("{tools}", "\n".join(map(_described, listed))) if listed else ""
        yield texts.example if names.code in by_name else ""

    def _current(self, shown: Sequence[BaseMessage], now: Position, failed: ToolMessage | None) -> str:
        """Returns the position of the work, and what the next reply must do."""
        texts = self.texts
        approach, status = now.approach or texts.no_approach, now.status or texts.no_status
        parts = []
        if failed is not None and not any(_is(message, failed) for message in shown):
            # It is summarised.
            parts.append(self._evidence(failed, failed.name or self.names.code, whole=True))
        parts.append(texts.current.format(approach=escaped(str(approach)), status=escaped(str(status))))
        parts += [texts.failing] if now.failing else []
        if self.choice:
            named = texts.required_tool.format(tool=self.choice)
            parts.append(texts.required if self.choice == "any" else named)
        return "\n".join(parts)

    def _turns(
        self, shown: Sequence[BaseMessage], failed: ToolMessage | None
    ) -> Iterator[tuple[str, Content]]:
        last = max((at for at, message in enumerate(shown) if isinstance(message, AIMessage)), default=0)
        names: dict[str, str] = {}
        for at, message in enumerate(shown):
            if isinstance(message, AIMessage):
                names |= {call["id"] or "": call["name"] for call in message.tool_calls}
                yield "user", ""
                yield "assistant", written(message, self.names)
            elif isinstance(message, ToolMessage):
                name = message.name or names.get(message.tool_call_id, "tool")
                whole = at > last or (failed is not None and _is(message, failed))
                yield "user", self._evidence(message, name, whole=whole)
            elif not isinstance(message, SystemMessage):
                yield "user", _words(message)

    def _evidence(self, message: ToolMessage, name: str, *, whole: bool) -> str:
        """Returns a result as evidence that cannot be confused with other text; empty for a thought's
        answer.
        """
        ok = message.status != "error"
        if name == self.names.think and ok:
            return ""
        content = message.content
        text = content if isinstance(content, str) else "\n".join(map(block_text, content))
        if marks(message).get("not_run") == "malformed":
            text = self.texts.open_code if name == self.names.code else self.texts.open_call
        elif not whole:
            text = self._shortened(text)
        status = "ok" if ok else "error"
        source = re.sub(r"[^\w.:/-]", "_", name)
        return f'<EVIDENCE of="{source}" status="{status}">\n{escaped(text.strip())}\n</EVIDENCE>'

    def _shortened(self, text: str) -> str:
        return shortened(text, self.older, self.texts)


def shortened(text: str, most: int, texts: TaggedTexts) -> str:
    """Returns `text`, without its middle if it is longer than `most` characters."""
    left_out = len(text) - most
    if left_out <= len(texts.older):
        return text
    head = most // 2
    return text[:head] + texts.older.format(count=left_out) + text[head + left_out :]


def _is(message: BaseMessage, result: ToolMessage) -> bool:
    return isinstance(message, ToolMessage) and message.tool_call_id == result.tool_call_id


def escaped(text: str) -> str:
    """Returns `text` with every tag of the protocol escaped."""
    return _TAG.sub("&lt;", text)


def _words(message: BaseMessage) -> Content:
    content = message.content
    if nudge_kind(message) is None:
        return content
    return escaped(content if isinstance(content, str) else "\n\n".join(map(block_text, content)))


def _needs_more(finish: Mapping[str, Any]) -> bool:
    """Whether a finish needs more than the summary that the protocol makes, so that it must be a CALL."""
    return bool(set(finish.get("parameters", {}).get("required", ())) - {"summary"})


def _described(tool: Mapping[str, Any]) -> str:
    schema = json.dumps(tool.get("parameters", {}), ensure_ascii=False)
    return f"- {tool['name']}: {' '.join(str(tool.get('description', '')).split())}\n  {schema}"


def _merged(turns: Iterable[tuple[str, Content]], noted: str) -> Iterator[BaseMessage]:
    """Returns the turns, with adjacent turns of the same role joined.

    Some models require that the roles alternate and that no message is empty.
    """
    joined: list[tuple[str, Content]] = []
    for role, content in turns:
        if joined and joined[-1][0] == role:
            joined[-1] = (role, _joined(joined[-1][1], content))
        elif content or role == "user":
            joined.append((role, content))
    for role, content in joined:
        yield AIMessage(content=content) if role == "assistant" else HumanMessage(content=content or noted)


def _joined(first: Content, second: Content) -> Content:
    if isinstance(first, str) and isinstance(second, str):
        return "\n\n".join(part for part in (first, second) if part)
    return [*_blocks(first), *_blocks(second)]


def _blocks(content: Content) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content
