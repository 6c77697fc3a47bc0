"""What the OpenGL renderer takes per frame while the camera moves, stage by stage.

Before anything is timed the renderer must reproduce the picture that gsplat drew of the same view. The scenes lie in
the folder that SPLATVIEW_TEST_DATA names. A stage's time is a median with a wait after each stage; "frame" is without
those waits, as in the viewer, where stages overlap, and "cpu" the processor time of a frame, over all threads: what a
busy machine changes least.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from viewer_app.cameras import Camera
from viewer_app.files import load_scene
from viewer_app.renderers.base import RenderOptions
from viewer_app.renderers.gl import GlRenderer
from viewer_app.screens.offscreen import create_context

DATA = Path(os.environ.get("SPLATVIEW_TEST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
SCENES = {"biker": "biker.compressed.ply", "playbot": "playbot"}
SIZES = ((640, 480), (1280, 720))
FRAMES = 21
STAGES = ("sort", "project", "draw")
GATE = 60.0
"""Decibels below which the picture is called wrong."""


def run() -> list[dict[str, str]]:
    rows = []
    renderer = GlRenderer(create_context())
    cameras = json.loads((DATA / "gsplat_reference" / "cameras.json").read_text())
    for scene, file in SCENES.items():
        c = cameras[f"{scene}_0"]
        camera = Camera(np.array(c["viewmat"]), np.array(c["K"]), c["width"], c["height"])
        renderer.profile = True
        gaussians = load_scene(DATA / file)
        renderer.load(gaussians)
        load = renderer.timings["activate"] + renderer.timings["upload"]
        psnr = check(renderer, f"{scene}_0", camera, RenderOptions(c["mode"]))
        for width, height in SIZES:
            ms = measure(renderer, camera.resized(width, height), RenderOptions(c["mode"], depth=False))
            rows.append({"scene": scene, "Gaussians": f"{len(gaussians):,}", "size": f"{width}x{height}",
                         "load ms": f"{load:.0f}", **{f"{name} ms": f"{t:.1f}" for name, t in ms.items()},
                         "sort / frame": f"{ms['sort'] / ms['frame']:.1%}", "dB against gsplat": f"{psnr:.1f}",
                         "OpenGL": renderer.ctx.info["GL_RENDERER"]})
    renderer.close()
    return rows


def check(renderer: GlRenderer, name: str, camera: Camera, options: RenderOptions) -> float:
    """Decibels against gsplat's picture; raises RuntimeError when it is another picture."""
    with np.load(DATA / "gsplat_reference" / "renders.npz") as renders:
        expected = renders[name][..., :3].astype(np.float64)
    psnr = -10 * np.log10(np.mean((renderer.render(camera, options).pixels().color - expected) ** 2))
    if psnr < GATE:
        raise RuntimeError(f"{name}: {psnr:.1f} dB against gsplat, below {GATE}: its times would mean nothing")
    return float(psnr)


def measure(renderer: GlRenderer, camera: Camera, options: RenderOptions) -> dict[str, float]:
    """Milliseconds by stage, per frame, and of processor time: medians over `FRAMES` views."""
    spent: dict[str, list[float]] = {name: [] for name in (*STAGES, "frame", "cpu")}
    renderer.profile = True
    renderer.render(moved(camera, -1), options)  # shaders are compiled for the first one
    for i in range(FRAMES):
        renderer.render(moved(camera, i), options)
        for name in STAGES:
            spent[name].append(renderer.timings[name])
    renderer.profile = False
    for i in range(FRAMES):
        begin, cpu = time.perf_counter(), time.process_time()
        renderer.render(moved(camera, i), options)
        renderer.ctx.finish()
        spent["frame"].append((time.perf_counter() - begin) * 1e3)
        spent["cpu"].append((time.process_time() - cpu) * 1e3)
    return {name: float(np.median(times)) for name, times in spent.items()}


def moved(camera: Camera, frame: int) -> Camera:
    """`camera` turned about its own vertical axis, a little more each frame."""
    angle = 2e-3 * frame
    turn = np.eye(4)
    turn[[0, 0, 2, 2], [0, 2, 0, 2]] = np.cos(angle), np.sin(angle), -np.sin(angle), np.cos(angle)
    return replace(camera, viewmat=turn @ camera.viewmat)
