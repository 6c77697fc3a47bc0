"""CUDA tensors over OpenGL textures and the reverse, for anyone's own OpenGL program.

    frame = splatview.gl.TextureTensor(texture)     # a moderngl texture or renderbuffer
    frame.update()                                  # frame.tensor has what was drawn
    shown = splatview.gl.texture(tensor, ctx)       # shown.texture; shown.update() after the tensor changed

    canvas = splatview.gl.SharedTexture(ctx, size)  # a texture of ours: canvas.texture to draw from or into,
    canvas.write(tensor); canvas.read()             # and the fastest way for tensors into it and out of it;
                                                    # explicit=True: OpenGL uses it in `with canvas.gl():` only, and
                                                    # in between write and read are CUDA alone

Row 0 of a tensor is OpenGL's row 0. Loading this module loads moderngl; torch is loaded when it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_ipc.gl.shared_texture import SharedTexture, TensorTexture
from splatview_ipc.gl.texture_tensor import TextureTensor

if TYPE_CHECKING:
    import moderngl
    import torch

__all__ = ["SharedTexture", "TensorTexture", "TextureTensor", "texture"]


def texture(tensor: torch.Tensor, ctx: moderngl.Context, *, explicit: bool = False) -> TensorTexture:
    """A moderngl texture (`.texture`) with a tensor's content, which `.update()` brings up to date.

    `tensor`: (H, W) or (H, W, C), C from 1 to 4, uint8, float16 or float32. `explicit`: OpenGL uses it in `with
    shown.gl():` only. See `TensorTexture` for the errors.
    """
    return TensorTexture(tensor, ctx, explicit=explicit)
