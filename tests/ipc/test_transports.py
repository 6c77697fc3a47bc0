"""One conformance suite over every transport, and the values and memory of rings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from support.transports import NAMES, SHAPES, TransportPair, reader_of

from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import RemoteTensor
from splatview_ipc.control.messages import RingRef, SegmentRef
from splatview_ipc.shm.slot_layout import choose_ring_size
from splatview_ipc.transports import TRANSPORTS
from splatview_ipc.transports.cpu_ring import CpuRingReader, CpuRingWriter

_RINGS = ("ring", "device-ring", "host")
"""Transports whose frames are slots of a ring."""
_ON_GPU = ("in-place", "device-ring")
_WITH_REFERENCE = tuple(name for name in NAMES if name != "memory")
_SAME_REFERENCES = ({"ring", "host"},)
"""Transports that cannot be told apart by their references."""


def _mark_cuda(names: tuple[str, ...]) -> list[object]:
    """Return the transports as parameters; most of them need a GPU."""
    params = []
    for name in names:
        marks = [] if name in ("memory", "ring") else [pytest.mark.cuda]
        params.append(pytest.param(name, marks=marks))
    return params


@pytest.fixture(params=_mark_cuda(tuple(NAMES)))
def pair(request: pytest.FixtureRequest) -> Iterator[TransportPair]:
    pair = TransportPair(request.param)
    yield pair
    pair.close()


@pytest.fixture(params=_mark_cuda(_RINGS))
def ring_pair(request: pytest.FixtureRequest) -> Iterator[TransportPair]:
    pair = TransportPair(request.param)
    yield pair
    pair.close()


# -- every transport -------------------------------------------------------------------


def test_newest_frame_arrives_complete(pair: TransportPair) -> None:
    for version, count in enumerate([5, 1000, 0, 17, 999], 1):
        pair.write(count, version)
        with pair.read(version - 1) as frame:
            assert frame.kind == "gaussians"
            assert frame.version == version
            assert frame.meta["step"] == 3
            assert frame.time_ns > 0
            assert frame.on_gpu == (pair.name in _ON_GPU)
            for name, tensor in frame.tensors.items():
                values = tensor.to_float32()
                assert tensor.shape == (count, *SHAPES[name])
                assert values.shape == tensor.shape
                assert (values == version).all()
            assert frame.intact()
            assert frame.confirmed


def _forged_segments(ref: SegmentRef) -> list[SegmentRef]:
    return [
        SegmentRef(ref.token, ref.size * 2),
        SegmentRef("no-such-token", ref.size),
        SegmentRef(ref.token, 9),
    ]


def _is_readable_by(name: str, written_by: str) -> bool:
    if name == written_by:
        return True
    return any({name, written_by} <= names for names in _SAME_REFERENCES)


@pytest.mark.parametrize("pair", _mark_cuda(_WITH_REFERENCE), indirect=True)
def test_forged_and_foreign_references_are_refused(pair: TransportPair) -> None:
    announced: Any = pair.writer.ref
    if isinstance(announced, RingRef):
        segment = announced.segment
    else:
        segment = announced.control
    for forged in _forged_segments(segment):
        with pytest.raises(SharingError):
            reader_of("ring", RingRef(forged))
    for name in TRANSPORTS:
        if not _is_readable_by(name, pair.name):
            with pytest.raises(SharingError):
                reader_of(name, announced)


def test_frame_outlives_its_writer_and_reader(pair: TransportPair) -> None:
    pair.write(5, 1)
    frame = pair.read()
    tensor = frame.tensors["means"]
    view = tensor.array if isinstance(tensor, RemoteTensor) else tensor.torch()
    pair.writer.close()
    pair.reader.close()
    assert (view == 1).all()
    frame.close()


# -- transports with rings -------------------------------------------------------------


def test_writer_says_if_tensors_fit_and_refuses_larger_ones(
    ring_pair: TransportPair,
) -> None:
    writer = ring_pair.writer
    too_large = ring_pair.scene(5000, 2)
    assert writer.fits(ring_pair.scene(1000, 0))
    assert writer.fits(ring_pair.scene(0, 0))
    assert not writer.fits(too_large)
    ring_pair.write(5, 1)
    writer = ring_pair.writer
    assert not writer.write("gaussians", too_large, {"step": 3}, 2)
    # It goes on with tensors that fit.
    ring_pair.write(7, 3)
    assert ring_pair.read(1).version == 3


def test_ring_is_read_in_the_order_of_versions(ring_pair: TransportPair) -> None:
    last_version = 0
    for version in range(1, 4):
        ring_pair.write(10, version)
    for version in range(1, 4):
        frame = ring_pair.reader.read_next(last_version)
        assert frame is not None
        with frame:
            assert frame.version == version
        last_version = version
    assert ring_pair.reader.read_next(last_version) is None
    for version in range(4, 40):
        ring_pair.write(10, version)
    # What was overwritten is left out.
    frame = ring_pair.reader.read_next(3)
    assert frame is not None
    with frame:
        assert 4 < frame.version <= 39


def test_overwritten_frame_is_not_intact_and_counted_as_torn(
    ring_pair: TransportPair,
) -> None:
    ring_pair.write(5, 1)
    frame = ring_pair.read()
    for version in range(2, 12):
        ring_pair.write(5, version)
    assert not frame.intact()
    assert ring_pair.reader.torn == 1
    assert ring_pair.read().version == 11


# -- rings in host memory --------------------------------------------------------------


class _Ring(NamedTuple):
    writer: CpuRingWriter
    reader: CpuRingReader


@pytest.fixture
def ring() -> Iterator[_Ring]:
    writer = CpuRingWriter(200_000, 3)
    reader = reader_of("ring", writer.ref)
    assert isinstance(reader, CpuRingReader)
    yield _Ring(writer, reader)
    reader.close()
    writer.close()


def _bytes_up_to(count: int) -> torch.Tensor:
    return torch.arange(count, dtype=torch.uint8)


@pytest.mark.parametrize(
    "image",
    [
        torch.arange(65476, 65536).reshape(10, 6).to(torch.uint16),
        torch.arange(60).reshape(10, 6).to(torch.float16),
        torch.arange(60).reshape(10, 6).to(torch.bfloat16),
        torch.arange(60).reshape(10, 6).to(torch.float32),
        _bytes_up_to(60).reshape(10, 6).t(),
        _bytes_up_to(60).reshape(10, 6)[::2, 1:4],
        _bytes_up_to(6).expand(5, 6),
        _bytes_up_to(60)[7:].reshape(1, 53),
    ],
    ids=[
        "uint16",
        "float16",
        "bfloat16",
        "float32",
        "transposed",
        "cropped",
        "repeated",
        "with an offset",
    ],
)
def test_values_of_any_dtype_and_strides_arrive_with_metadata(
    ring: _Ring, image: torch.Tensor
) -> None:
    meta = {"layout": "HW", "step": 12, "note": "\u00e9", "ok": True, "lr": 0.5}
    ring.writer.write("image", {"image": image}, meta, 5, confirmed=False)
    frame = ring.reader.read()
    assert frame is not None
    with frame:
        assert frame.version == 5
        assert frame.meta == meta
        assert not frame.confirmed
        values = frame.tensors["image"].to_float32()
        assert np.array_equal(values, image.float().numpy())


@pytest.mark.parametrize(
    ("mebibytes", "growing", "capacity", "slots"),
    [
        (1, False, 1 << 20, 8),
        (8, False, 8 << 20, 8),
        (8, True, 12 << 20, 4),
        (64, False, 64 << 20, 4),
        (64, True, 96 << 20, 3),
    ],
)
def test_slots_by_size(
    mebibytes: int, growing: bool, capacity: int, slots: int
) -> None:
    image = torch.empty(mebibytes << 20, dtype=torch.uint8, device="meta")
    assert choose_ring_size({"image": image}, growing) == (capacity, slots)


def test_segment_cannot_be_resized_and_is_withdrawn_when_closed() -> None:
    writer = CpuRingWriter(64, 3)
    ref = writer.ref
    for size in (10, ref.segment.size * 2):
        with pytest.raises(PermissionError):
            os.ftruncate(writer.segment.fd, size)
    writer.close()
    with pytest.raises(SharingError):
        reader_of("ring", ref)


def test_unsealed_segment_is_refused() -> None:
    writer = CpuRingWriter(64, 3)
    ref = writer.ref
    unsealed = os.memfd_create("unsealed")
    os.ftruncate(unsealed, ref.segment.size)
    with pytest.raises(SharingError, match="sealed"):
        CpuRingReader(ref, {ref.segment.token: [unsealed]})
    os.close(unsealed)
    writer.close()
