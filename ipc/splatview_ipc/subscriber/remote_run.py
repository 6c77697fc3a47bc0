"""Runs, as a viewer sees them."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from splatview_ipc.control import limits, messages
from splatview_ipc.control.channel import Link, pid_namespace
from splatview_ipc.control.errors import NotYet, SharingError
from splatview_ipc.shm.control_block import BoardReader
from splatview_ipc.subscriber.remote_stream import RemoteStream
from splatview_ipc.subscriber.source import RunSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_ipc.control.mail import Mailroom
    from splatview_ipc.control.run_folder import RunFolder

    CanTake = Callable[[str, str], bool]

_HELLO_PERIOD, _CONNECT_PERIOD = 1.0, 0.1
_BURST = 64


class RemoteRun:
    """One publishing process, as a viewer sees it."""

    def __init__(self, folder: RunFolder, mailroom: Mailroom, client: str, can_take: CanTake):
        self.folder = folder
        self._can_take = can_take
        self._welcome: messages.Welcome | None = None
        self.alive = True
        self.watch = folder.watch()
        """Tells of its life where its folder does not."""
        self._source = RunSource(folder.description.pid, folder.path, self.watch.alive)
        self.refused: str | None = None
        """Why this run cannot be attached to, for people."""
        self.viewers: list[dict[str, int | str]] = []
        """The viewers attached to it: {"pid", "client"}."""
        self.streams: dict[int, RemoteStream] = {}
        self.welcomed = False
        """Whether its list of streams has come."""
        self.ended_at = 0.0
        self.dropped = 0
        """Messages from it that made no sense."""
        self._client = client
        self._board: BoardReader | None = None
        self._counters: dict[str, int] = {}
        self._link: Link | None = None
        self._next_hello = 0.0
        self._resync = False
        if folder.description.protocol != limits.PROTOCOL:
            self.refused = messages.mismatch((limits.VERSION, limits.PROTOCOL),
                                             (folder.description.version, folder.description.protocol))
            return
        self._link = Link(folder.path, mailroom)

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
        """The trainer's own counts: dropped_messages, faults, copies."""
        if self._board is not None:
            self._counters = self._board.counters()
        return self._counters

    @property
    def paused(self) -> bool:
        return self._board is not None and self._board.paused

    @property
    def waits(self) -> int:
        """Whether the trainer minds a pause: 0: it has never called `splatview.wait_while_paused`; 1: it calls it;
        2: it waits there now."""
        return self._board.waits if self._board is not None else 0

    def set_paused(self, paused: bool) -> None:
        """Press or release the pause button; a trainer that asks for it waits. Who releases it, releases it for all."""
        self._send(messages.Pause(paused))

    def step(self) -> None:
        """Let a run that is paused go on to the next time that it asks whether to wait."""
        self._send(messages.Step())

    def _unfit(self, way: str, gpu: str) -> str:
        """Why this process cannot take frames in a way; "" when it can."""
        publisher = sys.modules.get("splatview_ipc.publisher.publisher")
        if way == "in-place" and publisher is not None and publisher.is_own(self.id):
            return "a process cannot open its own GPU memory a second time"
        return "" if self._can_take(way, gpu) else f"this process cannot open memory of GPU {gpu}"

    def _lease(self, stream: int, slot: int, cell: int = 0) -> None:
        if self._board is not None:
            self._board.lease(stream, slot, cell)

    def _send(self, message: messages.ToTrainer) -> None:
        if self._link is not None and not self._link.send(messages.encode(message)):
            self._resync = True  # its queue is full: the trainer was stopped. A new hello starts afresh.

    def _poll(self, now: float) -> bool:
        if self._link is None:
            return False
        if (self._board is None or self._resync) and self.refused is None and now >= self._next_hello:
            self._next_hello = now + _HELLO_PERIOD
            self._resync = False
            if not self._link.connect():
                self._next_hello = now + _CONNECT_PERIOD
            self._send(messages.Hello(limits.PROTOCOL, os.getpid(), self._client, pid_namespace(),
                                      limits.VERSION, self._link.inbox))
        changed = False
        for _ in range(_BURST):
            packet = self._link.receive()
            if packet is None:
                self._resync |= not self._link.up
                break
            try:
                message = messages.decode_to_viewer(packet)
            except messages.DecodeError:
                self.dropped += 1
                continue
            changed |= self._take(message)
        if self._welcome is not None:
            changed |= self._attach()
        for stream in self.streams.values():
            stream._look()
        self._source.tidy()
        return changed

    def _take(self, message: messages.ToViewer) -> bool:
        if isinstance(message, messages.Welcome):
            self._welcome = message
            return self._attach()
        if isinstance(message, messages.Refused):
            self.refused = message.reason
            return True
        if isinstance(message, messages.Manifest):
            for info in message.streams:
                stream = self.streams.get(info.index)
                if stream is None:
                    self.streams[info.index] = RemoteStream(self, info)
                elif stream.info != info:
                    if stream.info.gpu != info.gpu:
                        stream._failed.clear()
                    stream.info = info
                    stream._choose()
            self.viewers = [{"pid": v.pid, "client": v.client} for v in message.viewers]
            self.welcomed = True
            return True
        if isinstance(message, messages.Offer):
            stream = self.streams.get(message.index)
            if stream is not None:
                stream._offered(message)
            return True
        return False

    def _attach(self) -> bool:
        """Open what the welcome announced, once it has come."""
        welcome = self._welcome
        if welcome is None:
            return False
        try:
            board = BoardReader(welcome.board, welcome.leases, self._source, welcome.reader)
        except NotYet:
            return False
        except SharingError as e:
            self._welcome, self.refused = None, str(e)
            return True
        self._welcome = None
        again, self._board = self._board, board
        for stream in self.streams.values():
            if again is not None:  # the trainer has forgotten what we opened, and our leases were on the old board
                stream._drop_reader()
                stream._way, stream._ref = "", None
            stream._choose()
        if again is not None:
            again.close()
        return True

    def _end(self) -> None:
        """The trainer is gone. What it shared stays readable: the memory lives as long as it is mapped."""
        if self.alive:
            self.alive = False
            self.ended_at = time.time()
            for stream in self.streams.values():
                stream.version  # noqa: B018  (keeps the last one)
                stream.rate_hz = 0.0
            self._disconnect()
            self._source.close()
            self.watch.close()

    def _disconnect(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _close(self) -> None:
        self._send(messages.Bye())
        self._disconnect()
        for stream in self.streams.values():
            stream._drop_reader()
        self._source.close()
        if self._board is not None:
            self._board.close()
            self._board = None
        self.watch.close()
