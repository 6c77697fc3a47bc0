"""Images: one tensor, its layout told by its shape."""

from __future__ import annotations

import ctypes
from operator import index
from types import SimpleNamespace
from typing import Any

import torch

from splatview.adapters.tensors import as_tensor, holds_values, is_array, shape_text
from splatview_ipc.kinds.image import IMAGE_CHANNELS, IMAGE_LAYOUTS, axes_of
from splatview_ipc.shm.slot_layout import dtype_name

_DTYPES = (torch.uint8, torch.float16, torch.bfloat16, torch.float32)
_LEGAL_SHAPES = "(H, W), (H, W, 1|3|4) or (1|3|4, H, W)"
_MAX_SIDE = 16384
_RANGE_START, _RANGE_SIZE = 11, 12
"""Of CUpointer_attribute."""
_LEGAL_DTYPES = "uint8 (0 to 255), float16, bfloat16, float32 (0 to 1)"


class ImageLayout:
    """Images of one shape, dtype and device."""

    kind = "image"

    def __init__(self, tensor: torch.Tensor, layout: str):
        self.shape = tuple(tensor.shape)
        self.dtype = dtype_name(tensor)
        self.device = str(tensor.device)
        self.layout = layout
        self._looks = tensor.shape, tensor.dtype, tensor.device
        self._last: tuple[Any, ...] = (None,)
        self._given: dict[str, Any] | None = None
        self._meta: dict[str, Any] = {}

    def match(self, value: Any, meta: dict[str, Any]) -> tuple[tuple[torch.Tensor, ...], dict[str, Any]] | None:
        tensor = value
        if not isinstance(value, torch.Tensor):
            if not is_array(value):
                return None
            tensor = as_tensor(value, "image")
        if (tensor.shape, tensor.dtype, tensor.device) != self._looks or tensor.layout is not torch.strided or (
                not holds_values(tensor)):
            return None
        if self._last[0] is not tensor:
            self._last = (tensor,)
        if meta != self._given:
            self._given, self._meta = meta, {**meta, "layout": self.layout}
        return self._last, self._meta

    def frame(self, tensors: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        return {"image": tensors[0].detach()}


def recognise_image(value: Any, options: dict[str, Any]) -> ImageLayout:
    """Return the layout of an image. `options["layout"]`, "HW", "HWC", "CHW" or "BGR", decides where the shape leaves a
    doubt; without it (3, H, 3) is taken as HWC. Raises TypeError or ValueError."""
    tensor = as_tensor(value, "image")
    shape = shape_text(tensor)
    if tensor.dtype not in _DTYPES:
        mend = {torch.float64: ": use .float()", torch.bool: ": use .byte() * 255"}.get(tensor.dtype, "")
        raise ValueError(f"image of dtype {dtype_name(tensor)}; legal are {_LEGAL_DTYPES}{mend}")
    if tensor.ndim not in (2, 3):
        mend = ": publish one of the batch, image[0]" if tensor.ndim == 4 else ""
        raise ValueError(f"image of shape {shape}; legal are {_LEGAL_SHAPES}{mend}")
    if tensor.numel() == 0:
        raise ValueError(f"image of shape {shape} has no pixels; every side must be at least 1")
    layout = options.get("layout")
    if layout is None:
        layout = ("HW" if tensor.ndim == 2 else "HWC" if tensor.shape[2] in IMAGE_CHANNELS else
                  "CHW" if tensor.shape[0] in IMAGE_CHANNELS else None)
        if layout is None:
            raise ValueError(f"image of shape {shape}; legal are {_LEGAL_SHAPES}")
    elif layout not in IMAGE_LAYOUTS:
        raise ValueError(f"layout is {layout!r}, not one of {', '.join(map(repr, IMAGE_LAYOUTS))}")
    elif len(axes := axes_of(layout)) != tensor.ndim or (
            tensor.ndim == 3 and tensor.shape[axes.index("C")] not in IMAGE_CHANNELS):
        raise ValueError(f"image of shape {shape} is not {layout} with 1, 3 or 4 channels")
    return ImageLayout(tensor, layout)


def picture_at(address: Any, width: Any, height: Any, channels: Any = None) -> torch.Tensor:
    """Return a copy of the (height, width, channels) float32 picture at an address of the CPU's memory or a GPU's.

    channels: 3 or 4, the default. The address has to be right: reading memory that is not there ends the process.
    Raises TypeError, ValueError.
    """
    channels = 4 if channels is None else channels
    for name, value, most in (("data_ptr", address, 2**64 - 1), ("width", width, _MAX_SIDE),
                              ("height", height, _MAX_SIDE), ("channels", channels, 4)):
        try:
            if isinstance(value, bool):
                raise TypeError
            index(value)
        except TypeError:
            raise TypeError(f"{name} is a {type(value).__name__}, not a whole number") from None
        if not (3 if name == "channels" else 1) <= value <= most:
            raise ValueError(f"{name} is {value}; legal are {3 if name == 'channels' else 1} to {most}")
    shape, size = (height, width, channels), height * width * channels * 4
    if torch.cuda.is_initialized():
        from splatview_ipc.cuda import driver

        try:
            with driver.context(torch.cuda.current_device()):
                start, length = (driver.pointer_attribute(a, address) for a in (_RANGE_START, _RANGE_SIZE))
        except driver.CudaError:
            start = length = 0  # not an address of a GPU's memory
        if length:
            if address + size > start + length:
                raise ValueError(f"data_ptr {address:#x}: {size:,} bytes are needed, and "
                                 f"{start + length - address:,} are left of its allocation")
            return torch.as_tensor(SimpleNamespace(__cuda_array_interface__={
                "shape": shape, "typestr": "<f4", "data": (address, False), "version": 3})).clone()
    memory = (ctypes.c_float * (size // 4)).from_address(address)
    return torch.frombuffer(memory, dtype=torch.float32).reshape(shape).clone()
