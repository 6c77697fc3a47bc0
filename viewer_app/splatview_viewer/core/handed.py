"""Plain numbers that a view hands on to a screen which draws Gaussians by itself.

A page gets them as they are, and sends places back.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

_Part = Annotated[float, Meta(ge=-1.01, le=1.01)]
_Coordinate = Annotated[float, Meta(ge=-1e12, le=1e12)]
_Depth = Annotated[float, Meta(gt=0, le=1e30)]
_TOLERANCE = 1e-3
"""By which the rows of a rotation may miss length 1 and right angles."""

Model = Literal["pinhole", "ortho", "fisheye"]
Triple = tuple[_Coordinate, _Coordinate, _Coordinate]
Rotation = tuple[_Part, _Part, _Part, _Part, _Part, _Part, _Part, _Part, _Part]


class HandedPlace(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The camera as a hand moves it around a point, as `geometry.orbit.OrbitPlace`."""

    rotation: Rotation
    """World to camera, row by row, in OpenCV's axes."""
    target: Triple
    distance: Annotated[float, Meta(ge=1e-9, le=1e9)]
    up: Triple
    fov: Annotated[float, Meta(ge=0.01, le=360)]
    model: Model
    near: _Depth
    far: _Depth

    def __post_init__(self) -> None:
        if not _is_rotation(self.rotation):
            raise ValueError("rotation: its rows are not unit vectors at right angles")


def _is_rotation(values: tuple[float, ...]) -> bool:
    """Return whether nine numbers are a rotation, row by row."""
    rows = values[0:3], values[3:6], values[6:9]
    for i, row in enumerate(rows):
        for j in range(i, 3):
            product = sum(a * b for a, b in zip(row, rows[j], strict=True))
            wanted = 1.0 if i == j else 0.0
            if abs(product - wanted) > _TOLERANCE:
                return False
    (a, b, c), (d, e, f), (g, h, i) = rows
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g) > 0


class HandedCamera(msgspec.Struct, frozen=True, kw_only=True):
    """A camera as `geometry.cameras.Camera`, its matrices row by row."""

    viewmat: tuple[float, ...]
    """16 numbers."""
    K: tuple[float, ...]
    """9 numbers."""
    width: int
    height: int
    model: Model
    near: float
    far: float


class HandedLook(msgspec.Struct, frozen=True, kw_only=True):
    """The look of the Gaussians, as `render.base.RenderOptions`."""

    paint: str
    """A paint, "depth" or "alpha"."""
    mode: Literal["classic", "antialiased"]
    sh_degree: int | None
    """None: the version's."""
    scale: float
    point_reach: float
    background: tuple[float, float, float]
    exact_background: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Behind pictures that are measured."""
    map: tuple[float, ...] = ()
    """Colours of what is shown by numbers, RGB after RGB; none for other paints."""
    range: tuple[float, float] | None = None
    """The numbers at both ends of the map; None: the screen measures them in its picture,
    as `render.number_range` says, and tells them (`events.Ranged`)."""


class HandedPhoto(msgspec.Struct, frozen=True, kw_only=True):
    """A photograph that the screen lays over the picture, below the interface."""

    number: int
    """That of its `PhotoFile`, which comes apart."""
    box: tuple[int, int, int, int]
    """x, y, width and height of all of it, in pixels of the screen."""
    clip: tuple[int, int, int, int]
    """The same for the part of that which is seen."""
    opacity: float


class HandedSecond(msgspec.Struct, frozen=True, kw_only=True):
    """A second scene from the same camera, and how both make one picture."""

    look: HandedLook
    near: float
    far: float
    mode: Literal["split", "difference", "blend"]
    """As in `render.pair_compositor`."""
    position: float
    """The line, 0 to 1 from the left; or the opacity of the second scene."""
    gain: float
    """Factor of differences."""
    line: float = 0.0
    """Pixels that the line is wide; 0: there is none at the position."""


class HandedDrawing(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides the picture of a pane, beside the Gaussians themselves."""

    place: HandedPlace
    """The camera that a hand moves on from."""
    camera: HandedCamera | None
    """Draw with exactly this one until a hand has moved; None: with that of `place`."""
    placed: int
    """The number of the last `Placed` that came, for any pane; a page that has sent a
    later one for this pane keeps its camera."""
    look: HandedLook
    navigates: bool
    """A drag over the picture moves the camera. False: a tool takes it."""
    looks_around: bool
    """A left drag turns the camera in place."""
    covered: tuple[tuple[int, int, int, int], ...]
    """x, y, width and height of what lies over the picture and takes the pointer, in
    pixels of the screen."""
    grips: tuple[tuple[int, int, int, int], ...] = ()
    """The same for what takes a drag, but hides nothing: it goes with the picture."""
    photo: HandedPhoto | None = None
    second: HandedSecond | None = None
    """What is compared with the scene; None: nothing."""
    speed: float = 1.0
    """Of flying, as the user has set it."""
    link: int | None = None
    """The same for panes whose cameras move together; None: it moves alone."""
    is_active: bool = True
    """Keys move its camera."""


class PhotoFile(NamedTuple):
    """A photograph as a JPEG file."""

    number: int
    """Another one for each file."""
    data: bytes


class HandedOn(NamedTuple):
    """A picture that a view hands on, or the reason why it does not."""

    drawing: HandedDrawing | None = None
    """None: the view draws the picture itself."""
    versions: Any = None
    """The packed versions of its scene (`blocks.versions.PackedVersions`)."""
    marked: tuple[int, ...] = ()
    """Gaussians that stand out, as `Selection.marked`."""
    photo: PhotoFile | None = None
    """What `drawing.photo` lays over the picture."""
    reason: str = ""
    """Why the view draws, for users."""
    second: HandedOn | None = None
    """The same of `HandedDrawing.second`; None without one."""

    @property
    def is_awaited(self) -> bool:
        """True while another version of what is drawn would be of use soon."""
        if self.second is not None and self.second.is_awaited:
            return True
        return self.versions is not None and bool(self.versions.is_awaited)
