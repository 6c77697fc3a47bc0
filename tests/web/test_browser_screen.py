"""The browser as a screen, over a real WebSocket: pictures, their flow, their sizes."""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from support.browser_rig import (
    BLUE,
    GREEN,
    RED,
    Rig,
    decoded,
    draw,
    heard,
    page_fixture,  # noqa: F401
    poll,
    restful,
    rig_fixture,  # noqa: F401
    screen_fixture,  # noqa: F401
    settle,
    spend,
)
from support.wait import PATIENCE

from splatview.viewer_app.errors import GraphicsError
from splatview.viewer_app.events import Expose, Resize
from splatview.viewer_app.screens import browser
from splatview.viewer_app.web import messages as m
from splatview.viewer_app.web import pacing, sender
from splatview.viewer_app.web.pacing import IN_FLIGHT, Level

if TYPE_CHECKING:
    from support.web_clients import Page

    from splatview.viewer_app.screens.browser import BrowserScreen


# -- pictures ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("software", [True, False], ids=["in memory", "through a buffer"])
def test_the_page_sees_what_was_drawn(rig: Rig, software: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not software:
        monkeypatch.setattr(browser, "SOFTWARE", ())
    monkeypatch.setattr(pacing.Pacer, "level", pacing.LEVELS[0])  # however busy this machine is
    screen = rig.open(320, 200)
    page = rig.pages[screen]
    settle(screen, page)
    for k, color in enumerate((RED, GREEN, BLUE, RED)):
        drawn = draw(screen, color, k)
        poll(screen, lambda: not page._pictures.empty())
        picture = page.picture()
        assert (picture.format, picture.lossless, picture.size, picture.full) == ("jpeg", False, (320, 200), (320, 200))
        got = decoded(picture)
        assert np.abs(got.astype(int) - drawn).mean() < 3
        assert np.abs(got[:40, :96].astype(int) - 255).max() < 40  # the white corner is at the top left
        exact = restful(screen, page)
        assert (exact.lossless, exact.quality, exact.full) == (True, 100, (320, 200))
        np.testing.assert_array_equal(decoded(exact), drawn)
        assert exact.number > picture.number


def test_the_first_picture_is_small_and_soon_sharp(screen: BrowserScreen, page: Page) -> None:
    drawn = draw(screen, RED)
    first = page.picture()
    assert first.size == (54, 40)
    assert first.full == (160, 120)
    np.testing.assert_array_equal(decoded(restful(screen, page)), drawn)


def test_when_nothing_changes_nothing_is_sent(screen: BrowserScreen, page: Page) -> None:
    settle(screen, page)
    spend(screen, 0.8)
    assert page._pictures.empty()
    for _ in range(5):  # drawn again, and the same: the panel's second thoughts
        draw(screen, BLUE)
    spend(screen, 0.8)
    assert page._pictures.empty()
    drawn = draw(screen, RED)
    assert not page.picture().lossless
    np.testing.assert_array_equal(decoded(restful(screen, page)), drawn)


def test_the_same_again_does_not_keep_a_picture_from_resting(screen: BrowserScreen, page: Page) -> None:
    settle(screen, page)
    drawn, end = draw(screen, GREEN), time.monotonic() + PATIENCE
    assert not page.picture().lossless
    while page._pictures.empty() and time.monotonic() < end:
        draw(screen, GREEN)
        screen.poll(0.02)
    np.testing.assert_array_equal(decoded(page.picture()), drawn)


def test_a_picture_is_not_sharpened_while_others_come(
        screen: BrowserScreen, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "REST", 1.0)  # on a busy machine pictures are far between
    settle(screen, page)
    for k in range(60):
        draw(screen, GREEN, k)
        screen.poll(0.01)
    drawn = draw(screen, RED)
    last = restful(screen, page)
    np.testing.assert_array_equal(decoded(last), drawn)
    spend(screen, 1.2)
    assert page._pictures.empty()


def test_what_is_too_large_without_loss_rests_as_a_good_jpeg(
        screen: BrowserScreen, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(screen, page)
    monkeypatch.setattr(pacing, "LOSSLESS", 0.0)
    draw(screen, RED)
    moving, resting = page.picture(), poll(screen, lambda: not page._pictures.empty() and page.picture())
    assert not moving.lossless and not resting.lossless
    assert (resting.quality, resting.size, resting.format) == (pacing.RESTING, (160, 120), "jpeg")
    spend(screen, 0.6)
    assert page._pictures.empty()


def test_a_picture_rests_without_loss_once_the_line_is_faster(
        screen: BrowserScreen, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that was busy for a moment leaves no picture as a JPEG."""
    settle(screen, page)
    monkeypatch.setattr(pacing, "LOSSLESS", 0.0)
    monkeypatch.setattr(sender, "_AGAIN", (0.05,) * 1000)
    drawn = draw(screen, RED)
    moving, *resting = [poll(screen, lambda: not page._pictures.empty() and page.picture()) for _ in range(3)]
    assert not moving.lossless and [picture.quality for picture in resting] == [pacing.RESTING] * 2
    monkeypatch.setattr(pacing, "LOSSLESS", math.inf)
    np.testing.assert_array_equal(decoded(restful(screen, page)), drawn)


def test_a_picture_that_stays_too_large_is_tried_a_few_times(
        screen: BrowserScreen, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(screen, page)
    monkeypatch.setattr(pacing, "LOSSLESS", 0.0)
    monkeypatch.setattr(sender, "_AGAIN", (0.02, 0.02))
    draw(screen, RED)
    pictures = [poll(screen, lambda: not page._pictures.empty() and page.picture()) for _ in range(4)]
    assert [picture.quality for picture in pictures[1:]] == [pacing.RESTING] * 3
    spend(screen, 0.6)
    assert page._pictures.empty()


@pytest.mark.parametrize("level", pacing.LEVELS)
def test_every_level_is_the_whole_picture(
        rig: Rig, level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing.Pacer, "level", level)
    screen = rig.open(211, 133)
    drawn = draw(screen, RED, 100)
    picture = rig.pages[screen].picture()
    assert (picture.size, picture.quality) == (sender.scaled((211, 133), level.scale), level.quality)
    expected = Image.fromarray(drawn).resize(picture.size, Image.Resampling.BOX)
    assert np.abs(decoded(picture).astype(int) - np.asarray(expected)).mean() < 8


def test_sizes_of_smaller_pictures() -> None:
    assert sender.scaled((1920, 1080), 1.0) == (1920, 1080)
    assert sender.scaled((1920, 1080), 0.75) == (1440, 810)
    assert sender.scaled((1921, 1081), 0.5) == (961, 541)
    assert sender.scaled((100, 101), 1 / 3) == (34, 34)
    assert sender.scaled((1, 1), 0.25) == (1, 1)


# -- flow ----------------------------------------------------------------------------------------------------


def test_never_more_than_two_unanswered(rig: Rig) -> None:
    screen = rig.open(160, 120, acks=False)
    page = rig.pages[screen]
    for k in range(IN_FLIGHT):
        draw(screen, RED, k)
    numbers = [page.picture().number for _ in range(IN_FLIGHT)]
    spend(screen, 0.6)
    assert not screen.ready
    screen.framebuffer.clear(0.5, 0.5, 0.5, 1.0)
    screen.present()  # too much: it is asked for again when there is room
    assert not any(isinstance(e, Expose) for e in spend(screen, 0.6))
    assert page._pictures.empty()
    woken = rig.woken
    page.send(m.Ack(numbers[0]))
    assert any(isinstance(e, Expose) for e in heard(screen, Expose))
    assert screen.ready
    assert rig.woken > woken
    draw(screen, GREEN, 5)
    assert page.picture().number == numbers[-1] + 1
    spend(screen, 0.5)
    assert not screen.ready
    page.send(m.Ack(numbers[-1] + 1))  # the one before was passed over

    def room() -> bool:
        """What rests comes without loss when nothing is on the way: before the first of these, if that takes long."""
        while not page._pictures.empty():
            if (picture := page.picture()).lossless:
                page.send(m.Ack(picture.number))
        return screen.ready

    for k in range(IN_FLIGHT):
        poll(screen, room)
        draw(screen, RED, 7 + k)
    spend(screen, 0.5)
    assert not screen.ready


@pytest.mark.exhaustive
def test_one_on_its_way_counts_once(rig: Rig) -> None:
    """Not as one that is being encoded and as one that was sent: a second one is welcome all the time."""
    screen = rig.open(160, 120, acks=False)
    page = rig.pages[screen]
    for k in range(30):
        draw(screen, RED, k)
        end = time.monotonic() + PATIENCE
        while page._pictures.empty():
            assert screen.ready
            assert time.monotonic() < end
        page.send(m.Ack(page.picture().number))
        poll(screen, lambda: not screen._sender._pacer.in_flight)


@pytest.mark.parametrize("reading", [True, False], ids=["no answers", "a stalled link"])
def test_a_slow_page_holds_nobody_up(rig: Rig, reading: bool) -> None:
    slow = rig.open(640, 480, acks=False, reading=reading)
    quick = rig.open(160, 120)
    noise = rig.ctx.texture((640, 480), 4, data=os.urandom(640 * 480 * 4))
    source = rig.ctx.framebuffer([noise])
    sent, longest = 0, 0.0
    for k in range(80):
        draw(quick, GREEN, k)
        rig.pages[quick].picture()
        begin = time.monotonic()
        if slow.ready:
            rig.ctx.copy_framebuffer(slow.framebuffer, source)
            slow.framebuffer.clear(0, 0, 0, 1, viewport=(k, 0, 8, 8))
            slow.present()
            sent += 1
        slow.poll(0)
        longest = max(longest, time.monotonic() - begin)
    assert sent == IN_FLIGHT
    assert longest < 1.0
    assert not slow.closed


def test_two_pages_are_two_screens(rig: Rig) -> None:
    screens = [rig.open(160, 120), rig.open(96, 200, 2.0)]
    assert [s.size for s in screens] == [(160, 120), (96, 200)]
    assert [s.scale for s in screens] == [1.0, 2.0]
    drawn = [draw(s, color) for s, color in zip(screens, (RED, GREEN), strict=True)]
    for s, expected in zip(screens, drawn, strict=True):
        np.testing.assert_array_equal(decoded(restful(s, rig.pages[s])), expected)
    screens[0].close()
    drawn = draw(screens[1], BLUE)
    np.testing.assert_array_equal(decoded(restful(screens[1], rig.pages[screens[1]])), drawn)


def test_a_hidden_page_gets_nothing(screen: BrowserScreen, page: Page) -> None:
    settle(screen, page)
    draw(screen, RED)
    assert not page.picture().lossless
    page.send(m.Visible(False))
    poll(screen, lambda: not screen.visible)
    spend(screen, 0.7)  # nor does it get it without loss
    assert page._pictures.empty()
    page.send(m.Visible(True))
    assert any(isinstance(e, Expose) for e in heard(screen, Expose))
    assert screen.visible
    drawn = draw(screen, RED)  # as the viewer does then: while it was hidden, no picture of it was kept
    np.testing.assert_array_equal(decoded(restful(screen, page)), drawn)


def test_a_page_that_comes_hidden(rig: Rig) -> None:
    screen = rig.open(visible=False)
    assert not screen.visible
    assert not screen.closed


# -- sizes ---------------------------------------------------------------------------------------------------


def test_the_page_decides_the_size(screen: BrowserScreen, page: Page) -> None:
    for width, height, scale in ((300, 100, 1.0), (64, 300, 2.5), (16, 16, 1.0), (160, 120, 1.0)):
        page.send(m.Resize(width, height, scale))
        assert heard(screen, Resize)[-1] == Resize(width, height, scale)
        assert screen.size == screen.framebuffer.size == (width, height)
        assert screen.scale == scale
        drawn = draw(screen, GREEN)
        exact = restful(screen, page)
        assert exact.full == (width, height)
        np.testing.assert_array_equal(decoded(exact), drawn)


@pytest.mark.parametrize("software", [True, False], ids=["in memory", "through a buffer"])
def test_a_window_that_is_dragged_while_pictures_are_under_way(
        rig: Rig, software: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not software:
        monkeypatch.setattr(browser, "SOFTWARE", ())
    screen = rig.open(400, 300)
    page, drawn = rig.pages[screen], np.empty(0)
    for k in range(60):
        page.send(m.Resize(400 + 7 * k, 300 + 3 * (k % 10), 1.0))
        if screen.ready:
            drawn = draw(screen, RED, k)
        screen.poll(0)
    poll(screen, lambda: screen.size == (400 + 7 * 59, 327))
    drawn = draw(screen, BLUE)
    picture = restful(screen, page)
    while picture.full != screen.size:  # of a size before
        picture = restful(screen, page)
    np.testing.assert_array_equal(decoded(picture), drawn)


def test_no_page_asks_for_too_many_pixels(rig: Rig) -> None:
    screen = rig.open(8192, 8192)
    assert screen.size == (8192, 2048)
    assert screen.framebuffer.size == (8192, 2048)
    screen.close()


def test_no_memory_for_a_size_ends_one_page_and_not_the_viewer(
        rig: Rig, screen: BrowserScreen, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    import moderngl

    other = rig.open(64, 64)

    def no_memory(*_: Any, **__: Any) -> None:
        raise moderngl.Error("cannot create texture")

    monkeypatch.setattr(browser, "Target", no_memory)
    page.send(m.Resize(4000, 4000, 1.0))
    poll(screen, lambda: screen.closed)
    assert page.ended()
    assert page.close_reason == "no picture of this size can be drawn"
    with pytest.raises(GraphicsError, match="no picture of 96 x 64 can be drawn for a browser"):
        rig.open(96, 64)
    monkeypatch.undo()
    draw(other, RED)
    assert rig.pages[other].picture()
