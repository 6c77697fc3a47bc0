"""The helper of a run: it owns the trainer's sockets, answers viewers, and gives streams their turns.

`run`, the thread, is the only place that sleeps and reads the clock. It wakes for a message or the death of a viewer,
for `wake`, and when a stream is due; never for a frame.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from splatview_ipc.control import descriptors, limits, mail, messages
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.run_folder import SOCKET_NAME
from splatview_ipc.control.sockets import EndedError, Server, pid_namespace, wait_for
from splatview_ipc.shm.control_block import DROPPED, ControlBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from splatview_ipc.control.messages import Ref
    from splatview_ipc.control.run_folder import OwnedRunFolder
    from splatview_ipc.control.sockets import Connection
    from splatview_ipc.publisher.stream import Stream

_TELL_PERIOD_S = 0.05
"""Time between two manifests, and until what a full queue did not take is sent again."""
_AFTER_FAULT_S = 1.0
"""Pause of a stream whose turn failed."""
_RETIRING_S = 0.02
"""Time between two checks of GPU memory that waits to be given back."""
_MESSAGES_PER_TURN = 64
_CALM_PER_S = 200
_REST_S = 0.01
"""Wakes a second by others after which each one is followed by a rest: no flood may keep the GIL busy."""
_JOIN_S = 5.0
CLOCK = time.monotonic


@dataclass
class _ViewerPeer:
    connection: Connection
    hello: messages.Hello
    push: mail.Push
    pidfd: int = -1
    """Becomes readable when the viewer dies, even if a process that it forked keeps the connection; -1: none."""
    paused: bool = False
    manifest: messages.Manifest | None = None
    """The manifest sent last."""
    opened: dict[int, str] = field(default_factory=dict)
    """Transports, by stream."""
    offered: dict[int, Ref] = field(default_factory=dict)
    """References sent last, by stream."""

    def close(self) -> None:
        self.push.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)


class Helper:
    """Answers viewers on behalf of a run."""

    def __init__(
        self,
        folder: OwnedRunFolder,
        control: ControlBlock,
        streams: Callable[[], Iterable[Stream]],
        on_request: dict[tuple[str, str], Callable[[Any], None]],
        fault: Callable[[BaseException], None],
        *,
        clock: Callable[[], float],
        endpoint: Callable[[Path, str], str],
    ):
        """The arguments are the run's own; `streams` returns all there are. Without `start`, `turn` has to be called.

        Raises SharingError.
        """
        self._folder = folder
        self._control = control
        self._streams = streams
        self._on_request = on_request
        self._fault = fault
        self.clock = clock
        self._endpoint = endpoint
        self._viewers: dict[Connection, _ViewerPeer] = {}
        self._told = -math.inf
        self._changed = False
        """Clock time of the last manifests; True if something is to be sent."""
        self._woken = False
        self._closing = False
        self._wake_lock = threading.RLock()
        """Held while the descriptor of `wake` is used or closed: its number may be another file's afterwards."""
        self._thread: threading.Thread | None = None
        self._has_ended = threading.Event()
        """Set at the end of the thread."""
        try:
            self._server = Server(folder.path / SOCKET_NAME)
            try:
                self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            except OSError:
                self._server.close()
                raise
        except OSError as e:
            raise SharingError(
                f"viewers cannot be answered in {folder.path.parent}: {e.strerror}"
            ) from None

    def start(self) -> None:
        """Start the thread that takes the turns. Raises SharingError."""
        # Known before it is started: Ctrl-C amid `start` leaves a thread that runs.
        self._thread = threading.Thread(target=self.run, name="splatview", daemon=True)
        try:
            self._thread.start()
        except (OSError, RuntimeError) as e:
            raise SharingError(f"viewers cannot be answered: {e}") from None

    def wake(self) -> None:
        """Have a turn taken soon, in which streams and manifests are looked at. Any thread may call it."""
        if self._woken:
            return
        try:
            self._woken = True
            with self._wake_lock, contextlib.suppress(OSError):
                if self._wake >= 0:
                    os.eventfd_write(self._wake, 1)
        except BaseException:  # Ctrl-C: the next call wakes
            self._woken = False
            raise

    def close(self) -> bool:
        """End the thread, and close the sockets. False: it is busy, and closes them itself later. Idempotent."""
        self._closing = True
        thread = self._thread
        if thread is None or thread.ident is None:  # there is none that runs
            self._give_back()
            return True
        self.wake()
        # Ctrl-C amid `join` has Python 3.11 and 3.12 take a thread for ended that runs: it only joins one that ended.
        if not self._has_ended.wait(_JOIN_S):
            return False
        thread.join(_JOIN_S)
        return True

    def fds(self) -> list[int]:
        """Return the descriptors to wait for."""
        return [
            self._wake,
            *self._server.fds(),
            *(v.pidfd for v in self._viewers.values() if v.pidfd >= 0),
        ]

    def run(self) -> None:
        """Take turns until `close` is called."""
        due: float | None = 0.0
        woken = 0
        since = 0.0
        try:
            while not self._closing:
                if due is None:
                    left = None
                else:
                    left = max(0, math.ceil((due - self.clock()) * 1000))
                ready = wait_for(self.fds(), left)
                now = self.clock()
                if now >= since + 1:
                    woken = 0
                    since = now
                woken += bool(ready - {self._wake})
                if woken > _CALM_PER_S:
                    time.sleep(_REST_S)
                try:
                    due = self.turn(now, ready)
                except (
                    Exception
                ) as e:  # whatever happens here must never reach the training
                    self._report(e)
                    due = now + _AFTER_FAULT_S
                    time.sleep(_REST_S)
        finally:
            self._give_back()
            self._has_ended.set()

    def turn(self, now: float, ready: set[int]) -> float | None:
        """Do all that can be done now, `ready` being those of `fds` that are; return when to be called again, None:
        when one of them is ready.
        """
        if self._wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)
            self._woken = False
            self._changed = True
        for viewer in [v for v in self._viewers.values() if v.pidfd in ready]:
            self._cut(viewer.connection)
        talking = [c for fd, c in self._server.connections.items() if fd in ready]
        for connection in talking:
            for _ in range(max(1, _MESSAGES_PER_TURN // len(talking))):
                if not self._take_from(connection):
                    break
        if ready or now >= self._server.due():
            try:
                self._server.accept(now)
            except SharingError as e:
                self._report(e)
        due: list[float | None] = [self._folder.refresh(now), self._server.due()]
        for stream in self._streams():
            try:
                due.append(stream.turn(now))
            except Exception as e:
                self._report(e)
                due.append(now + _AFTER_FAULT_S)
        due.append(self._tell(now))
        retiring = sys.modules.get("splatview_ipc.cuda.retiring")
        if retiring is not None and not retiring.turn():
            due.append(now + _RETIRING_S)
        soonest = min((when for when in due if when is not None), default=math.inf)
        return soonest if soonest < math.inf else None

    def _take_from(self, connection: Connection) -> bool:
        """Take one message; return whether there may be another one."""
        try:
            packet = connection.receive()
            if packet is None:
                return False
            message = messages.decode_to_trainer(packet[0])
        except EndedError:
            self._cut(connection)
            return False
        except messages.DecodeError:
            self._control.words[DROPPED] += 1
            return True
        try:
            viewer = self._viewers.get(connection)
            if isinstance(message, messages.Hello) and viewer is None:
                self._welcome(connection, message)
            elif viewer is None or not self._handle(viewer, message):
                self._control.words[DROPPED] += 1
        except EndedError:
            self._cut(connection)
        except Exception as e:
            self._report(e)
        return True

    def _handle(self, viewer: _ViewerPeer, message: messages.ToTrainer) -> bool:
        """Serve a viewer's request. False: the request is invalid. Raises EndedError."""
        if isinstance(message, messages.Fetch):
            descriptors.send(viewer.connection, message.token)
        elif isinstance(message, messages.Open):
            index = message.index
            transport = message.transport
            stream = self._by_index().get(index)
            if (
                stream is None
                or (info := stream.info) is None
                or transport not in info.transports
            ):
                return False
            before = viewer.opened.get(index)
            viewer.offered.pop(index, None)  # a repeated Open requests the offer again
            if transport != before:
                stream.open(transport)
                viewer.opened[index] = transport
                if before is not None:
                    stream.release(before)
        elif isinstance(message, messages.Release):
            return self._release(viewer, message.index)
        elif isinstance(message, messages.Snapshot | messages.Photos):
            if message.index not in viewer.opened:
                return False
            call = self._on_request.get(
                (type(message).__name__, self._by_index()[message.index].name)
            )
            if call is not None:
                call(message)
        elif isinstance(message, messages.Pause):
            for one in (viewer,) if message.paused else self._viewers.values():
                one.paused = message.paused
            self._tell_pause()
        elif isinstance(message, messages.Step):
            self._control.granted += self._control.paused
        elif isinstance(message, messages.Bye):
            self._cut(viewer.connection)
        else:
            return False
        return True

    def _welcome(self, connection: Connection, hello: messages.Hello) -> None:
        reason = ""
        push = None
        if hello.protocol != limits.PROTOCOL or not hello.inbox:
            reason = messages.mismatch(
                (hello.version, hello.protocol), (limits.VERSION, limits.PROTOCOL)
            )
        elif len(self._viewers) >= limits.MAX_VIEWERS:
            reason = f"{limits.MAX_VIEWERS} viewers are attached to this run already: close one"
        else:
            try:
                push = mail.Push(self._endpoint(self._folder.path, hello.inbox))
            except SharingError as e:
                reason = f"the run cannot answer now: {e}"
        if push is None:
            connection.send(messages.encode(messages.Refused(reason)))
            self._cut(connection)  # what was sent arrives
            return
        viewer = _ViewerPeer(connection, hello, push)
        self._viewers[connection] = viewer
        connection.until = math.inf
        if hello.namespace in (0, pid_namespace()):
            with contextlib.suppress(OSError):  # its connection tells
                viewer.pidfd = os.pidfd_open(hello.pid)
        push.send(messages.encode(messages.Welcome(self._control.segment.ref)))
        self._told = -math.inf
        self._changed = True

    def _by_index(self) -> dict[int, Stream]:
        return {stream.index: stream for stream in self._streams()}

    def _release(self, viewer: _ViewerPeer, index: int) -> bool:
        transport = viewer.opened.pop(index, None)
        if transport is None:
            return False
        viewer.offered.pop(index, None)
        self._by_index()[index].release(transport)
        return True

    def _cut(self, connection: Connection) -> None:
        """End a connection, and take back all that its viewer has. Idempotent."""
        viewer = self._viewers.pop(connection, None)
        self._server.close_one(connection)
        if viewer is None:
            return
        for index in list(viewer.opened):
            self._release(viewer, index)
        viewer.close()
        with contextlib.suppress(OSError):  # of a viewer that was killed
            (self._folder.path / viewer.hello.inbox).unlink()
        self._tell_pause()  # its pause ends with it
        self._changed = True

    def _tell_pause(self) -> None:
        by = [
            f"{v.hello.client or 'viewer'} (process {v.hello.pid})"
            for v in self._viewers.values()
            if v.paused
        ]
        self._control.pause(
            " and ".join([*by[:2], *(["others"] if len(by) > 2 else [])])
        )

    def _manifest(self, streams: Iterable[Stream]) -> messages.Manifest:
        infos = [stream.info for stream in streams]
        return messages.Manifest(
            tuple(info for info in infos if info is not None),
            tuple(
                messages.ViewerInfo(v.hello.pid, v.hello.client)
                for v in self._viewers.values()
            ),
        )

    def _tell(self, now: float) -> float | None:
        """Send offers and manifests that have changed; return when the rest is due."""
        streams = self._by_index()
        if self._changed and now >= self._told + _TELL_PERIOD_S:
            self._told = now
            self._changed = False
            manifest = self._manifest(streams.values())
            packets: list[bytes] = []
            for viewer in self._viewers.values():
                if viewer.manifest == manifest:
                    continue
                packets = packets or _packets(manifest)
                if all(map(viewer.push.send, packets)):
                    viewer.manifest = manifest
                else:
                    self._changed = True
        for viewer in self._viewers.values():
            for index, transport in viewer.opened.items():
                offer = streams[index].offer(transport)
                if offer is None or offer[0] is viewer.offered.get(index):
                    continue
                message = messages.Offer(index, transport, *offer)  # type: ignore[arg-type]
                if viewer.push.send(messages.encode(message)):
                    viewer.offered[index] = offer[0]
                else:
                    self._changed = True
        return self._told + _TELL_PERIOD_S if self._changed and self._viewers else None

    def _report(self, error: BaseException) -> None:
        with contextlib.suppress(
            Exception
        ):  # raising on request is for the trainer's own thread
            self._fault(error)

    def _give_back(self) -> None:
        """Idempotent."""
        with self._wake_lock:
            if self._wake < 0:
                return
            self._woken = True
            # First: after Ctrl-C behind `close` its number may be another file's.
            wake = self._wake
            self._wake = -1
            os.close(wake)
        for viewer in self._viewers.values():
            viewer.close()
        self._server.close()


def _packets(manifest: messages.Manifest) -> list[bytes]:
    """Return a manifest as messages, in as many as its streams need."""
    packet = messages.encode(manifest)
    streams = manifest.streams
    if len(packet) <= limits.MAX_MESSAGE or len(streams) < 2:
        return [packet]
    middle = len(streams) // 2
    first = messages.Manifest(streams[:middle], manifest.viewers, continued=True)
    rest = messages.Manifest(streams[middle:], manifest.viewers, manifest.continued)
    return [*_packets(first), *_packets(rest)]
