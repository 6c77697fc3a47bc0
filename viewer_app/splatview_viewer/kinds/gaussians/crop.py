"""What lies in a box or a sphere is all that is drawn, or is left out; its handles lie over the picture. The panel's
part "Crop"."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from splatview_viewer.core.events import PointerLeave, PointerMove, PointerPress, PointerRelease
from splatview_viewer.core.view import Section
from splatview_viewer.kinds.gaussians.tool import Tool
from splatview_viewer.scene import Box, Sphere, shapes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.events import Event
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.kinds.gaussians.view import GaussianView

_NEAR = 9.0
"""Points from a handle within which the pointer has it."""

Handle = tuple[int, int] | str
"""A face of the box (`shapes.FACES`), "center", or "radius"."""


@dataclass(frozen=True)
class _Grab:
    """A handle that is dragged, and what there was when that began."""

    handle: Handle
    at: tuple[float, float]
    """Pixels from the picture's corner."""
    box: Box | None
    sphere: Sphere | None


class Crop(Tool):
    """Edits the box or the sphere of the view's selection; handles are there while its part of the panel is seen."""

    name: ClassVar[str] = "crop"

    def __init__(self, view: GaussianView) -> None:
        super().__init__(view)
        self.hovered: Handle | None = None
        self._grab: _Grab | None = None
        self._elsewhere = False
        """Whether a button is down for something else."""
        self._shown = False

    @property
    def box(self) -> Box | None:
        return self.view.settings.selection.box

    @property
    def sphere(self) -> Sphere | None:
        return self.view.settings.selection.sphere

    @property
    def grabbed(self) -> Handle | None:
        return None if self._grab is None else self._grab.handle

    def set(self, shape: Box | Sphere | None) -> None:
        """Crop by this shape; None: by none."""
        settings = self.view.settings
        settings.selection = replace(settings.selection, box=shape if isinstance(shape, Box) else None,
                                     sphere=shape if isinstance(shape, Sphere) else None)
        self.view.in_motion()  # it is dragged as a rule

    def fitted(self) -> tuple[Box, Sphere]:
        """Around what can be seen of the scene."""
        sight = self.view.content.sight
        return (Box(), Sphere()) if sight is None else shapes.fitted(sight.means, sight.weights)

    # -- handles -----------------------------------------------------------------------------------------------

    def handles(self, camera: Camera) -> list[tuple[Handle, tuple[float, float]]]:
        """Those that are seen, and where: pixels from the picture's corner."""
        if (shape := self.box or self.sphere) is None:
            return []
        names: list[Handle] = ["center"]
        points = np.array([shape.center])
        if self.box is not None:
            names, points = [*shapes.FACES, *names], np.concatenate([shapes.face_centers(self.box), points])
        found = list(zip(names, shapes.places(camera, points), strict=True))
        if self.sphere is not None and (rim := shapes.silhouette(self.sphere, camera)) is not None:
            x, y = rim[int(np.argmax(rim[:, 0]))].tolist()
            found.append(("radius", (x, y)))
        return [(handle, at) for handle, at in found if at is not None]

    def _under(self, x: float, y: float, rect: Rect) -> Handle | None:
        camera = self.view.camera(rect)
        if camera is None:
            return None
        far = {handle: np.hypot(px + rect.x - x, py + rect.y - y) for handle, (px, py) in self.handles(camera)}
        nearest = min(far, key=lambda handle: far[handle], default=None)
        return nearest if nearest is not None and far[nearest] <= _NEAR * self.view.desk.scale else None

    def handle(self, event: Event, rect: Rect) -> bool | None:
        if not self._shown or (self.box is None and self.sphere is None):
            self._grab, was = None, self.hovered
            self.hovered = None
            return True if was is not None else None
        match event:
            case PointerPress(button="left"):
                under = self._under(event.x, event.y, rect)
                if under is None:
                    self._elsewhere = True
                    return None
                self._grab = _Grab(under, (event.x - rect.x, event.y - rect.y), self.box, self.sphere)
                self.hovered = under
                return True
            case PointerPress():
                self._elsewhere = True
            case PointerMove() if self._grab is not None:
                return self._dragged(self._grab, (event.x - rect.x, event.y - rect.y), rect)
            case PointerMove() if not self._elsewhere:
                under = self._under(event.x, event.y, rect)
                if under != self.hovered:
                    self.hovered = under
                    return True
            case PointerRelease():
                self._elsewhere = False
                if self._grab is not None:
                    self._grab = None
                    return True
            case PointerLeave() if self._grab is None and self.hovered is not None:
                self.hovered = None
                return True
        return None

    def _dragged(self, grab: _Grab, at: tuple[float, float], rect: Rect) -> bool:
        """The pointer is there now."""
        camera = self.view.camera(rect)
        shape = grab.box or grab.sphere
        if camera is None or shape is None:
            return False
        center = np.array(shape.center)
        if grab.handle == "center":
            before, now = (shapes.beside(camera, where, center) for where in (grab.at, at))
            if before is not None and now is not None:
                x, y, z = (center + now - before).tolist()
                self.set(replace(shape, center=(x, y, z)))
        elif isinstance(grab.handle, tuple) and grab.box is not None:
            axis = grab.handle[1] * np.array(grab.box.axes[grab.handle[0]])
            before, now = (shapes.along(camera, where, center, axis) for where in (grab.at, at))
            if before is not None and now is not None:
                self.set(shapes.with_face(grab.box, grab.handle, now - before))
        elif grab.sphere is not None:
            self.set(replace(grab.sphere, radius=max(shapes.distance(camera, at, center), 1e-6)))
        return True

    # -- what is seen ------------------------------------------------------------------------------------------

    def over(self, rect: Rect, scale: float) -> bool:
        shown, self._shown = self._shown, False
        camera = self.view.camera(rect) if shown else None
        if camera is not None and (self.box is not None or self.sphere is not None):
            from splatview_viewer.kinds.gaussians import crop_panel

            crop_panel.draw(self, camera, rect, scale)
        return False

    def sections(self) -> Sequence[Section]:
        return [Section("Crop", self._panel, tip="Draw only what lies in a box or a sphere, or leave that out")]

    def _panel(self) -> bool:
        from splatview_viewer.kinds.gaussians import crop_panel

        self._shown = True
        return crop_panel.panel(self)

    def details(self) -> Sequence[str]:
        return ["cropped"] if self.box is not None or self.sphere is not None else []
