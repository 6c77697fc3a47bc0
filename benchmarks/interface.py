"""Measure what the viewer's interface costs a frame.

Panel, status line and what tools draw, over the same frame without it.

A file of 20,000 Gaussians at rest on a screen of 1280x720 without a user: its picture
is drawn once, so that a frame is laying it on the screen and drawing the interface.
Every frame is waited for; frames with the interface and without it take turns. "as it
opens" has those parts of the panel open that are open at first.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.app.loop import App, AppOptions, step
from splatview_viewer.core.events import PointerMove
from splatview_viewer.core.screen import read_pixels
from splatview_viewer.formats.ply import write_ply
from splatview_viewer.gpu.work import is_software
from splatview_viewer.scene.scene import GaussianScene
from splatview_viewer.screens.offscreen import OffscreenScreen

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 1280, 720
COUNT = 20_000
ROUNDS = 40
BLOCK = 5
SOFTWARE_MS = 8.0
GPU_MS = 1.5
"""Milliseconds to stay below, on a software rasteriser and on a GPU."""


def scene_file(folder: Path, count: int, seed: int = 0) -> Path:
    """Write a ball of this many Gaussians of SH degree 3 into a file."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(count, 3)).astype(np.float32)
    size = 0.006 * (1e6 / count) ** (1 / 3)
    scene = GaussianScene.of_arrays(
        means,
        rng.normal(size=(count, 4)).astype(np.float32),
        np.exp(rng.normal(np.log(size), 0.4, (count, 3))).astype(np.float32),
        rng.uniform(0.1, 0.95, count).astype(np.float32),
        rng.normal(size=(count, 3)).astype(np.float32) * 0.5,
        rng.normal(size=(count, 15, 3)).astype(np.float32) * 0.05,
        activated=True,
    )
    return write_ply(scene, folder / f"scene-{seed}.ply")[0]


def opened(files: tuple[Path, ...], size: tuple[int, int]) -> App:
    """Return a viewer that shows the first of these files, once all are read."""
    app = App(OffscreenScreen(*size), AppOptions(files=files, gpu_budget=1.0))
    end = time.monotonic() + 300
    while (
        app.state.selected_entry is None
        or any(e.progress is not None for e in app.state.entries)
        or app.user.dirty
    ):
        step(app)
        if time.monotonic() > end:
            raise RuntimeError("the scenes were not read within 300 s")
    return app


def run() -> list[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="sv-interface-") as folder:
        app = opened((scene_file(Path(folder), COUNT),), SIZE)
        try:
            return [_measure(app)]
        finally:
            app.close()


def _measure(app: App) -> dict[str, str]:
    user = app.user
    ctx = app.screen.ctx
    viewport = user.layout.active
    rect = user.layout.active.rect
    moves = 0

    def draw_all() -> None:
        nonlocal moves
        moves += 1
        user.take(
            PointerMove(rect.x + 100 + moves % 200, rect.y + 200), time.monotonic()
        )
        user.draw(time.monotonic())
        ctx.finish()

    def bare() -> None:
        viewport.draw(app.screen.framebuffer)
        ctx.finish()

    for _ in range(10):
        draw_all()
    times: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(ROUNDS):
        for name, draw in (("with", draw_all), ("without", bare)):
            for _ in range(BLOCK):
                times[name].append(_timed(draw))
    both = {name: statistics.median(t) for name, t in times.items()}
    software = is_software(ctx)
    draw_all()
    assert (
        read_pixels(app.screen.framebuffer)[:, : rect.x, :3].std(axis=(0, 1)) > 1
    ).all(), "no panel was drawn"
    cost = both["with"] - both["without"]
    return {
        "frame, ms": f"{both['with']:.2f}",
        "without interface": f"{both['without']:.2f}",
        "interface, ms": f"{cost:.2f}",
        "target": f"{SOFTWARE_MS if software else GPU_MS}",
        "95% of frames within, ms": f"{np.percentile(times['with'], 95):.2f}",
        "screen": str(ctx.info["GL_RENDERER"]).split(" (")[0],
    }


def _timed(draw: Callable[[], None]) -> float:
    started_at = time.perf_counter()
    draw()
    return (time.perf_counter() - started_at) * 1e3
