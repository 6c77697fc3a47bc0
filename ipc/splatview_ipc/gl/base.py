"""What everything between CUDA and OpenGL agrees on.

A *bridge* takes one stream's pictures from where they are and makes them readable by a fragment shader. There are
four, in the order in which they are tried; `tests/interop/test_interop.py` runs one conformance suite over all of them.

| bridge   | for tensors in               | copies | how |
|----------|------------------------------|--------|-----|
| direct   | another process's GPU memory | none   | OpenGL imports that memory; no CUDA in this process |
| import   | this process's GPU memory    | one    | OpenGL imports memory of ours; a CUDA copy into it |
| register | this process's GPU memory    | one    | a texture registered with CUDA, mapped for each copy |
| host     | host memory, or any          | 1 or 2 | an upload into a texture |

What a bridge gives is a *pixel source*: textures or buffer textures, defines and uniforms for `shaders/fetch.glsl`,
which resolves layouts, dtypes and strides while drawing.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

from splatview_ipc.control.errors import SharingError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import moderngl
    import numpy as np
    import torch

    from splatview_ipc.control.frame import DeviceTensor, RemoteTensor

    Pixels: TypeAlias = "DeviceTensor | RemoteTensor | torch.Tensor | np.ndarray"
    """A picture: another process's tensor, or one of this process, CUDA or not."""

DTYPES = ("uint8", "uint16", "float16", "bfloat16", "float32")
LAYOUTS = ("HW", "HWC", "CHW")
MAX_CHANNELS = 4
DTYPE_DEFINES = {"uint8": "DTYPE_U8", "uint16": "DTYPE_U16", "float16": "DTYPE_F16", "bfloat16": "DTYPE_BF16",
                 "float32": "DTYPE_F32"}

SHADER = files("splatview_ipc.gl").joinpath("shaders/fetch.glsl").read_text()
"""GLSL 3.30: `vec4 stored(ivec2 p)`, the channels at a column and row (row 0 is the top one), missing ones 0,
integers as 0..1; `ivec2 source_size()`."""


def fragment_head(defines: Iterable[str]) -> str:
    """How a fragment shader that reads a source begins: the version, the defines, `SHADER`."""
    return "#version 330\n" + "".join(f"#define {d}\n" for d in defines) + SHADER


class PixelSource(Protocol):
    """What a fragment shader reads. Used on the thread of its OpenGL context only."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        ...

    @property
    def channels(self) -> int:
        """1 to 4."""
        ...

    @property
    def dtype(self) -> str:
        """One of DTYPES."""
        ...

    @property
    def layout(self) -> str:
        """One of LAYOUTS, as it was put."""
        ...

    @property
    def stride(self) -> int:
        """Every how many-th row and column of the original this is: more than 1 where textures are limited."""
        ...

    @property
    def defines(self) -> tuple[str, ...]:
        """What the shader is compiled with. Sources with equal defines share a program."""
        ...

    def bind(self, program: moderngl.Program, unit: int = 0) -> None:
        """Bind the textures from texture unit `unit` on (at most MAX_PIECES of them) and set the uniforms."""
        ...


class Bridge(Protocol):
    """One stream's pictures on their way to OpenGL. Every call comes from the thread of the OpenGL context."""

    name: ClassVar[str]

    def put(self, tensor: Pixels, layout: str) -> PixelSource:
        """Make a picture readable.

        `tensor`: (H, W), (H, W, C) or (C, H, W) by `layout`, C from 1 to 4, a dtype of DTYPES. A CUDA tensor is
        read in the order of the current CUDA stream. The source stays valid until the next `put` but one, so that
        whoever finds out afterwards that the tensor was torn can go on with the one before (`undo`). `direct` reads
        the tensor's own memory whenever something is drawn; the others are done with the tensor on return, or on
        the current CUDA stream. Raises SharingError when this bridge cannot take this tensor; another may.
        """
        ...

    def undo(self) -> None:
        """Drop what was put last: the next `put` leaves the source of the one before alone."""
        ...

    def close(self) -> None:
        """Give back everything. Idempotent."""
        ...


@dataclass(frozen=True)
class Form:
    """Shape and dtype of a picture."""

    width: int
    height: int
    channels: int
    dtype: str
    layout: str

    @classmethod
    def of(cls, shape: tuple[int, ...], dtype: str, layout: str) -> Form:
        """Raises SharingError for what is no picture."""
        legal = layout in LAYOUTS and len(shape) == len(layout) and min(shape, default=0) > 0 and dtype in DTYPES
        channels = shape[layout.index("C")] if legal and "C" in layout else 1
        if not legal or channels > MAX_CHANNELS:
            raise SharingError(f"{dtype} of shape {tuple(shape)} and layout {layout!r} is no picture; legal are HW, "
                               f"HWC and CHW with 1 to {MAX_CHANNELS} channels of {', '.join(DTYPES)}")
        return cls(shape[layout.index("W")], shape[layout.index("H")], channels, dtype, layout)

    def steps(self, strides: tuple[int, ...]) -> tuple[int, int, int]:
        """(row, column, channel) strides of a tensor of this layout, in elements."""
        row, column = strides[self.layout.index("H")], strides[self.layout.index("W")]
        return row, column, strides[self.layout.index("C")] if "C" in self.layout else 1
