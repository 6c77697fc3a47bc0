"""`splatview.frames` of CUDA tensors that another process publishes: copies on the GPU, none of them torn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.programs import Programs
from support.wait import PATIENCE, wait_until

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
"""Arguments: "new" pictures at each step, or one that is "shared" for good; seconds between two. Each holds its number
modulo 251."""


def started(programs: Programs, sort: str, pause: float = 0.005) -> None:
    program = programs.code(PUBLISHER, sort, pause)
    assert program.line() == "ready", program.end()[1]


def of(name: str = "it", **more: Any) -> Frames:
    return splatview.frames(name, timeout=PATIENCE, **more)


def filled(frame: Frame) -> int:
    return frame.meta["number"] % 251


def test_new_pictures_come_by_the_ring_and_stay_on_the_gpu(programs: Programs) -> None:
    """Each is whole, and the caller's own: to be kept, and written on, while others come."""
    started(programs, "new", 0.0005)
    with of() as frames, of() as other:
        kept = []
        for _ in range(60):
            frame = next(frames)
            assert frame.tensor.is_cuda
            assert frame.tensor.shape == (270, 480, 4)
            kept.append(frame)
        assert frames.path == "device-ring"
        kept[-1].tensor.zero_()
        for frame in kept[:-1]:
            assert bool((frame.tensor == filled(frame)).all())
        assert np.array_equal(
            kept[0].numpy(), np.full((270, 480, 4), filled(kept[0]), np.uint8)
        )
        frame = next(other)
        assert bool((frame.tensor == filled(frame)).all())
        assert frame.__dlpack_device__() == (2, frame.tensor.device.index)
        assert torch.from_dlpack(frame).data_ptr() == frame.tensor.data_ptr()
        torch.cuda.synchronize()


def test_what_is_shared_for_good_is_read_in_place_or_through_the_host(
    programs: Programs,
) -> None:
    started(programs, "shared")
    with of(in_place=True) as live, of() as copies, of(in_place=False) as host:
        seen = next(live).tensor
        kept = next(copies)
        value = int(kept.tensor.max())
        assert seen.is_cuda
        assert kept.tensor.is_cuda
        assert live.path == copies.path == "in-place"
        wait_until(
            lambda: int(seen.max()) not in (value, 0), "it changes under the reader"
        )
        assert int(kept.tensor.max()) == value
        for _ in range(5):
            frame = next(host)
            assert not frame.tensor.is_cuda
            assert bool((frame.tensor == filled(frame)).all())
        assert host.path == "host"
