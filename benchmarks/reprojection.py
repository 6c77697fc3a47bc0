"""Smooth motion: 1M Gaussians, 1920x1080, the last picture moved to the camera while the next one is not drawn yet.

"picture": the error of what is shown against a true render of the same camera, along a drag of which every fourth
picture is drawn (15 of 60 a second), over the pictures between, without a rim of a twentieth of the width. "stale" is
the error if the last picture only stood still. "cost": what the parts take the GPU, by themselves. "beside training": a
viewer in its own process whose camera is dragged all the time, with smooth motion and without, against the same
training without a viewer just before and just after; of 1M Gaussians, and of 6M.
"""

from __future__ import annotations

import math
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import splatview
from benchmarks.gpu import require_gpu, tried
from benchmarks.gpu.clocks import until
from benchmarks.gpu.load import Training, train
from benchmarks.gpu.scenes import ORBIT, SIZE, ball, intrinsics, viewmat
from benchmarks.gpu.smooth_driver import VARIABLE
from benchmarks.gpu.viewer import Viewer
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.settings import ViewSettings
from splatview_viewer.geometry.cameras import Camera
from splatview_viewer.kinds import make_view
from splatview_viewer.kinds.gaussians import view as gaussians
from splatview_viewer.render.base import RenderOptions
from splatview_viewer.scene.scene import GaussianScene
from splatview_viewer.screens.offscreen import OffscreenScreen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.gpu.load import Pace
    from splatview_viewer.geometry.controls import Orbit

PICTURES, EVERY = 120, 4
"""Pictures of the path, and every how many-th is drawn."""
RIM = SIZE[0] // 20
WITH, WITHOUT = 3.5, 1.5
"""Seconds that are measured with a viewer, and without one before and after."""
COSTS = 60
"""How often each part is timed."""


def run() -> list[dict[str, str]]:
    require_gpu()
    rows = tried("picture", _pictures)
    torch.cuda.empty_cache()
    for millions in (1, 6):
        rows += tried(f"beside training, {millions}M", lambda millions=millions: _beside(millions))
        torch.cuda.empty_cache()
    return rows


# -- the picture's error and what it costs -----------------------------------------------------------------------


def _pictures() -> list[dict[str, str]]:
    raw = ball(1_000_000)
    scene = GaussianScene(raw["means"], raw["quats"], raw["scales"], raw["opacities"], raw["sh0"][:, 0], raw["shN"])
    screen = OffscreenScreen(*SIZE)
    gaussians.COARSE_MS = math.inf
    view: Any = make_view("gaussians", screen.ctx, ViewSettings())
    try:
        assert view.update(scene)
        view.use_camera(Camera(viewmat(0.3, 0.25, ORBIT), intrinsics(*SIZE), *SIZE))
        view.draw(screen.framebuffer, Rect(0, 0, *SIZE))
        if view.picture.kept is None:
            return [{"what": "picture", "dB, median": "pictures are not moved here"}]
        rows = [_error(screen, view, name, path) for name, path in _paths(view.orbit).items()]
        return [*rows, _costs(screen, view)]
    finally:
        view.close()
        screen.close()


def _paths(orbit: Orbit) -> dict[str, Iterator[Camera]]:
    """Drags at the speed of a hand: cameras of 60 pictures a second."""
    def along(move: Callable[[Orbit, float], None]) -> Iterator[Camera]:
        moved = orbit.copy()
        for i in range(PICTURES):
            move(moved, math.cos(2 * math.pi * i / PICTURES))
            yield moved.camera(*SIZE)

    height = SIZE[1]
    return {"orbit, 60 degrees/s": along(lambda o, s: o.orbit(math.radians(s), math.radians(s / 5))),
            "pan, 1 height/s": along(lambda o, s: o.pan(s * height / 60, 0.0, height)),
            "nearer, 50 %/s": along(lambda o, s: o.dolly(1 - s / 120, SIZE[0] / 2, height / 2, Rect(0, 0, *SIZE)))}


def _error(screen: OffscreenScreen, view: Any, name: str, path: Iterator[Camera]) -> dict[str, str]:
    picture, options = view.picture, view.options
    moved_db: list[float] = []
    stale_db: list[float] = []
    cameras = list(path)
    for first in range(0, len(cameras), EVERY):
        camera, *between = cameras[first:first + EVERY]
        view.content.begin(picture, camera, options, (camera.key, options, view.content.loads))
        view.content.land(wait=True)
        assert picture.known, "the picture has no depth"
        last = _shown(screen, view, None)
        for camera, moved in [(camera, _shown(screen, view, camera)) for camera in between]:
            true = _true(view, camera)
            moved_db.append(_psnr(moved, true))
            stale_db.append(_psnr(last, true))
    return {"what": f"picture: {name}", "dB, median": f"{statistics.median(moved_db):.1f}",
            "dB, worst": f"{min(moved_db):.1f}", "dB, stale": f"{statistics.median(stale_db):.1f}"}


