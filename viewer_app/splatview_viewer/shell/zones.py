"""The places of the interface's zones on a screen, in framebuffer pixels.

They depend on the size of the screen and on what the user chose, never on what is shown:
nothing moves under the pointer while a training runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from splatview_viewer.core.screen import Rect
from splatview_viewer.ui import theme

Form = Literal["desktop", "narrow", "phone"]

TOP_HEIGHT = 44.0
PANEL_WIDTH = 340.0
PANEL_WIDTHS = (280.0, 520.0)
"""The narrowest and the widest panel that the user can drag."""
STREAMS_HEIGHT = 238.0
SPARKS_HEIGHT = 123.0
"""Points with the line above."""
TABS_HEIGHT = 39.0
"""Points with the line above."""
FOOTER_HEIGHT = 44.0
TIME_HEIGHT = 88.0
FOLDED_TIME_HEIGHT = 26.0
STRIP_HEIGHT = 30.0
"""Points of the strip above each pane."""
PHONE_STRIP_HEIGHT = 40.0
"""The same on a phone, where a finger presses its buttons."""
NARROW = 900.0
"""Points of width below which the panel lies over the panes."""
PHONE = 600.0
"""Points of width below which, on a screen that is higher than wide, the rules of a
phone hold."""
_PHONE_WIDTH = 500.0
"""Points of a phone's shorter side at most."""
_SHORT = 560.0
"""Points of height below which there is room for one curve."""
_MIN_STREAMS = 56.0
"""Points that the list of streams has at least, if it is seen."""
_MIN_SECTIONS = 160.0
"""Points that the area of sections has at least, as far as the screen has them."""
_MIN_SHORT_SECTIONS = 100.0
"""The same on a short screen, for the list of streams to have two rows."""
_PHONE_TOP = 48.0
_MIN_PHONE_PANES = 132.0
"""Points of a phone's picture from which it has a time strip."""
SHEET_PEEK = 12.0
"""Points of a phone's sheet that stay when it is lowered."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """The choices of a user that the places depend on."""

    panel: bool = True
    panel_width: float = PANEL_WIDTH
    """Points."""
    time: Literal["open", "folded", "none"] = "open"
    """"none" for pictures with nothing around them."""
    top: bool = True
    sheet: float = 0.5
    """The share of a phone's height that its sheet has while it is raised."""
    sheet_points: float = 0.0
    """Points that a phone's sheet has in place of that share, if it is not 0."""


@dataclass(frozen=True, slots=True)
class Zones:
    """The rectangles of all zones; of no area where there is none."""

    form: Form
    top: Rect
    panel: Rect
    """Streams, sparks, tabs, sections and footer together."""
    streams: Rect
    sparks: Rect
    tabs: Rect
    sections: Rect
    footer: Rect
    panes: Rect
    """Strips and pictures."""
    time: Rect

    def pictures(self, scale: float) -> Rect:
        """Return the place of the panes without the strips above the upper ones."""
        strip = min(round(STRIP_HEIGHT * scale), self.panes.height)
        panes = self.panes
        return Rect(panes.x, panes.y + strip, panes.width, panes.height - strip)


def is_phone(size: tuple[int, int], scale: float) -> bool:
    """Return whether a screen is a phone's, held upright or sideways."""
    width, height = size
    is_sideways = width < NARROW * scale and height < _PHONE_WIDTH * scale
    return width < _PHONE_WIDTH * scale or is_sideways


_EDGE = 6.0
"""Points of the panel's edge that can be dragged."""


def edge_of(zones: Zones, scale: float) -> Rect:
    """Return what is dragged to make the panel wider, which lies over the panes.

    In the panel it would cover the bars of its lists.
    """
    panel = zones.panel
    if zones.form != "desktop" or not panel.width:
        return Rect(0, 0, 0, 0)
    return Rect(panel.x + panel.width, panel.y, round(_EDGE * scale), panel.height)


