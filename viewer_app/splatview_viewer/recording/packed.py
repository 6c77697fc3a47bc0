"""A scene made small, to keep many of them: a third of its float32 numbers, and it can
hardly be told from them.

In memory and in a file it is the same bytes: 8 bytes SVSCENE1, the length of the header
as uint32, the header as JSON, then the arrays of `layout` one after the other,
little-endian:

means       float32, or float64, as they are
quats       unit quaternions times 32767, int16: off by at most 2e-5
scales      logarithms as float16: sizes off by at most 0.4 % (of Gaussians smaller than e**-16: 0.8 %); those that
            come activated as float32, as they are
opacities   logits as float16: opacities off by at most 2e-4; those that come activated as float16: 3e-4
sh0         float16: colours off by at most 1.4e-4 of full scale, up to four times the brightness of white
shN         int8, each Gaussian's as parts of its own largest one: off by at most 1/254 of that

What cannot be drawn (`Renderer.load`) cannot be drawn afterwards either. Nothing is
unpickled, and sizes are checked before memory is taken.
"""

from __future__ import annotations

import functools
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np

from splatview_ipc.kinds.gaussians import activated_of
from splatview_ipc.system.files import write_output
from splatview_viewer.core.errors import FileError
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats import check_memory, scene_bytes
from splatview_viewer.scene.scene import FIELDS, GaussianScene, HostCopy, as_floats

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import torch

    from splatview_viewer.core.settings import Color

_CHUNK = 1 << 15
_CHUNK_GPU = 1 << 18
"""Gaussians that are packed in one go: on a CPU what is computed from them stays in the
cache; on a GPU the pinned memory that it passes through stays small."""
_HALF = 65504.0
"""The largest float16."""
_UNIT = 32767.0
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_MAGIC = b"SVSCENE1"
_START = len(_MAGIC) + 4
_MOST_HEADER = 4096
"""Bytes."""


class PackedHeader(msgspec.Struct, frozen=True):
    """Description of a packed scene's arrays."""

    count: Annotated[int, msgspec.Meta(ge=0, le=2**40)]
    coefficients: Literal[0, 3, 8, 15, 24]
    """Of spherical harmonics beyond degree 0, for each Gaussian."""
    sh_degree: Annotated[int, msgspec.Meta(ge=0, le=4)]
    activated: bool | tuple[bool, bool]
    """As `GaussianScene.activated`."""
    antialiased: bool
    background: tuple[_Share, _Share, _Share] | None = None
    """The scene's own, RGB in [0, 1]."""
    wide: bool = False
    """True for positions of float64."""


@dataclass(frozen=True, eq=False)
class Packed:
    """One scene as it is kept."""

    header: PackedHeader
    data: np.ndarray
    """All bytes, (N,) uint8."""
    gpu_ms: float = 0.0
    """Milliseconds that a GPU took to pack it."""

    def __len__(self) -> int:
        return self.header.count

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by the names of `layout`: views of `data`."""
        h = self.header
        out = {}
        at = self.data.nbytes - packed_bytes(
            h.count, h.coefficients, h.activated, h.wide
        )
        for name, (shape, dtype) in layout(
            h.count, h.coefficients, h.activated, h.wide
        ).items():
            size = _size(shape, dtype)
            out[name] = self.data[at : at + size].view(dtype).reshape(shape)
            at = at + size
        return out


def layout(
    count: int,
    coefficients: int,
    activated: bool | tuple[bool, bool],
    wide: bool = False,
) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Return shape and dtype of each array of `count` Gaussians with so many
    coefficients beyond degree 0, in their order. `wide`: with `means` of float64.
    """
    scale = "<f4" if activated_of(activated).scales else "<f2"
    return {
        name: (shape, np.dtype(dtype))
        for name, shape, dtype in (
            ("means", (count, 3), "<f8" if wide else "<f4"),
            ("quats", (count, 4), "<i2"),
            ("scales", (count, 3), scale),
            ("opacities", (count,), "<f2"),
            ("sh0", (count, 3), "<f2"),
            ("shN", (count, coefficients, 3), "<i1"),
            ("sh_unit", (count if coefficients else 0,), "<f2"),
        )
    }


