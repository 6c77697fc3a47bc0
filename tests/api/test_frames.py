"""`splatview.frames`: the newest frames of a stream, of this process, of others, and of runs that end."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support.frames import cloud
from support.pair import OtherRun
from support.programs import Programs
from support.wait import PATIENCE, wait_until

import splatview
from splatview.api import session as publishing
from splatview.api.frames import Frame, Frames


def image(number: int) -> torch.Tensor:
    return torch.full((9, 16, 3), number % 251, dtype=torch.uint8)


def publish(number: int) -> None:
    """Publish a numbered picture, and wait until readers can have it."""
    splatview.publish(image(number), "it", meta={"number": number})
    publisher = publishing.begun()
    assert publisher is not None
    wait_until(lambda: not publisher.streams["it"].is_behind())


def of(name: str = "it", **more: Any) -> Frames:
    return splatview.frames(name, **{"timeout": PATIENCE, **more})


def holds_its_number(frame: Frame) -> bool:
    """Whether every pixel is of the picture whose number the metadata give."""
    pixels = frame.numpy()
    return int(pixels.min()) == int(pixels.max()) == frame.meta["number"] % 251


def test_frames_have_what_was_published() -> None:
    with of() as frames:
        last = 0
        for number in range(1, 6):
            publish(number)
            frame = next(frames)
            assert (frame.kind, frame.meta) == (
                "image",
                {"number": number, "layout": "HWC"},
            )
            assert torch.equal(frame.tensor, image(number))
            assert (frame.version, frame.skipped) == (number, 0)
            assert last < frame.time_ns
            assert frame.time == frame.time_ns / 1e9
            assert frame.age >= 0
            last = frame.time_ns
        assert frame.run == frames.run == publishing.begun().run_id  # type: ignore[union-attr]


def test_the_latest_is_given_again_and_waited_for_only_while_there_is_none() -> None:
    with of() as frames:
        with pytest.raises(TimeoutError):
            frames.latest(timeout=0)
        publish(1)
        for _ in range(2):
            frame = frames.latest()
            assert (frame.version, frame.skipped) == (1, 0)
            assert holds_its_number(frame)
        publish(2)
        publish(3)
        assert (frames.latest(timeout=0).version, frames.skipped) == (3, 1)
        publish(4)
        assert next(frames).version == 4


def test_a_frame_that_is_held_stays_as_it_is() -> None:
    publish(1)
    with of() as slow, of() as quick:
        held = next(slow)
        for number in range(2, 12):
            publish(number)
            assert holds_its_number(next(quick))
        assert held.version == 1
        assert holds_its_number(held)
        assert (next(slow).skipped, quick.skipped) == (9, 0)


WRITES: dict[str, Callable[[Frame], object]] = {
    "tensor": lambda frame: frame.tensor.zero_(),
    "tensors": lambda frame: frame.tensors["image"].zero_(),
    "numpy": lambda frame: frame.numpy().fill(0),
    "asarray": lambda frame: np.asarray(frame).fill(0),
    "DLPack": lambda frame: torch.from_dlpack(frame).zero_(),  # type: ignore[arg-type]
}


def test_a_write_into_a_frame_stays_with_its_reader() -> None:
    publish(7)
    with of() as frames, of() as others:
        before = next(others)
        for how, write in WRITES.items():
            frame = frames.latest()
            write(frame)
            assert not frame.numpy().any() and np.shares_memory(
                frame.numpy(), frame.tensor.numpy()
            ), how
            assert holds_its_number(before) and holds_its_number(others.latest()), how
        assert holds_its_number(frames.latest()), (
            "it is handed out again as it was published"
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_other_libraries_see_the_same_memory(dtype: torch.dtype) -> None:
    picture = torch.arange(60, dtype=torch.float32).reshape(6, 10).to(dtype)
    splatview.publish(picture, "it")
    with of() as frames:
        frame = next(frames)
        assert frame.__dlpack_device__() == (1, 0)
        tensor = torch.from_dlpack(frame)  # type: ignore[arg-type]
        assert torch.equal(tensor, picture)
        assert tensor.data_ptr() == frame.tensor.data_ptr()
        if dtype == torch.float32:  # NumPy has no bfloat16
            assert (
                np.from_dlpack(frame).ctypes.data
                == frame.numpy().ctypes.data
                == tensor.data_ptr()
            )


def test_gaussians_come_as_named_tensors() -> None:
    scene = cloud(50)
    splatview.publish(scene | {"sh0": scene["sh0"][:, None]}, "scene", meta={"step": 3})
    with of("scene") as frames:
        frame = next(frames)
        assert (frame.kind, frame.meta["step"]) == ("gaussians", 3)
        assert all(
            torch.equal(frame.tensors[name], scene[name]) for name in ("means", "sh0")
        )
        for use in (lambda: frame.tensor, frame.numpy, frame.__dlpack_device__):
            with pytest.raises(ValueError, match=r"several tensors.*means"):
                use()


def test_runs_that_end_are_followed_by_the_next(
    other_run: Callable[[], OtherRun],
) -> None:
    with of() as frames:
        for first in (0, 1000, 2000):
            run = other_run()
            for number in range(first, first + 2):
                run.show(image(number), "it", number=number)
                frame = next(frames)
                assert (frame.run, frame.meta["number"]) == (
                    run.run_id,
                    number,
                )
                assert holds_its_number(frame)
            run.close()


def test_of_two_runs_the_newest_is_read_unless_one_is_named(
    other_run: Callable[[], OtherRun],
) -> None:
    old = other_run()
    old.show(image(1), "it", number=1)
    with of() as frames, of(run=old.run_id) as one:
        assert next(frames).run == next(one).run == old.run_id
        new = other_run()
        new.show(image(100), "it", number=100)
        assert (next(frames).meta["number"], frames.run) == (100, new.run_id)
        old.show(image(2), "it", number=2)
        assert (next(one).meta["number"], one.run) == (2, old.run_id)
        with of(run=new.run_id) as named:
            assert next(named).meta["number"] == 100


def test_readers_are_given_back() -> None:
    publish(1)
    stream = publishing.begun().streams["it"]  # type: ignore[union-attr]
    frames = of()
    assert holds_its_number(next(frames))
    frames.close()
    frames.close()
    assert list(frames) == []
    with pytest.raises(ValueError, match="closed"):
        frames.latest()
    frame = of().latest()
    assert holds_its_number(frame), "a frame keeps what it came from"
    del frame
    gc.collect()
    wait_until(lambda: stream.readers == 0)


_ENDS = """
import sys, torch, splatview
splatview.publish(torch.zeros(4, 4, 3), "it", meta={"number": 0})
splatview.log(0, loss=1.0)
print("ready", flush=True)
sys.stdin.readline()
for step in range(1, 1001):
    splatview.log(step, loss=float(step))
splatview.publish(torch.ones(4, 4, 3), "it", meta={"number": 1})
"""


def test_what_a_program_publishes_last_is_read_after_its_end(
    programs: Programs,
) -> None:
    program = programs.code(_ENDS)
    assert program.line() == "ready"
    with of() as frames, of("scalars") as scalars:
        assert next(frames).meta["number"] == 0
        next(scalars)
        program.write_line()
        assert program.end() == ("", "")
        frame = next(frames)
        assert (frame.meta["number"], float(frame.tensor.min())) == (1, 1.0)
        assert frames.latest().meta["number"] == 1
        assert next(scalars).meta["step"] == 1000
