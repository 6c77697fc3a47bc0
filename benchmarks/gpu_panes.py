"""Three scenes of a million Gaussians side by side, each 1920x1080, all their cameras moving: pictures a second.

Three files in three panes of one viewer on a screen of 5760x1080 that nobody sees, no panel. In each picture every
camera has moved; pictures are waited for, one by one and in rows of sixty. The last one is compared with what each
scene's view draws alone.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.gpu import require_gpu
from benchmarks.interface import opened, scene_file
from splatview_viewer.app.loop import step
from splatview_viewer.core.events import PointerMove, PointerPress
from splatview_viewer.core.screen import read_pixels
from splatview_viewer.kinds.gaussians.view import GaussianView

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.app.loop import App
    from splatview_viewer.shell.pane import Pane

COUNT, PANES, WIDTH, HEIGHT, ROW = 1_000_000, 3, 1920, 1080, 60
TARGET = 60.0
GATE = 45.0
"""Decibels, at 8 bits, below which a pane does not show its scene."""


def run() -> list[dict[str, str]]:
    require_gpu()
    with tempfile.TemporaryDirectory(prefix="sv-panes-") as folder:
        files = tuple(scene_file(Path(folder), COUNT, seed) for seed in range(PANES))
        app = opened(files, (PANES * WIDTH, HEIGHT))
    try:
        seat = app.seat
        seat.state.panel_open = False
        for entry in app.state.entries[1:]:
            seat.panes.add(entry.key)
        end = time.monotonic() + 120
        while any(pane.working() is None for pane in seat.panes) or seat.dirty:
            step(app)
            if time.monotonic() > end:
                raise RuntimeError("the panes did not show their scenes within 120 s")
        views = []
        for pane in seat.panes:
            assert isinstance(pane.view, GaussianView)
            pane.view.settings.coarse_ms, pane.view.settings.reproject = float("inf"), False
            pane.view.handle(PointerPress(pane.rect.x + 900, pane.rect.y + 500), pane.rect)
            views.append(pane.view)
        moves = 0

        def picture() -> None:
            nonlocal moves
            moves += 1
            for pane, view in zip(seat.panes, views, strict=True):
                at = pane.rect.x + 900 + 300 * np.sin(moves / 50), pane.rect.y + 500 + 40 * np.sin(moves / 30)
                view.handle(PointerMove(*at), pane.rect)
            seat.draw(time.monotonic())

        def finish() -> None:
            import torch

            torch.cuda.synchronize()
            app.screen.ctx.finish()

        single, rows = [], []
        for _ in range(2 * ROW):
            single.append(_timed(picture, finish, 1))
        for _ in range(5):
            rows.append(_timed(picture, finish, ROW))
        decibels = min(_check(app, pane, view) for pane, view in zip(seat.panes, views, strict=True))
        mid, row = statistics.median(single[ROW:]), statistics.median(rows)
        return [{"panes": f"{PANES} x {WIDTH}x{HEIGHT}", "Gaussians each": f"{COUNT:,}", "a picture, ms": f"{mid:.2f}",
                 "95% within, ms": f"{np.percentile(single[ROW:], 95):.2f}", "pictures/s": f"{1e3 / row:.0f}",
                 "target": f"{TARGET:g}", "dB against each alone": f"{decibels:.1f}",
                 "way": " > ".join(views[0].path)}]
    finally:
        app.close()


def _timed(draw: Callable[[], None], finish: Callable[[], None], count: int) -> float:
    """Milliseconds per call."""
    finish()
    begin = time.perf_counter()
    for _ in range(count):
        draw()
    finish()
    return (time.perf_counter() - begin) * 1e3 / count


def _check(app: App, pane: Pane, view: GaussianView) -> float:
    """Decibels between what a pane shows and a picture of its scene alone."""
    r = pane.rect
    pane.draw(app.screen.framebuffer)  # without axes and words
    shown = read_pixels(app.screen.framebuffer)[r.y:r.y + r.height, r.x:r.x + r.width, :3].astype(np.float32)
    camera = view.camera(r)
    assert camera is not None
    options = view.options
    pixels = view.content.renderer.render(camera, options).pixels()
    view.picture.lose()  # the renderer has drawn another one in its place
    expected = np.clip(pixels.color + (1 - pixels.alpha[..., None]) * np.array(view.background), 0, 1) * 255
    psnr = float(20 * np.log10(255 / max(np.sqrt(np.mean((shown - expected) ** 2)), 1e-9)))
    if psnr < GATE:
        raise RuntimeError(f"{psnr:.1f} dB between a pane and its scene alone, below {GATE}")
    return psnr
