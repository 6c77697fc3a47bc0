"""A user of the view of memory snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from imgui_bundle import imgui

from splatview_viewer.core.command import command_of
from splatview_viewer.core.events import Key, PointerMove, PointerPress, PointerRelease
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.shown_view import ShownView
from splatview_viewer.kinds.snapshot.state import SnapshotState
from splatview_viewer.kinds.snapshot.view import SnapshotData, SnapshotView
from splatview_viewer.shell.surface import Surface
from support import widgets
from support.wait import PATIENCE_S, polls

if TYPE_CHECKING:
    from splatview_viewer.core.events import Event
    from splatview_viewer.screens.offscreen import OffscreenScreen
    from splatview_viewer.snapshot.model import MemorySnapshot
    from support.viewer import Viewer

EVENT_INDEX = 15_000
"""An event in the middle of the real snapshot."""


def settle(viewer: Viewer, view: SnapshotView) -> None:
    """Draw until a view in a viewer shows everything, also what was just chosen."""
    viewer.user.mark()
    viewer.do()
    viewer.until(lambda: view.complete)


def until_compared(viewer: Viewer, view: SnapshotView) -> None:
    """Take turns until a view shows another snapshot below its own."""

    def is_compared() -> bool:
        return view.two_runs.partner is not None

    viewer.until(is_compared)


class User:
    """A person who uses the view of a snapshot, on a screen of a given size."""

    def __init__(
        self,
        screen: OffscreenScreen,
        snapshot: MemorySnapshot,
        size: tuple[int, int] = (960, 600),
        **state: Any,
    ) -> None:
        screen.resize(*size, 1.0)
        self.screen = screen
        self.panel = Surface(1.0)
        self.rect = Rect(0, 0, *size)
        self.view = SnapshotView(SnapshotData(screen.ctx), SnapshotState(**state))
        self._adapted: Any = ShownView(self.view)
        self._adapted.update(snapshot)
        self.settle()

    @property
    def state(self) -> SnapshotState:
        return self.view.state

    def answer_of(self, pane: str) -> Any:
        """Return the answer that a pane shows."""
        return self.view.pane_memory[pane, "shown"].answer

    @property
    def highlighted(self) -> list[int] | None:
        """Indices of the allocations that are highlighted in the timeline."""
        _, mask = self.view.content.highlight_mask(
            self.view.device, self.state.search, self.state.highlight
        )
        if mask is None:
            return None
        return np.flatnonzero(mask).tolist()

    def draw(self) -> bool:
        self._adapted.draw(self.screen.framebuffer, self.rect)
        return self.panel.draw_over(self.screen.framebuffer, self._adapted.draw_ui, 1.0)

    def settle(self) -> np.ndarray:
        """Draw until nothing is missing in the picture; return it, (H, W, 3) int."""
        quiet = 0
        state = None
        for _ in polls("the view is complete", pauses=False):
            needs_redraw = self.draw() or self.state != state
            quiet = 0 if needs_redraw else quiet + 1
            state = self.state
            if not self.view.complete:
                self.view.wait(PATIENCE_S)
                quiet = 0
            if quiet == 3:
                break
        return self.screen.pixels()[..., :3].astype(int)

    def do(self, *events: Event) -> None:
        for event in events:
            covered = self.view.covered(self.rect)
            is_panels, _ = self.panel.input.handle(event, self.rect, str, covered)
            if not is_panels:
                self._take(event)
            self.draw()
            self.draw()

    def _take(self, event: Event) -> None:
        """Run the command of a key, as the viewer does, or give the event to the view."""
        if isinstance(event, Key) and event.pressed:
            command = command_of(self.view.commands(), event)
            if command is not None and command.reason(self.view) is None:
                self._adapted.run(command)
                return
        self._adapted.handle(event, self.rect)

    def click(
        self,
        position: tuple[float, float],
        button: Any = "left",
        *,
        double: bool = False,
    ) -> None:
        self.do(PointerMove(*position))
        counts = (1, 2) if double else (1,)
        for clicks in counts:
            press = PointerPress(*position, button, clicks=clicks)
            self.do(press, PointerRelease(*position, button))
        self.settle()

    def press(self, name: str, **options: Any) -> None:
        """Click the widget of this name: a button, "events 7" for a row."""
        widgets.drawn.clear()
        self.settle()
        self.click(widgets.middle(name), **options)

    def box(self, node: int) -> tuple[float, float]:
        """Return the middle of a box of the flame graph."""
        flame = self.view.pane_memory["flame"]
        area = widgets.drawn["flame"]
        height = round(imgui.get_text_line_height() + 5)
        for row, boxes in enumerate(flame.rows):
            for box in boxes:
                if box.node == node:
                    x = area.x + (box.x0 + box.x1) / 2
                    return x, area.y + (row - flame.top + 0.5) * height
        raise AssertionError(f"no box of node {node}")

    def close(self) -> None:
        self.panel.close()
        self._adapted.close()
