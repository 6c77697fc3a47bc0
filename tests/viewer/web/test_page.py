"""The page in a real Chromium against the real web server: pictures, size, connection, clipboard, the phone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from support.pages import connected, drawn, on_canvas, png, state, until

from splatview_viewer.core import events as ev
from splatview_viewer.web import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.pages import Open, Viewer


# ---- pictures


def test_a_lossless_picture_is_on_the_page_pixel_for_pixel(viewer: Viewer, open_page: Open,
                                                           picture_of: Callable[..., np.ndarray]) -> None:
    page = open_page(viewer.url, (640, 400))
    client = viewer.client()
    assert (client.hello.width, client.hello.height, client.hello.scale) == (640, 400, 1.0)
    assert client.hello.visible
    pixels = drawn(640, 400)
    number = client.shows(pixels)
    np.testing.assert_array_equal(on_canvas(page), pixels)
    seen = picture_of(page)
    np.testing.assert_array_equal(seen[90:], pixels[90:])  # the buttons are above
    now = state(page)
    assert (now["number"], now["frames"], now["lossless"], now["connected"]) == (number, 1, True, True)


def test_a_jpeg_is_on_the_page_and_a_small_one_fills_it(viewer: Viewer, open_page: Open) -> None:
    page = open_page(viewer.url, (640, 400))
    client = viewer.client()
    y, x = np.mgrid[:200, :320]
    smooth = np.stack([x * 255 // 320, y * 255 // 200, 255 - x * 255 // 320], 2).astype(np.uint8)
    client.shows(smooth, quality=95, full=(640, 400))
    seen = on_canvas(page)
    assert seen.shape == (400, 640, 3)
    np.testing.assert_allclose(seen, smooth.repeat(2, 0).repeat(2, 1).astype(int), atol=6)
    assert state(page)["quality"] == 95 and not state(page)["lossless"]


def test_every_picture_is_acknowledged_and_the_newest_stays(viewer: Viewer, open_page: Open) -> None:
    page, client = connected(viewer, open_page, (320, 240))
    for burst in range(5):  # all at once: some are outdated before they can be drawn
        numbers = [client.send(drawn(320, 240, burst * 4 + i)) for i in range(4)]
        client.wait_for(lambda numbers=numbers: set(numbers) <= set(client.pictures.acks), "acks")
    assert sorted(client.pictures.acks) == list(range(1, 22))
    until(page, "splatview.state().number === 21")
    np.testing.assert_array_equal(on_canvas(page), drawn(320, 240, 19))


def test_a_picture_that_is_none_does_not_stop_the_others(viewer: Viewer, open_page: Open) -> None:
    page, client = connected(viewer, open_page, (320, 240))
    client.pictures.put(m.Picture(7, "jpeg", (320, 240)), b"no picture")
    client.wait_for(lambda: client.pictures.acks[1:] == [7], "an answer")
    client.number = 7
    client.shows(drawn(320, 240, 3))
    np.testing.assert_array_equal(on_canvas(page), drawn(320, 240, 3))


# ---- clipboard and files


def test_copied_text_is_on_the_clipboard(viewer: Viewer, open_page: Open) -> None:
    page, client = connected(viewer, open_page, permissions=["clipboard-read", "clipboard-write"])
    client.connection.send(m.Clipboard("0.25, 0.5"))
    page.wait_for_selector("#toast.shown >> text=Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "0.25, 0.5"
    assert page.is_hidden("#copybox")


def test_the_screenshot_button_downloads_what_the_viewer_answers(viewer: Viewer, open_page: Open) -> None:
    page, client = connected(viewer, open_page)
    page.mouse.move(400, 300)
    data = png(drawn(64, 48))
    with page.expect_download() as download:
        page.click("#shot")
        assert client.wait(ev.Screenshot).at > 0
        client.connection.offer("render 12.png", data, len(data))
    assert download.value.suggested_filename == "render 12.png"
    assert download.value.path().read_bytes() == data
    assert page.evaluate("document.activeElement.id") == "canvas"
