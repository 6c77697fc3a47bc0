"""Keys that the viewer knows, in a real Chromium: it reaches the viewer, and the browser does nothing by itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.pages import connected, mask, state

from splatview_viewer.core import events as ev

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page
    from support.pages import Client, Open, Viewer

    Watched = Callable[[str], tuple[Page, Client]]

_WATCH = "window.left = []; addEventListener('keydown', (e) => { if (!e.defaultPrevented) left.push(e.key); })"
_CATCH = _WATCH + "; addEventListener('keydown', (e) => e.preventDefault())"


def pressed(client_said: list[ev.Key]) -> list[tuple[str, int]]:
    """Names and modifiers of the keys that went down, but for those that are only held."""
    return [(key.name, mask(key)) for key in client_said
            if key.pressed and key.name not in ("shift", "ctrl", "alt", "super")]


def left(page: Page) -> list[str]:
    """Keys that went to the browser since the last call, but for those that are only held."""
    return [key for key in page.evaluate("left.splice(0)") if key not in ("Shift", "Control", "Alt", "Meta")]


@pytest.mark.parametrize(("press", "name", "mods"), [
    ("Control+s", "s", 2), ("Control+Shift+Z", "z", 3), ("Shift+Tab", "tab", 1), ("Space", "space", 0),
    ("PageUp", "page_up", 0), ("Alt+ArrowRight", "right", 4), ("F1", "f1", 0), ("w", "w", 0),
])
def test_a_key_of_the_viewer(watched: Watched, press: str, name: str, mods: int) -> None:
    page, client = watched(_WATCH)
    url = page.url
    page.keyboard.press(press)
    client.wait_for(lambda: any(key.name == name and not key.pressed for key in client.said(ev.Key)), press)
    assert pressed(client.said(ev.Key)) == [(name, mods)]
    assert left(page) == []
    assert page.url == url and state(page)["connected"]


@pytest.mark.parametrize("press", ["Control+t", "Control+r", "Control+Shift+I", "F5", "Control+f"])
def test_a_key_of_the_browser(watched: Watched, press: str) -> None:
    """The viewer does not hear of it, and the browser does what it always does."""
    page, client = watched(_CATCH)
    shortcut = press.rpartition("+")[2].removeprefix("Digit")
    page.keyboard.press(press)
    page.keyboard.press("x")
    client.wait_for(lambda: any(key.name == "x" and not key.pressed for key in client.said(ev.Key)), "x")
    assert pressed(client.said(ev.Key)) == [("x", 0)]
    assert [key.upper() for key in left(page)] == [shortcut.upper().replace("EQUAL", "=")]


def test_a_key_that_is_held_says_so(watched: Watched) -> None:
    """Ctrl + S held down keeps one picture."""
    page, client = watched(_WATCH)
    page.keyboard.down("Control")
    for _ in range(3):
        page.keyboard.down("s")
    page.keyboard.up("s")
    page.keyboard.up("Control")
    client.wait_for(lambda: any(key.name == "ctrl" and not key.pressed for key in client.said(ev.Key)), "Ctrl up")
    assert [key.repeat for key in client.said(ev.Key) if key.name == "s" and key.pressed] == [False, True, True]


def test_a_camera_is_pasted(viewer: Viewer, open_page: Open) -> None:
    """As text in one piece, over the picture; the key itself says nothing, so that nothing is pasted twice."""
    page, client = connected(viewer, open_page, permissions=["clipboard-read", "clipboard-write"])
    camera = json.dumps({"camera": [[1.0] * 4] * 4, "fov": 50}, indent=2)
    page.evaluate("(text) => navigator.clipboard.writeText(text)", camera)
    page.keyboard.press("Control+v")
    assert client.wait(ev.Text).text == camera
    assert ("v", 2) not in pressed(client.said(ev.Key))


@pytest.mark.parametrize(("key", "mods"), [("Alt", 4), ("Control", 2)])
def test_clicks_with_a_key(watched: Watched, key: str, mods: int) -> None:
    page, client = watched(_WATCH)
    page.keyboard.down(key)
    page.mouse.click(400, 300)
    page.keyboard.up(key)
    assert mask(client.wait(ev.PointerPress)) == mask(client.wait(ev.PointerRelease)) == mods
    assert page.evaluate("String(getSelection())") == ""
