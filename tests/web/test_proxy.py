"""nginx in front, as the docs configure it: names, what happens at once, the terminal."""

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from signoff.session.status import ThreadStatus, look, reading_graph
from tests.support.benches.web import WebBench
from tests.support.benches.web_browser import Served

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed"),
]
DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "application.md"
STEPS = """[
    call("ask_user", question="Which port?"),
    call("finish_task", summary="The port is set."),
]"""
CONFIGURATION = """daemon off; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        {location}
    }}
}}"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@pytest.fixture
def bench(tmp_path: Path) -> WebBench:
    return WebBench(tmp_path)


@pytest.fixture
def public(bench: WebBench) -> Iterator[str]:
    """The address that people open: nginx, and the server behind it."""
    front, behind = free_port(), free_port()
    public = f"http://localhost:{front}"
    options = ["--workspace", str(bench.workspace), "--model", bench.model(STEPS), "--tools", "files,shell"]
    reached = ["--port", str(behind), "--proxy-header", "X-Forwarded-User", "--public", public]
    served = Served("--database", str(bench.database), *options, *reached)
    assert served.address == f"{public}/"
    found = re.search(r"```nginx\n(.+?)```", DOCS.read_text(), re.DOTALL)
    assert found is not None
    users = bench.folder / "users"
    users.write_text("ada:{PLAIN}a long password\n")
    users.chmod(0o644)
    for folder in (bench.folder, *bench.folder.parents[:2]):
        folder.chmod(0o755)
    location = found[1].replace("/etc/nginx/signoff.users", str(users)).replace(":8000", f":{behind}")
    file = bench.folder / "nginx.conf"
    file.write_text(CONFIGURATION.format(folder=bench.folder, port=front, location=location))
    proxy = subprocess.Popen(["nginx", "-c", str(file), "-e", str(bench.folder / "error.log")])
    try:
        wait_for(front)
        yield public
    finally:
        proxy.terminate()
        proxy.wait(30)
        served.end()


def wait_for(port: int) -> None:
    end = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            assert time.monotonic() < end, "nginx does not listen"
            time.sleep(0.05)


def test_a_proxy_lets_people_in_by_their_names(bench: WebBench, public: str) -> None:
    origin = {"Origin": public}
    with httpx.Client(base_url=public, headers=origin, timeout=20) as nobody:
        assert nobody.get("/api/new", headers={"X-Forwarded-User": "ada"}).status_code == 401
    with httpx.Client(base_url=public, headers=origin, auth=("ada", "a long password"), timeout=20) as ada:
        # What a browser says of itself does not count.
        assert ada.get("/api/new", headers={"X-Forwarded-User": "eve"}).status_code == 200
        assert ada.get("/api/new", headers={"Origin": "http://evil.example"}).status_code == 403
        with ada.stream("GET", "/api/events", params={"thread": "t1"}) as answer:
            lines = answer.iter_lines()
            assert ada.post("/api/write", json={"thread": "t1", "text": "Set it"}).status_code == 200
            # Each event as it happens; nothing else would fill a buffer.
            next(line for line in lines if "data-interrupt" in line)
            waits = look_at(bench).wait()
            assert waits is not None
            body = {"thread": "t1", "interrupt_id": waits.interrupt_id, "texts": ["8080"]}
            assert ada.post("/api/answer", json=body).status_code == 200
            next(line for line in lines if "Asserted: done" in line)
            assert ada.post("/api/terminal", json={"thread": "t1", "data": "echo hi\n"}).status_code == 200
            next(line for line in lines if line == "event: terminal")
    assert "ada" in str(look_at(bench).values)


def look_at(bench: WebBench) -> ThreadStatus:
    with bench.database.open() as storage:
        return look(reading_graph(storage), "t1")
