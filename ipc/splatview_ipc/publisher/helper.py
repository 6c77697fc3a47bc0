"""The helper thread of a trainer: it alone owns the sockets, and sleeps until a viewer says something.

It wakes for a hello, an open, a release, a pause, a viewer's death, a request for descriptors, a version that is asked
for while the trainer is at something else, or a change of the streams; every few seconds to look at the run's folder
and at tensors that are shared in place; never per frame. For a live stream whose tensors have to be copied it looks at
them `LIVE_PERIOD` apart. It also makes the memory of rings, a part at each turn (`ring_allocation`).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from splatview_ipc.control import limits, messages
from splatview_ipc.control.channel import Calm, EndedError, pid_namespace, wait_for
from splatview_ipc.control.door import Door
from splatview_ipc.control.errors import NotYet, SharingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_ipc.control.channel import Connection
    from splatview_ipc.control.messages import Ref
    from splatview_ipc.control.run_folder import OwnedRunFolder
    from splatview_ipc.publisher.stream import Stream
    from splatview_ipc.shm.control_block import Board

GRACE = 0.1
"""Seconds a late viewer waits for the next `publish` before the helper thread copies the last value itself."""
LIVE_PERIOD = 1 / 30
"""Seconds between two copies of a live stream that the trainer changes in place without publishing again."""
LIVE_SHARE = 0.2
"""The share of its time that this thread may spend on such copies of one stream: large ones come less often."""
_TRY_AGAIN = 1.0
"""Seconds after a copy of a live stream failed until the next."""
_ANNOUNCE_PERIOD = 0.05


@dataclass
class _Opened:
    """A stream that a viewer opened."""

    way: str
    ref: Ref | None = None
    """What the viewer was told last."""
    taken: int = 0
    """The oldest generation that it may still be reading."""


@dataclass
class _Viewer:
    connection: Connection
    pid: int
    client: str
    reader: int
    pidfd: int = -1
    paused: bool = False
    manifest: messages.Manifest | None = None
    """What it was told last."""
    opened: dict[int, _Opened] = field(default_factory=dict)


class Helper:
    """Answers viewers on behalf of a run."""

    def __init__(self, folder: OwnedRunFolder, board: Board, streams: dict[str, Stream],
                 fault: Callable[[BaseException], None], asked: Callable[[Stream, Any], None] = lambda *_: None):
        """`streams` is the run's own dictionary, read at each turn; `fault` hears of what goes wrong, `asked` of what
        viewers want of a stream (`messages.Snapshot`, `messages.Photos`). Raises SharingError."""
        self._pid = folder.description.pid
        self._board = board
        self._streams = streams
        self._fault = fault
        self._asked = asked
        self._viewers: dict[Connection, _Viewer] = {}
        self._changed = threading.Event()
        self._attend = False
        self._closing = False
        self._end_lock = threading.Lock()
        self._ended = self._left = False
        """Whether the thread has ended; whether `close` left the sockets to it. Under the lock."""
        self._deadlines: dict[int, tuple[float, int]] = {}
        """Streams that someone opened: when to look whether they are behind, and their version at the last look."""
        self._ready: list[int] = []
        """Connections with something to be read."""
        self._coming = False
        """Whether there are new ones."""
        self._calm = Calm()
        self._last_announce = 0.0
        self._thread = threading.Thread(target=self._run, name="splatview", daemon=True)
        try:
            with contextlib.ExitStack() as held:
                self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
                held.callback(os.close, self._wake)
                self._door = Door(folder)
                held.callback(self._door.close)
                self._thread.start()
                self._held = held.pop_all()
        except (OSError, RuntimeError) as e:
            raise SharingError(f"viewers cannot be answered: {e}") from None

    def announce(self) -> None:
        """Tell the viewers soon what streams there are. Any thread may call it."""
        if not self._changed.is_set():
            self._changed.set()
            self._poke()

    def attend(self) -> None:
        """Look soon whether streams are late, and where they lie. Any thread may call it."""
        if not self._attend:
            self._attend = True
            self._poke()

    def close(self) -> bool:
        """Whether the thread has ended, as it does unless something holds it up. Then it closes its sockets later: a
        ZeroMQ context whose sockets are open would be waited for without end when it is collected."""
        self._closing = True
        self._poke()
        self._thread.join(timeout=0.5)
        with self._end_lock:
            self._left = not self._ended
        if self._left:
            return False
        self._thread.join()
        self._held.close()
        return True

    def _poke(self) -> None:
        with contextlib.suppress(OSError):
            os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        while not self._closing:
            try:
                self._wait()
                self._door.look()
                self._take_messages()
                self._look_at_streams()
                self._serve_late_viewers()
                self._offer()
                self._tell_changes()
            except Exception as e:  # whatever happens here must never reach the training
                if self._closing:
                    break
                self._report(e)
                time.sleep(0.1)
        for stream in list(self._streams.values()):
            stream.abandon()
        for viewer in list(self._viewers.values()):
            if viewer.pidfd >= 0:
                os.close(viewer.pidfd)
        with self._end_lock:
            self._ended, left = True, self._left
        if left:
            self._held.close()

    def _wait(self) -> None:
        listener, server = self._door.listener, self._door.server
        pidfds = [v.pidfd for v in self._viewers.values() if v.pidfd >= 0]
        coming, serving = listener.fds(), server.fds()
        ready = wait_for([self._wake, *pidfds, *coming, *serving], self._timeout())
        self._ready = [fd for fd in coming[1:] if fd in ready]
        if self._wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)
        for viewer in list(self._viewers.values()):
            if viewer.pidfd in ready:
                self._forget(viewer)
        if any(fd in ready for fd in serving) or len(serving) > 1:
            server.serve()
        self._coming = coming[0] in ready
        if ready - {self._wake}:
            self._calm.turn()

    def _timeout(self) -> int:
        """Milliseconds until something is due."""
        due = [self._door.due(), *(when for when, _ in self._deadlines.values())]
        due += [when for one in (self._door.server, self._door.listener, *list(self._streams.values()))
                if (when := one.due()) is not None]
        if self._changed.is_set() and self._viewers:
            due.append(self._last_announce + _ANNOUNCE_PERIOD)
        return max(0, int((min(due) - time.monotonic()) * 1000) + 1)

    def _take_messages(self) -> None:
        listener = self._door.listener
        listener.in_turn(self._ready, self._take_from)
        if self._coming:  # only now: whoever makes room for them has been heard
            listener.in_turn(listener.accept(), self._take_from)
        listener.tidy()

    def _take_from(self, connection: Connection) -> bool:
        """Whether there was a message."""
        try:
            packet = connection.receive()
        except EndedError:
            self._cut(connection)
            return False
        if packet is None:
            return False
        try:
            message = messages.decode_to_trainer(packet)
        except messages.DecodeError:
            self._board.count_dropped()
            if not connection.known and (viewer := messages.stranger(packet)) is not None:
                self._refuse(connection, messages.mismatch(viewer, (limits.VERSION, limits.PROTOCOL)))
        else:
            self._handle(connection, message)
        return True

    def _cut(self, connection: Connection) -> None:
        viewer = self._viewers.get(connection)
        if viewer is not None:
            self._forget(viewer)
        self._door.listener.close_one(connection)

    def _handle(self, connection: Connection, message: messages.ToTrainer) -> None:
        viewer = self._viewers.get(connection)
        if isinstance(message, messages.Hello):
            self._welcome(connection, message)
        elif viewer is None:
            self._board.count_dropped()
        elif isinstance(message, messages.Open):
            self._open(viewer, message.index, message.way)
        elif isinstance(message, messages.Took):
            opened = viewer.opened.get(message.index)
            if opened is not None:
                opened.taken = max(opened.taken, message.generation)
        elif isinstance(message, messages.Want):
            stream = self._stream(message.index)
            if stream is not None and message.index in viewer.opened:
                self._deadlines[message.index] = (time.monotonic(), stream.version)
        elif isinstance(message, (messages.Snapshot, messages.Photos)):
            stream = self._stream(message.index)
            if stream is not None and message.index in viewer.opened:
                self._asked(stream, message)
        elif isinstance(message, messages.Release):
            self._release(viewer, message.index)
        elif isinstance(message, messages.Pause):
            for one in (viewer,) if message.paused else self._viewers.values():
                one.paused = message.paused
            self._tell_pause()
        elif isinstance(message, messages.Step):
            self._board.granted += self._board.paused
        else:
            self._cut(connection)

    def _welcome(self, connection: Connection, hello: messages.Hello) -> None:
        if connection in self._viewers:
            self._forget(self._viewers[connection])
        free = set(range(limits.MAX_VIEWERS)) - {v.reader for v in self._viewers.values()}
        reason = ""
        if hello.protocol != limits.PROTOCOL:
            reason = messages.mismatch((hello.version, hello.protocol), (limits.VERSION, limits.PROTOCOL))
        elif not free:
            reason = f"{limits.MAX_VIEWERS} viewers are attached to this run already: close one"
        viewer = _Viewer(connection, hello.pid, hello.client, min(free, default=0))
        if reason:
            self._refuse(connection, reason)
            return
        with contextlib.suppress(OSError, AttributeError):  # another PID namespace, an old kernel: its connection tells
            if hello.namespace in (0, pid_namespace()):
                viewer.pidfd = os.pidfd_open(hello.pid)
        self._viewers[connection] = viewer
        connection.known = True
        self._door.deliver(connection, hello.inbox)
        self._board.clear_leases(viewer.reader)
        self._send(viewer, messages.Welcome(limits.PROTOCOL, self._pid, self._board.segment.ref,
                                            self._board.lease_segment.ref, viewer.reader))
        self._last_announce = 0.0
        self._changed.set()

    def _refuse(self, connection: Connection, reason: str) -> None:
        with contextlib.suppress(EndedError):
            connection.send(messages.encode(messages.Refused(reason)))
        self._cut(connection)  # what was sent arrives

    def _open(self, viewer: _Viewer, index: int, way: str) -> None:
        stream = self._stream(index)
        before = viewer.opened.get(index)
        if stream is None:
            self._board.count_dropped()
            return
        if before is not None and before.way == way:
            before.ref = None  # it lost what we told it
            return
        viewer.opened[index] = _Opened(way)
        stream.open(way)
        if before is not None:
            stream.release(before.way)
        self._deadlines[index] = (time.monotonic() + GRACE, stream.version)

    def _release(self, viewer: _Viewer, index: int) -> None:
        stream = self._stream(index)
        opened = viewer.opened.pop(index, None)
        if stream is None or opened is None:
            self._board.count_dropped()
            return
        stream.release(opened.way)
        if stream.readers == 0:
            self._deadlines.pop(index, None)

    def _forget(self, viewer: _Viewer) -> None:
        """A viewer went away, in whatever manner: take back all that it held."""
        if self._viewers.get(viewer.connection) is not viewer:
            return
        for index in list(viewer.opened):
            self._release(viewer, index)
        self._board.clear_leases(viewer.reader)
        del self._viewers[viewer.connection]
        viewer.connection.unknown()
        self._tell_pause()  # a viewer takes its pause with it
        if viewer.pidfd >= 0:
            os.close(viewer.pidfd)
            viewer.pidfd = -1
        self._changed.set()

    def _tell_pause(self) -> None:
        by = [f"{v.client or 'viewer'} (process {v.pid})" for v in self._viewers.values() if v.paused]
        self._board.pause(" and ".join([*by[:2], *(["others"] if len(by) > 2 else [])]))

    def _look_at_streams(self) -> None:
        """Let go of what nobody reads any more, and note which streams could not share a version."""
        self._attend = False
        now = time.monotonic()
        for stream in list(self._streams.values()):
            if stream.due() is not None:
                stream.tend(min((v.opened[stream.index].taken for v in self._viewers.values()
                                 if stream.index in v.opened and v.opened[stream.index].way == "in-place"),
                                default=0))
            if (stream.late or (stream.live and stream.readers)) and stream.index not in self._deadlines:
                self._deadlines[stream.index] = (now + GRACE, stream.version)

    def _serve_late_viewers(self) -> None:
        now = time.monotonic()
        for index, (due, seen) in list(self._deadlines.items()):
            if due > now:
                continue
            stream = self._stream(index)
            if stream is not None:
                stream.late = False  # before we look: what comes late from now on wakes us again
            if stream is None or not stream.behind():
                del self._deadlines[index]
                continue
            begin = time.monotonic()
            if stream.version == seen:  # else the trainer is at it, and shares by itself
                try:
                    stream.catch_up(lambda: not self._closing)
                except NotYet:
                    pass
                except Exception as e:
                    self._report(e)
                    if stream.live:
                        self._deadlines[index] = (begin + _TRY_AGAIN, stream.version)
                    else:
                        del self._deadlines[index]
                    continue
            # Looked at again: a publish may have come while the lock was ours, or the copy was not still.
            now = time.monotonic()
            rest = max(LIVE_PERIOD, (now - begin) / LIVE_SHARE) if stream.live else GRACE
            self._deadlines[index] = (now + rest, stream.version)

    def _offer(self) -> None:
        """Tell viewers where the streams lie that they opened, whenever that changed."""
        for viewer in list(self._viewers.values()):
            for index, opened in list(viewer.opened.items()):
                stream = self._stream(index)
                ref = stream.ref(opened.way) if stream is not None else None
                if ref is None or ref is opened.ref:
                    continue
                offer = messages.Offer(index, opened.way, ref, stream.note(opened.way))  # type: ignore
                if self._send(viewer, offer):
                    if opened.ref is None and isinstance(ref, messages.InPlaceRef):
                        opened.taken = ref.generation  # it never heard of older ones
                    opened.ref = ref

    def _report(self, error: BaseException) -> None:
        with contextlib.suppress(Exception):  # raising on request is for the trainer's own thread
            self._fault(error)

    def _tell_changes(self) -> None:
        now = time.monotonic()
        if not self._changed.is_set() or now - self._last_announce < _ANNOUNCE_PERIOD:
            return
        self._changed.clear()
        self._last_announce = now
        streams = tuple(s.info for s in list(self._streams.values()) if s.info is not None)
        viewers = tuple(messages.ViewerInfo(v.pid, v.client) for v in self._viewers.values())
        manifest = messages.Manifest(streams, viewers)
        for viewer in list(self._viewers.values()):
            if viewer.manifest != manifest and self._send(viewer, manifest):
                viewer.manifest = manifest

    def _stream(self, index: int) -> Stream | None:
        return next((s for s in list(self._streams.values()) if s.index == index), None)

    def _send(self, viewer: _Viewer, message: messages.ToViewer) -> bool:
        """Whether it is on its way."""
        try:
            if viewer.connection.send(messages.encode(message)):
                return True
            self._changed.set()  # its queue is full: it gets the newest state when it reads again
        except EndedError:
            self._cut(viewer.connection)
        return False
