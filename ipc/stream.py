"""One published stream: the newest value, and its copy in shared memory while somebody looks.

What a call to `publish` may cost: with no reader, an attribute and a counter; with one, what the way of sharing takes
(for a ring, the copy of the tensors). It never waits for a viewer, and never for the helper thread either.
"""

from __future__ import annotations

import functools
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from ipc.board import Board
from ipc.messages import StreamInfo
from ipc.sharing import WAYS, way_for

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from ipc.sharing import FrameWriter

    Unpack = Callable[[Any], tuple[dict[str, torch.Tensor], dict[str, Any]]]

_SETTLE = 0.01
"""Seconds for which a tensor must stay unchanged after a late copy."""
_GROWTH = 1.5
"""Spare room for scenes, which grow."""


class Run(Protocol):
    """What a stream needs of the run it belongs to."""

    board: Board

    def announce(self) -> None:
        """Have the viewers told what streams there are now."""
        ...

    def fault(self, error: BaseException) -> None:
        """Count a fault of the surroundings and pass it on."""
        ...


class Stream:
    """One named thing that a run publishes."""

    def __init__(self, index: int, name: str, kind: str, run: Run):
        self.index = index
        self.name = name
        self.kind = kind
        self.version = 0
        self.value: Any = None
        """The newest value, kept so that a viewer that comes late sees it."""
        self.readers = 0
        """Viewers that opened this stream. Written by the helper thread alone."""
        self.live = False
        self._looks: tuple[tuple[int, ...], str, str] | None = None
        self._sharing = way_for("cpu")
        self._run = run
        self._unpack: Unpack | None = None
        self._words = run.board.words
        self._word = Board.version_word(index)
        self._writer: FrameWriter | None = None
        self._shared_version = 0
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
        looks = (shape, dtype, device)
        if looks == self._looks:
            return
        if way_for(device) != self._sharing:
            with self._lock:
                self._replace_writer(None)
                self._sharing = way_for(device)
        self._looks = looks
        self._run.announce()

    @property
    def info(self) -> StreamInfo | None:
        """What viewers are told; None before there is anything to tell."""
        if self._looks is None:
            return None
        writer = self._writer
        shape, dtype, device = self._looks
        return StreamInfo(self.index, self.name, self.kind, shape, dtype, device,  # type: ignore[arg-type]
                          self._sharing, writer.ref if writer is not None else None)  # type: ignore[arg-type]

    def behind(self) -> bool:
        """Whether a reader waits for a version that has not been copied."""
        return self.readers > 0 and self.value is not None and (self._shared_version != self.version or self.live)

    def catch_up(self) -> None:
        """Copy the newest value for readers who came late. For the helper thread.

        The trainer may be writing into that very tensor. A frame is handed out only if no publish came and no
        in-place operation ended on its tensors until a moment after the copy.
        """
        with self._lock:
            value, version = self.value, self.version
            if value is None or self._unpack is None or not self.behind():
                return  # the trainer came by while we waited for the lock
            if version == self._shared_version:  # a live stream: the same publish, newer contents
                version = self.version = version + 1
            tensors, meta = self._unpack(value)
            _finish_device_work(tensors)
            marks = _in_place_counts(tensors)

            def settled() -> bool:
                time.sleep(_SETTLE)
                return self.version == version and marks == _in_place_counts(tensors)

            self._write(tensors, meta, version, settled)
        self._words[self._word] = self.version

    def unshare(self) -> None:
        """Give the shared memory back when nobody reads. For the helper thread."""
        with self._lock:
            if self.readers == 0 and self._writer is not None:
                self._replace_writer(None)

    def close(self) -> None:
        with self._lock:
            self.value = self._unpack = None
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def _share(self, version: int) -> None:
        # The helper thread may be copying for a viewer that came late: it finds out by itself that it is behind.
        if not self._lock.acquire(blocking=False):
            return
        try:
            tensors, meta = self._unpack(self.value)  # type: ignore[misc]
            self._write(tensors, meta, version, None)
        except Exception as e:
            self._run.fault(e)
        finally:
            self._lock.release()

    def _write(self, tensors: dict[str, torch.Tensor], meta: dict[str, Any], version: int,
               still_wanted: Callable[[], bool] | None) -> None:
        writer = self._writer
        if writer is None or not writer.fits(tensors):
            # A scene that outgrew its memory will grow again; an image keeps its size.
            spare = _GROWTH if writer is not None or self.kind == "gaussians" else 1.0
            leased = functools.partial(self._run.board.leased, self.index)
            writer = WAYS[self._sharing].writer(tensors, spare, leased)
            self._replace_writer(writer)
        if writer.write(self.kind, tensors, meta, version, still_wanted):
            self._shared_version = version
            self._run.board.count_copy()

    def _replace_writer(self, writer: FrameWriter | None) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = writer
        self._shared_version = 0
        self._run.announce()


def _in_place_counts(tensors: dict[str, torch.Tensor]) -> list[int]:
    """How many in-place operations have ended on each tensor (inference tensors do not count)."""
    return [0 if t.is_inference() else t._version for t in tensors.values()]


def _finish_device_work(tensors: dict[str, torch.Tensor]) -> None:
    """Wait for what the trainer has queued: its streams do not order our thread's copies."""
    for device in {t.device for t in tensors.values() if t.is_cuda}:
        import torch

        torch.cuda.synchronize(device)
