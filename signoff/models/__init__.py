"""Chat models that come with Signoff."""

from signoff.models.scripted import (
    Player,
    ScriptedCall,
    ScriptedModel,
    ScriptedReply,
    Seen,
    UnexpectedCall,
    UnusedSteps,
    Wire,
    call,
    reply,
)

__all__ = [
    "Player",
    "ScriptedCall",
    "ScriptedModel",
    "ScriptedReply",
    "Seen",
    "UnexpectedCall",
    "UnusedSteps",
    "Wire",
    "call",
    "reply",
]
