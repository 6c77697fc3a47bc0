"""Pictures in memory read through buffer textures: any strides, offsets and pieces, with few fetches per pixel.

The memory is ordinary OpenGL buffers here; on a GPU the bridges put imported memory in their place.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from support.interop_cases import expected, same

from splatview.ipc import SharingError
from splatview.ipc.interop import glapi
from splatview.ipc.interop.base import Form
from splatview.ipc.interop.buffers import ITEM_SIZE, MAX_PIECES, BufferSource, GlMemory, Limits, plan_access
from splatview.ipc.interop.glapi import GL
from splatview.ipc.interop.readback import read_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    import moderngl

LIMITS = Limits(1 << 27, 16)
MIB = 1 << 20


def memory_of(data: np.ndarray, sizes: Sequence[int]) -> GlMemory:
    starts = np.cumsum([0, *sizes])

    def make(piece: int) -> tuple[int, int]:
        gl = GL.current()
        name = gl.generate("glGenBuffers")
        part = np.ascontiguousarray(data[starts[piece]:starts[piece + 1]])
        with gl.bound(glapi.TEXTURE_BUFFER, name):
            gl.glBufferData(glapi.TEXTURE_BUFFER, part.size, part.ctypes.data, glapi.STATIC_DRAW)
        gl.check("glBufferData")
        return name, 0

    return GlMemory(sizes, make)


def access(shape: tuple[int, ...], dtype: str, layout: str, strides: tuple[int, ...] | None = None, offset: int = 0,
           sizes: Sequence[int] = (64 * MIB,), limits: Limits = LIMITS) -> tuple[str, int]:
    form = Form.of(shape, dtype, layout)
    strides = torch.empty(shape, device="meta").stride() if strides is None else strides
    plan = plan_access(form, strides, offset, sizes, limits)
    return plan.fetch, plan.format


@pytest.mark.parametrize("shape, dtype, layout, wanted", [
    ((9, 7, 4), "uint8", "HWC", ("FETCH_TEXEL", 0x8058)),
    ((9, 7, 3), "uint8", "HWC", ("FETCH_WORDS", 0x8236)),
    ((9, 7), "uint8", "HW", ("FETCH_TEXEL", 0x8229)),
    ((9, 7, 4), "float16", "HWC", ("FETCH_TEXEL", 0x881A)),
    ((9, 7, 3), "bfloat16", "HWC", ("FETCH_WORDS", 0x8236)),
    ((9, 7, 3), "float32", "HWC", ("FETCH_TEXEL", 0x8815)),
    ((9, 7, 4), "float32", "HWC", ("FETCH_TEXEL", 0x8814)),
    ((3, 9, 7), "float32", "CHW", ("FETCH_ELEMENT", 0x822E)),
    ((1, 9, 7), "float32", "CHW", ("FETCH_TEXEL", 0x822E)),
])
def test_the_fewest_fetches(shape: tuple[int, ...], dtype: str, layout: str, wanted: tuple[str, int]) -> None:
    assert access(shape, dtype, layout) == wanted


def test_alignment_decides() -> None:
    rows = (28, 4, 1)
    assert access((9, 7, 3), "uint8", "HWC", rows) == ("FETCH_TEXEL", 0x8058), "the fourth value is passed over"
    assert access((9, 7, 4), "uint8", "HWC", rows, offset=2) == ("FETCH_WORDS", 0x8236)
    assert access((9, 7, 4), "float16", "HWC", rows, offset=4) == ("FETCH_WORDS", 0x8236)
    assert access((9, 7, 3), "float32", "HWC", offset=512) == ("FETCH_TEXEL", 0x8815), "its texture starts there"
    assert access((9, 7, 3), "float32", "HWC", limits=Limits(1 << 27, 16, False)) == ("FETCH_ELEMENT", 0x822E)
    assert access((9, 7, 3), "float32", "HWC", offset=4) == ("FETCH_ELEMENT", 0x822E)
    assert access((9, 7, 3), "float32", "HWC", offset=512, limits=Limits(1 << 27, 0)) == ("FETCH_ELEMENT", 0x822E)


def test_little_is_computed_per_pixel(ctx: moderngl.Context) -> None:
    """A picture without gaps that starts where a texture can: one multiplication with addition, the same program for
    every slot of a ring. Another start or stride has a program of its own, and none sees the other's uniforms."""
    form, limits = Form.of((9, 8, 4), "uint8", "HWC"), Limits.of(ctx)
    data = np.random.default_rng(1).integers(0, 256, 1 << 16, np.uint8)
    memory = memory_of(data, [1 << 16])
    places = [(0, 32), (4096, 32), (8192, 48), (4, 32), (4096, 40), (12288, 4096), (4100, 32), (0, 32)]
    defines = []
    for offset, row in places:
        source = BufferSource(memory, form, (row, 4, 1), offset, limits)
        defines.append({*source.defines})
        picture = torch.from_numpy(data[offset:]).as_strided((9, 8, 4), (row, 4, 1))
        assert same(read_source(ctx, source), expected(picture, "HWC"), "uint8"), (offset, row)
    if limits.alignment:
        assert [{"AT_START", "STEP 1"} <= d for d in defines] == [offset % 4096 == 0 for offset, _ in places]
        assert len({frozenset(d) for d in defines}) == 2
    wide = BufferSource(memory, Form.of((2, 3), "uint8", "HW"), (512, 64), 0, limits)
    assert not any(d.startswith("STEP") for d in wide.defines)
    picture = torch.from_numpy(data).as_strided((2, 3), (512, 64))
    assert same(read_source(ctx, wide), expected(picture, "HW"), "uint8")
    memory.release()


