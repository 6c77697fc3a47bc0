"""Scenes and frames as they come from a stream or a file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.scene.frames import background_of, scene_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from splatview_ipc.control.frame import StreamFrame
    from splatview_viewer.core.jobs import Job
    from splatview_viewer.core.settings import Color
    from splatview_viewer.gpu.steps import StepQueue
    from splatview_viewer.scene.scene import GaussianScene

COPIED_APART_FROM = 1 << 14
"""Gaussians from which on a frame in host memory is copied in another thread, where that
may be: fewer take a few milliseconds."""

_MAX_ARRIVAL_S = 0.5
"""Seconds for which a frame that is read in place must have arrived; then it is waited
for."""


class NewScene(NamedTuple):
    """A scene that is taken from a value."""

    scene: GaussianScene
    ready: Callable[[int], None] | None
    """As for `GaussianScene.to_host`."""
    frame: StreamFrame | None
    background: Color | None


class _LateFrame(NamedTuple):
    """The first frame that had not arrived when it came."""

    frame: StreamFrame
    first_seen_at: float
    """Time of the loop, seconds."""


class FrameArrivals:
    """Says whether frames may be read without waiting for their trainer's GPU."""

    def __init__(self) -> None:
        self._late_frame: _LateFrame | None = None

    def has_arrived(self, frame: StreamFrame, now: float) -> bool:
        """Return True if a frame may be read now; otherwise the caller brings it again.

        Waiting here for a trainer's GPU would delay everything else that is drawn. The
        newest frame of a trainer that is always ahead of its GPU has never arrived; the
        first one that was refused decides then.
        """
        if not frame.on_gpu or frame.complete:
            self._late_frame = None
            return True
        if self._late_frame is None:
            self._late_frame = _LateFrame(frame, now)
        waited = now - self._late_frame.first_seen_at
        if not self._late_frame.frame.complete and waited < _MAX_ARRIVAL_S:
            return False
        self._late_frame = None
        return True


@dataclass
class _FrameCopy:
    """A frame that another thread copies."""

    frame: StreamFrame
    job: Job[NewScene | None]
    """Its result is None if the frame was overwritten meanwhile."""


class FrameCopier:
    """Copies the scene of one large frame at a time in another thread."""

    def __init__(self, queue: StepQueue) -> None:
        self._queue = queue
        self._copy: _FrameCopy | None = None

    @property
    def frame(self) -> StreamFrame | None:
        """The frame that is copied, until its scene is taken; None: there is none."""
        if self._copy is None:
            return None
        return self._copy.frame

    def copies_apart(self, frame: StreamFrame) -> bool:
        """Return whether a frame takes long to copy."""
        means = frame.tensors.get("means")
        if frame.on_gpu or means is None:
            return False
        return means.shape[0] >= COPIED_APART_FROM

    def begin(self, frame: StreamFrame, choices: Collection[str]) -> None:
        """Copy a frame instead of the one before; it is held until then.

        Args:
            frame: in host memory.
            choices: as of `scene_of`.
        """
        self.give_up()
        frame.hold()
        copy_frame = partial(_copy_frame, frame, frozenset(choices))
        self._copy = _FrameCopy(frame, self._queue.submit(copy_frame))

    @property
    def is_done(self) -> bool:
        """True if `take` returns at once."""
        return self._copy is not None and self._copy.job.done

    def take(self) -> NewScene | None:
        """Return what was copied; None if it was overwritten meanwhile.

        Raises what copying it raised.
        """
        copy = self._copy
        assert copy is not None
        self._copy = None
        try:
            return copy.job.result()
        finally:
            copy.frame.close()

    def give_up(self) -> None:
        """Copy nothing more. Idempotent."""
        copy = self._copy
        self._copy = None
        if copy is not None:
            copy.job.cancel()
            copy.frame.close()


def _copy_frame(
    frame: StreamFrame, choices: Collection[str], _: Job[NewScene | None]
) -> NewScene | None:
    """Copy a frame in host memory; None if it was overwritten meanwhile."""
    scene, ready = scene_of(frame, choices)
    background = background_of(frame)
    if not frame.intact():
        return None
    return NewScene(scene, ready, frame, background)
