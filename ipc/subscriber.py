"""The viewer's side: follows every run of this user, or one, and never waits for any of them."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import zmq

from ipc import limits, messages
from ipc.board import BoardReader
from ipc.errors import RuntimeFolderError, SharingError
from ipc.runs import list_runs, remove_stale, runtime_folder
from ipc.sharing import WAYS
from ipc.transport import socket_options

if TYPE_CHECKING:
    from ipc.frames import Frame
    from ipc.messages import SegmentRef, StreamInfo
    from ipc.runs import RunFolder
    from ipc.sharing import FrameReader

_SCAN_PERIOD = 0.25
_HELLO_PERIOD = 1.0
_RATE_PERIOD = 0.5
_KEEP_ENDED = 8
"""Ended runs whose last pictures are kept."""
_BURST = 64


class RemoteStream:
    """One stream of a run, as a viewer sees it."""

    def __init__(self, run: RemoteRun, info: StreamInfo):
        self.run = run
        self.info = info
        self.rate_hz = 0.0
        """Publishes per second, measured over the last half second."""
        self.fault: str | None = None
        """Why its data cannot be read, for people."""
        self._opened = False
        self._reader: FrameReader | None = None
        self._reader_ref: SegmentRef | None = None
        self._last_version = 0
        self._rate_mark: tuple[float, int] | None = None

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def kind(self) -> str:
        return self.info.kind

    @property
    def shape(self) -> tuple[int, ...]:
        return self.info.shape

    @property
    def dtype(self) -> str:
        return self.info.dtype

    @property
    def device(self) -> str:
        return self.info.device

    @property
    def sharing(self) -> str:
        """Which of `ipc.sharing.WAYS` brings its frames."""
        return self.info.sharing

    @property
    def version(self) -> int:
        """The newest published version, read from shared memory."""
        board = self.run._board
        if board is not None:
            self._last_version = board.version(self.info.index)
        return self._last_version

    def open(self) -> None:
        """Ask the trainer to share this stream's data. Only opened streams cost it anything. Idempotent."""
        if not self._opened:
            self._opened = True
            self.run._send(messages.Open(self.info.index))

    def release(self) -> None:
        """The opposite of `open`. Idempotent."""
        if self._opened:
            self._opened = False
            self.run._send(messages.Release(self.info.index))
            self._drop_reader()

    def read(self, after: int = 0) -> Frame | None:
        """The newest whole frame with a version over `after`; None when there is none yet.

        Its tensors are views of the trainer's ring: see `Frame`. Works for an ended run as well.
        """
        self._follow_ring()
        return self._reader.read(after) if self._reader is not None else None

    @property
    def torn(self) -> int:
        """Frames given up because the writer came back to them."""
        return self._reader.torn if self._reader is not None else 0

    def _follow_ring(self) -> None:
        ref = self.info.ring
        if ref == self._reader_ref or ref is None or not self.run.alive:
            return  # the old ring stays readable until there is another
        board, index = self.run._board, self.info.index
        if board is None:
            return
        try:
            reader = WAYS[self.info.sharing].reader(ref, self.run.pid, lambda slot: board.lease(index, slot))
        except SharingError as e:
            self.fault = str(e)
            self._reader_ref = ref  # not tried again until the trainer announces another
            return
        self._drop_reader()
        self._reader, self._reader_ref, self.fault = reader, ref, None

    def _drop_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = self._reader_ref = None

    def _measure(self, now: float) -> None:
        if self._rate_mark is None:  # what was published before we came is not a rate
            self._rate_mark = (now, self.version)
        since, version = self._rate_mark
        if now - since >= _RATE_PERIOD:
            current = self.version
            self.rate_hz = max(0.0, (current - version) / (now - since))
            self._rate_mark = (now, current)


