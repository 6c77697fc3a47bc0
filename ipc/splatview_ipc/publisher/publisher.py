"""A run: everything that one process publishes."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from splatview_ipc.control import descriptors, limits, mail
from splatview_ipc.control.run_folder import create_run
from splatview_ipc.cuda import retiring
from splatview_ipc.publisher.helper import CLOCK, Helper
from splatview_ipc.publisher.stream import Stream
from splatview_ipc.shm.control_block import FAULTS, ControlBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class RunRole(NamedTuple):
    """The role of a run, by which viewers find it."""

    hidden: bool = False
    """True if only a viewer that knows the run's id finds it."""
    parent_run: str = ""
    """Id of the run for which this one works; "": for none."""


PLAIN_RUN = RunRole()


class Publisher:
    """A run: everything that this process publishes."""

    def __init__(
        self,
        name: str | None = None,
        on_fault: Callable[[BaseException], None] | None = None,
        *,
        role: RunRole = PLAIN_RUN,
        threaded: bool = True,
        clock: Callable[[], float] = CLOCK,
        endpoint: Callable[[Path, str], str] = mail.endpoint,
    ) -> None:
        """Make the run's folder and start answering viewers.

        Args:
            name: the run's name for users; the script's name by default.
            on_fault: called with every fault of the surroundings that happens later.
            role: who finds the run.
            threaded: for tests; False: the caller turns `helper`.
            clock: for tests: returns seconds.
            endpoint: for tests: as `mail.endpoint`.

        Raises:
            IpcError: the folder, the memory or the socket cannot be made.
        """
        self.streams: dict[str, Stream] = {}
        """By name. Replaced, never changed in place, since several threads read it."""
        self.on_request: dict[tuple[str, str], Callable[[Any], None]] = {}
        """By message ("Open", "Snapshot", "Photos", "Draw", "SetControl",
        "SelectionMask") and stream.

        Called with a viewer's request, from the helper thread.
        """
        self._on_fault = on_fault
        self._lock = threading.RLock()
        """Reentrant: a signal's handler may publish something new amid `stream`."""
        self._indices = itertools.count()
        run_name = name or script_name()
        self.folder = create_run(run_name, os.getpid(), time.time(), *role)
        with contextlib.ExitStack() as undoing:
            undoing.callback(self.folder.remove)
            self.control = ControlBlock()
            undoing.callback(self.control.close)
            self.helper = Helper(
                self.folder,
                self.control,
                self._list_streams,
                self.on_request,
                self.fault,
                clock=clock,
                endpoint=endpoint,
            )
            undoing.callback(self.helper.close)
            if threaded:
                self.helper.start()
            self.now = self.helper.clock
            _open_publishers.append(self)
            undoing.pop_all()

    @property
    def run_id(self) -> str:
        return self.folder.description.id

    def stream(self, name: str, kind: str) -> Stream:
        """Return the stream of this name; make it if there is none.

        Raises ValueError when it exists with another kind or when there are too many.
        """
        with self._lock:
            stream = self.streams.get(name)
            if stream is None:
                return self._add_stream(name, kind)
            if stream.kind != kind:
                raise ValueError(
                    f"stream {name!r} shows {stream.kind} since it was first "
                    f"published, not {kind}; use another name"
                )
            return stream

    def _add_stream(self, name: str, kind: str) -> Stream:
        """Make a stream. Under the lock."""
        if len(self.streams) >= limits.MAX_STREAMS:
            raise ValueError(
                f"stream {name!r} is one too many: a run has at most "
                f"{limits.MAX_STREAMS}; publish under a name you used before"
            )
        stream = Stream(next(self._indices), name, kind, self)
        self.streams = {**self.streams, name: stream}
        return stream

    def _list_streams(self) -> Iterable[Stream]:
        return self.streams.values()

    def wake(self) -> None:
        """Have the helper thread give each stream its turn, and send what changed.

        May be called from any thread.
        """
        self.helper.wake()

    def hasten(self, stream: Stream) -> None:
        """Have nothing delay a stream, nor what lies over it: a reader waits for them.

        Neither what their last publishes left to the helper, nor their announcement.
        """
        for candidate in self.streams.values():
            if candidate is stream or candidate.over.name == stream.name:
                candidate.hasten()
        self.helper.hasten()

    def fault(self, error: BaseException) -> None:
        """Count a fault of the surroundings and report it."""
        self.control.words[FAULTS] += 1
        if self._on_fault is not None:
            self._on_fault(error)

    def close(self, ending: bool = False) -> None:
        """End the run and release everything. Idempotent; never raises.

        Args:
            ending: True at the end of the process: the last version is written, and
                viewers keep what they have mapped.
        """
        if self not in _open_publishers:
            return
        has_ended = self.helper.close()
        streams = self.streams.values()
        if has_ended and ending:
            for stream in streams:
                stream.finish()
        self.folder.remove()
        if not ending:
            for stream in streams:
                stream.end()
            self.control.close()
            retiring.release_all()
        # A signal's handler may have closed it meanwhile.
        with contextlib.suppress(ValueError):
            _open_publishers.remove(self)

    def abandon(self) -> None:
        """Leave the run to the parent, in a forked child.

        Keep this object: nothing of it may be torn down there.
        """
        _open_publishers.remove(self)
        self.folder.abandon()
        descriptors.abandon()


_open_publishers: list[Publisher] = []


def is_own(run_id: str) -> bool:
    """Return whether a run is one of this very process."""
    return any(publisher.run_id == run_id for publisher in _open_publishers)


def script_name() -> str:
    """Return the name of the running script, for users: that of its run by default."""
    script = sys.argv[0] if sys.argv else ""
    if script and script != "-c":
        return Path(script).stem
    return "python"
