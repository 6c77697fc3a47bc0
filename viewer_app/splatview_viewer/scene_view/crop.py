"""A shape inside or outside of which the scene is drawn, with handles."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.errors import RendererError
from splatview_viewer.core.events import (
    PointerLeave,
    PointerMove,
    PointerPress,
    PointerRelease,
)
from splatview_viewer.core.view import Section
from splatview_viewer.geometry.cameras import project
from splatview_viewer.scene import Box, Shape, Sphere, shapes
from splatview_viewer.scene_view.crop_panel import draw_panel, state_words
from splatview_viewer.scene_view.lines import draw_line, push_clip_rect
from splatview_viewer.scene_view.protocol import SelectableView
from splatview_viewer.scene_view.tool import Tool, ToolButton
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.geometry.cameras import Camera

_HANDLE_REACH = 9.0
"""Points from a handle within which the pointer has it."""
_MIN_RADIUS = 1e-6

HandleName = tuple[int, int] | str
"""A face of a box or a cylinder (`shapes.FACES`), "center", or a sphere's "radius"."""
_AXIS_COLORS = (
    ImVec4(0.93, 0.42, 0.42, 1),
    ImVec4(0.50, 0.80, 0.42, 1),
    ImVec4(0.43, 0.62, 0.98, 1),
)
"""Colours of the handles along x, y and z, over pictures, which are the same in light
and dark."""


class Handle(NamedTuple):
    """A visible handle."""

    name: HandleName
    position: tuple[float, float]
    """Pixels from the picture's corner."""


class _HandleGrab(NamedTuple):
    """A handle that is dragged, as the drag began."""

    name: HandleName
    start: tuple[float, float]
    """Pixels from the picture's corner."""
    shape: Shape


