"""A line between a page and its viewer: `python -m benchmarks.browser.relay JSON`.

JSON: {"port", "mbit_s", "round_trip_s"}. It listens on a port of this machine and passes
each connection on to "port". What goes down shares the rate of the line, and each byte
is half of the round trip on its direction, in either direction. Commands:

| do | what |
|---|---|
| port | the port to connect to |
| report | the bytes that were passed down and up so far |
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
import threading
from typing import Any

from benchmarks import harness

_CHUNK = 4096
_QUEUE_S = 0.05
"""Seconds of the line that wait in the router before it; more is not read."""
_KERNEL_BYTES = 32 * 1024
"""Bytes that the kernel takes for the line, on the viewer's side."""


class _Direction:
    """One direction of all connections."""

    def __init__(self, bytes_s: float, delay_s: float) -> None:
        """bytes_s: the rate; infinite for no limit."""
        self.passed_bytes = 0
        self._bytes_s = bytes_s
        self._delay_s = delay_s
        self._free_at = 0.0
        """The time at which all that was taken has left."""

    async def take(self, size: int) -> float:
        """Take bytes once there is room; return when they arrive."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._free_at - now > _QUEUE_S:
            await asyncio.sleep(self._free_at - now - _QUEUE_S)
        self.passed_bytes += size
        self._free_at = max(self._free_at, loop.time()) + size / self._bytes_s
        return self._free_at + self._delay_s


class RelayedLine:
    """Listens, and passes connections on."""

    def __init__(self, options: dict[str, Any]) -> None:
        delay_s = options["round_trip_s"] / 2
        self._to = options["port"]
        self._down = _Direction(options["mbit_s"] * 1e6 / 8, delay_s)
        self._up = _Direction(float("inf"), delay_s)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._tasks: set[asyncio.Task[None]] = set()
        threading.Thread(target=asyncio.run, args=(self._serve(),), daemon=True).start()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connect, sock=self._listener)
        async with server:
            await server.serve_forever()

    async def _connect(
        self, page_in: asyncio.StreamReader, page_out: asyncio.StreamWriter
    ) -> None:
        viewer = socket.socket()
        viewer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KERNEL_BYTES)
        viewer.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(viewer, ("127.0.0.1", self._to))
        viewer_in, viewer_out = await asyncio.open_connection(
            sock=viewer, limit=_KERNEL_BYTES
        )
        for out in (page_out, viewer_out):
            out.get_extra_info("socket").setsockopt(
                socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
            )
        await asyncio.gather(
            self._pass(viewer_in, page_out, self._down),
            self._pass(page_in, viewer_out, self._up),
        )

    async def _pass(
        self,
        source: asyncio.StreamReader,
        to: asyncio.StreamWriter,
        direction: _Direction,
    ) -> None:
        """Pass bytes on until one side ends."""
        arrivals: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        deliverer = asyncio.create_task(_deliver(arrivals, to))
        with contextlib.suppress(OSError):
            while data := await source.read(_CHUNK):
                arrivals.put_nowait((await direction.take(len(data)), data))
        arrivals.put_nowait((0.0, b""))
        await deliverer

    def do_port(self) -> dict[str, Any]:
        return {"port": self._listener.getsockname()[1]}

    def do_report(self) -> dict[str, Any]:
        return {"down": self._down.passed_bytes, "up": self._up.passed_bytes}


async def _deliver(
    arrivals: asyncio.Queue[tuple[float, bytes]], to: asyncio.StreamWriter
) -> None:
    """Write what arrives when it does, until nothing comes any more."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        while True:
            arrives_at, data = await arrivals.get()
            if not data:
                break
            await asyncio.sleep(max(arrives_at - loop.time(), 0))
            to.write(data)
            await to.drain()
    to.close()


if __name__ == "__main__":
    harness.serve_requests(RelayedLine(json.loads(sys.argv[1])))