def _shown(screen: OffscreenScreen, view: Any, towards: Camera | None) -> np.ndarray:
    rect = Rect(0, 0, *SIZE)
    view.picture.motion.towards = towards
    view.lay(view.content.source(view.picture, view.orbit.distance), screen.framebuffer, rect)
    return screen.pixels()[RIM:-RIM, RIM:-RIM, :3].astype(np.float32)


def _true(view: Any, camera: Camera) -> np.ndarray:
    pixels = view.content.renderer.render(camera, RenderOptions(depth=False)).pixels()
    return (pixels.color[RIM:-RIM, RIM:-RIM] * 255).clip(0, 255)


def _psnr(a: np.ndarray, b: np.ndarray) -> float:
    return float(20 * np.log10(255 / max(np.sqrt(np.mean((a - b) ** 2)), 1e-6)))


def _costs(screen: OffscreenScreen, view: Any) -> dict[str, str]:
    """Milliseconds of the GPU, waited for."""
    content, picture, rect = view.content, view.picture, Rect(0, 0, *SIZE)
    orbit, options = view.orbit.copy(), view.options

    def camera() -> Camera:
        orbit.orbit(0.003, 0.0)
        return orbit.camera(*SIZE)

    def finish() -> None:
        torch.cuda.synchronize()
        screen.ctx.finish()

    def plain() -> None:
        picture.render(it := camera(), options, (it.key, options, content.loads))

    def later() -> None:
        picture.render_later(it := camera(), options, (it.key, options, content.loads))
        content.land(wait=True)

    def compose() -> None:
        picture.draw(screen.framebuffer, rect, (0.0, 0.0, 0.0), view.settings)

    def warp() -> None:
        picture.draw(screen.framebuffer, rect, (0.0, 0.0, 0.0), view.settings, (camera(), orbit.distance))

    row = {"what": "cost, ms: finished, one at a time"}
    for name, do in (("render", plain), ("with depth, brought", later), ("lay on the screen", compose),
                     ("move and lay", warp)):
        times = []
        for _ in range(COSTS):
            finish()
            begin = time.perf_counter()
            do()
            finish()
            times.append((time.perf_counter() - begin) * 1e3)
        row[name] = f"{statistics.median(times):.2f}"
    if picture.kept is not None and (ms := picture.kept.mover.clock.ms) is not None:
        row["move, CUDA's clock"] = f"{ms:.3f}"
    return row


# -- beside a training -------------------------------------------------------------------------------------------


def _beside(millions: int) -> list[dict[str, str]]:
    training = Training(millions * 1_000_000)
    train(training, 1.5)
    without = [train(training, WITHOUT)]
    rows = []
    try:
        splatview.publish(training.scene, step=training.steps)
        for budget in ("0.1", "0.03") if millions == 1 else ("0.1",):
            for smooth, how in (("1", "smooth motion"), ("0", "without")):
                what, options = f"{millions}M, budget {budget}, {how}", ("--gpu-budget", budget)
                rows += tried(what, lambda what=what, smooth=smooth, options=options: [
                    _with_viewer(training, what, smooth, options, without)])
    finally:
        splatview.close()
    return rows


def _with_viewer(training: Training, what: str, smooth: str, options: tuple[str, ...],
                 without: list[Pace]) -> dict[str, str]:
    def publish(_: int = 0) -> None:
        splatview.publish(training.scene, step=training.steps)

    def step() -> None:
        training.step()
        publish()

    env = {VARIABLE: smooth}
    with Viewer(*options, "--max-fps", "60", env=env, program="benchmarks.gpu.smooth_driver") as viewer:
        viewer.ready(step)
        viewer.ask("closer", distance=ORBIT)
        until("the viewer to come closer", lambda: abs(viewer.ask("state")["distance"] - ORBIT) < 0.01, 10, step)
        viewer.ask("hands", how="drag")
        train(training, 1.2, publish)  # until speeds have settled
        viewer.ask("begin")
        pace = train(training, WITH, publish)
        report = viewer.ask("report")
    without.append(train(training, WITHOUT))
    ratio = pace.rate / ((without[-2].rate + without[-1].rate) / 2)
    sizes = ", ".join(f"{size} ({count})" for size, count in report["sizes"])
    share = report["gpu_share"]
    return {"what": f"beside training: {what}", "training speed": f"{ratio:.3f} ({pace.rate:.1f} steps/s)",
            "images/s": f"{report['pictures_s']:.1f}", "of the scene/s": f"{report['moved_s']:.1f}",
            "their size": sizes, "longest gap, ms": f"{report['gap_ms']:.0f}",
            "GPU share by itself": "no limit" if share is None else f"{share:.0%}"}
