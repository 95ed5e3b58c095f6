"""`signoff serve`: the application in the browser."""

import importlib.util
import os
from typing import Annotated

import typer

from signoff import SetupError
from signoff.front.database import Database
from signoff.front.options import TO_BEGIN, takes
from signoff.front.settings import Given, settle
from signoff.front.thread_ids import checked_thread_id
from signoff.graph.inside.installing import install_hint

_WARNING = (
    "Other machines can reach this server. Anyone who gets in runs commands here as you, and nothing is "
    "encrypted: put a proxy with TLS in front of it."
)
_WARNING_OF_HEADER = (
    "Any program that reaches port {port} can send the header {name} and then run commands here as you: "
    "let only the proxy reach it."
)


@takes(*TO_BEGIN)
def serve(
    given: Given,
    file: Database,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, metavar="N", help="Port to listen on (0: any free port).")
    ] = 0,
    thread: Annotated[
        str | None,
        typer.Option("--thread", "-t", metavar="ID", help="Open this thread (default: a new one)."),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Address to listen on. An address that other machines can reach needs a password in "
            "SIGNOFF_PASSWORD, or --proxy-header.",
        ),
    ] = "127.0.0.1",
    proxy_header: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Header in which your proxy names the signed-in user; let only the proxy reach the port.",
        ),
    ] = None,
    public: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Address that people open, if a proxy serves the application."),
    ] = None,
) -> None:
    """Open the application in the browser: threads, conversation, machine, terminal."""
    for package in ("starlette", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            raise SetupError(f"The web application needs extra packages: {install_hint('web')}")
    # The packages are an extra, and slow to import.
    from signoff.web.gate import PASSWORD_VARIABLE, Gate, check_opening
    from signoff.web.server import listen
    from signoff.web.server import serve as serve_forever

    password = os.environ.get(PASSWORD_VARIABLE) or None
    check_opening(host, password, proxy_header, public)
    thread_id = None if thread is None else checked_thread_id(thread)
    # Reports wrong options here, before a page opens.
    settle(given, None, os.environ)
    listening = listen(host, port)
    gate = Gate(host, listening.getsockname()[1], password, proxy_header, public)
    if not gate.is_local:
        typer.echo(_WARNING, err=True)
    if proxy_header is not None:
        typer.echo(_WARNING_OF_HEADER.format(port=gate.port, name=proxy_header), err=True)
    serve_forever(
        file,
        given,
        thread_id,
        listening,
        gate,
        lambda address: typer.echo(f"Open {address}\nPress Ctrl-C to stop."),
    )
