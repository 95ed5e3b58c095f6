"""Whatever a person, a model or a tool wrote: on the page it is text, and can be seen."""

import re
from itertools import product
from pathlib import Path

import pytest
from jinja2 import UndefinedError

import signoff
from signoff.events import Answered, CallFinished, Nudged, Thought
from signoff.front.record.draw import templates
from signoff.page import page
from signoff.page.page import MOST_BYTES
from signoff.session.history import Turn
from tests.support.benches.page import TASK, Node, ends, everywhere, outcome, read, run_of

PLAIN = "harmless"
HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<ScRiPt src=//evil.example/x.js></ScRiPt>",
    "<script\n>alert(1)</script\n>".replace("\n", "/"),
    "<img src=x onerror=alert(1)>",
    "<img src=https://evil.example/pixel.png>",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<svg><style><img src=x onerror=alert(1)></style></svg>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "</style><script>alert(1)</script>",
    "</style><style>*{display:none}</style>",
    "<style>@import 'https://evil.example/x.css';</style>",
    "}*{background:url(https://evil.example/x)}",
    "/* */ } body { display: none } /*",
    "</title><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "</pre></details></article></main><h1>Done</h1>",
    "</summary></details><div class='card green'>Done</div>",
    "</td></tr></table>",
    "</text></svg><b>bold</b>",
    "<!--",
    "--><script>alert(1)</script><!--",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<?xml version='1.0'?>",
    "<!doctype html>",
    "<base href=https://evil.example/>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<iframe src=javascript:alert(1)></iframe>",
    "<object data=javascript:alert(1)>",
    "<embed src=javascript:alert(1)>",
    "<form action=https://evil.example/><input name=x>",
    "<a href=javascript:alert(1)>click</a>",
    "<a href='data:text/html,<script>alert(1)</script>'>click</a>",
    "[click](javascript:alert(1))",
    "javascript:alert(1)",
    "https://evil.example/?q=1&copy=2",
    '" onmouseover="alert(1)',
    "' onmouseover='alert(1)",
    '"><script>alert(1)</script>',
    "'><script>alert(1)</script>",
    "` onfocus=alert(1) autofocus `",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;alert(1)&#60;/script&#62;",
    "&amp;&quot;&#0;&#x202e;&nbsp",
    "&notit;&sect&copy",
    "{{7*7}}${7*7}<%= 7*7 %>#{7*7}%s%(x)s{0}",
    "[bold red]x[/bold red] [/]",
    "<plaintext>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "<xss style='animation-name:x' onanimationstart=alert(1)>",
    "\\u003cscript\\u003ealert(1)\\u003c/script\\u003e",
    "+ADw-script+AD4-alert(1)+ADw-/script+AD4-",
    "\u00bcscript\u00bealert(1)\u00bc/script\u00be",
    "\uff1cscript\uff1ealert(1)\uff1c/script\uff1e",
]
UNSEEN = {
    # what was written → what can be seen
    "a\0b": "a␀b",
    "a\ud800b": "a\ufffdb",
    "a\udfff\ud800b": "a\ufffd\ufffdb",
    "a\x1b[2Jb": "a␛[2Jb",
    "a\x1b]52;c;ZXZpbA==\x07b": "a␛]52;c;ZXZpbA==␇b",
    "a\x9b31mb": "a⟨U+009B⟩31mb",
    "a\x7fb": "a␡b",
    "a\x08\x08b": "a␈␈b",
    "a\u202etxt.exe\u202cb": "a⟨U+202E⟩txt.exe⟨U+202C⟩b",
    "a\u2066b\u2069c": "a⟨U+2066⟩b⟨U+2069⟩c",
    "a\u200fb\u200ec\u061cd": "a⟨U+200F⟩b⟨U+200E⟩c⟨U+061C⟩d",
    "pay\u200bpal\u2060.com": "pay⟨U+200B⟩pal⟨U+2060⟩.com",
    "pay\u200dpal\u200c": "pay⟨U+200D⟩pal⟨U+200C⟩",
    "so\u00adft\ufeff": "so⟨U+00AD⟩ft⟨U+FEFF⟩",
    "a\U000e0041\U000e0042b": "a⟨U+E0041⟩⟨U+E0042⟩b",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645": "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "👩\u200d💻": "👩\u200d💻",
    "\u05e9\u05dc\u05d5\u05dd": "\u05e9\u05dc\u05d5\u05dd",
}


def skeleton(root: Node) -> list[str]:
    """Every element with its attributes, without any text; moments count as alike."""
    return [
        f"{node.name} {[(key, '' if key == 'datetime' else value) for key, value in node.attributes.items()]}"
        for node in root.walk()
    ]


def seen(root: Node, text: str) -> int:
    """How often `text` can be read where it is not part of a command for a shell or of a shortened line."""
    return root.without("command", "short", "brand").text.count(text)


