"""The page in a real Chromium: pictures, connection, token and files."""

from __future__ import annotations

import os
import re
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from PIL import Image
from support.pages import (
    connected,
    drag,
    drawn,
    elsewhere,
    on_canvas,
    on_interface,
    png,
    screenshot,
    send,
    shows,
    state,
    wait_for_script,
)
from support.proxy import PATH, reverse_proxy
from support.wait import PATIENCE_S, wait_until
from support.web_clients import some_picture, wait_for_uploads

import splatview
from splatview_ipc.control.registry import list_viewers
from splatview_viewer.core import events as ev
from splatview_viewer.web import files
from splatview_viewer.web import messages as m
from splatview_viewer.web import server as module

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page, Route
    from support.pages import Open, Viewer

# ---- pictures and what is around them


def test_pictures_are_on_the_page_and_fill_it(viewer: Viewer, open_page: Open) -> None:
    """Lossless pictures are exact, the newest stays, and a broken one stops no other."""
    page = open_page(viewer.url, (640, 400))
    client = viewer.client()
    assert (
        client.hello.width,
        client.hello.height,
        client.hello.scale,
        client.hello.visible,
    ) == (640, 400, 1.0, True)
    assert page.inner_text("#notice") == "Connecting…"
    pixels = drawn(640, 400)
    shows(client, pixels)
    np.testing.assert_array_equal(on_canvas(page), pixels)
    np.testing.assert_array_equal(
        screenshot(page)[90:], pixels[90:]
    )  # the buttons are above
    small = np.full((200, 320, 3), (200, 90, 30), np.uint8)
    shows(client, small, quality=95, full=(640, 400))
    np.testing.assert_allclose(
        on_canvas(page), small.repeat(2, 0).repeat(2, 1).astype(int), atol=6
    )
    client.put(*some_picture(3, b"no picture", (640, 400), client.layout.number))
    client.last_number = 3
    picture_numbers = [
        send(client, drawn(640, 400, seed)) for seed in range(12)
    ]  # some are outdated before they can be drawn

    def is_every_picture_acked() -> bool:
        return sorted(client.acks) == [1, 2, 3, *picture_numbers]

    wait_until(is_every_picture_acked, "every picture is acknowledged")
    wait_for_script(page, "splatview.state().number === 15")
    np.testing.assert_array_equal(on_canvas(page), drawn(640, 400, 11))


def test_size_follows_the_window_and_the_last_picture_stays(
    viewer: Viewer, open_page: Open
) -> None:
    page, client = connected(viewer, open_page)
    page.set_viewport_size({"width": 1000, "height": 700})
    assert client.wait(ev.Resize) == ev.Resize(1000, 700, 1.0)
    picture = screenshot(
        page
    )  # the old picture over all of the new window: no black, no empty edge
    np.testing.assert_allclose(
        picture[-1, -1].astype(int), drawn(800, 600)[-1, -1], atol=2
    )
    shows(client, drawn(1000, 700, 5))
    np.testing.assert_array_equal(screenshot(page)[60:], drawn(1000, 700, 5)[60:])
    page.evaluate("""() => { Object.defineProperty(document, 'hidden', {get: () => window.away, configurable: true});
      window.away = true; document.dispatchEvent(new Event('visibilitychange')); }""")
    assert client.wait(m.Visible).on is False
    shows(
        client, drawn(800, 600, 2)
    )  # and does not leave the viewer waiting for what it draws
    page.evaluate(
        "window.away = false; document.dispatchEvent(new Event('visibilitychange'))"
    )
    assert client.wait(m.Visible, 2).on is True


