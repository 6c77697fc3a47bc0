"""Scenes and frames as they come from a stream or a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_ipc.control.frame import StreamFrame
    from splatview_viewer.core.settings import Color
    from splatview_viewer.scene.scene import GaussianScene

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