def test_there_are_fifty_hostile_texts() -> None:
    assert len(set(HOSTILE)) >= 50


CASES = [*((text, "success") for text in HOSTILE), *product(HOSTILE[::12], list(ends(""))[1:])]


@pytest.mark.parametrize(("text", "end"), CASES)
@pytest.mark.sample(32)
def test_no_element_and_no_attribute_comes_from_content(text: str, end: str) -> None:
    plain, found = read(page(everywhere(PLAIN, end))), read(page(everywhere(text, end)))
    same, often = skeleton(found) == skeleton(plain), seen(plain, PLAIN)
    assert same, set(skeleton(found)) ^ set(skeleton(plain))
    assert seen(found, text) == often > 45


UNSEEN_CASES = [*((text, "success") for text in UNSEEN), *product(list(UNSEEN)[1::8], list(ends(""))[1:])]


@pytest.mark.parametrize(("text", "end"), UNSEEN_CASES)
def test_what_hides_or_reorders_can_be_seen(text: str, end: str) -> None:
    plain, made = read(page(everywhere(PLAIN, end))), page(everywhere(text, end))
    found, often = read(made), seen(plain, PLAIN)
    made.encode()
    same = skeleton(found) == skeleton(plain)
    assert same, set(skeleton(found)) ^ set(skeleton(plain))
    assert seen(found, UNSEEN[text]) == often
    assert seen(found, text) == (often if UNSEEN[text] == text else 0)


class Stranger:
    """A value that is no text and prints as one."""

    def __str__(self) -> str:
        return "<b>\u202e"


PRINTED = {
    # what a template says → what it prints of <b>, a sign that reorders and an ESC
    "{{ text }}": "&lt;b&gt;⟨U+202E⟩␛",
    '<p title="{{ text }}">': '<p title="&lt;b&gt;⟨U+202E⟩␛">',
    "{{ text ~ text }}": "&lt;b&gt;⟨U+202E⟩␛" * 2,
    "{{ text | string | trim }}": "&lt;b&gt;⟨U+202E⟩␛",
    "{{ [text] | join }}": "&lt;b&gt;⟨U+202E⟩␛",
    "{{ stranger }}": "&lt;b&gt;⟨U+202E⟩",
    "{% macro m(x) %}<i>{{ x }}</i>{% endmacro %}{{ m(text) }}": "<i>&lt;b&gt;⟨U+202E⟩␛</i>",
    "{% set y %}{{ text }}{% endset %}{{ y }}": "&lt;b&gt;⟨U+202E⟩␛",
}


@pytest.mark.parametrize("template", PRINTED)
def test_whatever_a_template_prints_is_escaped_and_can_be_seen(template: str) -> None:
    made = templates().from_string(template).render(text="<b>\u202e\x1b", stranger=Stranger())
    assert made == PRINTED[template]


@pytest.mark.parametrize("template", ["{{ text }}", "{{ run.text }}", "{% for x in text %}{% endfor %}"])
def test_a_name_that_is_not_there_is_an_error(template: str) -> None:
    with pytest.raises(UndefinedError):
        templates().from_string(template).render(run=object())


FOLDERS = [Path(signoff.__file__).parent / name for name in ("front/record", "page", "web")]
TEMPLATES = {f"{file.parents[1].name}/{file.name}": file for one in FOLDERS for file in one.rglob("*.html")}


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_a_template_marks_nothing_as_safe(name: str) -> None:
    source = TEMPLATES[name].read_text("utf-8")
    assert re.findall(r"\bsafe\b|autoescape|Markup|__html__|xmlattr|tojson|urlize|~", source) == []
    assert re.findall(r"=\s*\{\{|=[^\s\"'{}=<>]+\{\{", source) == [], "an attribute without quotes"


def test_no_code_of_the_page_marks_anything_as_safe() -> None:
    files = [file for one in FOLDERS for file in one.glob("*.py")]
    sources = {f"{file.parent.name}/{file.name}": file.read_text("utf-8") for file in files}
    assert len(sources) > 8
    assert [
        name for name, source in sources.items() if re.search(r"Markup|markupsafe|\bsafe\(", source)
    ] == []


ELEMENTS = {
    *("html", "head", "meta", "title", "link", "style", "body", "a", "header", "main", "aside", "footer"),
    *("nav", "section", "article", "h1", "h2", "h3", "p", "span", "div", "blockquote", "pre", "code", "time"),
    *("ul", "ol", "li", "dl", "dt", "dd", "details", "summary", "progress"),
    *("table", "thead", "tbody", "tr", "th", "td"),
    *("svg", "defs", "marker", "path", "g", "rect", "text", "circle"),
}


