"""Images: one tensor, its layout told by its shape."""

from __future__ import annotations

import ctypes
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from splatview.adapters import checks
from splatview.adapters.tensors import as_tensor, holds_values, is_array
from splatview_ipc.kinds import image
from splatview_ipc.kinds.image import IMAGE_CHANNELS
from splatview_ipc.shm.slot_layout import dtype_name

_MAX_SIDE = 16384
_RANGE_START = 11
_RANGE_SIZE = 12
"""A value of CUpointer_attribute."""


class ImageLayout:
    """Images of one shape, dtype and device."""

    kind = "image"

    def __init__(self, tensor: torch.Tensor, layout: str):
        self.shape = tuple(tensor.shape)
        self.dtype = dtype_name(tensor)
        self.device = str(tensor.device)
        self.layout = layout
        self._looks = tensor.shape, tensor.dtype, tensor.device

    def match(
        self, value: Any, meta: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if isinstance(
            value, np.ndarray
        ):  # becomes a tensor where a viewer gets it: some strides need a copy
            same = (value.shape, value.dtype.name, "cpu") == (
                self.shape,
                self.dtype,
                self.device,
            )
        elif not is_array(value):
            return None
        else:
            if isinstance(value, torch.Tensor):
                value = value
            else:
                value = as_tensor(value, "image")
            # A nested tensor has no shape.
            same = (
                not value.is_nested
                and (value.shape, value.dtype, value.device) == self._looks
                and value.layout is torch.strided
                and holds_values(value)
            )
        return ((value,), {**meta, "layout": self.layout}) if same else None

    def frame(self, tensors: tuple[Any, ...]) -> dict[str, torch.Tensor]:
        return {"image": as_tensor(tensors[0], "image").detach()}


def recognise_image(value: Any, options: dict[str, Any]) -> ImageLayout:
    """Return the layout of an image. `options["layout"]`, "HW", "HWC", "CHW" or "BGR", decides where the shape leaves a
    doubt; without it (3, H, 3) is taken as HWC. Raises TypeError or ValueError.
    """
    tensor = as_tensor(value, "image")
    layout = options.get("layout") or guessed_layout(tensor)
    image.check(
        {"image": (dtype_name(tensor), tuple(tensor.shape))}, {"layout": layout}
    )
    return ImageLayout(tensor, layout)


def guessed_layout(tensor: torch.Tensor) -> str:
    """Return "HW", "HWC" or "CHW"; "HWC" for a shape that is none."""
    if (
        tensor.ndim == 3
        and tensor.shape[2] not in IMAGE_CHANNELS
        and tensor.shape[0] in IMAGE_CHANNELS
    ):
        return "CHW"
    return "HW" if tensor.ndim == 2 else "HWC"


def picture_at(
    address: Any, width: Any, height: Any, channels: Any = 4
) -> torch.Tensor:
    """Return a copy of the (height, width, channels) float32 picture at an address of the CPU's memory or a GPU's.

    The address has to be right: reading memory that is not there ends the process. Raises TypeError, ValueError.
    """
    address = checks.whole("data_ptr", address, 1, 2**64 - 1)
    shape = (
        checks.whole("height", height, 1, _MAX_SIDE),
        checks.whole("width", width, 1, _MAX_SIDE),
        checks.whole("channels", channels, 3, 4),
    )
    size = math.prod(shape) * 4
    if torch.cuda.is_initialized():
        from splatview_ipc.cuda import driver

        try:
            with driver.context(torch.cuda.current_device()):
                start, length = (
                    driver.pointer_attribute(a, address)
                    for a in (_RANGE_START, _RANGE_SIZE)
                )
        except driver.CudaError:
            # not an address of a GPU's memory
            start = 0
            length = 0
        if length:
            if address + size > start + length:
                raise ValueError(
                    f"data_ptr {address:#x}: {size:,} bytes are needed, and "
                    f"{start + length - address:,} are left of its allocation"
                )
            return torch.as_tensor(
                SimpleNamespace(
                    __cuda_array_interface__={
                        "shape": shape,
                        "typestr": "<f4",
                        "data": (address, False),
                        "version": 3,
                    }
                )
            ).clone()
    memory = (ctypes.c_float * (size // 4)).from_address(address)
    return torch.frombuffer(memory, dtype=torch.float32).reshape(shape).clone()
