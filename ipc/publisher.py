"""The trainer's side of a run: streams that are published, and the one thread that answers viewers.

What a call to `Stream.publish` may cost: with no reader, an attribute and a counter; with one, the copy of the
tensors into the ring. It never waits for a viewer, and never for the helper thread either.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipc import limits
from ipc.board import Board
from ipc.messages import StreamInfo
from ipc.ring import RingWriter, data_bytes
from ipc.runs import create_run

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from ipc.transport import Helper

    Unpack = Callable[[Any], tuple[dict[str, torch.Tensor], dict[str, Any]]]

_SETTLE = 0.01
_GROWTH = 1.5


class Stream:
    """One named thing that a run publishes."""

    def __init__(self, publisher: Publisher, index: int, name: str, kind: str):
        self.publisher = publisher
        self.index = index
        self.name = name
        self.kind = kind
        self.version = 0
        self.value: Any = None
        """The newest value, kept so that a viewer that comes late sees it."""
        self.readers = 0
        """Viewers that opened this stream. Written by the helper thread alone."""
        self.live = False
        self.info: StreamInfo | None = None
        self._unpack: Unpack | None = None
        self._words = publisher.board.words
        self._word = Board.version_word(index)
        self._ring: RingWriter | None = None
        self._ring_version = 0
        self._lock = threading.Lock()

    def publish(self, value: Any) -> None:
        """Make `value` the newest version. `describe` must have been called for a value of this form."""
        self.value = value
        self.version = version = self.version + 1
        if self.readers:
            self._share(version)
        self._words[self._word] = version

    def describe(self, shape: tuple[int, ...], dtype: str, device: str, unpack: Unpack) -> None:
        """Say what is published from now on; `unpack(value)` gives its tensors by name, and metadata.

        Metadata values are bool, int, float, str or tuples of float.
        """
        self._unpack = unpack
        sharing = "ring" if device == "cpu" else "host"
        info = StreamInfo(self.index, self.name, self.kind, shape, dtype, device,  # type: ignore[arg-type]
                          sharing, self.info.ring if self.info else None)
        if info != self.info:
            self.info = info
            self.publisher.announce()

    def behind(self) -> bool:
        """Whether a reader waits for a version that has not been copied."""
        return self.readers > 0 and self.value is not None and (self._ring_version != self.version or self.live)

    def catch_up(self) -> None:
        """Copy the newest value for readers who came late. For the helper thread.

        The trainer may be writing into that very tensor. A frame is handed out only if no publish came and no
        in-place operation ended on its tensors until a moment after the copy.
        """
        with self._lock:
            value, version = self.value, self.version
            if value is None or self._unpack is None or not self.behind():
                return  # the trainer came by while we waited for the lock
            if version == self._ring_version:  # a live stream: the same publish, newer contents
                version = self.version = version + 1
            tensors, meta = self._unpack(value)
            _finish_device_work(tensors)
            marks = _in_place_counts(tensors)

            def settled() -> bool:
                time.sleep(_SETTLE)
                return self.version == version and marks == _in_place_counts(tensors)

            self._write(tensors, meta, version, settled)
        self._words[self._word] = self.version

    def drop_ring(self) -> None:
        """Give the shared memory back when nobody reads. For the helper thread."""
        with self._lock:
            if self.readers == 0 and self._ring is not None:
                self._replace_ring(None)

    def close(self) -> None:
        with self._lock:
            self.value = self._unpack = None
            if self._ring is not None:
                self._ring.close()
                self._ring = None

    def _share(self, version: int) -> None:
        # The helper thread may be copying for a viewer that came late: it finds out by itself that it is behind.
        if not self._lock.acquire(blocking=False):
            return
        try:
            tensors, meta = self._unpack(self.value)  # type: ignore[misc]
            self._write(tensors, meta, version, None)
        except Exception as e:
            self.publisher.fault(e)
        finally:
            self._lock.release()

    def _write(self, tensors: dict[str, torch.Tensor], meta: dict[str, Any], version: int,
               still_wanted: Callable[[], bool] | None) -> None:
        ring = self._ring
        if ring is None or not ring.fits(tensors):
            needed = data_bytes(tensors)
            # A scene that outgrew its ring will grow again; an image keeps its size.
            spare = _GROWTH if ring is not None or self.kind == "gaussians" else 1.0
            ring = RingWriter(int(needed * spare))
            ring.leased = lambda: self.publisher.board.leased(self.index)
            self._replace_ring(ring)
        if ring.write(self.kind, tensors, meta, version, still_wanted):
            self._ring_version = version
            self.publisher.board.count_copy()

    def _replace_ring(self, ring: RingWriter | None) -> None:
        if self._ring is not None:
            self._ring.close()
        self._ring = ring
        self._ring_version = 0
        if self.info is not None:
            import msgspec

            self.info = msgspec.structs.replace(self.info, ring=ring.segment.ref if ring else None)
        self.publisher.announce()


class Publisher:
    """A run: everything that this process publishes."""

    def __init__(self, name: str | None = None, on_fault: Callable[[BaseException], None] | None = None):
        """Make the run's folder and start answering viewers.

        `name`: what people call the run; the script's name by default. `on_fault` hears of every fault of the
        surroundings that happens later; they are counted anyway, and never raised.
        Raises IpcError when the run cannot be made.
        """
        from ipc.transport import Helper

        self.pid = os.getpid()
        self.streams: dict[str, Stream] = {}
        self._on_fault = on_fault
        self._lock = threading.Lock()
        self.folder = create_run(name or _script_name(), self.pid, time.time())
        try:
            self.board = Board()
            self._helper: Helper = Helper(self)
        except BaseException:
            self.folder.remove()
            raise
        _open_publishers.append(self)

    @property
    def run_id(self) -> str:
        return self.folder.description.id

    def stream(self, name: str, kind: str) -> Stream:
        """The stream of this name, made if need be.

        Raises ValueError when it exists with another kind or when there are too many.
        """
        with self._lock:
            stream = self.streams.get(name)
            if stream is None:
                if len(self.streams) >= limits.MAX_STREAMS:
                    raise ValueError(f"stream {name!r} is one too many: a run has at most {limits.MAX_STREAMS}; "
                                     "publish under a name you used before")
                stream = self.streams[name] = Stream(self, len(self.streams), name, kind)
            elif stream.kind != kind:
                raise ValueError(f"stream {name!r} shows {stream.kind} since it was first published, not {kind}; "
                                 "use another name")
            return stream

    def announce(self) -> None:
        """Have the helper thread tell viewers what streams there are now."""
        self._helper.announce()

    def fault(self, error: BaseException) -> None:
        """Count a fault of the surroundings and pass it on."""
        self.board.count_fault()
        if self._on_fault is not None:
            self._on_fault(error)

    def close(self) -> None:
        """End the run and give everything back. Idempotent; never raises."""
        if self not in _open_publishers:
            return
        _open_publishers.remove(self)
        if os.getpid() != self.pid:
            return
        self._helper.close()
        for stream in list(self.streams.values()):
            stream.close()
        self.folder.remove()
        self.board.close()


def _in_place_counts(tensors: dict[str, torch.Tensor]) -> list[int]:
    """How many in-place operations have ended on each tensor (inference tensors do not count)."""
    return [0 if t.is_inference() else t._version for t in tensors.values()]


def _finish_device_work(tensors: dict[str, torch.Tensor]) -> None:
    """Wait for what the trainer has queued: its streams do not order our thread's copies."""
    for device in {t.device for t in tensors.values() if t.is_cuda}:
        import torch

        torch.cuda.synchronize(device)


def _script_name() -> str:
    argv = sys.argv[0] if sys.argv else ""
    return Path(argv).stem if argv and argv != "-c" else "python"


_open_publishers: list[Publisher] = []
_inherited: list[Publisher] = []


def _after_fork_in_child() -> None:
    """The run stays the parent's. The child lets go of its lock, and keeps the rest from being torn down."""
    for publisher in _open_publishers:
        publisher.folder.abandon()
        _inherited.append(publisher)
    _open_publishers.clear()


def _at_exit() -> None:
    for publisher in list(_open_publishers):
        publisher.close()


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
