"""Limit what FFmpeg opens for a network source to the host that was named.

A server can answer with a redirect or a playlist that leads anywhere: to the router, to
a cloud's metadata, to a service on this machine. FFmpeg has no option for that, but it
takes a proxy from the environment, for HTTP, for HTTPS, and for each redirect and
segment. So the named host is reached directly (`no_proxy`), and a proxy in this
process, which reaches nothing, gets all other requests, refuses them and remembers the
host.

RTSP has redirects and no proxies: the server is asked before FFmpeg is, and the peers
of this process are looked at when FFmpeg has opened the source.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import socket
import socketserver
import ssl
import sys
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from typing import Any

_HTTP = "http,https,tls,tcp,httpproxy,crypto,data"
_RAW = "tcp,udp,rtp,srtp,srt,crypto,data"
_WHITELISTS = {
    "http": _HTTP,
    "https": _HTTP,
    "tcp": _RAW,
    "udp": _RAW,
    "rtp": _RAW,
    "srt": _RAW,
}
"""FFmpeg's protocols for what comes by each: no playlist leads to files, or from HTTP
to UDP and RTP."""
_REDIRECTED = ("rtsp", "rtsps")
_OPTIONS = "OPENCV_FFMPEG_CAPTURE_OPTIONS"
"""Environment variable with options of OpenCV's FFmpeg: `name;value|name;value`."""
_MAX_HEAD = 16 * 1024
"""Bytes of the beginning of a request."""
_TIMEOUT_S = 5.0
"""Time for a request to arrive, or for the user's own proxy to take a connection."""
_MAX_CONNECTIONS = 16
_MAX_HOST = 80
_MAX_MOVES = 4
"""Redirects of a server to itself."""
_TARGET = re.compile(rb"[A-Z]{3,10} (?:[a-z]+://)?(?:[^/@ ]*@)?([^/? ]+)")
"""The first line of a request to a proxy: CONNECT host:port, or GET
http://host:port/path."""


def can_limit(source: str) -> bool:
    """Return whether `OnlyHost` is made for an address."""
    return _scheme_of(source) in _WHITELISTS


