"""Rules for the frames of images.

Tensors:

image   (H, W), (H, W, C) or (C, H, W), with C of 1, 3 or 4; uint8, uint16, or floating
        point in [0, 1] (values outside are allowed: HDR). One channel of uint16 holds
        measurements, such as a depth camera's, 0 where there is none

Metadata:

layout  "HW", "HWC" or "CHW", or "BGR": (H, W, C) with blue first, as OpenCV has it
unit    of measurements, optional: a text such as "m"
scale   of measurements, optional: how many of the unit a value of 1 is, 1 without
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_ipc.kinds.rules import check_meta

if TYPE_CHECKING:
    from splatview_ipc.kinds.rules import Meta, Tensors

IMAGE_AXES = {"HW": "HW", "HWC": "HWC", "CHW": "CHW", "BGR": "HWC"}
"""The axes of the tensor, by layout."""
IMAGE_CHANNELS = (1, 3, 4)
IMAGE_DTYPES = ("uint8", "uint16", "float16", "bfloat16", "float32")
MAX_UNIT = 16
"""Characters of a unit."""
MAX_SCALE = 1e9
_INTEGER_ADVICE = ": use .byte() for values from 0 to 255, .float() for 0 to 1"
_DTYPE_ADVICE = {
    "float64": ": use .float()",
    "bool": ": use .byte() * 255",
    "int8": _INTEGER_ADVICE,
    "int16": _INTEGER_ADVICE,
    "int32": _INTEGER_ADVICE,
    "int64": _INTEGER_ADVICE,
}
_SHAPE_ADVICE = {
    0: ": a number for each step is shown by splatview.log(step, loss=value)",
    1: ": give it two sides by .reshape(H, W)",
    4: ": publish one of the batch, image[0]",
}
"""What to do with tensors of so many dimensions."""


def check(tensors: Tensors, meta: Meta) -> None:
    """Raise ValueError unless tensors and metadata make an image."""
    if set(tensors) != {"image"}:
        raise ValueError(f"an image frame holds 'image' alone, not {sorted(tensors)}")
    dtype, shape = tensors["image"]
    layout = meta.get("layout")
    axes = IMAGE_AXES.get(layout) if isinstance(layout, str) else None
    if axes is None:
        raise ValueError(
            f"layout is {layout!r:.60}, not one of {', '.join(map(repr, IMAGE_AXES))}"
        )
    if dtype not in IMAGE_DTYPES:
        raise ValueError(
            f"image of dtype {dtype}; expected uint8 (0 to 255), uint16 (0 to 65535), "
            f"float16, bfloat16, float32 (0 to 1){_DTYPE_ADVICE.get(dtype, '')}"
        )
    if not _is_image_shape(shape, axes):
        advice = _SHAPE_ADVICE.get(len(shape), "")
        raise ValueError(
            f"image of shape {shape}, layout {layout}; expected (H, W), (H, W, 1|3|4) or "
            f"(1|3|4, H, W), no side 0{advice}"
        )
    if holds_measurements(dtype, shape, axes):
        check_measurements(meta)


def holds_measurements(dtype: str, shape: tuple[int, ...], axes: str) -> bool:
    """Return whether the values of an image are measurements, not brightness."""
    return dtype == "uint16" and ("C" not in axes or shape[axes.index("C")] == 1)


def check_measurements(meta: Meta) -> None:
    """Raise ValueError unless metadata says legally what a value of 1 stands for."""
    check_meta(meta, {"unit": (str, 0)})
    unit = meta.get("unit", "")
    if len(unit) > MAX_UNIT or not unit.isprintable():
        raise ValueError(
            f"unit is {unit[:40]!r}; legal are up to {MAX_UNIT} printable characters"
        )
    scale = meta.get("scale", 1.0)
    if type(scale) not in (int, float) or not 0 < scale <= MAX_SCALE:
        raise ValueError(
            f"scale is {scale!r}; legal are numbers over 0, up to {MAX_SCALE:g}: how "
            "many of the unit a value of 1 is"
        )


def _is_image_shape(shape: tuple[int, ...], axes: str) -> bool:
    if len(shape) != len(axes) or min(shape) < 1:
        return False
    return "C" not in axes or shape[axes.index("C")] in IMAGE_CHANNELS
