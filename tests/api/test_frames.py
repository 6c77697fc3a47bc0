"""`splatview.frames`: what iterating a stream gives, from this process and from others."""

from __future__ import annotations

import contextlib
import gc
import math
import re
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.frame_programs import NUMBERED, holds_its_number
from support.open_files import open_files
from support.wait import PATIENCE

import splatview
from splatview import publishing
from splatview.reading import Frames, newest_seen

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.programs import Programs


def picture(number: int, name: str = "it", **more: Any) -> None:
    splatview.publish(torch.full((9, 16, 3), number % 251, dtype=torch.uint8), name, number=number, **more)


def shared_picture(number: int, wait_until: Callable[..., Any]) -> None:
    """For whoever then looks without waiting: a publish that finds the helper thread at the stream is shared later."""
    picture(number)
    wait_until(lambda: not publishing._entries["it"].stream.behind())


def of(name: str, **more: Any) -> Frames:
    return splatview.frames(name, **{"timeout": PATIENCE, **more})


def started(programs: Programs, name: str = "it", pause: float = 0.01, first: int = 0, **env: str) -> Any:
    program = programs.code(NUMBERED, name, str(pause), str(first), **env)
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    return program


def test_another_process_s_newest_frames_come_one_after_the_other(programs: Programs) -> None:
    program = started(programs)
    with of("it") as frames:
        before, last, skipped = time.time_ns(), 0, 0
        for frame in frames:
            assert frame.kind == "image"
            assert frame.meta == {"number": frame.version, "layout": "HWC"}
            assert holds_its_number(frame)
            assert frame.tensor.shape == (90, 160, 3)
            assert frame.tensor.dtype == torch.uint8
            assert torch.equal(frame.tensor, torch.full((90, 160, 3), frame.version % 251, dtype=torch.uint8))
            assert frame.version > last
            assert frame.skipped == (frame.version - last - 1 if last else 0)
            assert frame.run == frames.run
            assert before - PATIENCE * 1e9 < frame.time_ns <= time.time_ns()
            assert frame.time == frame.time_ns / 1e9
            assert frame.age >= 0
            assert frame.intact()
            last, skipped = frame.version, skipped + frame.skipped
            if last > 40:
                break
        else:
            raise AssertionError("the frames ended")
        assert frames.skipped == skipped
        assert frames.path == "ring"
        assert f"-{program.pid}-" in frames.run
        assert newest_seen("it") == (last, frame.time_ns, frames.run)
    assert newest_seen("nobody's") is None


def test_what_comes_between_is_passed_over_and_counted(wait_until: Callable[..., Any]) -> None:
    picture(1)
    with of("it") as frames:
        assert next(frames).version == 1
        for number in range(2, 7):
            picture(number)
        shared_picture(7, wait_until)
        frame = next(frames)
        assert (frame.version, frame.skipped, int(frame.numpy()[0, 0, 0])) == (7, 5, 7)
        picture(8)
        frame = next(frames)
        assert (frame.version, frame.skipped, frames.skipped) == (8, 0, 5)


def test_the_latest_is_given_again_and_waited_for_only_while_there_is_none(wait_until: Callable[..., Any]) -> None:
    with of("it") as frames:
        with pytest.raises(TimeoutError):
            frames.latest(timeout=0.05)
        picture(1)
        for _ in range(3):
            frame = frames.latest()
            assert (frame.version, frame.skipped) == (1, 0)
            assert holds_its_number(frame)
        picture(2)
        shared_picture(3, wait_until)
        assert frames.latest(timeout=0).version == 3
        assert frames.skipped == 1
        with pytest.raises(TimeoutError):
            frames._follower.next(0.05)
        assert frames.latest(timeout=0).version == 3
        picture(4)
        assert next(frames).version == 4


def test_a_frame_is_valid_until_the_next_one_is_asked_for() -> None:
    picture(1)
    with of("it") as frames:
        frame = next(frames)
        tensor, kept = frame.tensor, frame.tensor.clone()
        picture(2)
        following = next(frames)
        for use in (lambda: frame.tensor, frame.numpy, lambda: torch.from_dlpack(frame), lambda: frame.tensors):
            with pytest.raises(ValueError, match=r"version 1 was given back.*clone"):
                use()
        assert frame.intact(), "it was, until it was given back"
        assert (tensor.shape, int(kept[0, 0, 0])) == ((9, 16, 3), 1)
        assert "closed" in repr(frame)
        with following as same:
            assert same is following
        with pytest.raises(ValueError, match="given back"):
            following.numpy()
        following.close()
        picture(3)
        assert next(frames).version == 3


def test_a_frame_keeps_its_slot_until_it_is_given_back(wait_until: Callable[..., Any]) -> None:
    picture(1)
    stream = publishing._entries["it"].stream
    board = publishing._publisher.board  # type: ignore[union-attr]
    with of("it") as frames:
        frame = next(frames)
        held = [slot for slot in board.leased(stream.index)() if slot]
        assert len(held) == 1
        for number in range(2, 40):
            picture(number)
            wait_until(lambda: not stream.late)
        assert frame.intact()
        assert int(frame.numpy().max()) == int(frame.numpy().min()) == 1
        frame.close()
        assert not any(board.leased(stream.index)())


