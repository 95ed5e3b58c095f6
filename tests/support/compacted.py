"""Texts by which a test finds what stands for the older part of a history, and the request for it."""

from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage

from signoff import Texts

MARKED = Texts(
    history_summary="SUMMARY\n{lines}",
    contract="CONTRACT\n{lines}",
    words={"all": "WORDS\n{lines}", "cut": "[CUT {count} of {all}]", "older": "- OLDER {count} of {all}"},
    summarise="NOTES PLEASE, {words} words.",
    note_down="NOTES PLEASE, {words} words.",
    between={"assistant": "BETWEEN"},
)


def text_of(prompt: Sequence[BaseMessage]) -> str:
    """All that a prompt says."""
    return "\n".join(message.text for message in prompt)


def asks_for_notes(prompt: Sequence[BaseMessage]) -> bool:
    """Whether a summary is asked for: by a message of its own, or joined with what was said last."""
    return "NOTES PLEASE" in text_of(prompt)


def summary_of(prompt: Sequence[BaseMessage]) -> str:
    """What stands for the older part of the history; empty where nothing does."""
    return next((message.text for message in prompt if message.text.startswith("SUMMARY")), "")


def turns_shown(prompt: Sequence[BaseMessage]) -> int:
    """How many replies of the model a prompt holds, without what stands between two messages of a person."""
    return sum(isinstance(message, AIMessage) and message.text != "BETWEEN" for message in prompt)
