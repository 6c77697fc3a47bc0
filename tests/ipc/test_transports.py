"""One conformance suite over every transport, and what rings do with values and memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from support.transports import NAMES, SHAPES, TransportPair, reader_of

from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import RemoteTensor
from splatview_ipc.control.messages import RingRef, SegmentRef
from splatview_ipc.shm.slot_layout import ring_size
from splatview_ipc.transports import TRANSPORTS
from splatview_ipc.transports.cpu_ring import CpuRingReader, CpuRingWriter

COPYING = ("ring", "device-ring", "host")
"""Transports whose frames are slots of a ring."""


def _cases(names: Any) -> list[object]:
    return [
        pytest.param(n, marks=[] if n in ("memory", "ring") else [pytest.mark.cuda])
        for n in names
    ]


@pytest.fixture(params=_cases(NAMES))
def pair(request: pytest.FixtureRequest) -> Iterator[TransportPair]:
    made = TransportPair(request.param)
    yield made
    made.close()


@pytest.fixture(params=_cases(COPYING))
def copying(request: pytest.FixtureRequest) -> Iterator[TransportPair]:
    made = TransportPair(request.param)
    yield made
    made.close()


def test_the_newest_frame_arrives_whole(pair: TransportPair) -> None:
    for version, n in enumerate([5, 1000, 0, 17, 999], 1):
        pair.write(n, version)
        with pair.read(version - 1) as frame:
            assert (frame.kind, frame.version, frame.meta["step"]) == (
                "gaussians",
                version,
                3,
            )
            assert frame.time_ns > 0
            assert frame.on_gpu == (pair.name in ("in-place", "device-ring"))
            for name, tensor in frame.tensors.items():
                values = tensor.to_float32()
                assert tensor.shape == values.shape == (n, *SHAPES[name])
                assert (values == version).all()
            assert frame.intact()
            assert frame.confirmed


def test_it_says_what_fits_and_takes_nothing_else(copying: TransportPair) -> None:
    assert copying.writer.fits(copying.scene(1000, 0))
    assert copying.writer.fits(copying.scene(0, 0))
    assert not copying.writer.fits(copying.scene(5000, 0))
    copying.write(5, 1)
    writer = copying.writer
    assert not writer.write("gaussians", copying.scene(5000, 2), {"step": 3}, 2)
    copying.write(7, 3)  # as soon as the transport takes anything again
    assert copying.read(1).version == 3


def test_an_overwritten_frame_is_known(copying: TransportPair) -> None:
    copying.write(5, 1)
    frame = copying.read()
    for version in range(2, 12):
        copying.write(5, version)
    assert not frame.intact()
    assert copying.reader.torn == 1
    assert copying.read().version == 11


def test_what_was_announced_is_not_trusted(pair: TransportPair) -> None:
    if pair.name == "memory":
        return
    announced: Any = pair.writer.ref
    ref = announced.segment if isinstance(announced, RingRef) else announced.control
    for forged in (
        SegmentRef(ref.token, ref.size * 2),
        SegmentRef("no-such-token", ref.size),
        SegmentRef(ref.token, 9),
    ):
        with pytest.raises(SharingError):
            reader_of("ring", RingRef(forged))
    for name in TRANSPORTS:
        if name not in (
            pair.name,
            *({"ring", "host"} if pair.name in ("ring", "host") else ()),
        ):
            with pytest.raises(SharingError):
                reader_of(name, announced)


def test_a_frame_outlives_both_sides(pair: TransportPair) -> None:
    pair.write(5, 1)
    frame = pair.read()
    tensor = frame.tensors["means"]
    view = tensor.array if isinstance(tensor, RemoteTensor) else tensor.torch()
    pair.writer.close()
    pair.reader.close()
    assert (view == 1).all()
    frame.close()


# ---- rings


@pytest.fixture
def ring() -> Iterator[tuple[CpuRingWriter, CpuRingReader]]:
    writer = CpuRingWriter(200_000, 3)
    reader = reader_of("ring", writer.ref)
    assert isinstance(reader, CpuRingReader)
    yield writer, reader
    reader.close()
    writer.close()


@pytest.mark.parametrize(
    "image",
    [
        *(
            torch.arange(60).reshape(10, 6).to(dtype)
            for dtype in (torch.float16, torch.bfloat16, torch.float32)
        ),
        torch.arange(60, dtype=torch.uint8).reshape(10, 6).t(),
        torch.arange(60, dtype=torch.uint8).reshape(10, 6)[::2, 1:4],
        torch.arange(6, dtype=torch.uint8).expand(5, 6),
        torch.arange(60, dtype=torch.uint8)[7:].reshape(1, 53),
    ],
    ids=[
        "float16",
        "bfloat16",
        "float32",
        "transposed",
        "a part",
        "repeated",
        "from its middle",
    ],
)
def test_values_of_any_dtype_and_strides_and_metadata_arrive(
    ring: tuple[CpuRingWriter, CpuRingReader], image: torch.Tensor
) -> None:
    writer, reader = ring
    meta = {"layout": "HW", "step": 12, "note": "\u00e9", "ok": True, "lr": 0.5}
    writer.write("image", {"image": image}, meta, 5, confirmed=False)
    frame = reader.read()
    assert frame is not None
    with frame:
        assert (frame.version, frame.meta, frame.confirmed) == (5, meta, False)
        assert np.array_equal(
            frame.tensors["image"].to_float32(), image.float().numpy()
        )


def test_slots_by_size() -> None:
    for size, growing, slots in (
        (1, False, 8),
        (8, False, 8),
        (8, True, 4),
        (64, False, 4),
        (64, True, 3),
    ):
        tensors = {"image": torch.empty(size << 20, dtype=torch.uint8, device="meta")}
        assert ring_size(tensors, growing) == (
            size << 20 if not growing else 3 * size << 19,
            slots,
        )


def test_segments_are_sealed_and_withdrawn() -> None:
    writer = CpuRingWriter(64, 3)
    ref = writer.ref
    for size in (10, ref.segment.size * 2):
        with pytest.raises(PermissionError):
            os.ftruncate(writer.segment.fd, size)
    writer.close()
    with pytest.raises(SharingError):
        reader_of("ring", ref)
    unsealed = os.memfd_create("unsealed")
    os.ftruncate(unsealed, ref.segment.size)
    with pytest.raises(SharingError, match="sealed"):
        CpuRingReader(ref, {ref.segment.token: [unsealed]})
    os.close(unsealed)
