"""The page's connection, size and surroundings, in a real Chromium: restarts, refusals, tabs, the phone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from support.pages import connected, drawn, on_canvas, state, until
from support.wait import turns

from splatview_viewer.core import events as ev
from splatview_viewer.web import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Route
    from support.pages import Open, Viewer

REFUSED = "ERR_CONNECTION_REFUSED"
"""What a browser logs for every attempt to reach a server that is gone."""


# ---- size


def test_a_resize_is_told_and_the_last_picture_stays(viewer: Viewer, open_page: Open,
                                                     picture_of: Callable[..., np.ndarray]) -> None:
    page, client = connected(viewer, open_page, (800, 600))
    page.set_viewport_size({"width": 1000, "height": 700})
    resize = client.wait(ev.Resize)
    assert (resize.width, resize.height, resize.scale) == (1000, 700, 1.0)
    seen = picture_of(page)  # the old picture over all of the new window: no black, no empty edge
    assert seen.shape == (700, 1000, 3)
    small = drawn(800, 600)
    np.testing.assert_allclose(seen[-1, -1].astype(int), small[-1, -1], atol=2)
    np.testing.assert_allclose(seen[353, 505].astype(int), small[302, 404], atol=12)
    client.shows(drawn(1000, 700, 5))
    np.testing.assert_array_equal(on_canvas(page), drawn(1000, 700, 5))
    np.testing.assert_array_equal(picture_of(page)[60:], drawn(1000, 700, 5)[60:])


# ---- connection


def test_the_page_comes_back_after_the_viewer_restarts(start: Callable[..., Viewer], open_page: Open,
                                                       picture_of: Callable[..., np.ndarray]) -> None:
    first = start(token="kept")
    page, client = connected(first, open_page, (1280, 800), expected=REFUSED)
    client.connection.send(m.Caption("render", "", True))
    until(page, "splatview.state().typing")
    page.mouse.move(300, 200)
    page.mouse.down()
    first.close()
    until(page, "splatview.state().notice === 'The viewer is gone. Trying again…'")
    assert not state(page)["connected"]
    seen = picture_of(page, "gone")
    for _ in turns("the picture dims"):
        if seen[100:].mean() < 0.75 * drawn(1280, 800)[100:].mean():
            break
        seen = picture_of(page, "gone")
    np.testing.assert_array_equal(on_canvas(page), drawn(1280, 800))  # the last picture is kept
    assert seen[100:].mean() > 20
    again = start(first.port, token="kept")
    assert again.port == first.port
    fresh = again.client()
    assert fresh.hello.id == client.hello.id
    fresh.shows(drawn(1280, 800, 9))
    np.testing.assert_array_equal(on_canvas(page), drawn(1280, 800, 9))
    assert (state(page)["notice"], state(page)["typing"]) == ("", False)
    page.mouse.up()  # of the press before: the new viewer knows nothing of it
    page.keyboard.press("f")
    fresh.wait(ev.Key, 2)
    assert not fresh.said(ev.PointerPress, ev.PointerRelease)


def test_a_refusal_is_shown_and_respected(viewer: Viewer, open_page: Open,
                                          picture_of: Callable[..., np.ndarray]) -> None:
    page, client = connected(viewer, open_page)
    client.connection.send(m.Refused("This viewer shows to nobody else", False))
    client.connection.close()
    until(page, "splatview.state().notice === 'This viewer shows to nobody else'")
    page.evaluate("window.dispatchEvent(new Event('online'))")
    assert not viewer.server.arrivals()
    picture_of(page, "refused")
    page.click("text=Try again")
    viewer.client().shows(drawn(800, 600, 2))
    assert state(page)["notice"] == ""


def test_a_refusal_for_now_is_tried_again(viewer: Viewer, open_page: Open) -> None:
    page, client = connected(viewer, open_page)
    client.connection.send(m.Refused("Too many pages.", True))
    client.connection.close()
    until(page, "splatview.state().notice === 'Too many pages. Trying again…'")
    viewer.client()
    until(page, "splatview.state().notice === ''")


def test_an_older_page_reloads_once(viewer: Viewer, open_page: Open, wait_until: Callable[..., Any]) -> None:
    loads: list[str] = []

    def old(route: Route) -> None:
        loads.append(route.request.url)
        script = route.fetch().text()
        line = f"const PROTOCOL = {m.PROTOCOL};"
        assert line in script
        route.fulfill(body=script.replace(line, "const PROTOCOL = 0;"), content_type="text/javascript")

    page = open_page(viewer.url, expected="403", routes={"**/viewer.js": old})
    wait_until(lambda: page.wait_for_timeout(20) or len(loads) == 2, what="the page reloads")
    page.wait_for_load_state()
    until(page, "splatview.state().notice === 'This page is older than the viewer: reload it.'")
    assert len(loads) == 2 and not viewer.server.arrivals()  # loaded anew, once: what comes may be the old one still
    page.unroute("**/viewer.js")
    page.click("#again")
    viewer.client()
    until(page, "splatview.state().connected")


def test_tabs_have_ids_of_their_own_and_keep_them(viewer: Viewer, open_page: Open) -> None:
    page, client = connected(viewer, open_page, expected="403")
    page.reload()
    assert viewer.client().hello.id == client.hello.id
    with page.context.expect_page() as opened:
        page.evaluate("void window.open(location.href)")  # a copy of the tab, its session's storage included
    copy = viewer.client()
    assert copy.hello.id != client.hello.id
    opened.value.reload()
    assert viewer.client().hello.id == copy.hello.id


def test_a_hidden_page_says_so(viewer: Viewer, open_page: Open) -> None:
    page, client = connected(viewer, open_page)
    page.evaluate("""() => { Object.defineProperty(document, 'hidden', {get: () => window.away, configurable: true});
      window.away = true; document.dispatchEvent(new Event('visibilitychange')); }""")
    assert client.wait(m.Visible).on is False
    client.shows(drawn(800, 600, 2))  # and does not leave the viewer waiting for what it draws
    page.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
    assert client.wait(m.Visible, 2).on is True


# ---- what is around the picture


def test_title_and_trouble(viewer: Viewer, open_page: Open, picture_of: Callable[..., np.ndarray]) -> None:
    page = open_page(viewer.url, (1280, 800))
    client = viewer.client()
    assert page.inner_text("#notice") == "Connecting…"
    client.connection.send(m.Caption("render - splatview", "The trainer is gone.", False))
    client.shows(np.full((800, 1280, 3), 90, np.uint8))
    until(page, "splatview.state().notice === 'The trainer is gone.'")
    assert page.title() == "render - splatview"
    picture_of(page, "trouble")
    box = page.locator("#notice").bounding_box()
    assert box is not None and box["x"] > 280 and box["y"] + box["height"] < 80  # beside the panel, at the top
    client.connection.send(m.Caption("render - splatview", "", False))
    until(page, "splatview.state().notice === ''")
    assert page.is_hidden("#notice")


def test_the_buttons_fade_and_leave_the_keys_to_the_viewer(viewer: Viewer, open_page: Open) -> None:
    page, client = connected(viewer, open_page)
    page.mouse.move(300, 200)
    for button, key in (("#panel", "h"), ("#fit", "f")):
        client.forget()
        page.click(button)
        client.wait(ev.Key, 2)
        assert [(said.name, said.pressed) for said in client.said(ev.Key)] == [(key, True), (key, False)]
        assert not client.said(ev.PointerPress)
    page.mouse.move(300, 200)
    until(page, "document.body.classList.contains('rest')")
    until(page, "getComputedStyle(document.querySelector('#buttons')).opacity === '0'")
    client.forget()
    page.mouse.move(700, 20)
    page.mouse.down()
    page.mouse.up()
    page.keyboard.press("F6")  # and by keyboard
    assert page.evaluate("document.activeElement.id") == "panel"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    client.wait(ev.Key, 4)
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    client.wait(ev.Key, 6)
    assert [said.name for said in client.said(ev.Key) if said.pressed] == ["h", "f", "tab"]


def test_a_phone(viewer: Viewer, open_page: Open, picture_of: Callable[..., np.ndarray]) -> None:
    page, client = connected(viewer, open_page, (390, 844), 3, has_touch=True, is_mobile=True)
    assert (client.hello.width, client.hello.height, client.hello.scale) == (1170, 2532, 3.0)
    assert page.evaluate("[innerWidth, innerHeight, document.documentElement.scrollWidth]") == [390, 844, 390]
    picture_of(page, "phone")
    for name in ("panel", "fit", "shot"):
        box = page.locator(f"#{name}").bounding_box()
        assert box is not None and box["width"] >= 44 and box["height"] >= 44
        assert box["x"] >= 195 and box["x"] + box["width"] <= 390  # beside the panel
    page.tap("#panel")
    client.wait(ev.Key, 2)
    assert [key.name for key in client.said(ev.Key)] == ["h", "h"]
    assert not client.said(ev.PointerPress)
    assert page.is_hidden("#keyboard")
    client.connection.send(m.Caption("render", "", True))
    page.wait_for_selector("#keyboard")
    page.tap("#keyboard")
    assert page.evaluate("document.activeElement.id") == "field"
