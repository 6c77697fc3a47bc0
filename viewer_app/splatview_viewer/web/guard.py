"""The rules by which requests are answered: Host, Origin and token.

A page on the internet can make a browser send requests to 127.0.0.1, under its own name with a DNS entry that points
here (DNS rebinding) or as a WebSocket from a foreign origin. The Host header tells the first, Origin the second. Other
users of this machine reach the loopback address as well, so everything but the files of the page needs the token.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web

TOKEN_HEADER = "X-Splatview-Token"
"""Holds the token of a request that a page's script makes."""
SUBPROTOCOL = "splatview"
"""The WebSocket subprotocol. A page offers `token.TOKEN` beside it: a WebSocket has no other header of its choice."""
_TOKEN_SUBPROTOCOL = "token."
_LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))
"""Names of this machine for itself. Under any port: an SSH tunnel may begin at another."""
_HOST = re.compile(r"(?:\[([0-9a-f:.]{2,45})\]|([a-z0-9_.-]{1,253}))(?::[0-9]{1,5})?")


class Guard:
    """The rules of one server."""

    def __init__(self, host: str, token: str) -> None:
        """`host`: what the server is bound to. Where nothing else can reach it, it answers only to this machine's own
        names, otherwise to any IP address besides: that is no DNS name that could point here."""
        self._any_address = not is_loopback(host)
        own = (host, socket.gethostname(), socket.getfqdn()) if self._any_address else (host,)
        self._names = _LOOPBACK | {name.lower().rstrip(".") for name in own}
        self._token = token.encode()

    def refuse(self, request: web.Request, *, public: bool) -> str:
        """Return why a request is not answered; "" for one that is. `public`: it needs no token."""
        hosts, origins = request.headers.getall("Host", []), request.headers.getall("Origin", [])
        host = ", ".join(hosts).lower()
        match = _HOST.fullmatch(host)
        name = (match[1] or match[2].rstrip(".")) if match else ""
        if not (name in self._names or (self._any_address and _address(name) is not None)):
            return (f"This viewer does not go by the name {_shown(host)}. Open the address that was printed where it "
                    "was started, or start it with --host and this name.")
        if origins and ", ".join(origins).lower() not in (f"http://{host}", f"https://{host}"):
            return f"Only the viewer's own page may connect, not {_shown(', '.join(origins))}."
        if public or self.has_token(request):
            return ""
        wrong = "This token is not this viewer's" if _given(request) else "This viewer needs a token"
        return (f"{wrong}. Open the address that was printed where it was started, with ?token=... at its end; "
                "splatview status prints it again.")

    def has_token(self, request: web.Request) -> bool:
        """Return whether a request gives the viewer's token. Takes the same time for each wrong one."""
        return any([hmac.compare_digest(token.encode("utf-8", "replace"), self._token) for token in _given(request)])


def subprotocols(request: web.Request) -> list[str]:
    """Return the subprotocols that a WebSocket's request offers."""
    return [name.strip() for name in request.headers.get("Sec-WebSocket-Protocol", "").split(",") if name.strip()]


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server bound to `host`."""
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def _given(request: web.Request) -> list[str]:
    """Return the tokens in a request's address, in its headers, and among its subprotocols."""
    offered = [name.removeprefix(_TOKEN_SUBPROTOCOL) for name in subprotocols(request)
               if name.startswith(_TOKEN_SUBPROTOCOL)]
    return [token for token in (request.query.get("token"), request.headers.get(TOKEN_HEADER), *offered) if token]


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _shown(value: str) -> str:
    return ascii(value[:80])
