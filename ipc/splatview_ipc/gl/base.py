"""The terms of everything between CUDA and OpenGL: pictures, pixel sources, bridges.

A *bridge* makes one stream's pictures readable by a fragment shader. There are three,
tried in this order:

| bridge | for tensors in               | copies | how |
|--------|------------------------------|--------|-----|
| direct | another process's GPU memory | none   | OpenGL imports it; no CUDA here |
| import | this process's GPU memory    | one    | a CUDA copy into memory for OpenGL |
| host   | host memory, or any          | 1 or 2 | an upload into a texture |

A bridge returns a *pixel source*: textures, defines and uniforms for
`shaders/fetch.glsl`, which resolves layouts, dtypes and strides while drawing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, TypeAlias

from splatview_ipc.control.errors import SharingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import moderngl
    import numpy as np
    import torch

    from splatview_ipc.control.frame import DeviceTensor, RemoteTensor

    Pixels: TypeAlias = "DeviceTensor | RemoteTensor | torch.Tensor | np.ndarray"
    """A picture: another process's tensor, or one of this process, CUDA or not."""
    ShaderProgram: TypeAlias = moderngl.Program | moderngl.ComputeShader


class PictureDtype(NamedTuple):
    """A dtype of pictures in OpenGL."""

    define: str
    """For `SHADER`."""
    texture: str
    """moderngl's name of the texture format that keeps its bits."""


PICTURE_DTYPES = {
    "uint8": PictureDtype("DTYPE_U8", "f1"),
    "uint16": PictureDtype("DTYPE_U16", "nu2"),
    "float16": PictureDtype("DTYPE_F16", "f2"),
    "bfloat16": PictureDtype("DTYPE_BF16", "u2"),
    "float32": PictureDtype("DTYPE_F32", "f4"),
}
LAYOUTS = ("HW", "HWC", "CHW")
MAX_CHANNELS = 4

SHADER = files("splatview_ipc.gl").joinpath("shaders/fetch.glsl").read_text()
"""GLSL 3.30 with two functions.

`vec4 stored(ivec2 p)` returns the channels at a column and row (row 0 is the top one),
missing ones 0, integers as 0..1; `ivec2 source_size()` returns width and height.
"""


def fragment_head(defines: Iterable[str]) -> str:
    """Return the beginning of a fragment shader that reads a source.

    It consists of the version, the defines and `SHADER`.
    """
    lines = "".join(f"#define {define}\n" for define in defines)
    return f"#version 330\n{lines}{SHADER}"


def local_tensor(tensor: Pixels) -> torch.Tensor:
    """Return a picture as this process's tensor.

    On a GPU it can be read in the order of the current stream.
    """
    import torch

    if isinstance(tensor, torch.Tensor):
        return tensor.detach()
    values = tensor.torch()  # type: ignore[union-attr]
    stream = torch.cuda.current_stream(values.device).cuda_stream
    tensor.ready(stream)  # type: ignore[union-attr]
    return values


@dataclass(frozen=True)
class Form:
    """Shape and dtype of a picture."""

    width: int
    height: int
    channels: int
    dtype: str
    layout: str

    @classmethod
    @lru_cache
    def of(cls, shape: tuple[int, ...], dtype: str, layout: str) -> Form:
        """Return the form of a picture. Raises SharingError for what is no picture."""
        is_layout = layout in LAYOUTS and len(shape) == len(layout)
        is_picture = is_layout and min(shape, default=0) > 0 and dtype in PICTURE_DTYPES
        channels = 1
        if is_picture and "C" in layout:
            channels = shape[layout.index("C")]
        if not is_picture or channels > MAX_CHANNELS:
            raise SharingError(
                f"{dtype} of shape {tuple(shape)} and layout {layout!r} is no picture; "
                f"expected HW, HWC or CHW with 1 to {MAX_CHANNELS} channels of "
                f"{', '.join(PICTURE_DTYPES)}"
            )
        return cls(
            width=shape[layout.index("W")],
            height=shape[layout.index("H")],
            channels=channels,
            dtype=dtype,
            layout=layout,
        )


class PixelSource:
    """Pixels that a fragment shader reads, on the thread of its OpenGL context."""

    def __init__(self, form: Form, *defines: str, stride: int = 1) -> None:
        """Describe the pixels.

        Args:
            form: shape and dtype of the picture.
            defines: further defines for the shader.
            stride: as the attribute.
        """
        self.size = form.width, form.height
        self.channels = form.channels
        self.dtype = form.dtype
        self.stride = stride
        """The step between its rows and columns in the original.

        It is more than 1 where textures are limited.
        """
        self.defines: tuple[str, ...] = (
            PICTURE_DTYPES[form.dtype].define,
            f"CHANNELS {form.channels}",
            *defines,
        )
        """Defines to compile the shader with; sources with equal ones share a program.
        """

    def bind(self, program: ShaderProgram, unit: int = 0) -> None:
        """Bind the textures and set the uniforms; then wait for the pixels.

        Args:
            program: a program whose fragment or compute shader has `SHADER`.
            unit: first texture unit to use, of at most MAX_PIECES.
        """
        raise NotImplementedError

    def copy_to(self, texture: moderngl.Texture) -> bool:
        """Have OpenGL copy the pixels to a texture of their size, without a shader.

        Returns False where it cannot. Waits for the pixels, not for the copy.

        Args:
            texture: of the same channels and dtype.
        """
        return False


class Bridge(Protocol):
    """One stream's pictures on their way to OpenGL, on the thread of its context."""

    name: ClassVar[str]

    def put(self, tensor: Pixels, layout: str) -> PixelSource:
        """Make a picture readable.

        A CUDA tensor is read in the order of the current CUDA stream. `direct` reads
        its memory whenever something is drawn; the others are done with it on return,
        or on that stream.

        Args:
            tensor: (H, W), (H, W, C) or (C, H, W), C from 1 to 4, a dtype of DTYPES.
            layout: "HW", "HWC" or "CHW".

        Returns:
            The source, which stays valid until the next `put` but one.

        Raises:
            SharingError: this bridge cannot take this tensor; another may.
        """
        ...

    def undo(self) -> None:
        """Drop what was put last, a torn picture.

        The next `put` leaves the source of the one before alone.
        """
        ...

    def close(self) -> None:
        """Release everything. Idempotent."""
        ...


class Canvas(Bridge, Protocol):
    """A bridge whose pictures this process's own CUDA kernels draw."""

    def begin(
        self, height: int, width: int, channels: int = 4, dtype: str = "float16"
    ) -> torch.Tensor:
        """Return the next picture, to be written on torch's current stream.

        It is a tensor (height, width, channels) with any content; its pixels may be
        more than `channels` values apart. Waits until OpenGL no longer draws from the
        memory behind it. Raises SharingError when there is none for it.
        """
        ...

    def show(self, *, finish: Callable[[], object] | None = None) -> PixelSource:
        """Return the picture of `begin`, valid until the next `show` but one.

        Args:
            finish: waits until the picture is written; called before it is first read,
                as a rule when the source is bound. None: the current stream is
                awaited, as far as it has come now.

        Raises:
            SharingError: there was no new `begin`.
        """
        ...
