"""Chat models that Signoff brings."""

from signoff.models.scripted import ScriptedModel, call, reply

__all__ = ["ScriptedModel", "call", "reply"]
