"""The page: head, timeline, the machine beside it. No script, no link to anywhere, fonts of the system."""

import importlib.metadata

from signoff.page.header import header, stands
from signoff.page.html import Html, line, tag
from signoff.page.machine import machine
from signoff.page.run import Run
from signoff.page.style import STYLE
from signoff.page.timeline import overview, timeline

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(run: Run) -> str:
    """The thread as one HTML document, the same for the same thread; valid UTF-8 of a few MB at most."""
    title = f"{line(run.thread_id, 120)} · {stands(run)[2]} · Signoff"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name_="color-scheme", content="light dark"),
        tag("meta", name_="referrer", content="no-referrer"),
        tag("title", title),
        # Else a browser asks the server of the page for one.
        tag("link", rel="icon", href="data:,"),
        tag("style", Html(STYLE)),
    )
    main = tag("main", overview(run), timeline(run), id="timeline", tabindex="-1")
    body = tag(
        "body",
        tag("a", "To the timeline", href="#timeline", class_="skip"),
        header(run),
        tag("div", main, machine(run), class_="columns"),
        _footer(),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en').markup}\n"


def _footer() -> Html:
    version = importlib.metadata.version("signoff")
    told = f"Made by signoff {version} show --html. What the model and its tools wrote is shown as text only."
    return tag("footer", tag("p", told))
