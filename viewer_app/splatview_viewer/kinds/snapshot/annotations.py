"""What the program said about itself (a profiler's records, an optimizer's steps): bars along the plot's top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from imgui_bundle import ImVec2, ImVec4

from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.axes import Pen
    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.layout import Window
    from splatview_viewer.kinds.snapshot.state import Look

_ROWS = 3
"""Ranges in ranges that are seen."""
_MOST = 150
"""Bars of one picture: the widest are drawn."""
_TINTS = (ImVec4(0.42, 0.67, 0.96, 1.0), ImVec4(0.55, 0.78, 0.62, 1.0), ImVec4(0.80, 0.66, 0.92, 1.0))


@dataclass(frozen=True)
class Ranges:
    """R of them."""

    names: list[str]
    begin: np.ndarray
    end: np.ndarray
    """float64 (R,): on the time axis."""
    depth: np.ndarray
    """int (R,): how many others it lies in."""


def ranges_of(content: Content, look: Look) -> Ranges | None:
    """The ranges that were annotated, on the axis that is shown."""
    device, unit = look.device, look.settings.unit
    snapshot, axis = content.snapshot, content.axis(device, unit)
    if axis is None:
        return None

    def work() -> Ranges:
        from splatview_viewer.kinds.snapshot.analysis import marks

        found = [m for m in marks(snapshot, snapshot.traces[device]) if m.is_range and m.depth < _ROWS]
        places = [(float(m.first), float(m.last)) if unit == "events" else
                  (float(m.first_us - axis.origin_us), float(m.last_us - axis.origin_us)) for m in found]
        both = np.array(places, np.float64).reshape(-1, 2)
        return Ranges([m.name for m in found], both[:, 0], both[:, 1], np.array([m.depth for m in found], np.int64))

    return content.ask(("ranges", device, unit), work)


def draw_annotations(pen: Pen, content: Content, look: Look, window: Window) -> float:
    """A bar for each range, with its name where there is room. Returns how many pixels high they are together."""
    ranges = ranges_of(content, look)
    if ranges is None or not ranges.names:
        return 0.0
    r, high, lowest = window.rect, pen.size + 4 * pen.scale, 0.0
    x0 = np.clip(r.x + (ranges.begin - window.x0) / window.step, r.x, r.x + r.width)
    x1 = np.clip(r.x + (ranges.end - window.x0) / window.step, r.x, r.x + r.width)
    wide = np.flatnonzero(x1 - x0 >= 2 * pen.scale)
    for k in wide[np.argsort((x0 - x1)[wide], kind="stable")[:_MOST]].tolist():
        left, right, row = float(x0[k]), float(x1[k]), int(ranges.depth[k])
        tint, y = _TINTS[row], round(r.y + row * (high + pen.scale))
        lowest = max(lowest, y + high - r.y)
        begin, end = ImVec2(round(left), y), ImVec2(max(round(right - pen.scale), round(left) + 1), round(y + high))
        pen.draw.add_rect_filled(begin, end, theme.u32(tint, 0.20))
        pen.draw.add_rect_filled(begin, ImVec2(end.x, y + max(round(2 * pen.scale), 1)), theme.u32(tint, 0.75))
        if right - left > 28 * pen.scale:
            pen.draw.push_clip_rect(begin, ImVec2(end.x - 3 * pen.scale, end.y), True)
            pen.write(left + 5 * pen.scale, y + 2.5 * pen.scale, ranges.names[k], theme.TEXT)
            pen.draw.pop_clip_rect()
    return lowest
