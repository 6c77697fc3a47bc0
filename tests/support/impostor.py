"""A trainer and a viewer that mean no good, for tests of the other side: they say whatever they are told."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Any

from splatview_ipc.control import limits, messages
from splatview_ipc.control.channel import Connection, EndedError, Listener, short_path
from splatview_ipc.control.descriptors import Server
from splatview_ipc.control.run_folder import create_run
from splatview_ipc.shm.control_block import Board

if TYPE_CHECKING:
    from pathlib import Path

    from splatview_ipc.control.messages import StreamInfo


def info(index: int = 0, **changes: Any) -> StreamInfo:
    """What an honest run says of a stream; `changes` are fields."""
    said: dict[str, Any] = {"index": index, "name": f"stream {index}", "kind": "image", "shape": (4, 6, 3),
                            "dtype": "uint8", "device": "cpu", "ways": ("ring",)}
    return messages.StreamInfo(**said | changes)


def pickles(canary: Path) -> list[bytes]:
    """What makes a file of this name when it is unpickled, in an old protocol and in a new one."""
    run = f"touch {canary}".encode()
    return [b"cposix\nsystem\n(S'" + run + b"'\ntR.",
            b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c" + bytes([len(run)]) + run + b"\x85R."]


class Impostor:
    """Speaks when `tell` is called; never answers by itself."""

    def __init__(self, name: str = "impostor"):
        self.folder = create_run(name, os.getpid(), time.time())
        self.listener = Listener(self.folder.path)
        self.server = Server(self.folder.path)
        self.board = Board()
        self.heard: list[Any] = []
        """What viewers said, as it was decoded."""

    @property
    def viewers(self) -> list[Connection]:
        return list(self.listener._connections.values())

    def hear(self) -> None:
        """Take in who came, and what they say."""
        self.listener.accept()
        self.server.serve()
        for viewer in self.viewers:
            viewer.known = True
            try:
                while (packet := viewer.receive()) is not None:
                    self.heard.append(messages.decode_to_trainer(packet))
            except EndedError:
                self.listener.close_one(viewer)

    def tell(self, *said: Any) -> int:
        """Send messages (bytes: as they are) to all viewers, as long as they take them; how many got through."""
        through = 0
        for viewer in self.viewers:
            for message in said:
                packet = message if isinstance(message, bytes) else messages.encode(message)
                try:
                    if not viewer.send(packet):
                        break
                except EndedError:
                    self.listener.close_one(viewer)
                    break
                through += 1
        return through

    def welcome(self, **changes: Any) -> messages.Welcome:
        """What an honest run says first; `changes` are fields."""
        said: dict[str, Any] = {"protocol": limits.PROTOCOL, "pid": os.getpid(), "board": self.board.segment.ref,
                                "leases": self.board.lease_segment.ref, "reader": 0}
        return messages.Welcome(**said | changes)

    def close(self) -> None:
        self.listener.close()
        self.server.close()
        self.board.close()
        self.folder.remove()


class Liar:
    """A viewer, of which nothing but the socket is ours."""

    def __init__(self, folder: Path, name: str = "socket"):
        """Connect to a run's socket of this name, when there is room."""
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * limits.MAX_MESSAGE)
        with short_path(folder / name) as path:
            while self.socket.connect_ex(path):
                time.sleep(0.002)
        self.up = True
        """Whether the trainer has not closed the connection, as far as is known."""

    def hello(self) -> None:
        """Say what an honest viewer says first."""
        assert self.send(messages.encode(messages.Hello(limits.PROTOCOL, os.getpid(), "liar")))

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
        """What the trainer says; None: nothing."""
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
