"""Compare `splatview.grab` at 1920x1080 with the renderer alone, on a GPU.

In the same process, the same pictures.

"grab": a training script asks for a view of its own parameters, from a new camera each
time, until the tensor can be read. "renderer alone": `viewer_app`'s renderer draws the
same parameters as a new version, that is with everything it makes of them, and "drawing
alone" without that; both until the GPU has finished. They take turns, as a training
step and a grab do: each finds the processor's caches and the GPU as the others left
them; "in a row" each comes again and again without the others. "scene alone" is grab of
a scene that another process publishes and does not change, so that only the camera is
new.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import torch

import splatview
from benchmarks.gpu.scenes import SIZE, ball, intrinsics, viewmat
from benchmarks.harness import require_gpu, tried

if TYPE_CHECKING:
    from collections.abc import Callable

COUNTS = (100_000, 1_000_000, 3_000_000)
ROUNDS = 200
TARGET_MS = 0.5
"""Milliseconds over the renderer alone."""
GATE = 45.0
"""Decibels, at 8 bits, below which the two did not draw the same."""
_TRAINER = """
import sys, time, torch, splatview
from benchmarks.gpu.scenes import ball
scene = ball(int(sys.argv[1]))
splatview.publish(scene, "other")
torch.cuda.synchronize()
print("ready", flush=True)
sys.stdin.read()
"""


def run() -> list[dict[str, str]]:
    require_gpu()
    rows = []
    for count in COUNTS:
        rows += tried(f"{count:,} Gaussians", lambda n=count: [_scene(n)])
        torch.cuda.empty_cache()
    return [*rows, *tried("an image", lambda: [_image()])]


def _camera(k: int) -> dict[str, Any]:
    return {
        "viewmat": viewmat(0.02 * k, 0.25).tolist(),
        "K": intrinsics(*SIZE).tolist(),
    }


def _scene(count: int) -> dict[str, str]:
    raw = ball(count)
    splatview.publish(raw)
    try:
        drawn = _grabbed(0)
        alone = _Alone(raw)
        try:
            db = _psnr(drawn, alone.picture(0))
            if db < GATE:
                raise RuntimeError(
                    f"{db:.1f} dB between grab's picture and the renderer's, below {GATE}"
                )
            calls = {
                "grab": _grabbed,
                "renderer": lambda k: alone.draw(k, converts=True),
                "drawing": lambda k: alone.draw(k, converts=False),
            }
            ms = _in_turns(calls)
            row = {
                name: _in_turns({name: call})[name][0] for name, call in calls.items()
            }
        finally:
            alone.close()
        ms["other"] = _measure_other(count)
    finally:
        splatview.close()
    return {
        "Gaussians": f"{count:,}",
        "grab ms p50": f"{ms['grab'][0]:.3f}",
        "p95": f"{ms['grab'][1]:.3f}",
        "p99": f"{ms['grab'][2]:.3f}",
        "renderer alone": f"{ms['renderer'][0]:.3f}",
        "grab over it": f"{ms['grab'][0] - ms['renderer'][0]:+.3f}",
        "in a row": f"{row['grab']:.3f}",
        "renderer in a row": f"{row['renderer']:.3f}",
        "over it in a row": f"{row['grab'] - row['renderer']:+.3f}",
        "target": f"+{TARGET_MS}",
        "scene alone": f"{ms['other'][0]:.3f}",
        "drawing alone": f"{ms['drawing'][0]:.3f}",
        "over it": f"{ms['other'][0] - ms['drawing'][0]:+.3f}",
        "dB": f"{db:.1f}",
    }


def _grabbed(k: int, name: str = "gaussians") -> torch.Tensor:
    return splatview.grab(name, camera=_camera(k), size=SIZE, timeout=120)


def _in_turns(
    calls: dict[str, Callable[[int], object]],
) -> dict[str, tuple[float, float, float]]:
    """Return ms until the GPU has finished: median, 95th and 99th percentile."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for k in range(-5, ROUNDS):
        for name, call in calls.items():
            torch.cuda.synchronize()
            started_at = time.perf_counter()
            call(k + 10)
            torch.cuda.synchronize()
            if k >= 0:
                times[name].append((time.perf_counter() - started_at) * 1e3)
    percentiles = {name: statistics.quantiles(t, n=100) for name, t in times.items()}
    return {name: (p[49], p[94], p[98]) for name, p in percentiles.items()}


def _measure_other(count: int) -> tuple[float, float, float]:
    """Measure a scene of another process that does not change."""
    process = subprocess.Popen(
        [sys.executable, "-c", _TRAINER, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        _grabbed(0, "other")
        return _in_turns({"other": lambda k: _grabbed(k, "other")})["other"]
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


class _Alone:
    """The renderer that the drawing process uses, in this one."""

    def __init__(self, raw: dict[str, torch.Tensor]) -> None:
        from splatview_viewer.render.gsplat.renderer import GsplatRenderer
        from splatview_viewer.scene.scene import GaussianScene

        self._scene = GaussianScene(
            raw["means"],
            raw["quats"],
            raw["scales"],
            raw["opacities"],
            raw["sh0"][:, 0],
            raw["shN"],
        )
        self._renderer = GsplatRenderer()
        self._renderer.load(self._scene)

    def draw(self, k: int, converts: bool) -> Any:
        from splatview_viewer.geometry.camera_text import camera_from_json
        from splatview_viewer.render.base import RenderOptions

        if converts:
            self._renderer.load(self._scene)
        return self._renderer.render(
            camera_from_json(json.dumps(_camera(k)), *SIZE), RenderOptions(depth=False)
        )

    def picture(self, k: int) -> torch.Tensor:
        drawn = self.draw(k, converts=True)
        while drawn.lacks_gaussians():
            drawn = self.draw(k, converts=False)
        return drawn.over_background((0.0, 0.0, 0.0))

    def close(self) -> None:
        self._renderer.close()


def _psnr(a: torch.Tensor, b: torch.Tensor) -> float:
    error = (a.float() - b.float()).square().mean().sqrt().clamp_min(1e-3)
    return float(20 * torch.log10(255 / error))


def _image() -> dict[str, str]:
    """Its renderer is OpenGL, which draws it and hands it over."""
    images = torch.randint(
        0, 256, (4, SIZE[1], SIZE[0], 3), dtype=torch.uint8, device="cuda"
    )

    def grab_one(k: int) -> torch.Tensor:
        splatview.publish(images[k % 4].clone(), "render")
        return splatview.grab("render", timeout=120)

    try:
        for k in range(4):
            if not torch.equal(grab_one(k), images[k]):
                raise RuntimeError("the image came back different")
        p50, p95, p99 = _in_turns({"grab": grab_one})["grab"]
    finally:
        splatview.close()
    return {
        "what": "an image of this size, published again each time",
        "grab ms p50": f"{p50:.3f}",
        "p95": f"{p95:.3f}",
        "p99": f"{p99:.3f}",
    }
