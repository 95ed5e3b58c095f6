"""Takes secrets and long values out of what is written down of a thread."""

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

LONGEST = 2_000
"""Characters of a text that are kept as they are."""

_ENDS = 200
_SECRETS = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----",
    r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",  # a JSON Web Token
    r"\b(?:sk|pk|rk)[-_](?:[\w-]+[-_])?[A-Za-z0-9]{16,}",
    r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[\w-]{30,}|\bxox[abpr]-[\w-]{10,}",
    r"(?<=://)[^\s/:@]+:[^\s/@]+(?=@)",  # the user and the password of an address
    r"(?i)(?<=bearer )[\w.~+/=-]{8,}",
    r"(?i)(?<=password=)[^\s&\"']+|(?<=passwd=)[^\s&\"']+|(?<=secret=)[^\s&\"']+|(?<=token=)[^\s&\"']+",
    r"(?i)(?<=api_key=)[^\s&\"']+|(?<=apikey=)[^\s&\"']+",
)
_SECRET = re.compile("|".join(f"(?:{one})" for one in _SECRETS).replace("(?i)", ""), re.S | re.I)
_NAMES = re.compile(r"(?i)(?:^|[_-])(?:password|passwd|secret|token|api_?key|authorization|credentials?)$")


class Redaction:
    """Replaces secrets by numbers, the same secret by the same number, and cuts long texts to their ends.

    What was equal stays equal, and what differed stays different: so what is decided of it stays the same.
    text: another function for texts, which is asked in place of the patterns for secrets.
    """

    def __init__(self, text: Callable[[str], str] | None = None) -> None:
        self._seen: dict[str, str] = {}
        self._own = text

    def __call__(self, value: Any) -> Any:
        """The value without secrets and long texts: of a text, a list or a mapping, however deep."""
        if isinstance(value, str):
            return _cut(self._own(value) if self._own else _SECRET.sub(self._hidden, value))
        if isinstance(value, Mapping):
            return {name: self._entry(str(name), one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self(one) for one in value]
        return value

    def _entry(self, name: str, value: Any) -> Any:
        is_secret = isinstance(value, str) and value and _NAMES.search(name) and not self._own
        return self._number(value) if is_secret else self(value)

    def _hidden(self, found: re.Match[str]) -> str:
        return self._number(found[0])

    def _number(self, secret: str) -> str:
        return self._seen.setdefault(secret, f"[secret {len(self._seen) + 1}]")


def _cut(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    # By the sum two long texts that differ in the middle still differ.
    mark = hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:12]
    left = len(text) - 2 * _ENDS
    return f"{text[:_ENDS]}… [{left:,} characters left out, {mark}] …{text[-_ENDS:]}"
