"""A scene that a function draws: a trainer's streams of it, and its pictures."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from splatview_ipc.control.frame import StreamFrame
from splatview_ipc.control.messages import Draw, DrawnCamera
from splatview_ipc.publisher.publisher import Publisher
from splatview_ipc.publisher.stream_channels import OverlaidStream
from splatview_viewer.geometry.cameras import Camera, project
from support.frames import frame_of

FUNCTION = "shapes:draw"
Picture = dict[str, np.ndarray]
"""Tensors of a frame of kind picture."""
DrawFunction = Callable[[Camera, np.ndarray], Picture]


def camera_of(drawn: DrawnCamera) -> Camera:
    """Return the camera of a request as the viewer has it."""
    return Camera(
        np.array(drawn.viewmat).reshape(4, 4),
        np.array(drawn.K).reshape(3, 3),
        drawn.width,
        drawn.height,
        drawn.model,
        drawn.near,
        drawn.far,
    )


def corner_points(seed: int = 0) -> np.ndarray:
    """Make (N, 3) points of three arms of unlike lengths: no picture is symmetric."""
    steps = np.linspace(0, 1, 8)[:, None]
    arms = [(1.0, 0, 0), (0, 0.6, 0), (0, 0, 0.3 + 0.2 * seed)]
    return np.concatenate([steps * arm for arm in arms]).astype(np.float32)


def paint(camera: Camera, points: np.ndarray) -> Picture:
    """Draw points as squares of many colours, over colours by direction."""
    columns, rows = np.meshgrid(np.arange(camera.width), np.arange(camera.height))
    slopes = np.stack([columns + 0.5, rows + 0.5, np.ones_like(rows)], axis=2)
    rays = slopes @ np.linalg.inv(camera.K).T @ camera.viewmat[:3, :3]
    rays /= np.linalg.norm(rays, axis=2, keepdims=True)
    color = ((rays * 0.4 + 0.5) * 255).astype(np.uint8)
    depth = np.zeros((camera.height, camera.width), np.float32)
    side = max(camera.height // 24, 1)
    depths = camera.to_local(points)[:, 2]
    for index, (x, y) in enumerate(project(camera, points)):
        if not np.isfinite((x, y)).all():
            continue
        left = max(int(x) - side, 0)
        top = max(int(y) - side, 0)
        covered_part = np.s_[top : max(int(y) + side, 0), left : max(int(x) + side, 0)]
        color[covered_part] = (255 - 9 * index, 11 * index, 40 * (index % 7))
        depth[covered_part] = depths[index]
    return {"color": color, "depth": depth}


@dataclass(frozen=True)
class FrameLayout:
    """Form of frames of any tensors by name."""

    kind: str
    names: tuple[str, ...]
    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    device: str = "cpu"

    def frame(self, tensors: tuple[Any, ...]) -> dict[str, torch.Tensor]:
        return dict(zip(self.names, tensors, strict=True))


def scene_frame(seed: int = 0, **meta: Any) -> StreamFrame:
    """Make a frame of the scene itself."""
    points = torch.from_numpy(corner_points(seed))
    return frame_of("rendered", {"points": points}, function=FUNCTION, **meta)


def answer(content: Any, now: float = 0.0, draw: DrawFunction = paint) -> None:
    """Answer all requests for pictures of a scene, in this process."""
    while True:
        request = content.requests.next_request(0, now)
        if request is None:
            return
        arrays = draw(camera_of(request.camera), content.sample.means)
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        meta = {"viewer": request.viewer, "request": request.number, "ms": 1.0}
        assert content.requests.take(frame_of("picture", tensors, **meta))


class DrawnScene:
    """A trainer with a scene "scene" and a function that draws it on request."""

    def __init__(
        self,
        draw: DrawFunction = paint,
        publisher: Publisher | None = None,
        device: str = "cpu",
    ) -> None:
        """Publish a scene in a run of its own, or in a given one.

        Args:
            draw: draws its pictures.
            publisher: the run; None: another one.
            device: where pictures are drawn.
        """
        self._device = device
        self.points = corner_points()
        self.draw = draw
        self.ms = 1.0
        self.fault_text = ""
        """Why the function draws nothing; "" where it does."""
        self.requests: list[Draw] = []
        self.publisher = publisher or Publisher("drawn")
        self._lock = threading.Lock()
        self._scene = self.publisher.stream("scene", "rendered")
        self._pictures = self.publisher.stream("scene/pictures", "picture")
        self._pictures.over = OverlaidStream("scene")
        self.publisher.on_request["Draw", "scene/pictures"] = self._answer
        self.publish()
        # Announces the stream; it answers no request.
        self._publish(self._pictures, paint(_SMALL, self.points), viewer="", request=0)

    def publish(self, **meta: Any) -> None:
        """Publish the next version of the scene."""
        self._publish(self._scene, {"points": self.points}, function=FUNCTION, **meta)

    def _publish(self, stream: Any, arrays: Picture, **meta: Any) -> None:
        device = "cpu"
        if stream is self._pictures:
            device = self._device
        if device != "cpu" and "color" in arrays:
            color = np.pad(
                arrays["color"], ((0, 0), (0, 0), (0, 1)), constant_values=255
            )
            arrays = {**arrays, "color": color}
        tensors = {}
        for name, array in arrays.items():
            tensors[name] = torch.from_numpy(array).to(device)
        shape = next((tuple(t.shape) for t in tensors.values()), ())
        layout = FrameLayout(stream.kind, tuple(tensors), shape, device=device)
        stream.describe(layout, copy=True)
        stream.publish_awaited((tuple(tensors.values()), meta))

    def _answer(self, request: Draw) -> None:
        """Answer a request, on the helper thread."""
        self.requests.append(request)
        meta: dict[str, Any] = {"viewer": request.viewer, "request": request.number}
        arrays: Picture = {}
        if self.fault_text:
            meta["trouble"] = self.fault_text
        else:
            arrays = self.draw(camera_of(request.camera), self.points)
        self._publish(self._pictures, arrays, ms=self.ms, **meta)

    def close(self) -> None:
        self.publisher.close()


_SMALL = Camera(np.eye(4), np.eye(3), 1, 1)
