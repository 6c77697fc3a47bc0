"""A user of the view of memory snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from imgui_bundle import imgui

from splatview_viewer.core.events import PointerMove, PointerPress, PointerRelease
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import ShownView
from splatview_viewer.kinds.snapshot.state import SnapshotState
from splatview_viewer.kinds.snapshot.view import SnapshotData, SnapshotView
from splatview_viewer.shell.panel import Panel
from support import widgets
from support.wait import PATIENCE, turns

if TYPE_CHECKING:
    from splatview_viewer.core.events import Event
    from splatview_viewer.screens.offscreen import OffscreenScreen
    from splatview_viewer.snapshot.model import MemorySnapshot

EVENT_INDEX = 15_000
"""Somewhere in the middle of the real snapshot."""


class User:
    """Looks at a snapshot on a screen of its own size, and uses it as a person would."""

    def __init__(
        self,
        screen: OffscreenScreen,
        snapshot: MemorySnapshot,
        size: tuple[int, int] = (960, 600),
        **state: Any,
    ) -> None:
        screen.resize(*size, 1.0)
        self.screen, self.panel, self.rect = screen, Panel(1.0), Rect(0, 0, *size)
        self.view = SnapshotView(SnapshotData(screen.ctx), SnapshotState(**state))
        self._adapted: Any = ShownView(self.view)
        self._adapted.update(snapshot)
        self.settle()

    @property
    def state(self) -> SnapshotState:
        return self.view.state

    def answer_of(self, pane: str) -> Any:
        """The answer that a pane shows."""
        return self.view.pane_memory[pane, "shown"].answer

    @property
    def highlighted(self) -> list[int] | None:
        """The allocations that are lit in the timeline."""
        mask = self.view.content.highlight_mask(
            self.view.device, self.state.search, self.state.highlight
        )[1]
        return None if mask is None else np.flatnonzero(mask).tolist()

    def draw(self) -> bool:
        self._adapted.draw(self.screen.framebuffer, self.rect)
        return self.panel.draw_over(self.screen.framebuffer, self._adapted.draw_ui, 1.0)

    def settle(self) -> np.ndarray:
        """(H, W, 3): the picture when nothing is missing in it any more."""
        again = 3
        state = None
        for _ in turns("the view is complete", rest=False):
            again = 3 if self.draw() or self.state != state else again - 1
            state = self.state
            if not self.view.complete:
                self.view.wait(PATIENCE)
                again = 3
            if not again:
                break
        return self.screen.pixels()[..., :3].astype(int)

    def do(self, *events: Event) -> None:
        for event in events:
            ours, _ = self.panel.handle(
                event, self.rect, str, self.view.covered(self.rect)
            )
            if not ours:
                self._adapted.handle(event, self.rect)
            self.draw()
            self.draw()

    def click(
        self, at: tuple[float, float], button: Any = "left", *, double: bool = False
    ) -> None:
        self.do(PointerMove(*at))
        for clicks in range(1, 3 if double else 2):
            self.do(
                PointerPress(*at, button, clicks=clicks), PointerRelease(*at, button)
            )
        self.settle()

    def press(self, name: str, **how: Any) -> None:
        """Click the widget of this name: a button, "events 7" for a row."""
        widgets.drawn.clear()
        self.settle()
        self.click(widgets.middle(name), **how)

    def box(self, node: int) -> tuple[float, float]:
        """The middle of a box of the flame graph."""
        flame = self.view.pane_memory["flame"]
        place = widgets.drawn["flame"]
        found = [
            (row, box)
            for row, boxes in enumerate(flame.rows)
            for box in boxes
            if box.node == node
        ]
        (row, box), height = found[0], round(imgui.get_text_line_height() + 5)
        return place.x + (box.x0 + box.x1) / 2, place.y + (
            row - flame.top + 0.5
        ) * height

    def close(self) -> None:
        self.panel.close()
        self._adapted.close()
