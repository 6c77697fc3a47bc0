"""Packed scenes: a third of the bytes of float32, with hardly a visible difference.

In memory and in a file it is the same bytes: 8 bytes SVSCENE1, the length of the header
as uint32, the header as JSON, then the arrays of `layout` one after the other,
little-endian:

means       float32, or float64, as they are
quats       unit quaternions times 32767, int16: off by at most 2e-5
scales      logarithms as float16: sizes off by at most 0.4 % (of Gaussians smaller
            than e**-16: 0.8 %); those that come activated as float32, as they are
opacities   logits as float16: opacities off by at most 2e-4; those that come activated
            as float16: 3e-4
sh0         float16: colours off by at most 1.4e-4 of full scale, up to four times the
            brightness of white
shN         int8, each Gaussian's as fractions of its own largest one: off by at most
            1/254 of that

What cannot be drawn (`Renderer.load`) cannot be drawn afterwards either. Nothing is
unpickled, and sizes are checked before memory is taken.
"""

from __future__ import annotations

import functools
import os
import struct
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

import msgspec
import numpy as np

from splatview_ipc.kinds.gaussians import parse_activated
from splatview_ipc.system.files import write_output
from splatview_viewer.core.errors import FileError
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats import check_memory, scene_bytes
from splatview_viewer.scene.scene import FIELDS, GaussianScene, SceneCopy, as_floats

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import torch

    from splatview_viewer.core.settings import Color

_CHUNK = 1 << 15
"""Gaussians that a CPU packs at a time, so that intermediate values stay in the cache.
"""
_CHUNK_GPU = 1 << 18
"""Gaussians that a GPU packs at a time, so that the pinned memory stays small."""
_MAX_HALF = 65504.0
"""The largest float16."""
_UNIT = 32767.0
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_MAGIC = b"SVSCENE1"
_START = len(_MAGIC) + 4
_MAX_HEADER = 4096
"""Bytes that a header may have."""


