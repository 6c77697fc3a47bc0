"""A box or a sphere, inside or outside of which Gaussians are drawn; its handles over the picture. The panel's part
"Crop".
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.events import (
    PointerLeave,
    PointerMove,
    PointerPress,
    PointerRelease,
)
from splatview_viewer.core.view import Section
from splatview_viewer.geometry.cameras import project
from splatview_viewer.scene import Box, Sphere, shapes
from splatview_viewer.scene_view.tool import Tool, draw_line
from splatview_viewer.ui import theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.selection import Vector
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.kinds.gaussians.view import GaussianView

_NEAR = 9.0
"""Points from a handle within which the pointer has it."""

Handle = tuple[int, int] | str
"""A face of the box (`shapes.FACES`), "center", or "radius"."""
_AXES = (
    ImVec4(0.93, 0.42, 0.42, 1),
    ImVec4(0.50, 0.80, 0.42, 1),
    ImVec4(0.43, 0.62, 0.98, 1),
)
"""Colours of the handles along x, y and z, over pictures, which are the same in light and dark."""
_ROUNDED = 1e6
"""Steps of dragging in a number from which on float32 has none so small."""


class Crop(Tool):
    """Edits the box or the sphere of the view's selection; handles are there while its part of the panel is seen."""

    name: ClassVar[str] = "crop"

    def __init__(self, view: GaussianView) -> None:
        super().__init__(view)
        self.hovered: Handle | None = None
        self._grab: tuple[Handle, tuple[float, float], Box | Sphere] | None = None
        """The handle that is dragged, the pixels from the picture's corner and the shape when that began."""
        self._elsewhere = False
        """A button is down for something else."""
        self.shown = False
        """The part of the panel is seen."""

    @property
    def shape(self) -> Box | Sphere | None:
        return self.view.state.selection.box or self.view.state.selection.sphere

    @property
    def grabbed(self) -> Handle | None:
        return None if self._grab is None else self._grab[0]

    def set(self, shape: Box | Sphere | None) -> None:
        """Crop by this shape; None: by none."""
        self.view.change(
            selection=replace(
                self.view.state.selection,
                box=shape if isinstance(shape, Box) else None,
                sphere=shape if isinstance(shape, Sphere) else None,
            )
        )
        self.view.in_motion()  # it is dragged as a rule

    def fitted(self) -> tuple[Box, Sphere]:
        """Around what can be seen of the scene."""
        sight = self.view.data.look()
        if sight is None:
            return (Box(), Sphere())
        return shapes.fitted(sight.means, sight.weights)

    # -- handles -----------------------------------------------------------------------------------------------

    def handles(self, camera: Camera) -> list[tuple[Handle, tuple[float, float]]]:
        """Return the handles that are seen, with their pixels from the picture's corner."""
        shape = self.shape
        if shape is None:
            return []
        names: list[Handle] = ["center"]
        points = np.array([shape.center])
        if isinstance(shape, Box):
            names = [*shapes.FACES, *names]
            points = np.concatenate([shapes.face_centers(shape), points])
        found = [
            (name, (x, y))
            for name, (x, y) in zip(
                names, project(camera, points).tolist(), strict=True
            )
            if not math.isnan(x)
        ]
        if (
            isinstance(shape, Sphere)
            and (rim := shapes.silhouette(shape, camera)) is not None
        ):
            x, y = rim[int(np.argmax(rim[:, 0]))].tolist()
            found.append(("radius", (x, y)))
        return found

    def _under(self, x: float, y: float, rect: Rect) -> Handle | None:
        camera = self.view.camera(rect)
        if camera is None:
            return None
        far = {
            handle: np.hypot(px + rect.x - x, py + rect.y - y)
            for handle, (px, py) in self.handles(camera)
        }
        nearest = min(far, key=lambda handle: far[handle], default=None)
        if nearest is not None and far[nearest] <= _NEAR * self.view.host.scale:
            return nearest
        return None

    def handle(self, event: Event, rect: Rect) -> bool | None:
        if not self.shown or (shape := self.shape) is None:
            self._grab = None
            was = self.hovered
            self.hovered = None
            return True if was is not None else None
        match event:
            case PointerPress():
                if event.button == "left":
                    under = self._under(event.x, event.y, rect)
                else:
                    under = None
                if under is None:
                    self._elsewhere = True
                    return None
                self._grab = under, (event.x - rect.x, event.y - rect.y), shape
                self.hovered = under
                return True
            case PointerMove() if self._grab is not None:
                return self._dragged(
                    *self._grab, (event.x - rect.x, event.y - rect.y), rect
                )
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

    def _dragged(
        self,
        handle: Handle,
        start: tuple[float, float],
        shape: Box | Sphere,
        at: tuple[float, float],
        rect: Rect,
    ) -> bool:
        """The pointer is there now."""
        camera = self.view.camera(rect)
        center = np.array(shape.center)
        if camera is None:
            return False
        if handle == "center":
            before, now = (
                shapes.beside(camera, where, center) for where in (start, at)
            )
            if before is not None and now is not None:
                x, y, z = (center + now - before).tolist()
                self.set(replace(shape, center=(x, y, z)))
        elif isinstance(handle, tuple) and isinstance(shape, Box):
            axis = handle[1] * np.array(shape.axes[handle[0]])
            before, now = (
                shapes.along(camera, where, center, axis) for where in (start, at)
            )
            if before is not None and now is not None:
                self.set(shapes.with_face(shape, handle, now - before))
        elif isinstance(shape, Sphere):
            self.set(
                replace(shape, radius=max(shapes.distance(camera, at, center), 1e-6))
            )
        return True

    # -- what is seen ------------------------------------------------------------------------------------------

    def over(self, rect: Rect, scale: float) -> bool:
        shown = self.shown
        self.shown = False
        camera = self.view.camera(rect)
        shape = self.shape
        if shown and camera is not None and shape is not None:
            draw_shape(self, shape, camera, rect, scale)
        return False

    def sections(self) -> Sequence[Section]:
        return [
            Section(
                "Crop",
                lambda: panel(self),
                tip="Draw only what lies in a box or a sphere, or leave that out",
            )
        ]

    def details(self) -> Sequence[str]:
        return ["cropped"] if self.shape is not None else []