def test_gaussians_come_as_named_tensors() -> None:
    generator = torch.manual_seed(0)
    scene = {"means": torch.randn(50, 3, generator=generator), "quats": torch.randn(50, 4),
             "scales": torch.randn(50, 3), "opacities": torch.randn(50), "sh0": torch.rand(50, 1, 3),
             "shN": torch.rand(50, 3, 3)}
    splatview.publish(scene, "scene", step=3)
    with of("scene") as frames:
        frame = next(frames)
        assert frame.kind == "gaussians"
        assert torch.equal(frame.tensors["means"], scene["means"])
        assert torch.equal(frame.tensors["shN"], scene["shN"])
        assert frame.meta["step"] == 3
        for use in (lambda: frame.tensor, frame.numpy, frame.__dlpack_device__):
            with pytest.raises(ValueError, match=r"several tensors.*means"):
                use()


def test_overlays_come_even_if_they_are_empty() -> None:
    picture(1)
    splatview.annotate("it", notes="nobody")
    with of("it overlay") as frames:
        frame = next(frames)
        assert frame.kind == "overlay"
        assert frame.tensors["boxes"].shape == (0, 4)
        assert frame.tensors["boxes"].dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float32])
def test_every_dtype_arrives(dtype: torch.dtype) -> None:
    image = (torch.rand(7, 5, generator=torch.manual_seed(1)) * 200).to(dtype)
    splatview.publish(image, "it")
    with of("it") as frames:
        frame = next(frames)
        assert frame.tensor.dtype == dtype
        assert torch.equal(frame.tensor, image)
        if dtype is torch.bfloat16:
            with pytest.raises(TypeError, match=r"bfloat16.*\.float\(\)"):
                frame.numpy()
        else:
            assert np.array_equal(frame.numpy(), image.numpy())


