"""The bridge that works everywhere: pictures go through host memory into a texture."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from splatview_ipc.control.frame import RemoteTensor
from splatview_ipc.gl.base import Form
from splatview_ipc.gl.sources import TextureSource, picture_texture
from splatview_ipc.gl.tensors import dtype_name

if TYPE_CHECKING:
    import moderngl

    from splatview_ipc.gl.base import Pixels


def host_array(tensor: Pixels) -> tuple[np.ndarray, str]:
    """A picture's values in host memory and their dtype; bfloat16 comes as uint16. Views are not copied."""
    if isinstance(tensor, np.ndarray):
        return tensor, tensor.dtype.name
    if isinstance(tensor, RemoteTensor):
        return tensor.array, tensor.dtype
    import torch

    if isinstance(tensor, torch.Tensor):
        values = tensor.detach()
    else:
        values = tensor.torch()
        tensor.ready(torch.cuda.current_stream(values.device).cuda_stream)
    dtype = dtype_name(values)
    if dtype == "bfloat16":
        values = values.view(torch.int16)
    array = values.cpu().numpy()
    return (array.view(np.uint16) if dtype == "bfloat16" else array), dtype


class HostBridge:
    """Two textures that take turns, so that a picture found torn leaves the one before alone.

    A picture larger than a texture can be is shown at a lower resolution.
    """

    name: ClassVar[str] = "host"

    def __init__(self, ctx: moderngl.Context) -> None:
        self._ctx = ctx
        self._limit = int(ctx.info["GL_MAX_TEXTURE_SIZE"])
        self._front: TextureSource | None = None
        self._back: TextureSource | None = None
        self._front_form: tuple[Form, bool, int] | None = None
        self._back_form: tuple[Form, bool, int] | None = None

    @staticmethod
    def trial(ctx: moderngl.Context) -> None:
        """Nothing can be missing: every OpenGL has textures."""

    def put(self, tensor: Pixels, layout: str) -> TextureSource:
        array, dtype = host_array(tensor)
        form = Form.of(array.shape, dtype, layout)
        stride = -(-max(form.width, form.height) // self._limit)
        if stride > 1:
            array = array[:, ::stride, ::stride] if layout == "CHW" else array[::stride, ::stride]
        fitted = Form.of(array.shape, dtype, layout)
        planar = layout == "CHW" and form.channels > 1
        if planar and fitted.height * fitted.channels > self._limit:  # its planes do not fit below each other
            array, planar = np.moveaxis(array, 0, -1), False
            fitted = replace(fitted, layout="HWC")
        key = fitted, planar, stride
        if self._back is None or self._back_form != key:
            if self._back is not None:
                self._back.texture.release()
            self._back = TextureSource(picture_texture(self._ctx, fitted, planar=planar), fitted, planar=planar,
                                       stride=stride)
            self._back_form = key
        self._back.texture.write(np.ascontiguousarray(array), alignment=1)
        self._swap()
        assert self._front is not None
        return self._front

    def undo(self) -> None:
        self._swap()

    def _swap(self) -> None:
        self._front, self._back = self._back, self._front
        self._front_form, self._back_form = self._back_form, self._front_form

    def close(self) -> None:
        for source in (self._front, self._back):
            if source is not None:
                source.texture.release()
        self._front = self._back = None
        self._front_form = self._back_form = None
