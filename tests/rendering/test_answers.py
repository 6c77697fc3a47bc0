"""Pictures and troubles reach the viewer that asked for them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import torch
from support.pair import Pair

from splatview.rendering.answers import PictureAnswers
from splatview.rendering.camera import RenderCamera
from splatview.rendering.draw_clock import DrawClock
from splatview.rendering.function import checked_picture
from splatview_ipc.control.messages import Draw, DrawnCamera
from splatview_ipc.publisher.stream_channels import OverlaidStream


@pytest.fixture
def pair() -> Iterator[Pair]:
    with closing(Pair()) as pair:
        yield pair


def draw(request_number: int, width: int) -> Draw:
    camera = DrawnCamera(
        width=width,
        height=2,
        viewmat=tuple(torch.eye(4).flatten().tolist()),
        K=tuple(torch.eye(3).flatten().tolist()),
    )
    return Draw(index=0, viewer="ab", number=request_number, camera=camera)


def ticks() -> Any:
    times = iter(range(100))
    return lambda: float(next(times))


def test_answers_come_with_their_requests(pair: Pair) -> None:
    answers = PictureAnswers(pair.publisher, OverlaidStream("scene"))
    stream = pair.stream("scene/pictures")
    assert (stream.kind, stream.info.over) == ("picture", "scene")
    version = 0
    for request_number, width in ((1, 4), (2, 9)):
        request = draw(request_number, width)
        camera = RenderCamera.of(request)
        clock = DrawClock(clock=ticks())
        rgb = torch.full((2, width, 3), 0.2)
        picture = checked_picture((rgb, rgb[..., 0], None), camera)
        answers.put(request, picture, clock, step=7)
        assert answers.are_under_way
        assert answers.turn(0.0) == math.inf
        version, meta, arrays = pair.newest("scene/pictures", version)
        assert (meta["viewer"], meta["request"]) == ("ab", request_number)
        assert (meta["ms"], meta["gpu_ms"], meta["step"]) == (1000.0, 0.0, 7)
        assert arrays["color"].shape == (2, width, 3)
        assert (arrays["color"] == 51).all()
        assert arrays["depth"].dtype.name == "float32"
    bad = checked_picture(torch.full((2, 9, 3), math.nan), camera)
    answers.put(request, bad, DrawClock())
    answers.wait()
    version, meta, arrays = pair.newest("scene/pictures", version)
    assert not arrays
    assert "NaN" in meta["trouble"]
    answers.put_fault(request, "line\n\x1b" + 1000 * "\x1b", DrawClock())
    answers.wait()
    _, meta, arrays = pair.newest("scene/pictures", version)
    assert not arrays
    assert set(meta["trouble"]) == {"\\", "x", "1", "b"}
    assert not pair.faults
