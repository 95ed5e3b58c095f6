"""Markup that cannot be wrong: a text that is put into it is escaped, and only `tag` makes elements."""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

from signoff.front.text import cut, plain

_NO_END = ("meta", "link", "br")


@dataclass(frozen=True)
class Html:
    """Markup made by `tag`, or written in this package; never a text from elsewhere."""

    markup: str


Child: TypeAlias = "Html | str | Iterable[Child] | None"
Attribute: TypeAlias = str | int | float | bool | None


def tag(name: str, *children: Child, **attributes: Attribute) -> Html:
    """The element with these children; texts among them are escaped and made visible, None is nothing.

    An attribute is left out for None and False. Its name is written with `_` for `-`, and `class_`.
    """
    named = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _NO_END:
        return Html(f"<{name}{named}>")
    return Html(f"<{name}{named}>{joined(children).markup}</{name}>")


def joined(children: Iterable[Child]) -> Html:
    """The children one after another."""
    return Html("".join(_markup(child) for child in children))


def line(text: str, most: int) -> str:
    """The beginning of `text` on one line, at most `most` characters."""
    begun = text.lstrip()[: 4 * most]
    return cut(" ".join(plain(begun).split()), most)


def hidden(text: str) -> Html:
    """A text for those who hear the page."""
    return tag("span", text, class_="hear")


def _markup(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child.markup
    if isinstance(child, str):
        return escape(plain(child), quote=False)
    return joined(child).markup


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(plain(str(value)))}"'
