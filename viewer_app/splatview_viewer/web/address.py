"""The addresses of the web server, and its rules on Host, Origin and token.

A page on the internet can make a browser send requests to 127.0.0.1, under its own name
with a DNS entry that points here (DNS rebinding) or as a WebSocket from a foreign
origin. The Host header tells the first, Origin the second. Other users of this machine
reach the loopback address as well, so everything but the files of the page needs the
token.
"""

from __future__ import annotations

import errno
import hmac
import ipaddress
import re
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from splatview_ipc.control.registry import ssh_forward_command
from splatview_viewer.core.errors import ViewerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aiohttp import web

    from splatview_viewer.web.server import WebServer

PORTS_TRIED = 20
"""Ports tried after one that is taken."""
_SEND_BUFFER_BYTES = 384 * 1024
"""Bytes in the kernel for each connection."""
_MAX_UNSENT_BYTES = 128 * 1024
"""Those of them that were not sent yet."""
# "::" takes IPv4 as well.
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "127.0.0.1", "": "127.0.0.1"}
"""Hosts that stand for all addresses, and one of them."""
_PROBE_ADDRESS = ("192.0.2.1", 9)
"""An address for documentation, which nothing is sent to."""

TOKEN_HEADER = "X-Splatview-Token"
"""Holds the token of a request that a page's script makes."""
SUBPROTOCOL = "splatview"
"""The WebSocket subprotocol.

A page offers "token." and the token as a second one, because a script cannot set other
headers of a WebSocket.
"""
_TOKEN_SUBPROTOCOL = "token."
_LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))
"""Names of this machine for itself. Under any port: an SSH tunnel may begin at another.
"""
_HOST = re.compile(r"(?:\[([0-9a-f:.]{2,45})\]|([a-z0-9_.-]{1,253}))(?::[0-9]{1,5})?")
_SITE = re.compile(r"https?://(.+)")
"""An Origin, with its host and port."""


def open_listener(host: str, port: int) -> socket.socket:
    """Open a TCP socket that listens at `host` and `port`.

    Where the port is taken, it is the first free one of the PORTS_TRIED that follow.

    Raises:
        ViewerError: nothing can listen there; it names host and port.
    """
    if not 0 <= port <= 65535:
        raise ViewerError(
            f"invalid port {port}: expected 1024 to 65535, or 0 for any that is free"
        )
    if port == 0:
        last = port
    else:
        last = min(port + PORTS_TRIED, 65535)
    try:
        listener = _first_free(host, range(port, last + 1))
    except (OSError, UnicodeError) as e:
        raise ViewerError(
            f"host: cannot listen at {host!r}, port {port}: {e}; choose 127.0.0.1 for "
            "this machine only, 0.0.0.0 for all of its addresses, or one of them, and "
            "a port from 1024 on"
        ) from None
    if listener is None:
        raise ViewerError(
            f"port: {port} to {last} are all taken; choose another, or 0 for any "
            "that is free"
        )
    # Connections inherit these. A picture that waits in the kernel is old when it
    # arrives, so little may: on a slow link it waits in the viewer, which then makes
    # fewer.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MAX_UNSENT_BYTES)
    return listener


def _first_free(host: str, ports: Iterable[int]) -> socket.socket | None:
    """Return a socket that listens at the first free port; None if all are taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in ports:
        try:
            return socket.create_server(
                (host, port), family=family, backlog=128, dualstack_ipv6=host == "::"
            )
        except OSError as e:
            if e.errno != errno.EADDRINUSE:
                raise
    return None


def local_url(server: WebServer) -> str:
    """Return the page's address on the machine of the viewer, with the token."""
    return _url(_reachable_host(server), server)


def startup_lines(server: WebServer, environ: Mapping[str, str]) -> list[str]:
    """Return the lines that tell a user where the page is.

    `environ` is the environment, by which an SSH session is recognised.
    """
    lines = []
    if server.moved_from is not None:
        lines.append(
            f"splatview: port {server.moved_from} is taken; using {server.port}"
        )
    lines.append(f"splatview: open {local_url(server)} in a browser")
    if server.host in _ANY_ADDRESS:
        names = [name for name in _names_of_this_machine() if not is_loopback(name)]
        urls = [_url(name, server) for name in names]
        lines += [f"splatview: or, from another machine, {url}" for url in urls]
    for name in server.allowed:
        lines.append(
            f"splatview: or, through the reverse proxy {name}, its address with "
            f"#token={server.token} at the end"
        )
    tunnel = ssh_forward_command(
        _bracketed(_reachable_host(server)), server.port, environ
    )
    if tunnel:
        lines += [
            "splatview: this is an SSH session; on your own machine, type",
            f"    {tunnel}",
            f"  and open {_url('127.0.0.1', server)} there",
        ]
    return lines


def _names_of_this_machine() -> list[str]:
    """Return this machine's name, and its address in the network if it is in one."""
    names = [socket.gethostname()]
    # Without a network there is no way out.
    with (
        suppress(OSError),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe,
    ):
        # This sends nothing: it only chooses the way out.
        probe.connect(_PROBE_ADDRESS)
        address, _ = probe.getsockname()
        names.append(address)
    return names


def _reachable_host(server: WebServer) -> str:
    """Return a host by which the server's machine reaches it."""
    return _ANY_ADDRESS.get(server.host, server.host)


def _url(host: str, server: WebServer) -> str:
    return f"http://{_bracketed(host)}:{server.port}/?token={server.token}"


def _bracketed(host: str) -> str:
    if ":" in host:
        return f"[{host}]"
    return host


