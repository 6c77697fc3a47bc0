"""Content of a scene that a function draws, which all its views share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.core.view import frame_of
from splatview_viewer.kinds.rendered.requests import PictureRequests
from splatview_viewer.kinds.rendered.textures import TextureStore
from splatview_viewer.scene_view.sample import SceneSample

if TYPE_CHECKING:
    import moderngl

    from splatview_viewer.core.view import Value
    from splatview_viewer.gpu.work import GpuWork

_SPHERE_POINTS = 256
"""Points of the sphere that stands for a scene of which no sample is known."""


@dataclass(frozen=True)
class RenderedSummary:
    """Facts about the scene, for the camera rig."""

    count: int
    up: tuple[float, float, float] | None = None
    customary_ups: tuple[tuple[float, float, float], ...] = ()


@dataclass(slots=True)
class ControlChanges:
    """Holds what is known of the script's controls, with which the function draws."""

    version: int | None = None
    """None before they were looked at."""
    asked_loads: int = 0
    """The version of the scene by the control that a user of this viewer set last."""
    set_at: float = -math.inf
    """When that was."""


class RenderedContent:
    """The newest facts about one scene, and the requests for its pictures."""

    stale = False
    """A picture is copied as it comes."""

    def __init__(self, ctx: moderngl.Context, gpu_work: GpuWork) -> None:
        self.ctx = ctx
        self.work = gpu_work
        self.textures = TextureStore(ctx)
        """Pictures on the GPU."""
        self.requests = PictureRequests(self.textures, gpu_work.governor)
        self.summary: RenderedSummary | None = None
        self.sample: SceneSample | None = None
        self.loads = 0
        """Number of versions of the scene, also of those by another control."""
        self.controls = ControlChanges()
        self.function = ""
        """The name of the function that draws."""
        self.step: int | None = None
        """The step of the training."""
        self.now = 0.0
        """Time of the loop."""
        self.fault_text = ""
        """Why no picture of it can be drawn, in lines; "" where one can."""

    def take(self, value: Value) -> bool:
        """Take a frame of the scene, as `View.take`."""
        frame = frame_of("rendered", value)
        points = np.zeros((0, 3), np.float32)
        if "points" in frame.tensors:
            points = frame.tensors["points"].to_float32().copy()
        if not frame.intact():
            return False
        points = points[np.isfinite(points).all(axis=1)]
        if not len(points):
            points = _sphere_points()
        self.sample = SceneSample(points, np.ones(len(points), np.float32))
        self.summary = RenderedSummary(len(points))
        self.function = str(frame.meta.get("function", ""))
        self.fault_text = str(frame.meta.get("trouble", ""))
        step = frame.meta.get("step")
        self.step = step if type(step) is int else None
        self.loads += 1
        return True

    def note_controls(self, version: int, is_answer: bool) -> bool:
        """Take note of the version of the script's controls; return whether it is new.

        is_answer: a user of this viewer has set one of them, and waits for the picture.
        """
        known_version = self.controls.version
        self.controls.version = version
        if known_version in (None, version):
            return False
        self.loads += 1
        if is_answer:
            self.controls.asked_loads = self.loads
            self.controls.set_at = self.now
        return True

    def current_sample(self) -> SceneSample | None:
        return self.sample

    def close(self) -> None:
        """Release everything on the GPU. Idempotent."""
        self.textures.close()


def _sphere_points() -> np.ndarray:
    """Return points (N, 3) spread over the sphere of radius 1 around 0."""
    index = np.arange(_SPHERE_POINTS)
    z = 1 - (2 * index + 1) / _SPHERE_POINTS
    angle = np.pi * (1 + 5**0.5) * index
    radius = np.sqrt(1 - z * z)
    x = radius * np.cos(angle)
    y = radius * np.sin(angle)
    return np.stack([x, y, z], axis=1).astype(np.float32)
