"""The contract of a script's controls: what is declared, and what viewers may set."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch
from support.drawn_scene import FrameLayout
from support.pair import Pair

from splatview_ipc.control import messages
from splatview_ipc.kinds import check_frame
from splatview_ipc.kinds.controls import MAX_BYTES, MAX_WHOLE, Control, decode, encode

CONTROLS = (
    Control("time", "slider", 0.5, low=0.0, high=1.0),
    Control("on", "checkbox", True),
    Control("save", "button", 3, folder="Files"),
    Control("mode", "dropdown", "a", choices=("a", "b")),
    Control("note", "text", "x"),
    Control("paint", "color", (0.0, 0.5, 1.0)),
    Control("steps", "number", 7),
    Control("up", "vector", (0.0, -1.0, 0.0)),
)


def test_controls_survive_the_way() -> None:
    assert decode(encode(CONTROLS)) == CONTROLS


@pytest.mark.parametrize(
    ("index", "value"),
    [
        (0, 2.0),
        (0, float("nan")),
        (0, True),
        (1, 1),
        (2, -1),
        (2, True),
        (3, "c"),
        (4, "x" * 1025),
        (5, (0.0, 0.0)),
        (5, (0.0, 0.0, 1.5)),
        (6, float("inf")),
        (7, (0.0, 1.0)),
    ],
)
def test_wrong_values_are_refused(index: int, value: Any) -> None:
    with pytest.raises(ValueError, match="is no value of the"):
        CONTROLS[index].check(value)
    built = {**msgspec.to_builtins(CONTROLS[index]), "value": value}
    if index != 7:  # a vector's length is that of its value
        with pytest.raises(msgspec.DecodeError):
            decode(msgspec.msgpack.encode([built]))


@pytest.mark.parametrize("size", [0, MAX_BYTES + 1])
def test_size_is_bounded(size: int) -> None:
    with pytest.raises(ValueError, match="bytes of controls"):
        check_frame("controls", {"controls": ("uint8", (size,))}, {})


def test_too_many_controls_are_refused() -> None:
    control_dict = msgspec.to_builtins(CONTROLS[1])
    with pytest.raises(msgspec.DecodeError):
        decode(msgspec.msgpack.encode([control_dict] * 10_001))


@pytest.mark.parametrize("clicks", [-1, 1001])
def test_clicks_of_a_message_are_bounded(clicks: int) -> None:
    message = messages.SetControl(0, "save", 0, clicks)
    with pytest.raises(msgspec.DecodeError):
        msgspec.msgpack.decode(
            msgspec.msgpack.encode(message), type=messages.SetControl
        )


def test_declarations_and_settings_cross(pair: Pair) -> None:
    stream: Any = pair.publisher.stream("controls", "controls")
    packed = torch.frombuffer(bytearray(encode(CONTROLS)), dtype=torch.uint8)
    layout = FrameLayout("controls", ("controls",), tuple(packed.shape))
    stream.describe(layout)
    stream.publish_awaited(((packed,), {}))
    received: list[messages.SetControl] = []
    pair.publisher.on_request["SetControl", "controls"] = received.append
    remote = pair.until(lambda: next(iter(pair.viewer.streams), None))
    remote.set_control("time", 0.25)  # not opened yet: nothing is sent
    remote.open()
    pair.until_read(stream)
    remote.set_control("time", 0.75)
    remote.set_control("save", clicks=2)

    def has_both() -> bool:
        return len(received) == 2

    pair.until(has_both)
    assert [(m.control, m.value, m.clicks) for m in received] == [
        ("time", 0.75, 0),
        ("save", 0, 2),
    ]


def test_nearest_value_is_always_legal() -> None:
    steps_control = Control("steps", "number", 1, low=0.5, high=1.5)
    assert steps_control.nearest(0.5) == 1
    assert steps_control.nearest(1.5) == 1
    large = 1.7e308
    assert Control("far", "number", 0.0, step=1e308).nearest(large) == large
    assert Control("far", "number", 0, high=1e300).nearest(large) == MAX_WHOLE
    assert Control("far", "number", 0, step=1e308).nearest(-large) == -MAX_WHOLE
