"""The overview of a memory snapshot is a lane of the time area."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import widgets
from support.memory_data import event, snapshot
from support.viewer import Viewer

from splatview_viewer.core.events import (
    PointerMove,
    PointerPress,
    PointerRelease,
    Wheel,
)
from splatview_viewer.shell.time_area import lanes_of

pytestmark = pytest.mark.usefixtures("timeline_kernels")


def test_lane_moves_and_zooms_the_window(
    open_viewer: Callable[..., Viewer], tmp_path: Path
) -> None:
    events = []
    for address in range(200):
        events.append(event("alloc", 512 * address, time_us=10 * address))
        if address % 3:
            freed = {"time_us": 10 * address + 5}
            events.append(event("free_completed", 512 * address, **freed))
    file = tmp_path / "memory.pickle"
    file.write_bytes(pickle.dumps(snapshot(events)))
    viewer = open_viewer((940, 720), files=(file,))
    viewer.until(viewer.loaded)
    (lane,) = lanes_of(viewer.user)
    assert lane.caption.endswith("events")
    assert lane.reason
    view: Any = viewer.user.view

    def is_drawn() -> bool:
        return "Overview track" in widgets.drawn and view.view.world() is not None

    widgets.drawn.clear()
    viewer.until(is_drawn)
    # Nothing that could be pressed has no effect.
    assert "time play" not in widgets.drawn
    x, y = widgets.middle("Overview track")

    def window_now() -> Any:
        return view.view.state.x

    assert window_now() is None
    viewer.do(PointerMove(x, y))
    viewer.do(PointerPress(x, y))
    window = window_now()
    assert window is not None
    viewer.do(PointerMove(x + 100, y))
    viewer.do(PointerRelease(x + 100, y))
    moved = window_now()
    assert moved[0] > window[0]
    assert moved[1] - moved[0] == pytest.approx(window[1] - window[0])
    viewer.do(Wheel(x + 100, y, 2))
    zoomed = window_now()
    assert zoomed[1] - zoomed[0] < moved[1] - moved[0]
    # The pane does not have it a second time.
    assert view.view.host.around == "desktop"
