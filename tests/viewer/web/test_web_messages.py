"""What goes over the browser's WebSocket: every message there and back, and what is none."""

from __future__ import annotations

from typing import Any

import pytest
from fuzz.targets import PAGE

from splatview_viewer.core import events as ev
from splatview_viewer.web import messages as m

BAD = [
    "", "[]", '{"t":"nothing"}', '{"t":"move"}', "[" * 60000, b"\xff\xfe", '{"t":"leave"}' + " " * m.MAX_MESSAGE,
    '{"t":"welcome","protocol":1,"version":"","viewer":"","key":"","most":1}', '{"t":"move","x":1,"y":NaN}',
    '{"t":"move","x":1e300,"y":1}', '{"t":"move","x":1,"y":1,"z":1}', '{"t":"press","x":1,"y":1,"button":"fourth"}',
    '{"t":"resize","width":8193,"height":100}', '{"t":"key","name":"hyper"}', '{"t":"text","text":"\\ud800"}',
    '{"t":"pinch","x":1,"y":1,"factor":0}', '{"t":"ack","number":-1}', '{"t":"wheel","x":1,"y":1,"dy":1e9}',
    '{"t":"hello","id":"a\\n","width":100,"height":100}',
]


def test_there_and_back_and_nothing_else() -> None:
    for message in PAGE:
        text = m.encode(message)
        assert m.parse(text) == m.parse(text.encode()) == message
    for bad in BAD:
        with pytest.raises(m.MessageError):
            m.parse(bad)
            pytest.fail(str(bad[:60]))


def event(message: Any, clicks: ev.ClickCounter | None = None) -> Any:
    return m.event_of(message, clicks or ev.ClickCounter(), 1.0)


def test_events_have_clean_text_and_clicks_by_the_clock_of_the_page() -> None:
    """Both presses may arrive late, and at once or far apart."""
    for message in PAGE[3:-1]:
        assert event(message) == message
    assert event(ev.Text("a\r\nb\tc\x1b\x00\x7f\x9f🙂")) == ev.Text("a\nb\tc🙂")
    assert event(ev.Text("\x00")) is None
    assert event(ev.PointerPress(1, 2, clicks=9)) == ev.PointerPress(1, 2), "not for the page to say"
    clicks = ev.ClickCounter()
    assert [event(ev.PointerPress(3, 3, at=at), clicks).clicks for at in (1e3, 1.3e3, 3e3, 0.0, 0.0)] == [1, 2, 1, 1, 1]
