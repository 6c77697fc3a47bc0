"""Clients that mean no good, against our own server: `python -m benchmarks.browser.hostile KIND PORT TOKEN SECONDS`.

Each does one thing as fast as the server of this machine lets it, over plain sockets, and comes back when it is thrown
out. At the end it prints as JSON how often it came.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import struct
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT, BINARY, CLOSE, PING, PONG, MORE = 1, 2, 8, 9, 10, 0
_CONNECTIONS = 24


def head(port: int, target: str = "/", method: str = "GET", **headers: str) -> bytes:
    """A request's head, as the viewer's own page would send it."""
    lines = {"Host": f"127.0.0.1:{port}", "Origin": f"http://127.0.0.1:{port}", **headers}
    return f"{method} {target} HTTP/1.1\r\n".encode() + "".join(f"{k}: {v}\r\n" for k, v in lines.items()).encode() \
        + b"\r\n"


def upgrade(port: int, target: str = "/ws", **headers: str) -> bytes:
    """A request for a WebSocket."""
    return head(port, target, **{"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
                                 "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", **headers})


def frame(kind: int, data: bytes = b"", *, last: bool = True, packed: bool = False, length: int | None = None) -> bytes:
    """A WebSocket frame of a client, masked with zeros. `packed`: it says that it is compressed; `length`: it lies."""
    n = len(data) if length is None else length
    size = bytes([0x80 | n]) if n < 126 else struct.pack(">BH", 0xFE, n) if n < 65536 else struct.pack(">BQ", 0xFF, n)
    return bytes([kind | (last << 7) | (packed << 6)]) + size + bytes(4) + data


def hello(name: str = "bad", side: int = 64) -> bytes:
    """The frame with which a page begins."""
    return frame(TEXT, json.dumps({"t": "hello", "id": name, "width": side, "height": side}).encode())


class Client:
    """One connection that writes as much as goes, never waits, and reads only if asked to."""

    def __init__(self, port: int, first: bytes, again: bytes, *, reads: bool = True, every: float = 0.0) -> None:
        """`first` once, then `again` and again, each no sooner than `every` seconds after the one before."""
        self.port, self.first, self.again, self.reads, self.every = port, first, again, reads, every
        self.socket: socket.socket | None = None
        self.sent = self.came = 0
        self._left = memoryview(b"")
        self._next = 0.0

    def turn(self, now: float) -> None:
        if self.socket is None:
            self.socket = socket.socket()
            self.socket.setblocking(False)
            self.came += 1
            self.socket.connect_ex(("127.0.0.1", self.port))
            self._left, self._next = memoryview(self.first), now
        try:
            if self.reads:
                with contextlib.suppress(BlockingIOError):
                    while data := self.socket.recv(1 << 18):
                        del data
                    raise ConnectionResetError
            while now >= self._next or self._left:
                if not self._left:
                    self._left, self._next = memoryview(self.again), max(self._next + self.every, now - 1.0)
                n = self.socket.send(self._left[:1 << 16])
                self.sent += n
                self._left = self._left[n:]
                if self.every == 0 and not self._left:
                    break
        except BlockingIOError:
            pass
        except OSError:
            self.close()

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None


def _moves(count: int) -> bytes:
    return b"".join(frame(TEXT, b'{"t":"move","x":%d,"y":%d}' % (i % 60, i % 50)) for i in range(count))


def _clients(kind: str, port: int, token: str) -> list[Client]:
    known = f"/ws?token={token}"
    page = upgrade(port, known) + hello()
    get = head(port)
    luck = random.Random(5)
    made: dict[str, Callable[[], list[Client]]] = {
        "half-open requests, a byte at a time": lambda: [
            Client(port, b"GET / HTTP/1.1\r\nX: ", b"a", every=0.2) for _ in range(400)],
        "connections that say nothing": lambda: [Client(port, b"", b"", every=1e9) for _ in range(400)],
        "requests": lambda: [Client(port, get, get) for _ in range(_CONNECTIONS)],
        "pipelined requests, never read": lambda: [
            Client(port, get, get * 500, reads=False) for _ in range(_CONNECTIONS)],
        "endless heads": lambda: [Client(port, b"GET / HTTP/1.1\r\n", b"X-%d: y\r\n" % i * 400)
                                  for i in range(_CONNECTIONS)],
        "endless bodies": lambda: [
            Client(port, head(port, f"/upload?name=a&token={token}", "POST", **{"Content-Length": str(10**12)}),
                   bytes(1 << 16))
            for _ in range(_CONNECTIONS)],
        "endless chunks": lambda: [
            Client(port, head(port, "/", "GET", **{"Transfer-Encoding": "chunked"}), b"1\r\nx\r\n" * 5000)
            for _ in range(_CONNECTIONS)],
        "noise": lambda: [Client(port, b"", luck.randbytes(4000)) for _ in range(_CONNECTIONS)],
        "events, 10,000 a second": lambda: [Client(port, page, _moves(100), every=0.01)],
        "events, as fast as it goes": lambda: [Client(port, page, _moves(2000)) for _ in range(8)],
        "pings": lambda: [Client(port, page, frame(PING) * 4000) for _ in range(8)],
        "empty fragments": lambda: [Client(port, page + frame(TEXT, last=False), frame(MORE, last=False) * 8000)
                                    for _ in range(8)],
        "pages that never read": lambda: [
            Client(port, page, frame(PING, b"x" * 100) * 10 + _moves(10), reads=False, every=0.02) for _ in range(20)],
        "pages that come and go": lambda: [Client(port, page, frame(CLOSE), every=0.05) for _ in range(_CONNECTIONS)],
        "sockets without a hello": lambda: [Client(port, upgrade(port, known), b"", every=1e9) for _ in range(300)],
        "compressed bombs": lambda: [Client(
            port, upgrade(port, known, **{"Sec-WebSocket-Extensions": "permessage-deflate"}) + hello(),
            frame(TEXT, bytes.fromhex("ecc1010100000080") + bytes(60_000), packed=True)) for _ in range(8)],
    }
    if kind not in made:
        raise SystemExit(f"{kind!r} is none; legal are {', '.join(repr(k) for k in made)}")
    return made[kind]()


KINDS = ("half-open requests, a byte at a time", "connections that say nothing", "requests",
         "pipelined requests, never read", "endless heads", "endless bodies", "endless chunks", "noise",
         "events, 10,000 a second", "events, as fast as it goes", "pings", "empty fragments", "pages that never read",
         "pages that come and go", "sockets without a hello", "compressed bombs")


def attack(kind: str, port: int, token: str, seconds: float) -> dict[str, int]:
    """Do it for so long. How often a connection was opened, and how many bytes went out."""
    clients = _clients(kind, port, token)
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        for client in clients:
            client.turn(now)
        time.sleep(0.002)
    for client in clients:
        client.close()
    return {"connections": sum(c.came for c in clients), "bytes": sum(c.sent for c in clients)}


if __name__ == "__main__":
    os.nice(5)
    print("begun", flush=True)
    print(json.dumps(attack(sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4]))), flush=True)
