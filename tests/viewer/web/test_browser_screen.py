"""The browser as a screen, over a real WebSocket: pictures, events, and its end."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image
from support.browser_rig import (
    BLUE,
    CAPTION,
    GREEN,
    RED,
    Rig,
    decoded,
    draw,
    heard,
    poll,
    restful,
    settle,
)
from support.wait import wait_until
from support.web_clients import send_request

from splatview_viewer.core.events import (
    Expose,
    Key,
    PointerLeave,
    PointerMove,
    PointerPress,
    PointerRelease,
)
from splatview_viewer.core.screen import Caption
from splatview_viewer.web import messages as m
from splatview_viewer.web import pacing
from splatview_viewer.web.pacing import IN_FLIGHT, Level
from splatview_viewer.web.sender import scaled_size

if TYPE_CHECKING:
    from support.web_clients import Page

    from splatview_viewer.web.browser import BrowserScreen


@pytest.mark.parametrize(
    "level",
    [pacing.LEVELS[0], pacing.LEVELS[len(pacing.LEVELS) // 2], pacing.LEVELS[-1]],
)
def test_page_receives_each_drawn_picture_once(
    rig: Rig, level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page gets the whole picture at every level, and without loss once it rests."""
    # The level holds however busy this machine is.
    monkeypatch.setattr(pacing.Pacer, "level", level)
    screen = rig.open(211, 133)
    page = rig.pages[screen]
    last_number = settle(screen, page)
    draw(screen, BLUE)
    drawn = draw(screen, RED, 100)
    picture = poll(screen, page.next_picture)
    assert (picture.number, picture.format, picture.lossless) == (
        last_number + 1,
        "jpeg",
        False,
    )
    assert (picture.size, picture.quality) == ((211, 133), level.quality)
    expected = Image.fromarray(drawn).resize(
        scaled_size((211, 133), level.scale), Image.Resampling.BOX
    )
    assert np.abs(decoded(picture).astype(int) - np.asarray(expected)).mean() < 8
    exact = restful(screen, page)
    assert (exact.number, exact.lossless, exact.quality, exact.size) == (
        last_number + 2,
        True,
        100,
        (211, 133),
    )
    np.testing.assert_array_equal(decoded(exact), drawn)


@pytest.mark.parametrize("reading", [True, False], ids=["no answers", "a stalled link"])
def test_slow_page_has_two_pictures_unanswered_and_delays_no_other(
    rig: Rig, reading: bool
) -> None:
    slow = rig.open(640, 480, acks=False, reading=reading)
    quick = rig.open(160, 120)
    noise = rig.ctx.texture((640, 480), 4, data=os.urandom(640 * 480 * 4))
    source = rig.ctx.framebuffer([noise])
    sent = 0
    for k in range(20):
        draw(quick, GREEN, k)
        rig.pages[quick].picture()
        if slow.takes_pictures:
            rig.ctx.copy_framebuffer(slow.framebuffer, source)
            slow.framebuffer.clear(0, 0, 0, 1, viewport=(k, 0, 8, 8))
            slow.present(CAPTION)
            sent += 1
        assert not any(isinstance(e, Expose) for e in slow.poll(0))
    assert sent <= IN_FLIGHT
    assert not slow.state.closed
    if reading:
        picture_numbers = [rig.pages[slow].picture().number for _ in range(IN_FLIGHT)]
        # One too many: the screen asks for it again when the page can take it.
        slow.present(CAPTION)
        rig.pages[slow].send(m.Ack(picture_numbers[0]))
        assert heard(slow, Expose)
        assert slow.takes_pictures
    slow.close()
    drawn = draw(quick, BLUE)
    np.testing.assert_array_equal(decoded(restful(quick, rig.pages[quick])), drawn)


def test_a_picture_that_rests_is_exact_in_spite_of_a_slow_first_answer(
    rig: Rig,
) -> None:
    screen = rig.open(320, 240, acks=False)
    page = rig.pages[screen]
    noise = rig.ctx.texture((320, 240), 4, data=os.urandom(320 * 240 * 4))
    rig.ctx.copy_framebuffer(screen.framebuffer, rig.ctx.framebuffer([noise]))
    screen.present(CAPTION)
    first_picture = poll(screen, page.next_picture)
    page.send(m.Ack(first_picture.number, 500.0))
    good_picture = poll(screen, page.next_picture)
    assert not good_picture.lossless
    page.send(m.Ack(good_picture.number, 1.0))
    assert poll(screen, page.next_picture).lossless


def test_hidden_page_gets_no_pictures(screen: BrowserScreen, page: Page) -> None:
    settle(screen, page)
    page.send(m.Visible(False))

    def is_hidden() -> bool:
        return not screen.state.visible and not screen.state.ready

    poll(screen, is_hidden)
    page.send(m.Visible(True))
    assert heard(screen, Expose)
    assert screen.state.visible
    # The same picture is drawn again, as none was kept while the page was hidden.
    drawn = draw(screen, BLUE)
    np.testing.assert_array_equal(decoded(restful(screen, page)), drawn)


def test_events_arrive_in_order_and_consecutive_moves_are_merged(
    rig: Rig, screen: BrowserScreen, page: Page
) -> None:
    sent: list[m.ClientMessage] = [PointerMove(k, k) for k in range(100)]
    press = PointerPress(3, 4, "right", frozenset({"shift", "ctrl"}), at=10.0)
    sent += [
        press,
        PointerRelease(3, 4, "right"),
        Key("f", mods=frozenset({"ctrl"})),
        PointerMove(5, 6),
        PointerLeave(),
    ]
    woken = rig.woken
    for message in sent:
        page.send(message)
    wait_until(lambda: rig.woken >= woken + len(sent))
    assert screen.poll(0) == sent[99:]
    assert screen.poll(0) == []


def test_page_receives_captions_texts_and_saved_pictures(
    rig: Rig, screen: BrowserScreen, page: Page
) -> None:
    """A caption is sent when it changes."""
    captions = [
        Caption("a"),
        Caption("a", "The run has ended"),
        Caption("a", typing=True),
    ]
    for caption in (captions[0], *captions):
        screen.present(caption)
    assert [page.receive() for _ in range(3)] == captions
    screen.desktop.copy("K = [[1]]")
    assert page.receive() == m.Clipboard("K = [[1]]")
    assert screen.desktop.pasted() == "K = [[1]]"
    picture = np.random.default_rng(0).integers(0, 256, (40, 60, 4), np.uint8)[..., :3]
    screen.desktop.keep(picture, "a/../b\\c\n\u4e16")
    offer = page.receive()
    assert isinstance(offer, m.Offer)
    assert offer.name == "a-..-b-c-\u4e16.png"
    png = send_request(
        page.port, f"/download?key={offer.key}&token={rig.server.token}"
    ).body
    assert len(png) == offer.size
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(png))), picture)


def test_screen_and_page_close_each_other(
    rig: Rig, screen: BrowserScreen, page: Page
) -> None:
    other_screen = rig.open(64, 64)
    draw(screen, RED)
    woken = rig.woken
    page.end()

    def has_closed() -> bool:
        return screen.state.closed and rig.woken > woken

    poll(screen, has_closed)
    assert not screen.state.visible
    assert not screen.state.ready
    # The loop may be drawing just then.
    screen.present(CAPTION)
    screen.desktop.keep(np.zeros((4, 4, 3), np.uint8), "gone")
    other_screen.close()
    assert rig.pages[other_screen].ended().code == 1000
    assert other_screen.poll(0) == []
