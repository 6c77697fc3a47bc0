"""The ring on its own: layout, slots, growth of versions, hostile contents."""

from __future__ import annotations

import errno
import mmap
import os
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.frames import host_array

from splatview.ipc.errors import SharingError
from splatview.ipc.messages import SegmentRef
from splatview.ipc.segments import PAGE, map_segment
from splatview.ipc.source import OwnSource
from splatview.ipc.ways.layout import data_bytes
from splatview.ipc.ways.ring import RingReader, RingWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.programs import Programs

META = {"layout": "HW"}


FULL = """
import os, resource, sys
from splatview.ipc.board import Board, BoardReader
from splatview.ipc.errors import SharingError
from splatview.ipc.source import OwnSource
from splatview.ipc.ways.ring import RingReader, RingWriter
board, writer = Board(), RingWriter(4096)
readers = {"board": lambda: BoardReader(board.segment.ref, board.lease_segment.ref, OwnSource(), 0),
           "ring": lambda: RingReader(writer.segment.ref, OwnSource(), lambda *_: None)}
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
used = sorted(map(int, os.listdir("/proc/self/fd")))
for what, make in readers.items():
    free = next(fd for fd in range(1000) if fd not in used[:-1])  # the last was the listing's own
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))  # the segment can be opened, and not be mapped
    try:
        make()
    except SharingError as e:
        print(what, e)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    make().close()
"""
"""A process that has one open file left when it reads what is shared."""


@pytest.fixture
def leases() -> list[int]:
    return []


@pytest.fixture
def ring(leases: list[int]) -> Iterator[tuple[RingWriter, RingReader]]:
    writer = RingWriter(200_000)
    reader = RingReader(writer.segment.ref, OwnSource(), leases.append)
    yield writer, reader
    reader.close()
    writer.close()


def write(writer: RingWriter, image: torch.Tensor, version: int, layout: str = "HW") -> None:
    writer.write("image", {"image": image}, {"layout": layout}, version)


def test_an_empty_ring_has_no_frame(ring: tuple[RingWriter, RingReader]) -> None:
    assert ring[1].read() is None


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float32])
def test_values_and_meta_arrive(ring: tuple[RingWriter, RingReader], dtype: torch.dtype) -> None:
    writer, reader = ring
    image = (torch.rand(13, 7, generator=torch.manual_seed(0)) * 200).to(dtype)
    writer.write("image", {"image": image}, {"layout": "HW", "step": 12, "note": "é", "ok": True, "lr": 0.5}, 5)
    frame = reader.read()
    assert frame is not None
    with frame:
        assert frame.version == 5
        assert frame.meta == {"layout": "HW", "step": 12, "note": "é", "ok": True, "lr": 0.5}
        assert np.array_equal(frame.tensors["image"].to_float32(), image.float().numpy())
        assert frame.intact()
        with pytest.raises(ValueError, match="read-only"):
            host_array(frame.tensors["image"])[0, 0] = 1


@pytest.mark.parametrize("make", [
    lambda: torch.arange(60, dtype=torch.uint8).reshape(10, 6).t(),
    lambda: torch.arange(60, dtype=torch.uint8).reshape(10, 6)[::2, 1:4],
    lambda: torch.arange(6, dtype=torch.uint8).expand(5, 6),
    lambda: torch.arange(60, dtype=torch.uint8)[7:].reshape(1, 53),
])
def test_any_strides(ring: tuple[RingWriter, RingReader], make: Any) -> None:
    writer, reader = ring
    write(writer, make(), 1)
    frame = reader.read()
    assert frame is not None
    assert np.array_equal(host_array(frame.tensors["image"]), make().numpy())


def test_only_newer_versions_are_read_and_the_lease_is_given_back(
        ring: tuple[RingWriter, RingReader], leases: list[int]) -> None:
    writer, reader = ring
    write(writer, torch.zeros(4, 4, dtype=torch.uint8), 3)
    frame = reader.read(after=2)
    assert frame is not None
    frame.close()
    assert reader.read(after=3) is None
    assert leases[-1] == -1


def test_the_writer_avoids_leased_slots_but_never_waits_for_them() -> None:
    writer = RingWriter(64)
    image = torch.zeros(4, 4, dtype=torch.uint8)
    used: list[int] = []
    for version in range(1, 9):
        writer.leased = lambda: bytes([1])  # slot 0
        write(writer, image, version)
        used.append(writer._last)
    assert 0 not in used
    writer.leased = lambda: bytes([1, 2, 3, 4])
    for version in range(9, 20):
        write(writer, image, version)  # all leased: it goes on all the same
    writer.close()


