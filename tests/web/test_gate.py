"""Who is let in to the web application, what a request may be, and what a browser may do with the page."""

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest

from tests.support.benches.cli import Bench, one_sentence
from tests.support.benches.served import SECONDS, Place, Served, Thread, at_once, wait_until

pytestmark = pytest.mark.slow

PASSWORD = "a long password"
USER = "X-Forwarded-User"

REFUSED: dict[str, tuple[int, dict[str, str]]] = {
    "no token": (401, {"Authorization": ""}),
    "a wrong token": (401, {"Authorization": "Bearer wrong"}),
    "the token in another way": (401, {"Authorization": "Basic {token}"}),
    "the token in a cookie": (401, {"Authorization": "", "Cookie": "token={token}"}),
    "from another page": (403, {"Origin": "http://evil.example"}),
    "from another port": (403, {"Origin": "http://127.0.0.1:1"}),
    "from a page of no origin": (403, {"Origin": "null"}),
    "from a site that links": (403, {"Sec-Fetch-Site": "cross-site"}),
    "from a site on another port": (403, {"Sec-Fetch-Site": "same-site"}),
    "under another name": (421, {"Host": "evil.example:{port}"}),
    "under a name that begins alike": (421, {"Host": "127.0.0.1:{port}.evil.example"}),
    "under another port": (421, {"Host": "127.0.0.1:1"}),
    "under no port": (421, {"Host": "127.0.0.1"}),
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


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_the_names_of_this_machine_are_known(served: Served, host: str) -> None:
    shown = f"{host}:{served.port}"
    with served.client(Host=shown, Origin=f"http://{shown}") as browser:
        assert browser.get("/api/new").status_code == 200


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
    "no JSON": ("/api/write", 400, b"{", JSON),
    "nested too deeply": ("/api/write", 400, b"[" * 100_000, JSON),
    "another type": ("/api/write", 415, b"thread=t1", "application/x-www-form-urlencoded"),
    "too large": ("/api/write", 413, b" " * 1_000_001, JSON),
    "a field too many": ("/api/write", 422, b'{"thread": "t1", "text": "x", "html": true}', JSON),
    "the wrong type": ("/api/write", 422, b'{"thread": 3, "text": []}', JSON),
    "an empty task": ("/api/write", 422, b'{"thread": "t1", "text": "  "}', JSON),
    "a thread without a name": ("/api/write", 422, b'{"thread": "", "text": "x"}', JSON),
    "a name that is too long": ("/api/write", 422, b'{"thread": "%s", "text": "x"}' % (b"x" * 501), JSON),
    "a terminal of no size": ("/api/terminal", 422, b'{"thread": "t1", "rows": 0, "cols": 0}', JSON),
    "a password where there is none": ("/api/enter", 404, b'{"password": "x"}', JSON),
    "for the protocol, too large": ("/agui", 413, b" " * 10_000_001, JSON),
    "for the protocol, of another type": ("/agui", 415, b"{}", ""),
    "for the protocol, nested too deeply": ("/agui", 400, b"[" * 100_000, JSON),
    "a number that is none": (
        "/agui", 400, b'{"threadId": "t", "runId": "r", "messages": [], "state": NaN}', JSON
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_does_not_fit_is_refused_with_a_sentence(served: Served, name: str) -> None:
    path, code, body, kind = BODIES[name]
    answer = served.http.post(path, content=body, headers={"Content-Type": kind})
    assert (answer.status_code, answer.json()["problem"].endswith(".")) == (code, True)


def test_the_thread_of_a_page_has_a_name_that_can_be_one(served: Served) -> None:
    for name in ("x" * 501, ""):
        with served.http.stream("GET", "/api/events", params={"thread": name}) as answer:
            assert answer.status_code == 422


OPENINGS: dict[str, tuple[list[str], str | None, str]] = {
    "everybody": (["--host", "0.0.0.0"], None, "SIGNOFF_PASSWORD"),
    "a name": (["--host", "example.org"], None, "--host"),
    "a short password": (["--host", "0.0.0.0"], "short", "SIGNOFF_PASSWORD"),
    "a short password here": ([], "short", "SIGNOFF_PASSWORD"),
    "both ways": (["--proxy-header", USER], PASSWORD, "--proxy-header"),
    "no header": (["--proxy-header", "X User:"], None, "--proxy-header"),
    "no address": (["--public", "example.org"], PASSWORD, "--public"),
    "an address with a path": (["--public", "https://a.org/b"], PASSWORD, "--public"),
    "a folder that there is not": (["--workspace", "/nowhere"], None, "/nowhere"),
    "a thread without a name": (["--thread", ""], None, "thread"),
}


@pytest.mark.parametrize("name", OPENINGS)
def test_a_server_that_everybody_could_use_or_with_wrong_options_is_not_opened(
    tmp_path: Path, name: str
) -> None:
    words, password, named = OPENINGS[name]
    one_sentence(Bench(tmp_path)("serve", *words, SIGNOFF_PASSWORD=password), named)


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


class TestProxy:
    @pytest.fixture(scope="class")
    @staticmethod
    def ports() -> tuple[int, int]:
        """Of the proxy, and of the server behind it."""
        with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
            return int(one.getsockname()[1]), int(two.getsockname()[1])

    @pytest.fixture(scope="class")
    @staticmethod
    def behind(place: Place, ports: tuple[int, int]) -> Iterator[Served]:
        front, own = ports
        public = f"HTTP://LocalHost:{front}/"
        with place.serve("--port", str(own), "--proxy-header", USER, "--public", public) as behind:
            assert behind.address == f"http://localhost:{front}/", "as a browser writes it"
            yield behind

    CASES: ClassVar[dict[str, tuple[int, list[tuple[str, str]]]]] = {
        "a name": (200, [(USER, "Ada")]),
        "a name in UTF-8": (200, [(USER, "Zoë")]),
        "a name twice": (400, [(USER, "Eve"), (USER, "Ada")]),
        "no name": (401, []),
        "an empty name": (401, [(USER, "")]),
        "the public address": (200, [(USER, "Ada"), ("Host", "localhost:{front}")]),
        "its page": (200, [(USER, "Ada"), ("Origin", "http://localhost:{front}")]),
        "another page": (403, [(USER, "Ada"), ("Origin", "https://evil.example")]),
        "another address": (421, [(USER, "Ada"), ("Host", "evil.example")]),
    }

    @pytest.mark.parametrize("name", CASES)
    @pytest.mark.usefixtures("behind")
    def test_it_says_who_it_is(self, ports: tuple[int, int], name: str) -> None:
        code, headers = self.CASES[name]
        own = f"127.0.0.1:{ports[1]}"
        shown = [(key, value.format(front=ports[0])) for key, value in headers]
        if "Host" not in dict(shown):
            shown.append(("Host", own))
        answer = httpx.get(
            f"http://{own}/api/new", headers=[(key.encode(), value.encode()) for key, value in shown]
        )
        assert answer.status_code == code

    @pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
    def test_nginx_as_the_docs_configure_it(
        self, place: Place, behind: Served, ports: tuple[int, int], tmp_path: Path
    ) -> None:
        port, own = ports
        docs = Path(__file__).parents[2] / "docs" / "how-to" / "application.md"
        (location,) = re.findall(r"```nginx\n(.+?)```", docs.read_text(), re.DOTALL)
        users = tmp_path / "users"
        users.write_text(f"ada:{{PLAIN}}{PASSWORD}\n")
        for path in (users, tmp_path, *tmp_path.parents[:2]):
            path.chmod(0o755)
        location = location.replace("/etc/nginx/signoff.users", str(users)).replace(":8000", f":{own}")
        kept = "".join(
            f"{name}_temp_path {tmp_path}/{name}; "
            for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        server = f"server {{ listen 127.0.0.1:{port}; {location} }}"
        (tmp_path / "nginx.conf").write_text(
            f"daemon off; pid {tmp_path}/pid; events {{}} http {{ access_log off; {kept} {server} }}"
        )
        nginx = subprocess.Popen(["nginx", "-c", f"{tmp_path}/nginx.conf", "-e", f"{tmp_path}/error.log"])
        try:
            wait_until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
            self.check_nginx(place, behind, f"http://localhost:{port}")
        finally:
            nginx.terminate()
            nginx.wait(SECONDS)

    def check_nginx(self, place: Place, behind: Served, public: str) -> None:
        ask = '[call("ask_user", question="Which port?"), call("finish_task", summary="Set.")]'
        thread = Thread(place, behind, ask)
        with httpx.Client(base_url=public, headers={"Origin": public}) as nobody:
            assert nobody.get("/api/new", headers={USER: "ada"}).status_code == 401
        shown: Any = {"headers": {"Origin": public}, "auth": ("ada", PASSWORD), "timeout": SECONDS}
        with httpx.Client(base_url=public, **shown) as thread.http:
            assert thread.http.get("/api/new", headers={"Origin": "http://evil.example"}).status_code == 403
            with thread.reading() as reader:
                assert thread.write(settings=thread.settings) == 200
                # Each event as it happens; nothing else would fill a buffer.
                reader.sees("Which port?")
                thread.answered("8080")
                reader.sees("Asserted: done", "ada")


HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"
SILENT: dict[str, bytes] = {
    "nothing": b"",
    "half a head": HEAD,
    "half a second head": HEAD + b"\r\n" + HEAD,
    "a body that has been refused already": HEAD.replace(b"GET", b"POST") + b"Content-Length: 9999\r\n\r\nx",
}


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
