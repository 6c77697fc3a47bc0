"""The places of the interface's zones, on screens of every size."""

from __future__ import annotations

from itertools import combinations

import pytest

from splatview_viewer.core.screen import Rect
from splatview_viewer.shell.sheet import FULL, HALF, LOWERED, head_of, settled
from splatview_viewer.shell.zones import (
    FOOTER_HEIGHT,
    PANEL_WIDTHS,
    STREAMS_HEIGHT,
    TIME_HEIGHT,
    TOP_HEIGHT,
    Wishes,
    Zones,
    is_phone,
    place,
)

SIZES = [
    (320, 240),
    (240, 320),
    (390, 844),
    (599, 600),
    (600, 360),
    (640, 480),
    (900, 520),
    (1600, 1000),
    (1080, 1920),
    (3840, 2160),
]
SCALES = [1.0, 1.25, 2.0, 3.0]
WISHES = [
    Wishes(),
    Wishes(panel=False),
    Wishes(time="folded"),
    Wishes(panel_width=PANEL_WIDTHS[1]),
    Wishes(sheet=FULL),
    Wishes(sheet=0.01),
    Wishes(panel=False, time="none", top=False),
]


def overlap(a: Rect, b: Rect) -> bool:
    is_beside = a.x + a.width <= b.x or b.x + b.width <= a.x
    is_above = a.y + a.height <= b.y or b.y + b.height <= a.y
    return not is_beside and not is_above


def covers_panes(zones: Zones) -> bool:
    """Return whether the panel lies over the panes."""
    return zones.form == "narrow" and zones.panel.width > 0


def zones_beside(zones: Zones) -> dict[str, Rect]:
    """Return the zones that never lie over each other."""
    names = ["top", "streams", "sparks", "tabs", "sections", "footer", "time"]
    if not covers_panes(zones):
        names.append("panes")
    if zones.form == "phone":
        # Its time strip lies over the picture.
        names.remove("time")
    rects = {name: getattr(zones, name) for name in names}
    return {name: rect for name, rect in rects.items() if rect.width and rect.height}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("wishes", WISHES)
def test_zones_lie_on_the_screen_and_never_over_each_other(
    size: tuple[int, int], scale: float, wishes: Wishes
) -> None:
    zones = place(size, scale, wishes)
    assert zones.panes.width >= 1
    assert zones.panes.height >= 1
    for rect in zones_beside(zones).values():
        assert rect.x >= 0
        assert rect.y >= 0
        assert rect.x + rect.width <= size[0]
        assert rect.y + rect.height <= size[1]
    for (name, rect), (other_name, other_rect) in combinations(
        zones_beside(zones).items(), 2
    ):
        assert not overlap(rect, other_rect), f"{name} lies over {other_name}"
    if covers_panes(zones):
        assert not overlap(zones.panel, zones.time)


def test_zones_of_a_desktop_are_as_high_as_drawn() -> None:
    zones = place((1600, 1000), 1.0, Wishes())
    assert zones.form == "desktop"
    assert zones.top == Rect(0, 0, 1600, int(TOP_HEIGHT))
    assert zones.panel == Rect(0, 44, 340, 956)
    assert zones.streams.height == STREAMS_HEIGHT
    assert zones.footer == Rect(0, 956, 340, int(FOOTER_HEIGHT))
    assert zones.time == Rect(340, 912, 1260, int(TIME_HEIGHT))
    assert zones.panes == Rect(340, 44, 1260, 868)


def test_phone_has_a_sheet_that_can_be_lowered_and_never_leaves() -> None:
    for scale in (1.0, 3.0):
        size = (round(390 * scale), round(844 * scale))
        half = place(size, scale, Wishes())
        lowered = place(size, scale, Wishes(panel=False))
        assert half.form == lowered.form == "phone"
        assert lowered.panel.height == round(12 * scale)
        assert head_of(lowered).height == lowered.panel.height
        assert half.panel.height > 0.4 * size[1]
        # It is dragged by its tabs as well.
        assert head_of(half).contains(half.tabs.x + 1, half.tabs.y + 1)
        assert half.time.y + half.time.height == half.panel.y


def test_phone_held_sideways_lists_streams_and_begins_with_its_panel_closed() -> None:
    zones = place((844, 390), 1.0, Wishes())
    assert zones.streams.height >= 2 * 28
    assert zones.sections.height >= 100
    assert is_phone((390, 844), 1.0)
    assert is_phone((1688, 780), 2.0)
    assert not is_phone((900, 520), 1.0)
    assert not is_phone((1600, 1000), 1.0)


def test_pictures_lie_below_the_strips() -> None:
    zones = place((1600, 1000), 1.0, Wishes())
    assert zones.pictures(1.0) == Rect(340, 74, 1260, 838)


@pytest.mark.parametrize(
    ("start", "end", "stop"),
    [
        (HALF, 0.45, HALF),
        (HALF, 0.3, LOWERED),
        (HALF, 0.65, FULL),
        (FULL, 0.75, HALF),
        (FULL, 0.1, LOWERED),
        (LOWERED, 0.2, HALF),
        (LOWERED, 0.05, LOWERED),
        (LOWERED, 0.7, FULL),
    ],
)
def test_sheet_settles_where_it_was_dragged_to(
    start: float, end: float, stop: float
) -> None:
    assert settled(start, end) == stop
