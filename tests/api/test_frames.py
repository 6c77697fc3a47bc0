"""`splatview.frames`: the newest frames of a stream, of this process, of others, and of
runs that end.
"""

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
from support.wait import PATIENCE_S, wait_until

import splatview
from splatview.api import session as publishing
from splatview.api.frames import Frame, Frames


def image(index: int) -> torch.Tensor:
    return torch.full((9, 16, 3), index % 251, dtype=torch.uint8)


def publish(index: int) -> None:
    """Publish a numbered picture, and wait until readers can have it."""
    splatview.publish(image(index), "it", meta={"number": index})
    publisher = publishing.started_publisher()
    assert publisher is not None
    wait_until(lambda: not publisher.streams["it"].is_behind())


def frames_of(name: str = "it", **options: Any) -> Frames:
    return splatview.frames(name, **{"timeout": PATIENCE_S, **options})


def holds_its_number(frame: Frame) -> bool:
    """Return whether every pixel is of the picture whose number the metadata give."""
    pixels = frame.numpy()
    return int(pixels.min()) == int(pixels.max()) == frame.meta["number"] % 251


def test_frames_have_what_was_published() -> None:
    with frames_of() as frames:
        last = 0
        for index in range(1, 6):
            publish(index)
            frame = next(frames)
            assert (frame.kind, frame.meta) == (
                "image",
                {"number": index, "layout": "HWC"},
            )
            assert torch.equal(frame.tensor, image(index))
            assert (frame.version, frame.skipped) == (index, 0)
            assert last < frame.time_ns
            assert frame.time == frame.time_ns / 1e9
            assert frame.age >= 0
            last = frame.time_ns
        assert frame.run == frames.run == publishing.started_publisher().run_id  # type: ignore[union-attr]


def test_latest_repeats_the_frame_and_waits_only_for_the_first() -> None:
    with frames_of() as frames:
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


def test_frame_that_its_reader_keeps_stays_unchanged() -> None:
    publish(1)
    with frames_of() as slow, frames_of() as quick:
        kept_frame = next(slow)
        for index in range(2, 12):
            publish(index)
            assert holds_its_number(next(quick))
        assert kept_frame.version == 1
        assert holds_its_number(kept_frame)
        assert (next(slow).skipped, quick.skipped) == (9, 0)


def clear_tensor(frame: Frame) -> None:
    frame.tensor.zero_()


def clear_named_tensor(frame: Frame) -> None:
    frame.tensors["image"].zero_()


def clear_array(frame: Frame) -> None:
    frame.numpy().fill(0)


def clear_converted_array(frame: Frame) -> None:
    np.asarray(frame).fill(0)


def clear_by_dlpack(frame: Frame) -> None:
    torch.from_dlpack(frame).zero_()  # type: ignore[arg-type]


WRITES: dict[str, Callable[[Frame], None]] = {
    "tensor": clear_tensor,
    "tensors": clear_named_tensor,
    "numpy": clear_array,
    "asarray": clear_converted_array,
    "DLPack": clear_by_dlpack,
}


def test_write_into_a_frame_stays_with_its_reader() -> None:
    publish(7)
    with frames_of() as frames, frames_of() as other_frames:
        other_frame = next(other_frames)
        for form, write in WRITES.items():
            frame = frames.latest()
            write(frame)
            assert not frame.numpy().any(), form
            assert np.shares_memory(frame.numpy(), frame.tensor.numpy()), form
            assert holds_its_number(other_frame), form
            assert holds_its_number(other_frames.latest()), form
        assert holds_its_number(frames.latest()), (
            "the reader gets it again as it was published"
        )


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.uint16], ids=str
)
def test_other_libraries_see_the_same_memory(dtype: torch.dtype) -> None:
    picture = torch.arange(60, dtype=torch.float32).reshape(6, 10).to(dtype)
    splatview.publish(picture, "it")
    with frames_of() as frames:
        frame = next(frames)
        assert frame.__dlpack_device__() == (1, 0)
        tensor = torch.from_dlpack(frame)  # type: ignore[arg-type]
        assert torch.equal(tensor, picture)
        assert tensor.data_ptr() == frame.tensor.data_ptr()
        # NumPy has no bfloat16.
        if dtype != torch.bfloat16:
            address = np.from_dlpack(frame).ctypes.data
            assert address == frame.numpy().ctypes.data
            assert address == tensor.data_ptr()


def test_gaussians_come_as_named_tensors() -> None:
    scene = cloud(50)
    splatview.publish(scene | {"sh0": scene["sh0"][:, None]}, "scene", meta={"step": 3})
    with frames_of("scene") as frames:
        frame = next(frames)
        assert (frame.kind, frame.meta["step"]) == ("gaussians", 3)
        for name in ("means", "sh0"):
            assert torch.equal(frame.tensors[name], scene[name])
        message = r"several tensors.*means"
        with pytest.raises(ValueError, match=message):
            frame.tensor  # noqa: B018
        for use in (frame.numpy, frame.__dlpack_device__):
            with pytest.raises(ValueError, match=message):
                use()


def test_runs_that_end_are_followed_by_the_next(
    other_run: Callable[[], OtherRun],
) -> None:
    with frames_of() as frames:
        for first in (0, 1000, 2000):
            run = other_run()
            for index in range(first, first + 2):
                run.show(image(index), "it", number=index)
                frame = next(frames)
                assert (frame.run, frame.meta["number"]) == (run.run_id, index)
                assert holds_its_number(frame)
            run.close()


def test_frames_read_the_newest_run_unless_one_is_named(
    other_run: Callable[[], OtherRun],
) -> None:
    old = other_run()
    old.show(image(1), "it", number=1)
    with frames_of() as frames, frames_of(run=old.run_id) as frames_of_old:
        assert next(frames).run == next(frames_of_old).run == old.run_id
        new = other_run()
        new.show(image(100), "it", number=100)
        assert (next(frames).meta["number"], frames.run) == (100, new.run_id)
        old.show(image(2), "it", number=2)
        assert (next(frames_of_old).meta["number"], frames_of_old.run) == (
            2,
            old.run_id,
        )
        with frames_of(run=new.run_id) as frames_of_new:
            assert next(frames_of_new).meta["number"] == 100


def test_closed_readers_release_the_stream() -> None:
    publish(1)
    stream = publishing.started_publisher().streams["it"]  # type: ignore[union-attr]
    frames = frames_of()
    assert holds_its_number(next(frames))
    frames.close()
    frames.close()
    assert list(frames) == []
    with pytest.raises(ValueError, match="closed"):
        frames.latest()
    frame = frames_of().latest()
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


def test_last_frame_of_a_program_is_read_after_its_end(
    programs: Programs,
) -> None:
    program = programs.code(_ENDS)
    assert program.line() == "ready"
    with frames_of() as frames, frames_of("scalars") as scalars:
        assert next(frames).meta["number"] == 0
        next(scalars)
        program.write_line()
        assert program.end() == ("", "")
        frame = next(frames)
        assert (frame.meta["number"], float(frame.tensor.min())) == (1, 1.0)
        assert frames.latest().meta["number"] == 1
        assert next(scalars).meta["step"] == 1000
