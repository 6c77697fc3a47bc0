"""Addresses of the web server: the socket on which it listens, and the lines that it prints."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

from splatview_ipc.control.registry import ssh_line
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.web.guard import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from splatview_viewer.web.server import WebServer

PORTS_TRIED = 20
"""Ports tried after one that is taken."""
_BUFFER, _UNSENT = 384 * 1024, 128 * 1024
"""Bytes in the kernel for each connection, and those of them that were not sent yet."""
_ANY = {"0.0.0.0": "127.0.0.1", "::": "127.0.0.1", "": "127.0.0.1"}  # "::" takes IPv4 as well


def listen(host: str, port: int) -> socket.socket:
    """A TCP socket that listens at `host`, and at `port` or the first free one of the PORTS_TRIED that follow.

    Raises ViewerError naming host and port.
    """
    if not 0 <= port <= 65535:
        raise ViewerError(f"port: {port} is none; it must be 1024 to 65535, or 0 for any that is free")
    last = port if port == 0 else min(port + PORTS_TRIED, 65535)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # IPv4 where there is a choice: a tunnel leads to 127.0.0.1
        family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        for number in range(port, last + 1):
            try:
                made = socket.create_server((address[0], number, *address[2:]), family=family, backlog=128,
                                            dualstack_ipv6=address[0] == "::")
                break
            except OSError as e:
                if e.errno != errno.EADDRINUSE:
                    raise
        else:
            raise ViewerError(f"port: {port} to {last} are all taken; choose another, or 0 for any that is free")
    except (OSError, UnicodeError) as e:
        raise ViewerError(f"host: cannot listen at {host!r}, port {port}: {e}; choose 127.0.0.1 for this machine only, "
                          "0.0.0.0 for all of its addresses, or one of them, and a port from 1024 on") from None
    # Connections inherit these. A picture that waits in the kernel is old when it arrives, so little may: on a slow
    # link it waits in the viewer, which then makes fewer.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)
    return made


def local_url(server: WebServer) -> str:
    """The page's address on the machine of the viewer, with the token."""
    return _url(_ANY.get(server.host, server.host), server)


def lines(server: WebServer, environ: Mapping[str, str]) -> list[str]:
    """Return the lines to print. `environ`: the environment, by which an SSH session is recognised."""
    said = []
    if server.moved_from is not None:
        said.append(f"splatview: port {server.moved_from} is taken; using {server.port}")
    said.append(f"splatview: open {local_url(server)} in a browser")
    if server.host in _ANY:
        names = [socket.gethostname()]
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect(("192.0.2.1", 9))  # sends nothing: it only chooses the way out
                names.append(probe.getsockname()[0])
        except OSError:  # no network
            pass
        said.extend(f"splatview: or, from another machine, {_url(name, server)}" for name in names
                    if not is_loopback(name))
    tunnel = ssh_line(_bracketed(_ANY.get(server.host, server.host)), server.port, environ)
    if tunnel:
        said += ["splatview: this is an SSH session; on your own machine, type", f"    {tunnel}",
                 f"  and open {_url('127.0.0.1', server)} there"]
    return said


def _url(host: str, server: WebServer) -> str:
    return f"http://{_bracketed(host)}:{server.port}/?token={server.token}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
