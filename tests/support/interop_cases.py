"""Pictures of every layout, dtype, number of channels and strides, and what a shader must see of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import torch

from splatview_ipc.control.frame import DeviceTensor, Piece

DTYPES = ("uint8", "float16", "bfloat16", "float32")
FORMS = [("HW", 1), ("HWC", 1), ("HWC", 2), ("HWC", 3), ("HWC", 4), ("CHW", 1), ("CHW", 2), ("CHW", 3), ("CHW", 4)]
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
        order = {"planar": "CHW" if self.layout == "HWC" else "HWC", "transposed": "WHC"}.get(self.strides, self.layout)
        order = [axis for axis in order if axis in self.layout]
        padding = {"W": 3 if self.strides == "cropped" else 0, "C": 1 if self.strides == "cropped" else 0, "H": 0}
        step = 2 if self.strides == "spread" else 1  # every second column
        skipped = 3 if self.strides == "offset" else 0  # elements before the first
        room = [(sizes[axis] + padding[axis]) * (step if axis == "W" else 1) for axis in order]
        item = getattr(torch, self.dtype).itemsize
        count = int(np.prod(room)) + skipped
        bits = torch.randint(0, 256, (count * item,), generator=generator, dtype=torch.uint8)
        values = bits.to(device).view(getattr(torch, self.dtype))[skipped:].view(room)
        for k, axis in enumerate(order):
            values = values.narrow(k, 0, sizes[axis] * (step if axis == "W" else 1))
        if step > 1:
            values = values[tuple(slice(None, None, step if axis == "W" else 1) for axis in order)]
        return values.permute([order.index(axis) for axis in self.layout])


CASES = [Case(dtype, layout, channels, strides) for (layout, channels), dtype, strides
         in itertools.product(FORMS, DTYPES, STRIDES)]


def expected(tensor: torch.Tensor, layout: str) -> np.ndarray:
    """(H, W, 4) float32: what `stored` gives."""
    values = tensor.detach().cpu().to(torch.float32).numpy()
    if layout == "HW":
        values = values[..., None]
    elif layout == "CHW":
        values = np.moveaxis(values, 0, -1)
    out = np.zeros((*values.shape[:2], 4), np.float32)
    out[..., : values.shape[2]] = values / 255 if tensor.dtype == torch.uint8 else values
    return out


def same(got: np.ndarray, wanted: np.ndarray, dtype: str) -> bool:
    """Integers to the last value, floats to the last bit; a NaN is a NaN."""
    if dtype == "uint8":
        return np.array_equal(np.rint(got * 255), np.rint(wanted * 255)) and float(abs(got - wanted).max()) < 1e-6
    nan = np.isnan(wanted)
    return bool(np.isnan(got[nan]).all()) and np.array_equal(got[~nan].view(np.uint32), wanted[~nan].view(np.uint32))


class OwnMemory:
    """GPU memory of this process, described as if it were another's."""

    def __init__(self, size: int, device: int = 0) -> None:
        from splatview_ipc.cuda.memory import Allocation

        self.allocation = Allocation(size, device)
        self.gpu, self.size = self.allocation.gpu, self.allocation.size
        self._piece = Piece(self.allocation.fd(), self.size)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return (self._piece,)

    def pointer(self) -> int:
        return self.allocation.tensor("uint8", (1,)).data_ptr()

    def tensor(self, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> torch.Tensor:
        return self.allocation.tensor(dtype, shape, offset, strides)

    def close(self) -> None:
        import os

        os.close(self._piece.fd)
        self.allocation.close()

    def device_tensor(self, tensor: torch.Tensor, offset: int = 0) -> DeviceTensor:
        """A copy of a tensor in this memory, with the same strides. `offset` in bytes."""
        dtype, shape, strides = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tuple(tensor.stride())
        self.tensor(dtype, shape, strides, offset).copy_(tensor)
        torch.cuda.synchronize()
        return DeviceTensor(dtype, shape, strides, self, offset)
