"""The conformance suite of the bridges from tensors to OpenGL.

Every pixel of every sort of picture is compared.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import moderngl
import numpy as np
import pytest
import torch
from support.frames import remote

from splatview_ipc.control.dtypes import DTYPES
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import DeviceTensor, Piece
from splatview_ipc.cuda.memory import ExportableMemory
from splatview_ipc.gl.base import PICTURE_DTYPES, Bridge, Form, PixelSource
from splatview_ipc.gl.buffers import BufferSource, GlMemory
from splatview_ipc.gl.probe import BRIDGES, AutoBridge, make_canvas, probe
from splatview_ipc.gl.sources import read_source
from splatview_ipc.kinds.image import IMAGE_DTYPES

INTEGERS = {name: int(d.one) for name, d in DTYPES.items() if not d.is_float}
"""Integer dtypes and what a shader sees as 1."""
FORMS = [
    ("HW", 1),
    ("HWC", 1),
    ("HWC", 2),
    ("HWC", 3),
    ("HWC", 4),
    ("CHW", 1),
    ("CHW", 2),
    ("CHW", 3),
    ("CHW", 4),
]
STRIDES = ("contiguous", "cropped", "planar", "transposed", "spread", "offset")
MEMORY_BYTES = 8 << 20
PAGE = 4096
BRIDGE_PARAMS = [
    name if name == "host" else pytest.param(name, marks=pytest.mark.cuda)
    for name in BRIDGES
]


@dataclass(frozen=True)
class Case:
    """A picture as a tensor over a larger storage."""

    dtype: str
    layout: str
    channels: int
    strides: str
    width: int = 13
    height: int = 7

    def tensor(self, seed: int = 0, device: str = "cpu") -> torch.Tensor:
        """Make the picture of random bits.

        Every number, infinities and NaNs are among the floats.
        """
        dtype: torch.dtype = getattr(torch, self.dtype)
        lengths = {"H": self.height, "W": self.width, "C": self.channels}
        axes = self._storage_axes()
        storage_lengths = dict(lengths)
        if self.strides == "cropped":
            storage_lengths["W"] += 3
            storage_lengths["C"] += 1
        column_step = 2 if self.strides == "spread" else 1
        storage_lengths["W"] *= column_step
        skipped = 3 if self.strides == "offset" else 0
        storage_shape = [storage_lengths[axis] for axis in axes]
        count = int(np.prod(storage_shape)) + skipped
        generator = torch.Generator().manual_seed(seed)
        bits = torch.randint(
            0, 256, (count * dtype.itemsize,), generator=generator, dtype=torch.uint8
        )
        values = bits.to(device).view(dtype)[skipped:].view(storage_shape)
        for k, axis in enumerate(axes):
            if axis == "W":
                values = values.narrow(k, 0, lengths[axis] * column_step)
            else:
                values = values.narrow(k, 0, lengths[axis])
        if column_step > 1:
            steps = {"W": column_step}
            values = values[tuple(slice(None, None, steps.get(a, 1)) for a in axes)]
        return values.permute([axes.index(axis) for axis in self.layout])

    def _storage_axes(self) -> list[str]:
        """Return the axes in the order of the storage, the longest step first."""
        order = self.layout
        if self.strides == "planar":
            order = "CHW" if self.layout == "HWC" else "HWC"
        elif self.strides == "transposed":
            order = "WHC"
        return [axis for axis in order if axis in self.layout]


CASES = [
    Case(dtype, layout, channels, strides)
    for (layout, channels), dtype, strides in itertools.product(
        FORMS, IMAGE_DTYPES, STRIDES
    )
]


def expected_pixels(tensor: torch.Tensor, layout: str) -> np.ndarray:
    """Return what `stored` gives: (H, W, 4) float32."""
    values = tensor.detach().cpu().to(torch.float32).numpy()
    if layout == "HW":
        values = values[..., None]
    elif layout == "CHW":
        values = np.moveaxis(values, 0, -1)
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype in INTEGERS:
        values = values / INTEGERS[dtype]
    pixels = np.zeros((*values.shape[:2], 4), np.float32)
    pixels[..., : values.shape[2]] = values
    return pixels


def is_same(pixels: np.ndarray, expected: np.ndarray, dtype: str) -> bool:
    """Compare integers to the last value, floats to the last bit; a NaN is a NaN."""
    if dtype in INTEGERS:
        integer_dtype = INTEGERS[dtype]
        has_same_values = np.array_equal(
            np.rint(pixels * integer_dtype), np.rint(expected * integer_dtype)
        )
        return has_same_values and float(abs(pixels - expected).max()) < 1e-6
    is_nan = np.isnan(expected)
    bits = pixels[~is_nan].view(np.uint32)
    expected_bits = expected[~is_nan].view(np.uint32)
    has_same_nans = bool(np.isnan(pixels[is_nan]).all())
    return has_same_nans and np.array_equal(bits, expected_bits)


@dataclass(frozen=True)
class BridgedPicture:
    """A picture, and the source that a bridge made of it."""

    source: PixelSource
    tensor: torch.Tensor
    layout: str = "HWC"

    def is_exact(self, ctx: moderngl.Context) -> bool:
        """Return whether a shader sees the picture as it is."""
        pixels = read_source(ctx, self.source)
        expected = expected_pixels(self.tensor, self.layout)
        return is_same(pixels, expected, self.source.dtype)


class OwnMemory:
    """GPU memory of this process, described as if it were another's."""

    def __init__(self, size: int, device: int = 0) -> None:
        self.allocation = ExportableMemory(size, device)
        self.gpu = self.allocation.gpu
        self.size = self.allocation.size
        self._piece = Piece(self.allocation.fd(), self.size)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return (self._piece,)

    def pointer(self) -> int:
        return self.allocation.tensor("uint8", (1,)).data_ptr()

    def tensor(
        self, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
    ) -> torch.Tensor:
        return self.allocation.tensor(dtype, shape, offset, strides)

    def close(self) -> None:
        os.close(self._piece.fd)
        self.allocation.close()

    def device_tensor(self, tensor: torch.Tensor, offset: int = 0) -> DeviceTensor:
        """Copy a tensor to a byte offset of this memory, with the same strides."""
        dtype = str(tensor.dtype).removeprefix("torch.")
        shape = tuple(tensor.shape)
        strides = tuple(tensor.stride())
        self.tensor(dtype, shape, strides, offset).copy_(tensor)
        torch.cuda.synchronize()
        return DeviceTensor(dtype, shape, strides, self, offset)


