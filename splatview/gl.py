"""CUDA tensors over OpenGL textures and the reverse, for any OpenGL program.

    frame = splatview.gl.TextureTensor(texture)     # a moderngl texture or renderbuffer
    frame.update()                                  # frame.tensor has what was drawn
    shown = splatview.gl.texture(tensor, ctx)       # shown.texture; shown.update() after the tensor changed

    canvas = splatview.gl.SharedTexture(ctx, size)  # a texture of ours: canvas.texture to draw from or into,
    canvas.write(tensor); canvas.read()             # and the fastest way for tensors into it and out of it

`SharedTexture` needs an NVIDIA GPU and Vulkan; the others work everywhere. Row 0 of a tensor is OpenGL's row 0. Loading
this module loads moderngl; torch is loaded when it is needed.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING

from splatview.api.session import public, untraced
from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl.probe import forced_bridge
from splatview_ipc.gl.shared_texture import SharedTexture
from splatview_ipc.gl.texture_tensor import DTYPES, TextureTensor
from splatview_ipc.shm.slot_layout import dtype_name

if TYPE_CHECKING:
    import moderngl
    import torch

__all__ = ["SharedTexture", "TensorTexture", "TextureTensor", "texture"]


@public(answers=True)
def texture(
    tensor: torch.Tensor, ctx: moderngl.Context, *, explicit: bool = False
) -> TensorTexture:
    """A moderngl texture (`.texture`) with a tensor's content, which `.update()` brings up to date."""
    return TensorTexture(tensor, ctx, explicit=explicit)


class TensorTexture(AbstractContextManager["TensorTexture"]):
    """A texture that follows a tensor."""

    def __init__(
        self,
        tensor: torch.Tensor,
        ctx: moderngl.Context,
        way: str | None = None,
        *,
        explicit: bool = False,
    ) -> None:
        """`tensor`: (H, W) or (H, W, C), C from 1 to 4, uint8, float16 or float32, on any GPU or the CPU.

        A `SharedTexture`, `explicit` as there, where that works and no `way` of `TextureTensor` is named; else a
        `TextureTensor`. Raises ValueError for another tensor.
        """
        shape = tuple(tensor.shape)
        codes = {name: code for code, name in DTYPES.items()}
        if (
            len(shape) not in (2, 3)
            or 0 in shape
            or shape[2:] > (4,)
            or dtype_name(tensor) not in codes
        ):
            raise ValueError(
                f"a {dtype_name(tensor)} tensor {shape}; legal are (H, W) and (H, W, C), C from 1 to 4, "
                f"of {', '.join(codes)}"
            )
        self.tensor = tensor
        size = (shape[1], shape[0])
        components = (*shape, 1)[2]
        dtype = codes[dtype_name(tensor)]
        link: SharedTexture | TextureTensor | None = None
        if way is None and forced_bridge() != "host" and components != 3:
            with suppress(SharingError):
                link = SharedTexture(ctx, size, components, dtype, explicit=explicit)
        self._link = link or TextureTensor(
            ctx.texture(size, components, alignment=1, dtype=dtype), way
        )
        self.way = self._link.way
        """vulkan, register or host."""
        self.texture: moderngl.Texture = self._link.texture  # type: ignore[assignment]
        self.update()

    def update(self) -> None:
        """Bring the tensor's present content into the texture, in the order of the current CUDA stream."""
        self._link.write(
            self.tensor if self.tensor.ndim == 3 else self.tensor.unsqueeze(-1)
        )

    def gl(self) -> AbstractContextManager[moderngl.Texture]:
        """A block in which OpenGL uses the texture, if it is explicit; see `SharedTexture`."""
        if isinstance(self._link, SharedTexture):
            return self._link.gl()
        return nullcontext(self.texture)

    def close(self) -> None:
        """Give back everything, the texture too. Idempotent."""
        self._link.close()
        if not isinstance(self._link, SharedTexture):
            self.texture.release()

    def __exit__(self, *exc: object) -> None:
        self.close()


untraced(SharedTexture, TensorTexture, TextureTensor)