def test_pieces_and_limits() -> None:
    sizes = [2 * MIB] * 10
    assert access((512, 1024, 4), "uint8", "HWC", offset=MIB, sizes=sizes) == ("FETCH_TEXEL", 0x8058)
    assert access((512, 1024, 3), "float32", "HWC", offset=MIB, sizes=sizes) == ("FETCH_ELEMENT", 0x822E)
    assert access((512, 1000, 3), "uint8", "HWC", offset=3, sizes=sizes) == ("FETCH_WORDS", 0x8236)
    with pytest.raises(SharingError, match=f"spans 9 pieces of memory; a shader reads {MAX_PIECES}"):
        access((2048, 2048, 4), "uint8", "HWC", offset=MIB, sizes=sizes)
    with pytest.raises(SharingError, match="does not lie within 4096 bytes"):
        access((32, 32, 4), "uint8", "HWC", offset=4, sizes=[4096])
    with pytest.raises(SharingError, match="does not lie within"):
        access((32, 32), "float32", "HW", offset=2)
    few = Limits(65536, 16)
    assert access((256, 256), "uint8", "HW", offset=MIB, limits=few) == ("FETCH_TEXEL", 0x8229), "a part of the memory"
    with pytest.raises(SharingError, match="spans 65792 bytes; this OpenGL's buffer textures have 65536 texels"):
        access((257, 256), "uint8", "HW", limits=few)
    with pytest.raises(SharingError, match="and start where buffers do"):
        access((256, 256), "uint8", "HW", offset=MIB, limits=Limits(65536, 0))


@pytest.mark.exhaustive
def test_any_memory_exactly(ctx: moderngl.Context) -> None:
    """Random pictures: every way to fetch must turn up, and every value be right."""
    choose, bits = random.Random(4), np.random.default_rng(4)
    real, met = Limits.of(ctx), set()
    for trial in range(400):
        dtype, layout = choose.choice(list(ITEM_SIZE)), choose.choice(["HW", "HWC", "CHW"])
        channels = 1 if layout == "HW" else choose.randint(1, 4)
        extent = {"H": choose.randint(1, 11), "W": choose.randint(1, 23), "C": channels}
        shape, item = tuple(extent[axis] for axis in layout), ITEM_SIZE[dtype]
        order = choose.sample(range(len(shape)), len(shape)) if trial % 2 else list(range(len(shape)))
        strides, step = [0] * len(shape), 1
        for axis in reversed(order):
            strides[axis] = step
            step *= shape[axis] + choose.choice([0, 0, 1, 2])
        offset = choose.choice([0, item, 4, 12, 16, 64, 100, 256]) // item * item
        end = offset + item * (1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)))
        pieces = choose.choice([1, 1, 2, 3, 5])
        sizes = [-(-end // (pieces * 64)) * 64] * pieces if pieces > 1 else [end + -end % 4]
        limits = real if trial % 3 or pieces > 1 else Limits(-(-(end - offset) // item) + 16, 16)
        data = bits.integers(0, 256, sum(sizes), np.uint8)
        source = BufferSource(memory_of(data, sizes), Form.of(shape, dtype, layout), tuple(strides), offset, limits)
        met.add((source.access.fetch, dtype, len(source.access.pieces) > 1, source.access.start > 0))
        count = (end - offset) // item
        if dtype == "uint16":
            values = torch.from_numpy(data[offset:end].copy().view(np.uint16).astype(np.float32) / np.float32(65535))
        else:
            values = torch.from_numpy(data[offset:end].copy()).view(getattr(torch, dtype))
        assert values.numel() == count
        wanted = expected(values.as_strided(shape, strides), layout)
        assert same(read_source(ctx, source), wanted, dtype), (trial, shape, dtype, layout, strides, offset, sizes)
        source.memory.release()
    for dtype in ITEM_SIZE:
        for fetch in ("FETCH_TEXEL", "FETCH_ELEMENT", *(["FETCH_WORDS"] if dtype != "float32" else [])):
            assert {(fetch, dtype, False, False), (fetch, dtype, True, False)} <= met, (fetch, dtype)
    assert any(part for *_, part in met)
    assert ctx.error == "GL_NO_ERROR"


def test_textures_are_kept_within_bounds(ctx: moderngl.Context) -> None:
    """Many places in one memory: the buffer textures made for them do not pile up, and older sources still work."""
    data = np.arange(200 * 256, dtype=np.uint32).astype(np.uint8)
    memory, form, limits = memory_of(data, [data.size]), Form(8, 8, 1, "uint8", "HW"), Limits(64, 16)
    sources = [BufferSource(memory, form, (8, 1), k * 256, limits) for k in range(150)]
    assert len(memory._textures) <= 64
    for k in (0, 70, 149):
        wanted = expected(torch.from_numpy(data[k * 256:k * 256 + 64].reshape(8, 8).copy()), "HW")
        assert same(read_source(ctx, sources[k]), wanted, "uint8")
    memory.release()
    memory.release()
    assert ctx.error == "GL_NO_ERROR"
