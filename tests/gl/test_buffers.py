"""Pictures in memory read through buffer textures: any strides, offsets and pieces, with few fetches per pixel.

The memory is ordinary OpenGL buffers here; on a GPU the bridges put imported memory in their place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from support.interop_cases import expected, same

from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl.base import Form
from splatview_ipc.gl.buffers import MAX_PIECES, BufferSource, GlMemory, plan_access
from splatview_ipc.gl.sources import read_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    import moderngl

MOST = 1 << 27
MIB = 1 << 20


class Plain(GlMemory):
    """Ordinary OpenGL buffers in place of imported ones."""

    def __init__(self, ctx: moderngl.Context, data: np.ndarray, sizes: Sequence[int]) -> None:
        super().__init__([(-1, size) for size in sizes])
        self.made = [ctx.buffer(part.tobytes()) for part in np.split(data, np.cumsum(sizes)[:-1])]

    def buffer(self, piece: int) -> int:
        return self.made[piece].glo


def access(shape: tuple[int, ...], dtype: str, layout: str, strides: tuple[int, ...] | None = None, offset: int = 0,
           sizes: Sequence[int] = (64 * MIB,), most: int = MOST) -> tuple[str, int]:
    form = Form.of(shape, dtype, layout)
    strides = torch.empty(shape, device="meta").stride() if strides is None else strides
    plan = plan_access(form, strides, offset, sizes, most)
    return plan.fetch, plan.format


def test_pieces_and_limits() -> None:
    sizes = [2 * MIB] * 10
    assert access((512, 1024, 4), "uint8", "HWC", offset=MIB, sizes=sizes) == ("FETCH_TEXEL", 0x8058)
    assert access((512, 1024, 3), "float32", "HWC", offset=MIB, sizes=sizes) == ("FETCH_ELEMENT", 0x822E)
    assert access((512, 1000, 3), "uint8", "HWC", offset=3, sizes=sizes) == ("FETCH_ELEMENT", 0x8229)
    with pytest.raises(SharingError, match=f"spans 9 pieces of memory; a shader reads {MAX_PIECES}"):
        access((2048, 2048, 4), "uint8", "HWC", offset=MIB, sizes=sizes)
    with pytest.raises(SharingError, match="does not lie within 4096 bytes"):
        access((32, 32, 4), "uint8", "HWC", offset=4, sizes=[4096])
    with pytest.raises(SharingError, match="does not lie within"):
        access((32, 32), "float32", "HW", offset=2)
    assert access((256, 256), "uint8", "HW", offset=MIB, most=65536) == ("FETCH_TEXEL", 0x8229), "a part of the memory"
    with pytest.raises(SharingError, match="spans 65792 bytes; this OpenGL's buffer textures have 65536 texels"):
        access((257, 256), "uint8", "HW", most=65536)


@pytest.mark.parametrize("pieces", [1, 3])
def test_any_memory_exactly(ctx: moderngl.Context, pieces: int) -> None:
    """By every way to fetch, in one piece of memory and across the borders of several."""
    data, met = np.random.default_rng(4).integers(0, 256, 3 * 512, np.uint8), set()
    for shape, dtype, layout, strides, offset in (
            ((9, 7, 4), "uint8", "HWC", (28, 4, 1), 64), ((9, 7, 3), "uint8", "HWC", (22, 3, 1), 3),
            ((9, 7, 3), "float16", "HWC", (23, 3, 1), 12), ((3, 9, 7), "float32", "CHW", (70, 7, 1), 256),
            ((9, 7, 2), "bfloat16", "HWC", (2, 20, 1), 4), ((9, 7), "bfloat16", "HW", (1, 12), 100)):
        item = getattr(torch, dtype).itemsize
        memory = Plain(ctx, data, [len(data) // pieces] * pieces)
        source = BufferSource(memory, Form.of(shape, dtype, layout), strides, offset)
        met.add(source.access.fetch)
        end = offset + item * (1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)))
        picture = torch.from_numpy(data[offset:end].copy()).view(getattr(torch, dtype)).as_strided(shape, strides)
        assert same(read_source(ctx, source), expected(picture, layout), dtype), (shape, dtype, layout)
        source.release()
    assert met == {"FETCH_TEXEL", "FETCH_ELEMENT"}
    assert ctx.error == "GL_NO_ERROR"
