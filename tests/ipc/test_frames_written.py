"""Frames that are written to: the pages written are the reader's own, and later frames are clean.

Writes run in processes of their own, so that a segmentation fault fails one test and ends no others.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.frame_programs import NUMBERED
from support.open_files import open_files
from support.repetitions import with_exhaustive
from support.wait import PATIENCE

import splatview
from splatview.ipc import Subscriber, segments
from splatview.ipc.errors import SharingError
from splatview.ipc.segments import PAGE, has_private_pages, map_private, page_faults
from splatview.ipc.source import OwnSource
from splatview.ipc.ways.layout import data_bytes
from splatview.ipc.ways.ring import RingReader, RingWriter

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy as np
    from support.programs import Programs

    from splatview.ipc.frames import Frame

WRITES = {
    "tensor": "frame.tensor[0] = 1",
    "torch_in_place": "frame.tensor.mul_(0).add_(1)",
    "torch_out": "torch.add(frame.tensor, 1, out=frame.tensor)",
    "detached": "frame.tensor.detach().view(-1)[5:9].fill_(1)",
    "tensors": "frame.tensors['image'].zero_()",
    "numpy": "frame.numpy()[:2] = 1",
    "asarray": "np.asarray(frame)[...] = 1",
    "tensor_numpy": "frame.tensor.numpy().fill(1)",
    "buffer": "memoryview(frame.numpy()).cast('B')[0] = 1",
    "opencv": "import cv2; cv2.rectangle(frame.numpy(), (2, 2), (9, 5), (1, 1, 1), -1)",
    "torch_dlpack": "torch.from_dlpack(frame)[0] = 1",
    "numpy_dlpack": "np.from_dlpack(frame)[0] = 1",
    "torch_dlpack_legacy": "torch.utils.dlpack.from_dlpack(frame.__dlpack__())[0] = 1",
    "pointer": "ctypes.memset(frame.tensor.data_ptr(), 1, 5)",
}
WRITER = """
import ctypes, sys, numpy as np, torch, splatview
with splatview.frames("it", timeout=200) as frames:
    frame = frames.latest()
    assert frame.tensor.min() == frame.tensor.max() == 7
    try:
        exec(sys.argv[1])
        raised = ""
    except (ValueError, TypeError) as e:
        raised = str(e)
    assert raised or not (frame.tensor == 7).all(), "neither written nor refused"
    assert frame.intact()
    assert np.shares_memory(frame.numpy(), frame.tensor.numpy())
    frame = frames.latest()
    assert frame.version == 1
    assert frame.tensor.min() == frame.tensor.max() == 7, "the frame is handed out again as it was published"
print("raised:", raised)
"""
"""Writes into the frame, which is all 7, by the statement in its argument; prints why Python refused that, if so."""


def ended(program: subprocess.Popen[str]) -> str:
    """What a program printed, which must have ended well."""
    out, err = program.communicate(timeout=PATIENCE)
    assert program.returncode == 0, f"status {program.returncode}\n{err}"
    return out


@pytest.mark.parametrize("how", with_exhaustive(list(WRITES), "torch_in_place", "torch_out", "detached", "asarray",
                                                "tensor_numpy", "torch_dlpack_legacy"))
def test_frame_write_stays_in_its_process(how: str, programs: Programs, wait_until: Callable[..., Any]) -> None:
    image = torch.full((40, 60, 3), 7, dtype=torch.uint8)
    splatview.publish(image, "it")
    with splatview.frames("it", timeout=PATIENCE) as frames, Subscriber() as viewer:
        before = next(frames)
        wait_until(lambda: (viewer.poll(), viewer.streams)[-1])
        viewer.streams[0].open()
        seen = wait_until(lambda: (viewer.poll(), viewer.streams[0].read())[-1])
        out = ended(programs.python("-c", WRITER, WRITES[how]))
        for pixels in (before.numpy(), frames.latest().numpy(), seen.tensors["image"].array, image.numpy()):
            assert (pixels == 7).all()
        assert not seen.tensors["image"].array.flags.writeable, "viewers only read"
        seen.close()
    if how != "numpy_dlpack":  # NumPy marks arrays as read-only where either side's DLPack cannot tell
        assert out == "raised: \n"


KEPT = """
import sys, numpy as np, torch, splatview
rounds, slots = 0, {}
with splatview.frames("it", timeout=200) as frames:
    for frame in frames:
        rounds += 1
        number = frame.meta["number"] % 251
        pixels = frame.tensor
        assert pixels.min() == pixels.max() == number, (frame, "what was drawn into an earlier frame shows")
        part = torch.randperm(pixels.shape[0])[: 1 + rounds % pixels.shape[0]]
        pixels[part] = 255
        slots[pixels.data_ptr()] = slots.get(pixels.data_ptr(), 0) + 1
        print(frame.version, flush=True)
        sys.stdin.readline()  # many versions are published meanwhile
        untouched = torch.ones(len(pixels), dtype=torch.bool)
        untouched[part] = False
        assert (pixels[part] == 255).all(), "the drawing stays"
        assert (pixels[untouched] == number).all()
        assert frame.intact()
        if rounds == 60:
            break
