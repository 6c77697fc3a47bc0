"""Transport for CUDA tensors whose storage stays, by the handles of torch.

Tensors are shared without a copy, as `zero_copy_writer` describes; only the memory is
found and opened by torch. It is used where the driver does not report the memory behind
a tensor, and by SPLATVIEW_SHARE=torch.

What torch.multiprocessing would pickle for one reader, an *export*, is a typed, bounded
struct in a file, made again each time that a viewer fetches its descriptor.

Invariants
1. One fetch is one export, one open and one release: torch counts the reader of each
   export, and keeps a storage whose count is above 0 for ever. A viewer returns its
   reference when it closes the memory.
2. A reference is returned once: below 0 torch takes its count for in use, and keeps the
   storage for ever. When a generation is released, its viewers have RETURN_S to
   return theirs; those of viewers that died or never opened theirs, which torch still
   counts then, are returned by the trainer.
3. No event of torch is passed on: a GPU that waits for the event of a killed process
   waits for ever. Readers see by the word `arrived` that the data are there, as for all
   versions without a copy.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from splatview_ipc.control import descriptors, limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.messages import Bytes, DecodeError, TorchMemory, encode
from splatview_ipc.cuda import driver, retiring
from splatview_ipc.cuda.export import Shared, check_shareable, tensor_refs
from splatview_ipc.cuda.memory import MappedMemory, OpenedMemory
from splatview_ipc.transports.zero_copy_reader import ZeroCopyReader
from splatview_ipc.transports.zero_copy_writer import ZeroCopyWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from splatview_ipc.control.messages import MemoryRef

MAX_EXPORTS = 64
"""References of one storage that are out at a time."""
RETURN_S = 2.0
"""Seconds that viewers have to return their references."""
_MAX_EXPORT_BYTES = 64 << 10
"""Bytes of an encoded export."""
_MALLOC = b"c"
_EXPANDABLE = b"e"
"""The second byte of a handle: memory of cudaMalloc, or of an expandable segment."""
_MALLOC_HANDLE_BYTES = 66
_MAPPED = 13
"""CU_POINTER_ATTRIBUTE_MAPPED."""
_COUNTER_HEADER_BYTES = 64
_COUNTER_BYTES = 8
"""Of a file in which torch counts readers."""


class _Counter(NamedTuple):
    """The place at which torch counts the reader of one export."""

    file_name: bytes
    """Name of a file in shared memory."""
    counter_index: int
    """Index of the counter in its file."""

    def is_counted(self) -> bool:
        """Return whether torch counts a reader."""
        offset = _COUNTER_HEADER_BYTES + _COUNTER_BYTES * self.counter_index
        path = f"/dev/shm{self.file_name.decode()}"
        try:
            with open(path, "rb", buffering=0) as file:
                count = os.pread(file.fileno(), _COUNTER_BYTES, offset)
        except OSError:
            return False
        return count == (1).to_bytes(_COUNTER_BYTES, "little")


class TorchExport(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True
):
    """A storage of the trainer for one reader.

    The fields are those of `torch.multiprocessing.reductions.reduce_tensor`.
    """

    handle: Annotated[bytes, Meta(min_length=26, max_length=_MAX_EXPORT_BYTES // 2)]
    """Handle of the whole allocation: version, type and contents, for torch."""
    size: Annotated[int, Meta(ge=1, le=limits.MAX_SEGMENT)]
    """Bytes of the storage."""
    offset: Bytes
    """Bytes from the start of the allocation to the storage."""
    counter: Annotated[
        str, Meta(pattern=r"\A/torch_[0-9]+(_[0-9]+)*\Z", max_length=100)
    ]
    """Name of the file in shared memory that counts the reader."""
    counter_offset: Annotated[int, Meta(ge=0, lt=10_000)]
    """Index of the counter in its file."""


_decode = msgspec.msgpack.Decoder(TorchExport).decode


class TorchIpcWriter(ZeroCopyWriter):
    """The trainer's side."""

    def _describe(self, tensors: dict[str, torch.Tensor]) -> Shared:
        import torch

        check_shareable(tensors)
        backend = torch.cuda.get_allocator_backend()
        if backend != "native":
            raise SharingError(
                f"torch's allocator {backend} cannot share memory: publish with "
                "copy=True"
            )
        storages: dict[int, torch.UntypedStorage] = {}
        """Storages by their addresses."""
        for tensor in tensors.values():
            if tensor.numel():
                storage = tensor.untyped_storage()
                storages[storage.data_ptr()] = storage
        memories: list[MemoryRef] = []
        undo: list[Callable[[], object]] = []
        for storage in storages.values():
            exports = _Exports(storage)
            token = descriptors.offer(1, exports.make)
            uuid = driver.gpu_uuid(storage.device.index)
            memories.append(TorchMemory(token, storage.nbytes(), uuid))
            undo += [partial(descriptors.withdraw, token), exports.close]
        sizes = {address: storage.nbytes() for address, storage in storages.items()}
        return tuple(memories), tensor_refs(tensors, sizes), undo


