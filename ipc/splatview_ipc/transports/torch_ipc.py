"""Transport for CUDA tensors whose storage stays, by the handles of torch.multiprocessing: shared without a copy.

It works as `zero_copy_writer` describes; only the memory is found and opened by torch. It is used where the driver does
not report the memory behind a tensor, and by SPLATVIEW_SHARE=torch.

What torch.multiprocessing would pickle for one reader, an *export*, is a typed, bounded struct in a file. The trainer
offers the file's descriptor by a token, and makes a new export each time that a viewer fetches it.

Invariants
1. One fetch is one export, one open and one release: torch counts the reader of each export, and keeps a storage whose
   count is above 0 for ever. A viewer returns its reference when it closes the memory.
2. The trainer returns the references of all exports of a generation when it gives the generation back, for viewers that
   died or never opened theirs; and the oldest beyond MOST_EXPORTS. A reference that is returned twice does no harm:
   each export has a count of its own, and below 0 counts as 0. The generation keeps the memory, not the count.
3. No event of torch is passed on: a GPU that waits for the event of a killed process waits for ever. Readers see by the
   word `arrived` that the data are there, as for all versions without a copy.
"""

from __future__ import annotations

import os
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from splatview_ipc.control import descriptors, limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.messages import Bytes, DecodeError, TorchMemory, encode
from splatview_ipc.cuda import driver
from splatview_ipc.cuda.export import Shared, check_shareable, tensor_refs
from splatview_ipc.cuda.memory import Mapped, Opened
from splatview_ipc.transports.zero_copy_reader import ZeroCopyReader
from splatview_ipc.transports.zero_copy_writer import ZeroCopyWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from splatview_ipc.control.messages import MemoryRef

MOST_EXPORTS = 8
"""References of one storage that are out at a time."""
_MOST_BYTES = 64 << 10
"""Bytes of an encoded export."""
_COUNTERS = 10_000
"""Counters in one of torch's files."""
_MALLOC, _EXPANDABLE = b"c", b"e"
"""The second byte of a handle: memory of cudaMalloc, which has 66 bytes, or of an expandable segment."""
_MAPPED = 13
"""CU_POINTER_ATTRIBUTE_MAPPED."""


