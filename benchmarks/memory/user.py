"""Run the viewer as a user starts it, with a user who looks at a snapshot.

`python -m benchmarks.memory.user serve ...`

As `benchmarks.gpu.driver`, with these commands besides:

| do | what |
|---|---|
| first | monotonic seconds of the first picture of all, with the snapshot, with its plot, with the whole plot |
| look, part= | see this part of the time, in its middle |
| hand, how=rest, pan or zoom | drag to and fro; turn the wheel in and out |
| painted | what `begin` counts from: new pictures of the plot; is it complete now |
"""

from __future__ import annotations

import math
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from splatview_viewer.__main__ import begin

if __name__ == "__main__":
    begin(
        sys.argv[1:]
    )  # what the viewer's program does first of all, before anything else is imported

from benchmarks.gpu import driver
from benchmarks.gpu.driver import CountingScreen
from splatview_viewer.core.events import (
    Expose,
    PointerMove,
    PointerPress,
    PointerRelease,
    Wheel,
)
from splatview_viewer.kinds.snapshot.view import SnapshotView

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Caption, Screen

HZ = 125.0
NOTCHES = 24
"""The wheel is turned so far in, and out again, a notch at a time."""


class MemoryScreen(CountingScreen):
    """A screen with a user in front of it who looks at a snapshot."""

    def __init__(self, screen: Screen) -> None:
        self._hand_does = "rest"
        self._time_of: dict[str, float] = {}
        self._sheet: object = None
        self._painted = 0
        super().__init__(screen)
        threading.Thread(target=self._do_things, name="hand", daemon=True).start()

    def _snapshot(self) -> SnapshotView | None:
        view = getattr(self._view(), "view", None)
        if isinstance(view, SnapshotView) and view.data.content is not None:
            return view
        return None

    def present(self, caption: Caption) -> None:
        super().present(caption)
        view = self._snapshot()
        self._note("first", True)
        if view is None:
            return
        self._note("loaded", True)
        painting = view.picture.painting
        if painting is None:
            return
        self._note("plot", True)
        self._note("whole", view.complete)
        if painting.sheet is not self._sheet:
            self._sheet = painting.sheet
            self._painted += 1

    def _note(self, event: str, has_happened: bool) -> None:
        """Keep the time when an event happened first, drawn to its end."""
        if has_happened and event not in self._time_of:
            self._screen.ctx.finish()
            self._time_of[event] = time.monotonic()

    def _do_first(self) -> dict[str, Any]:
        return {"whole": None, **self._time_of}

    def _do_begin(self) -> None:
        super()._do_begin()
        self._painted = 0

    def _do_painted(self) -> dict[str, Any]:
        view = self._snapshot()
        return {
            "seconds": time.monotonic() - self._counted_from,
            "painted": self._painted,
            "presented": len(self._presented_at),
            "complete": view is not None and view.complete,
            "timings": view.timings if view is not None else {},
        }

    def _do_look(self, part: float) -> None:
        view = self._snapshot()
        assert view is not None, "there is no snapshot yet"
        world = view.world()
        assert world is not None, "the axis is still being worked out"
        low, high = world.axis.extent
        middle = (low + high) / 2
        half = (high - low) * part / 2
        is_part = part < 1
        view.change(x=(middle - half, middle + half) if is_part else None)
        self.push(Expose())

    def _do_hand(self, how: str) -> None:
        self._hand_does = how

    def _do_things(self) -> None:
        pressed = False
        turned = 0
        direction = 1
        phase = 0.0
        while not self.state.closed:
            time.sleep(1 / HZ)
            gesture = self._hand_does
            width, height = self._extent
            x = width * 0.5 + 0.2 * width * math.sin(phase)
            y = height * 0.5
            if pressed and gesture != "pan":
                self.push(PointerRelease(x, y))
                pressed = False
            if gesture == "pan":
                if pressed:
                    self.push(PointerMove(x, y))
                else:
                    self.push(PointerPress(x, y))
                pressed = True
                phase += 3.0 / HZ
            elif gesture == "zoom":
                self.push(Wheel(width * 0.6, height * 0.5, float(direction)))
                turned += direction
                if not 0 < turned < NOTCHES:
                    direction = 1
                    if turned >= NOTCHES:
                        direction = -1


if __name__ == "__main__":
    driver.main(MemoryScreen)
