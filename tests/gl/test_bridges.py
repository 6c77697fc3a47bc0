"""The conformance suite of the bridges from tensors to OpenGL: every pixel of every sort of picture."""

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

from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import DeviceTensor, Piece
from splatview_ipc.cuda.memory import Allocation
from splatview_ipc.gl.base import Bridge, Form
from splatview_ipc.gl.buffers import BufferSource, GlMemory
from splatview_ipc.gl.probe import BRIDGES, AutoBridge, make_canvas, probe
from splatview_ipc.gl.sources import read_source

DTYPES = ("uint8", "float16", "bfloat16", "float32")
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
        """Its storage is filled with random bits: every number, infinities and NaNs are among the floats."""
        generator = torch.Generator().manual_seed(seed)
        sizes = {"H": self.height, "W": self.width, "C": self.channels}
        order = {
            "planar": "CHW" if self.layout == "HWC" else "HWC",
            "transposed": "WHC",
        }.get(self.strides, self.layout)
        order = [axis for axis in order if axis in self.layout]
        padding = {
            "W": 3 if self.strides == "cropped" else 0,
            "C": 1 if self.strides == "cropped" else 0,
            "H": 0,
        }
        step = 2 if self.strides == "spread" else 1  # every second column
        skipped = 3 if self.strides == "offset" else 0  # elements before the first
        room = [
            (sizes[axis] + padding[axis]) * (step if axis == "W" else 1)
            for axis in order
        ]
        item = getattr(torch, self.dtype).itemsize
        count = int(np.prod(room)) + skipped
        bits = torch.randint(
            0, 256, (count * item,), generator=generator, dtype=torch.uint8
        )
        values = bits.to(device).view(getattr(torch, self.dtype))[skipped:].view(room)
        for k, axis in enumerate(order):
            values = values.narrow(k, 0, sizes[axis] * (step if axis == "W" else 1))
        if step > 1:
            values = values[
                tuple(slice(None, None, step if axis == "W" else 1) for axis in order)
            ]
        return values.permute([order.index(axis) for axis in self.layout])


CASES = [
    Case(dtype, layout, channels, strides)
    for (layout, channels), dtype, strides in itertools.product(FORMS, DTYPES, STRIDES)
]


def expected(tensor: torch.Tensor, layout: str) -> np.ndarray:
    """(H, W, 4) float32: what `stored` gives."""
    values = tensor.detach().cpu().to(torch.float32).numpy()
    if layout == "HW":
        values = values[..., None]
    elif layout == "CHW":
        values = np.moveaxis(values, 0, -1)
    out = np.zeros((*values.shape[:2], 4), np.float32)
    out[..., : values.shape[2]] = (
        values / 255 if tensor.dtype == torch.uint8 else values
    )
    return out


def same(got: np.ndarray, wanted: np.ndarray, dtype: str) -> bool:
    """Integers to the last value, floats to the last bit; a NaN is a NaN."""
    if dtype == "uint8":
        return (
            np.array_equal(np.rint(got * 255), np.rint(wanted * 255))
            and float(abs(got - wanted).max()) < 1e-6
        )
    nan = np.isnan(wanted)
    return bool(np.isnan(got[nan]).all()) and np.array_equal(
        got[~nan].view(np.uint32), wanted[~nan].view(np.uint32)
    )


class OwnMemory:
    """GPU memory of this process, described as if it were another's."""

    def __init__(self, size: int, device: int = 0) -> None:
        self.allocation = Allocation(size, device)
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
        """A copy of a tensor in this memory, with the same strides. `offset` in bytes."""
        dtype = str(tensor.dtype).removeprefix("torch.")
        shape = tuple(tensor.shape)
        strides = tuple(tensor.stride())
        self.tensor(dtype, shape, strides, offset).copy_(tensor)
        torch.cuda.synchronize()
        return DeviceTensor(dtype, shape, strides, self, offset)


EVERY = [
    name if name == "host" else pytest.param(name, marks=pytest.mark.cuda)
    for name in BRIDGES
]
MEMORY = 8 << 20


