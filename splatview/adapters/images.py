"""Images: one tensor, whose shape says how its axes are to be read."""

from __future__ import annotations

import ctypes
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from splatview.adapters import checks
from splatview.adapters.tensors import as_tensor, holds_values, is_array
from splatview_ipc.control.dtypes import dtype_name
from splatview_ipc.kinds import image
from splatview_ipc.kinds.image import IMAGE_AXES, IMAGE_CHANNELS

_MAX_SIDE = 16384
_RANGE_START = 11
_RANGE_SIZE = 12
"""Values of CUpointer_attribute."""


class ImageLayout:
    """The form of images of one shape, dtype and device."""

    kind = "image"

    def __init__(self, tensor: torch.Tensor, layout: str) -> None:
        self.shape = tuple(tensor.shape)
        self.dtype = dtype_name(tensor)
        self.device = str(tensor.device)
        self.layout = layout
        self._holds_measurements = image.holds_measurements(
            self.dtype, self.shape, IMAGE_AXES[layout]
        )
        self._torch_form = (tensor.shape, tensor.dtype, tensor.device)
        self._numpy_form = (self.shape, self.dtype, self.device)

    def match(
        self, value: Any, meta: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Return the tensors and metadata to publish; None for an image of another form.

        A NumPy array is returned as it is: some strides need a copy, which is made where
        a viewer wants the frame.

        Raises ValueError for a unit or scale that cannot be shown.
        """
        if isinstance(value, np.ndarray):
            is_same = (value.shape, value.dtype.name, "cpu") == self._numpy_form
        else:
            if not isinstance(value, torch.Tensor):
                if not is_array(value):
                    return None
                value = as_tensor(value, "image")
            # A nested tensor has no shape.
            is_same = (
                not value.is_nested
                and (value.shape, value.dtype, value.device) == self._torch_form
                and value.layout is torch.strided
                and holds_values(value)
            )
        if not is_same:
            return None
        if self._holds_measurements and meta:
            image.check_measurements(meta)
        return (value,), {**meta, "layout": self.layout}

    def release(self) -> None:
        """Let go of nothing: the last image is not kept here."""

    def frame(self, tensors: tuple[Any, ...]) -> dict[str, torch.Tensor]:
        """Return the tensors of a frame by name, of an image that `match` has checked."""
        picture = tensors[0]
        if not isinstance(picture, torch.Tensor):
            picture = as_tensor(picture, "image")
        return {"image": picture.detach().resolve_neg()}


def recognise_image(value: Any, layout: str | None = None) -> ImageLayout:
    """Return the layout of an image.

    Args:
        value: a tensor, or an array of any library.
        layout: "HW", "HWC", "CHW" or "BGR". None: read off the shape, where (3, H, 3) is
            taken for HWC.

    Raises:
        TypeError: the value is no array.
        ValueError: shape, dtype or device are not those of an image.
    """
    tensor = as_tensor(value, "image")
    if layout is None:
        layout = guessed_layout(tensor)
    shapes = {"image": (dtype_name(tensor), tuple(tensor.shape))}
    image.check(shapes, {"layout": layout})
    return ImageLayout(tensor, layout)


def guessed_layout(tensor: torch.Tensor) -> str:
    """Return "HW", "HWC" or "CHW"; "HWC" for a shape that is none of them."""
    if tensor.ndim == 2:
        return "HW"
    is_channels_last = tensor.ndim != 3 or tensor.shape[2] in IMAGE_CHANNELS
    if not is_channels_last and tensor.shape[0] in IMAGE_CHANNELS:
        return "CHW"
    return "HWC"


def picture_at(
    address: Any, width: Any, height: Any, channels: Any = 4
) -> torch.Tensor:
    """Return a copy of the picture at an address of the CPU's memory or of a GPU's.

    The address has to be right: reading memory that is not there ends the process.

    Args:
        address: the address of the first float32 of (height, width, channels).
        width: in pixels.
        height: in pixels.
        channels: 3 or 4.

    Raises:
        TypeError: a number is none.
        ValueError: a number is out of range, or the GPU's allocation is too small.
    """
    address = checks.integer("data_ptr", address, 1, 2**64 - 1)
    shape = (
        checks.integer("height", height, 1, _MAX_SIDE),
        checks.integer("width", width, 1, _MAX_SIDE),
        checks.integer("channels", channels, 3, 4),
    )
    count = math.prod(shape)
    bytes_left = _gpu_bytes_from(address)
    if bytes_left is None:
        memory = (ctypes.c_float * count).from_address(address)
        return torch.frombuffer(memory, dtype=torch.float32).reshape(shape).clone()
    if count * 4 > bytes_left:
        raise ValueError(
            f"data_ptr {address:#x}: {count * 4:,} bytes are needed, and {bytes_left:,} "
            "are left of its allocation"
        )
    interface = {
        "shape": shape,
        "typestr": "<f4",
        "data": (address, False),
        "version": 3,
    }
    array = SimpleNamespace(__cuda_array_interface__=interface)
    return torch.as_tensor(array).clone()


def _gpu_bytes_from(address: int) -> int | None:
    """Return the bytes of a GPU's allocation from an address on.

    None: the address is not one of the current GPU's memory.
    """
    if not torch.cuda.is_initialized():
        return None
    from splatview_ipc.cuda import driver

    try:
        with driver.context(torch.cuda.current_device()):
            start = driver.pointer_attribute(_RANGE_START, address)
            length = driver.pointer_attribute(_RANGE_SIZE, address)
    except driver.CudaError:
        return None
    if not length:
        return None
    return start + length - address
