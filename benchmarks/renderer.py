"""How long the OpenGL renderer takes per frame while the camera moves, stage by stage.

    python benchmarks/renderer.py [--data FOLDER] [--frames N] [--scene biker|playbot|random]

FOLDER holds real scenes and pictures that gsplat drew; the default is SPLATVIEW_TEST_DATA. Before anything is timed,
the renderer must reproduce one of those pictures, so that no figure comes from a wrong one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from viewer_app.cameras import Camera  # noqa: E402
from viewer_app.files import load_scene  # noqa: E402
from viewer_app.renderers.base import RenderOptions  # noqa: E402
from viewer_app.renderers.gl import GlRenderer  # noqa: E402
from viewer_app.scene import GaussianScene  # noqa: E402
from viewer_app.screens.offscreen import create_context  # noqa: E402

STAGES = ("sort", "project", "draw")
SIZES = ((640, 480), (1280, 720), (1920, 1080))
GATE = 60.0
"""Decibels below which the picture is called wrong."""


def read(data: Path, name: str) -> GaussianScene:
    if name != "random":
        return load_scene(data / {"biker": "biker.compressed.ply", "playbot": "playbot"}[name])
    with np.load(data / "gsplat_reference" / "random_scene.npz") as z:
        return GaussianScene(z["means"], z["quats"], z["scales"], z["opacities"], z["sh0"],
                             z["shN"].astype(np.float32))


def moved(camera: Camera, frame: int) -> Camera:
    """`camera` turned about its own vertical axis, a little more each frame."""
    angle = 2e-3 * frame
    turn = np.eye(4)
    turn[[0, 0, 2, 2], [0, 2, 0, 2]] = np.cos(angle), np.sin(angle), -np.sin(angle), np.cos(angle)
    return replace(camera, viewmat=turn @ camera.viewmat)


def check(renderer: GlRenderer, data: Path, name: str, camera: Camera, options: RenderOptions) -> float:
    """Decibels against gsplat's picture; raises SystemExit when it is another picture."""
    with np.load(data / "gsplat_reference" / "renders.npz") as renders:
        expected = renders[name][..., :3].astype(np.float64)
    error = float(np.mean((renderer.render(camera, options).pixels().color - expected) ** 2))
    psnr = -10 * np.log10(error)
    if psnr < GATE:
        raise SystemExit(f"{name}: {psnr:.1f} dB against gsplat, below {GATE}: the figures would mean nothing")
    return psnr


def measure(renderer: GlRenderer, camera: Camera, options: RenderOptions, frames: int) -> dict[str, float]:
    """Milliseconds: the median of each stage, waited for one by one; then of whole frames, which overlap stages."""
    stages: dict[str, list[float]] = {name: [] for name in STAGES}
    renderer.profile = True
    for i in range(frames + 2):
        renderer.render(moved(camera, i), options)
        if i >= 2:  # shaders are compiled for the first one
            for name in STAGES:
                stages[name].append(renderer.timings[name])
    renderer.profile = False
    wall, cpu = [], []
    for i in range(frames):
        begin, spent = time.perf_counter(), time.process_time()
        renderer.render(moved(camera, i), options)
        renderer.ctx.finish()
        wall.append((time.perf_counter() - begin) * 1e3)
        cpu.append((time.process_time() - spent) * 1e3)
    return {**{name: float(np.median(v)) for name, v in stages.items()}, "frame": float(np.median(wall)),
            "best": min(wall), "cpu": float(np.median(cpu))}


def run(data: Path | None = None, scene: str = "biker", frames: int = 20) -> list[dict[str, Any]]:
    """One row per picture size: scene, gaussians, size, psnr, load and the times of `measure`, machine, driver."""
    data = data or Path(os.environ.get("SPLATVIEW_TEST_DATA", ROOT.parent / "shared" / "data"))
    name = f"{scene}_0"
    c = json.loads((data / "gsplat_reference" / "cameras.json").read_text())[name]
    camera = Camera(np.array(c["viewmat"]), np.array(c["K"]), c["width"], c["height"])
    gaussians = read(data, scene)
    renderer = GlRenderer(create_context(), profile=True)
    try:
        renderer.load(gaussians)
        load = renderer.timings["activate"] + renderer.timings["upload"]
        psnr = check(renderer, data, name, camera, RenderOptions(c["mode"], c["sh_degree"]))
        return [{"scene": scene, "gaussians": len(gaussians), "width": w, "height": h, "psnr": psnr, "load": load,
                 **measure(renderer, camera.resized(w, h), RenderOptions(c["mode"], depth=False), frames),
                 "machine": machine(), "driver": renderer.ctx.info["GL_RENDERER"]} for w, h in SIZES]
    finally:
        renderer.close()


def machine() -> str:
    """Processor and number of cores this process may use."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{model}, {cores} cores"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--scene", default="biker", choices=("biker", "playbot", "random"))
    parser.add_argument("--frames", type=int, default=20)
    args = parser.parse_args()
    rows = run(args.data, args.scene, args.frames)
    first = rows[0]
    print(f"{first['machine']}; {first['driver']}")
    print(f"{first['scene']}: {first['gaussians']:,} Gaussians, loaded in {first['load']:.0f} ms, "
          f"{first['psnr']:.1f} dB against gsplat; milliseconds per frame, medians of {args.frames}")
    columns = (*STAGES, "frame", "best", "cpu")
    print(f"{'size':>10}" + "".join(f"{name:>9}" for name in columns))
    for row in rows:
        print(f"{row['width']:>5}x{row['height']:<4}" + "".join(f"{row[name]:9.1f}" for name in columns))


if __name__ == "__main__":
    main()
