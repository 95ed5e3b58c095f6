"""Fifty browsers on one thread, fifty threads on one server, floods: complete, in order, within bounds."""

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.benches.web import WebBench
from tests.support.benches.web_browser import Served

pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.timeout(400)]
CROWD = 50
STEPS = """[call("write_file", path=f"{at}.txt", content="x") for at in range(12)] + [
    call("finish_task", summary="Written."),
]"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    bench = WebBench(tmp_path)
    options = ["--workspace", str(bench.workspace), "--model", bench.model(STEPS, 0.3), "--tools", "files"]
    found = Served("--database", str(bench.database), "--thread", "t0", *options)
    yield found
    found.end()


def memory(served: Served) -> float:
    """The megabytes that the server holds."""
    lines = Path(f"/proc/{served.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmRSS"))


class Follower:
    """A browser that follows a thread to its end."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.parts: dict[str, str] = {}
        self.seen: dict[str, float] = {}

    async def follow(self, client: httpx.AsyncClient, thread: str) -> None:
        async with client.stream("GET", "/api/events", params={"thread": thread}) as answer:
            kind = ""
            async for line in answer.aiter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    self.numbers.append(int(value))
                elif name == "event":
                    kind = value
                elif name == "data" and kind in ("all", "parts"):
                    self.take(json.loads(value))
                if "Asserted: done" in self.parts.get("head", ""):
                    return

    def take(self, found: dict[str, Any]) -> None:
        self.parts |= found["put"]
        for part in found["put"]:
            self.seen.setdefault(part, time.monotonic())

    @property
    def turns(self) -> list[str]:
        return sorted(name for name in self.parts if name.startswith("p-turn"))


def client(served: Served) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {served.token}"}
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=served.origin, headers=headers, timeout=120, limits=limits)


async def test_fifty_browsers_on_one_thread(served: Served) -> None:
    async with client(served) as browser:
        followers = [Follower() for _ in range(CROWD)]
        before = memory(served)
        following = [asyncio.create_task(one.follow(browser, "t0")) for one in followers]
        # One that never reads.
        address = ("127.0.0.1", int(served.origin.rpartition(":")[2]))
        with socket.create_connection(address) as silent:
            asked = f"GET /api/events?thread=t0 HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n"
            silent.sendall(f"{asked}Authorization: Bearer {served.token}\r\n\r\n".encode())
            while not all(one.parts for one in followers):
                await asyncio.sleep(0.05)
            found = await browser.post("/api/write", json={"thread": "t0", "text": "Write"})
            assert found.status_code == 200
            await asyncio.gather(*following)
            after = memory(served)
    late = sorted(
        max(one.seen[name] for one in followers) - min(one.seen[name] for one in followers)
        for name in followers[0].turns
    )
    print(
        f"{CROWD} browsers: {before:.0f} to {after:.0f} MB; "
        f"the last sees a turn {late[len(late) // 2]:.3f} s after the first, at most {late[-1]:.3f} s"
    )
    for one in followers:
        assert one.turns == [f"p-turn-1-{at}" for at in sorted(range(1, 14), key=str)]
        assert one.numbers == sorted(set(one.numbers))
        assert one.parts == followers[0].parts
    assert after - before < 60


async def test_fifty_threads_on_one_server(served: Served) -> None:
    async with client(served) as browser:
        before, began = memory(served), time.monotonic()
        followers = [Follower() for _ in range(CROWD)]
        names = [f"t{at}" for at in range(CROWD)]
        following = [
            asyncio.create_task(one.follow(browser, name)) for one, name in zip(followers, names, strict=True)
        ]
        while not all(one.parts for one in followers):
            await asyncio.sleep(0.05)
        sent = [browser.post("/api/write", json={"thread": name, "text": "Write"}) for name in names]
        assert [answer.status_code for answer in await asyncio.gather(*sent)] == [200] * CROWD
        delays = []
        while not all(task.done() for task in following):
            asked = time.monotonic()
            assert (await browser.get("/api/new")).status_code == 200
            delays.append(time.monotonic() - asked)
            await asyncio.sleep(0.25)
        await asyncio.gather(*following)
        after, took = memory(served), time.monotonic() - began
    delays.sort()
    print(
        f"{CROWD} threads in {took:.0f} s: {before:.0f} to {after:.0f} MB; an answer took "
        f"{delays[len(delays) // 2]:.3f} s, at most {delays[-1]:.3f} s"
    )
    for one in followers:
        assert one.turns == [f"p-turn-1-{at}" for at in sorted(range(1, 14), key=str)]
    assert after - before < 400


async def test_a_flood_of_requests_costs_no_memory_and_stops_nobody(served: Served) -> None:
    async with client(served) as browser:
        before = memory(served)
        bodies = ["{" + "x" * 900_000, json.dumps({"thread": "t0", "text": " "}), "[" * 50_000]
        for _ in range(20):
            sent = [
                browser.post(
                    "/api/write", content=bodies[at % 3], headers={"Content-Type": "application/json"}
                )
                for at in range(30)
            ]
            assert {answer.status_code for answer in await asyncio.gather(*sent)} <= {400, 422}
        print(f"600 bad requests: {before:.0f} to {memory(served):.0f} MB")
        assert memory(served) - before < 100
        assert (await browser.get("/api/new")).status_code == 200


async def test_three_thousand_ids_of_no_thread_and_sixty_terminals(served: Served) -> None:
    async with client(served) as browser:
        await asyncio.gather(*(looked(browser, f"warm-{number}") for number in range(20)))
        before = memory(served)
        for first in range(0, 3_000, 20):
            await asyncio.gather(
                *(looked(browser, f"random-{number}") for number in range(first, first + 20))
            )
        after = memory(served)
        print(f"3,000 ids of no thread: {before:.0f} to {after:.0f} MB")
        assert after - before < 60
        codes = []
        for number in range(80):
            sent = {"thread": f"shell-{number}", "data": "sleep 600\n" if number < 64 else "echo here\n"}
            codes.append((await browser.post("/api/terminal", json=sent)).status_code)
        await asyncio.sleep(2)
        shells = len(served.children())
        print(
            f"80 terminals asked for: {codes.count(200)} given, {shells} processes, {memory(served):.0f} MB"
        )
        assert codes == [200] * 64 + [503] * 16
        assert memory(served) - after < 60


async def looked(browser: httpx.AsyncClient, thread: str) -> None:
    """Opens the page of a thread that there is not, and goes."""
    async with browser.stream("GET", "/api/events", params={"thread": thread}) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                return
