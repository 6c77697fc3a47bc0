"""A kind of points, made of the parts of `scene_view`: a second kind that is a scene."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import moderngl
import numpy as np

from splatview_viewer.core.events import Event
from splatview_viewer.core.host import Host
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.settings import Color
from splatview_viewer.core.view import Section, Value, View
from splatview_viewer.geometry.cameras import Camera, project
from splatview_viewer.gpu.work import GpuWork
from splatview_viewer.scene_view.camera_rig import CameraRig
from splatview_viewer.scene_view.navigate import Navigate
from splatview_viewer.scene_view.path import PathTool
from splatview_viewer.scene_view.sample import SceneSample
from splatview_viewer.scene_view.state import CameraPlace
from splatview_viewer.scene_view.tool import ToolSet

_DOT = 3
"""Pixels along the side of a point."""


@dataclass(frozen=True)
class PointsSummary:
    count: int
    up: tuple[float, float, float] | None = None
    customary_ups: tuple[tuple[float, float, float], ...] = ()


def _no_points() -> np.ndarray:
    return np.zeros((0, 3))


@dataclass
class PointsData:
    """Shared by all views of a stream."""

    ctx: moderngl.Context
    work: GpuWork
    points: np.ndarray = field(default_factory=_no_points)
    summary: PointsSummary | None = None
    loads: int = 0
    stale: bool = False

    @property
    def sample(self) -> SceneSample | None:
        if self.summary is None:
            return None
        return SceneSample(self.points, np.ones(len(self.points), np.float32))

    def current_sample(self) -> SceneSample | None:
        return self.sample


@dataclass(frozen=True)
class PointsState:
    """All that decides the picture beside the points."""

    place: CameraPlace = field(default_factory=CameraPlace)
    background: Color = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class PointHit:
    point: np.ndarray


class PointsView(View[PointsData, PointsState]):
    """White squares where the points are, with a camera and two tools."""

    kind = "points"

    def __init__(self, data: PointsData, state: PointsState) -> None:
        super().__init__(data, state)
        self.rig = CameraRig(self)
        self.path = PathTool(self)
        self.tools = ToolSet(self, [self.path, Navigate(self)])

    # -- what the parts ask of a view ----------------------------------------------

    @property
    def background(self) -> Color:
        return self.state.background

    @property
    def is_moving(self) -> bool:
        return False

    def mark_moving(self) -> None:
        """Do nothing: pictures are always drawn in full."""

    def change(self, **fields: Any) -> None:
        self.state = replace(self.state, **fields)

    def pick_later(
        self, camera: Camera, x: float, y: float
    ) -> Callable[[], PointHit | None]:
        points = self.data.points

        def find() -> PointHit | None:
            distances = np.linalg.norm(project(camera, points) - (x, y), axis=1)
            nearest = int(np.argmin(distances))
            if distances[nearest] >= _DOT:
                return None
            return PointHit(points[nearest])

        return find

    def bare_copy(self) -> PointsView:
        copy = PointsView(self.data, self.state)
        copy.host = Host(exact="scene")
        copy.tools = ToolSet(copy, [])
        return copy

    # -- the methods of views ------------------------------------------------------

    def take(self, link: str, value: Value) -> bool:
        self.data.points = np.asarray(value, np.float64)
        self.data.summary = PointsSummary(len(self.data.points))
        self.data.loads += 1
        return True

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        self.rig.rect = rect
        framebuffer.use()
        viewport = rect.viewport(framebuffer.height)
        framebuffer.clear(*self.background, 1.0, viewport=viewport)
        camera = self.rig.camera(rect)
        if camera is None:
            return
        for x, y in project(camera, self.data.points):
            if np.isfinite((x, y)).all() and rect.contains(rect.x + x, rect.y + y):
                dot = Rect(rect.x + int(x), rect.y + int(y), _DOT, _DOT)
                viewport = dot.viewport(framebuffer.height)
                framebuffer.clear(1.0, 1.0, 1.0, 1.0, viewport=viewport)
        self.tools.draw(framebuffer, rect)

    def handle(self, event: Event, rect: Rect) -> bool:
        self.rig.rect = rect
        return self.tools.handle(event, rect)

    def tick(self, now: float) -> bool:
        return self.tools.tick(now)

    def work(self) -> bool:
        return self.path.film_maker.advance()

    def ui(self, rect: Rect, scale: float) -> bool:
        return self.tools.draw_over(rect, scale)

    def panel(self) -> Sequence[Section]:
        return self.tools.sections()

    def release(self, occasion: str) -> None:
        if occasion in ("closed", "last"):
            self.tools.close()


def view(ctx: moderngl.Context, work: GpuWork) -> PointsView:
    return PointsView(PointsData(ctx, work), PointsState())