@lru_cache(16)
def place(size: tuple[int, int], scale: float, wishes: Wishes) -> Zones:
    """Return the zones of a screen; the same object for the same values.

    Args:
        size: width and height in pixels.
        scale: pixels per point.
        wishes: the user's choices.
    """
    width, height = size
    if width < PHONE * scale and height > width:
        return _place_phone(width, height, scale, wishes)
    top_height = 0
    if wishes.top:
        top_height = _pixels(TOP_HEIGHT, scale, height // 4)
    time_height = {
        "open": _pixels(TIME_HEIGHT, scale, height // 4),
        "folded": _pixels(FOLDED_TIME_HEIGHT, scale, height // 4),
        "none": 0,
    }[wishes.time]
    body = Rect(0, top_height, width, height - top_height)
    is_narrow = width < NARROW * scale
    panel_width = 0
    if wishes.panel:
        most_pixels = width // 2
        if is_narrow:
            most_pixels = width * 4 // 5
        panel_width = _pixels(wishes.panel_width, scale, most_pixels)
    left = panel_width
    if is_narrow:
        left = 0
    panes = Rect(left, body.y, width - left, max(body.height - time_height, 1))
    time = Rect(left, body.y + body.height - time_height, width - left, time_height)
    # A panel that lies over the panes leaves the time area free.
    panel_height = body.height
    if is_narrow:
        panel_height = panes.height
    if not panel_width:
        panel_height = 0
    panel = Rect(0, body.y, panel_width, panel_height)
    streams, sparks, tabs, sections, footer = _place_panel(panel, scale)
    return Zones(
        form="narrow" if is_narrow else "desktop",
        top=Rect(0, 0, width, top_height),
        panel=panel,
        streams=streams,
        sparks=sparks,
        tabs=tabs,
        sections=sections,
        footer=footer,
        panes=panes,
        time=time,
    )


def _place_panel(panel: Rect, scale: float) -> tuple[Rect, Rect, Rect, Rect, Rect]:
    """Return streams, sparks, tabs, sections and footer of a panel beside the panes."""
    footer = _pixels(FOOTER_HEIGHT, scale, panel.height // 5)
    tabs = _pixels(TABS_HEIGHT, scale, panel.height // 5)
    left = panel.height - footer - tabs
    min_sections = _MIN_SECTIONS
    sparks = round(SPARKS_HEIGHT * scale)
    if panel.height < _SHORT * scale:
        sparks //= 2
        min_sections = _MIN_SHORT_SECTIONS
    free_height = max(left - round(min_sections * scale), 0)
    # On a low screen the curves make room for the sections first, then the list.
    least_streams = round(_MIN_STREAMS * scale)
    if free_height < sparks + least_streams:
        sparks = 0
    streams = min(round(STREAMS_HEIGHT * scale), free_height - sparks)
    if streams < least_streams:
        streams = 0
    sections = left - streams - sparks
    rects = []
    y = panel.y
    for height in (streams, sparks, tabs, sections, footer):
        rects.append(Rect(panel.x, y, panel.width, max(height, 0)))
        y += max(height, 0)
    return rects[0], rects[1], rects[2], rects[3], rects[4]


def _place_phone(width: int, height: int, scale: float, wishes: Wishes) -> Zones:
    """Return the zones of a phone that is held upright."""
    top_height = 0
    if wishes.top:
        top_height = _pixels(_PHONE_TOP, scale, height // 6)
    sheet_height = 0
    if wishes.top:
        share = 0.0
        if wishes.panel:
            share = wishes.sheet
        if wishes.sheet_points and wishes.panel:
            share = min(wishes.sheet_points * scale / max(height - top_height, 1), 0.6)
        peek = _pixels(SHEET_PEEK, scale, height // 6)
        sheet_height = max(round((height - top_height) * share), peek)
        sheet_height = min(sheet_height, height - top_height - 1)
    panes_height = max(height - top_height - sheet_height, 1)
    panes = Rect(0, top_height, width, panes_height)
    time_height = 0
    if wishes.time != "none" and panes_height >= _MIN_PHONE_PANES * scale:
        time_height = _pixels(theme.PHONE_TIME_HEIGHT, scale, panes_height // 4)
    time = Rect(0, panes.y + panes.height - time_height, width, time_height)
    panel = Rect(0, height - sheet_height, width, sheet_height)
    handle = min(round(SHEET_PEEK * scale), sheet_height)
    tabs_height = min(_pixels(46, scale, height), sheet_height - handle)
    tabs = Rect(0, panel.y + handle, width, tabs_height)
    sections_top = tabs.y + tabs.height
    sections = Rect(0, sections_top, width, height - sections_top)
    none = Rect(0, height, 0, 0)
    return Zones(
        form="phone",
        top=Rect(0, 0, width, top_height),
        panel=panel,
        streams=none,
        sparks=none,
        tabs=tabs,
        sections=sections,
        footer=none,
        panes=panes,
        time=time,
    )


def _pixels(points: float, scale: float, most_pixels: int) -> int:
    return max(min(round(points * scale), most_pixels), 0)
