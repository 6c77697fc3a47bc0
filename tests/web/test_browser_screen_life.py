"""The browser as a screen, over a real WebSocket: what its user does, what is said, and how it ends."""

from __future__ import annotations

import gc
import io
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import numpy as np
import pytest
from PIL import Image
from support.browser_rig import (
    BLUE,
    GREEN,
    RED,
    Rig,
    draw,
    heard,
    page_fixture,  # noqa: F401
    poll,
    restful,
    rig_fixture,  # noqa: F401
    screen_fixture,  # noqa: F401
    settle,
    spend,
    until_ready,
)
from support.repetitions import exhaustive
from support.wait import PATIENCE

from splatview.viewer_app.errors import ViewerError
from splatview.viewer_app.events import Key, PointerLeave, PointerMove, PointerPress, PointerRelease, Screenshot
from splatview.viewer_app.screens import _mailbox, browser
from splatview.viewer_app.screens.base import Caption
from splatview.viewer_app.web import messages as m
from splatview.viewer_app.web import sender, server
from splatview.viewer_app.web.encoders.turbo import TurboEncoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.web_clients import Page

    from splatview.viewer_app.screens.browser import BrowserScreen


# -- what the user does --------------------------------------------------------------------------------------


def test_events_come_in_order_and_once(rig: Rig, screen: BrowserScreen, page: Page) -> None:
    woken = rig.woken
    for message in (m.Move(1, 2), m.Press(3, 4, "right", 3, 10.0), m.Release(3, 4, "right"), m.Key("f", mods=2),
                    m.Leave(), m.Screenshot()):
        page.send(message)
    assert heard(screen, Screenshot) == [
        PointerMove(1, 2), PointerPress(3, 4, "right", frozenset({"shift", "ctrl"})), PointerRelease(3, 4, "right"),
        Key("f", mods=frozenset({"ctrl"})), PointerLeave(), Screenshot()]
    assert screen.poll(0) == []
    assert rig.woken > woken


def test_moves_in_a_row_are_one(rig: Rig, screen: BrowserScreen, page: Page, wait_until: Callable[..., Any]) -> None:
    for k in range(300):
        page.send(m.Move(k, k))
    page.send(m.Press(299, 299))
    page.send(m.Move(300, 300))
    wait_until(lambda: [event for event, *_ in screen._mailbox._items][-1:] == [PointerMove(300, 300)])
    assert screen.poll(0) == [PointerMove(299, 299), PointerPress(299, 299), PointerMove(300, 300)]


def test_a_viewer_that_is_too_far_behind_says_so(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_mailbox.Mailbox.__init__, "__defaults__", (None, 50))
    screen = rig.open()
    page = rig.pages[screen]
    with suppress(aiohttp.ClientConnectionError):  # it may be closed before the last
        for k in range(60):
            page.send(m.Key("f", pressed=k % 2 == 0))
    assert page.ended()
    assert page.close_reason == "the viewer is too far behind; connect again"
    assert len(screen.poll(0)) == 50


def test_pictures_name_the_newest_event_that_they_reflect(screen: BrowserScreen, page: Page) -> None:
    settle(screen, page)
    draw(screen, RED)
    assert page.picture().at == 0
    restful(screen, page)
    begin = time.monotonic()
    page.send(m.Move(1, 1, at=1000.0))
    page.send(m.Press(1, 1, at=1234.5))
    heard(screen, PointerPress)
    time.sleep(0.05)
    draw(screen, GREEN)
    answer = page.picture()
    assert answer.at == 1234.5
    assert 50_000 <= answer.spent_us < (time.monotonic() - begin) * 1e6
    assert restful(screen, page).at == 0
    draw(screen, BLUE)
    assert page.picture().at == 0


def test_an_event_is_answered_by_the_first_picture_that_differs(
        screen: BrowserScreen, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "_ANSWERED", 10.0)
    settle(screen, page)
    page.send(m.Press(1, 1, at=77.0))
    heard(screen, PointerPress)
    draw(screen, BLUE)  # the same as before
    until_ready(screen)
    draw(screen, GREEN)
    assert page.picture().at == 77.0
    restful(screen, page)
    monkeypatch.setattr(sender, "_ANSWERED", 0.25)
    page.send(m.Press(1, 1, at=99.0))
    heard(screen, PointerPress)
    draw(screen, GREEN)  # the event changed nothing
    spend(screen, 0.5)
    draw(screen, RED)
    assert page.picture().at == 0


# -- what is said and given ----------------------------------------------------------------------------------


