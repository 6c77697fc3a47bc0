"""A hostile trainer and a hostile viewer, which send whatever a test has them send."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from splatview_ipc.control import descriptors, limits, mail, messages
from splatview_ipc.control.messages import StreamInfo
from splatview_ipc.control.run_folder import SOCKET_NAME, create_run
from splatview_ipc.control.sockets import Connection, EndedError, Server
from splatview_ipc.shm.control_block import ControlBlock
from support.pair import inproc


def info(index: int = 0, **changes: Any) -> StreamInfo:
    """Make an honest run's description of a stream; `changes` are fields."""
    fields: dict[str, Any] = {
        "index": index,
        "name": f"stream {index}",
        "kind": "image",
        "shape": (4, 6, 3),
        "dtype": "uint8",
        "device": "cpu",
        "transports": ("ring",),
    }
    return messages.StreamInfo(**fields | changes)


ODD: list[Any] = [
    2**63,
    2**64 - 1,
    -(2**63),
    -1,
    2**31,
    1.5,
    float("nan"),
    float("inf"),
    None,
    True,
    "",
    "x" * 100_000,
    "\x00\x1b[2J",
    b"\x80\x04",
    [],
    [[[[]]]],
    {},
    {"a": {"b": {}}},
    "ring",
    "Hello",
]


def spoiled(
    honest: list[Any], decode: Callable[[bytes], Any]
) -> tuple[list[bytes], list[bytes]]:
    """Make messages with odd values in each field, with one field more and one less.

    Returns:
        Those that `decode` refuses, and the few that it takes.
    """
    refused = []
    accepted = []
    for message in honest:
        for fields in _spoiled_fields(msgspec.to_builtins(message)):
            packet = messages.encode(fields)
            try:
                decode(packet)
                accepted.append(packet)
            except messages.DecodeError:
                refused.append(packet)
    assert len(refused) > 0.9 * (len(refused) + len(accepted))
    return refused, accepted


def _spoiled_fields(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {**fields, "more": 1}
    for name in fields:
        yield {key: value for key, value in fields.items() if key != name}
    for name in fields:
        for odd in ODD:
            yield {**fields, name: odd}
    for name in fields.get("ref", {}):
        for odd in ODD:
            yield {**fields, "ref": {**fields["ref"], name: odd}}


class Impostor:
    """A run that sends when `send_messages` is called.

    It hands out descriptors as an honest run does, unless `silent`.
    """

    def __init__(self, name: str = "impostor"):
        self.folder = create_run(name, os.getpid(), time.time())
        self.server = Server(self.folder.path / SOCKET_NAME)
        self.control = ControlBlock()
        self.silent = False
        self.received: list[Any] = []
        """Messages of viewers, decoded."""
        self.viewers: dict[Connection, mail.Push] = {}

    def receive_messages(self) -> None:
        """Accept connections and read their messages."""
        self.server.accept(0.0)
        for connection in list(self.server.connections.values()):
            try:
                while (packet := connection.receive()) is not None:
                    self._take_in(connection, packet[0])
            except EndedError:
                self.server.close_connection(connection)
                push = self.viewers.pop(connection, None)
                if push is not None:
                    push.close()

    def _take_in(self, connection: Connection, packet: bytes) -> None:
        message = messages.decode_to_trainer(packet)
        self.received.append(message)
        if isinstance(message, messages.Hello):
            inbox = inproc(self.folder.path, message.inbox)
            self.viewers[connection] = mail.Push(inbox)
        elif isinstance(message, messages.Fetch) and not self.silent:
            descriptors.send(connection, message.token)

    def send_messages(self, *contents: Any) -> int:
        """Send messages (bytes as they are) to the first viewer.

        Returns:
            The number of messages that its queue took.
        """
        if not self.viewers:
            return 0
        push = next(iter(self.viewers.values()))
        for count, message in enumerate(contents):
            packet = message
            if not isinstance(message, bytes):
                packet = messages.encode(message)
            if not push.send(packet):
                return count
        return len(contents)

    def hand(self, packet: bytes, fds: list[int]) -> None:
        """Send a packet and descriptors over the connections."""
        for connection in list(self.viewers):
            with contextlib.suppress(EndedError):
                connection.send(packet, fds)

    def welcome(self, **changes: Any) -> messages.Welcome:
        """Make an honest run's answer to Hello; `changes` are fields."""
        return messages.Welcome(**{"control": self.control.segment.ref} | changes)

    def close(self) -> None:
        for push in self.viewers.values():
            push.close()
        self.server.close()
        self.control.close()
        self.folder.remove()


class Liar:
    """A viewer that has only the socket of an honest one."""

    def __init__(self, folder: Path):
        """Connect to a run. Raises BlockingIOError when too many wait."""
        self.socket = socket.socket(
            socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK
        )
        self.socket.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * limits.MAX_MESSAGE
        )
        try:
            self.socket.connect(str(folder / SOCKET_NAME))
        except BlockingIOError:
            self.socket.close()
            raise
        self._pull: mail.Pull | None = None
        self._folder = folder
        self.up = True
        """False once the trainer has closed the connection, as far as is known."""

    def hello(self, **changes: Any) -> None:
        """Send an honest viewer's first message; `changes` are fields."""
        fields: dict[str, Any] = {
            "protocol": limits.PROTOCOL,
            "pid": os.getpid(),
            "client": "liar",
            "inbox": mail.new_socket_name(),
        }
        hello = messages.Hello(**fields | changes)
        if hello.inbox:
            self._pull = mail.Pull(inproc(self._folder, hello.inbox))
        assert self.send(messages.encode(hello))

    def send(self, packet: bytes) -> bool:
        """Send a packet; return False when that is impossible, now or for ever."""
        try:
            self.socket.send(packet)
            return True
        except BlockingIOError:
            return False
        except OSError:
            self.up = False
            return False

    def receive(self) -> bytes | None:
        """Return the next packet or message of the trainer, if there is one."""
        if self._pull is not None:
            message = self._pull.receive()
            if message is not None:
                return message
        try:
            packet = self.socket.recv(limits.MAX_MESSAGE)
        except BlockingIOError:
            return None
        except OSError:
            packet = b""
        self.up &= bool(packet)
        return packet or None

    def close(self) -> None:
        self.socket.close()
        if self._pull is not None:
            self._pull.close()
