"""`renderer` and `draw`: functions of a script that draw for a viewer of it."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
import torch
from support.reading import next_frame, stream_of, values
from support.wait import wait_until

import splatview
from splatview.api import session as publishing
from splatview_ipc.control.frame import StreamFrame
from splatview_ipc.control.messages import Draw, DrawnCamera
from splatview_ipc.subscriber.remote_stream import RemoteStream
from splatview_ipc.subscriber.subscriber import Subscriber

CAMERA = DrawnCamera(
    width=4,
    height=3,
    viewmat=tuple(torch.eye(4).flatten().tolist()),
    K=(5.0, 0.0, 2.0, 0.0, 5.0, 1.5, 0.0, 0.0, 1.0),
)


def ask_picture(stream: RemoteStream, request_number: int) -> None:
    request = Draw(
        index=stream.info.index, viewer="ab", number=request_number, camera=CAMERA
    )
    stream.request_picture(request)


def drawn(
    subscriber: Subscriber, stream: RemoteStream, request_number: int
) -> StreamFrame:
    """Ask for a picture, go on with the script until it has come, and return it."""
    is_asked = False

    def poll() -> None:
        nonlocal is_asked
        subscriber.poll()
        publisher = publishing.started_publisher()
        assert publisher is not None
        if not is_asked and publisher.streams[stream.name].readers:
            ask_picture(stream, request_number)
            is_asked = True
        splatview.draw()

    def answers() -> bool:
        poll()
        frame = stream.read()
        if frame is None:
            return False
        with frame:
            return frame.meta["request"] == request_number

    wait_until(answers, f"picture {request_number}")
    frame = stream.read()
    assert frame is not None
    return frame


def test_script_draws_what_a_viewer_asks_for(subscriber: Subscriber) -> None:
    means = torch.rand(10, 3)
    threads = []

    @splatview.renderer("scene", budget=1, points=means)
    def picture(camera: Any) -> Any:
        threads.append(threading.current_thread())
        rgb = camera.viewmat[0, 0] * torch.full((3, 4, 3), 0.4)
        return rgb, rgb[..., 0], torch.ones(3, 4)

    with next_frame(subscriber, stream_of(subscriber, "scene")) as frame:
        assert frame.meta["function"] == "picture"
        assert values(frame)["points"].tolist() == means.tolist()
    stream = stream_of(subscriber, "scene/pictures")
    with drawn(subscriber, stream, 1) as frame:
        assert (values(frame)["color"] == 102).all()
        assert (values(frame)["alpha"] == 255).all()
        assert frame.meta["ms"] > 0
    assert set(threads) == {threading.main_thread()}

    @splatview.renderer("scene", budget=1)
    def other_picture(camera: Any) -> torch.Tensor:
        return torch.zeros(3, 4, 3)

    with drawn(subscriber, stream, 2) as frame:
        assert (values(frame)["color"] == 0).all()


def test_function_is_given_the_controls_as_they_are(subscriber: Subscriber) -> None:
    gray = splatview.controls.slider("gray", 0.0, 1.0, value=0.4)

    @splatview.renderer("scene", budget=1)
    def picture(camera: Any, controls: Any) -> torch.Tensor:
        return torch.full((camera.height, camera.width, 3), controls.gray)

    stream = stream_of(subscriber, "scene/pictures")
    with drawn(subscriber, stream, 1) as frame:
        assert (values(frame)["color"] == 102).all()
    gray.value = 1.0
    with drawn(subscriber, stream, 2) as frame:
        assert (values(frame)["color"] == 255).all()


def test_paused_script_draws_as_well(subscriber: Subscriber) -> None:
    @splatview.renderer(budget=0.001)
    def picture(camera: Any) -> torch.Tensor:
        return torch.ones(3, 4, 3)

    publisher = publishing.started_publisher()
    assert publisher is not None
    stream = stream_of(subscriber, "scene/pictures")
    with drawn(subscriber, stream, 1):
        pass
    # The budget does not allow another one for long.
    publisher.control.pause("a test")
    ask_picture(stream, 2)

    def is_answered() -> bool:
        splatview.wait_while_paused(timeout=0.02)
        subscriber.poll()
        frame = stream.read()
        assert frame is not None
        with frame:
            return frame.meta["request"] == 2

    wait_until(is_answered, "a picture while the script is paused")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": 7}, "name is .*int.*, not a str"),
        ({"name": print}, "with parentheses"),
        ({"budget": 0}, "budget is 0.* expected 0.001 to 1"),
        ({"budget": "a"}, "budget is .*not a number"),
        ({"points": torch.zeros(3)}, r"points has shape \(3,\)"),
        ({"name": "image"}, "'image' shows image"),
    ],
)
def test_mistakes_are_raised_where_they_are_made(
    arguments: dict[str, Any], message: str
) -> None:
    splatview.publish(torch.zeros(2, 2))
    with pytest.raises((TypeError, ValueError), match=message):
        splatview.renderer(**arguments)(lambda camera: None)


def test_disabled_script_keeps_its_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLATVIEW_DISABLE", "1")

    def picture(camera: Any) -> None: ...

    assert splatview.renderer()(picture) is picture
    splatview.draw()
    assert publishing.started_publisher() is None
    with pytest.raises(TypeError, match="a function of a camera"):
        splatview.renderer()(3)  # type: ignore[type-var]


def test_surroundings_that_fail_leave_the_function(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", "/proc/none")

    def picture(camera: Any) -> None: ...

    with caplog.at_level(logging.WARNING, "splatview"):
        assert splatview.renderer()(picture) is picture
    assert "training goes on" in caplog.text
