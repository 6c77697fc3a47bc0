"""Measure how long a user waits for the Gaussians that a region chooses.

A file of a million Gaussians on a screen of 1600x1000. "count" is the time from the
release of the mouse to the number in the panel, "picture" to the dots in a finished
picture. The search begins with the press, half a second before the release; "at once" has
both in the same turn. A step of the brush is one move of the mouse while it is drawn.
"cpu" is the processor time to the picture, over all threads: what a busy machine changes
least.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.harness import wait_until
from benchmarks.interface import opened, scene_file
from splatview_viewer.app.loop import App, step
from splatview_viewer.core.events import (
    PointerMove,
    PointerPress,
    PointerRelease,
)
from splatview_viewer.gpu.work import is_software
from splatview_viewer.screens.offscreen import OffscreenScreen

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.core.events import Event

SIZE = 1600, 1000
COUNT = 1_000_000
ROUNDS = 5
TIMEOUT_S = 60.0
DRAG_S = 0.5
"""Seconds for which a user draws a box."""
SOFTWARE_MS = 300.0
GPU_MS = 20.0
"""Milliseconds to stay below, on a software rasteriser and on a GPU."""


class Waited(NamedTuple):
    """Times of one choice in milliseconds, and what it chose."""

    number: float
    picture: float
    cpu: float
    chosen: int


def run() -> list[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="sv-selecting-") as folder:
        app = opened((scene_file(Path(folder), COUNT),), SIZE)
        try:
            return _measure(app)
        finally:
            app.close()


def _measure(app: App) -> list[dict[str, str]]:
    view = _view(app)
    select = view.tools["select"]
    user = SelectingUser(app)
    cases: dict[str, list[Waited]] = {}
    for _ in range(ROUNDS):
        select.through = False
        user.turn_camera()
        cases.setdefault("box, in front", []).append(user.drag_box())
        user.turn_camera()
        cases.setdefault("box, in front, at once", []).append(user.drag_at_once())
        cases.setdefault("brush, its first step", []).append(user.begin_brush())
        cases.setdefault("brush, a step", []).append(user.move_brush())
        user.end_brush()
        select.through = True
        cases.setdefault("box, through", []).append(user.drag_box())
    renderer = view.data.renderer
    target = SOFTWARE_MS if is_software(app.screen.ctx) else GPU_MS
    rows = []
    for name, waited in cases.items():
        rows.append(
            {
                "region": name,
                "count, ms": f"{statistics.median(w.number for w in waited):.1f}",
                "picture, ms": f"{statistics.median(w.picture for w in waited):.1f}",
                "slowest": f"{max(w.picture for w in waited):.1f}",
                "cpu, ms": f"{statistics.median(w.cpu for w in waited):.0f}",
                "target": f"{target:.0f}",
                "chosen": f"{waited[-1].chosen:,} of {COUNT:,}",
                "renderer": f"{renderer.name}, {app.screen.ctx.info['GL_RENDERER']}",
            }
        )
    return rows


def _view(app: App) -> Any:
    shown: Any = app.user.view
    return shown.view


class SelectingUser:
    """A user who chooses Gaussians."""

    def __init__(self, app: App) -> None:
        self._app = app
        assert isinstance(app.screen, OffscreenScreen)
        self._screen = app.screen
        self._view = _view(app)
        rect = app.user.layout.active.rect
        self._low = rect.x + 0.3 * rect.width, rect.y + 0.3 * rect.height
        self._high = rect.x + 0.7 * rect.width, rect.y + 0.7 * rect.height
        self._brush_x = self._low[0]

    def turn_camera(self) -> None:
        """Look from elsewhere, and wait for that picture."""
        rig = self._view.rig
        rig.orbit.orbit(0.1, 0.0)
        rig.apply_orbit()
        self._rest()
        # The picture after a movement is drawn in full a moment later.
        self._take_turns(self._has_stopped)
        self._view.redraw()
        self._rest()

    def drag_box(self) -> Waited:
        self._choose_tool("box")
        x, y = self._high
        self._push(PointerMove(*self._low), PointerPress(*self._low))
        self._push(PointerMove(x, y))
        end = time.monotonic() + DRAG_S
        while time.monotonic() < end:
            self._app.tick(time.monotonic(), self._screen.poll(0.01))
        self._rest()
        return self._wait_for(PointerRelease(x, y))

    def drag_at_once(self) -> Waited:
        self._choose_tool("box")
        x, y = self._high
        return self._wait_for(
            PointerMove(*self._low),
            PointerPress(*self._low),
            PointerMove(x, y),
            PointerRelease(x, y),
        )

    def begin_brush(self) -> Waited:
        self._choose_tool("brush")
        x, y = self._low
        self._brush_x = x
        self._push(PointerMove(x, y))
        self._rest()
        return self._wait_for(PointerPress(x, y))

    def move_brush(self) -> Waited:
        self._brush_x += 40
        return self._wait_for(PointerMove(self._brush_x, self._low[1]))

    def end_brush(self) -> None:
        self._push(PointerRelease(self._brush_x, self._low[1]))
        self._rest()

    def _choose_tool(self, name: str) -> None:
        self._view.tools.choose(name)
        self._rest()

    def _push(self, *events: Event) -> None:
        self._screen.push(*events)

    def _rest(self) -> None:
        """Take turns until nothing is left to draw."""
        self._take_turns(self._is_at_rest)
        self._app.screen.ctx.finish()

    def _is_at_rest(self) -> bool:
        """Return whether the picture is drawn, with the dots of what is chosen."""
        select = self._view.tools["select"]
        return not self._app.user.dirty and select.dots.mask is select.mask

    def _has_stopped(self) -> bool:
        """Return whether the camera has come to rest."""
        return not self._view.is_moving

    def _wait_for(self, *events: Event) -> Waited:
        """Return how long events take that change what is chosen."""
        select = self._view.tools["select"]
        previous = select.mask
        started_at = time.perf_counter()
        cpu = time.process_time()
        self._push(*events)
        self._take_turns(lambda: select.mask is not previous)
        count_ms = (time.perf_counter() - started_at) * 1e3
        self._rest()
        picture_ms = (time.perf_counter() - started_at) * 1e3
        cpu_ms = (time.process_time() - cpu) * 1e3
        return Waited(count_ms, picture_ms, cpu_ms, select.mask.count)

    def _take_turns(self, condition: Callable[[], bool]) -> None:
        take_turn = partial(step, self._app)
        take_turn()
        wait_until("what is chosen, and its picture", condition, TIMEOUT_S, take_turn)