def span_of(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return the elements from the first one of a tensor to its last one, inclusive."""
    lengths = zip(shape, strides, strict=True)
    return sum((length - 1) * stride for length, stride in lengths) + 1


class Giver:
    """Puts pictures where a bridge takes them from."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.memory = OwnMemory(MEMORY_BYTES) if name == "direct" else None
        self._next_offset = 0

    def __call__(self, tensor: torch.Tensor) -> Any:
        if self.name == "host":
            return remote(tensor)
        shape = tensor.shape
        strides = tensor.stride()
        span = span_of(shape, strides)
        if self.memory is None:
            storage = torch.empty(span, dtype=tensor.dtype, device="cuda")
            return storage.as_strided(shape, strides).copy_(tensor)
        size = -(-span * tensor.element_size() // PAGE) * PAGE
        offset = self._next_offset
        if offset + size > MEMORY_BYTES:
            offset = 0
        self._next_offset = offset + size
        return self.memory.device_tensor(tensor, offset)


@pytest.fixture(params=BRIDGE_PARAMS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def bridge(name: str, ctx: moderngl.Context) -> Iterator[Bridge]:
    assert probe(ctx, name) == ""
    new_bridge = BRIDGES[name](ctx)
    yield new_bridge
    new_bridge.close()
    new_bridge.close()
    assert ctx.error == "GL_NO_ERROR"


@pytest.fixture
def give(name: str) -> Iterator[Giver]:
    giver = Giver(name)
    yield giver
    if giver.memory is not None:
        giver.memory.close()


def cases_of_other_sizes() -> list[Case]:
    forms = [("HWC", 3, "uint8"), ("CHW", 3, "float32"), ("HW", 1, "bfloat16")]
    sizes = [(1, 1), (1, 5), (7, 1), (257, 3), (640, 129)]
    return [
        Case(dtype, layout, channels, "contiguous", *size)
        for (layout, channels, dtype), size in itertools.product(forms, sizes)
    ]


def test_every_picture_exactly(
    bridge: Bridge, give: Giver, ctx: moderngl.Context
) -> None:
    for k, case in enumerate([*CASES, *cases_of_other_sizes()]):
        tensor = case.tensor(k)
        source = bridge.put(give(tensor), case.layout)
        assert source.size == (case.width, case.height)
        assert source.channels == case.channels
        assert source.dtype == case.dtype
        assert source.stride == 1
        assert BridgedPicture(source, tensor, case.layout).is_exact(ctx), case


def test_many_updates_and_the_picture_before(
    bridge: Bridge, give: Giver, ctx: moderngl.Context
) -> None:
    case = Case("uint8", "HWC", 4, "contiguous", 61, 33)
    last: BridgedPicture | None = None
    for k in range(20):
        tensor = case.tensor(k)
        picture = BridgedPicture(bridge.put(give(tensor), "HWC"), tensor)
        assert picture.is_exact(ctx), k
        if last is not None:
            assert last.is_exact(ctx), f"the one before {k}"
        last = picture
    assert last is not None
    pixels = read_source(ctx, last.source, (5, 7, 3, 2))
    expected = expected_pixels(last.tensor, "HWC")[7:9, 5:8]
    assert is_same(pixels, expected, "uint8"), "a part"


def test_a_torn_picture_is_undone(
    bridge: Bridge, give: Giver, ctx: moderngl.Context
) -> None:
    tensor = Case("float32", "HWC", 3, "contiguous", 61, 33).tensor(1)
    last = BridgedPicture(bridge.put(give(tensor), "HWC"), tensor)
    for k, width in enumerate((61, 61, 30, 61, 61)):
        torn = Case("float32", "HWC", 3, "contiguous", width, 33)
        read_source(ctx, bridge.put(give(torn.tensor(2 + k)), "HWC"))
        bridge.undo()
        assert last.is_exact(ctx), k


def test_no_picture_is_refused(bridge: Bridge, give: Giver) -> None:
    for shape, layout in (
        ((4, 4, 5), "HWC"),
        ((4, 4), "HWC"),
        ((2, 4, 4, 3), "HWC"),
        ((4, 4, 3), "WHC"),
    ):
        with pytest.raises(SharingError, match="is no picture; expected HW"):
            bridge.put(give(torch.zeros(shape, dtype=torch.uint8)), layout)


def test_a_way_that_cannot_be_forced_is_refused(
    ctx: moderngl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    for forced, message in (
        ("gpu", "expected direct, import, host"),
        ("import", "cannot take such a tensor; host can"),
    ):
        monkeypatch.setenv("SPLATVIEW_INTEROP", forced)
        with pytest.raises(SharingError, match=message):
            AutoBridge(ctx).put(np.zeros((4, 4, 3), np.uint8), "HWC")
    reasons = {name: probe(ctx, name) for name in BRIDGES}
    assert reasons.pop("host") == ""
    if "NVIDIA" not in ctx.info["GL_VENDOR"]:
        assert all("not on an NVIDIA GPU" in reason for reason in reasons.values())
    assert ctx.error == "GL_NO_ERROR"


def test_pictures_larger_than_a_texture(ctx: moderngl.Context) -> None:
    """At a lower resolution, or planes beside each other: nothing is refused."""
    bridge = BRIDGES["host"](ctx)
    bridge._limit = 32
    for layout, shape, stride in (
        ("HW", (100, 40), 4),
        ("CHW", (3, 30, 20), 1),
        ("CHW", (3, 33, 20), 2),
    ):
        pixel_values = np.arange(np.prod(shape), dtype=np.uint32)
        picture = pixel_values.astype(np.uint8).reshape(shape)
        source = bridge.put(picture, layout)
        if layout == "CHW":
            smaller = picture[:, ::stride, ::stride]
        else:
            smaller = picture[::stride, ::stride]
        assert source.stride == stride
        assert BridgedPicture(
            source, torch.from_numpy(smaller.copy()), layout
        ).is_exact(ctx)
    bridge.close()


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["import", "host"])
def test_canvases(
    name: str, ctx: moderngl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shader sees what CUDA draws.

    Several pictures are in flight, sizes change, and the picture before stays.
    """
    monkeypatch.setenv("SPLATVIEW_INTEROP", name)
    canvas = make_canvas(ctx)
    assert canvas.name == name
    last: BridgedPicture | None = None
    sizes = [(61, 33)] * 8 + [(30, 20)] * 3 + [(61, 33)] * 4
    for dtype, channels in (
        ("float16", 4),
        ("uint8", 3),
        ("uint8", 4),
        ("float32", 3),
        ("float32", 1),
    ):
        for k, (width, height) in enumerate(sizes):
            tensor = Case(dtype, "HWC", channels, "contiguous", width, height).tensor(k)
            canvas.begin(height, width, channels, dtype).copy_(tensor.cuda())
            picture = BridgedPicture(canvas.show(), tensor)
            assert picture.source.size == (width, height)
            assert picture.is_exact(ctx), (k, dtype)
            if last is not None:
                assert last.is_exact(ctx), (k, dtype)
            last = picture
    with pytest.raises(SharingError, match=r"show\(\) without begin\(\)"):
        canvas.show()
    canvas.begin(33, 61, 1, "float32").fill_(7)
    canvas.show()
    canvas.undo()
    assert last is not None
    assert last.is_exact(ctx)
    canvas.close()
    canvas.close()
    assert ctx.error == "GL_NO_ERROR"


@pytest.mark.cuda
def test_the_best_canvas_and_bridge_on_a_gpu(ctx: moderngl.Context) -> None:
    """Nothing falls back where OpenGL runs on the GPU."""
    assert not any(probe(ctx, name) for name in BRIDGES)
    canvas = make_canvas(ctx)
    assert canvas.name == "import"
    canvas.close()
    auto = AutoBridge(ctx)
    memory = OwnMemory(1 << 20)
    for tensor, layout, name in (
        (torch.zeros(4, 4, 3, device="cuda"), "HWC", "import"),
        (memory.device_tensor(torch.zeros(4, 4, 3)), "HWC", "direct"),
        (np.zeros((4, 4), np.uint8), "HW", "host"),
    ):
        auto.put(tensor, layout)
        assert auto.name == name
        assert auto.reasons == {}
    auto.close()
    memory.close()


class PlainMemory(GlMemory):
    """Ordinary OpenGL buffers in place of imported ones."""

    def __init__(
        self, ctx: moderngl.Context, data: np.ndarray, sizes: Sequence[int]
    ) -> None:
        super().__init__([(-1, size) for size in sizes])
        chunks = np.split(data, np.cumsum(sizes)[:-1])
        self._plain_buffers = [ctx.buffer(chunk.tobytes()) for chunk in chunks]

    def buffer(self, piece: int) -> int:
        return self._plain_buffers[piece].glo


def test_pixels_of_whole_texels_are_copied_without_a_shader(
    ctx: moderngl.Context,
) -> None:
    data = np.random.default_rng(4).integers(0, 256, 4096, np.uint8)
    memory = PlainMemory(ctx, data, [len(data)])
    for shape, dtype, layout, strides, is_copied in (
        ((9, 7, 4), "uint8", "HWC", (28, 4, 1), True),
        ((9, 7, 4), "uint8", "HWC", (36, 4, 1), True),
        ((9, 7), "float32", "HW", (7, 1), True),
        ((9, 7, 3), "uint8", "HWC", (28, 4, 1), False),
        ((9, 7, 4), "uint8", "HWC", (56, 8, 1), False),
        ((9, 7), "uint8", "HW", (7, 1), False),
    ):
        form = Form.of(shape, dtype, layout)
        offset = 300
        source = BufferSource(memory, form, strides, offset)
        texture = ctx.texture(
            (7, 9), form.channels, dtype=PICTURE_DTYPES[dtype].texture, alignment=1
        )
        assert source.copy_to(texture) == is_copied, shape
        if is_copied:
            item = DTYPES[dtype].item_size
            span = item * span_of(shape, strides)
            values = torch.from_numpy(data[offset : offset + span].copy())
            expected = values.view(getattr(torch, dtype)).as_strided(shape, strides)
            copied = np.frombuffer(texture.read(alignment=1), np.uint8)
            expected_bytes = expected.contiguous().view(torch.uint8).numpy().ravel()
            np.testing.assert_array_equal(copied, expected_bytes)
        source.release()
        texture.release()
    assert ctx.error == "GL_NO_ERROR"


@pytest.mark.parametrize("pieces", [1, 3])
def test_any_memory_exactly(ctx: moderngl.Context, pieces: int) -> None:
    """By every way to fetch, within one piece of memory and across several."""
    data = np.random.default_rng(4).integers(0, 256, 3 * 512, np.uint8)
    fetches = set()
    for shape, dtype_name, layout, strides, offset in (
        ((9, 7, 4), "uint8", "HWC", (28, 4, 1), 64),
        ((9, 7, 3), "uint8", "HWC", (22, 3, 1), 3),
        ((9, 7, 3), "float16", "HWC", (23, 3, 1), 12),
        ((3, 9, 7), "float32", "CHW", (70, 7, 1), 256),
        ((9, 7, 2), "bfloat16", "HWC", (2, 20, 1), 4),
        ((9, 7), "bfloat16", "HW", (1, 12), 100),
    ):
        dtype: torch.dtype = getattr(torch, dtype_name)
        memory = PlainMemory(ctx, data, [len(data) // pieces] * pieces)
        form = Form.of(shape, dtype_name, layout)
        source = BufferSource(memory, form, strides, offset)
        fetches.add(source.access.fetch)
        end = offset + dtype.itemsize * span_of(shape, strides)
        storage = torch.from_numpy(data[offset:end].copy()).view(dtype)
        picture = BridgedPicture(source, storage.as_strided(shape, strides), layout)
        assert picture.is_exact(ctx), (shape, dtype_name, layout)
        source.release()
    assert fetches == {"FETCH_TEXEL", "FETCH_ELEMENT"}
    assert ctx.error == "GL_NO_ERROR"