def test_page_shows_title_and_trouble_and_writes_the_clipboard(
    viewer: Viewer, open_page: Open
) -> None:
    page, client = connected(
        viewer,
        open_page,
        (1280, 800),
        permissions=["clipboard-read", "clipboard-write"],
    )
    client.connection.send(
        m.Caption("render - splatview", "The trainer is gone.", False)
    )
    wait_for_script(page, "splatview.state().notice === 'The trainer is gone.'")
    assert page.title() == "render - splatview"
    client.connection.send(m.Caption("render - splatview", "", False))
    wait_for_script(page, "splatview.state().notice === ''")
    client.connection.send(m.Clipboard("0.25, 0.5"))
    page.wait_for_selector("#toast.shown >> text=Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "0.25, 0.5"


def test_viewer_asks_the_page_for_full_screen_and_keyboard(
    viewer: Viewer, open_page: Open
) -> None:
    """A browser lets a page do so only after a press, which may still be to come."""
    page, client = connected(viewer, open_page)
    full = "!!document.fullscreenElement"
    client.connection.send(m.Ask("fullscreen"))
    page.wait_for_timeout(200)
    page.mouse.click(300, 200)
    wait_for_script(page, full)
    client.connection.send(m.Ask("fullscreen"))
    wait_for_script(page, f"!({full})")
    client.connection.send(m.Caption("render", "", True))
    wait_for_script(page, "document.activeElement.id === 'field'")
    client.connection.send(m.Ask("keyboard"))
    page.wait_for_timeout(100)
    assert page.evaluate("document.activeElement.id") == "field"


def test_page_draws_no_controls_of_its_own(viewer: Viewer, open_page: Open) -> None:
    page, client = connected(
        viewer, open_page, (390, 844), 3, has_touch=True, is_mobile=True
    )
    assert (client.hello.width, client.hello.height, client.hello.scale) == (
        1170,
        2532,
        3.0,
    )
    assert page.locator("button:visible").count() == 0
    page.keyboard.press("F6")
    assert client.wait(ev.Key).name == "f6"


def test_interface_lies_over_pictures_and_changes_in_parts(
    viewer: Viewer, open_page: Open
) -> None:
    page = open_page(viewer.url, (400, 300))
    client = viewer.client()
    pixels = drawn(400, 300)
    client.arrange((400, 300), m.PaneBox(7, (100, 50, 200, 200)))
    shows(client, pixels)
    half = np.full((50, 60, 4), (250, 40, 10, 128), np.uint8)
    client.update(((20, 30, 60, 50), png(half)))
    wait_until(client.has_acked_update)
    expected = np.zeros((300, 400, 4), np.uint8)
    expected[30:80, 20:80] = half
    np.testing.assert_allclose(on_interface(page).astype(int), expected, atol=1)
    blended = pixels[30:80, 20:80] * (127 / 255) + half[..., :3] * (128 / 255)
    np.testing.assert_allclose(screenshot(page)[30:80, 20:80], blended, atol=2)
    opaque = np.full((10, 10, 4), (1, 2, 3, 255), np.uint8)
    client.update(
        ((70, 70, 10, 10), png(opaque)), ((0, 0, 10, 10), png(opaque[:, ::-1]))
    )
    wait_until(client.has_acked_update)
    for top in (70, 0):
        assert (on_interface(page)[top + 5, top + 5] == (1, 2, 3, 255)).all()
    assert (on_interface(page)[40, 40, 3] == 128).all(), "what is left out stays"


def test_picture_of_an_old_layout_is_shown_in_its_panes_of_now(
    viewer: Viewer, open_page: Open
) -> None:
    page = open_page(viewer.url, (400, 300))
    client = viewer.client()
    red, blue = (220, 20, 30), (20, 40, 210)
    left, right = (0, 50, 200, 250), (200, 50, 200, 250)
    client.arrange((400, 300), m.PaneBox(1, left), m.PaneBox(2, right))
    pixels = np.zeros((300, 400, 3), np.uint8)
    pixels[:, :200] = red
    pixels[:, 200:] = blue
    shows(client, pixels)
    client.arrange((400, 300), m.PaneBox(2, (100, 50, 300, 250)))
    wait_until(client.has_acked_update)
    canvas_pixels = on_canvas(page)
    assert (canvas_pixels[60:290, 110:390] == blue).all()
    assert not (canvas_pixels == red).all(-1).any()
    send(client, pixels)  # of a layout that its interface has not announced yet
    client.layout = m.PageLayout(9, (400, 300), [m.PaneBox(2, (0, 0, 400, 300))])
    client.put(client.layout)
    green = np.full((300, 400, 3), (10, 200, 40), np.uint8)
    shows(client, green)
    assert not (on_canvas(page) == green).all()
    client.update()
    wait_until(client.has_acked_update)
    np.testing.assert_array_equal(on_canvas(page), green)


# ---- the connection


def test_page_reconnects_after_the_viewer_restarts(
    start: Callable[..., Viewer], open_page: Open
) -> None:
    first = start(token="kept")
    page, client = connected(first, open_page, expected="ERR_CONNECTION_REFUSED|404")
    client.connection.send(m.Caption("render", "", True))
    wait_for_script(page, "splatview.state().typing")
    page.mouse.move(300, 200)
    page.mouse.down()
    first.close()
    wait_for_script(page, "splatview.state().stopped")
    np.testing.assert_array_equal(
        on_canvas(page), drawn(800, 600)
    )  # the last picture is kept
    restarted = start(first.port, token="kept")
    fresh = restarted.client()
    assert restarted.port == first.port
    assert fresh.hello.id == client.hello.id
    shows(fresh, drawn(800, 600, 9))
    np.testing.assert_array_equal(on_canvas(page), drawn(800, 600, 9))
    wait_for_script(page, "!splatview.state().stopped")
    assert (state(page)["notice"], state(page)["typing"]) == ("", False)
    page.mouse.up()  # of the press before: the new viewer knows nothing of it
    page.keyboard.press("f")
    fresh.wait(ev.Key, 2)
    assert not fresh.received(ev.PointerPress, ev.PointerRelease)


def test_page_says_that_the_viewer_stopped_and_what_to_do(
    start: Callable[..., Viewer], open_page: Open
) -> None:
    first = start(token="kept")
    first.command = f"splatview serve --web --port {first.port}"
    page, client = connected(
        first,
        open_page,
        expected="ERR_CONNECTION_REFUSED",
        permissions=["clipboard-read", "clipboard-write"],
    )
    client.connection.send(m.Caption("render", "", False, light=True))
    half = np.full((600, 400, 4), (240, 10, 20, 255), np.uint8)
    client.update(((0, 0, 400, 600), png(half)))
    wait_until(client.has_acked_update)
    first.close()
    page.wait_for_selector("#stopped:visible")
    notice = page.inner_text("#stopped")
    for phrase in ("The viewer stopped", "since", "Your training is not affected"):
        assert phrase in notice
    assert re.search(r"since \d\d:\d\d:\d\d", notice)
    wait_for_script(page, "/next try in \\d s|trying/.test(stopped.innerText)")
    color = "getComputedStyle(stopped).backgroundColor"
    assert page.evaluate(color) == "rgb(255, 255, 255)", "in the colours of the theme"
    page.click("#copycommand")
    assert page.evaluate("navigator.clipboard.readText()") == first.command
    with page.expect_download() as waiting:
        page.click("#keep")
    with Image.open(waiting.value.path()) as saved_image:
        picture = np.asarray(saved_image.convert("RGB"))
    np.testing.assert_array_equal(picture[:, :400], half[..., :3])
    np.testing.assert_array_equal(picture[:, 400:], drawn(800, 600)[:, 400:])
    page.click("#retry", trial=True)
    restarted = start(first.port, token="kept")
    # Unless the page has just tried again by itself.
    page.evaluate("stopped.hidden || retry.click()")
    shows(restarted.client(), drawn(800, 600, 9))
    page.wait_for_selector("#stopped", state="hidden")


def test_older_page_reloads_once(viewer: Viewer, open_page: Open) -> None:
    loads: list[str] = []

    def old(route: Route) -> None:
        loads.append(route.request.url)
        script = route.fetch().text()
        line = f"const PROTOCOL = {m.PAGE_PROTOCOL};"
        assert line in script
        route.fulfill(
            body=script.replace(line, "const PROTOCOL = 0;"),
            content_type="text/javascript",
        )

    page = open_page(viewer.url, routes={"**/viewer.js": old})

    def has_reloaded() -> bool:
        # Routes are answered while the page is waited for.
        page.wait_for_timeout(20)
        return len(loads) == 2

    wait_until(has_reloaded, "the page reloads")
    page.wait_for_load_state()
    wait_for_script(
        page,
        "splatview.state().notice === 'This page is older than the viewer: reload it.'",
    )
    assert len(loads) == 2  # loaded again, once: what comes may be the old one still
    wait_until(lambda: all(connection.closed for connection in viewer.arrivals()))
    page.unroute("**/viewer.js")
    page.click("#again")
    viewer.client()
    wait_for_script(page, "splatview.state().connected")


def test_tabs_have_ids_of_their_own_and_keep_them(
    viewer: Viewer, open_page: Open
) -> None:
    page, client = connected(viewer, open_page)
    page.reload()
    assert viewer.client().hello.id == client.hello.id
    with page.context.expect_page() as opened:
        page.evaluate(
            "void window.open(location.href)"
        )  # a copy of the tab, its session's storage included
    copy = viewer.client()
    assert copy.hello.id != client.hello.id
    opened.value.reload()
    assert viewer.client().hello.id == copy.hello.id


# ---- the whole


def test_viewer_is_visible_in_a_notebooks_frame(open_page: Open) -> None:
    """A published image, a viewer program, `splatview.show`, and what that returns in
    the page of a notebook.
    """
    from splatview.api.session import session

    thread_count = threading.active_count()
    notebook_view = splatview.show(port=0, timeout=PATIENCE_S, height=600)
    try:
        assert [v.url for v in list_viewers()] == [notebook_view.url]
        assert threading.active_count() <= thread_count, (
            "no thread of this process is left"
        )
        assert splatview.show(timeout=PATIENCE_S, width=300).pid == notebook_view.pid, (
            "both show the same viewer"
        )
        halves = np.full((60, 80, 3), (250, 140, 20), np.uint8)
        halves[30:] = 20, 60, 240
        splatview.publish(torch.from_numpy(halves), "halves")
        with elsewhere(f"<body style='margin: 0'>{notebook_view._repr_html_()}") as url:
            tab = open_page(url, (1000, 700), expected="ERR_")

            def both() -> list[np.ndarray]:
                """Return the positions of the two colours."""
                picture = screenshot(tab).astype(int)
                positions = [
                    np.argwhere(
                        np.abs(picture - halves[row, 0].astype(int)).max(-1) < 40
                    )
                    for row in (0, -1)
                ]
                if min(map(len, positions)) > 40_000:
                    return positions
                return []

            upper, lower = wait_until(both, "the frame shows the image")
            assert upper[:, 0].max() < lower[:, 0].min()
            assert lower[:, 0].max() < 600, "outside of the frame"
    finally:
        while programs := session().programs:
            programs.pop().end()


# -- the token -------------------------------------------------------------------------

CONNECTED = "splatview.state().connected"
TOKEN = "secret-Token_1"


@pytest.mark.parametrize("path", ["", "?a=b&c=%2F"])
def test_page_opens_by_an_address_with_a_name_and_password(
    start: Callable[..., Viewer], open_page: Open, path: str
) -> None:
    """As for the login of a proxy.

    Scripts may not repeat these, and do not see them.
    """
    viewer = start(token=TOKEN)
    joint = "?"
    if "?" in path:
        joint = "&"
    url = f"http://me:word@127.0.0.1:{viewer.port}/{path}{joint}token={TOKEN}"
    page = open_page(url)
    viewer.client()
    wait_for_script(page, CONNECTED)
    assert page.evaluate("location.href") == f"{viewer.bare}{path}"
    page.reload()
    viewer.client()


def test_token_behind_a_hash_is_in_no_request(
    start: Callable[..., Viewer], open_page: Open
) -> None:
    viewer = start(token=TOKEN)
    urls: list[str] = []

    def note(route: Route) -> None:
        urls.append(route.request.url)
        route.continue_()

    page = open_page(
        f"{viewer.bare}#token=another", routes={"**/*": note}, expected="403"
    )
    wait_for_script(page, "splatview.state().notice.includes('token')")
    page.evaluate("token => { location.hash = `token=${token}`; }", TOKEN)
    page.wait_for_url(viewer.bare)
    wait_for_script(page, CONNECTED)
    viewer.client()
    assert page.evaluate("location.href") == viewer.bare
    page.reload()
    wait_for_script(page, CONNECTED)
    viewer.client()
    assert urls
    assert not any(TOKEN in url for url in urls)


def test_token_leaves_the_address(
    start: Callable[..., Viewer], open_page: Open
) -> None:
    viewer = start(token=TOKEN)
    sent: list[dict[str, str]] = []
    foreign_url = f"http://127.0.0.1:{viewer.port ^ 1}/"  # of another user

    def note(route: Route) -> None:
        sent.append({"url": route.request.url, **route.request.all_headers()})
        if route.request.url == foreign_url:
            route.fulfill(body="", content_type="text/html")
        else:
            route.continue_()

    page, client = connected(viewer, open_page, routes={"**/*": note})
    assert page.url == page.evaluate("location.href") == viewer.bare
    page.reload()
    assert viewer.client().hello.id == client.hello.id
    wait_for_script(page, CONNECTED)
    assert page.url == viewer.bare
    assert TOKEN not in page.content()
    page.evaluate("url => { location.href = url; }", foreign_url)
    page.wait_for_url(foreign_url)
    assert page.evaluate("document.referrer") == ""
    assert not page.context.cookies()
    assert foreign_url in [request["url"] for request in sent]
    assert not any({"referer", "cookie"} & {*request} for request in sent)
    assert all("?" not in request["url"] for request in sent[1:]), "the page alone"


def test_page_without_the_token_says_what_to_do(
    start: Callable[..., Viewer], open_page: Open
) -> None:
    """A page of a viewer that ended says so, too."""
    first = start(token=TOKEN)
    page, _ = connected(
        first, open_page, expected="403|WebSocket connection|ERR_CONNECTION_REFUSED"
    )
    first.close()
    second = start(first.port, token="another")
    assert second.port == first.port
    wait_for_script(
        page, 'splatview.state().notice.startsWith("This token is not this viewer\'s.")'
    )
    page.goto(second.url)
    second.client()
    wait_for_script(page, CONNECTED)
    bare = open_page(second.bare, expected="403|WebSocket connection")
    wait_for_script(
        bare, "splatview.state().notice.startsWith('This viewer needs a token.')"
    )
    assert not second.arrivals()


# -- reverse proxies -------------------------------------------------------------------

REFUSED = "403|WebSocket connection|ERR_"


def test_page_works_under_the_path_of_a_site(
    start: Callable[..., Viewer], open_page: Open, tmp_path: Path
) -> None:
    """Pictures, input and a file, whose Origin is the site's and whose Host is not."""
    viewer = start(allow_hosts=["127.0.0.1"])
    with reverse_proxy(viewer.port) as url:
        page = open_page(f"{url}?token={viewer.token}")
        client = viewer.client()
        shows(client, drawn(800, 600))
        np.testing.assert_array_equal(on_canvas(page), drawn(800, 600))
        assert page.url == url
        keys = page.evaluate("Object.keys(sessionStorage)")
        assert keys
        assert all(PATH in key for key in keys), "other paths have viewers too"
        page.reload()
        client = viewer.client()
        page.mouse.move(300, 200)
        client.wait(ev.PointerMove)
        (tmp_path / "scene.ply").write_bytes(b"content")
        drag(page, tmp_path / "scene.ply")
        assert client.files()[0].read_bytes() == b"content"


def test_page_of_an_unnamed_proxy_names_the_option(
    viewer: Viewer, open_page: Open
) -> None:
    with reverse_proxy(viewer.port) as url:
        page = open_page(f"{url}?token={viewer.token}", expected=REFUSED)
        wait_for_script(
            page, "splatview.state().notice.includes('--allow-host 127.0.0.1')"
        )
        assert page.is_visible("#again"), "there is no use in trying by itself"
    assert not viewer.arrivals()


def test_page_says_that_no_websocket_comes_through(
    start: Callable[..., Viewer], open_page: Open
) -> None:
    viewer = start(allow_hosts=["127.0.0.1"])
    with reverse_proxy(viewer.port, websockets=False) as url:
        page = open_page(f"{url}?token={viewer.token}", expected="400|WebSocket|ERR_")
        wait_for_script(
            page, "splatview.state().notice.includes('no WebSocket through')"
        )
        notice = state(page)["notice"]
        assert "Upgrade" in notice
        assert "ssh -L" in notice
        assert "Trying again" in notice
    assert not viewer.arrivals()


def test_page_says_what_answers_in_the_viewers_place(
    start: Callable[..., Viewer], open_page: Open
) -> None:
    viewer = start(token=TOKEN, allow_hosts=["127.0.0.1"])
    with reverse_proxy(viewer.port) as url:
        page = open_page(f"{url}?token={TOKEN}", expected="WebSocket|502|ERR_")
        viewer.client()
        wait_for_script(page, CONNECTED)
        viewer.close()
        wait_for_script(page, "splatview.state().notice.includes('502')")
        start(viewer.port, TOKEN, allow_hosts=["127.0.0.1"])
        wait_for_script(
            page, f"{CONNECTED} && !splatview.state().notice.includes('502')"
        )


def answer_404(route: Route) -> None:
    route.fulfill(status=404)


def test_page_without_its_script_is_not_blank(viewer: Viewer, open_page: Open) -> None:
    page = open_page(
        viewer.url,
        expected="404",
        routes={"**/session.js": answer_404},
    )
    page.wait_for_selector("#unloaded >> text=reverse proxy")


# -- files -----------------------------------------------------------------------------

TOAST = "document.querySelector('#toast.shown')?.textContent || ''"
SENDING = "document.querySelector('#sending').hidden ? '' : document.querySelector('#sendwords').textContent"


def slow(page: Page, bytes_per_second: float) -> None:
    """Limit the page's upload speed; a negative one is no limit."""
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.send(
        "Network.emulateNetworkConditions",
        {
            "offline": False,
            "latency": 0,
            "downloadThroughput": -1,
            "uploadThroughput": bytes_per_second,
        },
    )


def test_files_are_dropped_and_pasted(
    viewer: Viewer, open_page: Open, tmp_path: Path
) -> None:
    page, client = connected(viewer, open_page)
    scene_file = tmp_path / "a scene.ply"
    path_file = tmp_path / "Füchse & 狐.json"
    scene_file.write_bytes(os.urandom(2_500_000))
    path_file.write_text('{"camera_path": []}')
    drag(page, scene_file, path_file, kinds=("dragEnter", "dragOver"))
    wait_for_script(page, "!document.querySelector('#drop').hidden")
    drag(page, scene_file, path_file)
    first, second = client.files(2)
    assert first.name == scene_file.name
    assert first.read_bytes() == scene_file.read_bytes()
    assert second.name == "Füchse - 狐.json"
    assert second.read_bytes() == path_file.read_bytes()
    wait_for_script(page, f"!({SENDING})")
    paste = """(text) => { const data = new DataTransfer(); data.items.add(new File(['png'], 'image.png'));
      if (text) data.setData('text/plain', text);
      document.body.dispatchEvent(new ClipboardEvent(
        'paste', {clipboardData: data, bubbles: true, cancelable: true})); }"""
    page.evaluate(paste, "")
    assert client.files(3)[2].read_bytes() == b"png"
    page.evaluate(
        paste, "1\t2"
    )  # programs that copy cells of a table give a picture of them as well
    assert client.wait(ev.Text).text == "1\t2"
    assert len(client.files()) == 3
    assert page.url == viewer.bare
    assert state(page)["connected"]


def test_page_says_why_a_file_is_not_sent_and_can_cancel(
    viewer: Viewer,
    open_page: Open,
    tmp_path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The page does not start to send a file that is too large."""
    monkeypatch.setattr(module, "MAX_FILE", 41_000_000)
    page, client = connected(viewer, open_page, expected="507")
    for name, size in (
        ("large.ply", 42_000_000),
        ("one.ply", 40_000_000),
        ("small.ply", 1),
    ):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    drag(page, tmp_path / "large.ply", tmp_path / "small.ply")
    assert client.files()[0].name == "small.ply"
    wait_for_script(
        page,
        f"({TOAST}).startsWith('large.ply has 42 MB; 41 MB is the most that a page can "
        "send')",
    )
    with monkeypatch.context() as patch:
        patch.setattr(files, "SPARE", 10**18)
        drag(page, tmp_path / "small.ply")
        wait_for_script(
            page, f"({TOAST}).includes('There is no room for small.ply on the viewer')"
        )
    slow(page, 200_000)
    drag(page, tmp_path / "one.ply", tmp_path / "small.ply")
    wait_for_script(
        page,
        f"({SENDING}) === 'Sending one.ply, 40 MB, 1 more' && "
        "document.querySelector('#sendbar').value > 0",
    )
    page.click("#stopsending")
    wait_for_script(page, f"!({SENDING}) && ({TOAST}) === 'Not sent'")
    wait_for_uploads(folder, 1)
    slow(page, -1)
    drag(page, tmp_path / "small.ply")
    assert client.files(2)[1].name == "small.ply"


def test_files_are_downloaded(viewer: Viewer, open_page: Open, tmp_path: Path) -> None:
    """Downloads: a screenshot, a file that the viewer wrote, and one that is gone."""
    page, client = connected(viewer, open_page, expected="404")
    path = tmp_path / "fox & 狐-step7000.ply"
    path.write_bytes(os.urandom(3_000_000))
    for name, content in (("render 12.png", os.urandom(1000)), (path.name, path)):
        with page.expect_download() as waiting:
            client.connection.offer(name, content, 3_000_000)
        assert waiting.value.suggested_filename == name
        assert viewer.token not in waiting.value.url, "which browsers keep"
        expected = content
        if not isinstance(content, bytes):
            expected = content.read_bytes()
        assert waiting.value.path().read_bytes() == expected
    client.connection.offer("not there.ply", tmp_path / "not there.ply", 10)
    wait_for_script(page, f"({TOAST}).includes('not there.ply: cannot be read')")
    assert page.evaluate("document.activeElement.id") == "canvas"
    assert page.url == viewer.bare
    assert state(page)["connected"]
