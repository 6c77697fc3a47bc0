"""The bridge that works everywhere: pictures go through host memory into a texture."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

import moderngl
import numpy as np

from splatview_ipc.control.dtypes import dtype_name
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import RemoteTensor
from splatview_ipc.gl.base import PICTURE_DTYPES, Form, local_tensor
from splatview_ipc.gl.sources import TextureSource

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from splatview_ipc.gl.base import Pixels


class _TextureKey(NamedTuple):
    """The facts that a texture depends on."""

    form: Form
    is_planar: bool
    stride: int


class _Upload(NamedTuple):
    """A texture that pictures are uploaded into."""

    key: _TextureKey
    source: TextureSource


class HostBridge:
    """Uploads pictures into two textures that take turns.

    A picture that is found torn leaves the one before alone. A picture larger than a
    texture can be is shown at a lower resolution. Also a canvas, for CUDA and OpenGL on
    different devices.
    """

    name: ClassVar[str] = "host"

    def __init__(self, ctx: moderngl.Context, gpu_uuid: str | None = None) -> None:
        """Make a bridge without textures.

        Args:
            ctx: the OpenGL context.
            gpu_uuid: the GPU for `begin`; by default CUDA's current device.
        """
        self._ctx = ctx
        self._gpu_uuid = gpu_uuid
        self._limit = int(ctx.info["GL_MAX_TEXTURE_SIZE"])
        self._front: _Upload | None = None
        """The last picture."""
        self._back: _Upload | None = None
        """The picture before, which the next one replaces."""
        self._canvas: torch.Tensor | None = None
        """The picture of `begin` that was not shown yet."""

    def put(self, tensor: Pixels, layout: str) -> TextureSource:
        """Upload a picture; see `Bridge.put`."""
        array, dtype = _to_host(tensor)
        form = Form.of(array.shape, dtype, layout)
        stride = -(-max(form.width, form.height) // self._limit)
        if stride > 1:
            if layout == "CHW":
                array = array[:, ::stride, ::stride]
            else:
                array = array[::stride, ::stride]
            form = Form.of(array.shape, dtype, layout)
        is_planar = layout == "CHW" and form.channels > 1
        if is_planar and form.height * form.channels > self._limit:
            # A texture is too small for the rows of all planes.
            array = np.moveaxis(array, 0, -1)
            is_planar = False
        upload = self._take_back(_TextureKey(form, is_planar, stride))
        upload.source.texture.write(np.ascontiguousarray(array), alignment=1)
        self._back = self._front
        self._front = upload
        return upload.source

    def _take_back(self, key: _TextureKey) -> _Upload:
        """Return a texture for the next picture: the back one if it fits."""
        back = self._back
        if back is not None and back.key == key:
            return back
        if back is not None:
            back.source.texture.release()
        form = key.form
        rows = form.height * form.channels if key.is_planar else form.height
        texture = self._ctx.texture(
            size=(form.width, rows),
            components=1 if key.is_planar else form.channels,
            alignment=1,
            dtype=PICTURE_DTYPES[form.dtype].texture,
        )
        # Integers cannot be filtered.
        texture.filter = (moderngl.NEAREST, moderngl.NEAREST)
        texture.repeat_x = False
        texture.repeat_y = False
        source = TextureSource(texture, form, planar=key.is_planar, stride=key.stride)
        self._back = _Upload(key, source)
        return self._back

    def begin(
        self, height: int, width: int, channels: int = 4, dtype: str = "float16"
    ) -> torch.Tensor:
        """Return the next picture, for CUDA kernels to write; see `Canvas.begin`."""
        import torch

        from splatview_ipc.cuda import driver

        if self._gpu_uuid is None:
            device_index = torch.cuda.current_device()
        else:
            device_index = driver.require_device(self._gpu_uuid)
        self._canvas = torch.empty(
            (height, width, channels),
            dtype=getattr(torch, dtype),
            device=torch.device("cuda", device_index),
        )
        return self._canvas

    def show(self, *, finish: Callable[[], object] | None = None) -> TextureSource:
        """Upload the picture of `begin`; see `Canvas.show`."""
        canvas = self._canvas
        self._canvas = None
        if canvas is None:
            raise SharingError("show() without begin()")
        if finish is not None:
            finish()
        return self.put(canvas, "HWC")

    def undo(self) -> None:
        """Drop the last picture; see `Bridge.undo`."""
        self._front, self._back = self._back, self._front

    def close(self) -> None:
        """Release everything. Idempotent."""
        for upload in (self._front, self._back):
            if upload is not None:
                upload.source.texture.release()
        self._front = None
        self._back = None
        self._canvas = None


def _to_host(tensor: Pixels) -> tuple[np.ndarray, str]:
    """Return a picture in host memory, and its dtype.

    NumPy holds bfloat16 as integers.
    """
    if isinstance(tensor, np.ndarray):
        return tensor, tensor.dtype.name
    if isinstance(tensor, RemoteTensor):
        return tensor.array, tensor.dtype
    import torch

    values = local_tensor(tensor)
    dtype = dtype_name(values)
    if dtype == "bfloat16":
        values = values.view(torch.int16)
    return values.cpu().numpy(), dtype
