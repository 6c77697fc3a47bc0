"""Requests and WebSocket frames as bytes, which tests change at will."""

from __future__ import annotations

import json
import struct

TEXT, BINARY, CLOSE, MORE = 1, 2, 8, 0
"""Kinds of frames."""


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
