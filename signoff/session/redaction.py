"""Removes secrets and long values from the text of a thread."""

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from signoff.graph.errors import SetupError

LONGEST = 2_000
"""The maximum length of a text that is kept unchanged."""

_ENDS = 200
# A value under such a name is a secret; counts ("tokens", "max_tokens") are not.
_NAME = (
    r"(?:passw(?:or)?ds?|passphrase|secrets?|token|(?:api|access|private|secret)[ _-]?keys?|authorization"
    r"|credentials?)"
)
_QUOTE = r"\\*[\"']"  # escaped in JSON inside JSON
_END = r"(?=[,;.)}\]>]*(?:[\s&\"'\\]|$))"
_SECRETS = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----",
    rf"{_NAME}(?P<marked>{_QUOTE})?[ \t]*(?::=|=>|={{1,3}}|:)[ \t]*"
    r"(?:(?:basic|bearer|digest|token|apikey)[ \t]+)?"
    rf"(?!(?:null|none|true|false)\b)"
    rf"(?:(?P<quote>{_QUOTE})(?P<quoted>.{{1,4000}}?)(?<!\\)(?P=quote)"
    r"|(?P<several>\{[^{}]{1,4000}\}|\[[^\[\]]{1,4000}\])"
    rf"|(?P<plain>[^\s&\"'\\{{\[(<,;][^\s&\"'\\]*?){_END})",
    rf"(?<=--)[\w-]{{0,40}}{_NAME}[ \t]+(?P<given>[^\s&\"'\\{{\[(<-][^\s\"']*)",
    r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",  # a JSON Web Token
    r"\b(?:sk|pk|rk)-[\w-]{16,}|\b(?:sk|pk|rk)_(?:[\w-]+[-_])?[A-Za-z0-9]{16,}[\w-]*",
    r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}",
    r"\b(?:hf|npm|gsk)_[A-Za-z0-9]{20,}|\bpypi-[\w-]{20,}",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[\w-]{30,}|\bxox[abpr]-[\w-]{10,}",
    r"(?<=://)[^\s/:@]*:[^\s/@]+(?=@)",  # the user and the password of an address
    r"(?<=bearer )[\w.~+/=-]{8,}",
)
_SECRET = re.compile("|".join(f"(?:{one})" for one in _SECRETS), re.S | re.I)
_SECRET_NAME = re.compile(f"{_NAME}$", re.I)
_VALUES = ("quoted", "several", "plain", "given")


class Redaction:
    """Replaces secrets by numbers, the same secret by the same number, and truncates long texts in the
    middle.

    Equal values stay equal, and different ones stay different, so that decisions do not change. text: a
    function for texts that replaces the patterns for secrets.
    """

    def __init__(self, text: Callable[[str], str] | None = None) -> None:
        self._seen: dict[Any, str] = {}
        self._own = text

    def __call__(self, value: Any) -> Any:
        """The value without secrets and long texts, for a text, or a list or mapping at any depth.

        Raises SetupError if the function for texts fails, or returns anything but text.
        """
        if isinstance(value, str):
            return _cut(self._by_own(value) if self._own else _SECRET.sub(self._hidden, value))
        if isinstance(value, Mapping):
            return {name: self._entry(str(name), one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self(one) for one in value]
        return value

    def _by_own(self, text: str) -> str:
        assert self._own is not None, "as asked above"
        try:
            found: Any = self._own(text)
        except Exception as error:
            raise SetupError(
                f"The redaction function raised {type(error).__name__}: {error}; it gets each text, and "
                "must return its replacement."
            ) from error
        if not isinstance(found, str):
            raise SetupError(
                f"The redaction function returned {found!r:.80}; it must return the text that "
                "replaces the given one."
            )
        return found

    def _entry(self, name: str, value: Any) -> Any:
        return self._all_of(value) if _SECRET_NAME.search(name) and not self._own else self(value)

    def _all_of(self, value: Any) -> Any:
        """A value under a secret's name, with each part replaced by its number; empty values and booleans
        stay."""
        if isinstance(value, Mapping):
            return {name: self._all_of(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self._all_of(one) for one in value]
        return value if value in ("", None) or isinstance(value, bool) else self._number(value)

    def _hidden(self, found: re.Match[str]) -> str:
        name = next((name for name in _VALUES if found[name] is not None), None)
        if name is None:
            return self._number(found[0])
        begin, end = (at - found.start() for at in found.span(name))
        quote = (found["marked"] or "") if name in ("several", "plain") else ""
        return f"{found[0][:begin]}{quote}{self._number(found[name])}{quote}{found[0][end:]}"

    def _number(self, secret: Any) -> str:
        return self._seen.setdefault(secret, f"[secret {len(self._seen) + 1}]")


def _cut(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    # With the checksum, two long texts that differ in the middle still differ.
    mark = hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:12]
    left = len(text) - 2 * _ENDS
    return f"{text[:_ENDS]}… [{left:,} characters left out, {mark}] …{text[-_ENDS:]}"