class PackedHeader(msgspec.Struct, frozen=True):
    """Description of a packed scene's arrays."""

    count: Annotated[int, msgspec.Meta(ge=0, le=2**40)]
    coefficients: Literal[0, 3, 8, 15, 24]
    """Coefficients of spherical harmonics beyond degree 0, for each Gaussian."""
    sh_degree: Annotated[int, msgspec.Meta(ge=0, le=4)]
    activated: bool | tuple[bool, bool]
    """True if scales and opacities already went through exp and sigmoid; a pair where one
    of them alone did."""
    antialiased: bool
    background: tuple[_Share, _Share, _Share] | None = None
    """The scene's own, RGB in [0, 1]."""
    wide: bool = False
    """True for positions of float64."""

    @property
    def layout(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and dtype of each array."""
        return layout(self.count, self.coefficients, self.activated, self.wide)

    @property
    def array_bytes(self) -> int:
        """Bytes of all arrays."""
        return packed_bytes(self.count, self.coefficients, self.activated, self.wide)


@dataclass(frozen=True, eq=False)
class Packed:
    """A packed scene: its header and all its bytes."""

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
        arrays: dict[str, np.ndarray] = {}
        offset = self.data.nbytes - self.header.array_bytes
        for name, (shape, dtype) in self.header.layout.items():
            size = _size(shape, dtype)
            array_bytes = self.data[offset : offset + size]
            arrays[name] = array_bytes.view(dtype).reshape(shape)
            offset += size
        return arrays


def layout(
    count: int,
    coefficients: int,
    activated: bool | tuple[bool, bool],
    wide: bool = False,
) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Return shape and dtype of each array of a packed scene, in their order.

    Args:
        count: Gaussians.
        coefficients: of spherical harmonics beyond degree 0, for each Gaussian.
        activated: as `GaussianScene.activated`.
        wide: with `means` of float64.
    """
    scale_type = "<f4" if parse_activated(activated).scales else "<f2"
    unit_count = count if coefficients else 0
    means_type = "<f8" if wide else "<f4"
    return {
        "means": ((count, 3), np.dtype(means_type)),
        "quats": ((count, 4), np.dtype("<i2")),
        "scales": ((count, 3), np.dtype(scale_type)),
        "opacities": ((count,), np.dtype("<f2")),
        "sh0": ((count, 3), np.dtype("<f2")),
        "shN": ((count, coefficients, 3), np.dtype("<i1")),
        "sh_unit": ((unit_count,), np.dtype("<f2")),
    }


def _size(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return the bytes of an array."""
    return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize


def packed_bytes(
    count: int,
    coefficients: int,
    activated: bool | tuple[bool, bool],
    wide: bool = False,
) -> int:
    """Return the bytes of the arrays of a packed scene. Arguments as `layout`."""
    arrays = layout(count, coefficients, activated, wide).values()
    return sum(_size(shape, dtype) for shape, dtype in arrays)


def write_packed(path: Path, packed: Packed) -> int:
    """Write a scene into a file for its owner alone; return its size in bytes.

    Raises OSError.
    """
    write_output(path, packed.data, private=True)
    return packed.data.nbytes


def read_packed(path: Path) -> Packed:
    """Read a packed scene; it takes only the memory that the file's size allows.

    Raises:
        FileError: the file is missing, damaged or none.
    """
    with _opened(path) as f:
        header = _read_header(f, path)
        # The packed scene itself, and the one that `unpack` makes of it.
        unpacked = scene_bytes(header.count, header.coefficients)
        check_memory(
            header.array_bytes + unpacked, f"{path}: {header.count:,} Gaussians"
        )
        size = os.fstat(f.fileno()).st_size
        f.seek(0)
        data = np.fromfile(f, np.uint8, size)
        if len(data) != size:
            raise FileError(f"{path}: damaged: it was cut off while it was read")
    return Packed(header, data)


def read_packed_row(path: Path, index: int) -> Packed:
    """Read one Gaussian of a packed scene, and no others.

    Raises:
        FileError: the file is missing, damaged or none, or has no such Gaussian.
    """
    with _opened(path) as f:
        header = _read_header(f, path)
        if index >= header.count:
            raise FileError(f"{path}: has {header.count:,} Gaussians")
        start = os.fstat(f.fileno()).st_size - header.array_bytes
        rows = []
        for offset, size in _row_spans(header, index):
            f.seek(start + offset)
            rows.append(np.fromfile(f, np.uint8, size))
    one_row = msgspec.structs.replace(header, count=1)
    data = np.concatenate(rows)
    if len(data) != one_row.array_bytes:
        raise FileError(f"{path}: damaged: it was cut off while it was read")
    return Packed(one_row, data)


def packed_row(packed: Packed, index: int) -> Packed:
    """Return one Gaussian of a packed scene as a packed scene."""
    start = packed.data.nbytes - packed.header.array_bytes
    arrays = packed.data[start:]
    spans = _row_spans(packed.header, index)
    rows = [arrays[offset : offset + size] for offset, size in spans]
    return Packed(msgspec.structs.replace(packed.header, count=1), np.concatenate(rows))


def _row_spans(header: PackedHeader, index: int) -> list[tuple[int, int]]:
    """Return where a Gaussian's bytes begin in each array, and how many they are.

    Offsets are from the beginning of the first array.
    """
    spans = []
    start = 0
    for shape, dtype in header.layout.values():
        row_size = _size(shape[1:], dtype)
        # Without higher degrees there is no unit of them.
        if shape[0]:
            spans.append((start + index * row_size, row_size))
        start += _size(shape, dtype)
    return spans


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file; what goes wrong while it is read is raised as a FileError."""
    try:
        with open_regular(path) as f:
            yield f
    except OSError as e:
        raise FileError(f"{path}: cannot be read: {e.strerror or e}") from e
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as e:
        raise FileError(f"{path}: damaged: {e}") from e
    except MemoryError as e:
        raise FileError(f"{path}: not enough memory to load it") from e


def _read_header(f: BinaryIO, path: Path) -> PackedHeader:
    """Read the header of a packed scene; check it against the file's size.

    Raises FileError, or what msgspec raises.
    """
    size = os.fstat(f.fileno()).st_size
    start = f.read(_START)
    if len(start) != _START or not start.startswith(_MAGIC):
        raise FileError(f"{path}: no snapshot of a recording")
    (length,) = struct.unpack_from("<I", start, len(_MAGIC))
    if length > _MAX_HEADER:
        raise FileError(
            f"{path}: damaged: a header of {length:,} bytes; at most {_MAX_HEADER:,}"
        )
    header = msgspec.json.decode(f.read(length), type=PackedHeader)
    needed = header.array_bytes
    if size != _START + length + needed:
        raise FileError(
            f"{path}: damaged: {size:,} bytes, and {header.count:,} Gaussians take "
            f"{_START + length + needed:,}"
        )
    return header


def pack(
    scene: GaussianScene,
    background: Color | None = None,
    stream: torch.cuda.Stream | None = None,
) -> Packed:
    """Pack a scene, from any thread.

    Args:
        scene: on the CPU or a GPU.
        background: the scene's own, RGB in [0, 1].
        stream: for a scene on a GPU, the torch stream that reads it, which waits for
            the data by itself; the calling thread waits for it.
    """
    import torch

    coefficients: Any = scene.shN.shape[1]
    header = PackedHeader(
        count=len(scene),
        coefficients=coefficients,
        sh_degree=min(scene.sh_degree, scene.stored_sh_degree),
        activated=scene.activated,
        antialiased=scene.antialiased,
        background=background,
        wide=scene.means.dtype.itemsize == 8,
    )
    text = msgspec.json.encode(header)
    start = _MAGIC + struct.pack("<I", len(text)) + text
    data = np.empty(len(start) + header.array_bytes, np.uint8)
    data[: len(start)] = np.frombuffer(start, np.uint8)
    arrays = Packed(header, data).arrays.values()
    gpu_ms = 0.0
    with torch.cuda.stream(stream):
        if scene.on_gpu:
            # CUDA loads kernels at their first use, which the measured time leaves out.
            SceneCopy(scene, lambda: pack_rows(scene[:1]))
        chunk = _CHUNK_GPU if scene.on_gpu else _CHUNK
        for first in range(0, len(scene), chunk):
            events: list[torch.cuda.Event] = []
            if scene.on_gpu:
                events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            rows = scene[first : first + chunk]
            copy = SceneCopy(scene, functools.partial(_pack_between, rows, events))
            for array, values in zip(arrays, copy.arrays(), strict=True):
                array[first : first + len(values)] = values
            if events:
                gpu_ms += events[0].elapsed_time(events[1])
    return Packed(header, data, gpu_ms)


def unpack(
    packed: Packed, *, version: int = 0, notes: tuple[str, ...] = ()
) -> GaussianScene:
    """Unpack a scene as float32 (`means` also float64) on the CPU, from any thread."""
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
        means=means,
        quats=quats * (1 / _UNIT),
        scales=scales.float(),
        opacities=opacities.float(),
        sh0=sh0.float(),
        shN=higher,
        activated=header.activated,
        sh_degree=header.sh_degree,
        antialiased=header.antialiased,
        version=version,
        notes=notes,
        background=header.background,
    )


def _pack_between(
    scene: GaussianScene, events: Sequence[torch.cuda.Event]
) -> list[torch.Tensor]:
    """Call `pack_rows`; record the first event before it and the second one after it.

    Without events nothing is recorded.
    """
    for event in events[:1]:
        event.record()
    tensors = pack_rows(scene)
    for event in events[1:]:
        event.record()
    return tensors


def _to_half(t: torch.Tensor, allow_infinite: bool = False) -> torch.Tensor:
    """Return values as float16; too large ones become the largest there is.

    Infinite ones become NaN, unless `allow_infinite`.
    """
    import torch

    clamped = t.clamp(-_MAX_HALF, _MAX_HALF)
    return torch.where(t.isfinite() | allow_infinite, clamped, torch.nan).half()


def pack_rows(scene: GaussianScene) -> list[torch.Tensor]:
    """Return the arrays that `layout` names, as tensors on the scene's device."""
    import torch

    means, quats, scales, opacities, sh0, higher = (
        as_floats(getattr(scene, name)) for name in FIELDS
    )
    if not scene.activation.scales:
        scales = _to_half(scales, allow_infinite=True)
    tensors = [
        means,
        _pack_quats(quats),
        scales,
        _to_half(opacities, allow_infinite=not scene.activation.opacities),
        _to_half(sh0),
    ]
    if not higher.shape[1]:
        return [*tensors, higher.to(torch.int8), higher.new_empty(0, dtype=torch.half)]
    flat = higher.flatten(1)
    sh_unit = _to_half(flat.abs().amax(dim=1) / 127)
    divisors = torch.where(sh_unit > 0, sh_unit.float(), torch.inf)
    fractions = (flat / divisors[:, None]).round().nan_to_num(0, 0, 0)
    packed = fractions.clamp(-127, 127).to(torch.int8)
    return [*tensors, packed.reshape(higher.shape), sh_unit]


def _pack_quats(quats: torch.Tensor) -> torch.Tensor:
    """Return unit quaternions times 32767 as int16; 0 for those that are none."""
    import torch

    wide = quats.double()
    unit = wide * (_UNIT / wide.norm(dim=1, keepdim=True))
    is_finite = unit.isfinite().all(dim=1, keepdim=True)
    # Gaussians of a quaternion of 0 cannot be drawn.
    return torch.where(is_finite, unit.round(), 0.0).to(torch.int16)
