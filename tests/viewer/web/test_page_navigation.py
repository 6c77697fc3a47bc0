"""What moves a scene's camera on the page: fingers that turn, keys that are held, a camera that is pasted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from support.pages import connected, mask

from splatview_viewer.core import events as ev

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession
    from support.pages import Client, Open, Viewer


def turn(client: Client, cdp: CDPSession, degrees: float, steps: int = 12) -> float:
    """Turn two fingers around their middle, clockwise; what the viewer heard of that, in degrees."""
    client.forget()
    for step in range(steps + 1):
        angle = math.radians(degrees * step / steps)
        x, y = 60 * math.cos(angle), 60 * math.sin(angle)
        cdp.send("Input.dispatchTouchEvent", {"type": "touchMove" if step else "touchStart", "touchPoints": [
            {"x": 200 - x, "y": 300 - y, "id": 0}, {"x": 200 + x, "y": 300 + y, "id": 1}]})
    cdp.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    cdp.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": 50, "y": 600, "id": 0}]})
    cdp.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    client.wait(ev.PointerLeave, 2)  # of the finger that came first, and of this one
    return math.degrees(sum(pinch.turn for pinch in client.said(ev.Pinch)))


def test_two_fingers_turn_once_it_is_meant(viewer: Viewer, open_page: Open) -> None:
    page, client = connected(viewer, open_page, (390, 844), 3, has_touch=True, is_mobile=True)
    cdp = page.context.new_cdp_session(page)
    assert turn(client, cdp, 10) == 0  # fingers never keep quite straight
    turned = turn(client, cdp, 120)
    assert 70 < turned < 120
    assert -120 < turn(client, cdp, -120) < -70
    assert turn(client, cdp, 370, 40) == pytest.approx(370 - 14, abs=24)  # all the way round and on


def test_alt_moves_slowly_and_is_not_the_browsers(viewer: Viewer, open_page: Open) -> None:
    page, client = connected(viewer, open_page)
    page.evaluate("window.left = []; addEventListener('keydown', "
                  "(e) => { if (!e.defaultPrevented) left.push(e.key); })")
    page.keyboard.down("Alt")
    for name in ("w", "d", "ArrowLeft"):
        page.keyboard.down(name)
        page.keyboard.up(name)
    page.keyboard.press("x")
    page.keyboard.up("Alt")
    client.wait(ev.Key, 8)
    said = [(key.name, key.pressed, mask(key)) for key in client.said(ev.Key)]
    assert said == [("alt", True, 4), ("w", True, 4), ("w", False, 4), ("d", True, 4), ("d", False, 4),
                    ("left", True, 4), ("left", False, 4), ("alt", False, 0)]
    assert page.evaluate("left") == ["x"]
    assert not client.said(ev.Text)


def test_keys_that_are_held_are_let_go_when_the_page_loses_the_keyboard(viewer: Viewer, open_page: Open) -> None:
    page, client = connected(viewer, open_page)
    page.keyboard.down("w")
    page.keyboard.down("a")
    client.wait(ev.Key, 2)
    page.evaluate("dispatchEvent(new Event('blur'))")
    client.wait(ev.Key, 4)
    assert {(key.name, key.pressed) for key in client.said(ev.Key)[2:]} == {("w", False), ("a", False)}
