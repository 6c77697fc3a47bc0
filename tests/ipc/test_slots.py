"""Segments and rings of slots beyond what all ways have in common: values and strides, seals."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from splatview_ipc.control.errors import SharingError
from splatview_ipc.subscriber.source import OwnSource
from splatview_ipc.transports.cpu_ring import RingReader, RingWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

GPU = "0123456789abcdef" * 2


@pytest.fixture
def ring() -> Iterator[tuple[RingWriter, RingReader]]:
    writer = RingWriter(200_000)
    reader = RingReader(writer.segment.ref, OwnSource(), lambda slot: None)
    yield writer, reader
    reader.close()
    writer.close()


@pytest.mark.parametrize("image", [
    *(torch.arange(60).reshape(10, 6).to(dtype) for dtype in (torch.float16, torch.bfloat16, torch.float32)),
    torch.arange(60, dtype=torch.uint8).reshape(10, 6).t(),
    torch.arange(60, dtype=torch.uint8).reshape(10, 6)[::2, 1:4],
    torch.arange(6, dtype=torch.uint8).expand(5, 6), torch.arange(60, dtype=torch.uint8)[7:].reshape(1, 53),
], ids=["float16", "bfloat16", "float32", "transposed", "a part", "repeated", "from its middle"])
def test_values_of_any_dtype_and_strides_and_metadata_arrive(
        ring: tuple[RingWriter, RingReader], image: torch.Tensor) -> None:
    writer, reader = ring
    meta = {"layout": "HW", "step": 12, "note": "é", "ok": True, "lr": 0.5}
    writer.write("image", {"image": image}, meta, 5)
    frame = reader.read()
    assert frame is not None
    with frame:
        assert (frame.version, frame.meta) == (5, meta)
        assert np.array_equal(frame.tensors["image"].to_float32(), image.float().numpy())


# ---- segments


def test_segments_are_sealed_and_told_apart() -> None:
    writer = RingWriter(64)
    ref = writer.segment.ref
    for size in (10, ref.size * 2):
        with pytest.raises(PermissionError):
            os.ftruncate(writer.segment.fd, size)
    writer.close()
    with pytest.raises(SharingError):
        RingReader(ref, OwnSource(), lambda slot: None)