"""
"""Draws over some rows of each frame, prints its version, and looks again when a line comes."""


def test_frame_drawing_stays_while_it_is_held_and_is_gone_with_it(programs: Programs) -> None:
    """Also where only some pages of a slot were written, and slots are used again and again."""
    image, number = torch.zeros(150, 90, 4, dtype=torch.uint8), 0  # rows share pages

    def publish() -> None:
        nonlocal number
        number += 1
        splatview.publish(image.fill_(number % 251), "it", number=number)

    publish()
    program = programs.python("-c", KEPT)
    assert program.stdin is not None and program.stdout is not None
    for version in program.stdout:
        for _ in range(100 if int(version) % 7 == 1 else 3):
            publish()
        program.stdin.write("on\n")
        program.stdin.flush()
    ended(program)


BESIDE = """
import sys, numpy as np, splatview
mark = int(sys.argv[1])
with splatview.frames("it", timeout=200) as frames:
    while True:
        frame = next(frames)
        pixels = frame.numpy()
        print(frame.version, flush=True)
        for step in sys.stdin:
            if step == "draw\\n":
                pixels[mark::8] = mark
                print("drawn", flush=True)
            elif step == "look\\n":
                others = np.delete(pixels, np.s_[mark::8], axis=0)
                print(bool((pixels[mark::8] == mark).all() and (others == 7).all()), frame.intact(), flush=True)
            else:
                sys.exit()
"""
"""Draws its number over each eighth row, and says whether it sees only its own drawing."""


def test_frame_readers_see_their_own_drawings_alone(programs: Programs) -> None:
    splatview.publish(torch.full((64, 100, 4), 7, dtype=torch.uint8), "it")
    readers = [programs.python("-c", BESIDE, str(mark)) for mark in (1, 2, 3)]

    def told(step: str) -> list[str]:
        answers = []
        for reader in readers:
            assert reader.stdin is not None and reader.stdout is not None
            reader.stdin.write(f"{step}\n")
            reader.stdin.flush()
            answers.append(reader.stdout.readline())
        return answers

    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "1\n"
    assert told("draw") == ["drawn\n"] * 3
    assert told("look") == ["True True\n"] * 3
    with splatview.frames("it", timeout=PATIENCE) as frames:
        assert (next(frames).numpy() == 7).all()
    told("end")
    for reader in readers:
        ended(reader)


SCENE = """
import torch, splatview
with splatview.frames("scene", timeout=200) as frames:
    for _ in range(3):
        frame = frames.latest()
        for name, tensor in frame.tensors.items():
            assert (tensor == 3).all(), name
            tensor.sub_(1).mul_(5)
        assert all((tensor == 10).all() for tensor in frame.tensors.values())
with splatview.frames("none", timeout=200) as frames:
    for tensor in frames.latest().tensors.values():
        assert not tensor.numel()
        tensor.zero_()
with splatview.frames("picture overlay", timeout=200) as frames:
    frame = frames.latest()
    assert frame.tensors["boxes"].shape == (0, 4)
    for tensor in frame.tensors.values():
        tensor.zero_()
with splatview.frames("half", timeout=200) as frames:
    frame = frames.latest()
    frame.tensor[2:].fill_(9)
    assert frame.tensor.dtype == torch.bfloat16 and frame.tensor.float().sum() == 2 * 6 + 2 * 6 * 9