def _size(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize


def packed_bytes(
    count: int,
    coefficients: int,
    activated: bool | tuple[bool, bool],
    wide: bool = False,
) -> int:
    """Return the size of the arrays of such a scene."""
    return sum(
        _size(*each) for each in layout(count, coefficients, activated, wide).values()
    )


def write_packed(path: Path, packed: Packed) -> int:
    """Write a scene into a file for its owner alone; return its size in bytes.

    Raises OSError.
    """
    write_output(path, packed.data, private=True)
    return packed.data.nbytes


def read_packed(path: Path) -> Packed:
    """Return the scene of a file.

    Raises FileError for what is missing, damaged or none; takes only the memory that
    its size allows.
    """
    try:
        with open_regular(path) as f:
            size = os.fstat(f.fileno()).st_size
            start = f.read(_START)
            if len(start) != _START or not start.startswith(_MAGIC):
                raise FileError(f"{path}: no snapshot of a recording")
            (length,) = struct.unpack_from("<I", start, len(_MAGIC))
            if length > _MOST_HEADER:
                raise FileError(
                    f"{path}: damaged: a header of {length:,} bytes; at most "
                    f"{_MOST_HEADER:,}"
                )
            header = msgspec.json.decode(f.read(length), type=PackedHeader)
            needed = packed_bytes(
                header.count, header.coefficients, header.activated, header.wide
            )
            if size != _START + length + needed:
                raise FileError(
                    f"{path}: damaged: {size:,} bytes, and {header.count:,} Gaussians "
                    "take "
                    f"{_START + length + needed:,}"
                )
            # What is read, and what it becomes to be drawn (`unpack`).
            check_memory(
                needed + scene_bytes(header.count, header.coefficients),
                f"{path}: {header.count:,} Gaussians",
            )
            f.seek(0)
            data = np.fromfile(f, np.uint8, size)
            if len(data) != size:
                raise FileError(f"{path}: damaged: it was cut off while it was read")
    except OSError as e:
        raise FileError(f"{path}: cannot be read: {e.strerror or e}") from e
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as e:
        raise FileError(f"{path}: damaged: {e}") from e
    except MemoryError as e:
        raise FileError(f"{path}: not enough memory to load it") from e
    return Packed(header, data)


def pack(
    scene: GaussianScene,
    background: Color | None = None,
    stream: torch.cuda.Stream | None = None,
) -> Packed:
    """Return copies of a scene's numbers, made small.

    From any thread.

    `stream`: for a scene on a GPU, the torch stream that reads it, which waits for the
    data by itself; the calling thread waits for it.
    """
    import torch

    coefficients: Any = scene.shN.shape[1]
    header = PackedHeader(
        len(scene),
        coefficients,
        min(scene.sh_degree, scene.stored_sh_degree),
        scene.activated,
        scene.antialiased,
        background,
        scene.means.dtype.itemsize == 8,
    )
    text = msgspec.json.encode(header)
    start = _MAGIC + struct.pack("<I", len(text)) + text
    size = len(start) + packed_bytes(
        header.count, header.coefficients, header.activated, header.wide
    )
    data = np.empty(size, np.uint8)
    data[: len(start)] = np.frombuffer(start, np.uint8)
    arrays = Packed(header, data).arrays.values()
    gpu_ms = 0.0
    with torch.cuda.stream(stream):
        if (
            scene.on_gpu
        ):  # CUDA loads kernels at their first use: not in the time that is measured
            HostCopy(scene, lambda: pack_rows(scene[:1]))
        step = _CHUNK_GPU if scene.on_gpu else _CHUNK
        for first in range(0, len(scene), step):
            if scene.on_gpu:
                marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            else:
                marks = []
            copy = HostCopy(
                scene,
                functools.partial(_pack_between, scene[first : first + step], marks),
            )
            for array, part in zip(arrays, copy.arrays(), strict=True):
                array[first : first + len(part)] = part
            gpu_ms += marks[0].elapsed_time(marks[1]) if marks else 0.0
    return Packed(header, data, gpu_ms)


def unpack(
    packed: Packed, *, version: int = 0, notes: tuple[str, ...] = ()
) -> GaussianScene:
    """Return the scene again, as float32 (`means` also float64) on the CPU.

    From any thread.
    """
    import torch

    header = packed.header
    # An array may begin at any byte.
    means, quats, scales, opacities, sh0, higher, unit = (
        torch.from_numpy(np.require(array, requirements="A"))
        for array in packed.arrays.values()
    )
    higher = higher.float()
    if higher.numel():
        higher *= unit.float()[:, None, None]
    return GaussianScene(
        means,
        quats * (1 / _UNIT),
        scales.float(),
        opacities.float(),
        sh0.float(),
        higher,
        activated=header.activated,
        sh_degree=header.sh_degree,
        antialiased=header.antialiased,
        version=version,
        notes=notes,
        background=header.background,
    )


def _pack_between(
    scene: GaussianScene, marks: Sequence[torch.cuda.Event]
) -> list[torch.Tensor]:
    """Call `pack_rows`, with an event recorded before and after it."""
    for mark in marks[:1]:
        mark.record()
    made = pack_rows(scene)
    for mark in marks[1:]:
        mark.record()
    return made


def pack_rows(scene: GaussianScene) -> list[torch.Tensor]:
    """Return the arrays that `layout` names, as tensors on the scene's device."""
    import torch

    def half(t: torch.Tensor, defined: bool = False) -> torch.Tensor:
        """float16: what is too large is the largest there is, what is infinite is none
        unless that is `defined`.
        """
        return torch.where(
            t.isfinite() | defined, t.clamp(-_HALF, _HALF), torch.nan
        ).half()

    means, quats, scales, opacities, sh0, higher = (
        as_floats(getattr(scene, name)) for name in FIELDS
    )
    unit = quats.double()
    unit = unit * (_UNIT / unit.norm(dim=1, keepdim=True))
    unit = torch.where(
        unit.isfinite().all(dim=1, keepdim=True), unit.round(), 0.0
    )  # 0: cannot be drawn
    made = [
        means,
        unit.to(torch.int16),
        scales if scene.activation.scales else half(scales, defined=True),
        half(opacities, defined=not scene.activation.opacities),
        half(sh0),
    ]
    if not higher.shape[1]:
        return [*made, higher.to(torch.int8), higher.new_empty(0, dtype=torch.half)]
    flat = higher.flatten(1)
    sh_unit = half(flat.abs().amax(dim=1) / 127)
    parts = (
        flat / torch.where(sh_unit > 0, sh_unit.float(), torch.inf)[:, None]
    ).round()
    return [
        *made,
        parts.nan_to_num(0, 0, 0).clamp(-127, 127).to(torch.int8).reshape(higher.shape),
        sh_unit,
    ]