class TorchExport(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """A storage of the trainer for one reader, as `torch.multiprocessing.reductions.reduce_tensor` describes it."""

    handle: Annotated[bytes, Meta(min_length=26, max_length=_MOST_BYTES // 2)]
    """Of the whole allocation: version, type and contents, understood by torch."""
    size: Annotated[int, Meta(ge=1, le=limits.MAX_SEGMENT)]
    """Bytes of the storage."""
    offset: Bytes
    """Bytes from the start of the allocation to the storage."""
    counter: Annotated[str, Meta(pattern=r"\A/torch_[0-9]+(_[0-9]+)*\Z", max_length=100)]
    """Name of the file in shared memory that counts the reader."""
    counter_offset: Annotated[int, Meta(ge=0, lt=_COUNTERS)]
    """Which of the file's counters."""


_decode = msgspec.msgpack.Decoder(TorchExport).decode


class TorchIpcWriter(ZeroCopyWriter):
    """The trainer's side."""

    def _describe(self, tensors: dict[str, torch.Tensor]) -> Shared:
        import torch

        check_shareable(tensors)
        if (backend := torch.cuda.get_allocator_backend()) != "native":
            raise SharingError(f"torch's allocator {backend} cannot share memory with another process; publish with "
                               "copy=True")
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors.values() if t.numel()}
        memories: list[MemoryRef] = []
        undo: list[Callable[[], object]] = []
        for storage in storages.values():
            exports = _Exports(storage)
            token = descriptors.offer(1, exports.make)
            memories.append(TorchMemory(token, storage.nbytes(), driver.gpu_uuid(storage.device.index)))
            undo += [partial(descriptors.withdraw, token), exports.close]
        return tuple(memories), tensor_refs(tensors, {start: s.nbytes() for start, s in storages.items()}), undo


class _Exports:
    """The exports of one storage."""

    def __init__(self, storage: torch.UntypedStorage):
        self._storage = storage
        self._out: deque[tuple[bytes, int]] = deque()
        """Counter of each export that was not returned by us."""

    def make(self, start: int, stop: int) -> list[int]:
        """As `descriptors.offer` asks for: a file with an export for one more reader."""
        import torch
        from torch.multiprocessing.reductions import reduce_tensor

        index = self._storage.device.index
        try:
            # A stream of its own: on the default stream torch's event would spoil the capture of a CUDA graph.
            with driver.relaxed_capture(), torch.cuda.stream(torch.cuda.Stream(index, priority=-1)):
                whole = torch.empty(0, dtype=torch.uint8, device=self._storage.device).set_(self._storage)
                fields: Any = reduce_tensor(whole)[1]
        except RuntimeError as e:
            raise SharingError(f"torch cannot share this memory: {_first_line(e)}") from None
        handle, size, offset = fields[7:10]
        counter = fields[11:13]
        self._out.append(counter)
        while len(self._out) > MOST_EXPORTS:
            _release(*self._out.popleft())
        fd = os.memfd_create("splatview-torch", os.MFD_CLOEXEC)
        os.write(fd, encode(TorchExport(handle, size, offset, counter[0].decode(), counter[1])))
        return [fd]

    def close(self) -> None:
        """Return all references, after the token was withdrawn."""
        while self._out:
            _release(*self._out.popleft())


def _release(counter: bytes, offset: int) -> None:
    import torch

    torch.UntypedStorage._release_ipc_counter_cuda(counter, offset)


def _first_line(e: BaseException) -> str:
    return str(e).partition("\n")[0]


class TorchIpcReader(ZeroCopyReader):
    """The viewer's side."""

    def _open_memory(self, memory: MemoryRef, fds: Sequence[int]) -> Opened:
        if not isinstance(memory, TorchMemory):
            raise SharingError(f"memory of torch was announced as {type(memory).__name__}")
        return _OpenedTorch(memory, read_export(memory, fds))


def read_export(memory: TorchMemory, fds: Sequence[int]) -> TorchExport:
    """Return the export in a fetched file. Raises SharingError unless it is one, of the announced size."""
    if len(fds) != 1:
        raise SharingError(f"memory of torch came with {len(fds)} descriptors; it has one")
    try:
        export = _decode(os.pread(fds[0], _MOST_BYTES, 0))
    except (OSError, *DecodeError) as e:
        raise SharingError(f"the announced export of torch cannot be read: {e}") from None
    kind, length = export.handle[1:2], len(export.handle)
    if kind not in (_MALLOC, _EXPANDABLE) or (kind == _MALLOC and length != 66):
        raise SharingError(f"a handle of torch of type {kind!r} with {length} bytes; known are {_MALLOC!r} with 66 and "
                           f"{_EXPANDABLE!r}")
    if export.size != memory.size or export.offset + export.size > limits.MAX_SEGMENT:
        raise SharingError(f"{export.size} bytes at {export.offset} of torch's memory; {memory.size} were announced")
    return export


class _OpenedTorch(Opened):
    """A storage of another process's torch, opened at the first use."""

    def __init__(self, memory: TorchMemory, export: TorchExport):
        super().__init__(memory.gpu, memory.size)
        self._export = export

    def _map_into(self, mapped: Mapped) -> None:
        import torch

        e = self._export
        try:
            storage = torch.UntypedStorage._new_shared_cuda(  # without its event (invariant 3)
                mapped.index, e.handle, e.size, e.offset, e.counter.encode(), e.counter_offset, b"", False)
        except RuntimeError as error:
            raise SharingError(f"torch cannot open the trainer's memory ({_first_line(error)}): is the same version of "
                               "torch installed on both sides, and may this process read the trainer's descriptors "
                               "(ptrace)? Else publish with copy=True") from None
        held = [storage]
        mapped.undo.append(held.clear)  # torch returns the reference
        mapped.address = storage.data_ptr()
        # torch does not compare with the allocation's size.
        if e.handle[1:2] == _MALLOC:
            base, size = (int(n) for n in driver.call("cuMemGetAddressRange", mapped.address))
            inside = mapped.address + e.size <= base + size
        else:
            inside = bool(driver.pointer_attribute(_MAPPED, mapped.address + e.size - 1))
        if not inside:
            raise SharingError(f"{e.size} bytes of torch's memory were announced; the allocation ends before them")
