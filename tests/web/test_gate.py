"""Who is let in to the web application, what a request may be, and what a browser may do with the page."""

import re
import socket
from pathlib import Path

import httpx
import pytest

from tests.support.benches.cli import Bench, one_sentence
from tests.support.benches.served import SECONDS, USER, Place, Served, at_once

pytestmark = pytest.mark.slow

PASSWORD = "a long password"

REFUSED: dict[str, tuple[int, dict[str, str]]] = {
    "no token": (401, {"Authorization": ""}),
    "a wrong token": (401, {"Authorization": "Bearer wrong"}),
    "the token in a cookie": (401, {"Authorization": "", "Cookie": "token={token}"}),
    "from another page": (403, {"Origin": "http://evil.example"}),
    "from a site on another port": (403, {"Sec-Fetch-Site": "same-site"}),
    "under another name": (421, {"Host": "evil.example:{port}"}),
    "under a name that begins alike": (421, {"Host": "127.0.0.1:{port}.evil.example"}),
}
POSTS = ["write", "answer", "again", "move", "fork", "delete", "terminal"]
PATHS = [("GET", "/api/new"), ("GET", "/api/events"), ("POST", "/agui")]
PATHS += [("POST", f"/api/{name}") for name in POSTS]


@pytest.mark.parametrize("name", REFUSED)
def test_who_is_not_let_in(served: Served, name: str) -> None:
    code, headers = REFUSED[name]
    shown = {key: value.format(token=served.token, port=served.port) for key, value in headers.items()}
    with served.client(**shown) as browser:
        codes = {path: browser.request(method, path).status_code for method, path in PATHS}
    assert codes == {path: code for _, path in PATHS}


def test_the_page_has_nothing_inline_and_says_what_it_may_do(served: Served) -> None:
    with served.client(**{"Authorization": "", "Sec-Fetch-Site": "cross-site"}) as linked:
        first, second = linked.get("/"), linked.get("/")
        headers = first.headers
        rules = headers["content-security-policy"]
        (nonce,) = re.findall(r'name="style-nonce" content="([^"]+)"', first.text)
        assert f"'nonce-{nonce}'" in rules
        assert rules != second.headers["content-security-policy"], "a nonce is used once"
        assert "unsafe" not in rules
        parts = {part.strip() for part in rules.split(";")}
        assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= parts
        assert re.findall(r"<style|<script(?! type=\"module\" src=)|\son\w+=|\sstyle=", first.text) == []
        assert "set-cookie" not in headers
        assert (headers["cache-control"], headers["referrer-policy"]) == ("no-store", "no-referrer")
        files = re.findall(r'(?:src|href)="(/static/[^"]+)"', first.text)
        assert len(files) >= 3
        for file in files:
            found = linked.get(file)
            assert (found.status_code, found.headers["x-content-type-options"]) == (200, "nosniff")
        for file in ("/static/..%2fapp.py", "/static/xterm-LICENSE.txt"):
            assert linked.get(file).status_code == 404


JSON = "application/json"
BODIES: dict[str, tuple[str, int, bytes, str]] = {
    "nested too deeply": ("/api/write", 400, b"[" * 100_000, JSON),
    "another type": ("/api/write", 415, b"thread=t1", "application/x-www-form-urlencoded"),
    "too large": ("/api/write", 413, b" " * 1_000_001, JSON),
    "a field too many": ("/api/write", 422, b'{"thread": "t1", "text": "x", "html": true}', JSON),
    "a password where there is none": ("/api/enter", 404, b'{"password": "x"}', JSON),
    "for the protocol, too large": ("/agui", 413, b" " * 10_000_001, JSON),
    "a number that is none": (
        "/agui", 400, b'{"threadId": "t", "runId": "r", "messages": [], "state": NaN}', JSON
    ),
}  # fmt: skip