class _Exports:
    """The exports of one storage."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self._storage = storage
        self._unreturned: list[_Counter] = []
        """Of the exports that were not returned when they were last looked at."""

    def make(self, start: int, stop: int) -> list[int]:
        """Write an export for one more reader into a file; see `descriptors.offer`."""
        self._unreturned = [c for c in self._unreturned if c.is_counted()]
        if len(self._unreturned) >= MAX_EXPORTS:
            raise SharingError(
                f"{MAX_EXPORTS} viewers read this memory or have not returned it"
            )
        fields = self._reduce()
        handle, size, offset = fields[7:10]
        counter = _Counter(*fields[11:13])
        self._unreturned.append(counter)
        export = TorchExport(
            handle=handle,
            size=size,
            offset=offset,
            counter=counter.file_name.decode(),
            counter_offset=counter.counter_index,
        )
        fd = os.memfd_create("splatview-torch", os.MFD_CLOEXEC)
        os.write(fd, encode(export))
        return [fd]

    def _reduce(self) -> Any:
        """Return what torch would pickle of a tensor over the storage."""
        import torch
        from torch.multiprocessing.reductions import reduce_tensor

        device = self._storage.device
        try:
            # A stream of its own: on the default one torch's event would spoil the
            # capture of a CUDA graph.
            with (
                driver.relaxed_capture(),
                torch.cuda.stream(torch.cuda.Stream(device, priority=-1)),
            ):
                empty = torch.empty(0, dtype=torch.uint8, device=device)
                tensor = empty.set_(self._storage)
                return reduce_tensor(tensor)[1]
        except RuntimeError as error:
            first_line = str(error).splitlines()[0]
            raise SharingError(
                f"torch cannot share this memory: {first_line}"
            ) from None

    def close(self) -> None:
        """Have all references returned, after the token was withdrawn."""
        unreturned = self._unreturned
        self._unreturned = []
        deadline = time.perf_counter() + RETURN_S

        def is_over() -> bool:
            if time.perf_counter() > deadline:
                return True
            return not any(counter.is_counted() for counter in unreturned)

        retiring.retire(is_over, partial(_return_references, unreturned))


def _return_references(counters: list[_Counter]) -> None:
    """Return the references that torch still counts, instead of their viewers."""
    import torch

    for counter in counters:
        if counter.is_counted():
            torch.UntypedStorage._release_ipc_counter_cuda(*counter)
    with driver.relaxed_capture():
        torch.cuda.ipc_collect()  # what was let go of while it was counted


class TorchIpcReader(ZeroCopyReader):
    """The viewer's side."""

    def _open_memory(self, memory: MemoryRef, fds: Sequence[int]) -> OpenedMemory:
        if not isinstance(memory, TorchMemory):
            raise SharingError(
                f"memory of torch was announced as {type(memory).__name__}"
            )
        return _OpenedTorch(memory, read_export(memory, fds))


def read_export(memory: TorchMemory, fds: Sequence[int]) -> TorchExport:
    """Return the export in a fetched file.

    Raises SharingError unless it is one, of the announced size.
    """
    if len(fds) != 1:
        raise SharingError(
            f"memory of torch came with {len(fds)} descriptors; it has one"
        )
    try:
        export = _decode(os.pread(fds[0], _MAX_EXPORT_BYTES, 0))
    except (OSError, *DecodeError) as error:
        raise SharingError(
            f"the announced export of torch cannot be read: {error}"
        ) from None
    kind = export.handle[1:2]
    length = len(export.handle)
    has_wrong_length = kind == _MALLOC and length != _MALLOC_HANDLE_BYTES
    if kind not in (_MALLOC, _EXPANDABLE) or has_wrong_length:
        raise SharingError(
            f"a handle of torch of type {kind!r} with {length} bytes, not {_MALLOC!r} "
            f"with {_MALLOC_HANDLE_BYTES} or {_EXPANDABLE!r}"
        )
    if export.size != memory.size or export.offset + export.size > limits.MAX_SEGMENT:
        raise SharingError(
            f"{export.size} bytes at {export.offset} of torch's memory; {memory.size} "
            "were announced"
        )
    return export


class _OpenedTorch(OpenedMemory):
    """A storage of another process's torch, opened at the first use."""

    def __init__(self, memory: TorchMemory, export: TorchExport) -> None:
        super().__init__(memory.gpu, memory.size)
        self._export = export

    def _map_into(self, mapped: MappedMemory) -> None:
        import torch

        export = self._export
        no_event = (b"", False)
        try:
            storage = torch.UntypedStorage._new_shared_cuda(
                mapped.index,
                export.handle,
                export.size,
                export.offset,
                export.counter.encode(),
                export.counter_offset,
                *no_event,
            )
        except RuntimeError as error:
            first_line = str(error).splitlines()[0]
            raise SharingError(
                f"torch cannot open memory ({first_line}): install the same torch on "
                "both sides, allow reading the trainer's descriptors (ptrace) or "
                "copy=True"
            ) from None
        # Clearing the list has torch return the reference.
        references = [storage]
        mapped.cleanups.append(references.clear)
        mapped.address = storage.data_ptr()
        # torch does not compare with the allocation's size.
        if not self._is_inside(mapped.address):
            raise SharingError(
                f"{export.size} bytes of torch's memory were announced; the allocation "
                "ends before them"
            )

    def _is_inside(self, address: int) -> bool:
        """Return whether the storage at an address ends within its allocation."""
        end = address + self._export.size
        if self._export.handle[1:2] == _MALLOC:
            base, size = driver.call("cuMemGetAddressRange", address)
            return end <= int(base) + int(size)
        return bool(driver.pointer_attribute(_MAPPED, end - 1))
