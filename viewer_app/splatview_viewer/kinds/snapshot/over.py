"""What stands over the plot, put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2

from splatview_viewer.kinds.snapshot.annotations import draw_annotations
from splatview_viewer.kinds.snapshot.axes import Pen, draw_axes, draw_legend, draw_marks, draw_pointer
from splatview_viewer.kinds.snapshot.world import window_of
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.layout import Layout
    from splatview_viewer.kinds.snapshot.state import Look


def draw_over(content: Content, look: Look, layout: Layout, at: tuple[float, float] | None, scale: float,
              said: tuple[str, float]) -> None:
    """Axes, legend, marks, what is under the pointer (at `at`), and `said`: words instead of a picture, and how much of
    the work is done, 0 to 1."""
    plot = layout.plot
    if plot is None or plot.width < 80 * scale or plot.height < 40 * scale:
        return
    window = window_of(content, look, plot)
    if window is not None:
        draw_axes(content, look, window, scale)
        above = draw_annotations(Pen(scale), content, look, window)
        draw_marks(content, look, window, scale)
        if layout.pane is None and look.settings.legend:
            draw_legend(content, look, plot, scale, above)
        _draw_lit(look, plot, scale, above)
        draw_pointer(content, look, window, at, scale)
    if said[0]:
        _say(*said, plot, scale, small=window is not None and content.peek(("bands", look.device)) is not None)


def _draw_lit(look: Look, plot: Rect, scale: float, above: float) -> None:
    if look.lit is not None and look.lit_by:
        pen = Pen(scale)
        text = f"Lit: {look.lit_by}   (Esc: everything again)"
        pen.tag(plot.x + 10 * scale + pen.width(text) / 2, plot.y + above + 8 * scale, text,
                (plot.x, plot.x + plot.width))


def _say(text: str, done: float, plot: Rect, scale: float, *, small: bool) -> None:
    pen = Pen(scale)
    middle = plot.x + plot.width / 2
    if small:
        pen.tag(plot.x + plot.width, plot.y + plot.height - pen.size - 12 * scale, text,
                (plot.x, plot.x + plot.width - 6 * scale), color=theme.DIM)
        return
    y = plot.y + plot.height / 2
    pen.write(middle, y - pen.size, text, theme.TEXT, align=0.5)
    w, h = min(220 * scale, plot.width * 0.6), 4 * scale
    for part, color in ((1.0, theme.BAR), (max(done, 0.03), theme.ACCENT)):
        pen.draw.add_rect_filled(ImVec2(middle - w / 2, y + 12 * scale),
                                 ImVec2(middle - w / 2 + w * part, y + 12 * scale + h), theme.u32(color), h / 2)
