"""Going back through a recording: how long the viewer's loop stands still while somebody drags from end to end.

200 snapshots of 100,000 Gaussians (spherical harmonics of degree 3) are recorded in memory and on disk. A drag goes
over all of them, slowly and fast, on the viewer's own loop with its panel. "turn" is one turn of the loop, with its
drawing (which on a software rasteriser is the processor's work), "beside drawing" the same without. "until seen" is
from the moment that the hand rests to the picture of the snapshot it rests on. At each rest the picture is compared
with one that is drawn apart of the recorded scene.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.app.loop import App, AppOptions, step
from splatview_viewer.core.events import PointerMove, PointerPress, PointerRelease
from splatview_viewer.core.settings import ViewSettings
from splatview_viewer.kinds import make_view
from splatview_viewer.recording.files import StreamFolder, write_packed
from splatview_viewer.recording.packed import pack
from splatview_viewer.recording.player import Player
from splatview_viewer.recording.recording import Recording, Snapshot
from splatview_viewer.scene.scene import GaussianScene
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.workspace.sources import RecordedSource

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS, COUNT = 200, 100_000
SIZE = 1280, 720
DRAGS = (("slow", 10.0), ("fast", 2.0))
"""Seconds from one end to the other."""
RESTS = (0, 57, 131, 199)
"""Places where the picture is compared."""
SAME = 2
"""Steps of 255 by which it may differ."""


def run() -> list[dict[str, str]]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="sv-scrub-") as folder:
        for where in ("memory", "disk"):
            begin = time.perf_counter()
            path = record(Path(folder))
            took = (time.perf_counter() - begin) / STEPS
            rows += scrub(path, where, took)
            for file in path.iterdir():
                file.unlink()
    return rows


def scenes() -> Iterator[GaussianScene]:
    """A ball that grows, in all its numbers."""
    rng = np.random.default_rng(0)

    def numbers(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    means = numbers(COUNT, 3)
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    scene = GaussianScene.of_arrays(means, numbers(COUNT, 4), numbers(COUNT, 3) * 0.3 - 4.5, numbers(COUNT),
                                    numbers(COUNT, 3), numbers(COUNT, 15, 3) * 0.1)
    for i in range(STEPS):
        yield replace(scene, means=scene.means * (0.5 + 0.5 * i / STEPS), version=i + 1)


def record(root: Path) -> Path:
    """The stream's folder."""
    folder = StreamFolder(root, "benchmark", "splats")
    recording = Recording(1.0, limit=1 << 40, folder=folder)
    for number, scene in enumerate(scenes(), 1):
        file = folder.file(number)
        recording.add(Snapshot(number, number * 100, number, 0, COUNT, write_packed(file, pack(scene)), file=file))
    folder.write_index(recording.every, recording.lines())
    folder.close()
    return folder.path


def scrub(path: Path, where: str, took: float) -> list[dict[str, str]]:
    source = RecordedSource(path)
    if where == "memory":
        from splatview_viewer.recording.files import read_packed

        source.close()
        found = Recording.opened(path)
        found.snapshots = [replace(s, packed=read_packed(s.file), file=None) for s in found.snapshots if s.file]
        source.player = Player(found, lambda: source.wake(), live=False)
    screen = OffscreenScreen(*SIZE)
    app = App(screen, AppOptions(files=(source,)))
    try:
        player = source.player
        assert player is not None
        _until(app, lambda: player._fed is not None)
        _until(app, lambda: not app.seat.dirty)  # the bar is there
        view: Any = app.seat.view
        renderer = view.content.renderer.name
        rows = []
        for name, seconds in DRAGS:
            turns = drag(app, view, player, seconds)
            rests = [rest(app, view, player, place) for place in RESTS]
            most = max(turns, key=lambda t: t[0])
            rows.append({
                "kept in": where, "MB": f"{player.recording.nbytes / 1e6:,.0f}", "packing ms": f"{took * 1e3:.0f}",
                "renderer": renderer, "drag": f"{name}, {seconds:.0f} s",
                "shown of 200": str(len({t[2] for t in turns})), "longest turn ms": f"{most[0] * 1e3:.0f}",
                "beside drawing ms": f"{max(t[1] for t in turns) * 1e3:.0f}",
                "until seen ms": f"{np.median([r[0] for r in rests]) * 1e3:.0f}, at most "
                                 f"{max(r[0] for r in rests) * 1e3:.0f}",
                "off by at most": f"{max(r[1] for r in rests)} of 255",
            } | ({"failed": "another picture"} if max(r[1] for r in rests) > SAME else {}))
        return rows
    finally:
        app.close()


def place_of(view: Any, player: Player, place: float) -> tuple[float, float]:
    """Where a snapshot lies in the bar (`history_bar`: a wide one, without what is live)."""
    rect = view.rect
    left, right = rect.x + 10 + 26 + 6, rect.x + rect.width - 10 - 92 - 10 - 6
    return left + (right - left) * place / (len(player.recording) - 1), rect.y + rect.height - 15


def drag(app: App, view: Any, player: Player, seconds: float) -> list[tuple[float, float, int | None]]:
    """Of each turn its seconds, those without drawing, and which snapshot was shown then."""
    screen: Any = app.screen
    drawing = [0.0]
    draw = app.seat.draw

    def timed(now: float) -> None:
        begin = time.perf_counter()
        draw(now)
        drawing[0] += time.perf_counter() - begin

    app.seat.draw = timed  # type: ignore[method-assign]
    screen.push(PointerMove(*place_of(view, player, 0)), PointerPress(*place_of(view, player, 0)))
    turns, begin = [], time.perf_counter()
    try:
        while (at := (time.perf_counter() - begin) / seconds) < 1.0:
            screen.push(PointerMove(*place_of(view, player, at * (STEPS - 1))))
            drawing[0], since = 0.0, time.perf_counter()
            step(app)
            spent = time.perf_counter() - since
            turns.append((spent, spent - drawing[0], player._fed))
    finally:
        app.seat.draw = draw  # type: ignore[method-assign]
    screen.push(PointerRelease(*place_of(view, player, STEPS - 1)))
    step(app)
    return turns


def rest(app: App, view: Any, player: Player, place: int) -> tuple[float, int]:
    """Seconds until a snapshot is seen, and by how much its picture differs from that of the scene drawn apart."""
    screen: Any = app.screen
    begin = time.perf_counter()
    screen.push(PointerPress(*place_of(view, player, place)), PointerRelease(*place_of(view, player, place)))
    chosen = player.recording.snapshots[place]
    _until(app, lambda: player._fed == chosen.number and view._told == view.content.loads and not app.seat.dirty)
    seen = time.perf_counter() - begin
    _until(app, lambda: not view.moving and not app.seat.dirty)  # and then it is sharp
    rect, camera = view.rect, view.camera()
    assert camera is not None
    alone: Any = make_view("gaussians", screen.ctx, ViewSettings())
    try:
        alone.like(view)
        alone.update(chosen.scene())
        alone.use_camera(camera)
        pictures = []
        for one in (view, alone):
            one.draw(screen.framebuffer, rect)
            pictures.append(screen.pixels()[..., :3].astype(int))
    finally:
        alone.close()
        app.seat.mark()
    return seen, int(np.abs(pictures[0] - pictures[1]).max())


def _until(app: App, condition: Any, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        step(app)
        if time.monotonic() > end:
            raise RuntimeError(f"nothing was seen within {seconds:.0f} s")
