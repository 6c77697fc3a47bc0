"""Packed scenes: a third of the bytes of float32, with hardly a visible difference.

In memory and in a file it is the same bytes: 8 bytes that name the form, the length of the
header as uint32, the header as JSON, then the scene. `block_form` is what is written;
`array_form` is what earlier versions wrote, and is read.

What cannot be drawn (`Renderer.load`) cannot be drawn afterwards either. Nothing is
unpickled, and sizes are checked before memory is taken.
"""

from __future__ import annotations

import os
import struct
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, BinaryIO

import msgspec
import numpy as np

from splatview_ipc.system.files import write_output
from splatview_viewer.blocks.host_packing import HostPacker
from splatview_viewer.blocks.layout import BLOCK
from splatview_viewer.blocks.packing import BlockedScene
from splatview_viewer.core.errors import FileError
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats import check_memory, scene_bytes
from splatview_viewer.recording.array_form import ArrayHeader
from splatview_viewer.recording.block_form import BlockHeader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import torch

    from splatview_viewer.blocks.layout import BlockPart
    from splatview_viewer.blocks.unpacking import SceneBlocks
    from splatview_viewer.core.settings import Color
    from splatview_viewer.recording.snapshot_header import SnapshotHeader
    from splatview_viewer.scene.scene import GaussianScene

_FORMS: dict[bytes, type[SnapshotHeader]] = {
    header.magic: header for header in (BlockHeader, ArrayHeader)
}
"""By the first bytes of a file."""
_MAGIC_BYTES = 8
_START = _MAGIC_BYTES + 4
_MAX_HEADER = 4096
"""Bytes that a header may have."""
_ALIGNMENT = 64
"""Blocks begin at a multiple of so many bytes."""


@dataclass(frozen=True, eq=False)
class Packed:
    """A packed scene: its header and all its bytes."""

    header: SnapshotHeader
    data: np.ndarray
    """All bytes, (N,) uint8."""
    gpu_ms: float = 0.0
    """Milliseconds that a GPU took to pack it."""

    def __len__(self) -> int:
        return self.header.count

    @property
    def body(self) -> np.ndarray:
        """The bytes behind the header."""
        return self.data[self.data.nbytes - self.header.body_bytes :]

    @property
    def blocks(self) -> SceneBlocks | None:
        """The scene in blocks, in the same memory; None where it is in another form."""
        return self.header.blocks(self.body)


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
        unpacked = scene_bytes(header.count, header.unpacked_coefficients)
        check_memory(
            header.body_bytes + unpacked, f"{path}: {header.count:,} Gaussians"
        )
        size = os.fstat(f.fileno()).st_size
        f.seek(0)
        data = np.fromfile(f, np.uint8, size)
        if len(data) != size:
            raise FileError(f"{path}: damaged: it was cut off while it was read")
    return Packed(header, data)


def read_packed_row(path: Path, index: int) -> GaussianScene:
    """Read one Gaussian of a packed scene, and few others.

    Raises:
        FileError: the file is missing, damaged or none, or has no such Gaussian.
    """
    with _opened(path) as f:
        header = _read_header(f, path)
        if index >= header.count:
            raise FileError(f"{path}: has {header.count:,} Gaussians")
        start = os.fstat(f.fileno()).st_size - header.body_bytes
        spans = header.row_spans(index)
        chunks = []
        for offset, size in spans:
            f.seek(start + offset)
            chunks.append(np.fromfile(f, np.uint8, size))
    row_bytes = np.concatenate(chunks)
    if len(row_bytes) != sum(size for _, size in spans):
        raise FileError(f"{path}: damaged: it was cut off while it was read")
    return header.row(row_bytes, index)


def packed_row(packed: Packed, index: int) -> GaussianScene:
    """Return one Gaussian of a packed scene as a scene."""
    body = packed.body
    spans = packed.header.row_spans(index)
    chunks = [body[offset : offset + size] for offset, size in spans]
    return packed.header.row(np.concatenate(chunks), index)


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


def _read_header(f: BinaryIO, path: Path) -> SnapshotHeader:
    """Read the header of a packed scene; check it against the file's size.

    Raises FileError, or what msgspec raises.
    """
    size = os.fstat(f.fileno()).st_size
    start = f.read(_START)
    form = _FORMS.get(start[:_MAGIC_BYTES])
    if len(start) != _START or form is None:
        raise FileError(f"{path}: no snapshot of a recording")
    (length,) = struct.unpack_from("<I", start, _MAGIC_BYTES)
    if length > _MAX_HEADER:
        raise FileError(
            f"{path}: damaged: a header of {length:,} bytes; at most {_MAX_HEADER:,}"
        )
    header = msgspec.json.decode(f.read(length), type=form)
    needed = _START + length + header.body_bytes
    if size != needed:
        raise FileError(
            f"{path}: damaged: {size:,} bytes, and {header.count:,} Gaussians take "
            f"{needed:,}"
        )
    return header


def pack(
    scene: GaussianScene,
    background: Color | None = None,
    stream: torch.cuda.Stream | None = None,
) -> Packed:
    """Pack a scene, from any thread, up to the degree of harmonics that it uses.

    Args:
        scene: on the CPU or a GPU.
        background: the scene's own, RGB in [0, 1].
        stream: for a scene on a GPU, the torch stream that reads it, which waits for
            the data by itself; the calling thread waits for it.
    """
    import torch

    sh_degree = min(scene.sh_degree, scene.stored_sh_degree)
    used = (sh_degree + 1) ** 2 - 1
    with torch.cuda.stream(stream):
        blocked = BlockedScene.of(replace(scene, shN=scene.shN[:, :used]))
        header = BlockHeader(
            count=len(scene),
            sh_degree=sh_degree,
            antialiased=scene.antialiased,
            origin=blocked.origin,
            background=background,
            wide=scene.means.dtype.itemsize == 8,
        )
        packed = _make_room(header)
        gpu_ms = _pack_into(packed, blocked)
    return replace(packed, gpu_ms=gpu_ms)


def _make_room(header: BlockHeader) -> Packed:
    """Return a scene whose header is written, and whose blocks are to be."""
    text = msgspec.json.encode(header)
    text += b" " * (-(_START + len(text)) % _ALIGNMENT)
    start = header.magic + struct.pack("<I", len(text)) + text
    data = np.empty(len(start) + header.body_bytes, np.uint8)
    data[: len(start)] = np.frombuffer(start, np.uint8)
    return Packed(header, data)


def _pack_into(packed: Packed, blocked: BlockedScene) -> float:
    """Write the blocks of a scene; return the milliseconds that a GPU took."""
    blocks = packed.blocks
    assert blocks is not None
    targets: dict[BlockPart, np.ndarray] = {"exact": blocks.exact}
    if blocks.coefficients:
        targets["harmonics"] = blocks.harmonics
    packer = HostPacker()
    if blocked.scene.on_gpu:
        # CUDA loads kernels at their first use, which the measured time leaves out.
        first = BlockedScene(blocked.scene[:BLOCK], blocked.origin)
        packer.pack(first, {name: target[:1] for name, target in targets.items()})
        packer.gpu_ms = 0.0
    packer.pack(blocked, targets)
    return packer.gpu_ms


def unpack(
    packed: Packed, *, version: int = 0, notes: tuple[str, ...] = ()
) -> GaussianScene:
    """Unpack a scene as float32 (`means` also float64) on the CPU, from any thread."""
    return packed.header.scene(packed.body, version=version, notes=notes)