class Giver:
    """Puts pictures where a bridge takes them from."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.place = 0
        self.memory = OwnMemory(MEMORY) if name == "direct" else None

    def __call__(self, tensor: torch.Tensor) -> Any:
        if self.name == "host":
            return remote(tensor)
        shape = tensor.shape
        strides = tensor.stride()
        span = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1
        if self.memory is None:
            return (
                torch.empty(span, dtype=tensor.dtype, device="cuda")
                .as_strided(shape, strides)
                .copy_(tensor)
            )
        size = -(-span * tensor.element_size() // 4096) * 4096
        at = self.place if self.place + size <= MEMORY else 0
        self.place = at + size
        return self.memory.device_tensor(tensor, at)


@pytest.fixture(params=EVERY)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def bridge(name: str, ctx: moderngl.Context) -> Iterator[Bridge]:
    assert probe(ctx, name) == ""
    made = BRIDGES[name](ctx)
    yield made
    made.close()
    made.close()
    assert ctx.error == "GL_NO_ERROR"


@pytest.fixture
def give(name: str) -> Iterator[Giver]:
    giver = Giver(name)
    yield giver
    if giver.memory is not None:
        giver.memory.close()


def test_every_picture_exactly(
    bridge: Bridge, give: Giver, ctx: moderngl.Context
) -> None:
    sizes = [
        Case(dtype, layout, channels, "contiguous", *size)
        for layout, channels, dtype in (
            ("HWC", 3, "uint8"),
            ("CHW", 3, "float32"),
            ("HW", 1, "bfloat16"),
        )
        for size in ((1, 1), (1, 5), (7, 1), (257, 3), (640, 129))
    ]
    for k, case in enumerate([*CASES, *sizes]):
        tensor = case.tensor(k)
        source = bridge.put(give(tensor), case.layout)
        assert (source.size, source.channels, source.dtype, source.stride) == (
            (case.width, case.height),
            case.channels,
            case.dtype,
            1,
        )
        assert same(
            read_source(ctx, source), expected(tensor, case.layout), case.dtype
        ), case


def test_many_updates_and_the_picture_before(
    bridge: Bridge, give: Giver, ctx: moderngl.Context
) -> None:
    case = Case("uint8", "HWC", 4, "contiguous", 61, 33)
    before = None
    for k in range(20):
        tensor = case.tensor(k)
        source = bridge.put(give(tensor), "HWC")
        assert same(read_source(ctx, source), expected(tensor, "HWC"), "uint8"), k
        if before is not None:
            assert same(
                read_source(ctx, before[0]), expected(before[1], "HWC"), "uint8"
            ), f"the one before {k}"
        before = source, tensor
    assert before is not None
    assert same(
        read_source(ctx, before[0], (5, 7, 3, 2)),
        expected(before[1], "HWC")[7:9, 5:8],
        "uint8",
    ), "a part"


def test_a_torn_picture_is_undone(
    bridge: Bridge, give: Giver, ctx: moderngl.Context
) -> None:
    case = Case("float32", "HWC", 3, "contiguous", 61, 33)
    kept = bridge.put(give(case.tensor(1)), "HWC")
    for k, width in enumerate((61, 61, 30, 61, 61)):
        torn = Case("float32", "HWC", 3, "contiguous", width, 33)
        read_source(ctx, bridge.put(give(torn.tensor(2 + k)), "HWC"))
        bridge.undo()
        assert same(
            read_source(ctx, kept), expected(case.tensor(1), "HWC"), "float32"
        ), k


def test_no_picture_is_refused(bridge: Bridge, give: Giver) -> None:
    for shape, layout in (
        ((4, 4, 5), "HWC"),
        ((4, 4), "HWC"),
        ((2, 4, 4, 3), "HWC"),
        ((4, 4, 3), "WHC"),
    ):
        with pytest.raises(SharingError, match="is no picture; legal are HW"):
            bridge.put(give(torch.zeros(shape, dtype=torch.uint8)), layout)


def test_a_way_that_cannot_be_forced_is_refused(
    ctx: moderngl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    for way, words in (
        ("gpu", "legal are direct, import, host"),
        ("import", "cannot take such a tensor; host can"),
    ):
        monkeypatch.setenv("SPLATVIEW_INTEROP", way)
        with pytest.raises(SharingError, match=words):
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
        picture = (
            np.arange(np.prod(shape), dtype=np.uint32).astype(np.uint8).reshape(shape)
        )
        source = bridge.put(picture, layout)
        if layout == "CHW":
            kept = picture[:, ::stride, ::stride]
        else:
            kept = picture[::stride, ::stride]
        assert source.stride == stride
        assert same(
            read_source(ctx, source),
            expected(torch.from_numpy(kept.copy()), layout),
            "uint8",
        )
    bridge.close()


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["import", "host"])
def test_canvases(
    name: str, ctx: moderngl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What CUDA draws is what a shader sees, several pictures in flight, sizes changing; the one before stays."""
    monkeypatch.setenv("SPLATVIEW_INTEROP", name)
    canvas = make_canvas(ctx)
    assert canvas.name == name
    before = None
    sizes = [(61, 33)] * 8 + [(30, 20)] * 3 + [(61, 33)] * 4
    for dtype, channels in (
        ("float16", 4),
        ("uint8", 3),
        ("uint8", 4),
        ("float32", 3),
        ("float32", 1),
    ):
        for k, (w, h) in enumerate(sizes):
            drawn = Case(dtype, "HWC", channels, "contiguous", w, h).tensor(k)
            canvas.begin(h, w, channels, dtype).copy_(drawn.cuda())
            source = canvas.show()
            assert source.size == (w, h)
            assert same(read_source(ctx, source), expected(drawn, "HWC"), dtype), (
                k,
                dtype,
            )
            if before is not None:
                assert same(
                    read_source(ctx, before[0]),
                    expected(before[1], "HWC"),
                    before[0].dtype,
                ), (k, dtype)
            before = source, drawn
    with pytest.raises(SharingError, match=r"show\(\) without begin\(\)"):
        canvas.show()
    canvas.begin(33, 61, 1, "float32").fill_(7)
    canvas.show()
    canvas.undo()
    assert before is not None
    assert same(
        read_source(ctx, before[0]), expected(before[1], "HWC"), before[0].dtype
    )
    canvas.close()
    canvas.close()
    assert ctx.error == "GL_NO_ERROR"


