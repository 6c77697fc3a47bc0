"""The bridge that works everywhere: pictures go through host memory into a texture."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import moderngl
import numpy as np

from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import RemoteTensor
from splatview_ipc.gl.base import DTYPES, Form, local_tensor
from splatview_ipc.gl.sources import TextureSource
from splatview_ipc.shm.slot_layout import dtype_name

if TYPE_CHECKING:
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
        self._begun: torch.Tensor | None = None

    def put(self, tensor: Pixels, layout: str) -> TextureSource:
        if isinstance(tensor, np.ndarray):
            array = tensor
            dtype = tensor.dtype.name
        elif isinstance(tensor, RemoteTensor):
            array = tensor.array
            dtype = tensor.dtype
        else:
            import torch

            values = local_tensor(tensor)
            dtype = dtype_name(values)
            array = (
                (values.view(torch.int16) if dtype == "bfloat16" else values)
                .cpu()
                .numpy()
            )  # NumPy lacks it
        form = Form.of(array.shape, dtype, layout)
        stride = -(-max(form.width, form.height) // self._limit)
        if stride > 1:
            if layout == "CHW":
                array = array[:, ::stride, ::stride]
            else:
                array = array[::stride, ::stride]
            form = Form.of(array.shape, dtype, layout)
        planar = layout == "CHW" and form.channels > 1
        if (
            planar and form.height * form.channels > self._limit
        ):  # a texture is too small for all planes' rows
            array = np.moveaxis(array, 0, -1)
            planar = False
        key = form, planar, stride
        if self._back is None or self._back[0] != key:
            if self._back is not None:
                self._back[1].texture.release()
            size = form.width, form.height * form.channels if planar else form.height
            texture = self._ctx.texture(
                size,
                1 if planar else form.channels,
                alignment=1,
                dtype=DTYPES[dtype].texture,
            )
            texture.filter = (
                moderngl.NEAREST,
                moderngl.NEAREST,
            )  # integers cannot be filtered
            texture.repeat_x = False
            texture.repeat_y = False
            self._back = key, TextureSource(texture, form, planar=planar, stride=stride)
        source = self._back[1]
        source.texture.write(np.ascontiguousarray(array), alignment=1)
        self._front, self._back = self._back, self._front
        return source

    def begin(
        self, height: int, width: int, channels: int = 4, dtype: str = "float16"
    ) -> torch.Tensor:
        import torch

        from splatview_ipc.cuda import driver

        if self._gpu_uuid is None:
            device = torch.cuda.current_device()
        else:
            device = driver.here(self._gpu_uuid)
        self._begun = torch.empty(
            (height, width, channels),
            dtype=getattr(torch, dtype),
            device=torch.device("cuda", device),
        )
        return self._begun

    def show(self, *, finished: bool = False) -> TextureSource:
        drawn = self._begun
        self._begun = None
        if drawn is None:
            raise SharingError("show() without begin()")
        return self.put(drawn, "HWC")

    def undo(self) -> None:
        self._front, self._back = self._back, self._front

    def close(self) -> None:
        for kept in (self._front, self._back):
            if kept is not None:
                kept[1].texture.release()
        self._front = None
        self._back = None
        self._begun = None