def test_a_body_that_does_not_fit_is_refused_with_a_sentence(served: Served) -> None:
    for name, (path, code, body, kind) in BODIES.items():
        answer = served.http.post(path, content=body, headers={"Content-Type": kind})
        assert (answer.status_code, answer.json()["problem"].endswith(".")) == (code, True), name
    for thread in ("x" * 501, ""):
        assert served.http.get("/api/events", params={"thread": thread}).status_code == 422


OPENINGS: dict[str, tuple[list[str], str | None, str]] = {
    "everybody": (["--host", "0.0.0.0"], None, "SIGNOFF_PASSWORD"),
    "both ways": (["--proxy-header", USER], PASSWORD, "--proxy-header"),
    "no address": (["--public", "example.org"], PASSWORD, "--public"),
    "a folder that there is not": (["--workspace", "/nowhere"], None, "/nowhere"),
    "a thread without a name": (["--thread", ""], None, "thread"),
}


def test_a_server_that_everybody_could_use_or_with_wrong_options_is_not_opened(
    served: Served, tmp_path: Path
) -> None:
    bench = Bench(tmp_path)
    for words, password, named in OPENINGS.values():
        one_sentence(bench("serve", *words, SIGNOFF_PASSWORD=password), named)
    one_sentence(bench("serve", "--port", str(served.port)), str(served.port))


def test_a_password_gives_the_token_and_guessing_is_slowed_down(place: Place) -> None:
    def enter(browser: httpx.Client, password: str) -> httpx.Response:
        return browser.post("/api/enter", json={"password": password})

    with place.serve(SIGNOFF_PASSWORD=PASSWORD) as served, served.client() as browser:
        assert served.token == ""
        assert browser.get("/api/new").status_code == 401
        assert browser.post("/api/enter", json={"password": "x" * 5_000}).status_code == 413
        token = enter(browser, PASSWORD).json()["token"]
        assert browser.get("/api/new", headers={"Authorization": f"Bearer {token}"}).status_code == 200
        codes = [answer.status_code for answer in at_once(*[lambda: enter(browser, "x")] * 25)]
        assert (codes.count(403), codes.count(429)) == (20, 5)
        assert enter(browser, PASSWORD).status_code == 429
        transport = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(base_url=served.origin, transport=transport) as other:
            assert enter(other, PASSWORD).json()["token"] == token, "somebody else is not kept out"


CASES: dict[str, tuple[int, list[tuple[str, str]]]] = {
    "a name": (200, [(USER, "Ada")]),
    "a name twice": (400, [(USER, "Eve"), (USER, "Ada")]),
    "no name": (401, []),
    "its page": (200, [(USER, "Ada"), ("Origin", "http://localhost:8443")]),
    "another page": (403, [(USER, "Ada"), ("Origin", "https://evil.example")]),
    "another address": (421, [(USER, "Ada"), ("Host", "evil.example")]),
}


def test_a_proxy_says_who_it_is(second: Served) -> None:
    own = f"127.0.0.1:{second.port}"
    assert second.address == "http://localhost:8443/", "as a browser writes it"
    for name, (code, headers) in CASES.items():
        shown = headers if "Host" in dict(headers) else [*headers, ("Host", own)]
        sent = [(key.encode(), value.encode()) for key, value in shown]
        assert httpx.get(f"http://{own}/api/new", headers=sent).status_code == code, name


HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"
SILENT: dict[str, bytes] = {
    "nothing": b"",
    "half a head": HEAD,
    "a body that has been refused already": HEAD.replace(b"GET", b"POST") + b"Content-Length: 9999\r\n\r\nx",
}


@pytest.mark.thorough
def test_connections_that_ask_for_nothing_are_closed(served: Served) -> None:
    """After ten seconds, all of them meanwhile."""
    connections = {name: socket.create_connection(("127.0.0.1", served.port)) for name in SILENT}
    for name, connection in connections.items():
        connection.sendall(SILENT[name])
    for connection in connections.values():
        connection.settimeout(SECONDS)
        while connection.recv(65_536):
            pass
        connection.close()
