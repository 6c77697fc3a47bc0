"""The states of the camera and of the training's cameras, parts of a view's state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from splatview_viewer.geometry.orbit import Orbit, OrbitPlace

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.geometry.cameras import Camera


@dataclass(frozen=True)
class CameraPlace:
    """The camera of a view."""

    framed: bool = False
    """False: the next picture chooses the camera, so that the whole scene is seen."""
    orbit: OrbitPlace = Orbit().place
    exact_camera: Camera | None = None
    """Exactly this one is used until the user moves it; None: that of `orbit`."""
    seen_in: tuple[int, int] | None = None
    """Size of the rectangle that the camera is for. Other rectangles show all that is
    seen in it. None: the camera is for any rectangle."""
    up_by: Literal["", "found", "user"] = ""
    """Origin of the direction upward."""
    by_hand: bool = False
    """The user has moved the camera."""

    def seen_from(self, rect: Rect) -> CameraPlace:
        """Return a place with which other rectangles show all that `rect` shows."""
        return replace(self, seen_in=self.seen_in or (rect.width, rect.height))


@dataclass(frozen=True)
class TrainingDisplay:
    """The training cameras in a view."""

    shown: bool = True
    pictures: bool = True
    """Their photographs are seen in them."""
    size: float = 1.0
    """Size of frustums, times what fits."""
    through: int | None = None
    """The camera that the view looks through."""
    comparison: Literal["render", "photo", "wipe", "side", "error"] = "wipe"
    """Comparison of its photograph with the picture."""
    opacity: float = 1.0
    """Opacity of the photograph."""
    gain: float = 4.0
    """Factor of errors."""
    divider_position: float = 0.5
    """The line between both, 0 to 1 from the left."""
