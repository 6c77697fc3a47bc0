"""Input on the page in a real Chromium: mouse, fingers, keys and text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.pages import (
    connected,
    mask,
    touch,
    wait_for_script,
)
from support.wait import wait_until

from splatview_viewer.core import events as ev
from splatview_viewer.web import messages as m

if TYPE_CHECKING:
    from support.pages import Open, Viewer

POINTER = ev.PointerMove, ev.PointerPress, ev.PointerRelease


def test_mouse_events_arrive_in_framebuffer_pixels(
    viewer: Viewer, open_page: Open
) -> None:
    """Buttons, moves, drags out of the page, the wheel, and a window that loses focus."""
    page, client = connected(viewer, open_page, (640, 400), 2)
    for button in ("left", "right", "middle"):
        client.forget()
        page.mouse.move(200, 150)
        page.mouse.down(button=button)
        page.mouse.move(220.5, 160)
        page.mouse.up(button=button)
        press = client.wait(ev.PointerPress)
        release = client.wait(ev.PointerRelease)
        assert (press.x, press.y, press.button, mask(press)) == (400, 300, button, 0)
        assert (release.x, release.y, release.button) == (441, 320, button)
        pointer_events = client.received(*POINTER)
        assert [type(pointer_event) for pointer_event in pointer_events] == [
            POINTER[0],
            POINTER[1],
            POINTER[0],
            POINTER[2],
        ]
        times = [pointer_event.at for pointer_event in pointer_events]
        assert times == sorted(times)
        assert times[0] > 0
    page.mouse.down()
    page.mouse.move(660, 430)
    page.mouse.up()
    release = client.wait(ev.PointerRelease, 2)
    assert (release.x, release.y) == (1320, 860)
    client.wait(ev.PointerLeave)
    assert type(client.received(*POINTER, ev.PointerLeave)[-1]) is ev.PointerLeave
    client.forget()
    page.mouse.move(300, 200)
    page.mouse.wheel(100, -200)  # of device pixels, two to a point
    page.keyboard.down("Shift")
    page.mouse.wheel(0, 600)
    client.wait(ev.Wheel, 2)
    page.keyboard.up("Shift")
    assert [
        (wheel.x, wheel.dx, wheel.dy, mask(wheel))
        for wheel in client.received(ev.Wheel)
    ] == [(600, 0.5, 1, 0), (600, 0, -3, 1)]
    client.wait(ev.Key, 2)
    for away in ("blur", "pagehide"):
        client.forget()
        page.mouse.down()
        page.keyboard.down("w")
        client.wait(ev.Key)
        page.evaluate(f"window.dispatchEvent(new Event('{away}'))")
        assert client.wait(ev.PointerRelease).button == "left"
        assert not client.wait(ev.Key, 2).pressed
        page.mouse.up()
        page.keyboard.up("w")


def test_one_finger_presses_the_left_button_and_two_pinch_and_pan(
    viewer: Viewer, open_page: Open
) -> None:
    page, client = connected(
        viewer, open_page, (390, 844), 3, has_touch=True, is_mobile=True
    )
    cdp = page.context.new_cdp_session(page)
    for kind, *point in (
        ("Start", (200, 300)),
        ("Move", (210, 320)),
        ("Move", (220, 340)),
        ("End",),
    ):
        touch(cdp, kind, *point)
    client.wait(ev.PointerLeave)
    press = client.received(ev.PointerPress)[0]
    release = client.received(ev.PointerRelease)[0]
    assert (press.x, press.y, press.button) == (600, 900, "left")
    assert (release.x, release.y, release.button) == (660, 1020, "left")
    client.forget()
    touch(cdp, "Start", (150, 400))
    touch(cdp, "Start", (150, 400), (250, 400))
    for step in range(1, 11):  # twice as far apart, and 30 to the right, 20 down
        touch(
            cdp,
            "Move",
            (150 - 5 * step + 3 * step, 400 + 2 * step),
            (250 + 5 * step + 3 * step, 400 + 2 * step),
        )
    touch(cdp, "End", (130, 420))
    touch(cdp, "Move", (300, 600))  # the finger that stays does nothing more
    touch(cdp, "End")
    page.touchscreen.tap(100, 700)
    client.wait(ev.PointerRelease)
    kinds = [
        type(pointer_event) for pointer_event in client.received(*POINTER, ev.Pinch)
    ]
    pinches = client.received(ev.Pinch)
    assert kinds == [
        ev.PointerMove,
        *[ev.Pinch] * len(pinches),
        ev.PointerMove,
        ev.PointerPress,
        ev.PointerRelease,
    ], "two fingers press nothing"
    assert np.prod([pinch.factor for pinch in pinches]) == pytest.approx(2, rel=1e-3)
    assert sum(pinch.dx for pinch in pinches) == pytest.approx(90, abs=0.1)
    assert sum(pinch.dy for pinch in pinches) == pytest.approx(60, abs=0.1)
    assert (pinches[-1].x, pinches[-1].y) == pytest.approx((690, 1260), abs=0.1)
    assert page.evaluate("[visualViewport.scale, scrollX, scrollY]") == [1, 0, 0]

    def rotate(degrees: float, steps: int = 12) -> float:
        """Turn two fingers clockwise around their middle.

        Returns:
            The rotation that the viewer received, in degrees.
        """
        client.forget()
        for step in range(steps + 1):
            angle = math.radians(degrees * step / steps)
            x = 60 * math.cos(angle)
            y = 60 * math.sin(angle)
            kind = "Move"
            if step == 0:
                kind = "Start"
            touch(cdp, kind, (200 - x, 300 - y), (200 + x, 300 + y))
        for kind, *points in (("End",), ("Start", (50, 600)), ("End",)):
            touch(cdp, kind, *points)
        client.wait(
            ev.PointerLeave, 2
        )  # of the finger that came first, and of the one that followed
        return math.degrees(sum(pinch.turn for pinch in client.received(ev.Pinch)))

    assert rotate(10) == 0  # fingers never keep quite straight
    assert rotate(370, 40) == pytest.approx(
        370 - 14, abs=24
    )  # all the way round and on


def test_finger_that_rests_is_the_right_button(viewer: Viewer, open_page: Open) -> None:
    """A ring shows it; nothing was pressed before. Two taps are a double click."""
    page, client = connected(
        viewer, open_page, (390, 844), 3, has_touch=True, is_mobile=True
    )
    cdp = page.context.new_cdp_session(page)
    started_at = page.evaluate("performance.now()")
    touch(cdp, "Start", (200, 300))
    page.wait_for_selector("#ring:visible")
    touch(cdp, "Move", (203, 302))  # no finger is quite still
    release = client.wait(ev.PointerRelease)
    press = client.wait(ev.PointerPress)
    assert (press.button, release.button) == ("right", "right")
    assert (press.x, press.y, release.x, release.y) == (600, 900, 600, 900)
    assert press.at - started_at >= 490
    page.wait_for_selector("#ring", state="hidden")
    touch(cdp, "Move", (300, 500))
    touch(cdp, "End")
    client.wait(ev.PointerLeave)
    assert len(client.received(ev.PointerPress)) == 1
    client.forget()
    for x in (100, 110):
        page.touchscreen.tap(x, 700)
    second = client.wait(ev.PointerPress, 2)
    first = client.received(ev.PointerPress)[0]
    assert (first.x, first.y) == (second.x, second.y)
    assert second.at - first.at < 400
    assert {press.button for press in (first, second)} == {"left"}


def test_keys_arrive_with_the_viewers_names(viewer: Viewer, open_page: Open) -> None:
    """Modifiers, repeats and other layouts count, and the browser keeps its shortcuts."""
    page, client = connected(viewer, open_page)
    page.evaluate(
        "window.left = []; addEventListener('keydown', (e) => { if "
        "(!e.defaultPrevented && "
        "!['Control', 'Shift', 'Alt'].includes(e.key)) left.push(e.key); "
        "e.preventDefault(); })"
    )

    def received_keys(count: int) -> list[tuple[str, bool, bool, int]]:
        client.wait(ev.Key, count)
        keys = [
            (key.name, key.pressed, key.repeat, mask(key))
            for key in client.received(ev.Key)
        ]
        client.forget()
        return keys

    pressed = {
        "f": "f",
        "7": "7",
        "Tab": "tab",
        "ArrowLeft": "left",
        "PageUp": "page_up",
        "Home": "home",
        " ": "space",
        "Backspace": "backspace",
        "Enter": "enter",
        "Escape": "escape",
        "/": "slash",
        "-": "minus",
        "F1": "f1",
        "Delete": "delete",
        ".": "period",
    }
    for name in pressed:
        page.keyboard.press(name)
    assert received_keys(2 * len(pressed)) == [
        (name, down, False, 0) for name in pressed.values() for down in (True, False)
    ]
    for _ in range(2):
        page.keyboard.down("ArrowRight")
    page.keyboard.up("ArrowRight")
    page.keyboard.press("Control+Shift+Z")
    page.keyboard.press("Alt+w")
    assert received_keys(13) == [
        ("right", True, False, 0),
        ("right", True, True, 0),
        ("right", False, False, 0),
        ("ctrl", True, False, 2),
        ("shift", True, False, 3),
        ("z", True, False, 3),
        ("z", False, False, 3),
        ("shift", False, False, 2),
        ("ctrl", False, False, 0),
        ("alt", True, False, 4),
        ("w", True, False, 4),
        ("w", False, False, 4),
        ("alt", False, False, 0),
    ]
    assert page.evaluate("left") == []
    assert page.evaluate("document.activeElement.id") == "canvas"
    for key, code in (
        ("a", "KeyQ"),
        ("\u0430", "KeyF"),
        ("&", "Digit1"),
        ("Unidentified", "KeyG"),
    ):
        for kind in ("keydown", "keyup"):
            page.locator(":focus").dispatch_event(kind, {"key": key, "code": code})
    assert [name for name, *_ in received_keys(8)[::2]] == ["a", "f", "1", "g"]
    page.evaluate("left.length = 0")
    browser_keys = ["r", "l", "t", "w", "-", "=", "0", "v"]
    for name in (
        *(f"Control+{key}" for key in browser_keys),
        "F5",
        "F11",
        "F12",
        "Control+Shift+I",
        "Control+c",
        "q",
    ):
        page.keyboard.press(name)

    def has_q_released() -> bool:
        keys = client.received(ev.Key)
        return any(key.name == "q" and not key.pressed for key in keys)

    wait_until(has_q_released)
    assert [name for name, *_ in received_keys(1) if name not in ("ctrl", "shift")] == [
        "c",
        "c",
        "q",
        "q",
    ]
    assert page.evaluate("left") == [*browser_keys, "F5", "F11", "F12", "I"]


def test_typed_and_pasted_text_arrives(viewer: Viewer, open_page: Open) -> None:
    page, client = connected(
        viewer, open_page, permissions=["clipboard-read", "clipboard-write"]
    )
    page.keyboard.type("aZ 3/")
    page.evaluate(
        "(init) => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', "
        "init))",
        {
            "key": "€",
            "code": "KeyE",
            "ctrlKey": True,
            "altKey": True,
            "modifierAltGraph": True,
            "bubbles": True,
        },
    )
    client.wait(ev.Text, 6)
    assert "".join(text.text for text in client.received(ev.Text)) == "aZ 3/€"
    assert mask(client.received(ev.Key)[-1]) == 0  # AltGr is no Ctrl and Alt
    client.forget()
    for key in ("Control+a", "Enter", "x"):
        page.keyboard.press(key)
    assert client.wait(ev.Text).text == "x"
    page.evaluate("navigator.clipboard.writeText('0.25\\n日本')")
    page.keyboard.press("Control+v")
    assert client.wait(ev.Text, 2).text == "0.25\n日本"
    assert "v" not in [key.name for key in client.received(ev.Key)]


def test_text_field_gets_the_keyboard_and_composed_text(
    viewer: Viewer, open_page: Open
) -> None:
    page, client = connected(viewer, open_page)
    client.connection.send(m.Caption("render", "", True))
    wait_for_script(page, "document.activeElement.id === 'field'")
    page.keyboard.type("a1")
    page.keyboard.press("Backspace")
    client.wait(ev.Key, 6)
    assert [text.text for text in client.received(ev.Text)] == ["a", "1"]  # once each
    client.forget()
    page.keyboard.insert_text("日本")  # as an input method or a phone does
    assert client.wait(ev.Text).text == "日本"
    client.forget()
    cdp = page.context.new_cdp_session(page)
    for composed in ("n", "ni", "你"):
        cdp.send(
            "Input.imeSetComposition",
            {"text": composed, "selectionStart": 1, "selectionEnd": 1},
        )
    cdp.send("Input.insertText", {"text": "你"})

    def has_composed_text() -> bool:
        return any(text.text == "你" for text in client.received(ev.Text))

    wait_until(has_composed_text, "what was composed")
    typed = ""
    for message in client.received(ev.Text, ev.Key):
        if isinstance(message, ev.Text):
            typed += message.text
        elif message.pressed:
            assert message.name == "backspace"
            typed = typed[:-1]
    assert typed == "你"
    client.connection.send(m.Caption("render", "", False))
    wait_for_script(page, "document.activeElement.id === 'canvas'")