def test_an_overwritten_frame_is_not_intact(ring: tuple[RingWriter, RingReader]) -> None:
    writer, reader = ring
    image = torch.zeros(4, 4, dtype=torch.uint8)
    write(writer, image, 1)
    frame = reader.read()
    assert frame is not None
    assert frame.intact()
    for version in range(2, 2 + writer.slots):
        write(writer, image, version)
    assert not frame.intact()
    assert reader.torn == 1


def test_shapes_may_change_within_the_capacity(ring: tuple[RingWriter, RingReader]) -> None:
    writer, reader = ring
    for version, shape in enumerate([(4, 4), (100, 1), (300, 500), (1, 1), (4, 4)], 1):
        image = torch.full(shape, version, dtype=torch.uint8)
        write(writer, image, version)
        frame = reader.read(version - 1)
        assert frame is not None
        with frame:
            assert frame.tensors["image"].shape == shape
            assert (host_array(frame.tensors["image"]) == version).all()
    with pytest.raises(SharingError, match="does not fit"):
        write(writer, torch.zeros(1000, 1000, dtype=torch.uint8), 9)


def test_no_gaussians_at_all(ring: tuple[RingWriter, RingReader]) -> None:
    writer, reader = ring
    tensors = {"means": torch.zeros(0, 3), "quats": torch.zeros(0, 4), "scales": torch.zeros(0, 3),
               "opacities": torch.zeros(0), "sh0": torch.zeros(0, 3)}
    assert writer.write("gaussians", tensors, {"color": "sh", "activated": False}, 1)
    frame = reader.read()
    assert frame is not None
    assert frame.tensors["means"].shape == (0, 3)


def test_tensors_are_aligned_and_counted() -> None:
    assert data_bytes({"a": torch.zeros(1), "b": torch.zeros(65)}) == 256 + 512


def _forge(writer: RingWriter, header: bytes) -> None:
    """Put these bytes where the header of the newest frame stands."""
    slot = writer._last
    start = PAGE + slot * writer._stride
    writer._bytes[start : start + len(header)] = header
    writer._words[16 + 8 * slot + 4] = len(header)


@pytest.mark.parametrize("header", [
    b"", b"\xc1", b"\x93\xa5image", b"\xdd\xff\xff\xff\xff", b"\x81" * 3000, bytes(range(7, 256, 4)),
    # image of 2^40 x 2^40; an offset outside; an unknown dtype; a tensor twice; a wrong kind
    b"\x93\xa5image\x91\x94\xa5image\xa5uint8\x92" + b"\xcf" + struct.pack(">Q", 2**40) * 1 + b"\xcf"
    + struct.pack(">Q", 2**40) + b"\x00\x81\xa6layout\xa2HW",
    b"\x93\xa5image\x91\x94\xa5image\xa5uint8\x92\x04\x04\xcf" + struct.pack(">Q", 2**41) + b"\x81\xa6layout\xa2HW",
    b"\x93\xa5image\x91\x94\xa5image\xa5int64\x92\x04\x04\x00\x81\xa6layout\xa2HW",
    b"\x93\xa5image\x92" + b"\x94\xa5image\xa5uint8\x92\x04\x04\x00" * 2 + b"\x81\xa6layout\xa2HW",
    b"\x93\xa9gaussians\x91\x94\xa5image\xa5uint8\x92\x04\x04\x00\x81\xa6layout\xa2HW",
])
def test_forged_headers_are_counted_and_never_followed(ring: tuple[RingWriter, RingReader], header: bytes) -> None:
    writer, reader = ring
    write(writer, torch.zeros(4, 4, dtype=torch.uint8), 1)
    _forge(writer, header)
    assert reader.read() is None
    assert reader.garbled > 0


def test_a_header_longer_than_its_page_is_not_read_beyond_it(ring: tuple[RingWriter, RingReader]) -> None:
    writer, reader = ring
    write(writer, torch.zeros(4, 4, dtype=torch.uint8), 1)
    writer._words[16 + 8 * writer._last + 4] = 2**62
    assert reader.read() is None


@pytest.mark.parametrize(("word", "value"), [(0, 0), (1, 1), (1, 2**40), (2, 2**50), (1, 17)])
def test_a_ring_that_contradicts_itself_is_refused(word: int, value: int) -> None:
    writer = RingWriter(64)
    writer._words[word] = value
    with pytest.raises(SharingError, match="not one"):
        RingReader(writer.segment.ref, OwnSource(), lambda slot: None)
    writer.close()


def test_a_slot_that_is_not_done_is_no_frame(ring: tuple[RingWriter, RingReader]) -> None:
    writer, reader = ring
    image = torch.zeros(4, 4, dtype=torch.uint8)
    write(writer, image, 1)
    write(writer, image + 1, 2)
    done = writer._words[16 + 8 * writer._last + 1]
    for wrong in (0, done - 1, done + 2, 2**64 - 1):
        writer.set_done(writer._last, wrong)
        frame = reader.read()
        assert frame is not None
        with frame:
            assert frame.version == 1, "the newest that is whole"
            assert (host_array(frame.tensors["image"]) == 0).all()
    writer.set_done(writer._last, done)
    frame = reader.read()
    assert frame is not None
    assert frame.version == 2


