"""Rules about Host, Origin and token, as plain functions.

A page on the internet can make a browser send requests to 127.0.0.1, under its own name with a DNS entry that points
here (DNS rebinding) or as a WebSocket from a foreign origin. The Host header tells the first, Origin the second. Other
users of this machine reach the loopback address as well, so every request needs the token. Each `refuse_...` returns ""
for an allowed request, otherwise the reason for the client.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

TOKEN_HEADER = "X-Splatview-Token"
"""Holds the token of a request that a page's script makes."""
SUBPROTOCOL = "splatview"
"""The WebSocket subprotocol. A page offers `token.TOKEN` beside it: a WebSocket has no other header of its choice."""
_TOKEN_SUBPROTOCOL = "token."
LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))
"""Names of this machine for itself. Under any port: an SSH tunnel may begin at another."""

_HOST = re.compile(r"(?:\[([0-9a-f:.]{2,45})\]|([a-z0-9_.-]{1,253}))(?::([0-9]{1,5}))?")


@dataclass(frozen=True)
class Rules:
    names: frozenset[str]
    """Names that a Host header may give, in small letters."""
    any_address: bool
    """Any IP address is allowed besides: it is no DNS name that could point here."""
    token: str


def rules_for(host: str, token: str) -> Rules:
    """The rules of a server bound to `host`: only this machine's own names where nothing else can reach it."""
    if is_loopback(host):
        return Rules(LOOPBACK | {host.lower()}, False, token)
    own = {name.lower().rstrip(".") for name in (host, socket.gethostname(), socket.getfqdn())}
    return Rules(LOOPBACK | own, True, token)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server bound to `host`."""
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def host_name(header: str) -> str:
    """The name in a Host header, in small letters and without port and brackets; "" for what is no Host."""
    match = _HOST.fullmatch(header.lower())
    if match is None or (match[3] and int(match[3]) > 65535):
        return ""
    name = match[1] or match[2].rstrip(".")
    return "" if match[1] and _address(name) is None else name


def refuse_host(rules: Rules, headers: list[str]) -> str:
    """`headers`: every Host header of the request."""
    if len(headers) != 1:
        return f"A request has one Host header, this one {len(headers)}."
    name = host_name(headers[0])
    if name in rules.names or (name and rules.any_address and _address(name) is not None):
        return ""
    if rules.any_address:
        return (f"This viewer does not go by the name {_shown(headers[0])}. Open it by the machine's address or name, "
                "as printed where it was started, or start it with --host and this name.")
    return (f"This viewer does not go by the name {_shown(headers[0])}. Open it as http://127.0.0.1:PORT on the "
            "machine where it runs or through an SSH tunnel, or start it with --host.")


def refuse_origin(host: str, origins: list[str], what: str = "WebSocket") -> str:
    """`host`: the Host header; `origins`: every Origin header. Only the page that this server gave out may connect, and
    send files. `what` it is that comes."""
    if len(origins) != 1:
        return f"A {what} comes from a page and says from which, in one Origin header; this one has {len(origins)}."
    if origins[0].lower() in (f"http://{host.lower()}", f"https://{host.lower()}"):
        return ""
    return f"Only the viewer's own page may connect, not {_shown(origins[0])}."


def tokens(query: str | None, headers: list[str], subprotocols: list[str]) -> list[str]:
    """Return the tokens that a request gives: in its address, in its TOKEN_HEADERs, and among its subprotocols."""
    offered = (name.removeprefix(_TOKEN_SUBPROTOCOL) for name in subprotocols if name.startswith(_TOKEN_SUBPROTOCOL))
    return [token for token in (query, *headers, *offered) if token]


def subprotocols(headers: Iterable[str]) -> list[str]:
    """Return the names in the Sec-WebSocket-Protocol headers of a request."""
    return [name.strip() for header in headers for name in header.split(",")]


def has_token(rules: Rules, given: Iterable[str]) -> bool:
    """Return whether one of `given` is the viewer's token. Takes the same time for each wrong one."""
    return any([hmac.compare_digest(token.encode("utf-8", "replace"), rules.token.encode()) for token in given])


def refuse_token(rules: Rules, given: list[str]) -> str:
    """`given`: the request's `tokens`."""
    if has_token(rules, given):
        return ""
    wrong = "This token is not this viewer's" if given else "This viewer needs a token"
    return (f"{wrong}. Open the address that was printed where it was started, with ?token=... at its end; "
            "splatview status prints it again.")


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _shown(value: str) -> str:
    return ascii(value[:80])
