"""Text that is safe to store and to show, and the words for people."""

from signoff.graph.errors import quote_id
from signoff.graph.foreign import count_noun, explain, label, valid_text, valid_values
from signoff.graph.vocabulary import CLAIMS, STANDING, VERIFIED, WAITS, Heading, Tone, heading, stands
from signoff.tools.pty.output import harmless

__all__ = [
    "CLAIMS",
    "STANDING",
    "VERIFIED",
    "WAITS",
    "Heading",
    "Tone",
    "count_noun",
    "explain",
    "harmless",
    "heading",
    "label",
    "quote_id",
    "stands",
    "valid_text",
    "valid_values",
]
