"""Measure what the interface costs the processor in a turn of the viewer's loop.

A run that logs a loss publishes a scene of 2,000 Gaussians; the screen of 1600x1000 has
the panel open at Look. Drawn are the whole interface, as after a change in it, and one
whose boards stay, as while a camera moves; then pictures that come 60 times a second,
with an interface drawn anew or the last one once more. Then two runs of 250 streams
each, with names of 200 letters, are listed: a turn without news, and the work on the
list in one with a new version of one stream. All times are of the thread that draws,
without those of OpenGL's own threads; other programs on the machine touch the least
ones little.
"""

from __future__ import annotations

import statistics
import sys
import time
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import torch
from imgui_bundle import imgui

import splatview
from benchmarks.harness import Program, reply, wait_until
from splatview_viewer.app.loop import App, AppOptions, step
from splatview_viewer.gpu.work import is_software
from splatview_viewer.screens.offscreen import OffscreenScreen

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 1600, 1000
COUNT = 2_000
DRAWINGS = 300
TURNS = 60
STREAMS = 250
"""Of each of the two other runs."""
NAME_LETTERS = 200


def main() -> None:
    """Publish many streams, tell when they are there, and wait for the end."""
    picture = np.zeros((8, 8, 3), np.uint8)
    for number in range(STREAMS):
        name = f"{sys.argv[1]} {number} ".ljust(NAME_LETTERS, "x")
        splatview.publish(picture, name)
    reply(published=STREAMS)
    sys.stdin.read()


def run() -> list[dict[str, str]]:
    _publish_scene()
    for logged_step in range(0, 12_500, 100):
        splatview.log(logged_step, loss=0.2 * np.exp(-logged_step / 3000) + 0.02)
    app = App(OffscreenScreen(*SIZE), AppOptions())
    try:
        _wait_for_entries(app, 2)
        return [*_measure_drawing(app), *_measure_turns(app)]
    finally:
        app.close()


def _publish_scene() -> None:
    scene = {
        "means": torch.randn(COUNT, 3),
        "quats": torch.randn(COUNT, 4),
        "scales": torch.full((COUNT, 3), -3.6),
        "opacities": torch.full((COUNT,), 2.0),
        "sh0": torch.rand(COUNT, 1, 3),
    }
    splatview.publish(scene, "gaussians")


def _wait_for_entries(app: App, count: int) -> None:
    """Take turns until so many entries are listed and the picture rests."""

    def is_there() -> bool:
        view = app.user.view
        is_shown = view is not None and not view.empty
        return len(app.state.entries) >= count and is_shown and not app.user.dirty

    wait_until(f"{count} entries", is_there, meanwhile=lambda: step(app))


def _measure_drawing(app: App) -> list[dict[str, str]]:
    user = app.user
    framebuffer = app.screen.framebuffer
    ctx = app.screen.ctx

    def draw(keeps: bool) -> None:
        user.interface.draw(user, framebuffer.size, keeps=keeps)
        user.interface.surface.render(framebuffer)

    rows = []
    for title, keeps in (("whole", False), ("boards stay", True)):
        times = _times(lambda keeps=keeps: draw(keeps), DRAWINGS, ctx.finish)
        rows.append(_row(f"interface, {title}", times))
        with_opengl = imgui.backends.opengl3_render_draw_data
        imgui.backends.opengl3_render_draw_data = lambda _: None
        try:
            times = _times(lambda keeps=keeps: draw(keeps), DRAWINGS)
        finally:
            imgui.backends.opengl3_render_draw_data = with_opengl
        rows.append(_row(f"interface, {title}, without OpenGL", times))
    rows += _measure_pictures(app)
    screen = str(ctx.info["GL_RENDERER"]).split(" (")[0]
    rows[0]["screen"] = f"{screen}{', software' if is_software(ctx) else ''}"
    return rows


def _measure_pictures(app: App) -> list[dict[str, str]]:
    """Measure pictures that arrive, until they are presented."""
    user = app.user
    seconds = count(time.monotonic(), 1 / 60)
    now = next(seconds)

    def draw() -> None:
        user.draw(now)

    def present() -> None:
        nonlocal now
        user.present(now)
        app.screen.ctx.finish()
        now = next(seconds)
        user.mark_pictures()

    def present_for_drag() -> None:
        present()
        user.mark_drag()

    return [
        _row("picture, interface drawn anew", _times(draw, DRAWINGS, present_for_drag)),
        _row("picture, interface stays", _times(draw, DRAWINGS, present)),
    ]


def _measure_turns(app: App) -> list[dict[str, str]]:
    with Program(__name__, "first") as first, Program(__name__, "second") as second:
        first.answer()
        second.answer()
        _wait_for_entries(app, 2 + 2 * STREAMS)

        def turn() -> None:
            app.pump.poll(time.monotonic())
            app.user.tick(time.monotonic())

        idle = _times(turn, TURNS)
        busy = _times(turn, TURNS, _publish_scene)
    count = f"{2 * STREAMS:,} idle streams"
    return [
        _row(f"turn without a drawing, {count}", idle),
        _row(f"the same, one more stream publishes, {count}", busy),
    ]


def _times(
    work: Callable[[], object],
    count: int,
    between: Callable[[], object] = lambda: None,
) -> list[float]:
    """Return the milliseconds of this thread that calls took."""
    times = []
    for _ in range(count):
        started_at = time.thread_time()
        work()
        times.append((time.thread_time() - started_at) * 1e3)
        between()
    return times


def _row(title: str, times: list[float]) -> dict[str, str]:
    return {
        "what": title,
        "median, ms": f"{statistics.median(times):.2f}",
        "least, ms": f"{min(times):.2f}",
    }


if __name__ == "__main__":
    main()