def test_a_caption_is_told_when_it_changes(screen: BrowserScreen, page: Page) -> None:
    for caption in (Caption("a"), Caption("a"), Caption("a", "The run has ended"), Caption("a", typing=True)):
        screen.caption(caption)
    got = [page.receive() for _ in range(3)]
    assert got == [m.Caption("a"), m.Caption("a", "The run has ended"), m.Caption("a", "", True)]
    screen.copy("K = [[1]]")
    assert page.receive() == m.Clipboard("K = [[1]]")
    assert screen.clipboard() == "K = [[1]]"


def test_a_picture_to_keep_is_a_download(screen: BrowserScreen, page: Page, wait_until: Callable[..., object]) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (40, 60, 4), np.uint8)[..., :3]
    for name, expected in (("render-7", "render-7.png"), ("a/../b\\c\n\u4e16", "a-..-b-c-\u4e16.png"),
                           ("", "splatview.png"), ("\u4e16" * 300, "\u4e16" * 66 + ".png")):
        screen.keep(picture, name)
        file = page.file()
        assert file.name == expected
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(file.png))), picture)
        wait_until(lambda: screen._keeping._value == browser._MOST_KEPT)  # which is after the page has it


# -- ends ----------------------------------------------------------------------------------------------------


def test_a_lost_page_closes_the_screen(rig: Rig, screen: BrowserScreen, page: Page) -> None:
    draw(screen, RED)
    woken = rig.woken
    page.drop()
    poll(screen, lambda: screen.closed)
    assert not screen.visible
    assert not screen.ready
    assert rig.woken > woken
    screen.present()  # the loop may just be drawing
    screen.caption(Caption("gone"))
    screen.keep(np.zeros((4, 4, 3), np.uint8), "gone")
    assert screen.poll(0.01) == []
    screen.close()
    screen.close()


def test_a_closed_screen_ends_the_connection(screen: BrowserScreen, page: Page) -> None:
    screen.close()
    assert page.ended()
    assert page.close_code == 1000
    assert screen.poll(0) == []


def test_it_closes_while_a_picture_is_encoded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    encode = TurboEncoder.encode

    def slow(self: TurboEncoder, *args: Any, **options: Any) -> bytes:
        begun.set()
        assert go_on.wait(PATIENCE)
        return encode(self, *args, **options)

    monkeypatch.setattr(TurboEncoder, "encode", slow)
    screen = rig.open()
    draw(screen, RED)
    assert begun.wait(PATIENCE)
    screen.close()  # would wait for ever if it waited for the encoder
    go_on.set()
    assert rig.pages[screen].ended()
    assert rig.pages[screen]._pictures.empty()


def test_a_picture_that_cannot_be_encoded_ends_one_page_and_says_why(
        rig: Rig, screen: BrowserScreen, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> bytes:
        raise ViewerError("the encoder is out of order")

    monkeypatch.setattr(TurboEncoder, "encode", broken)
    draw(screen, RED)
    poll(screen, lambda: screen.closed)
    assert page.ended()
    assert page.close_reason == "no picture could be sent: the encoder is out of order"


def test_screens_leave_the_context_as_it_was(rig: Rig) -> None:
    texture = rig.ctx.texture((32, 32), 4)
    own = rig.ctx.framebuffer([texture])
    own.use()
    for _ in range(3):
        screen = rig.open()
        draw(screen, RED)
        screen.close()
        own.clear(0.0, 1.0, 0.0, 1.0)
        assert own.read(components=4)[:4] == b"\x00\xff\x00\xff"
        assert rig.ctx.error == "GL_NO_ERROR"


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.fixture
def busy_rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """Accept hundreds of pages at once: two a second, as otherwise, would take minutes."""
    monkeypatch.setattr(server, "PAGES_AT_ONCE", 1000)
    with Rig() as made:
        yield made


@pytest.mark.parametrize(("first", "visits"), [(5, 20), exhaustive(10, 50), exhaustive(40, 200)])
def test_pages_that_come_and_go_leave_nothing(busy_rig: Rig, first: int, visits: int,
                                              wait_until: Callable[..., object]) -> None:
    def visit(k: int) -> None:
        screen = busy_rig.open(400 + k % 7, 300)
        page = busy_rig.pages[screen]
        draw(screen, RED, k)
        draw(screen, GREEN, k)
        page.picture()
        if k % 2:
            page.drop()
            poll(screen, lambda: screen.closed)
        screen.close()
        page.end()
        del busy_rig.pages[screen]

    def state() -> tuple[int, int]:
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    for k in range(first):
        visit(k)
    gc.collect()
    before, memory = state(), _resident_mb()
    for k in range(visits):
        visit(k)
    gc.collect()
    wait_until(lambda: state() <= before, what=f"{state()}, not {before}")
    assert _resident_mb() - memory < 80  # each had 4 pictures of 0.5 MB, and a texture