def draw_shape(
    tool: Crop, shape: Box | Sphere, camera: Camera, rect: Rect, scale: float
) -> None:
    """The shape and its handles, over the picture in `rect`."""
    lines = imgui.get_background_draw_list()
    lines.push_clip_rect(
        ImVec2(rect.x, rect.y), ImVec2(rect.x + rect.width, rect.y + rect.height), True
    )
    if isinstance(shape, Box):
        for corners, front in sorted(
            shapes.edges(shape, camera), key=lambda edge: edge[1]
        ):
            draw_line(corners, rect, scale, theme.INK, 0.95 if front else 0.35)
    elif (rim := shapes.silhouette(shape, camera)) is not None:
        draw_line(rim, rect, scale, theme.INK, 0.95, closed=True)
    for handle, (x, y) in tool.handles(camera):
        color = _AXES[handle[0]] if isinstance(handle, tuple) else theme.INK
        active = handle in (tool.hovered, tool.grabbed)
        at = ImVec2(x + rect.x, y + rect.y)
        radius = (6.5 if active else 5.0) * scale
        lines.add_circle_filled(
            at, radius + 1.5 * scale, theme.u32(theme.SHADE, 0.6), 24
        )
        lines.add_circle_filled(at, radius, theme.u32(color), 24)
        if handle == "center":
            lines.add_circle_filled(at, radius * 0.45, theme.u32(theme.SHADE, 0.8), 16)
    lines.pop_clip_rect()


def panel(tool: Crop) -> None:
    """Draw the panel's part."""
    tool.shown = True
    shape = tool.shape
    if shape is None:
        kind = ""
    elif isinstance(shape, Box):
        kind = "box"
    else:
        kind = "sphere"
    chosen = ui.choice(
        "Shape",
        "The region that the scene is cut to",
        kind,
        {"": "None", "box": "Box", "sphere": "Sphere"},
    )
    if chosen != kind:
        box, sphere = tool.fitted()
        shape = {"": None, "box": box, "sphere": sphere}[chosen]
        tool.set(shape)
    if shape is None:
        return
    new: Box | Sphere = replace(
        shape,
        outside=ui.choice(
            "Keep",
            "The side of the region whose Gaussians stay",
            shape.outside,
            {False: "Inside", True: "Outside"},
        ),
    )
    size = max(new.half) if isinstance(new, Box) else new.radius
    fmt = f"%.{min(max(2 - math.floor(math.log10(size)), 0), 9)}f"
    new = replace(
        new,
        center=_three(
            "Centre",
            new.center,
            size / 200,
            "World units. Drag, or Ctrl + click to type",
            fmt=fmt,
        ),
    )
    if isinstance(new, Box):
        a, b, c = (2 * h for h in new.half)
        edge = _three(
            "Size",
            (a, b, c),
            size / 200,
            "Lengths of its edges, world units",
            least=1e-6,
            fmt=fmt,
        )
        if edge != (a, b, c):
            new = replace(new, half=(edge[0] / 2, edge[1] / 2, edge[2] / 2))
        angles = shapes.angles_of(new)
        turned = _three(
            "Rotation", angles, 0.5, "Degrees around x, then y, then z", fmt="%.1f"
        )
        if turned != angles:
            new = replace(new, axes=shapes.axes_of(turned))
    else:
        ui.row("Radius")
        edited, radius = imgui.drag_float(
            "##radius",
            new.radius,
            size / 200,
            1e-6,
            1e9,
            "%.3g",
            imgui.SliderFlags_.always_clamp.value,
        )
        imgui.set_item_tooltip("World units. Drag, or Ctrl + click to type")
        if edited:
            new = replace(new, radius=radius)
    if (
        ui.buttons(
            "",
            ["Fit to scene"],
            ["Around all but the outer hundredth of what can be seen"],
        )
        == 0
    ):
        box, sphere = tool.fitted()
        new = replace(box if isinstance(new, Box) else sphere, outside=new.outside)
    if new != shape:
        tool.set(new)


def _three(
    label: str,
    values: Vector,
    speed: float,
    tip: str,
    *,
    least: float = -math.inf,
    fmt: str = "%.3g",
) -> Vector:
    """Three numbers after this turn, to drag or to type into."""
    ui.row(label)
    if max(map(abs, values)) > _ROUNDED * speed:  # to drag takes float32
        edited, new = ui.vector(label, values, fmt)
    else:
        edited, new = imgui.drag_float3(
            f"##{label}", list(values), speed, 0.0, 0.0, fmt
        )
    imgui.set_item_tooltip(tip)
    if not edited:
        return values  # not what came back, which was rounded to 32 bits
    x, y, z = (
        max(v, least) if math.isfinite(v) else w
        for v, w in zip(list(new)[:3], values, strict=True)
    )
    return x, y, z
