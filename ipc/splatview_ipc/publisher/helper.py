"""The helper of a run: it answers viewers, and gives streams their turns.

`run`, the thread, is the only place that sleeps and reads the clock. It wakes for a
message or the death of a viewer, for `wake`, and when a stream is due; never for a
frame.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from splatview_ipc.control import messages
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.run_folder import SOCKET_NAME
from splatview_ipc.control.sockets import EndedError, Server, wait_readable
from splatview_ipc.cuda import retiring
from splatview_ipc.publisher.viewers import Viewers
from splatview_ipc.shm.control_block import DROPPED, ControlBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from splatview_ipc.control.run_folder import OwnedRunFolder
    from splatview_ipc.control.sockets import Connection
    from splatview_ipc.publisher.stream import Stream

_AFTER_FAULT_S = 1.0
"""Pause of a stream whose turn failed."""
_RETIRING_S = 0.02
"""Seconds between two checks of GPU memory that waits to be released."""
_MESSAGES_PER_TURN = 64
_CALM_PER_S = 200
"""Wakes a second by others, above which each one is followed by a rest.

No flood of messages may keep the GIL busy.
"""
_REST_S = 0.01
_JOIN_S = 5.0
"""Seconds that `close` waits for the thread."""
CLOCK = time.monotonic


class _WakeEvent:
    """Wakes the helper thread from its sleep, from any thread."""

    def __init__(self) -> None:
        """Open the event. Raises OSError."""
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """Readable once the event was set; -1 when it is closed."""
        self._is_set = False
        self._lock = threading.RLock()
        """Held while the descriptor is used or closed.

        Its number may be another file's afterwards.
        """

    def set(self) -> None:
        if self._is_set:
            return
        try:
            self._is_set = True
            with self._lock, contextlib.suppress(OSError):
                if self.fd >= 0:
                    os.eventfd_write(self.fd, 1)
        except BaseException:  # Ctrl-C: the next call sets it
            self._is_set = False
            raise

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fd)
        self._is_set = False

    def close(self) -> bool:
        """Close the event; return False if it is closed already."""
        with self._lock:
            if self.fd < 0:
                return False
            self._is_set = True
            # First: after Ctrl-C just after `close` its number may be another file's.
            fd = self.fd
            self.fd = -1
            os.close(fd)
            return True


class _Schedule:
    """The next turn of a helper, and the looks at steady trainers between two turns."""

    def __init__(self, streams: Callable[[], Iterable[Stream]]) -> None:
        self.streams = streams
        self.turn_due = 0.0
        """When a turn is due that is more than a look."""

    def has_looks_only(self, now: float) -> bool:
        """Look at the trainers for which it is time; return whether all of them go on.

        No turn is needed then.
        """
        if now >= self.turn_due:
            return False
        has_looked = False
        for stream in self.streams():
            if now >= stream.next_look:
                if not stream.goes_on(now):
                    return False
                has_looked = True
        return has_looked

    def next_due(self) -> float | None:
        """Return when the next turn or look is due; None: none is."""
        due = self.turn_due
        for stream in self.streams():
            due = min(due, stream.next_look)
        return due if due < math.inf else None


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
    ) -> None:
        """Listen for viewers. Without `start`, `turn` has to be called.

        Args:
            folder: the run's folder.
            control: the run's control block.
            streams: returns all streams of the run.
            on_request: as `Publisher.on_request`.
            fault: called with each fault of the surroundings.
            clock: returns seconds.
            endpoint: as `mail.endpoint`.

        Raises:
            SharingError: no socket can be opened.
        """
        self.clock = clock
        self._folder = folder
        self._control = control
        self._schedule = _Schedule(streams)
        self._fault = fault
        self._closing = False
        self._thread: threading.Thread | None = None
        self._has_ended = threading.Event()
        """Set at the end of the thread."""
        try:
            self._server = Server(folder.path / SOCKET_NAME)
            try:
                self._wake_event = _WakeEvent()
            except OSError:
                self._server.close()
                raise
        except OSError as error:
            raise SharingError(
                f"viewers cannot be answered in {folder.path.parent}: {error.strerror}"
            ) from None
        self.wake = self._wake_event.set
        """Have a turn taken soon, in which streams and manifests are looked at.

        May be called from any thread.
        """
        self._viewers = Viewers(
            folder.path, self._server, control, streams, on_request, endpoint
        )

    def hasten(self) -> None:
        """Have viewers told of new streams now: one of them waits for it.

        May be called from any thread.
        """
        if self._viewers.announcer.hasten():
            self.wake()

    def start(self) -> None:
        """Start the thread that takes the turns. Raises SharingError."""
        # Known before it is started: Ctrl-C amid `start` leaves a thread that runs.
        self._thread = threading.Thread(target=self.run, name="splatview", daemon=True)
        try:
            self._thread.start()
        except (OSError, RuntimeError) as error:
            raise SharingError(f"viewers cannot be answered: {error}") from None

    def close(self) -> bool:
        """End the thread, and close the sockets. Idempotent.

        Returns False if the thread is busy: it closes them itself later.
        """
        self._closing = True
        thread = self._thread
        if thread is None or thread.ident is None:  # there is none that runs
            self._release()
            return True
        self.wake()
        # Ctrl-C amid `join` has Python 3.11 and 3.12 take a thread for ended that runs:
        # only a thread that has ended is joined.
        if not self._has_ended.wait(_JOIN_S):
            return False
        thread.join(_JOIN_S)
        return True

    def fds(self) -> list[int]:
        """Return the descriptors to wait for."""
        return [self._wake_event.fd, *self._server.fds(), *self._viewers.pidfds()]

    def run(self) -> None:
        """Take turns until `close` is called."""
        due: float | None = 0.0
        wake_count = 0
        counted_since = 0.0
        try:
            while not self._closing:
                ready = wait_readable(self.fds(), self._milliseconds_until(due))
                now = self.clock()
                if now >= counted_since + 1:
                    wake_count = 0
                    counted_since = now
                wake_count += bool(ready - {self._wake_event.fd})
                if wake_count > _CALM_PER_S:
                    time.sleep(_REST_S)
                try:
                    due = self.turn(now, ready)
                except Exception as error:
                    # Whatever happens here must never reach the training.
                    self._report(error)
                    due = now + _AFTER_FAULT_S
                    time.sleep(_REST_S)
            self._announce_last()
        finally:
            self._release()
            self._has_ended.set()

    def _announce_last(self) -> None:
        """Tell viewers of what was published since the last turn."""
        self._viewers.announcer.announce_soon()
        try:
            self._viewers.announce(self.clock())
        except Exception as error:
            self._report(error)

    def _milliseconds_until(self, due: float | None) -> int | None:
        if due is None:
            return None
        return max(0, math.ceil((due - self.clock()) * 1000))

    def turn(self, now: float, ready: set[int]) -> float | None:
        """Do all that can be done now.

        Args:
            now: the clock's seconds.
            ready: those of `fds` that are readable.

        Returns:
            When to be called again; None: when one of `fds` is readable.
        """
        schedule = self._schedule
        if not ready and schedule.has_looks_only(now):
            return schedule.next_due()
        schedule.turn_due = 0.0  # if this turn fails
        if self._wake_event.fd in ready:
            self._wake_event.clear()
            self._viewers.announcer.must_announce = True
        if ready:
            self._viewers.detach_dead(ready)
        if self._server.must_accept(now, ready):
            try:
                # Most of them have introduced themselves already.
                ready = ready | self._server.accept(now)
            except SharingError as error:
                self._report(error)
        if ready:
            self._receive(ready)
        due_times: list[float | None] = [
            self._folder.refresh(now),
            self._server.next_accept_at(),
        ]
        for stream in schedule.streams():
            try:
                due_times.append(stream.turn(now))
            except Exception as error:
                self._report(error)
                due_times.append(now + _AFTER_FAULT_S)
        due_times.append(self._viewers.announce(now))
        if not retiring.release_idle():
            due_times.append(now + _RETIRING_S)
        turn_due = min((t for t in due_times if t is not None), default=math.inf)
        schedule.turn_due = turn_due
        return schedule.next_due()

    def _receive(self, ready: set[int]) -> None:
        """Take messages of the connections that are readable, some of each."""
        connections = self._server.connections.items()
        talking = [connection for fd, connection in connections if fd in ready]
        for connection in talking:
            for _ in range(max(1, _MESSAGES_PER_TURN // len(talking))):
                if not self._take_message(connection):
                    break

    def _take_message(self, connection: Connection) -> bool:
        """Take one message; return whether there may be another one."""
        try:
            packet = connection.receive()
            if packet is None:
                return False
            message = messages.decode_to_trainer(packet[0])
        except EndedError:
            self._viewers.detach(connection)
            return False
        except messages.DecodeError:
            self._control.words[DROPPED] += 1
            return True
        try:
            if not self._viewers.handle(connection, message):
                self._control.words[DROPPED] += 1
        except EndedError:
            self._viewers.detach(connection)
        except Exception as error:
            self._report(error)
        return True

    def _report(self, error: BaseException) -> None:
        # Raising on request is for the trainer's own thread.
        with contextlib.suppress(Exception):
            self._fault(error)

    def _release(self) -> None:
        """Close all that was opened. Idempotent."""
        if self._wake_event.close():
            self._viewers.close()
            self._server.close()
