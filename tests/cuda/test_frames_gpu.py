"""`splatview.frames` of CUDA tensors that another process publishes: nothing is copied, nothing is torn."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.wait import PATIENCE

import splatview
from splatview.api import session as publishing

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.programs import Programs

    from splatview.api.frames import Frame, Frames

pytestmark = pytest.mark.cuda

PUBLISHER = """
import sys, time, torch, splatview
sort, pause = sys.argv[1], float(sys.argv[2])
image = torch.zeros(270, 480, 4, dtype=torch.uint8, device="cuda")
scene = {"means": (1000, 3), "quats": (1000, 4), "scales": (1000, 3), "opacities": (1000,), "sh0": (1000, 1, 3)}
scene = {name: torch.zeros(shape, device="cuda") for name, shape in scene.items()}
scene["shN"] = torch.zeros(1000, 3, 3, device="cuda")
number = 0
while True:
    number += 1
    if sort == "scene":
        for tensor in scene.values():
            tensor.fill_(number % 251)
        splatview.publish(scene, "it", number=number)
    else:
        if sort == "new":
            image = torch.empty_like(image)
        image.fill_(number % 251)
        splatview.publish(image, "it", number=number, copy=False if sort == "shared" else None)
    if number == 8:
        print("ready", flush=True)
    time.sleep(pause)
"""
"""Arguments: "new" pictures at each step, one that "stays", one that is "shared" for good, or a "scene"; seconds
between two. Everything is filled with the number modulo 251."""
CLOCKS_PER_MS = 1_500_000


def started(programs: Programs, sort: str, pause: float = 0.005) -> Any:
    program = programs.code(PUBLISHER, sort, str(pause))
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n", program.communicate()[1]
    return program


def of(name: str = "it", **more: Any) -> Frames:
    return splatview.frames(name, timeout=PATIENCE, **more)


def filled(frame: Frame) -> int:
    return frame.meta["number"] % 251


def test_new_pictures_come_by_the_ring_and_lie_on_the_gpu(programs: Programs) -> None:
    started(programs, "new")
    frame = None
    with of() as frames:
        for _ in range(100):
            frame = next(frames)
            tensor = frame.tensor
            assert tensor.is_cuda
            assert tensor.shape == (270, 480, 4)
            assert bool((tensor == filled(frame)).all())
            assert frame.intact()
        assert frames.path == "device-ring"
        assert frame is not None
        assert np.array_equal(frame.numpy(), np.full((270, 480, 4), filled(frame), np.uint8))


def test_what_is_shared_for_good_is_read_in_place_or_through_the_host(programs: Programs) -> None:
    started(programs, "shared")
    with of() as frames, of(in_place=False) as copied:
        assert next(frames).tensor.is_cuda
        assert frames.path == "in-place"
        for _ in range(5):
            frame = next(copied)
            assert not frame.tensor.is_cuda
            assert frame.intact()
        assert copied.path == "host"


def test_gaussians_are_read_where_they_lie(programs: Programs) -> None:
    started(programs, "scene", 0.02)
    with of() as frames:
        for _ in range(20):
            frame = next(frames)
            assert {t.device.type for t in frame.tensors.values()} == {"cuda"}
            assert frame.tensors["means"].shape == (1000, 3)
            assert frame.intact()
        assert frames.path == "in-place"


def test_work_that_is_queued_on_a_frame_sees_that_frame_however_late_it_runs(programs: Programs) -> None:
    """The reader asks for the next one at once; the publisher is fast."""
    started(programs, "new", 0.0005)
    with of() as frames:
        wanted, seen = [], []
        side = torch.cuda.Stream()
        for i in range(60):
            frame = next(frames)
            wanted.append(filled(frame))
            with torch.cuda.stream(side if i % 2 else torch.cuda.default_stream()):
                tensor = frame.tensor
                torch.cuda._sleep(20 * CLOCKS_PER_MS)
                seen.append(torch.stack([tensor.min(), tensor.max()]))
        torch.cuda.synchronize()
        for value, (least, most) in zip(wanted, torch.stack(seen).tolist(), strict=True):
            assert (least, most) == (value, value)
        assert len(frames._follower._pending) <= 2


def test_other_libraries_see_the_same_memory(programs: Programs) -> None:
    started(programs, "new")
    with of() as frames:
        frame = next(frames)
        assert frame.__dlpack_device__() == (2, frame.tensor.device.index)
        same = torch.from_dlpack(frame)
        assert same.data_ptr() == frame.tensor.data_ptr()
        assert bool((same == filled(frame)).all())
        copied = torch.from_dlpack(frame.__dlpack__(copy=True, stream=1))
        assert copied.data_ptr() != same.data_ptr()
        host = torch.from_dlpack(frame.__dlpack__(dl_device=(1, 0)))
        assert host.device.type == "cpu"
        assert bool((host == filled(frame)).all())
        wishes: dict[str, Any]
        for wishes, message in (({"stream": 0}, "stream 0"), ({"dl_device": (1, 0), "copy": False}, "is a copy"),
                                ({"dl_device": (2, 7)}, "not")):
            with pytest.raises(BufferError, match=message):
                frame.__dlpack__(**wishes)
        cupy = pytest.importorskip("cupy")
        array = cupy.from_dlpack(frame)
        assert int(array.min()) == int(array.max()) == filled(frame)


def test_one_s_own_pictures_are_read_as_well() -> None:
    frames = None
    for number in range(1, 30):
        splatview.publish(torch.full((64, 64, 3), number, dtype=torch.uint8, device="cuda"), "mine", number=number)
        if number == 1:
            frames = of("mine")
            assert next(frames).tensor.is_cuda
    assert frames is not None
    frame = next(frames)
    while frame.meta["number"] < 29:
        frame = next(frames)
    assert bool((frame.tensor == 29).all())
    frames.close()


def test_a_reader_that_is_killed_at_work_leaves_nothing_behind(
        programs: Programs, wait_until: Callable[..., Any]) -> None:
    def publish() -> None:
        splatview.publish(torch.ones(270, 480, 4, device="cuda"), "mine")

    publish()
    stream, board = publishing.begun().streams["mine"], publishing.begun().control  # type: ignore[union-attr]
    for moment in ("held", "at work"):
        publish()
        reader = programs.code("""
import sys, time, torch, splatview
frames = splatview.frames("mine", timeout=200)
frame = frames.latest()
frame.tensor.sum().item()
print("there", flush=True)
if sys.argv[1] == "at work":
    torch.cuda._sleep(10**10)
    frame.tensor.sum()
time.sleep(1000)
""", moment)
        assert reader.stdout is not None
        assert reader.stdout.readline() == "there\n", reader.communicate()[1]
        assert any(board.leased(stream.index)())
        os.kill(reader.pid, signal.SIGKILL)
        reader.wait()
        wait_until(lambda: not any(board.leased(stream.index)()))
        wait_until(lambda: not stream._outlets, what="the ring has been given back")
        assert board.counters()["faults"] == 0
    publish()
