"""Measure the OpenGL renderer's frames, by either compositor, while the camera moves.

Before anything is timed the renderer must reproduce the picture that gsplat drew of the
same view. The scenes lie in the folder that SPLATVIEW_TEST_DATA names. "frame" is waited
for, "cpu" the processor time of a frame, over all threads: what a busy machine changes
least.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np

from splatview_viewer.formats import open_file
from splatview_viewer.geometry.cameras import Camera
from splatview_viewer.render.base import RenderOptions
from splatview_viewer.render.gl import renderer as gl_renderer
from splatview_viewer.render.gl.renderer import GlRenderer
from splatview_viewer.screens.egl import create_context

DATA = Path(
    os.environ.get(
        "SPLATVIEW_TEST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"
    )
)
SCENES = {"biker": "biker.compressed.ply", "playbot": "playbot"}
SIZES = ((640, 480), (1280, 720))
FRAMES = 21
COMPOSITORS = {"quads": False, "tiles": True}
"""Which are for software rasterisers."""
GATE = 60.0
"""Decibels below which the picture is called wrong."""


def run() -> list[dict[str, str]]:
    rows = []
    ctx = create_context()
    renderers = []
    for software in COMPOSITORS.values():
        with mock.patch.object(
            gl_renderer, "is_software", lambda ctx, software=software: software
        ):
            renderers.append(GlRenderer(ctx))
    cameras = json.loads((DATA / "gsplat_reference" / "cameras.json").read_text())
    for scene, file in SCENES.items():
        c = cameras[f"{scene}_0"]
        camera = Camera(
            np.array(c["viewmat"]), np.array(c["K"]), c["width"], c["height"]
        )
        gaussians = open_file(DATA / file)
        psnr = []
        for renderer in renderers:
            renderer.load(gaussians)
            psnr.append(check(renderer, f"{scene}_0", camera, RenderOptions(c["mode"])))
        for width, height in SIZES:
            measured = measure(
                renderers,
                camera.resized(width, height),
                RenderOptions(c["mode"], depth=False),
            )
            for kind, renderer, db, ms in zip(
                COMPOSITORS, renderers, psnr, measured, strict=True
            ):
                rows.append(
                    {
                        "scene": scene,
                        "Gaussians": f"{len(gaussians):,}",
                        "size": f"{width}x{height}",
                        "compositor": kind,
                        "load ms": f"{renderer.timings['activate'] + renderer.timings['load']:.0f}",
                        **{f"{name} ms": f"{t:.1f}" for name, t in ms.items()},
                        "dB against gsplat": f"{db:.1f}",
                        "OpenGL": ctx.info["GL_RENDERER"],
                    }
                )
    for renderer in renderers:
        renderer.close()
    return rows


def check(
    renderer: GlRenderer, name: str, camera: Camera, options: RenderOptions
) -> float:
    """Return the decibels against gsplat's picture.

    Raises RuntimeError when it is another picture.
    """
    with np.load(DATA / "gsplat_reference" / "renders.npz") as renders:
        expected = renders[name][..., :3].astype(np.float64)
    psnr = -10 * np.log10(
        np.mean((renderer.render(camera, options).pixels().color - expected) ** 2)
    )
    if psnr < GATE:
        raise RuntimeError(
            f"{name}: {psnr:.1f} dB against gsplat, below {GATE}: its times would mean nothing"
        )
    return float(psnr)


def measure(
    renderers: list[GlRenderer], camera: Camera, options: RenderOptions
) -> list[dict[str, float]]:
    """Return the milliseconds a frame, and of processor time, for each renderer.

    Medians over `FRAMES` views.

    They take turns, so that whatever else the machine does meets them alike.
    """
    spent: list[dict[str, list[float]]] = [{"frame": [], "cpu": []} for _ in renderers]
    for i in range(-1, FRAMES):
        for renderer, times in zip(renderers, spent, strict=True):
            started_at = time.perf_counter()
            cpu = time.process_time()
            renderer.render(moved(camera, i), options)
            renderer.ctx.finish()
            if i < 0:  # shaders are compiled for the first one
                continue
            times["frame"].append((time.perf_counter() - started_at) * 1e3)
            times["cpu"].append((time.process_time() - cpu) * 1e3)
    return [{name: float(np.median(t)) for name, t in times.items()} for times in spent]


def moved(camera: Camera, frame: float) -> Camera:
    """Return `camera` turned about its own vertical axis, more at each frame."""
    angle = 2e-3 * frame
    rotation = np.eye(4)
    rotation[[0, 0, 2, 2], [0, 2, 0, 2]] = (
        np.cos(angle),
        np.sin(angle),
        -np.sin(angle),
        np.cos(angle),
    )
    return replace(camera, viewmat=rotation @ camera.viewmat)
