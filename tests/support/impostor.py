"""A trainer and a viewer that mean no good, for tests of the other side: they send whatever a test has them send."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
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
    """An honest run's description of a stream; `changes` are fields."""
    said: dict[str, Any] = {
        "index": index,
        "name": f"stream {index}",
        "kind": "image",
        "shape": (4, 6, 3),
        "dtype": "uint8",
        "device": "cpu",
        "transports": ("ring",),
    }
    return messages.StreamInfo(**said | changes)


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
    """Messages with odd values in each field, with one field more and one less: those that `decode` refuses, and the
    few that it takes.
    """
    packets = []
    for message in honest:
        said = msgspec.to_builtins(message)
        packets += [messages.encode({**said, "more": 1})]
        packets += [
            messages.encode({k: v for k, v in said.items() if k != name})
            for name in said
        ]
        packets += [
            messages.encode({**said, name: odd}) for name in said for odd in ODD
        ]
        packets += [
            messages.encode({**said, "ref": {**said["ref"], name: odd}})
            for name in said.get("ref", {})
            for odd in ODD
        ]
    wrong = []
    right = []
    for packet in packets:
        try:
            decode(packet)
            right.append(packet)
        except messages.DecodeError:
            wrong.append(packet)
    assert len(wrong) > 0.9 * len(packets)
    return wrong, right


class Impostor:
    """A run that sends when `tell` is called. It hands out descriptors as an honest run does, unless `silent`."""

    def __init__(self, name: str = "impostor"):
        self.folder = create_run(name, os.getpid(), time.time())
        self.server = Server(self.folder.path / SOCKET_NAME)
        self.control = ControlBlock()
        self.silent = False
        self.received: list[Any] = []
        """Messages of viewers, decoded."""
        self.viewers: dict[Connection, mail.Push] = {}

    def receive_messages(self) -> None:
        """Take in connections and messages."""
        self.server.accept(0.0)
        for connection in list(self.server.connections.values()):
            try:
                while (packet := connection.receive()) is not None:
                    self.received.append(
                        message := messages.decode_to_trainer(packet[0])
                    )
                    if isinstance(message, messages.Hello):
                        self.viewers[connection] = mail.Push(
                            inproc(self.folder.path, message.inbox)
                        )
                    elif isinstance(message, messages.Fetch) and not self.silent:
                        descriptors.send(connection, message.token)
            except EndedError:
                self.server.close_connection(connection)
                push = self.viewers.pop(connection, None)
                if push is not None:
                    push.close()

    def send_messages(self, *said: Any) -> int:
        """Send messages (bytes: as they are) to the viewer; return how many its queue took."""
        for push in self.viewers.values():
            for number, message in enumerate(said):
                if not push.send(
                    message if isinstance(message, bytes) else messages.encode(message)
                ):
                    return number
            return len(said)
        return 0

    def hand(self, packet: bytes, fds: list[int]) -> None:
        """Send a packet and descriptors over the connections."""
        for connection in list(self.viewers):
            try:
                connection.send(packet, fds)
            except EndedError:
                pass

    def welcome(self, **changes: Any) -> messages.Welcome:
        """An honest run's answer to Hello; `changes` are fields."""
        return messages.Welcome(**{"control": self.control.segment.ref} | changes)

    def close(self) -> None:
        for push in self.viewers.values():
            push.close()
        self.server.close()
        self.control.close()
        self.folder.remove()


class Liar:
    """A viewer, of which nothing but the socket is ours."""

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
        said: dict[str, Any] = {
            "protocol": limits.PROTOCOL,
            "pid": os.getpid(),
            "client": "liar",
            "inbox": mail.new_socket_name(),
        }
        hello = messages.Hello(**said | changes)
        if hello.inbox:
            self._pull = mail.Pull(inproc(self._folder, hello.inbox))
        assert self.send(messages.encode(hello))

    def send(self, packet: bytes) -> bool:
        """False: not now, or never."""
        try:
            self.socket.send(packet)
            return True
        except BlockingIOError:
            return False
        except OSError:
            self.up = False
            return False

    def receive(self) -> bytes | None:
        """The next packet or message of the trainer; None: there is none."""
        if self._pull is not None and (message := self._pull.receive()) is not None:
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
