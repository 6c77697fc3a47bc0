"""Functions inside a script draw on its GPU, and the call does not wait for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.reading import stream_of, values
from support.wait import wait_until

import splatview
from splatview.api import session as publishing
from splatview_ipc.control.messages import Draw, DrawnCamera
from splatview_ipc.subscriber.remote_stream import RemoteStream
from splatview_ipc.subscriber.subscriber import Subscriber

pytestmark = pytest.mark.cuda

CAMERA = DrawnCamera(
    width=64,
    height=48,
    viewmat=tuple(torch.eye(4).flatten().tolist()),
    K=(50.0, 0.0, 32.0, 0.0, 50.0, 24.0, 0.0, 0.0, 1.0),
)
OPAQUE_GRAY = (51, 51, 51, 255)
SLEEP_CYCLES = 1_000_000_000
"""Work of a GPU for about half a second."""


class AskingViewer:
    """A viewer that asks for pictures of the scene, one after the other."""

    def __init__(self, subscriber: Subscriber) -> None:
        self.subscriber = subscriber
        self.stream: RemoteStream = stream_of(subscriber, "scene/pictures")
        self.request_number = 0
        wait_until(self.is_reading, "the run shares its pictures")

    def is_reading(self) -> bool:
        self.subscriber.poll()
        publisher = publishing.started_publisher()
        assert publisher is not None
        return publisher.streams["scene/pictures"].readers == 1

    def ask_picture(self) -> None:
        """Ask for a picture, without waiting for it."""
        self.request_number += 1
        self.stream.request_picture(
            Draw(self.stream.info.index, "ab", self.request_number, CAMERA)
        )

    def answer(self, take_turn: Callable[[], None]) -> tuple[Any, Any]:
        """Return metadata and arrays of the picture that was asked for last."""
        answers: list[tuple[Any, Any]] = []

        def has_come() -> bool:
            take_turn()
            self.subscriber.poll()
            frame = self.stream.read()
            if frame is None:
                return False
            with frame:
                if frame.meta["request"] != self.request_number:
                    return False
                answers.append((frame.meta, values(frame)))
            return True

        wait_until(has_come, f"picture {self.request_number}")
        return answers[0]


def test_call_does_not_wait_for_the_gpu(subscriber: Subscriber) -> None:
    means = torch.rand(100, 3, device="cuda")
    drawn: list[int] = []

    @splatview.renderer("scene", budget=1, points=means)
    def picture(camera: Any) -> torch.Tensor:
        drawn.append(camera.width)
        level = 0.2 * camera.viewmat[0, 0]
        return level.expand(camera.height, camera.width, 3)

    viewer = AskingViewer(subscriber)
    viewer.ask_picture()
    _, arrays = viewer.answer(splatview.draw)
    assert (arrays["color"] == OPAQUE_GRAY).all()
    torch.cuda.synchronize()
    work_began = torch.cuda.Event(enable_timing=True)
    work_ended = torch.cuda.Event(enable_timing=True)
    work_began.record()
    torch.cuda._sleep(SLEEP_CYCLES)
    work_ended.record()
    viewer.ask_picture()
    while len(drawn) < 2:
        splatview.draw()
        assert not work_ended.query(), "the call waited for the work before it"
    meta, arrays = viewer.answer(splatview.draw)
    assert (arrays["color"] == OPAQUE_GRAY).all()
    # The time of the work before it is not the function's.
    assert meta["ms"] < work_began.elapsed_time(work_ended) / 2


def test_time_on_the_gpu_counts(subscriber: Subscriber) -> None:
    drawing_began = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)

    @splatview.renderer("scene", budget=0.01)
    def picture(camera: Any) -> torch.Tensor:
        drawing_began.record()
        torch.cuda._sleep(SLEEP_CYCLES // 50)
        end.record()
        return torch.zeros(camera.height, camera.width, 3, device="cuda")

    viewer = AskingViewer(subscriber)
    viewer.ask_picture()
    meta, _ = viewer.answer(splatview.draw)
    assert meta["ms"] >= drawing_began.elapsed_time(end)


def test_stream_and_random_numbers_of_the_script_stay(subscriber: Subscriber) -> None:
    side = torch.cuda.Stream()
    values_on_side = torch.zeros(48, 64, 3, device="cuda")
    torch.cuda.synchronize()

    @splatview.renderer("scene", budget=1)
    def picture(camera: Any) -> torch.Tensor:
        assert torch.cuda.current_stream() == side
        torch.cuda.manual_seed(1)
        torch.cuda.set_stream(torch.cuda.default_stream())
        torch.cuda.set_stream(side)
        return values_on_side + 0 * torch.rand((), device="cuda")

    viewer = AskingViewer(subscriber)
    viewer.ask_picture()
    with torch.cuda.stream(side):
        torch.cuda.manual_seed(5)
        state = torch.cuda.get_rng_state()
        torch.cuda._sleep(SLEEP_CYCLES // 20)
        values_on_side.fill_(0.2)
        _, arrays = viewer.answer(splatview.draw)
        assert torch.cuda.current_stream() == side
        assert (torch.cuda.get_rng_state() == state).all()
    assert (arrays["color"] == OPAQUE_GRAY).all()


def test_nan_is_told_and_captures_are_left_alone(subscriber: Subscriber) -> None:
    @splatview.renderer("scene", budget=1)
    def picture(camera: Any) -> torch.Tensor:
        return torch.full((48, 64, 3), math.nan, device="cuda")

    viewer = AskingViewer(subscriber)
    viewer.ask_picture()
    meta, arrays = viewer.answer(splatview.draw)
    assert "NaN" in meta["trouble"]
    assert not arrays
    x = torch.zeros(4, device="cuda")
    viewer.ask_picture()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(1)
        for _ in range(1000):
            splatview.draw()
    graph.replay()
    torch.cuda.synchronize()
    assert x.tolist() == [1] * 4
    meta, _ = viewer.answer(splatview.draw)
    assert meta["request"] == viewer.request_number
