"""Who may use the server (this machine, or by password or proxy), and what a browser may do with a page.

The token is not a cookie: a browser sends cookies to every server on the machine, whatever its port. The
page moves the token from its address into the storage of its tab, which belongs to this port alone, and
sends it in a header that no other page can set.
"""

import asyncio
import hmac
import ipaddress
import secrets
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from signoff import SetupError
from signoff.text import valid_text

LOOPBACK = ("127.0.0.1", "localhost")
PASSWORD_VARIABLE = "SIGNOFF_PASSWORD"
_SHORTEST_PASSWORD = 12
_WRONG_SECONDS = 1.0
_MOST_WRONG = 20
_MOST_CLIENTS = 200
_WITHIN_SECONDS = 60.0
_MOST_NAME = 200
_PORTS = {"http": 80, "https": 443}
"""The default ports, which a browser leaves out."""


class NotLetIn(Exception):
    """The request is not for this server, or its sender is not allowed."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


@dataclass
class Gate:
    """Decides which requests are allowed.

    host, port: where the server listens. password: the password that people enter; None for none.
    proxy_header: the header in which a proxy names the authenticated user; None for none. public: the address
    that people open, if it is not the server's own.
    """

    host: str
    port: int
    password: str | None = None
    proxy_header: str | None = None
    public: str | None = None
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    _wrong: dict[str, deque[float]] = field(default_factory=dict)
    """Times of wrong passwords by client address, so that one client cannot lock out the others."""

    def __post_init__(self) -> None:
        # As a browser writes it.
        self.public = self.public and origin_of(self.public)

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)

    @property
    def origin(self) -> str:
        """Returns the address that people open."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return self.public or f"http://{shown}{'' if self.port == _PORTS['http'] else f':{self.port}'}"

    def check_place(self, headers: Mapping[str, str], *, reads: bool = True) -> None:
        """Raises NotLetIn for a request under another host name, or from another page.

        So no website gets in by pointing its own name at this machine. reads: the request asks for more than
        the page itself, to which other sites may link.
        """
        host = headers.get("host", "")
        if not self._is_own(host):
            raise NotLetIn(
                421,
                "This server does not answer to this host name; start it with --public and the address that "
                "people open.",
            )
        origin = headers.get("origin")
        # A browser sends the origin only with requests that carry data.
        site = headers.get("sec-fetch-site", "none") if reads else "none"
        if (origin is not None and not self._same(origin, host)) or site not in ("same-origin", "none"):
            behind = "" if self.proxy_header is None else "; behind a proxy, set --public to its address"
            raise NotLetIn(403, f"Requests from other pages are refused{behind}.")

    def _is_own(self, host: str) -> bool:
        if self.public is not None and host == urlsplit(self.public).netloc:
            return True
        # A browser leaves out the default port.
        name, found, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
        if (port if found else str(_PORTS["http"])) != str(self.port):
            return False
        name = name if found else host
        if self.is_local:
            return name.strip("[]") in (*LOOPBACK, "::1", self.host)
        # A numeric address cannot be another site's name that points here.
        return name == self.host or is_address(name.strip("[]"))

    def _same(self, origin: str, host: str) -> bool:
        return origin in (self.public, f"http://{host}")

    def who(self, headers: Headers) -> str:
        """Returns the user's name, empty if unknown. Raises NotLetIn if the request is not authenticated."""
        if self.proxy_header is not None:
            said = headers.getlist(self.proxy_header)
            if len(said) > 1:
                raise NotLetIn(
                    400, "The proxy's header came twice: the proxy must replace what a browser sends."
                )
            if name := valid_text(_as_utf8("".join(said))).strip():
                return name[:_MOST_NAME]
            raise NotLetIn(401, "The proxy in front of this server did not name the user.")
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind != "Bearer" or not hmac.compare_digest(given.strip().encode(), self.token.encode()):
            raise NotLetIn(401, "Open the address that signoff serve printed, with its token.")
        return ""

    def check_password(self) -> str:
        """Returns the password. Raises NotLetIn if there is none."""
        if self.password is None:
            raise NotLetIn(404, "This server has no password.")
        return self.password

    async def enter(self, password: str, client: str = "") -> str:
        """Returns the token in exchange for the password. Raises NotLetIn; repeated guesses have to wait.

        client: the address of the client.
        """
        now, own = time.monotonic(), self.check_password()
        wrong = self._wrong_of(client, now)
        if len(wrong) >= _MOST_WRONG:
            raise NotLetIn(429, "Too many wrong passwords; try again in a minute.")
        if hmac.compare_digest(password.encode(errors="replace"), own.encode(errors="replace")):
            return self.token
        wrong.append(now)
        await asyncio.sleep(_WRONG_SECONDS)
        raise NotLetIn(403, "The password is wrong.")

    def _wrong_of(self, client: str, now: float) -> deque[float]:
        for name, times in list(self._wrong.items()):
            while times and now - times[0] > _WITHIN_SECONDS:
                times.popleft()
            if not times:
                del self._wrong[name]
        # Attempts from too many addresses are counted as one client's.
        known = client if client in self._wrong or len(self._wrong) < _MOST_CLIENTS else ""
        return self._wrong.setdefault(known, deque())


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def check_opening(host: str, password: str | None, proxy_header: str | None, public: str | None) -> None:
    """Raises SetupError for a server that anyone could use, and for options that do not go together."""
    if password is not None and len(password) < _SHORTEST_PASSWORD:
        raise SetupError(f"{PASSWORD_VARIABLE} is too short; use at least {_SHORTEST_PASSWORD} characters.")
    if not is_loopback(host) and password is None and proxy_header is None:
        raise SetupError(
            f"--host {host} opens the server to other machines, which could run commands here as you. Set a "
            f"password in {PASSWORD_VARIABLE}, or name the header in which your proxy sends the user with "
            "--proxy-header."
        )
    if password is not None and proxy_header is not None:
        raise SetupError(f"--proxy-header and {PASSWORD_VARIABLE} both control access; use one.")
    if proxy_header is not None and not proxy_header.replace("-", "").isalnum():
        raise SetupError(
            f"--proxy-header {proxy_header!r} is not a header name; use one such as X-Forwarded-User."
        )
    if public is not None:
        origin_of(public)


def origin_of(public: str) -> str:
    """Returns the origin of this address as a browser writes it. Raises SetupError for anything else."""
    try:
        found = urlsplit(public.strip())
        port = found.port
    except ValueError:
        found, port = urlsplit(""), None
    more = found.path.strip("/") or found.query or found.fragment or found.username is not None
    if found.scheme not in _PORTS or not found.hostname or more:
        raise SetupError(f"--public {public!r} is not an address such as https://signoff.example.org.")
    name = f"[{found.hostname}]" if ":" in found.hostname else found.hostname
    return f"{found.scheme}://{name}{'' if port in (None, _PORTS[found.scheme]) else f':{port}'}"


def _as_utf8(header: str) -> str:
    """Returns the text of a header that holds UTF-8, as names do."""
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        return header


def policy(nonce: str) -> str:
    """Returns the policy of a page: nothing inline except styles with this nonce, for the terminal."""
    return (
        "default-src 'none'; script-src 'self'; connect-src 'self'; img-src data:; "
        f"style-src 'self' 'nonce-{nonce}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