# -- which requests are answered -------------------------------------------------------


class Guard:
    """The rules by which one server answers requests."""

    def __init__(self, host: str, token: str, allowed: Iterable[str] = ()) -> None:
        """Compile the rules.

        Args:
            host: what the server is bound to. Where nothing else can reach it, it
                answers only to this machine's own names, otherwise to any IP address
                besides: that is no DNS name that could point here.
            token: the server's.
            allowed: further names, as `allowed_host` returns them: those of reverse
                proxies. Each is legal in Host, and in Origin under any port.
        """
        self._any_address = not is_loopback(host)
        names = [host]
        if self._any_address:
            names += [socket.gethostname(), socket.getfqdn()]
        self._names = _LOOPBACK | {name.lower().rstrip(".") for name in names if name}
        self._allowed = frozenset(allowed)
        self._token = token.encode()

    def refuse(self, request: web.Request, *, public: bool) -> str:
        """Return why a request is not answered; "" for one that is.

        Args:
            request: any.
            public: True for a file of the page. It holds nothing of the viewer, so it
                needs no token and comes whatever the Origin: without its files a page
                behind a proxy stays dark and cannot say what is wrong.
        """
        host = ", ".join(request.headers.getall("Host", [])).lower()
        name = _host_name(host)
        if not self._is_own_name(name):
            return (
                f"This viewer does not go by the name {_quoted(host)}. Open the address "
                "that was printed where it was started, or, if this is the name of a "
                f"reverse proxy, start it with {_option(name)}."
            )
        if public:
            return ""
        origin = ", ".join(request.headers.getall("Origin", [])).lower()
        if "Origin" in request.headers and not self._is_own_page(origin, host):
            return _refuse_origin(origin)
        if self.has_token(request):
            return ""
        if _tokens_of(request):
            reason = "This token is not this viewer's"
        else:
            reason = "This viewer needs a token"
        return (
            f"{reason}. Open the address that was printed where it was started, with "
            "?token=... at its end; splatview status prints it again."
        )

    def _is_own_name(self, name: str) -> bool:
        """Return True if the server goes by a name."""
        if name in self._names or name in self._allowed:
            return True
        return self._any_address and _address(name) is not None

    def _is_own_page(self, origin: str, host: str) -> bool:
        """Return True if an Origin is that of the server's own page.

        A proxy may put the server's own name into Host, so an allowed name does not
        have to be there too.
        """
        if origin in (f"http://{host}", f"https://{host}"):
            return True
        site = _SITE.fullmatch(origin)
        return site is not None and _host_name(site[1]) in self._allowed

    def has_token(self, request: web.Request) -> bool:
        """Return True if a request gives the viewer's token.

        Takes the same time for each wrong one.
        """
        # All are compared, so that the time does not tell which one is right.
        is_right = False
        for token in _tokens_of(request):
            token_bytes = token.encode("utf-8", "replace")
            is_right |= hmac.compare_digest(token_bytes, self._token)
        return is_right


def subprotocols(request: web.Request) -> list[str]:
    """Return the subprotocols that a WebSocket's request offers."""
    header = request.headers.get("Sec-WebSocket-Protocol", "")
    names = [name.strip() for name in header.split(",")]
    return [name for name in names if name]


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach a server bound to `host`."""
    address = _address(host)
    if address is None:
        return host.lower() == "localhost"
    return address.is_loopback


def _tokens_of(request: web.Request) -> list[str]:
    """Return the tokens in a request's address, headers and subprotocols."""
    tokens = [request.query.get("token"), request.headers.get(TOKEN_HEADER)]
    names = [n for n in subprotocols(request) if n.startswith(_TOKEN_SUBPROTOCOL)]
    tokens += [name.removeprefix(_TOKEN_SUBPROTOCOL) for name in names]
    return [token for token in tokens if token]


def allowed_host(text: str) -> str:
    """Return a name of `--allow-host` as it stands in Host and Origin.

    Raises:
        ViewerError: the text is no name or address of a host.
    """
    legal = (
        "expected the name or address of a host, without scheme, port and path, for "
        "example viewer.example.org"
    )
    try:
        name = text.strip().encode("idna").decode().lower().rstrip(".")
    except UnicodeError:
        raise ViewerError(f"invalid --allow-host {_quoted(text)}: {legal}") from None
    bare = name.removeprefix("[").removesuffix("]")
    address = _address(bare)
    if address is not None:
        # Browsers write addresses in this form.
        return str(address)
    if ":" in name or not _host_name(name):
        raise ViewerError(f"invalid --allow-host {_quoted(text)}: {legal}")
    return bare


def _host_name(host: str) -> str:
    """Return the name in a Host header in small letters, without its port.

    It is empty for a malformed header.
    """
    match = _HOST.fullmatch(host)
    if match is None:
        return ""
    return match[1] or match[2].rstrip(".")


def _option(name: str) -> str:
    """Return the option that allows a name."""
    return f"--allow-host {name[:80] or 'NAME'}"


def _refuse_origin(origin: str) -> str:
    """Return the answer to a request of a foreign page."""
    site = _SITE.fullmatch(origin)
    if site:
        name = _host_name(site[1])
    else:
        name = ""
    reason = f"Only the viewer's own page may connect, not {_quoted(origin)}."
    if not name:
        return reason
    return (
        f"{reason} If this page comes through a reverse proxy, start the viewer with "
        f"{_option(name)}."
    )


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _quoted(value: str) -> str:
    return ascii(value[:80])
