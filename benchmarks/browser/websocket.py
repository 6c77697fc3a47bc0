"""A WebSocket as a client has it, by the standard library alone.

Nothing lies between it and the socket.
"""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import struct
import threading

_TEXT = 1
_BINARY = 2
_CLOSE = 8
_PING = 9
_PONG = 10


class Closed(Exception):  # noqa: N818  (how a connection ends is no error by itself)
    """The other side closed the connection; says why."""

    def __init__(self, reason: str, code: int = 1006) -> None:
        super().__init__(reason)
        self.code = code


class WebSocket:
    """Blocking; one thread receives, any thread sends. No compression."""

    def __init__(self, port: int, path: str, host: str = "127.0.0.1") -> None:
        self._socket = socket.create_connection((host, port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lock = threading.Lock()
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {host}:{port}",
            f"Origin: http://{host}:{port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
        ]
        self._socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        self._buffer = bytearray()
        while b"\r\n\r\n" not in self._buffer:
            chunk = self._socket.recv(4096)
            if not chunk:
                self._socket.close()
                raise ConnectionError(f"no WebSocket: {bytes(self._buffer[:200])!r}")
            self._buffer += chunk
        head, _, body = bytes(self._buffer).partition(b"\r\n\r\n")
        if b" 101 " not in head.split(b"\r\n")[0]:
            self._socket.close()
            raise ConnectionError(
                f"no WebSocket: {head.splitlines()[0].decode()} {body[:200]!r}"
            )
        self._buffer = bytearray(body)

    def send(self, payload: bytes, *, binary: bool = False) -> None:
        mask = os.urandom(4)
        head = bytearray([0x80 | (_BINARY if binary else _TEXT)])
        if len(payload) < 126:
            head.append(0x80 | len(payload))
        else:
            head += struct.pack(">BH", 0x80 | 126, len(payload))
        masked = bytes(b ^ mask[i & 3] for i, b in enumerate(payload))
        with self._lock:
            self._socket.sendall(bytes(head) + mask + masked)

    def receive(self) -> tuple[bool, bytes]:
        """Return whether the next message is binary, and the message.

        Its parts are put together. Raises Closed, TimeoutError after 30 s.
        """
        message = b""
        kind = 0
        while True:
            first, second = self._exactly(2)
            length = second & 0x7F
            if length == 126:
                length = struct.unpack(">H", self._exactly(2))[0]
            elif length == 127:
                length = struct.unpack(">Q", self._exactly(8))[0]
            if length > 256 << 20:
                raise Closed(f"a message of {length} bytes")
            payload = bytes(self._exactly(length))
            opcode = first & 0x0F
            if opcode == _PING:
                with self._lock:
                    mask = os.urandom(4)
                    self._socket.sendall(
                        bytes([0x80 | _PONG, 0x80 | len(payload)])
                        + mask
                        + bytes(b ^ mask[i & 3] for i, b in enumerate(payload))
                    )
                continue
            if opcode == _CLOSE:
                raise Closed(
                    payload[2:].decode(errors="replace"), int.from_bytes(payload[:2])
                )
            if opcode == _PONG:
                continue
            kind = opcode or kind
            message = message + payload if message else payload
            if first & 0x80:
                return kind == _BINARY, message

    def _exactly(self, size: int) -> bytearray | memoryview:
        if len(self._buffer) >= size:
            chunk = self._buffer[:size]
            self._buffer = self._buffer[size:]
            return chunk
        message = bytearray(size)
        received = len(self._buffer)
        message[:received] = self._buffer
        self._buffer.clear()
        view = memoryview(message)
        while received < size:
            got = self._socket.recv_into(view[received:])
            if not got:
                raise Closed("the connection was cut")
            received += got
        return view

    def close(self) -> None:
        """Close the socket without a message.

        Ends a `receive` in another thread. Idempotent.
        """
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