class Crop(Tool[SelectableView]):
    """Edits the shape of the view's selection.

    Handles are there while its section of the panel is visible, and while it is chosen.
    """

    name: ClassVar[str] = "crop"
    button: ClassVar[ToolButton | None] = ToolButton(
        "crop", "Crop", "X", "The handles of the box or sphere can be dragged"
    )

    def __init__(self, view: SelectableView) -> None:
        super().__init__(view)
        self.hovered: HandleName | None = None
        self._grab: _HandleGrab | None = None
        self._is_pressed_elsewhere = False
        """A button is down for something else."""
        self.without_far = False
        """The farthest hundredth does not count when a shape is fitted."""
        self.is_open = False
        """True while the section of the panel is visible."""

    def choose_tool(self) -> None:
        """Start with a box around all that is seen, unless there is a shape."""
        if self.shape is None:
            self.set_shape(self.fit(Box))

    @property
    def has_handles(self) -> bool:
        return self.is_open or self.is_chosen

    @property
    def shape(self) -> Shape | None:
        return next(iter(self.view.state.selection.shapes), None)

    @property
    def grabbed(self) -> HandleName | None:
        if self._grab is None:
            return None
        return self._grab.name

    def set_shape(self, shape: Shape | None) -> None:
        """Crop by this shape; None: by none."""
        selection = self.view.state.selection
        self.view.change(selection=selection.cropped_by(shape))
        # A shape is dragged as a rule.
        self.view.mark_moving()

    def end(self) -> None:
        """Crop by nothing any more."""
        if self.shape is not None:
            self.set_shape(None)
            self.view.host.offer_undo("Nothing is cropped now")

    def fit(self, kind: type[Shape]) -> Shape:
        """Return a shape of this class around what can be seen of the scene."""
        try:
            points = self.view.seen_points()
        except RendererError:
            points = np.zeros((0, 3))
        up = self.view.rig.up_axis.direction
        return shapes.fit(kind, points, up=up, without_far=self.without_far)

    def fit_shape(self) -> None:
        """Have the shape take all that is seen."""
        shape = self.shape
        if shape is not None:
            fitted = self.fit(type(shape))
            self.set_shape(replace(fitted, outside=shape.outside))

    # -- handles -------------------------------------------------------------------

    def handles(self, camera: Camera) -> list[Handle]:
        """Return the handles that the camera sees."""
        shape = self.shape
        if shape is None:
            return []
        names: list[HandleName] = ["center"]
        points = np.array([shape.center])
        if not isinstance(shape, Sphere):
            names = [*shapes.FACES, *names]
            points = np.concatenate([shapes.face_centers(shape), points])
        pixels = project(camera, points).tolist()
        handles = [
            Handle(name, (x, y))
            for name, (x, y) in zip(names, pixels, strict=True)
            if not math.isnan(x)
        ]
        if isinstance(shape, Sphere):
            rim = shapes.silhouette(shape, camera)
            if rim is not None:
                x, y = rim[int(np.argmax(rim[:, 0]))].tolist()
                handles.append(Handle("radius", (x, y)))
        return handles

    def _handle_under(self, x: float, y: float, rect: Rect) -> HandleName | None:
        """Return the name of the handle under a pixel of the screen."""
        camera = self.view.rig.camera(rect)
        if camera is None:
            return None
        nearest = None
        nearest_distance = math.inf
        for handle in self.handles(camera):
            handle_x, handle_y = handle.position
            distance = math.hypot(handle_x + rect.x - x, handle_y + rect.y - y)
            if distance < nearest_distance:
                nearest = handle.name
                nearest_distance = distance
        if nearest_distance > _HANDLE_REACH * self.view.host.scale:
            return None
        return nearest

    def handle(self, event: Event, rect: Rect) -> bool | None:
        shape = self.shape
        if not self.has_handles or shape is None:
            was_hovered = self.hovered is not None
            self._grab = None
            self.hovered = None
            if was_hovered:
                return True
            return None
        match event:
            case PointerPress():
                return self._press(event, rect, shape)
            case PointerMove() if self._grab is not None:
                position = (event.x - rect.x, event.y - rect.y)
                self._drag(self._grab, position, rect)
                return True
            case PointerMove() if not self._is_pressed_elsewhere:
                hovered = self._handle_under(event.x, event.y, rect)
                if hovered != self.hovered:
                    self.hovered = hovered
                    return True
            case PointerRelease():
                self._is_pressed_elsewhere = False
                if self._grab is not None:
                    self._grab = None
                    return True
            case PointerLeave() if self._grab is None and self.hovered is not None:
                self.hovered = None
                return True
        return None

    def _press(self, event: PointerPress, rect: Rect, shape: Shape) -> bool | None:
        """Take hold of the handle under the pointer."""
        name = None
        if event.button == "left":
            name = self._handle_under(event.x, event.y, rect)
        if name is None:
            self._is_pressed_elsewhere = True
            return None
        self._grab = _HandleGrab(name, (event.x - rect.x, event.y - rect.y), shape)
        self.hovered = name
        return True

    def _drag(
        self, grab: _HandleGrab, position: tuple[float, float], rect: Rect
    ) -> None:
        """Move the grabbed handle to the pointer.

        Args:
            position: pixels from the picture's corner.
        """
        camera = self.view.rig.camera(rect)
        if camera is None:
            return
        shape = grab.shape
        center = np.array(shape.center)
        if grab.name == "center":
            start = shapes.point_at_depth(camera, grab.start, center)
            end = shapes.point_at_depth(camera, position, center)
            if start is not None and end is not None:
                x, y, z = (center + end - start).tolist()
                self.set_shape(replace(shape, center=(x, y, z)))
        elif isinstance(grab.name, tuple) and not isinstance(shape, Sphere):
            axis_index, sign = grab.name
            axis = sign * np.array(shape.axes[axis_index])
            start = shapes.axis_distance(camera, grab.start, center, axis)
            end = shapes.axis_distance(camera, position, center, axis)
            if start is not None and end is not None:
                self.set_shape(shapes.with_face(shape, grab.name, end - start))
        elif isinstance(shape, Sphere):
            radius = shapes.ray_distance(camera, position, center)
            self.set_shape(replace(shape, radius=max(radius, _MIN_RADIUS)))

    # -- drawing -------------------------------------------------------------------

    def draw_over(self, rect: Rect, scale: float) -> bool:
        # The panel's part, which is drawn later, sets this again.
        has_handles = self.has_handles
        self.is_open = False
        shape = self.shape
        if not has_handles or shape is None:
            return False
        camera = self.view.rig.seen_camera(rect)
        if camera is not None:
            _draw_shape(shape, camera, rect, scale)
            _draw_handles(self, camera, rect, scale)
        return False

    def sections(self) -> Sequence[Section]:
        section = Section(
            "Crop",
            partial(draw_panel, self),
            tip="Draw only what lies in a box, a sphere or a cylinder, or leave that out",
            tab="data",
            state=state_words(self),
            reset=self.end,
        )
        return [section]

    def details(self) -> Sequence[str]:
        if self.shape is not None:
            return ["cropped"]
        return []


def _draw_shape(shape: Shape, camera: Camera, rect: Rect, scale: float) -> None:
    """Draw the lines of the shape over the picture in `rect`."""
    if isinstance(shape, Sphere):
        rim = shapes.silhouette(shape, camera)
        if rim is not None:
            draw_line(rim, rect, scale, theme.INK, 0.95, closed=True)
        return
    # Edges at the back come first, so that those in front lie over them.
    edges = sorted(shapes.edges(shape, camera), key=lambda edge: edge[1])
    for corners, is_in_front in edges:
        opacity = 0.35
        if is_in_front:
            opacity = 0.95
        draw_line(corners, rect, scale, theme.INK, opacity)


def _draw_handles(tool: Crop, camera: Camera, rect: Rect, scale: float) -> None:
    draw = imgui.get_background_draw_list()
    push_clip_rect(draw, rect)
    for handle in tool.handles(camera):
        name = handle.name
        x, y = handle.position
        color = _AXIS_COLORS[name[0]] if isinstance(name, tuple) else theme.INK
        is_active = name in (tool.hovered, tool.grabbed)
        middle = ImVec2(x + rect.x, y + rect.y)
        radius = (6.5 if is_active else 5.0) * scale
        seam = radius + 1.5 * scale
        draw.add_circle_filled(middle, seam, theme.u32(theme.SHADE, 0.6), 24)
        draw.add_circle_filled(middle, radius, theme.u32(color), 24)
        if name == "center":
            dot = theme.u32(theme.SHADE, 0.8)
            draw.add_circle_filled(middle, radius * 0.45, dot, 16)
    draw.pop_clip_rect()
