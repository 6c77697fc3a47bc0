"""The bridge that works everywhere: pictures go through host memory into a texture."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import RemoteTensor
from splatview_ipc.gl.base import Form, dtype_name, local_tensor
from splatview_ipc.gl.sources import TextureSource, picture_texture

if TYPE_CHECKING:
    import moderngl
    import torch

    from splatview_ipc.gl.base import Pixels


class HostBridge:
    """Two textures that take turns, so that a picture found torn leaves the one before alone.

    A picture larger than a texture can be is shown at a lower resolution. Also a canvas, for CUDA and OpenGL on
    different devices.
    """

    name: ClassVar[str] = "host"

    def __init__(self, ctx: moderngl.Context, gpu_uuid: str | None = None) -> None:
        """`gpu_uuid`: the GPU for `begin`; by default CUDA's current device."""
        self._ctx = ctx
        self._gpu_uuid = gpu_uuid
        self._limit = int(ctx.info["GL_MAX_TEXTURE_SIZE"])
        self._front: tuple[object, TextureSource] | None = None
        self._back: tuple[object, TextureSource] | None = None
        self._drawn: torch.Tensor | None = None
        self._begun = False

    def put(self, tensor: Pixels, layout: str) -> TextureSource:
        if isinstance(tensor, np.ndarray):
            array, dtype = tensor, tensor.dtype.name
        elif isinstance(tensor, RemoteTensor):
            array, dtype = tensor.array, tensor.dtype
        else:
            import torch

            values = local_tensor(tensor)
            dtype = dtype_name(values)
            array = (values.view(torch.int16) if dtype == "bfloat16" else values).cpu().numpy()  # NumPy lacks it
        form = Form.of(array.shape, dtype, layout)
        stride = -(-max(form.width, form.height) // self._limit)
        if stride > 1:
            array = array[:, ::stride, ::stride] if layout == "CHW" else array[::stride, ::stride]
        fitted = Form.of(array.shape, dtype, layout)
        planar = layout == "CHW" and form.channels > 1
        if planar and fitted.height * fitted.channels > self._limit:  # a texture is too small for all planes' rows
            array, planar = np.moveaxis(array, 0, -1), False
            fitted = replace(fitted, layout="HWC")
        key = fitted, planar, stride
        if self._back is None or self._back[0] != key:
            if self._back is not None:
                self._back[1].texture.release()
            texture = picture_texture(self._ctx, fitted, planar=planar)
            self._back = key, TextureSource(texture, fitted, planar=planar, stride=stride)
        source = self._back[1]
        source.texture.write(np.ascontiguousarray(array), alignment=1)
        self._front, self._back = self._back, self._front
        return source

    def begin(self, height: int, width: int, channels: int = 4, dtype: str = "float16") -> torch.Tensor:
        import torch

        from splatview_ipc.cuda import driver

        kind = getattr(torch, dtype)
        if self._drawn is None or self._drawn.shape != (height, width, channels) or self._drawn.dtype != kind:
            device = torch.cuda.current_device() if self._gpu_uuid is None else driver.here(self._gpu_uuid)
            self._drawn = torch.empty((height, width, channels), dtype=kind, device=torch.device("cuda", device))
        self._begun = True
        return self._drawn

    def show(self, *, finished: bool = False) -> TextureSource:
        if self._drawn is None or not self._begun:
            raise SharingError("show() without begin()")
        self._begun = False
        return self.put(self._drawn, "HWC")

    def undo(self) -> None:
        self._front, self._back = self._back, self._front

    def close(self) -> None:
        for kept in (self._front, self._back):
            if kept is not None:
                kept[1].texture.release()
        self._front = self._back = self._drawn = None
        self._begun = False