class RemoteRun:
    """One publishing process, as a viewer sees it."""

    def __init__(self, folder: RunFolder, context: zmq.Context, client: str):
        self.folder = folder
        self.alive = True
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
        self._socket: zmq.Socket | None = None
        self._folder_fd = -1
        self._next_hello = 0.0
        self._resync = False
        if folder.description.protocol != limits.PROTOCOL:
            self.refused = (f"this viewer speaks protocol {limits.PROTOCOL}, the run {folder.description.protocol}: "
                            "install the same version of splatview on both sides")
            return
        socket = context.socket(zmq.DEALER)
        socket_options(socket)
        socket.setsockopt(zmq.RECONNECT_IVL, 100)
        address, self._folder_fd = folder.endpoint()
        socket.connect(address)
        self._socket = socket

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

    def set_paused(self, paused: bool) -> None:
        """Press or release the pause button; a trainer that asks for it waits."""
        self._send(messages.Pause(paused))

    def _send(self, message: messages.ToTrainer) -> None:
        if self._socket is not None:
            try:
                self._socket.send(messages.encode(message), zmq.NOBLOCK)
            except zmq.ZMQError:  # its queue is full: the trainer was stopped. A new hello starts afresh.
                self._resync = True

    def _poll(self, now: float) -> bool:
        if self._socket is None:
            return False
        if (self._board is None or self._resync) and self.refused is None and now >= self._next_hello:
            self._next_hello = now + _HELLO_PERIOD
            self._resync = False
            self._send(messages.Hello(limits.PROTOCOL, os.getpid(), self._client))
        changed = False
        for _ in range(_BURST):
            try:
                parts = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.ZMQError:
                break
            try:
                message = messages.decode_to_viewer(b"".join(parts))
            except messages.DecodeError:
                self.dropped += 1
                continue
            changed |= self._take(message)
        return changed

    def _take(self, message: messages.ToViewer) -> bool:
        if isinstance(message, messages.Welcome):
            return self._attach(message)
        if isinstance(message, messages.Refused):
            self.refused = message.reason
            return True
        if isinstance(message, messages.Manifest):
            for info in message.streams:
                stream = self.streams.get(info.index)
                if stream is None:
                    self.streams[info.index] = RemoteStream(self, info)
                else:
                    stream.info = info
            self.viewers = [{"pid": v.pid, "client": v.client} for v in message.viewers]
            self.welcomed = True
            return True
        return False

    def _attach(self, welcome: messages.Welcome) -> bool:
        if self._board is not None:  # an answer to a hello that was sent twice
            self._board.close()
            self._board = None
        try:
            self._board = BoardReader(welcome.board, welcome.leases, self.pid, welcome.reader)
        except SharingError as e:
            self.refused = str(e)
        for stream in self.streams.values():
            if stream._opened:
                self._send(messages.Open(stream.info.index))
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

    def _disconnect(self, linger: int = 0) -> None:
        if self._socket is not None:
            self._socket.close(linger)
            self._socket = None
        if self._folder_fd >= 0:
            os.close(self._folder_fd)
            self._folder_fd = -1

    def _close(self) -> None:
        self._send(messages.Bye())
        self._disconnect(linger=100)  # ms: a goodbye that does not get through is found out by other means
        for stream in self.streams.values():
            stream._drop_reader()
        if self._board is not None:
            self._board.close()
            self._board = None


class Subscriber:
    """Follows every run of this user, or one."""

    def __init__(self, run: str | None = None, *, client: str = "viewer"):
        """`run`: a run's id, the beginning of one, its name or its process id; None: all runs.

        `client` is how the run's `status` calls this process.
        """
        self._wanted = run
        self._client = client[:40]
        self._context = zmq.Context()
        self._runs: dict[str, RemoteRun] = {}
        self._next_scan = 0.0
        self._seen: dict[tuple[str, int], int] = {}
        self.fault: str | None = None
        """Why runs cannot be found at all, for people."""

    @property
    def runs(self) -> list[RemoteRun]:
        """Live runs and those that ended lately, oldest first."""
        return list(self._runs.values())

    @property
    def streams(self) -> list[RemoteStream]:
        """The streams of all runs."""
        return [s for run in self._runs.values() for s in run.streams.values()]

    def poll(self) -> bool:
        """Take in what happened. Never blocks. True when a run, a stream or a version changed."""
        now = time.monotonic()
        changed = False
        if now >= self._next_scan:
            self._next_scan = now + _SCAN_PERIOD
            changed = self._scan()
        for run in self._runs.values():
            changed |= run._poll(now)
            for index, stream in run.streams.items():
                version = stream.version
                if self._seen.get((run.id, index)) != version:
                    self._seen[run.id, index] = version
                    changed = True
                stream._measure(now)
        return changed

    def wait_for_runs(self, timeout: float) -> None:
        """Poll until every live run has told its streams, or `timeout` seconds have passed."""
        end = time.monotonic() + timeout
        while True:
            self.poll()
            if all(r.welcomed or r.refused or not r.alive for r in self.runs) or time.monotonic() >= end:
                return
            time.sleep(0.005)

    def close(self) -> None:
        """Say goodbye everywhere and give everything back. Idempotent."""
        for run in self._runs.values():
            run._close()
        self._runs.clear()
        if not self._context.closed:
            self._context.term()

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _scan(self) -> bool:
        try:
            root = runtime_folder()
        except RuntimeFolderError as e:
            self.fault = str(e)
            return False
        self.fault = None
        changed = False
        found = {f.description.id: f for f in list_runs(root) if self._wants(f)}
        for run_id, folder in found.items():
            if run_id not in self._runs:
                self._runs[run_id] = RemoteRun(folder, self._context, self._client)
                changed = True
        gone = [r for r in self._runs.values() if r.alive and r.id not in found]
        for run in gone:
            run._end()
            changed = True
        if gone:
            remove_stale(root)
        ended = sorted((r for r in self._runs.values() if not r.alive), key=lambda r: r.ended_at)
        for run in ended[: max(0, len(ended) - _KEEP_ENDED)]:
            run._close()
            del self._runs[run.id]
            self._seen = {k: v for k, v in self._seen.items() if k[0] != run.id}
        return changed

    def _wants(self, folder: RunFolder) -> bool:
        d, w = folder.description, self._wanted
        return w is None or d.id.startswith(w) or w in (d.name, str(d.pid))
