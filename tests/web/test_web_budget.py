"""The memory that all pages take together: each page's share, what pages give back, and what happens beyond it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.browser_rig import GREEN, RED, Rig, decoded, draw, heard, poll, restful
from support.wait import wait_until

from splatview.ipc.free_memory import available_bytes
from splatview.viewer_app.errors import FileError
from splatview.viewer_app.events import Expose, Pinch, PointerPress, Resize, Wheel
from splatview.viewer_app.screens import browser
from splatview.viewer_app.screens.base import Caption
from splatview.viewer_app.web import messages as m
from splatview.viewer_app.web import sender
from splatview.viewer_app.web.budget import LEAST, MOST, PER_PIXEL, PageBudget

if TYPE_CHECKING:
    from splatview.viewer_app.screens.browser import BrowserScreen


def budget_for(pixels: int) -> PageBudget:
    """A budget whose pages have so many pixels together."""
    return PageBudget(-(-pixels * PER_PIXEL * 4 // 3))


# -- shares ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "given"), [
    ([100, 200], [100, 200]), ([900, 900, 900], [300, 300, 300]), ([100, 1000, 1000], [100, 400, 400]),
    ([0, 1000, 0], [0, 900, 0]), ([], []),
])
def test_budget_gives_small_pages_all_and_the_others_equal_parts(asked: list[int], given: list[int]) -> None:
    budget = budget_for(900)
    for page, pixels in enumerate(asked):
        budget.ask(page, pixels)
    assert [budget.pixels(page) for page in range(len(asked))] == given
    assert budget.pages == sum(map(bool, asked))
    assert budget.reserved <= budget.total * 3 // 4
    for page in range(len(asked)):
        budget.leave(page)
        budget.leave(page)
    assert budget.reserved == 0


def test_budget_follows_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    free: int | None = 1 << 40
    monkeypatch.setattr("splatview.viewer_app.web.budget.available_bytes", lambda: free)
    budget = PageBudget()
    assert budget.total == MOST
    free = 1000 << 20
    budget.ask("a", 1000)
    assert budget.total == 250 << 20
    free = 0
    budget.ask("b", 1000)
    assert budget.total == LEAST
    free = None
    budget.ask("c", 1000)
    assert budget.total == MOST
    assert (available_bytes() or 0) >= 0


def test_budget_encodes_one_large_picture_at_a_time() -> None:
    budget, order = PageBudget(1000), []

    def second() -> None:
        with budget.encoding(900):
            order.append("second")

    with budget.encoding(5000):  # one always may
        thread = threading.Thread(target=second)
        thread.start()
        order.append("first")
    thread.join()
    with budget.encoding(400), budget.encoding(600):
        order.append("both")
    assert order == ["first", "second", "both"]
    assert budget.fits_encoding(1000) and not budget.fits_encoding(1001)


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


def test_the_largest_page_is_legal_and_bounded(rig: Rig) -> None:
    budget = PageBudget(64 << 20)
    screen = rig.open(8192, 8192, budget=budget)
    width, height = screen.size
    assert width * height * PER_PIXEL <= budget.total and width >= 2048
    assert budget.reserved <= budget.total


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


def test_a_page_that_acknowledges_nothing_holds_no_pictures(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "UNREAD", 0.2)
    budget = PageBudget(1 << 28)
    screen = rig.open(acks=False, budget=budget)
    page = rig.pages[screen]
    draw(screen, RED)
    picture = page.picture()
    poll(screen, lambda: not screen.visible and budget.reserved == 0)
    assert not screen.ready and not screen.closed
    monkeypatch.setattr(sender, "UNREAD", 1e6)
    page.send(m.Ack(picture.number))
    heard(screen, Expose)
    assert screen.visible and screen.ready
    draw(screen, GREEN)
    assert page.picture().number > picture.number


def test_a_closed_page_leaves_the_budget(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = PageBudget(1 << 28)
    screen = rig.open(budget=budget)
    draw(screen, RED)
    rig.pages[screen].drop()
    poll(screen, lambda: screen.closed)
    screen.close()
    assert budget.reserved == 0 and budget.pages == 0

    def no_memory(*_: Any, **__: Any) -> None:
        raise RuntimeError("cannot create texture")

    monkeypatch.setattr(browser, "Target", no_memory)
    with pytest.raises(Exception, match="cannot create texture"):
        rig.open(budget=budget)
    assert budget.reserved == 0 and budget.pages == 0


# -- what waits to be sent --------------------------------------------------------------------------------------------


def test_pictures_to_be_kept_are_bounded(rig: Rig) -> None:
    """Each is a whole picture in memory until it is encoded and sent."""
    gate = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        screen = rig.open(pool=pool)
        pool.submit(gate.wait)
        picture = np.zeros((64, 96, 3), np.uint8)
        try:
            screen.keep(picture, "one")
            screen.keep(picture, "two")
            with pytest.raises(FileError, match=r"three\.png"):
                screen.keep(picture, "three")
        finally:
            gate.set()
        assert {rig.pages[screen].file().name for _ in range(2)} == {"one.png", "two.png"}

        def accepted() -> bool:
            try:
                screen.keep(picture, "four")
            except FileError:  # the last one has arrived, and its thread is about to end its work
                return False
            return True

        wait_until(accepted)
        assert rig.pages[screen].file().name == "four.png"