"""


def test_frame_of_several_or_empty_tensors_is_writable(programs: Programs) -> None:
    scene = {"means": torch.full((500, 3), 3.0), "quats": torch.full((500, 4), 3.0),
             "scales": torch.full((500, 3), 3.0), "opacities": torch.full((500,), 3.0),
             "sh0": torch.full((500, 1, 3), 3.0)}
    splatview.publish(scene, "scene")
    splatview.publish({name: tensor[:0] for name, tensor in scene.items()}, "none")
    splatview.publish(torch.zeros(9, 9, 3), "picture")
    splatview.annotate("picture", notes="no boxes")
    splatview.publish(torch.ones(4, 6).to(torch.bfloat16), "half")
    ended(programs.python("-c", SCENE))


ENDED = """
import sys, numpy as np, splatview
frames = splatview.frames("it", timeout=200)
frame = next(frames)
frame.numpy()[:30] = 255
print("held", flush=True)
sys.stdin.readline()  # its publisher is killed
pixels = frame.tensor
assert (pixels[:30] == 255).all()
pixels[30:60] = 254
assert frame.intact()
assert (pixels[:30] == 255).all() and (pixels[30:60] == 254).all() and pixels[60:].min() == pixels[60:].max() != 255
version = frame.version
again = frames.latest(timeout=240)
assert again.version >= version
assert again.numpy().min() == again.numpy().max() == again.meta["number"] % 251
again.tensor[0] = 1
frames.close()
pixels[:] = 1  # kept beyond its frame: nothing is promised of it but that the process lives
"""


def test_frame_of_a_run_that_was_killed_is_writable(programs: Programs, wait_until: Callable[..., Any]) -> None:
    publisher = programs.code(NUMBERED, "it", "0.001", "0")
    assert publisher.stdout is not None
    assert publisher.stdout.readline() == "ready\n"
    reader = programs.code(ENDED)
    assert reader.stdout is not None
    assert reader.stdout.readline() == "held\n"
    publisher.kill()
    publisher.wait()
    assert reader.stdin is not None
    reader.stdin.write("killed\n")
    reader.stdin.flush()
    ended(reader)


FORKED = """
import os, numpy as np, splatview
with splatview.frames("it", timeout=200) as frames:
    frame = next(frames)
    pixels = frame.numpy()
    pixels[0] = 1
    here, there = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            assert (pixels[0] == 1).all() and (pixels[1:] == 7).all(), "it begins with what its parent had drawn"
            pixels[1] = 2
            os.write(here[1], b"x")
            os.read(there[0], 1)
            assert (pixels[1] == 2).all() and (pixels[2] == 7).all()
            own = next(frames)
            assert (own.numpy() == 7).all()
            own.tensor[:] = 3
            status = 0
        finally:
            os._exit(status)
    os.read(here[0], 1)
    assert (pixels[1] == 7).all()
    pixels[2] = 3
    os.write(there[1], b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (pixels[1] == 7).all() and (pixels[2] == 3).all() and frame.intact()
"""


def test_frame_held_across_a_fork_is_writable_on_both_sides(programs: Programs) -> None:
    splatview.publish(torch.full((40, 60, 3), 7, dtype=torch.uint8), "it")
    ended(programs.python("-c", FORKED))


def test_frames_of_a_fast_publisher_are_whole_while_their_readers_draw(programs: Programs) -> None:
    program = programs.code(NUMBERED, "it", "0.0002", "0")
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    with splatview.frames("it", timeout=PATIENCE) as frames:
        for count, frame in enumerate(frames):
            pixels = frame.numpy()
            number = frame.meta["number"] % 251
            pixels[: 1 + count % 80] = 255
            assert (pixels[1 + count % 80 :] == number).all()
            assert frame.intact()
            if count == 400:
                break


# One ring and its reader in this process.

META = {"layout": "HW"}
SHAPE = 3, 100_000


def filled(value: int) -> dict[str, torch.Tensor]:
    return {"image": torch.full(SHAPE, value, dtype=torch.uint8)}


@pytest.fixture
def writer() -> Iterator[RingWriter]:
    made = RingWriter(data_bytes(filled(0)))
    yield made
    made.close()


@pytest.fixture
def reader(writer: RingWriter) -> Iterator[RingReader]:
    made = RingReader(writer.segment.ref, OwnSource(), lambda *lease: None, writable=True)
    yield made
    made.close()


def written(writer: RingWriter, reader: RingReader, version: int) -> tuple[Frame, np.ndarray]:
    """The frame of a new version, in which there is no drawing, and its pixels."""
    assert writer.write("image", filled(version % 251), META, version)
    frame = reader.read(version - 1)
    assert frame is not None
    pixels = frame.tensors["image"].array  # type: ignore[union-attr]
    assert pixels.shape == SHAPE
    assert (pixels == version % 251).all()
    return frame, pixels


def address(pixels: np.ndarray) -> int:
    return pixels.__array_interface__["data"][0]


def mappings() -> int:
    """How many mappings of rings this process has."""
    with open("/proc/self/maps") as file:
        return sum("memfd:splatview-ring" in line for line in file)


def test_reader_keeps_mappings_of_slots_that_were_not_written(writer: RingWriter, reader: RingReader) -> None:
    """To read costs what it did when nothing could be written: page tables are filled once for each slot."""
    seen = set()
    for version in range(1, 60):
        frame, pixels = written(writer, reader, version)
        seen.add(address(pixels))
        assert not has_private_pages(address(pixels), pixels.nbytes)
        frame.close()
    assert len(seen) <= writer.slots


def test_reader_gives_back_what_was_drawn(writer: RingWriter, reader: RingReader) -> None:
    files = open_files()
    most = mappings() + 2 * writer.slots
    for version in range(1, 200):
        frame, pixels = written(writer, reader, version)
        pixels[:, :: 1 + version % 5000] = 255
        assert has_private_pages(address(pixels), pixels.nbytes)
        frame.close()
        assert mappings() <= most
    assert open_files() <= files


def test_reader_keeps_drawings_in_views_that_outlive_their_frame(writer: RingWriter, reader: RingReader) -> None:
    """They take no file descriptors, however many are kept."""
    files, kept = open_files(), []
    for version in range(1, 40):
        frame, pixels = written(writer, reader, version)
        pixels[1] = 255
        kept.append(torch.from_numpy(pixels[1]))
        frame.close()
        del pixels
    assert all(bool((row == 255).all()) for row in kept)
    reader.close()
    assert all(bool((row == 255).all()) for row in kept)
    for row in kept:
        row.zero_()
    assert open_files() <= files


def test_reader_hands_out_clean_frames_though_late_views_are_written(writer: RingWriter, reader: RingReader) -> None:
    """Views that are kept are written after their frames were given back, also when later ones are in their slots."""
    late: list[np.ndarray] = []
    for version in range(1, 60):
        frame, pixels = written(writer, reader, version)
        frame.close()
        if version % 3 == 0:
            late.append(pixels)
        if version % 11 == 0:
            for view in late:
                view[2, ::100] = 250
            late.clear()


def test_reader_hands_out_clean_frames_of_another_size(writer: RingWriter, reader: RingReader) -> None:
    """A drawing beyond the end of a smaller frame does not show in a later frame that is larger."""
    late: list[np.ndarray] = []
    for version in range(1, 60):
        turn = (version - 1) // writer.slots % 5
        rows = (3, 1, 1, 3, 3)[turn]
        assert writer.write("image", {"image": torch.full((rows, SHAPE[1]), version, dtype=torch.uint8)}, META, version)
        frame = reader.read(version - 1)
        assert frame is not None
        pixels = frame.tensors["image"].array  # type: ignore[union-attr]
        assert pixels.shape == (rows, SHAPE[1])
        assert (pixels == version).all()
        if turn == 0:
            late.append(pixels)
        elif turn == 1:  # while there are smaller frames in the slot
            late[version % writer.slots][2] = 255
        elif turn == 3:
            if version % 2:
                pixels[2] = 255
            late.clear()
        frame.close()


def test_reader_hands_out_the_newest_bytes_of_memory_that_was_locked(writer: RingWriter, reader: RingReader) -> None:
    """mlock copies the pages of a mapping that may be written to, at once."""
    libc = ctypes.CDLL(None, use_errno=True)
    for version in range(1, 30):
        frame, pixels = written(writer, reader, version)
        where = address(pixels)
        frame.close()
        del frame, pixels
        reader._private.tidy()  # type: ignore[union-attr]
        if version % 3 == 0:
            page = where // mmap.PAGESIZE * mmap.PAGESIZE
            assert libc.mlock(ctypes.c_void_p(page), ctypes.c_size_t(PAGE)) == 0, os.strerror(ctypes.get_errno())
            assert has_private_pages(page, PAGE)


def test_reader_hands_out_copies_where_nothing_can_be_mapped(writer: RingWriter, reader: RingReader) -> None:
    private = reader._private
    assert private is not None
    unreadable = os.open(f"/proc/self/fd/{writer.segment.fd}", os.O_WRONLY)  # mmap needs to read
    os.dup2(unreadable, private._fd, inheritable=False)
    os.close(unreadable)
    with pytest.raises(SharingError, match="Permission denied"):
        map_private(private._fd, PAGE, 0)
    for version in range(1, 20):
        frame, pixels = written(writer, reader, version)
        pixels[...] = 255
        frame.close()


def test_reader_maps_slots_anew_where_the_kernel_does_not_show_its_page_tables(
        writer: RingWriter, reader: RingReader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(segments, "_PAGEMAP", str(tmp_path / "there is none"))
    for version in range(1, 40):
        frame, pixels = written(writer, reader, version)
        pixels[0, ::3000] = 255
        frame.close()


def test_private_pages_are_told_from_shared_ones(writer: RingWriter) -> None:
    writer.segment.map[:] = b"\7" * len(writer.segment.map)
    mapping = map_private(writer.segment.fd, 4 * PAGE, PAGE)
    start = ctypes.addressof(mapping)
    assert not has_private_pages(start, 4 * PAGE), "not read yet"
    assert bytes(mapping) == b"\7" * 4 * PAGE
    assert not has_private_pages(start, 4 * PAGE)
    faults = page_faults()
    mapping[2 * PAGE] = b"\1"
    assert page_faults() > faults > 0
    assert has_private_pages(start, 4 * PAGE)
    assert has_private_pages(start + 2 * PAGE, 1)
    assert has_private_pages(start, 2 * PAGE + 1)
    assert not has_private_pages(start, 2 * PAGE)
    assert not has_private_pages(start + 3 * PAGE, PAGE)
    assert writer.segment.map[3 * PAGE] == 7