@pytest.mark.parametrize("end", ends(""))
def test_nothing_runs_and_nothing_is_loaded(end: str) -> None:
    made = page(everywhere("https://evil.example/x", end))
    root = read(made)
    assert {node.name for node in root.walk()} - {""} <= ELEMENTS
    policy = next(node for node in root.all("meta") if "http-equiv" in node.attributes)
    assert policy.attributes["content"] == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    style = root.one("style").text
    assert not re.search(r"url|@import|https?:|expression|<", style)
    assert style.isascii()
    named = [(node.name, key, value or "") for node in root.walk() for key, value in node.attributes.items()]
    assert [key for _, key, _ in named if key.startswith("on") or key in ("src", "style", "action")] == []
    # The one address is the empty icon, so that nothing asks a server for one.
    schemes = [found for found in named if re.match(r"\s*[a-z][a-z0-9+.-]*:", found[2], re.I)]
    assert schemes == [("link", "href", "data:,")]
    linked = [value for _, key, value in named if key == "href" and value != "data:,"]
    ids = [node.attributes["id"] for node in root.walk() if "id" in node.attributes]
    assert all(value.startswith("#") and value[1:] in ids for value in linked)
    assert len(set(ids)) == len(ids)


MEGA = 1_000_000
TEXTS = {
    "letters": "x",
    "lines": "\n",
    "words": "word ",
    "tags": "<b>&",
    "controls": "\x01",
    "hidden": "\u202e",
    "surrogates": "\ud800",
    "emoji": "👩",
    "marks": "\u0301",
    "differences": "@@ -1 +1 @@\n-a\n+b\n",
}


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.slow
@pytest.mark.sample(1)
def test_ten_megabytes_are_cut_and_what_is_left_out_is_told(kind: str) -> None:
    text = TEXTS[kind] * (10 * MEGA // len(TEXTS[kind]))
    events = (
        CallFinished(1, "read_file", {"path": text, "old": text, "new": text}, True, text),
        CallFinished(1, "edit_file", {"path": "a", "old": text, "new": text + "b"}, False, text),
        CallFinished(1, "write_file", {"path": "a", "content": text}, True, text),
        Thought(1, text),
        Answered(1, text, text),
        Nudged("talked", text),
    )
    ended = outcome(summary=text, pending_issues=[text], result=text, error=text)
    made = page(run_of(Turn(TASK, 1, text, events), words=(text,), ended=ended))
    assert len(made.encode()) < 1.5 * MEGA
    told = [node.text for node in read(made).all(class_="left-out")]
    assert len(told) > 5
    assert all(
        re.fullmatch(r"… [\d,]+ more (characters|lines)( left out of this page)?( …)?", t) for t in told
    )


def test_what_is_left_out_is_counted() -> None:
    text = "".join(f"{number:09}\n" for number in range(100_000))
    made = read(page(run_of(Turn(TASK, 1, "", (CallFinished(1, "cat", {}, True, text),)))))
    (box,) = made.all("pre", "result")
    (note,) = box.all(class_="left-out")
    left = int(re.sub(r"\D", "", note.text))
    assert len(box.text) - len(note.text) + left == pytest.approx(len(text), abs=4)
    assert box.text.startswith("000000000\n000000001\n")
    assert box.text.rstrip().endswith("000099999")


def many(count: int, text: str) -> tuple[Turn, ...]:
    events = (Thought(1, text), CallFinished(1, "read_file", {"path": "a"}, True, text))
    return tuple(Turn(TASK, number, text, events) for number in range(1, count + 1))


def test_a_long_run_keeps_its_beginning_and_its_end() -> None:
    made = page(run_of(*many(4_000, "word " * 100), ended=outcome(summary="The end.")))
    root = read(made)
    assert MOST_BYTES * 0.8 < len(made.encode()) < MOST_BYTES + 200_000
    numbers = [int(node.text) for node in root.all(class_="number")]
    (gap,) = root.all(class_="gap")
    left = int(re.sub(r"\D", "", gap.text))
    assert len(numbers) + left == 4_000
    begun = [number for at, number in enumerate(numbers, 1) if number == at]
    assert numbers == [*begun, *range(len(begun) + left + 1, 4_001)]
    assert 0.5 < len(begun) / (len(numbers) - len(begun)) < 0.8
    assert "The end." in root.text


def test_a_turn_of_many_calls_keeps_the_first_and_the_last() -> None:
    calls = tuple(CallFinished(1, f"call{number}", {}, True, "x" * 900) for number in range(10_000))
    made = page(run_of(Turn(TASK, 1, "", calls)))
    root = read(made)
    names = [node.text for node in root.all("code", "tool")]
    assert (names[0], names[-1], len(names)) == ("call0", "call9999", 60)
    assert "9,940 more events left out" in root.text
    assert len(made) < 500_000