@pytest.mark.cuda
def test_the_best_canvas_and_bridge_on_a_gpu(ctx: moderngl.Context) -> None:
    """Where OpenGL runs on the GPU nothing falls back."""
    assert not any(probe(ctx, name) for name in BRIDGES)
    canvas = make_canvas(ctx)
    assert canvas.name == "import"
    canvas.close()
    auto = AutoBridge(ctx)
    auto.put(torch.zeros(4, 4, 3, device="cuda"), "HWC")
    assert (auto.name, auto.reasons) == ("import", {})
    memory = OwnMemory(1 << 20)
    auto.put(memory.device_tensor(torch.zeros(4, 4, 3)), "HWC")
    assert (auto.name, auto.reasons) == ("direct", {})
    auto.put(np.zeros((4, 4), np.uint8), "HW")
    assert (auto.name, auto.reasons) == ("host", {})
    auto.close()
    memory.close()


class Plain(GlMemory):
    """Ordinary OpenGL buffers in place of imported ones."""

    def __init__(
        self, ctx: moderngl.Context, data: np.ndarray, sizes: Sequence[int]
    ) -> None:
        super().__init__([(-1, size) for size in sizes])
        self.made = [
            ctx.buffer(part.tobytes()) for part in np.split(data, np.cumsum(sizes)[:-1])
        ]

    def buffer(self, piece: int) -> int:
        return self.made[piece].glo


@pytest.mark.parametrize("pieces", [1, 3])
def test_any_memory_exactly(ctx: moderngl.Context, pieces: int) -> None:
    """By every way to fetch, in one piece of memory and across the borders of several."""
    data = np.random.default_rng(4).integers(0, 256, 3 * 512, np.uint8)
    met = set()
    for shape, dtype, layout, strides, offset in (
        ((9, 7, 4), "uint8", "HWC", (28, 4, 1), 64),
        ((9, 7, 3), "uint8", "HWC", (22, 3, 1), 3),
        ((9, 7, 3), "float16", "HWC", (23, 3, 1), 12),
        ((3, 9, 7), "float32", "CHW", (70, 7, 1), 256),
        ((9, 7, 2), "bfloat16", "HWC", (2, 20, 1), 4),
        ((9, 7), "bfloat16", "HW", (1, 12), 100),
    ):
        item = getattr(torch, dtype).itemsize
        memory = Plain(ctx, data, [len(data) // pieces] * pieces)
        source = BufferSource(memory, Form.of(shape, dtype, layout), strides, offset)
        met.add(source.access.fetch)
        end = offset + item * (
            1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        )
        picture = (
            torch.from_numpy(data[offset:end].copy())
            .view(getattr(torch, dtype))
            .as_strided(shape, strides)
        )
        assert same(read_source(ctx, source), expected(picture, layout), dtype), (
            shape,
            dtype,
            layout,
        )
        source.release()
    assert met == {"FETCH_TEXEL", "FETCH_ELEMENT"}
    assert ctx.error == "GL_NO_ERROR"
