"""Runs, as a viewer sees them."""

from __future__ import annotations

import math
import os
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from splatview_ipc.control import limits, mail, messages
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.run_folder import SOCKET_NAME, RunWatch
from splatview_ipc.control.sockets import (
    DESCRIPTORS_PER_PACKET,
    EndedError,
    close_all,
    connect,
    pid_namespace,
)
from splatview_ipc.shm.control_block import ControlReader
from splatview_ipc.subscriber.remote_stream import RemoteStream

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from splatview_ipc.control.run_folder import RunFolder
    from splatview_ipc.control.sockets import Connection

    CanTake = Callable[[str, str], bool]

_CONNECT_PERIOD_S = 0.1
_REFUSED_PERIOD_S = 5.0
_BURST = 64
"""Messages taken in one poll."""
_SILENCE_S = 2.0
"""Time after which descriptors are requested again, and their absence is shown."""
_CONTROL = -1
"""Key of the welcome among the messages that wait for descriptors; others are streams' indices."""


@dataclass
class _Awaited:
    """A message that waits for its descriptors."""

    message: messages.Welcome | messages.Offer
    needed: dict[str, int]
    """Tokens, and the number of descriptors behind each."""
    ask_at: float = 0.0
    """Clock time of the next request; 0: none was made."""
    failed: bool = False
    """True if some of them cannot be had."""
    fds: dict[str, list[int]] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return self.failed or all(map(self.complete, self.needed))

    def complete(self, token: str) -> bool:
        return len(self.fds.get(token, ())) == self.needed[token]

    def take(self, message: messages.Descriptors, fds: list[int]) -> None:
        """Take in a part of an answer."""
        there = self.fds.setdefault(message.token, [])
        there += fds
        count = self.needed[message.token]
        self.failed |= message.total != count or not fds or len(there) > count

    def close(self) -> None:
        """Idempotent."""
        for fds in self.fds.values():
            close_all(fds)
        self.fds = {}


