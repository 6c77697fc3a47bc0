"""Boards of the interface that stay for a moment while only pictures change."""

from __future__ import annotations

from typing import Any

import pytest
from support.viewer import Viewer
from support.wait import clock

from splatview_viewer.core.events import PointerMove
from splatview_viewer.core.screen import read_pixels
from splatview_viewer.shell import sections
from splatview_viewer.shell.kept_boards import KeptBoards


def test_ten_drawings_a_second_are_whole_while_only_pictures_change() -> None:
    boards = KeptBoards()
    are_kept = [boards.count_drawing(frame_index / 60) for frame_index in range(120)]
    assert not any(are_kept[:3])
    assert 18 <= are_kept.count(False) <= 23
    boards.renew(1)
    assert [boards.count_drawing(2.0) for _ in range(4)] == [False, False, False, True]


def test_sections_are_drawn_again_for_changes_and_ten_times_a_second(
    viewer: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawings = 0
    draw = sections.draw_sections

    def draw_counted(*values: Any) -> bool:
        nonlocal drawings
        drawings += 1
        return draw(*values)

    viewer.do(PointerMove(700, 400))
    monkeypatch.setattr(sections, "draw_sections", draw_counted)
    user = viewer.user
    now = clock()
    user.mark(3)
    for _ in range(3):
        user.draw(now)
    assert drawings == 3
    full_pixels = read_pixels(viewer.screen.framebuffer).copy()
    previous = drawings
    for frame_index in range(10):
        user.mark_pictures()
        user.draw(now + 0.01 + frame_index * 0.001)
    assert drawings == previous
    assert (read_pixels(viewer.screen.framebuffer) == full_pixels).all()
    user.mark_interface()
    user.draw(now + 0.03)
    assert drawings == previous + 1
    viewer.do()
    user.mark_pictures()
    user.draw(now + 10.0)
    assert drawings > previous + 1
