"""A view whose whole picture is plots."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

from splatview_viewer.core.screen import clear_rect
from splatview_viewer.core.view import Data, State, View
from splatview_viewer.ui import theme
from splatview_viewer.ui.boards import board

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import moderngl
    from imgui_bundle import ImVec4

    from splatview_viewer.core.screen import Rect


class PlotView(View[Data, State]):
    """A view whose whole picture is drawn with imgui.

    A subclass fills in `take` and `plot`.
    """

    pointer: float | None = None
    """The pointer's value on the horizontal axis."""
    _plot_ms: float | None = None
    """Milliseconds that the last picture took; None: there is none."""

    @property
    def timings(self) -> Mapping[str, float]:
        if self._plot_ms is None:
            return {}
        return {"plot": self._plot_ms}

    @property
    def ground(self) -> ImVec4:
        """The colour around the plots."""
        return theme.PANEL

    def plot(self, scale: float) -> None:
        """Draw into imgui's window that is open.

        Sets `state` and `pointer` to what the user chose there.
        """
        raise NotImplementedError

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        clear_rect(framebuffer, rect, theme.rgb(self.ground))

    def ui(self, rect: Rect, scale: float) -> bool:
        previous_pointer = self.pointer
        started_at = time.perf_counter()
        # The bar of a long list lies in the margin.
        pad = (min(14 * scale, rect.width // 8), min(12 * scale, rect.height // 20))
        with board(f"plots {id(self)}", rect, pad, self.ground, scroll=True):
            self.plot(scale)
        self._plot_ms = (time.perf_counter() - started_at) * 1e3
        return self.pointer != previous_pointer

    def covered(self, rect: Rect) -> Sequence[Rect]:
        return (rect,)

    def release(self, occasion: Literal["idle", "away", "closed", "last"]) -> None:
        self.pointer = None
