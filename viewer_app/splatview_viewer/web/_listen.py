"""A listening socket for the web server, at the port asked for or one nearby."""

from __future__ import annotations

import errno
import socket

from splatview_viewer.core.errors import ViewerError

TRIED = 20
"""Ports tried after one that is taken."""
_BUFFER = 384 * 1024
_UNSENT = 128 * 1024


def listen(host: str, port: int) -> socket.socket:
    """A TCP socket that listens at `host`, and at `port` or the first free one of the TRIED that follow.

    Raises ViewerError naming what is wrong with host or port.
    """
    if not 0 <= port <= 65535:
        raise ViewerError(f"port: {port} is none; it must be 1024 to 65535, or 0 for any that is free")
    last = port if port == 0 else min(port + TRIED, 65535)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise ViewerError(_no_host(host)) from None
    # IPv4 where there is a choice: a tunnel leads to 127.0.0.1
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    for number in range(port, last + 1):
        try:
            return _bound(family, (address[0], number, *address[2:]))
        except OSError as e:
            if e.errno == errno.EACCES:
                raise ViewerError(f"port: {number} is kept for the system's own services; choose 1024 to 65535, "
                                  "or 0 for any that is free") from None
            if e.errno != errno.EADDRINUSE:
                raise ViewerError(_no_host(host) if e.errno == errno.EADDRNOTAVAIL
                                  else f"host: cannot listen at {host!r}: {e}") from None
    raise ViewerError(f"port: {port} to {last} are all taken; choose another, or 0 for any that is free")


def _bound(family: int, address: tuple) -> socket.socket:
    made = socket.create_server(address, family=family, backlog=128, dualstack_ipv6=address[0] == "::")
    # Connections inherit these. A picture that waits in the kernel is old when it arrives, so little may: on a slow
    # link it waits in the viewer, which then makes fewer.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)
    return made


def _no_host(host: str) -> str:
    return (f"host: {host!r} is no address of this machine; choose 127.0.0.1 for this machine only, 0.0.0.0 for all "
            "of its addresses, or one of them")
