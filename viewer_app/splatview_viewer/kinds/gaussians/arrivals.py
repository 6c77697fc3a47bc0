"""Scenes and frames as they come from a stream or a file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.scene.frames import background_of, scene_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from splatview_ipc.control.frame import StreamFrame
    from splatview_viewer.blocks.unpacking import SceneBlocks
    from splatview_viewer.core.jobs import Job
    from splatview_viewer.core.settings import Color
    from splatview_viewer.gpu.steps import StepQueue
    from splatview_viewer.kinds.gaussians.cache import SceneCache
    from splatview_viewer.scene.scene import GaussianScene

COPIED_APART_FROM = 1 << 14
"""Gaussians from which on a frame in host memory is copied in another thread, where that
may be: fewer take a few milliseconds."""

_MAX_ARRIVAL_S = 0.5
"""Seconds for which a frame that is read in place must have arrived; then it is waited
for."""
_BACKGROUND_PERIOD = 1.0
"""Seconds between looks at a background colour on a GPU, which wait for it."""


class NewScene(NamedTuple):
    """A scene that is taken from a value."""

    scene: GaussianScene
    ready: Callable[[int], None] | None
    """As for `GaussianScene.to_host`."""
    frame: StreamFrame | None
    background: Color | None
    blocks: SceneBlocks | None = None
    """The same scene in packed blocks, where it was read from them."""


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


class FrameReader:
    """Reads the scenes of frames for a `SceneCache`."""

    def __init__(self, cache: SceneCache) -> None:
        self.copier = FrameCopier(cache.work.steps)
        self._cache = cache
        self._arrivals = FrameArrivals()
        self._background_at = -math.inf

    def read(self, frame: StreamFrame, in_steps: bool) -> NewScene | None:
        """Return the scene of a frame.

        Returns None while it cannot be read, and if it was overwritten meanwhile.

        Args:
            frame: the frame; the same one again while it is copied.
            in_steps: a large one may be copied in another thread.
        """
        if not self._arrivals.has_arrived(frame, self._cache.now):
            return None
        copier = self.copier
        if copier.frame is frame:
            if not copier.is_done:
                return None
            return copier.take()
        copier.give_up()
        if in_steps and copier.copies_apart(frame):
            self._cache.on_gpu = False
            copier.begin(frame, self._cache.choices)
            return None
        new = self._read_at_once(frame)
        if not frame.intact():
            return None
        return new

    def _read_at_once(self, frame: StreamFrame) -> NewScene:
        """Read the scene of a frame, in place where that is possible."""
        cache = self._cache
        with cache.stopwatch("copy"):
            cache.on_gpu = frame.on_gpu and cache.renderer.reads_gpu
            scene, ready = scene_of(frame, cache.choices, in_place=cache.on_gpu)
            background = cache.background
            is_due = cache.now - self._background_at >= _BACKGROUND_PERIOD
            if not frame.on_gpu or is_due:
                background = background_of(frame)
                self._background_at = cache.now
        return NewScene(scene, ready, frame, background)
