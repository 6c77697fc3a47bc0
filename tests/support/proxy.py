"""A reverse proxy between a browser and a viewer, as people first write it."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from support.wait import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

PATH = "/sites/view/"


@contextmanager
def reverse_proxy(port: int, *, websockets: bool = True) -> Iterator[str]:
    """Pass requests below PATH on to 127.0.0.1:`port`; yield the address of PATH.

    Like nginx without `proxy_set_header Host`, it puts the viewer's own name into Host.
    Without `websockets` it does not pass Upgrade and Connection on.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.close_connection = True
            if not self.path.startswith(PATH):
                self.send_error(404)
                return
            upgrades = websockets and "Upgrade" in self.headers
            headers = {
                **self.headers,
                "Host": f"127.0.0.1:{port}",
                "Connection": "Upgrade" if upgrades else "close",
            }
            if not upgrades:
                headers.pop("Upgrade", None)
            lines = [
                f"{self.command} /{self.path.removeprefix(PATH)} HTTP/1.1",
                *(f"{name}: {value}" for name, value in headers.items()),
                "\r\n",
            ]
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                viewer = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
            except OSError:
                self.send_error(502)
                return
            with viewer:
                viewer.sendall("\r\n".join(lines).encode() + body)
                if upgrades:
                    pump = threading.Thread(
                        target=_pump, args=(self.connection, viewer), daemon=True
                    )
                    pump.start()
                _pump(viewer, self.connection)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}{PATH}"
        server.shutdown()


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Pass bytes on until one side ends; then end both."""
    try:
        while chunk := source.recv(65536):
            target.sendall(chunk)
    except OSError:
        pass
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue
