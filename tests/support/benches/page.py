"""Pages for tests: a page read back as a tree, and a thread as a page takes it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

NO_END = {"meta", "link", "br"}


@dataclass
class Node:
    """An element of a page."""

    name: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    parts: list["Node | str"] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)

    @property
    def classes(self) -> set[str]:
        return set((self.attributes.get("class") or "").split())

    def walk(self) -> Iterator["Node"]:
        yield self
        for part in self.parts:
            if isinstance(part, Node):
                yield from part.walk()

    def all(self, name: str = "", class_: str = "") -> list["Node"]:
        return [
            node
            for node in self.walk()
            if (not name or node.name == name) and (not class_ or class_ in node.classes)
        ]

    def one(self, name: str = "", class_: str = "") -> "Node":
        (found,) = self.all(name, class_)
        return found

    def without(self, *classes: str) -> "Node":
        """A copy without the elements of these classes."""
        kept = [
            part if isinstance(part, str) else part.without(*classes)
            for part in self.parts
            if isinstance(part, str) or not part.classes & set(classes)
        ]
        return Node(self.name, self.attributes, kept)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Node("")]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute twice in {tag}"
        node = Node(tag, dict(attrs))
        self.open[-1].parts.append(node)
        if tag not in NO_END:
            self.open.append(node)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().name == tag, f"{tag} ends where it is not open"

    def handle_data(self, data: str) -> None:
        self.open[-1].parts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"no element and no text: {data}")

    unknown_decl = handle_pi = handle_comment


def read(page: str) -> Node:
    """The page as a tree. Fails for one whose elements are not all closed, or that has comments."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert len(reader.open) == 1, [node.name for node in reader.open]
    return reader.open[0]
