"""What `signoff show --html` prints of a thread, read back: its head, its badge and its cards."""

from collections.abc import Callable

from tests.support.benches.cli import Bench, steps
from tests.support.benches.page import Node, read

ASK = 'call("ask_user", question="Which port?", options=["8080", "9090"])'

Stand = Callable[[Bench], object]


def ended(*script: str, options: tuple[str, ...] = (), answers: tuple[str, ...] = ()) -> Stand:
    """A task that is run with this script, and answered."""

    def stand(bench: Bench) -> None:
        bench.model(steps(*script))
        bench.run("Do it", *options)
        for answer in answers:
            bench("resume", "t1", answer if answer in ("8080", "yes") else bench.decide(answer))

    return stand


def shown(bench: Bench, thread: str = "t1") -> Node:
    found = bench("show", thread, "--html", "-")
    assert (found.exit_code, found.stderr) == (0, "")
    return read(found.stdout)


def facts(root: Node, class_: str) -> dict[str, str]:
    """The names and values of a list in the head."""
    rows = root.one("dl", class_).all("div")
    return {row.one("dt").text: row.one("dd").text for row in rows}


def badge(root: Node) -> tuple[str, set[str]]:
    found = root.one(class_="badge")
    return found.text, found.classes - {"badge"}


def titles(root: Node, tone: str) -> list[str]:
    """The titles of the cards of this colour, without their signs."""
    cards = [node for node in root.all("section", "card") if tone in node.classes]
    return [card.all(class_="title")[0].text.partition(" ")[2] for card in cards]


def last_card(root: Node) -> Node:
    return root.all("section", "card")[-1]