class RemoteRun:
    """One publishing process, as a viewer sees it."""

    def __init__(
        self,
        folder: RunFolder,
        client: str,
        can_take: CanTake,
        endpoint: Callable[[Path, str], str],
    ):
        self.folder = folder
        self.watch = RunWatch(folder)
        self.alive = True
        self.refused: str | None = None
        """The reason why this run cannot be attached to, for users; None: it can."""
        self.viewers: list[dict[str, int | str]] = []
        """The viewers attached to it: {"pid", "client"}."""
        self.streams: dict[int, RemoteStream] = {}
        self.welcomed = False
        """True once its list of streams has arrived."""
        self.ended_at = 0.0
        self.dropped = 0
        """Messages from it that made no sense, or came too late."""
        self.control: ControlReader | None = None
        self._client = client
        self._can_take = can_take
        self._endpoint = endpoint
        self._connection: Connection | None = None
        self._pull: mail.Pull | None = None
        self._next_try = 0.0
        self._attached = False
        """True once the control block of the present connection is open."""
        self._opened: dict[int, str] = {}
        """Transports requested of the trainer, by stream; "": released."""
        self._awaited: dict[int, _Awaited] = {}
        self._now = 0.0
        if folder.description.protocol != limits.PROTOCOL:
            self.refused = messages.mismatch(
                (limits.VERSION, limits.PROTOCOL),
                (folder.description.version, folder.description.protocol),
            )
            self._next_try = math.inf

    @property
    def id(self) -> str:
        return self.folder.description.id

    @property
    def name(self) -> str:
        return self.folder.description.name

    @property
    def pid(self) -> int:
        return self.folder.description.pid

    @property
    def counters(self) -> dict[str, int]:
        """The trainer's own counts: dropped_messages, faults, copies, skipped."""
        return self.control.counters() if self.control is not None else {}

    @property
    def paused(self) -> bool:
        return self.control is not None and self.control.paused

    @property
    def waits(self) -> int:
        """0: the trainer has never called `splatview.wait_while_paused`; 1: it calls it; 2: it waits there now."""
        return self.control.waits if self.control is not None else 0

    def set_paused(self, paused: bool) -> None:
        """Press or release the pause button; releasing it releases it for all viewers."""
        self.send(messages.Pause(paused))

    def step(self) -> None:
        """Let a paused run pass `wait_while_paused` once."""
        self.send(messages.Step())

    def unfit(self, transport: str, gpu: str) -> str:
        """Return why this process cannot use a transport; "" when it can."""
        publisher = sys.modules.get("splatview_ipc.publisher.publisher")
        if (
            transport in ("in-place", "torch-ipc")
            and publisher is not None
            and publisher.is_own(self.id)
        ):
            return "a process cannot open its own GPU memory a second time"
        if self._can_take(transport, gpu):
            return ""
        return f"this process cannot open memory of GPU {gpu}"

    def send(self, message: messages.ToTrainer) -> None:
        """Send a message. Never waits: if the queue of a stopped trainer is full, the connection is made anew."""
        if self._connection is None:
            return
        try:
            if not self._connection.send(messages.encode(message)):
                self._disconnect()
        except EndedError:
            pass  # what the trainer sent before is still to be read

    def poll(self, now: float) -> bool:
        """Take in what happened. Never waits. Returns True when a stream, a version, a viewer or the run changed."""
        self._now = now
        changed = False
        if self._connection is None and self.alive and now >= self._next_try:
            self._next_try = now + _CONNECT_PERIOD_S
            name = mail.new_name()
            try:
                self._connection = connect(self.folder.path / SOCKET_NAME)
                self._pull = mail.Pull(self._endpoint(self.folder.path, name))
            except OSError:  # it ends, or is stopped
                pass
            except SharingError as e:
                self._disconnect(str(e))
            else:
                self.send(
                    messages.Hello(
                        limits.PROTOCOL,
                        os.getpid(),
                        self._client,
                        pid_namespace(),
                        limits.VERSION,
                        name,
                    )
                )
        if self._connection is not None:
            changed = self._receive()
            changed |= self._await_descriptors()
        for stream in self.streams.values():
            changed |= stream.measure(now)
            self.share(stream)
        return changed

    def share(self, stream: RemoteStream) -> None:
        """Have the trainer share a stream as it is wanted now."""
        index = stream.info.index
        wanted = stream.wanted_transport
        if self._attached and wanted != self._opened.get(index, ""):
            self._drop_awaited(index)
            self._opened[index] = wanted
            if wanted:
                self.send(messages.Open(index, wanted))  # type: ignore[arg-type]
            else:
                self.send(messages.Release(index))

    def _receive(self) -> bool:
        changed = False
        for _ in range(
            _BURST
        ):  # streams are known only when their versions can be read
            if self._pull is not None and _CONTROL not in self._awaited:
                data = self._pull.receive()
            else:
                data = None
            if data is None:
                break
            changed |= self._take(data, [])
        for _ in range(_BURST):
            try:
                if self._connection is not None:
                    packet = self._connection.receive(DESCRIPTORS_PER_PACKET)
                else:
                    packet = None
            except EndedError:
                self._disconnect()
                break
            if packet is None:
                break
            changed |= self._take(*packet)
        return changed

    def _take(self, data: bytes, fds: list[int]) -> bool:
        """Take a message of the trainer; return whether something changed that is shown."""
        try:
            message = messages.decode_to_viewer(data)
        except messages.DecodeError:
            message = None
        if isinstance(message, messages.Descriptors):
            for awaited in self._awaited.values():
                if (
                    message.token in awaited.needed
                    and awaited.ask_at
                    and not awaited.complete(message.token)
                ):
                    awaited.take(message, fds)
                    return False
        close_all(fds)
        if isinstance(message, messages.Welcome):
            self._wait_for(_CONTROL, message)
        elif isinstance(message, messages.Manifest):
            for info in message.streams:
                if info.index not in self.streams:
                    self.streams[info.index] = RemoteStream(self, info)
                elif self.streams[info.index].info != info:
                    self.streams[info.index].info_changed(info)
            self.viewers = [{"pid": v.pid, "client": v.client} for v in message.viewers]
            self.welcomed = self.welcomed or not message.continued
        elif isinstance(message, messages.Offer):
            if message.transport == self._opened.get(message.index):
                self._wait_for(message.index, message)
        elif isinstance(message, messages.Refused):  # the trainer ends the connection
            self.refused = message.reason
            self._next_try = self._now + _REFUSED_PERIOD_S
        else:
            self.dropped += 1
            return False
        return True

    def _wait_for(self, key: int, message: messages.Welcome | messages.Offer) -> None:
        """Have the descriptors of a message fetched, but for those that the stream's reader has."""
        offered = isinstance(message, messages.Offer)
        known = self.streams[key].known if offered else frozenset()
        needed = {
            token: count
            for token, count in messages.tokens(
                message.ref if offered else message.control
            ).items()
            if token not in known
        }
        self._drop_awaited(key)
        self._awaited[key] = _Awaited(
            message, needed, failed=sum(needed.values()) > limits.MAX_PIECES
        )

    def _await_descriptors(self) -> bool:
        """Request descriptors, and complete the messages whose descriptors have arrived or cannot be had."""
        changed = False
        for key, awaited in list(self._awaited.items()):
            if self._awaited.get(key) is not awaited:
                continue  # the connection was lost meanwhile
            if awaited.done:
                del self._awaited[key]
                if isinstance(
                    awaited.message, messages.Offer
                ):  # its reader reports missing descriptors
                    self.streams[key].offered(awaited.message, awaited.fds)
                else:
                    try:
                        control = ControlReader(awaited.message.control, awaited.fds)
                    except SharingError as e:
                        self._disconnect(str(e))
                    else:
                        if self.control is not None:
                            self.control.close()
                        self.control = control
                        self._attached = True
                        self.refused = None
                awaited.close()
                changed = True
            elif self._now >= awaited.ask_at:
                if awaited.ask_at and isinstance(awaited.message, messages.Offer):
                    self.streams[
                        key
                    ].fault = (
                        f"no memory within {_SILENCE_S:.0f} s: is the trainer stopped?"
                    )
                awaited.close()
                awaited.ask_at = self._now + _SILENCE_S
                for token in awaited.needed:
                    self.send(messages.Fetch(token))
        return changed

    def _drop_awaited(self, key: int) -> None:
        awaited = self._awaited.pop(key, None)
        if awaited is not None:
            awaited.close()

    def _disconnect(self, refused: str = "") -> None:
        """Forget the connection and the requests made over it; `refused`: for a while, and why. Idempotent."""
        if refused:
            self.refused = refused
            self._next_try = self._now + _REFUSED_PERIOD_S
        for key in list(self._awaited):
            self._drop_awaited(key)
        self._opened.clear()
        self._attached = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._pull is not None:
            self._pull.close()
            self._pull = None

    def end(self) -> None:
        """The trainer is gone. Memory that it shared stays readable as long as it is mapped."""
        self.alive = False
        self.ended_at = time.time()
        self._disconnect()
        self.watch.close()

    def close(self) -> None:
        """Detach from the run, and give everything back. Idempotent."""
        self.send(messages.Bye())
        self._disconnect()
        for stream in self.streams.values():
            stream.release()
        if self.control is not None:
            self.control.close()
            self.control = None
        self.watch.close()
