"""Chat models that come with Signoff: a scripted one for tests, and one that speaks a text protocol."""

from typing import TYPE_CHECKING

from signoff.public import lazily

if TYPE_CHECKING:
    from signoff.models.scripted import (
        ScriptedCall,
        ScriptedModel,
        ScriptedReply,
        Seen,
        call,
        reply,
    )
    from signoff.models.tagged import (
        TAGGED_LIMITS,
        Progress,
        TaggedText,
        TaggedTexts,
        current_status,
    )

__all__ = [
    "TAGGED_LIMITS",
    "Progress",
    "ScriptedCall",
    "ScriptedModel",
    "ScriptedReply",
    "Seen",
    "TaggedText",
    "TaggedTexts",
    "call",
    "current_status",
    "reply",
]

__getattr__ = lazily(
    __name__,
    {
        "signoff.models.scripted": (
            "ScriptedCall",
            "ScriptedModel",
            "ScriptedReply",
            "Seen",
            "call",
            "reply",
        ),
        "signoff.models.tagged": (
            "Progress",
            "TAGGED_LIMITS",
            "TaggedText",
            "TaggedTexts",
            "current_status",
        ),
    },
)
