"""Content blocks: what a tool's result holds beside text, in the shapes of LangChain, MCP and the providers.

A picture, a document, a recording and a link have a text of their own: what they are, with name, address,
type and size. It stands in for them wherever the thing itself cannot be shown.
"""

import json
from collections import ChainMap
from collections.abc import Mapping
from typing import Any, NamedTuple

from signoff.graph.foreign import valid_text, words

NOTHING = "(The tool returned nothing.)"
"""The text of an empty result: some providers refuse a message without content."""

# The types of blocks, without `input_` before and `_url` or `_link` behind.
_KINDS = ("image", "audio", "video", "file", "document", "media", "resource")
_NAMES = ("title", "name", "filename")
_ADDRESSES = ("url", "uri", "file_url", "file_uri", "file_id", "image_url")
_TYPES = ("mime_type", "media_type", "mimeType")
_DATA = ("base64", "data", "file_data", "blob")
_WORDS = ("text", "description")


class Media(NamedTuple):
    """What a block holds. sort: image, audio, video, pdf or file, address for a picture on the web, link for
    any other address. data: in base64; empty for an address. words: a text that describes it."""

    sort: str
    name: str
    address: str
    mime: str
    data: str
    words: str

    def standard(self) -> dict[str, Any]:
        """LangChain's standard block for a picture, a recording or a PDF."""
        if not self.data:
            return {"type": "image", "url": self.address}
        block = {"type": self.sort, "base64": self.data, "mime_type": self.mime}
        return block if self.sort != "pdf" else {**block, "type": "file", "filename": self.name}


def media_of(block: Any) -> Media | None:
    """What this block holds; None for text, and for a value that only looks like a block."""
    kind = str(block.get("type")) if isinstance(block, Mapping) else ""
    kind = kind.removeprefix("input_").partition("_")[0]
    if kind not in _KINDS:
        return None
    parts = ChainMap(dict(block), *(dict(part) for part in block.values() if isinstance(part, Mapping)))
    fields = (_NAMES, _ADDRESSES, _TYPES, _DATA, _WORDS)
    name, address, mime, data, text = (
        next((found for key in keys if isinstance(found := parts.get(key), str)), "") for keys in fields
    )
    if (embedded := data or address).startswith("data:"):
        head, _, data = embedded[len("data:") :].partition(",")
        address, mime = "", mime or head.partition(";")[0]
    if not address and not data:
        return None
    size = len(data) * 3 // 4 - data[-2:].count("=") if data else parts.get("size")
    sized = f"{size:,} bytes" if isinstance(size, int) else ""
    known = ", ".join(filter(None, [name, address, mime, sized]))
    major = "pdf" if mime == "application/pdf" else mime.partition("/")[0]
    sort = major if major in ("pdf", "image", "audio", "video") else "file"
    if not data:
        sort = "address" if kind == "image" and address.startswith("http") else "link"
    return Media(sort, name or "document.pdf", address, mime, data, f"[{kind}: {known}]\n{text}".rstrip())


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def as_json(value: Any) -> str:
    """`value` as JSON for the model to read; values without a JSON form as text."""
    try:
        return valid_text(json.dumps(value, ensure_ascii=False, default=words))
    except (TypeError, ValueError, RecursionError):
        return words(value)


def block_text(block: Any) -> str:
    """A block as text: its own, what describes it, or its JSON."""
    if isinstance(block, str):
        return valid_text(block)
    if isinstance(block, Mapping) and block.get("type") == "text":
        return words(block.get("text") or "")
    media = media_of(block)
    if media is None:
        return as_json(block)
    return valid_text(f"{media.words} It cannot be shown here." if media.data else media.words)
