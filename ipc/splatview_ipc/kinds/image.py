"""Rules of images.

"image" (H, W), (H, W, C) or (C, H, W), C in 1, 3, 4; uint8, or floating point in [0, 1] (values outside are allowed:
HDR). meta "layout": "HW" | "HWC" | "CHW", or "BGR": (H, W, C) with blue first, as OpenCV has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from splatview_ipc.kinds import Spec

IMAGE_LAYOUTS = ("HW", "HWC", "CHW", "BGR")
IMAGE_CHANNELS = (1, 3, 4)
IMAGE_DTYPES = ("uint8", "float16", "bfloat16", "float32")


def axes_of(layout: str) -> str:
    """Return the axes of an image's tensor in one of IMAGE_LAYOUTS."""
    return "HWC" if layout == "BGR" else layout


def check(tensors: Mapping[str, Spec], meta: Mapping[str, Any]) -> None:
    if set(tensors) != {"image"}:
        raise ValueError(f"an image frame holds 'image' alone, not {sorted(tensors)}")
    dtype, shape = tensors["image"]
    layout = meta.get("layout")
    if layout not in IMAGE_LAYOUTS:
        raise ValueError(f"layout is {layout!r}, not one of {', '.join(map(repr, IMAGE_LAYOUTS))}")
    if dtype not in IMAGE_DTYPES:
        mend = {"float64": ": use .float()", "bool": ": use .byte() * 255"}.get(dtype, "")
        raise ValueError(f"image of dtype {dtype}; legal are uint8 (0 to 255), float16, bfloat16, float32 (0 to 1)"
                         f"{mend}")
    axes = axes_of(layout)
    if len(shape) != len(axes) or min(shape) < 1 or (len(axes) == 3 and shape[axes.index("C")] not in IMAGE_CHANNELS):
        mend = ": publish one of the batch, image[0]" if len(shape) == 4 else ""
        raise ValueError(f"image of shape {shape}, layout {layout}; legal are (H, W), (H, W, 1|3|4) or (1|3|4, H, W), "
                         f"no side 0{mend}")
