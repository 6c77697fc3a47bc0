"""Pictures over a background, as bytes, by one kernel."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch

from splatview_viewer.render.gsplat.cuda import blocks

if TYPE_CHECKING:
    from splatview_viewer.core.settings import Color
    from splatview_viewer.render.gsplat.cuda import Launcher

_THREADS = 256


class _Background(ctypes.Structure):
    """Mirrors `Background` in bytes.cu."""

    _fields_ = (("rgb", ctypes.c_float * 3),)


def over_background(
    rgba: torch.Tensor, background: Color, launcher: Launcher
) -> torch.Tensor:
    """Return a picture over RGB in [0, 1] as uint8 (H, W, 3), on the current stream.

    Args:
        rgba: (H, W, 4) float16 or float32, colour, premultiplied, and alpha; contiguous.
        background: the colour behind it.
        launcher: launches the kernels of bytes.cu.
    """
    height, width, _ = rgba.shape
    rgb = torch.empty((height, width, 3), dtype=torch.uint8, device=rgba.device)
    pixels = height * width
    launcher.launch(
        "over_background",
        blocks(pixels, _THREADS),
        _THREADS,
        rgba,
        ctypes.c_int(rgba.element_size()),
        ctypes.c_int64(pixels),
        _Background((ctypes.c_float * 3)(*background)),
        rgb,
    )
    return rgb
