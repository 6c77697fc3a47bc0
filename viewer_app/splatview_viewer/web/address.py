"""The lines that the viewer prints when it serves a browser: its address, also from the other end of an SSH session."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING
from urllib.parse import quote

from splatview_ipc.control.registry import ssh_line
from splatview_viewer.web import guard

if TYPE_CHECKING:
    from collections.abc import Mapping

    from splatview_viewer.web.server import WebServer

_ANY = {"0.0.0.0": "127.0.0.1", "::": "127.0.0.1", "": "127.0.0.1"}  # "::" takes IPv4 as well


def local_url(server: WebServer) -> str:
    """The page's address on the machine of the viewer, with the token."""
    return _url(_ANY.get(server.host, server.host), server)


def lines(server: WebServer, environ: Mapping[str, str]) -> list[str]:
    """Return the lines to print. `environ`: the environment, by which an SSH session is recognised."""
    said = []
    if server.moved_from is not None:
        said.append(f"splatview: port {server.moved_from} is taken; using {server.port}")
    said.append(f"splatview: open {local_url(server)} in a browser")
    if not guard.is_loopback(server.host):
        others = _names(server.host) if server.host in _ANY else []
        said.extend(f"splatview: or, from another machine, {_url(name, server)}" for name in others)
    tunnel = ssh_line(_bracketed(_ANY.get(server.host, server.host)), server.port, environ)
    if tunnel:
        here = f"http://127.0.0.1:{server.port}{_query(server)}"
        said += ["splatview: this is an SSH session; on your own machine, type", f"    {tunnel}",
                 f"  and open {here} there"]
    return said


def _names(host: str) -> list[str]:
    """Names and addresses of this machine that another one may know: its name and what it sends from."""
    names = [socket.gethostname()]
    ways = [(socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")]  # reserved for documentation
    for family, far in ways if host == "::" else ways[:1]:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((far, 9))  # sends nothing: it only chooses the way out
                address = probe.getsockname()[0]
        except OSError:
            continue
        if not guard.is_loopback(address):
            names.append(address)
    return names


def _url(host: str, server: WebServer) -> str:
    return f"http://{_bracketed(host)}:{server.port}{_query(server)}"


def _query(server: WebServer) -> str:
    return f"/?token={quote(server.token, safe='')}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
