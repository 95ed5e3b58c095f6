"""Whether words promise work that is not done in them."""

import re

_END = 400
_BETWEEN = re.compile(r"(?<=[.!?…:])\s+|(?<=[\u3002\uff01\uff1f])|\n+")

# They are not looked for as parts of words.
_PROMISES = (
    *("I'll", "I will", "I shall", "I'm going to", "I am going to", "I'm about to", "I am about to"),
    *("let me", "let's", "we'll", "we will", "I'm now", "I am now", "next, I", "next I", "proceeding to"),
    *("I need to", "I now need to", "I still need to", "I still have to"),
    *("ich werde", "ich mache jetzt", "ich prüfe jetzt", "ich ändere jetzt", "lass mich", "lassen Sie mich"),
    *(
        "je vais",
        "laissez-moi",
        "laisse-moi",
        "voy a",
        "vamos a",
        "déjame",
        "eu vou",
        "vou agora",
        "deixe-me",
    ),
    *("ora vado", "ora procedo", "adesso procedo", "procederò", "сейчас я", "я сейчас", "я буду"),
)
_UNSPACED = ("我将", "我会", "我来", "接下来我", "让我", "これから")
# With these it is an offer, a condition, a refusal or a farewell.
_OFFERS = (
    *("let me know", "let's talk", "let's discuss", "if", "once you", "when you", "whenever", "unless"),
    *(
        "happy to",
        "glad to",
        "be here",
        "wait",
        "remember",
        "keep in mind",
        "would you",
        "should I",
        "shall I",
    ),
    *(
        "do you want",
        "I will not",
        "I won't",
        "I'll never",
        "not going to",
        "wenn",
        "sobald",
        "falls",
        "nicht",
    ),
    *("si vous", "si tu", "si quieres", "si lo quieres", "se você", "se quiser", "se vuoi", "если"),
)
_OFFERS_UNSPACED = ("如果", "不会")


def _any(words: tuple[str, ...], unspaced: tuple[str, ...]) -> re.Pattern[str]:
    spaced = "|".join(re.escape(word) for word in words)
    return re.compile(rf"\b(?:{spaced})\b|{'|'.join(unspaced)}", re.IGNORECASE)


_PROMISED = _any(_PROMISES, _UNSPACED)
_OFFERED = _any(_OFFERS, _OFFERS_UNSPACED)


def promise(text: str) -> str | None:
    """The last sentence of a reply, or the one before it, when it says that something will be done now."""
    end = text[-_END:].replace("\u2019", "'")
    sentences: list[str] = [part.strip() for part in _BETWEEN.split(end) if part.strip()]
    for sentence in reversed(sentences[-2:]):
        if _PROMISED.search(sentence) and not _OFFERED.search(sentence):
            return sentence
    return None
