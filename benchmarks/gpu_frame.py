"""Compare a frame of the viewer with `gsplat.rasterization` alone.

1920x1080, the camera moving, in the same process.

The viewer's frame is everything that it does when the mouse moves a scene that lies on
the GPU: the event, the camera, the renderer, the picture as bytes over the background,
as pages and offscreen viewers get it. "window" is the same drawn into a framebuffer of
OpenGL. Alone is one call with activated tensors and the same camera. "finished" waits
for the GPU after each frame, "in a row" after sixty. "versions" has the viewer take a
new version of the scene before each frame, too, in a row. They take turns.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.gpu.scenes import (
    ORBIT,
    SIZE,
    Activated,
    activated,
    ball,
    intrinsics,
    viewmat,
)
from benchmarks.harness import require_gpu, tried
from splatview_viewer.core.events import PointerMove, PointerPress
from splatview_viewer.core.screen import Rect
from splatview_viewer.geometry.cameras import Camera
from splatview_viewer.gpu import governor
from splatview_viewer.kinds import make_view
from splatview_viewer.scene.scene import GaussianScene
from splatview_viewer.screens.offscreen import OffscreenScreen

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.geometry.orbit import Orbit

COUNTS = {1_000_000: 0.5, 3_000_000: 0.6, 6_000_000: 0.7}
"""Gaussians, and the ratio to reach."""
VERSION_TARGETS = {1_000_000: 0.7, 3_000_000: 0.85, 6_000_000: 1.0}
"""The same with a new version at every frame."""
ROUNDS = 12
BLOCK = 10
ROW = 60
CAMERAS = 960
GATE = 50.0
"""Decibels, at 8 bits, below which the two did not draw the same."""


def run() -> list[dict[str, str]]:
    require_gpu()
    screen = OffscreenScreen(*SIZE)
    try:
        rows = []
        for n, target in COUNTS.items():
            rows += tried(
                f"{n:,} Gaussians",
                lambda n=n, target=target: [_measure(screen, n, target)],
            )
            torch.cuda.empty_cache()
        return rows
    finally:
        screen.close()


class _Mouse:
    """Drags without end, a little back and forth, so that the scene stays in view."""

    def __init__(self, moved: Any | Orbit, rect: Rect) -> None:
        self._moved = moved
        self._rect = rect
        self._i = 0
        moved.handle(PointerPress(*self._position()), rect)

    def _position(self) -> tuple[float, float]:
        t = 4 * math.pi * self._i / CAMERAS
        return self._rect.width / 2 + 300 * math.sin(
            t
        ), self._rect.height / 2 + 40 * math.sin(1.5 * t)

    def move(self) -> int:
        """Move the mouse; return the number of moves before this one."""
        self._i += 1
        self._moved.handle(PointerMove(*self._position()), self._rect)
        return self._i - 1


def _cameras(orbit: Orbit, rect: Rect) -> list[torch.Tensor]:
    """Return where the mouse takes an orbit, one camera after the other.

    (1, 4, 4) world to camera on the GPU.
    """
    mouse = _Mouse(orbit, rect)
    views = []
    for _ in range(CAMERAS):
        mouse.move()
        views.append(
            torch.tensor(
                orbit.camera(*SIZE).viewmat, dtype=torch.float32, device="cuda"
            )[None]
        )
    return views


def _measure(screen: OffscreenScreen, n: int, target: float) -> dict[str, str]:
    raw = ball(n)
    scene = GaussianScene(
        raw["means"],
        raw["quats"],
        raw["scales"],
        raw["opacities"],
        raw["sh0"][:, 0],
        raw["shN"],
    )
    rect = Rect(0, 0, *SIZE)
    governor.ALONE = math.inf
    view: Any = make_view("gaussians", screen.ctx)
    view.view.change(smooth=False, background=(0.0, 0.0, 0.0))
    assert view.update(scene)
    view.draw(screen.framebuffer, rect)
    view.view.rig.use_camera(
        Camera(viewmat(0.3, 0.25, ORBIT), intrinsics(*SIZE), *SIZE)
    )
    path = _cameras(view.view.rig.orbit.copy(), rect)
    frame_indices = itertools.count()
    versions = itertools.count(1)
    K = torch.tensor(intrinsics(*SIZE), dtype=torch.float32, device="cuda")[None]
    mouse = _Mouse(view, rect)
    arguments = activated(raw)

    def draw_window() -> None:
        mouse.move()
        view.tick(time.monotonic())
        view.draw(screen.framebuffer, rect)

    def draw_ours() -> torch.Tensor:
        mouse.move()
        view.tick(time.monotonic())
        pixels = view.draw_on_device(rect, None)
        assert pixels is not None
        return pixels

    def draw_version() -> None:
        assert view.update(replace(scene, version=next(versions)))
        draw_ours()

    def draw_alone() -> torch.Tensor:
        return _alone(arguments, path[next(frame_indices) % CAMERAS], K)

    def finish() -> None:
        torch.cuda.synchronize()
        screen.ctx.finish()

    try:
        db = _check(view, lambda m: _alone(arguments, m, K), draw_ours)
        ways: dict[str, Callable[[], object]] = {
            "ours": draw_ours,
            "alone": draw_alone,
            "window": draw_window,
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for i in range(-1, ROUNDS):
            for name, draw in ways.items():
                for _ in range(BLOCK):
                    elapsed_ms = _timed(draw, finish, 1)
                    if i >= 0:
                        times[name].append(elapsed_ms)
        drawn_in_a_row = {**ways, "versions": draw_version}
        rows: dict[str, list[float]] = {name: [] for name in drawn_in_a_row}
        for _ in range(5):
            for name, draw in drawn_in_a_row.items():
                rows[name].append(_timed(draw, finish, ROW))
        path_text = " > ".join(view.info.path)
    finally:
        view.close()
    mid = {name: statistics.median(t) for name, t in times.items()}
    row = {name: statistics.median(t) for name, t in rows.items()}
    return {
        "Gaussians": f"{n:,}",
        "frame finished, ms": f"{mid['ours']:.3f}",
        "alone": f"{mid['alone']:.3f}",
        "ratio": f"{mid['ours'] / mid['alone']:.3f}",
        "in a row, ms": f"{row['ours']:.3f}",
        "alone ": f"{row['alone']:.3f}",
        "ratio ": f"{row['ours'] / row['alone']:.3f}",
        "target": f"{target}",
        "versions, ms": f"{row['versions']:.3f}",
        "ratio  ": f"{row['versions'] / row['alone']:.3f}",
        "target ": f"{VERSION_TARGETS[n]}",
        "window, ms": f"{mid['window']:.3f}",
        "ratio   ": f"{mid['window'] / mid['alone']:.3f}",
        "window in a row, ms": f"{row['window']:.3f}",
        "ratio    ": f"{row['window'] / row['alone']:.3f}",
        "dB against it": f"{db:.1f}",
        "way": path_text,
    }


def _timed(draw: Callable[[], object], finish: Callable[[], None], count: int) -> float:
    """Milliseconds per call."""
    finish()
    started_at = time.perf_counter()
    for _ in range(count):
        draw()
    finish()
    return (time.perf_counter() - started_at) * 1e3 / count


@torch.no_grad()
def _alone(arguments: Activated, view: torch.Tensor, K: torch.Tensor) -> torch.Tensor:
    """Return gsplat's picture, (1080, 1920, 3) float32, over black.

    `view`: (1, 4, 4), `K`: (1, 3, 3).
    """
    from gsplat import rasterization

    return rasterization(*arguments, view, K, *SIZE, sh_degree=3, packed=False)[0][0]


def _check(
    view: Any,
    draw_alone: Callable[[torch.Tensor], torch.Tensor],
    draw_ours: Callable[[], torch.Tensor],
) -> float:
    """Return the decibels between the viewer's pixels and gsplat's picture."""
    for _ in range(2):
        draw_ours()
    pixels = draw_ours().cpu().numpy().astype(np.float32)
    camera = torch.tensor(
        view.view.rig.orbit.camera(*SIZE).viewmat, dtype=torch.float32, device="cuda"
    )[None]
    expected = draw_alone(camera).clamp(0, 1).cpu().numpy() * 255
    psnr = float(20 * np.log10(255 / np.sqrt(np.mean((pixels - expected) ** 2))))
    if psnr < GATE:
        raise RuntimeError(
            f"{psnr:.1f} dB between the viewer's picture and gsplat's, below {GATE}"
        )
    return psnr
