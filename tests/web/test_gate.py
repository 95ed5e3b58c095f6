"""Who is let in to the web application, and what a browser may do with its pages."""

import re
from typing import Any

import httpx
import pytest
from starlette.datastructures import Headers

from signoff.graph.errors import SetupError
from signoff.web.app import MOST_BYTES, Application
from signoff.web.gate import Gate, NotLetIn, check_opening

PLACE = "http://127.0.0.1:8000"


def never() -> Any:
    raise AssertionError("nobody who is refused gets as far as the hub")


def client(gate: Gate, **headers: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(Application(never, gate, never).asgi)
    return httpx.AsyncClient(transport=transport, base_url=PLACE, headers=headers)


REFUSED: dict[str, tuple[int, dict[str, str]]] = {
    "no token": (401, {}),
    "a wrong token": (401, {"Authorization": "Bearer wrong"}),
    "the token in another way": (401, {"Authorization": "Basic {token}"}),
    "the token in a cookie": (401, {"Cookie": "token={token}"}),
    "the token from another page": (
        403,
        {"Authorization": "Bearer {token}", "Origin": "http://evil.example"},
    ),
    "the token from another port": (
        403,
        {"Authorization": "Bearer {token}", "Origin": "http://127.0.0.1:1"},
    ),
    "the token in a request of another page": (
        403,
        {"Authorization": "Bearer {token}", "Sec-Fetch-Site": "cross-site"},
    ),
    "the token in one of another port": (
        403,
        {"Authorization": "Bearer {token}", "Sec-Fetch-Site": "same-site"},
    ),
    "no origin but null": (403, {"Authorization": "Bearer {token}", "Origin": "null"}),
    "another name of this address": (421, {"Authorization": "Bearer {token}", "Host": "evil.example:8000"}),
    "another port in the name": (421, {"Authorization": "Bearer {token}", "Host": "127.0.0.1:80"}),
}
PATHS = ["new", "events", "write", "answer", "again", "move", "fork", "delete", "terminal"]


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_refused(name: str) -> None:
    gate = Gate("127.0.0.1", 8000)
    status, headers = REFUSED[name]
    given = {key: value.format(token=gate.token) for key, value in headers.items()}
    async with client(gate, **given) as browser:
        for path in PATHS:
            post = path not in ("new", "events")
            answer = await browser.request("POST" if post else "GET", f"/api/{path}")
            assert (path, answer.status_code) == (path, status)


async def test_another_page_may_link_to_the_page() -> None:
    async with client(Gate("127.0.0.1", 8000), **{"Sec-Fetch-Site": "cross-site"}) as browser:
        assert (await browser.get("/")).status_code == 200


@pytest.mark.parametrize(("password", "status"), [(None, 404), ("a long password", 413)])
async def test_nobody_holds_memory_who_is_not_let_in(password: str | None, status: int) -> None:
    async with client(Gate("127.0.0.1", 8000, password)) as browser:
        answer = await browser.post("/api/enter", json={"password": "x" * 5_000})
        assert answer.status_code == status


async def test_the_page_has_nothing_inline_and_says_what_it_may_do() -> None:
    async with client(Gate("127.0.0.1", 8000)) as browser:
        first, second = await browser.get("/"), await browser.get("/")
        policy = first.headers["content-security-policy"]
        nonce = re.search(r'name="style-nonce" content="([^"]+)"', first.text)
        assert nonce is not None
        assert f"'nonce-{nonce[1]}'" in policy
        assert policy != second.headers["content-security-policy"], "a nonce is used once"
        assert "unsafe" not in policy
        assert "default-src 'none'; script-src 'self'; connect-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert re.findall(r"<style|<script(?! type=\"module\" src=)|\son\w+=|\sstyle=", first.text) == []
        assert "set-cookie" not in first.headers
        assert (first.headers["cache-control"], first.headers["referrer-policy"]) == (
            "no-store",
            "no-referrer",
        )
        for name in ("app.js", "terminal.js", "xterm.mjs", "xterm.css", "web.css", "record.css"):
            found = await browser.get(f"/static/{name}")
            assert found.status_code == 200
            assert found.headers["x-content-type-options"] == "nosniff"
        assert (await browser.get("/static/..%2fapp.py")).status_code == 404
        assert (await browser.get("/static/xterm-LICENSE.txt")).status_code == 404


BODIES: dict[str, tuple[int, bytes, str]] = {
    "no JSON": (400, b"{", "application/json"),
    "nested too deeply": (400, b"[" * 100_000, "application/json"),
    "another type": (415, b"thread=t1", "application/x-www-form-urlencoded"),
    "too large": (413, b" " * (MOST_BYTES + 1), "application/json"),
    "a field too many": (422, b'{"thread": "t1", "text": "x", "html": true}', "application/json"),
    "the wrong type": (422, b'{"thread": 3, "text": []}', "application/json"),
    "an empty task": (422, b'{"thread": "t1", "text": "  "}', "application/json"),
}


@pytest.mark.parametrize("name", BODIES)
async def test_a_body_that_does_not_fit_is_refused_with_a_sentence(name: str) -> None:
    gate = Gate("127.0.0.1", 8000)
    status, body, kind = BODIES[name]
    async with client(gate, Authorization=f"Bearer {gate.token}") as browser:
        answer = await browser.post("/api/write", content=body, headers={"Content-Type": kind})
        assert (answer.status_code, answer.json()["problem"].endswith(".")) == (status, True)


OPENINGS: dict[str, tuple[tuple[str, str | None, str | None, str | None], str]] = {
    "everybody": (("0.0.0.0", None, None, None), "opens the server to other machines"),
    "a name": (("example.org", None, None, None), "opens the server to other machines"),
    "a short password": (("0.0.0.0", "short", None, None), "at least 12"),
    "a short password here": (("127.0.0.1", "short", None, None), "at least 12"),
    "both ways": (("0.0.0.0", "a long password", "X-User", None), "use one"),
    "no header": (("0.0.0.0", None, "X User:", None), "is not a header name"),
    "no address": (("0.0.0.0", "a long password", None, "example.org"), "is not an address"),
    "an address with a path": (("0.0.0.0", "a long password", None, "https://a.org/b"), "is not an address"),
}


@pytest.mark.parametrize("name", OPENINGS)
def test_a_server_that_everybody_could_use_is_not_opened(name: str) -> None:
    given, told = OPENINGS[name]
    with pytest.raises(SetupError, match=re.escape(told)):
        check_opening(*given)


@pytest.mark.parametrize(
    "given",
    [
        ("127.0.0.1", None, None, None),
        ("::1", None, None, None),
        ("0.0.0.0", "a long password", None, None),
        ("10.0.0.1", None, "X-Forwarded-User", "https://signoff.example.org"),
    ],
)
def test_what_may_be_opened(given: tuple[str, str | None, str | None, str | None]) -> None:
    check_opening(*given)


async def test_a_password_gives_the_token_and_guessing_is_slowed_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("signoff.web.gate._WRONG_SECONDS", 0.0)
    gate = Gate("0.0.0.0", 8000, password="a long password")
    async with client(gate) as browser:
        right = await browser.post("/api/enter", json={"password": "a long password"})
        assert right.json() == {"token": gate.token}
        codes = [(await browser.post("/api/enter", json={"password": "x"})).status_code for _ in range(21)]
        assert codes == [403] * 20 + [429]
        late = await browser.post("/api/enter", json={"password": "a long password"})
        assert late.status_code == 429
    # Somebody else is not kept out by it, and many addresses are no way around it.
    assert await gate.enter("a long password", "10.0.0.7") == gate.token
    told = set[str]()
    for number in range(300):
        with pytest.raises(NotLetIn) as refused:
            await gate.enter("x", f"10.0.{number // 100}.{number % 100}")
        told.add(str(refused.value))
    assert told == {"The password is wrong.", "Too many wrong passwords; try again in a minute."}
    with pytest.raises(NotLetIn, match="no password"):
        await Gate("127.0.0.1", 8000).enter("x")


def test_a_proxy_says_who_it_is() -> None:
    gate = Gate("10.0.0.1", 8000, proxy_header="X-Forwarded-User", public="https://signoff.example.org")
    assert gate.who(Headers({"X-Forwarded-User": "Ada"})) == "Ada"
    assert gate.who(Headers(raw=[(b"x-forwarded-user", "Zoë".encode())])) == "Zoë"
    with pytest.raises(NotLetIn, match="came twice"):
        gate.who(Headers(raw=[(b"x-forwarded-user", b"Eve"), (b"x-forwarded-user", b"Ada")]))
    gate.check_place({"host": "signoff.example.org", "origin": "https://signoff.example.org"})
    gate.check_place({"host": "10.0.0.1:8000"})
    for headers in ({}, {"x-forwarded-user": " "}, {"authorization": f"Bearer {gate.token}"}):
        with pytest.raises(NotLetIn):
            gate.who(Headers(headers))
    for headers in (
        {"host": "evil.example"},
        {"host": "signoff.example.org", "origin": "https://evil.example"},
    ):
        with pytest.raises(NotLetIn):
            gate.check_place(headers)


OWN: dict[str, tuple[Gate, str, str]] = {
    "another address of the loopback": (Gate("127.0.0.2", 8000), "127.0.0.2:8000", "http://127.0.0.2:8000"),
    "the loopback of IPv6": (Gate("::1", 8000), "[::1]:8000", "http://[::1]:8000"),
    "the port that a browser leaves out": (Gate("127.0.0.1", 80), "127.0.0.1", "http://127.0.0.1"),
    "it in IPv6": (Gate("::1", 80), "[::1]", "http://[::1]"),
    "an address by its number": (Gate("0.0.0.0", 8000), "10.0.0.7:8000", "http://10.0.0.7:8000"),
    "a public address as people write it": (
        Gate("127.0.0.1", 8000, public="HTTPS://Signoff.Example.org:443/"),
        "signoff.example.org",
        "https://signoff.example.org",
    ),
    "a public address with a port": (
        Gate("127.0.0.1", 8000, public="https://signoff.example.org:8443"),
        "signoff.example.org:8443",
        "https://signoff.example.org:8443",
    ),
    "what a proxy makes of it": (
        Gate("127.0.0.1", 8000, public="https://signoff.example.org"),
        "127.0.0.1:8000",
        "https://signoff.example.org",
    ),
}


@pytest.mark.parametrize("name", OWN)
def test_names_under_which_a_server_is_known(name: str) -> None:
    gate, host, origin = OWN[name]
    gate.check_place({"host": host, "origin": origin})
    assert gate.origin in (origin, "http://0.0.0.0:8000")
    for other in ("", ":", "[", "evil.example", f"{host}.evil.example", "127.0.0.1:1", "[::1]:1"):
        with pytest.raises(NotLetIn):
            gate.check_place({"host": other})
