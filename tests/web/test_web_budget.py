"""The memory that all pages take together: each page's share, what pages give back, and what happens beyond it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from support.browser_rig import GREEN, RED, Rig, decoded, draw, heard, poll, restful
from support.wait import wait_until

from splatview_viewer.events import Expose, Pinch, PointerPress, Resize, Wheel
from splatview_viewer.screens import browser
from splatview_viewer.screens.base import Caption
from splatview_viewer.web import messages as m
from splatview_viewer.web.budget import PER_PIXEL, PageBudget

if TYPE_CHECKING:
    from splatview_viewer.screens.browser import BrowserScreen


def budget_for(pixels: int) -> PageBudget:
    """A budget whose pages have so many pixels together."""
    return PageBudget(-(-pixels * PER_PIXEL * 4 // 3))


# -- smaller pictures -------------------------------------------------------------------------------------------------


def captions(rig: Rig, screen: BrowserScreen) -> list[str]:
    """What the page was told to write over its picture, in order."""
    return [message.trouble for message in rig.pages[screen].messages() if isinstance(message, m.Caption)]


def test_pages_beyond_the_budget_get_smaller_pictures_and_read_why(rig: Rig) -> None:
    budget = budget_for(400 * 300)
    first = rig.open(400, 300, 2.0, budget=budget)
    first.caption(Caption("scene"))
    assert first.size == (400, 300)
    second = rig.open(400, 300, 2.0, budget=budget)
    assert second.size == (250, 187) and second.scale == 2.0 * 5 / 8
    assert [e for e in first.poll(0) if isinstance(e, Resize)] == [Resize(250, 187, 1.25)]
    assert first.size == first.framebuffer.size == (250, 187)
    second.caption(Caption("scene"))
    second.caption(Caption("scene", "the run has ended"))
    said: list[str] = []
    wait_until(lambda: said.extend(captions(rig, second)) or len(said) == 2)
    assert said == [browser.SMALLER.format(pages=2, total=budget.total >> 20), "the run has ended"]
    drawn = draw(second, RED)
    exact = restful(second, rig.pages[second])
    assert exact.full == (250, 187)
    np.testing.assert_array_equal(decoded(exact), drawn)
    second.close()
    assert [e for e in first.poll(0) if isinstance(e, Resize)] == [Resize(400, 300, 2.0)]
    wait_until(lambda: captions(rig, first)[-1:] == [""])
    assert first.framebuffer.size == (400, 300)


def test_positions_on_a_smaller_picture_are_those_of_the_page(rig: Rig) -> None:
    screen = rig.open(400, 300, budget=budget_for(200 * 150))
    assert screen.size == (200, 150)
    for message, expected in ((m.Press(100, 60), PointerPress(50, 30)), (m.Wheel(10, 20, 0, 3), Wheel(5, 10, 3, 0)),
                              (m.Pinch(10, 20, 2.0, 4, 6), Pinch(5, 10, 2.0, 2, 3))):
        rig.pages[screen].send(message)
        assert expected in heard(screen, type(expected))


# -- what is given back -----------------------------------------------------------------------------------------------


def test_a_hidden_page_holds_no_pictures(rig: Rig) -> None:
    budget = PageBudget(1 << 28)
    screen = rig.open(budget=budget)
    page = rig.pages[screen]
    draw(screen, RED)
    restful(screen, page)
    assert budget.reserved == 96 * 64 * PER_PIXEL
    page.send(m.Visible(False))
    poll(screen, lambda: not screen.visible and budget.reserved == 0)
    assert screen.size == (96, 64)
    assert screen.pixels().shape == (64, 96, 4), "a picture to keep can be drawn all the same"
    page.send(m.Visible(True))
    heard(screen, Expose)
    drawn = draw(screen, GREEN)
    np.testing.assert_array_equal(decoded(restful(screen, page)), drawn)
