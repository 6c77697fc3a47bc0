"""What a person does on the page, in a real Chromium, as it reaches the viewer: mouse, fingers, keys, text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.pages import connected, mask, until
from support.wait import wait_until

from splatview_viewer.core import events as ev
from splatview_viewer.web import messages as m

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession
    from support.pages import Open, Viewer

POINTER = ev.PointerMove, ev.PointerPress, ev.PointerRelease


def test_the_mouse(viewer: Viewer, open_page: Open) -> None:
    """Buttons, moves, a drag that leaves the page, the wheel, and a window that loses the focus meanwhile."""
    page, client = connected(viewer, open_page, (640, 400), 2)
    for button in ("left", "right", "middle"):
        client.forget()
        page.mouse.move(200, 150)
        page.mouse.down(button=button)
        page.mouse.move(220.5, 160)
        page.mouse.up(button=button)
        press, release = client.wait(ev.PointerPress), client.wait(ev.PointerRelease)
        assert (press.x, press.y, press.button, mask(press)) == (400, 300, button, 0)
        assert (release.x, release.y, release.button) == (441, 320, button)
        said = client.said(*POINTER)
        assert [type(one) for one in said] == [POINTER[0], POINTER[1], POINTER[0], POINTER[2]]
        times = [one.at for one in said]
        assert times == sorted(times) and times[0] > 0
    page.mouse.down()
    page.mouse.move(660, 430)
    page.mouse.up()
    release = client.wait(ev.PointerRelease, 2)
    assert (release.x, release.y) == (1320, 860)
    client.wait(ev.PointerLeave)
    assert type(client.said(*POINTER, ev.PointerLeave)[-1]) is ev.PointerLeave
    client.forget()
    page.mouse.move(300, 200)
    page.mouse.wheel(100, -200)  # of device pixels, two to a point
    page.keyboard.down("Shift")
    page.mouse.wheel(0, 600)
    client.wait(ev.Wheel, 2)
    page.keyboard.up("Shift")
    assert [(wheel.x, wheel.dx, wheel.dy, mask(wheel)) for wheel in client.said(ev.Wheel)] == [
        (600, 0.5, 1, 0), (600, 0, -3, 1)]
    client.wait(ev.Key, 2)
    client.forget()
    page.mouse.down()
    page.keyboard.down("w")
    client.wait(ev.Key)
    page.evaluate("window.dispatchEvent(new Event('blur'))")
    assert client.wait(ev.PointerRelease).button == "left" and not client.wait(ev.Key, 2).pressed
    page.mouse.move(310, 210)  # still down for the browser, but not for the viewer
    page.mouse.up()
    page.keyboard.up("w")
    page.keyboard.press("f")
    client.wait(ev.Key, 4)
    assert len(client.said(ev.PointerPress)) == len(client.said(ev.PointerRelease)) == 1
    assert [key.name for key in client.said(ev.Key)] == ["w", "w", "f", "f"]


def touch(cdp: CDPSession, kind: str, *points: tuple[float, float]) -> None:
    cdp.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": [
        {"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)]})


def test_one_finger_is_the_left_button_and_two_pinch_and_pan(viewer: Viewer, open_page: Open) -> None:
    page, client = connected(viewer, open_page, (390, 844), 3, has_touch=True, is_mobile=True)
    cdp = page.context.new_cdp_session(page)
    for kind, *point in (("Start", (200, 300)), ("Move", (210, 320)), ("Move", (220, 340)), ("End",)):
        touch(cdp, kind, *point)
    client.wait(ev.PointerLeave)
    kinds = [type(one) for one in client.said(object) if type(one) not in (ev.PointerMove, ev.Resize)]
    assert kinds == [ev.PointerPress, ev.PointerRelease, ev.PointerLeave]
    press, release = client.said(ev.PointerPress)[0], client.said(ev.PointerRelease)[0]
    assert (press.x, press.y, press.button) == (600, 900, "left")
    assert (release.x, release.y, release.button) == (660, 1020, "left")
    client.forget()
    touch(cdp, "Start", (150, 400))
    touch(cdp, "Start", (150, 400), (250, 400))
    for step in range(1, 11):  # twice as far apart, and 30 to the right, 20 down
        touch(cdp, "Move", (150 - 5 * step + 3 * step, 400 + 2 * step), (250 + 5 * step + 3 * step, 400 + 2 * step))
    touch(cdp, "End", (130, 420))
    touch(cdp, "Move", (300, 600))  # the finger that stays does nothing more
    touch(cdp, "End")
    page.touchscreen.tap(100, 700)
    client.wait(ev.PointerRelease, 2)
    kinds = [type(one) for one in client.said(*POINTER, ev.Pinch)]
    pinches = client.said(ev.Pinch)
    assert kinds == [ev.PointerPress, ev.PointerRelease, *[ev.Pinch] * len(pinches), ev.PointerPress,
                     ev.PointerRelease], "the drag ends where it began, before the pinch begins"
    assert np.prod([pinch.factor for pinch in pinches]) == pytest.approx(2, rel=1e-3)
    assert sum(pinch.dx for pinch in pinches) == pytest.approx(90, abs=0.1)
    assert sum(pinch.dy for pinch in pinches) == pytest.approx(60, abs=0.1)
    assert (pinches[-1].x, pinches[-1].y) == pytest.approx((690, 1260), abs=0.1)
    assert page.evaluate("[visualViewport.scale, scrollX, scrollY]") == [1, 0, 0]

    def turn(degrees: float, steps: int = 12) -> float:
        """Turn two fingers around their middle, clockwise; what the viewer heard of that, in degrees."""
        client.forget()
        for step in range(steps + 1):
            angle = math.radians(degrees * step / steps)
            x, y = 60 * math.cos(angle), 60 * math.sin(angle)
            touch(cdp, "Move" if step else "Start", (200 - x, 300 - y), (200 + x, 300 + y))
        for kind, *points in (("End",), ("Start", (50, 600)), ("End",)):
            touch(cdp, kind, *points)
        client.wait(ev.PointerLeave, 2)  # of the finger that came first, and of the one that followed
        return math.degrees(sum(pinch.turn for pinch in client.said(ev.Pinch)))

    assert turn(10) == 0  # fingers never keep quite straight
    assert turn(370, 40) == pytest.approx(370 - 14, abs=24)  # all the way round and on


def test_keys_have_the_viewers_names(viewer: Viewer, open_page: Open) -> None:
    """With modifiers, repeats and other layouts; the browser does nothing by itself, and keeps its own shortcuts."""
    page, client = connected(viewer, open_page)
    page.evaluate("window.left = []; addEventListener('keydown', (e) => { if (!e.defaultPrevented && "
                  "!['Control', 'Shift', 'Alt'].includes(e.key)) left.push(e.key); e.preventDefault(); })")

    def said(count: int) -> list[tuple[str, bool, bool, int]]:
        client.wait(ev.Key, count)
        found = [(key.name, key.pressed, key.repeat, mask(key)) for key in client.said(ev.Key)]
        client.forget()
        return found

    pressed = {"f": "f", "7": "7", "Tab": "tab", "ArrowLeft": "left", "PageUp": "page_up", "Home": "home", " ": "space",
               "Backspace": "backspace", "Enter": "enter", "Escape": "escape", "/": "slash", "-": "minus", "F1": "f1",
               "Delete": "delete", ".": "period"}
    for name in pressed:
        page.keyboard.press(name)
    assert said(2 * len(pressed)) == [(name, down, False, 0) for name in pressed.values() for down in (True, False)]
    for _ in range(2):
        page.keyboard.down("ArrowRight")
    page.keyboard.up("ArrowRight")
    page.keyboard.press("Control+Shift+Z")
    page.keyboard.press("Alt+w")
    assert said(13) == [
        ("right", True, False, 0), ("right", True, True, 0), ("right", False, False, 0),
        ("ctrl", True, False, 2), ("shift", True, False, 3), ("z", True, False, 3),
        ("z", False, False, 3), ("shift", False, False, 2), ("ctrl", False, False, 0),
        ("alt", True, False, 4), ("w", True, False, 4), ("w", False, False, 4), ("alt", False, False, 0)]
    assert page.evaluate("left") == [] and page.evaluate("document.activeElement.id") == "canvas"
    for key, code in (("a", "KeyQ"), ("\u0430", "KeyF"), ("&", "Digit1"), ("Unidentified", "KeyG")):
        page.evaluate("""(init) => { for (const type of ['keydown', 'keyup'])
          document.activeElement.dispatchEvent(new KeyboardEvent(type, {...init, bubbles: true})); }""",
                      {"key": key, "code": code})
    assert [name for name, *_ in said(8)[::2]] == ["a", "f", "1", "g"]
    page.evaluate("left.length = 0")
    own = ["r", "l", "t", "w", "-", "=", "0", "v"]
    for name in (*(f"Control+{key}" for key in own), "F5", "F11", "F12", "Control+Shift+I", "Control+c", "q"):
        page.keyboard.press(name)
    wait_until(lambda: [key for key in client.said(ev.Key) if key.name == "q" and not key.pressed])
    assert [name for name, *_ in said(1) if name not in ("ctrl", "shift")] == ["c", "c", "q", "q"]
    assert page.evaluate("left") == [*own, "F5", "F11", "F12", "I"]


def test_text_and_paste(viewer: Viewer, open_page: Open) -> None:
    page, client = connected(viewer, open_page, permissions=["clipboard-read", "clipboard-write"])
    page.keyboard.type("aZ 3/")
    page.evaluate("(init) => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', init))", {
        "key": "€", "code": "KeyE", "ctrlKey": True, "altKey": True, "modifierAltGraph": True, "bubbles": True})
    client.wait(ev.Text, 6)
    assert "".join(text.text for text in client.said(ev.Text)) == "aZ 3/€"
    assert mask(client.said(ev.Key)[-1]) == 0  # AltGr is no Ctrl and Alt
    client.forget()
    for key in ("Control+a", "Enter", "x"):
        page.keyboard.press(key)
    assert client.wait(ev.Text).text == "x"
    page.evaluate("navigator.clipboard.writeText('0.25\\n日本')")
    page.keyboard.press("Control+v")
    assert client.wait(ev.Text, 2).text == "0.25\n日本"
    assert "v" not in [key.name for key in client.said(ev.Key)]
    page.evaluate("""(text) => { const clipboardData = new DataTransfer(); clipboardData.setData('text/plain', text);
      document.activeElement.dispatchEvent(new ClipboardEvent('paste', {clipboardData, bubbles: true})); }""",
                  "x" * 12000 + "\ud83d")
    assert client.wait(ev.Text, 3).text == "x" * 10000
    assert not client.connection.closed


def test_a_text_field_gets_the_keyboard_and_what_is_composed(viewer: Viewer, open_page: Open) -> None:
    page, client = connected(viewer, open_page)
    client.connection.send(m.Caption("render", "", True))
    until(page, "document.activeElement.id === 'field'")
    page.keyboard.type("a1")
    page.keyboard.press("Backspace")
    client.wait(ev.Key, 6)
    assert [text.text for text in client.said(ev.Text)] == ["a", "1"]  # once each
    client.forget()
    page.keyboard.insert_text("日本")  # as an input method or a phone does
    assert client.wait(ev.Text).text == "日本"
    client.forget()
    cdp = page.context.new_cdp_session(page)
    for composed in ("n", "ni", "你"):
        cdp.send("Input.imeSetComposition", {"text": composed, "selectionStart": 1, "selectionEnd": 1})
    cdp.send("Input.insertText", {"text": "你"})
    wait_until(lambda: [text for text in client.said(ev.Text) if text.text == "你"], "what was composed")
    typed = ""
    for message in client.said(ev.Text, ev.Key):
        if isinstance(message, ev.Text):
            typed += message.text
        elif message.pressed:
            assert message.name == "backspace"
            typed = typed[:-1]
    assert typed == "你"
    client.forget()
    page.evaluate("""() => { const field = document.querySelector('#field');
      field.setRangeText('', field.value.length - 2, field.value.length, 'end');
      field.dispatchEvent(new InputEvent('input')); }""")  # a phone deletes in the field, without a key
    client.wait(ev.Key, 4)
    assert {key.name for key in client.said(ev.Key)} == {"backspace"}
    client.connection.send(m.Caption("render", "", False))
    until(page, "document.activeElement.id === 'canvas'")
