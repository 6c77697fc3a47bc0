"""`splatview.frames` of CUDA tensors that another process publishes.

They are copies on the GPU, none of them torn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.programs import Programs
from support.wait import PATIENCE_S, wait_until

import splatview
from splatview.api.frames import Frame, Frames

pytestmark = pytest.mark.cuda

PUBLISHER = """
import sys, time, torch, splatview
sort, pause = sys.argv[1], float(sys.argv[2])
image = torch.zeros(270, 480, 4, dtype=torch.uint8, device="cuda")
number = 0
while True:
    number += 1
    if sort == "new":
        image = torch.empty_like(image)
    image.fill_(number % 251)
    splatview.publish(image, "it", number=number, copy=False if sort == "shared" else None)
    if number == 8:
        print("ready", flush=True)
    time.sleep(pause)
"""
"""Arguments: "new" pictures at each step, or one that is "shared" for good; seconds.

Each picture holds its number modulo 251; the seconds are those between two.
"""


def start_publisher(programs: Programs, sort: str, pause: float = 0.005) -> None:
    program = programs.code(PUBLISHER, sort, pause)
    assert program.line() == "ready", program.end()[1]


def frames_of(name: str = "it", **options: Any) -> Frames:
    return splatview.frames(name, timeout=PATIENCE_S, **options)


def fill_value(frame: Frame) -> int:
    return frame.meta["number"] % 251


def test_new_pictures_come_by_the_ring_and_stay_on_the_gpu(programs: Programs) -> None:
    """Each is whole, and the caller's own.

    It may be kept, and written on, while others come.
    """
    start_publisher(programs, "new", 0.0005)
    with frames_of() as frames, frames_of() as second_frames:
        own_frames = []
        for _ in range(60):
            frame = next(frames)
            assert frame.tensor.is_cuda
            assert frame.tensor.shape == (270, 480, 4)
            own_frames.append(frame)
        assert frames.path == "device-ring"
        own_frames[-1].tensor.zero_()
        for frame in own_frames[:-1]:
            assert bool((frame.tensor == fill_value(frame)).all())
        first = own_frames[0]
        expected = np.full((270, 480, 4), fill_value(first), np.uint8)
        assert np.array_equal(first.numpy(), expected)
        frame = next(second_frames)
        assert bool((frame.tensor == fill_value(frame)).all())
        assert frame.__dlpack_device__() == (2, frame.tensor.device.index)
        assert torch.from_dlpack(frame).data_ptr() == frame.tensor.data_ptr()
        torch.cuda.synchronize()


def test_what_is_shared_for_good_is_read_in_place_or_through_the_host(
    programs: Programs,
) -> None:
    start_publisher(programs, "shared")
    with (
        frames_of(in_place=True) as live,
        frames_of() as copies,
        frames_of(in_place=False) as host,
    ):
        shared = next(live).tensor
        copy = next(copies)
        value = int(copy.tensor.max())
        assert shared.is_cuda
        assert copy.tensor.is_cuda
        assert live.path == "in-place"
        assert copies.path == "in-place"

        def has_changed() -> bool:
            return int(shared.max()) not in (value, 0)

        wait_until(has_changed, "it changes under the reader")
        assert int(copy.tensor.max()) == value
        for _ in range(5):
            frame = next(host)
            assert not frame.tensor.is_cuda
            assert bool((frame.tensor == fill_value(frame)).all())
        assert host.path == "host"