class SlowRing(RingWriter):
    """Its copies end when the test says so, as a GPU's do."""

    at_once = False

    def __init__(self) -> None:
        super().__init__(64)
        self.pending: list[tuple[int, int]] = []

    def set_done(self, slot: int, whole: int) -> None:
        self.pending.append((slot, whole))

    def finish_one(self) -> None:
        super().set_done(*self.pending.pop(0))


def test_copies_that_have_not_ended_are_neither_read_nor_overwritten() -> None:
    writer = SlowRing()
    reader = RingReader(writer.segment.ref, OwnSource(), lambda slot: None)
    image = torch.zeros(4, 4, dtype=torch.uint8)
    assert [writer.write("image", {"image": image + v}, META, v) for v in range(1, 7)] == [True] * 4 + [False] * 2
    assert reader.read() is None
    writer.finish_one()
    frame = reader.read()
    assert frame is not None
    assert (frame.version, int(host_array(frame.tensors["image"]).max())) == (1, 1)
    assert not writer.write("image", {"image": image}, META, 7), "the only slot that is free holds the newest frame"
    writer.finish_one()
    assert frame.intact()
    assert writer.write("image", {"image": image + 8}, META, 8)
    assert not frame.intact(), "its slot was the one to write into"
    while writer.pending:
        writer.finish_one()
    newest = reader.read(1)
    assert newest is not None
    assert newest.version == 8
    writer.close()
    reader.close()


def test_a_held_frame_keeps_its_lease(ring: tuple[RingWriter, RingReader], leases: list[int]) -> None:
    writer, reader = ring
    image = torch.zeros(4, 4, dtype=torch.uint8)
    write(writer, image, 1)
    with reader.read() as first:  # type: ignore[union-attr]
        first.hold()
    assert leases[-1] >= 0
    slot = leases[-1]
    assert reader.read(1) is None
    assert leases[-1] == slot, "a poll that finds nothing new changes nothing"
    write(writer, image, 2)
    second = reader.read(1)
    assert second is not None
    assert leases[-1] not in (slot, -1)
    first.close()
    first.close()
    assert leases[-1] not in (slot, -1), "the newer frame goes on being read"
    second.close()
    assert leases[-1] == -1


def test_segments_are_sealed_and_told_apart() -> None:
    writer = RingWriter(64)
    ref = writer.segment.ref
    with pytest.raises(PermissionError):
        os.ftruncate(writer.segment.fd, 10)
    with pytest.raises(PermissionError):
        os.ftruncate(writer.segment.fd, ref.size * 2)
    for forged, message in [
        (SegmentRef(ref.fd, ref.size + PAGE, ref.token), "were announced"),
        (SegmentRef(ref.fd, ref.size, "ring-0000"), "not the segment"),
        (SegmentRef(0, ref.size, ref.token), "not the segment"),
        (SegmentRef(999_999, ref.size, ref.token), "cannot open"),
    ]:
        with pytest.raises(SharingError, match=message):
            RingReader(forged, OwnSource(), lambda slot: None)
    writer.close()
    with pytest.raises(SharingError):
        RingReader(ref, OwnSource(), lambda slot: None)


def test_a_frame_keeps_its_memory_when_both_sides_close() -> None:
    writer = RingWriter(64)
    reader = RingReader(writer.segment.ref, OwnSource(), lambda slot: None)
    write(writer, torch.full((4, 4), 7, dtype=torch.uint8), 1)
    frame = reader.read()
    assert frame is not None
    pixels = host_array(frame.tensors["image"])
    assert frame.intact()
    writer.close()
    assert frame.intact(), "nobody writes there any more"
    reader.close()
    assert not frame.intact(), "nobody looks any more"
    assert (pixels == 7).all()
    frame.close()


def test_who_has_too_many_open_files_is_told_what_to_do(programs: Programs) -> None:
    said, errors = programs.code(FULL).communicate()
    lines = said.splitlines()
    assert [line.split()[0] for line in lines] == ["board", "ring"], errors
    for line in lines:
        assert "cannot map" in line
        assert os.strerror(errno.EMFILE) in line
        assert "Raise the viewer's limit of open files (ulimit -n)" in line


def test_what_cannot_be_mapped_for_another_reason_says_nothing_of_open_files(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"x")
    with open(tmp_path / "short", "rb") as f, pytest.raises(SharingError, match="cannot map 65536 bytes") as refused:
        map_segment(f.fileno(), PAGE, mmap.PROT_READ)
    assert "open files" not in str(refused.value)
