"""Parts of the state of a view of a scene: its camera, and the training cameras."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from splatview_viewer.geometry.orbit import Orbit, OrbitPlace

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.geometry.cameras import Camera


UpSource = Literal["", "file", "cameras", "custom", "ground", "user"]
"""What says which direction is upward; "" while nothing has said it."""


@dataclass(frozen=True)
class CameraPlace:
    """Places the camera of a view, and says how it came there."""

    framed: bool = False
    """False until the camera was chosen; the next picture then shows the whole scene."""
    orbit: OrbitPlace = Orbit().place
    """The camera as the user moves it around a point."""
    exact_camera: Camera | None = None
    """A camera to be used exactly until the user moves it; None for that of `orbit`."""
    seen_in: tuple[int, int] | None = None
    """Size of the rectangle that the camera was chosen for, (width, height).

    A viewport of another shape shows all that is visible in that rectangle. None if the
    camera is for any rectangle.
    """
    up_by: UpSource = ""
    """The source of the direction upward."""
    by_hand: bool = False
    """True once the user has moved the camera."""

    def seen_from(self, rect: Rect) -> CameraPlace:
        """Return a place with which any other rectangle shows all that `rect` shows."""
        return replace(self, seen_in=self.seen_in or (rect.width, rect.height))


@dataclass(frozen=True)
class TrainingDisplay:
    """Says how a view shows the cameras that the scene is trained with."""

    shown: bool = True
    """True to draw a frustum for each camera."""
    pictures: bool = True
    """True to draw the photographs in the frustums."""
    size: float = 1.0
    """Size of the frustums, as a multiple of a size that suits the scene."""
    through: int | None = None
    """Index of the camera that the view looks through; None for none."""
    comparison: Literal["render", "photo", "wipe", "side", "error"] = "wipe"
    """How its photograph is compared with the picture."""
    opacity: float = 1.0
    """Opacity of the photograph."""
    gain: float = 4.0
    """Factor by which errors are made brighter."""
    divider_position: float = 0.5
    """Where the line between both is, from 0 at the left edge to 1."""