def test_arrays_of_a_frame_share_its_memory_and_copies_do_not() -> None:
    picture(5)
    with of("it") as frames:
        frame = next(frames)
        assert np.shares_memory(np.asarray(frame), frame.numpy())
        assert np.asarray(frame).flags.writeable
        assert np.asarray(frame).shape == (9, 16, 3)
        assert np.asarray(frame, np.float32).dtype == np.float32
        mine = np.array(frame)
        mine[:] = 9
        assert int(frame.numpy().max()) == 5


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ({"name": 3}, TypeError, "name is a int"),
    ({"name": ""}, ValueError, "0 characters"),
    ({"name": "a/b"}, ValueError, "'a/b'"),
    ({"name": "it", "run": 7}, TypeError, "run is a int"),
    ({"name": "it", "run": ""}, ValueError, "run is ''"),
    ({"name": "it", "timeout": "1"}, TypeError, "timeout is a str"),
    ({"name": "it", "timeout": True}, TypeError, "timeout is a bool"),
    ({"name": "it", "timeout": -1}, ValueError, "timeout is -1"),
    ({"name": "it", "timeout": math.inf}, ValueError, "timeout is inf"),
    ({"name": "it", "timeout": math.nan}, ValueError, "timeout is nan"),
    ({"name": "it", "in_place": "yes"}, ValueError, "in_place is 'yes'"),
])
def test_arguments_that_cannot_be_meant(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        splatview.frames(**arguments)


def test_in_place_is_refused_where_everything_is_copied() -> None:
    picture(1)
    with of("it", in_place=True) as frames, pytest.raises(ValueError, match=r"in_place=True.*'it'.*on the CPU"):
        next(frames)


def test_who_waits_in_vain_is_told_what_is_known(programs: Programs, wait_until: Callable[..., Any]) -> None:
    def told(**more: Any) -> str:
        with splatview.frames("it", timeout=0.5, **more) as frames, pytest.raises(TimeoutError) as error:
            next(frames)
        return str(error.value)

    assert re.search(r"no new frame of 'it' within 0\.\d s: no run is there, in .*start the program", told())
    assert "no run that 'else' names is there" in told(run="else")
    program = started(programs, "other")
    with of("other") as others:
        next(others)
        text = told()
    assert re.search(rf"no such stream; there are 'other' \(image, run .*-{program.pid}-", text)
    with of("other") as others:
        next(others)
        program.kill()
        program.wait()

        def ended() -> str | None:
            with contextlib.suppress(TimeoutError):
                while True:
                    others._follower.next(0.3)
            return others._follower._why(1) if not others._follower.stream.run.alive else None  # type: ignore

        assert f"run {others.run} has ended, and no other publishes it" in wait_until(ended)
    picture(1)
    with of("it") as frames:
        next(frames)
        with pytest.raises(TimeoutError, match="has published nothing since version 1"):
            frames._follower.next(0.05)


def test_a_publisher_that_starts_again_is_gone_on_with(programs: Programs) -> None:
    with of("it") as frames:
        seen = []
        for first in (0, 1000, 2000):
            program = started(programs, first=first)
            for frame in frames:
                assert holds_its_number(frame)
                if frame.meta["number"] > first + 3:
                    break
            seen.append(frames.run)
            program.kill()
            program.wait()
        assert len(set(seen)) == 3


@pytest.mark.parametrize("amid", [False, True], ids=["alone", "while the helper thread is at it"])
def test_the_last_frame_of_a_run_that_has_ended_is_read(amid: bool, programs: Programs) -> None:
    program = programs.code("""
import contextlib, sys, torch, splatview
from splatview import publishing
splatview.publish(torch.zeros(4, 4, 3), "it", number=0)
print("ready", flush=True)
sys.stdin.readline()
with publishing._entries["it"].stream.lock if sys.argv[1] == "True" else contextlib.nullcontext():
    splatview.publish(torch.full((4, 4, 3), 1.0), "it", number=1)
""", str(amid))
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    with of("it") as frames:
        assert next(frames).meta["number"] == 0
        program.communicate("go on\n", timeout=PATIENCE)
        frame = next(frames)
        assert (frame.meta["number"], float(frame.tensor.min())) == (1, 1.0)
        assert frames.latest().meta["number"] == 1


def test_of_two_runs_the_newest_is_read_unless_one_is_named(programs: Programs) -> None:
    old = started(programs, first=0)
    with of("it") as frames, of("it", run=str(old.pid)) as one:
        assert next(frames).meta["number"] < 10**6
        new = started(programs, first=10**6)
        for frame in frames:  # it goes over by itself
            if frame.meta["number"] > 10**6:
                break
        assert f"-{new.pid}-" in frames.run
        for _ in range(5):
            assert next(one).meta["number"] < 10**6
        assert f"-{old.pid}-" in one.run
        with of("it", run=frames.run) as named:
            assert next(named).meta["number"] > 10**6


def test_closing_gives_everything_back(programs: Programs, wait_until: Callable[..., Any]) -> None:
    picture(1)
    with of("it") as frames:
        next(frames).tensor.sum()
    before, stream = open_files(), publishing._entries["it"].stream
    frames = of("it")
    frame = next(frames)
    frames.close()
    frames.close()
    with pytest.raises(ValueError, match="given back"):
        frame.numpy()
    with pytest.raises(StopIteration):
        next(frames)
    assert list(frames) == []
    with pytest.raises(ValueError, match="closed"):
        frames.latest()
    wait_until(lambda: open_files() <= before)
    wait_until(lambda: stream.readers == 0)


def test_letting_go_gives_everything_back(wait_until: Callable[..., Any]) -> None:
    picture(1)
    with of("it") as frames:
        next(frames)
    before, stream = open_files(), publishing._entries["it"].stream
    assert of("it").latest().numpy().shape == (9, 16, 3), "a frame keeps what it came from"
    for _ in of("it"):
        break
    _ = None
    gc.collect()
    wait_until(lambda: stream.readers == 0)
    wait_until(lambda: open_files() <= before)


def test_several_in_one_process_do_not_see_each_other(programs: Programs) -> None:
    started(programs, pause=0.002)
    with of("it") as quick, of("it") as slow:
        held = next(slow)
        version = held.version
        for _ in range(100):
            assert holds_its_number(next(quick))
        assert held.intact()
        assert holds_its_number(held)
        assert held.version == version
        assert next(slow).skipped >= 90
        assert quick.skipped < slow.skipped


def test_reading_needs_no_torch(programs: Programs) -> None:
    started(programs)
    reader = programs.python("-c", """
import sys, splatview
with splatview.frames("it", timeout=200) as frames:
    for frame in frames:
        pixels = frame.numpy()
        assert pixels.min() == pixels.max() == frame.meta["number"] % 251
        if frame.version > 20:
            break
assert "torch" not in sys.modules
print("read")
""")
    out, err = reader.communicate(timeout=PATIENCE)
    assert out == "read\n", err


def test_a_forked_child_reads_by_itself(programs: Programs) -> None:
    started(programs)
    program = programs.code("""
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of forking while other threads run
import splatview
frames = splatview.frames("it", timeout=200)
first = next(frames)
pixels = first.numpy()
value = int(pixels[0, 0, 0])
child = os.fork()
if not child:
    first.close()  # the parent's slot stays the parent's
    seen = [next(frames) for _ in range(20)]
    assert all(a.version < b.version for a, b in zip(seen, seen[1:]))
    assert seen[-1].numpy().min() == seen[-1].meta["number"] % 251
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert first.intact() and pixels.min() == pixels.max() == value
for _ in range(20):
    frame = next(frames)
assert frame.numpy().max() == frame.meta["number"] % 251
print("read")
""")
    out, err = program.communicate(timeout=PATIENCE)
    assert out == "read\n", err
    assert program.returncode == 0, err
