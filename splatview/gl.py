"""CUDA tensors over OpenGL textures and the reverse, for anyone's own OpenGL program.

    frame = splatview.gl.TextureTensor(texture)     # a moderngl texture or renderbuffer
    frame.update()                                  # frame.tensor has what was drawn
    shown = splatview.gl.texture(tensor, ctx)       # shown.texture; shown.update() after the tensor changed

Row 0 of a tensor is OpenGL's row 0. Loading this module loads moderngl; torch is loaded when it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipc.interop.texture_tensor import TensorTexture, TextureTensor

if TYPE_CHECKING:
    import moderngl
    import torch

__all__ = ["TensorTexture", "TextureTensor", "texture"]


def texture(tensor: torch.Tensor, ctx: moderngl.Context) -> TensorTexture:
    """A moderngl texture (`.texture`) with a tensor's content, which `.update()` brings up to date.

    `tensor`: (H, W) or (H, W, C), C from 1 to 4, uint8, float16 or float32; see `TensorTexture` for the errors.
    """
    return TensorTexture(tensor, ctx)
