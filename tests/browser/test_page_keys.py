"""Keys that the viewer knows, in a real Chromium: it reaches the viewer, and the browser does nothing by itself."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from support.pages import connected, state

from splatview.viewer_app.web import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page
    from support.pages import Client, Open, Viewer

    Kept = Callable[[str], tuple[Page, Client]]

_WATCH = "window.left = []; addEventListener('keydown', (e) => { if (!e.defaultPrevented) left.push(e.key); })"
_CATCH = _WATCH + "; addEventListener('keydown', (e) => e.preventDefault())"


def pressed(client_said: list[m.Key]) -> list[tuple[str, int]]:
    """Names and modifiers of the keys that went down, but for those that are only held."""
    return [(key.name, key.mods) for key in client_said
            if key.pressed and key.name not in ("shift", "ctrl", "alt", "super")]


def left(page: Page) -> list[str]:
    """Keys that went to the browser since the last call, but for those that are only held."""
    return [key for key in page.evaluate("left.splice(0)") if key not in ("Shift", "Control", "Alt", "Meta")]


@pytest.mark.parametrize(("press", "name", "mods"), [
    ("Control+s", "s", 2), ("Control+Shift+S", "s", 3), ("Shift+Tab", "tab", 1), ("Tab", "tab", 0), ("h", "h", 0),
    ("Space", "space", 0), ("PageUp", "page_up", 0), ("PageDown", "page_down", 0), ("Home", "home", 0),
    ("End", "end", 0), ("Delete", "delete", 0), ("Escape", "escape", 0), ("Control+c", "c", 2), ("Control+z", "z", 2),
    ("Control+Shift+Z", "z", 3), ("Control+y", "y", 2), ("Control+a", "a", 2), ("Control+Enter", "enter", 2),
    ("Shift+Digit3", "3", 1), ("9", "9", 0), ("Comma", "comma", 0), ("Period", "period", 0), ("Slash", "slash", 0),
    ("Shift+Slash", "slash", 1), ("ArrowUp", "up", 0), ("Shift+w", "w", 1),
    ("Alt+a", "a", 4), ("Alt+ArrowRight", "right", 4),
    ("F1", "f1", 0), ("F3", "f3", 0), ("F7", "f7", 0), ("F10", "f10", 0), ("Backspace", "backspace", 0),
    *((key, key, 0) for key in "wasdqezcofrtkplh1"),
])
def test_a_key_of_the_viewer(kept: Kept, press: str, name: str, mods: int) -> None:
    page, client = kept(_WATCH)
    url = page.url
    page.keyboard.press(press)
    client.wait_for(lambda: any(key.name == name and not key.pressed for key in client.said(m.Key)), press)
    assert pressed(client.said(m.Key)) == [(name, mods)]
    assert left(page) == []
    assert page.url == url and state(page)["connected"]


def test_the_list_of_keys_is_asked_for(kept: Kept) -> None:
    """By a character, wherever a keyboard has it."""
    page, client = kept(_WATCH)
    page.keyboard.type("?")
    assert client.wait(m.Text).text == "?"


@pytest.mark.parametrize("press", ["Control+t", "Control+w", "Control+l", "Control+r", "Control+p", "Control+Shift+I",
                                   "Control+Equal", "Control+Digit1", "F5", "F11", "F12", "Control+o", "Control+f"])
def test_a_key_of_the_browser(kept: Kept, press: str) -> None:
    """The viewer does not hear of it, and the browser does what it always does."""
    page, client = kept(_CATCH)
    shortcut = press.rpartition("+")[2].removeprefix("Digit")
    page.keyboard.press(press)
    page.keyboard.press("x")
    client.wait_for(lambda: any(key.name == "x" and not key.pressed for key in client.said(m.Key)), "x")
    assert pressed(client.said(m.Key)) == [("x", 0)]
    assert [key.upper() for key in left(page)] == [shortcut.upper().replace("EQUAL", "=")]


def test_a_key_that_is_held_says_so(kept: Kept) -> None:
    """Ctrl + S held down keeps one picture."""
    page, client = kept(_WATCH)
    page.keyboard.down("Control")
    for _ in range(3):
        page.keyboard.down("s")
    page.keyboard.up("s")
    page.keyboard.up("Control")
    client.wait_for(lambda: any(key.name == "ctrl" and not key.pressed for key in client.said(m.Key)), "Ctrl up")
    assert [key.repeat for key in client.said(m.Key) if key.name == "s" and key.pressed] == [False, True, True]


def test_a_camera_is_pasted(viewer: Viewer, open_page: Open) -> None:
    """As text in one piece, over the picture; the key itself says nothing, so that nothing is pasted twice."""
    page, client = connected(viewer, open_page, permissions=["clipboard-read", "clipboard-write"])
    camera = json.dumps({"camera": [[1.0] * 4] * 4, "fov": 50}, indent=2)
    page.evaluate("(text) => navigator.clipboard.writeText(text)", camera)
    page.keyboard.press("Control+v")
    assert client.wait(m.Text).text == camera
    assert ("v", 2) not in pressed(client.said(m.Key))


@pytest.mark.parametrize(("key", "mods"), [("Alt", 4), ("Control", 2), ("Shift", 1)])
def test_clicks_with_a_key(kept: Kept, key: str, mods: int) -> None:
    page, client = kept(_WATCH)
    page.keyboard.down(key)
    page.mouse.click(400, 300)
    page.keyboard.up(key)
    assert client.wait(m.Press).mods == mods and client.wait(m.Release).mods == mods
    assert page.evaluate("String(getSelection())") == ""


def test_a_double_click_are_two_presses_in_time(kept: Kept) -> None:
    page, client = kept(_WATCH)
    begin = time.monotonic()
    page.mouse.dblclick(400, 300)
    took = time.monotonic() - begin
    second = client.wait(m.Press, 2)
    first = client.said(m.Press)[0]
    assert (first.x, first.y) == (second.x, second.y) == (400, 300)
    assert 0 <= second.at - first.at <= took * 1e3 + 1  # a busy browser takes both in at once
