"""CUDA tensors over OpenGL textures and the reverse, for any OpenGL program.

For example::

    frame = splatview.gl.TextureTensor(texture)   # a moderngl texture or renderbuffer
    frame.update()                                # frame.tensor has what was drawn
    shown = splatview.gl.texture(tensor, ctx)     # shown.texture
    shown.update()                                # after the tensor changed

    canvas = splatview.gl.SharedTexture(ctx, size)   # a texture of ours
    canvas.write(tensor)                             # the fastest way for tensors into it
    canvas.read()                                    # and out of it

`SharedTexture` needs an NVIDIA GPU and Vulkan; the others work everywhere. Row 0 of a
tensor is OpenGL's row 0. Loading this module loads moderngl; torch is loaded when it is
needed.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING

from splatview.api.session import public, untraced
from splatview_ipc.control.dtypes import dtype_name
from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl.probe import forced_bridge
from splatview_ipc.gl.shared_texture import SharedTexture
from splatview_ipc.gl.texture_tensor import DTYPES, TextureTensor

if TYPE_CHECKING:
    import moderngl
    import torch

__all__ = ["SharedTexture", "TensorTexture", "TextureTensor", "texture"]

_MODERNGL_DTYPES = {name: code for code, name in DTYPES.items()}


@public(answers=True)
def texture(
    tensor: torch.Tensor, ctx: moderngl.Context, *, explicit: bool = False
) -> TensorTexture:
    """Return a moderngl texture (`.texture`) with a tensor's content.

    `.update()` brings it up to date.
    """
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
        """Make a texture that holds the tensor's content.

        It is a `SharedTexture` where that works and no `way` is named; else a
        `TextureTensor`.

        Args:
            tensor: (H, W) or (H, W, C), C from 1 to 4, uint8, float16 or float32, on any
                GPU or the CPU.
            ctx: the OpenGL context.
            way: of `TextureTensor`.
            explicit: of `SharedTexture`.

        Raises:
            ValueError: the tensor has another shape or dtype.
        """
        shape = tuple(tensor.shape)
        name = dtype_name(tensor)
        channels = shape[2] if len(shape) == 3 else 1
        is_picture = len(shape) in (2, 3) and 0 not in shape and channels <= 4
        if not is_picture or name not in _MODERNGL_DTYPES:
            raise ValueError(
                f"a {name} tensor {shape}; expected (H, W) or (H, W, C), C from 1 to 4, "
                f"of {', '.join(_MODERNGL_DTYPES)}"
            )
        self.tensor = tensor
        size = (shape[1], shape[0])
        dtype = _MODERNGL_DTYPES[name]
        link: SharedTexture | TextureTensor | None = None
        may_share = way is None and forced_bridge() != "host" and channels != 3
        if may_share:
            with suppress(SharingError):
                link = SharedTexture(ctx, size, channels, dtype, explicit=explicit)
        if link is None:
            gl_texture = ctx.texture(size, channels, alignment=1, dtype=dtype)
            link = TextureTensor(gl_texture, way)
        self._link = link
        self.way = link.way
        """vulkan, register or host."""
        self.texture: moderngl.Texture = link.texture  # type: ignore[assignment]
        self.update()

    def update(self) -> None:
        """Bring the tensor's present content into the texture.

        It is queued in the order of the current CUDA stream.
        """
        tensor = self.tensor
        self._link.write(tensor if tensor.ndim == 3 else tensor.unsqueeze(-1))

    def gl(self) -> AbstractContextManager[moderngl.Texture]:
        """Return a block in which OpenGL uses the texture, if it is explicit.

        See `SharedTexture`.
        """
        if isinstance(self._link, SharedTexture):
            return self._link.gl()
        return nullcontext(self.texture)

    def close(self) -> None:
        """Release everything, the texture too. Idempotent."""
        self._link.close()
        if not isinstance(self._link, SharedTexture):
            self.texture.release()

    def __exit__(self, *exc: object) -> None:
        self.close()


untraced(SharedTexture, TensorTexture, TextureTensor)
