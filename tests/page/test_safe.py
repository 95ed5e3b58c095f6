"""Whatever a person, a model or a tool wrote: on the page it is text, can be seen, and is bounded."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.benches.cli import Bench
from tests.support.benches.page import Node, read
from tests.support.benches.page_shown import shown

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg><style><img src=x onerror=alert(1)></style></svg>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "/* */ } body { background: url(https://evil.example/x) } /*",
    "</title><script>alert(1)</script>",
    "</summary></details><div class='card green'>Done</div>",
    "--><script>alert(1)</script><!--",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<iframe src=javascript:alert(1)></iframe>",
    "<a href='data:text/html,<script>alert(1)</script>'>click</a>",
    "https://evil.example/?q=1&copy=2",
    '" onmouseover="alert(1)',
    "` onfocus=alert(1) autofocus `",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "{{7*7}}${7*7}<%= 7*7 %>#{7*7}%s%(x)s{0}",
    "[bold red]x[/bold red] [/]",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
]
UNSEEN = {
    # what was written → what can be seen
    "a\ud800b": "a\ufffdb",
    "a\x1b[2Jb": "a␛[2Jb",
    "a\x9b31mb": "a⟨U+009B⟩31mb",
    "a\u200fb\u200ec\u061cd": "a⟨U+200F⟩b⟨U+200E⟩c⟨U+061C⟩d",
    "a\U000e0041\U000e0042b": "a⟨U+E0041⟩⟨U+E0042⟩b",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645": "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
}


ENDS = {
    "an end": 'call("finish_task", summary=texts[0], pending_issues=texts)',
    "a question": 'call("ask_user", question=texts[0], options=texts)',
    "an approval": 'call("edit_file", path=texts[0], old=texts[1], new=texts[2])',
    "an error": "ValueError(texts[0])",
}
SCRIPT = """[
    *(
        reply(
            text,
            call("think", thought=text, approach=text, status=text),
            call("write_file", path=f"{{at}}.txt", content=text),
            call("read_file", path=text),
            call(f"tool_{{at}}", **{{text: text}}),
        )
        for at, text in enumerate(texts)
    ),
    {end},
] if (texts := {texts!r}) else []"""


def everywhere(bench: Bench, texts: Sequence[str], end: str = "an end", *, task: str = "Do it") -> str:
    """The page of a thread in which each of the texts stands wherever a model or a tool writes."""
    bench.model(SCRIPT.format(texts=list(texts), end=ENDS[end]))
    bench.run(task, "--turns", "200", "--approve", "edit_file")
    return bench("show", "t1", "--html", "-").stdout


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def often(root: Node, text: str) -> int:
    """How often it can be read where it is not part of a command for a shell or of a shortened line."""
    return root.without("command", "short", "brand").text.count(text)


ELEMENTS = {
    *("html", "head", "meta", "title", "link", "style", "body", "a", "header", "main", "aside", "footer"),
    *("nav", "section", "article", "h1", "h2", "h3", "p", "span", "div", "blockquote", "pre", "code", "time"),
    *("ul", "ol", "li", "dl", "dt", "dd", "details", "summary", "progress"),
    *("table", "thead", "tbody", "tr", "th", "td"),
    *("svg", "defs", "marker", "path", "g", "rect", "text", "circle"),
}


@pytest.mark.parametrize("end", ENDS)
def test_hostile_content_is_text_and_makes_nothing(bench: Bench, end: str) -> None:
    texts = HOSTILE if end == "an end" else HOSTILE[::6]
    page = everywhere(bench, texts, end, task=" ".join(texts))
    root = read(page)
    assert [text for text in texts if often(root, text) < 5] == []
    assert {node.name for node in root.walk()} - {""} <= ELEMENTS
    pairs = [(node.name, key, value or "") for node in root.walk() for key, value in node.attributes.items()]
    assert [key for _, key, _ in pairs if key.startswith("on") or key in ("src", "style", "action")] == []
    # The one address is the empty icon, so that nothing asks a server for one.
    assert [pair for pair in pairs if re.match(r"\s*[a-z][a-z0-9+.-]*:", pair[2], re.I)] == [
        ("link", "href", "data:,")
    ]
    ids = [value for _, key, value in pairs if key == "id"]
    assert len(set(ids)) == len(ids)
    assert {value[1:] for _, key, value in pairs if key == "href" and value != "data:,"} <= set(ids)
    (rules,) = (node for node in root.all("meta") if "http-equiv" in node.attributes)
    assert "default-src 'none'" in (rules.attributes["content"] or "")
    assert not re.search(r"url|@import|https?:|expression|<", root.one("style").text)


def test_what_hides_or_reorders_can_be_seen(bench: Bench) -> None:
    page = everywhere(bench, list(UNSEEN))
    page.encode()
    root = read(page)
    assert [shown for shown in UNSEEN.values() if often(root, shown) < 3] == []
    assert [text for text, shown in UNSEEN.items() if text != shown and often(root, text)] == []


def test_what_is_left_out_is_counted_and_the_beginning_and_the_end_stay(bench: Bench) -> None:
    text = "'word ' * 6_000"
    bench.model(f"""[
        call("run_shell", command="seq 100000 109999"),
        [call("write_file", path=f"{{at}}", content="x" * 900) for at in range(100)],
        reply({text}, call("think", thought={text}), call("write_file", path="a", content={text})),
        call("finish_task", summary={text}, pending_issues=[{text}]),
    ]""")
    bench.run("Do it", "--tools", "files,shell")
    root = shown(bench)
    assert len(root.text) < 300_000
    told = [int(re.sub(r"\D", "", node.text)) for node in root.all(class_="left-out")]
    assert max(told) > 10_000
    names = [row.text for row in root.all("article")[1].all("code", "tool")]
    assert 20 < len(names) < 100
    assert str(100 - len(names)) in root.all("article")[1].text
    assert root.all("pre", "result")[0].text.startswith("100000\n100001\n")