class OnlyHost:
    """Has FFmpeg in this process reach the host of an address alone, until `close`.

    Changes the environment, which FFmpeg reads at each connection: one at a time.
    """

    def __init__(self, source: str) -> None:
        """Change the environment for a source.

        Args:
            source: an address of a scheme for which `can_limit` is true.
        """
        host = host_of(source)
        self.refused = ""
        """The host that the server led to last; "" for none."""
        self._hosts = {host, host.lower()}
        self._upstream = _user_proxy(host)
        self._server = _Server(self)
        self._saved: dict[str, str | None] = {}
        """Values of the environment's variables to restore."""
        self._set_proxies()
        options = os.environ.get(_OPTIONS, "")
        if "protocol_whitelist" not in options:
            whitelist = f"protocol_whitelist;{_WHITELISTS[_scheme_of(source)]}"
            self._set(_OPTIONS, f"{options}|{whitelist}" if options else whitelist)

    def _set_proxies(self) -> None:
        """Name this process as proxy, with the login of the user's own."""
        authority = f"127.0.0.1:{self._server.server_address[1]}"
        direct_hosts = ",".join(self._hosts)
        if self._upstream is not None:
            direct_hosts = ""
            user_proxy = urlsplit(os.environ.get("http_proxy", "")).netloc
            login = user_proxy.rpartition("@")[0]
            if login:
                authority = f"{login}@{authority}"
        self._set("http_proxy", f"http://{authority}")
        self._set("no_proxy", direct_hosts)

    def _set(self, name: str, value: str) -> None:
        """Set a variable of the environment until `close`."""
        self._saved[name] = os.environ.get(name)
        os.environ[name] = value

    def close(self) -> None:
        """Restore the environment and stop listening. Idempotent."""
        for name, value in self._saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._saved.clear()
        self._server.end()

    def answer(self, connection: socket.socket) -> None:
        """Refuse a request, or pass it on to the user's own proxy.

        The named host may be reached by that proxy alone.
        """
        head = _read_head(connection, _TIMEOUT_S)
        match = _TARGET.match(head)
        host = ""
        if match:
            host = _without_port(match[1].decode("latin1"))
        if self._upstream is None or host not in self._hosts:
            self.refused = host[:_MAX_HOST] or self.refused
            connection.sendall(
                b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
            return
        with socket.create_connection(self._upstream, _TIMEOUT_S) as proxy:
            proxy.sendall(head)
            for end in (connection, proxy):
                end.settimeout(None)
            pump = threading.Thread(target=_pump, args=(connection, proxy), daemon=True)
            pump.start()
            _pump(proxy, connection)


class _Server(socketserver.ThreadingTCPServer):
    """Listens on this machine for requests to a proxy."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, owner: OnlyHost) -> None:
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self._owner = owner
        self._slots = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        self._thread = threading.Thread(
            target=self.serve_forever, args=(0.05,), name="only host", daemon=True
        )
        self._thread.start()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, unless there are too many."""
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def finish_request(self, request: Any, client_address: Any) -> None:
        try:
            self._owner.answer(request)
        except OSError:
            # FFmpeg goes away at any time.
            pass
        finally:
            self._slots.release()

    def end(self) -> None:
        """Stop listening. Idempotent."""
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        self.server_close()


def _read_head(connection: socket.socket, timeout_s: float) -> bytes:
    """Read a request or an answer up to its empty line, within a time for all of it.

    Raises:
        OSError: the connection fails.
        ConnectionError: the request is too long, or the peer ends it.
    """
    connection.settimeout(timeout_s)
    # A peer that drips keeps each `recv` within its own time.
    timer = threading.Timer(timeout_s, _end, (connection,))
    timer.daemon = True
    timer.start()
    head = b""
    try:
        while b"\r\n\r\n" not in head:
            chunk = connection.recv(4096)
            if not chunk or len(head) > _MAX_HEAD:
                raise ConnectionError("no request")
            head += chunk
    finally:
        timer.cancel()
    return head


def _end(connection: socket.socket) -> None:
    """End a connection, so that a thread blocked in reading it continues."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Pass bytes on until one side ends; then end both."""
    with contextlib.suppress(OSError):
        while chunk := source.recv(65536):
            target.sendall(chunk)
    _end(source)
    _end(target)


def rtsp_leads_to(source: str, timeout_s: float) -> str:
    """Ask an RTSP server for a source; return the other host to which it redirects.

    "" for none.

    FFmpeg follows without asking. A server that does not answer is left to FFmpeg.
    """
    if _scheme_of(source) not in _REDIRECTED:
        return ""
    named = host_of(source)
    for _ in range(_MAX_MOVES):
        try:
            location = _rtsp_location(source, timeout_s)
        except (OSError, ValueError):
            return ""
        if not location:
            return ""
        host = host_of(location)
        if host.lower() != named.lower():
            return host[:_MAX_HOST]
        source = location
    return ""


def _rtsp_location(source: str, timeout_s: float) -> str:
    """Return the Location in a server's answer; "" for none.

    Raises OSError, ValueError.
    """
    url = re.sub(r"^([^/]*//)[^/?#]*@", r"\1", source)
    is_secure = _scheme_of(source) == "rtsps"
    default_port = 322 if is_secure else 554
    host = host_of(source)
    port = urlsplit(url).port or default_port
    with contextlib.ExitStack() as connections:
        server = connections.enter_context(
            socket.create_connection((host, port), timeout_s)
        )
        if is_secure:
            # Certificates are not checked, as FFmpeg does not by default.
            context = ssl._create_unverified_context()
            server = connections.enter_context(
                context.wrap_socket(server, server_hostname=host)
            )
        for sequence, method in enumerate(("OPTIONS", "DESCRIBE"), 1):
            server.sendall(
                f"{method} {url} RTSP/1.0\r\nCSeq: {sequence}\r\n"
                "Accept: application/sdp\r\nUser-Agent: Lavf\r\n\r\n".encode()
            )
            answer = _read_head(server, timeout_s)
            head = answer.decode("latin1").partition("\r\n\r\n")[0]
            location = _location_in(head)
            if location:
                return location
    return ""


def _location_in(head: str) -> str:
    """Return the Location in an answer that redirects; "" for none."""
    status, *lines = head.split("\r\n")
    if not re.match(r"RTSP/1\.\d 3\d\d", status):
        return ""
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip().lower() == "location":
            return value.strip()
    return ""


class Connections:
    """The TCP connections that this process opens after this object was made."""

    def __init__(self) -> None:
        self._old_inodes = set(_peers())

    def foreign(self, source: str) -> str:
        """Return the address of a peer other than the host of `source`; "" for none."""
        try:
            answers = socket.getaddrinfo(host_of(source), None)
        except OSError:
            return ""
        named = {_normalized(str(answer[4][0])) for answer in answers}
        for inode, peer in _peers().items():
            if inode not in self._old_inodes and peer not in named:
                return peer
        return ""


def _peers() -> dict[str, str]:
    """Return the remote address of each connected TCP socket of this process.

    By the socket's inode.
    """
    own_sockets = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            own_sockets.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    peers = {}
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/self/net/{name}") as table:
            for line in table.readlines()[1:]:
                fields = line.split()
                is_open = int(fields[2].partition(":")[2], 16) != 0
                if is_open and f"socket:[{fields[9]}]" in own_sockets:
                    peers[fields[9]] = _address(fields[2].partition(":")[0])
    return peers


def _address(digits: str) -> str:
    """Return an address of the kernel's tables.

    Args:
        digits: hexadecimal, words of 32 bits in the machine's order.
    """
    raw = bytes.fromhex(digits)
    if sys.byteorder == "little":
        raw = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
    return _normalized(str(ipaddress.ip_address(raw)))


def _normalized(address: str) -> str:
    """Return an address without its zone, and an IPv4 address within IPv6 as IPv4."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return str(mapped or ip)


def _scheme_of(source: str) -> str:
    """Return the scheme of an address, in small letters."""
    return source.partition("://")[0].lower()


def host_of(source: str) -> str:
    """Return the host in an address, as it is written there.

    As FFmpeg reads it: any sign but these three may be in a password, also "[".
    """
    authority = re.split(r"[/?#]", source.partition("://")[2], maxsplit=1)[0]
    return _without_port(authority.rpartition("@")[2])


def _without_port(host: str) -> str:
    """Return the host of `host:port` or `[host]:port`."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _user_proxy(host: str) -> tuple[str, int] | None:
    """Return host and port of the proxy by which the user reaches a host.

    None for none.
    """
    address = os.environ.get("http_proxy", "")
    exempt = re.split(r"[ ,]+", os.environ.get("no_proxy", ""))
    is_exempt = any(_matches(pattern, host) for pattern in exempt)
    if not address.startswith("http://") or is_exempt:
        return None
    proxy = urlsplit(address)
    try:
        port = proxy.port or 80
    except ValueError:
        # The port is no number.
        return None
    if not proxy.hostname:
        return None
    return proxy.hostname, port


def _matches(pattern: str, host: str) -> bool:
    """Return whether an entry of `no_proxy` stands for a host, as FFmpeg reads it."""
    if pattern == "*":
        return True
    name = pattern.removeprefix("*").removeprefix(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))
