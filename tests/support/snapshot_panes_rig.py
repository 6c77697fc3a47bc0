"""Draws panes of the view of memory snapshots without a screen, and acts as the user of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from imgui_bundle import ImVec2, imgui

from splatview.viewer_app.controls import Rect
from splatview.viewer_app.interface.panel import Panel
from splatview.viewer_app.memory.loading import from_pickled, load_snapshot
from splatview.viewer_app.screens.offscreen import OffscreenScreen
from splatview.viewer_app.views._snapshot.content import Content
from splatview.viewer_app.views._snapshot.state import Look
from support.wait import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np

    from splatview.viewer_app.memory.model import Snapshot

GROUND = (10, 200, 30)
"""What the framebuffer holds where nothing was drawn."""
WHOLE = Rect(40, 30, 1200, 660)
MOMENT = 15_000
"""Somewhere in the middle of the real snapshot."""


class Rig:
    """An imgui context over a framebuffer of 1280 x 720 pixels."""

    def __init__(self) -> None:
        self.screen = OffscreenScreen(1280, 720)
        self.panel = Panel(1.0)
        self.content: Content = None  # type: ignore[assignment]
        self.look = Look()
        self.pane: Any = None
        self.rect, self.scale = WHOLE, 1.0

    def show(self, pane: Any, snapshot: Snapshot, rect: Rect = WHOLE, scale: float = 1.0) -> Any:
        """Begin with this pane, and draw it until nothing is missing."""
        self.leave()
        self.content, self.look, self.pane, self.rect, self.scale = Content(snapshot), Look(), pane, rect, scale
        self.panel._set_scale(scale)
        imgui.get_io().add_mouse_pos_event(-1e4, -1e4)
        self.content.axis(0, "events")  # the plot above a pane has asked for it
        self.settle()
        return pane

    def frame(self) -> bool:
        """One picture, which is painted when somebody looks at it (`pixels`)."""
        io = imgui.get_io()
        io.display_size, io.delta_time = ImVec2(1280, 720), 1 / 60
        imgui.backends.opengl3_new_frame()
        imgui.new_frame()
        try:
            return bool(self.pane.draw(self.content, self.look, self.rect, self.scale))
        finally:
            imgui.render()

    def settle(self) -> None:
        """Draw until nothing changes any more and nothing is worked on."""
        end, quiet = time.monotonic() + PATIENCE, 0
        while quiet < 3:
            assert time.monotonic() < end, f"still {self.content.working} after {PATIENCE} s"
            everybody = [self.content, *self.content.others()]
            misses = [content.misses for content in everybody]
            again = self.frame()
            idle = all(content.wait(PATIENCE) for content in everybody)
            missing = misses != [content.misses for content in everybody]
            quiet = quiet + 1 if idle and not again and not missing else 0

    def move(self, x: float, y: float) -> None:
        imgui.get_io().add_mouse_pos_event(x, y)
        self.frame()

    def click(self, at: tuple[float, float] | None, button: int = 0, *, double: bool = False) -> None:
        assert at is not None
        self.move(*at)
        for _ in range(2 if double else 1):
            for down in (True, False):
                imgui.get_io().add_mouse_button_event(button, down)
                self.frame()
        self.settle()

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        self.move(*start)
        imgui.get_io().add_mouse_button_event(0, True)
        self.frame()
        self.move(*end)
        imgui.get_io().add_mouse_button_event(0, False)
        self.settle()

    def wheel(self, at: tuple[float, float], notches: float) -> None:
        self.move(*at)
        imgui.get_io().add_mouse_wheel_event(0, notches)
        self.frame()
        self.settle()

    def pixels(self) -> np.ndarray:
        """uint8 (720, 1280, 3): the last picture."""
        self.screen.framebuffer.use()
        self.screen.framebuffer.clear(*(c / 255 for c in GROUND), alpha=1.0)
        imgui.backends.opengl3_render_draw_data(imgui.get_draw_data())
        self.screen.framebuffer.use()
        return self.screen.pixels()[:, :, :3]

    def leave(self) -> None:
        if self.content is not None:
            self.content.close()

    def close(self) -> None:
        self.leave()
        self.panel.close()
        self.screen.close()


@pytest.fixture(name="rig", scope="module")
def rig_fixture() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


@pytest.fixture(name="real", scope="module")
def real_fixture(data_dir: Path) -> Snapshot:
    return load_snapshot(data_dir / "training_memory_snapshot.pickle", cache=False)


@pytest.fixture(name="full", scope="module")
def full_fixture() -> Snapshot:
    """Two devices; on the first 8 MiB are asked for in vain while 12 MiB are free in two pieces."""
    def event(action: str, addr: int, size: int, at: int, **more: Any) -> dict[str, Any]:
        return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": at,
                "frames": [{"filename": "/home/me/train.py", "line": at, "name": "step"}], **more}

    mib = 1 << 20
    trace = [event("segment_alloc", 64 * mib, 20 * mib, 1), event("alloc", 64 * mib, 6 * mib, 2),
             event("alloc", 70 * mib, 8 * mib, 3), event("alloc", 78 * mib, 6 * mib, 4)]
    for at, (addr, size) in enumerate([(64, 6), (78, 6)], 5):
        trace += [event(action, addr * mib, size * mib, at) for action in ("free_requested", "free_completed")]
    oom = event("oom", 0, 8 * mib, 9, device_free=mib)
    del oom["addr"]
    blocks = [{"address": a * mib, "size": s * mib, "requested_size": s * mib, "state": state, "frames": []}
              for a, s, state in ((64, 6, "inactive"), (70, 8, "active_allocated"), (78, 6, "inactive"))]
    segment = {"device": 0, "address": 64 * mib, "total_size": 20 * mib, "allocated_size": 8 * mib,
               "active_size": 8 * mib, "requested_size": 8 * mib, "stream": 0, "segment_type": "large",
               "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks}
    other = [event("alloc", 512 * mib, mib, 3), event("alloc", 520 * mib, 2 * mib, 4)]
    settings = {"expandable_segments": False, "max_split_size": -1, "roundup": {"1": 0, "2": 4}}
    return from_pickled({"segments": [segment], "device_traces": [[*trace, oom], other],
                         "allocator_settings": settings, "external_annotations": []}, "full.pickle")


def press(monkeypatch: pytest.MonkeyPatch, rig: Rig, word: str) -> None:
    """Press the button that is called so, once."""
    left = [word]
    for kind in ("button", "small_button"):
        real = getattr(imgui, kind)

        def button(text: str, *rest: Any, real: Any = real) -> bool:
            real(text, *rest)
            if left and text == left[0]:
                left.clear()
                return True
            return False

        monkeypatch.setattr(imgui, kind, button)
    rig.frame()
    assert not left, f"there is no button {word!r}"
    monkeypatch.undo()
    rig.settle()
