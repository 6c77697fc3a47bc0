"""The line between two pictures follows the pointer that took it, and nothing else."""

from __future__ import annotations

import pytest

from splatview_viewer.core.events import Key, PointerLeave, PointerMove, PointerPress, PointerRelease, Wheel
from splatview_viewer.geometry.controls import Rect
from splatview_viewer.ui.divider import Divider

RECT = Rect(100, 50, 400, 300)


@pytest.mark.parametrize("event", [PointerPress(250, 100), PointerPress(300, 100, "right"),
                                   PointerMove(200, 100), PointerRelease(300, 100), Wheel(300, 100, 1.0),
                                   Key("f", True), PointerLeave()])
def test_what_is_not_for_it_goes_to_others(event: PointerPress) -> None:
    line = Divider()
    assert line.handle(event, RECT) is None
    assert line.at == 0.5


def test_it_stays_where_it_can_be_taken_again() -> None:
    line = Divider()
    line.handle(PointerPress(300, 100), RECT)
    line.handle(PointerMove(-5000, 100), RECT)
    line.handle(PointerRelease(-5000, 100), RECT)
    assert RECT.x < line.x(RECT) < RECT.x + 20
    assert line.handle(PointerPress(line.x(RECT), 100), RECT)
    line.handle(PointerMove(9000, 100), RECT)
    assert RECT.x + RECT.width - 20 < line.x(RECT) < RECT.x + RECT.width


def test_a_double_click_puts_it_in_the_middle() -> None:
    line = Divider(0.8)
    assert line.handle(PointerPress(line.x(RECT), 100, clicks=2), RECT)
    assert line.at == 0.5
    line.handle(PointerMove(RECT.x, 100), RECT)  # it is not dragged
    assert line.at == 0.5
