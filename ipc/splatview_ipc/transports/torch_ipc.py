"""Transport for CUDA tensors whose storage stays, by the handles of torch.multiprocessing: shared without a copy.

It works as `zero_copy_writer` describes; only the memory is found and opened by torch. It is used where the driver does
not report the memory behind a tensor, and by SPLATVIEW_SHARE=torch.

What torch.multiprocessing would pickle for one reader, an *export*, is a typed, bounded struct in a file, made anew
each time that a viewer fetches its descriptor.

Invariants
1. One fetch is one export, one open and one release: torch counts the reader of each export, and keeps a storage whose
   count is above 0 for ever. A viewer returns its reference when it closes the memory.
2. A reference is returned once: below 0 torch takes its count for in use, and keeps the storage for ever. When a
   generation is given back, its viewers have RETURN_S to return theirs; those of viewers that died or never opened
   theirs, which torch still counts then, are returned by the trainer.
3. No event of torch is passed on: a GPU that waits for the event of a killed process waits for ever. Readers see by the
   word `arrived` that the data are there, as for all versions without a copy.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from splatview_ipc.control import descriptors, limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.messages import Bytes, DecodeError, TorchMemory, encode
from splatview_ipc.cuda import driver, retiring
from splatview_ipc.cuda.export import Shared, check_shareable, tensor_refs
from splatview_ipc.cuda.memory import Mapped, Opened
from splatview_ipc.transports.zero_copy_reader import ZeroCopyReader
from splatview_ipc.transports.zero_copy_writer import ZeroCopyWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from splatview_ipc.control.messages import MemoryRef

MOST_EXPORTS = 64  # references of one storage that are out at a time
RETURN_S = 2.0  # that viewers have to return theirs
Counter = tuple[
    bytes, int
]  # the name of a file in shared memory, and which of its counts
_MOST_BYTES = 64 << 10  # of an encoded export
_MALLOC = b"c"
_EXPANDABLE = b"e"
"""The second byte of a handle: memory of cudaMalloc (then it has 66 bytes) or of an expandable segment."""
_MAPPED = 13  # CU_POINTER_ATTRIBUTE_MAPPED


class TorchExport(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True
):
    """A storage of the trainer for one reader, from `torch.multiprocessing.reductions.reduce_tensor`."""

    handle: Annotated[bytes, Meta(min_length=26, max_length=_MOST_BYTES // 2)]
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
    """Which of the file's counters."""


_decode = msgspec.msgpack.Decoder(TorchExport).decode


class TorchIpcWriter(ZeroCopyWriter):
    """The trainer's side."""

    def _describe(self, tensors: dict[str, torch.Tensor]) -> Shared:
        import torch

        check_shareable(tensors)
        backend = torch.cuda.get_allocator_backend()
        if backend != "native":
            raise SharingError(
                f"torch's allocator {backend} cannot share memory: publish with copy=True"
            )
        storages = {
            t.untyped_storage().data_ptr(): t.untyped_storage()
            for t in tensors.values()
            if t.numel()
        }
        memories: list[MemoryRef] = []
        undo: list[Callable[[], object]] = []
        for storage in storages.values():
            exports = _Exports(storage)
            token = descriptors.offer(1, exports.make)
            memories.append(
                TorchMemory(
                    token, storage.nbytes(), driver.gpu_uuid(storage.device.index)
                )
            )
            undo += [partial(descriptors.withdraw, token), exports.close]
        return (
            tuple(memories),
            tensor_refs(tensors, {start: s.nbytes() for start, s in storages.items()}),
            undo,
        )


class _Exports:
    """The exports of one storage."""

    def __init__(self, storage: torch.UntypedStorage):
        self._storage = storage
        self._out: list[Counter] = []  # not returned when we last looked

    def make(self, start: int, stop: int) -> list[int]:
        """As `descriptors.offer` asks for: a file with an export for one more reader."""
        import torch
        from torch.multiprocessing.reductions import reduce_tensor

        device = self._storage.device
        self._out = [counter for counter in self._out if _counted(counter)]
        if len(self._out) >= MOST_EXPORTS:
            raise SharingError(
                f"{MOST_EXPORTS} viewers read this memory or have not returned it"
            )
        try:
            # A stream of its own: on the default one torch's event would spoil the capture of a CUDA graph.
            with (
                driver.relaxed_capture(),
                torch.cuda.stream(torch.cuda.Stream(device, priority=-1)),
            ):
                whole = torch.empty(0, dtype=torch.uint8, device=device).set_(
                    self._storage
                )
                fields: Any = reduce_tensor(whole)[1]
        except RuntimeError as e:
            raise SharingError(
                f"torch cannot share this memory: {str(e).splitlines()[0]}"
            ) from None
        handle, size, offset = fields[7:10]
        name, number = counter = fields[11:13]
        self._out.append(counter)
        fd = os.memfd_create("splatview-torch", os.MFD_CLOEXEC)
        os.write(fd, encode(TorchExport(handle, size, offset, name.decode(), number)))
        return [fd]

    def close(self) -> None:
        """Have all references returned, after the token was withdrawn."""
        out = self._out
        self._out = []
        end = time.perf_counter() + RETURN_S
        retiring.retire(
            lambda: time.perf_counter() > end or not any(map(_counted, out)),
            partial(_return, out),
        )


def _counted(counter: Counter) -> bool:
    """Return whether torch counts a reader: its file has a header of 64 bytes, and 64 bits for each export."""
    name, offset = counter
    try:
        with open(f"/dev/shm{name.decode()}", "rb", buffering=0) as file:
            return os.pread(file.fileno(), 8, 64 + 8 * offset) == (1).to_bytes(
                8, "little"
            )
    except OSError:
        return False


def _return(out: list[Counter]) -> None:
    import torch

    for counter in out:
        if _counted(counter):
            torch.UntypedStorage._release_ipc_counter_cuda(*counter)
    with driver.relaxed_capture():
        torch.cuda.ipc_collect()  # what was let go of while it was counted


class TorchIpcReader(ZeroCopyReader):
    """The viewer's side."""

    def _open_memory(self, memory: MemoryRef, fds: Sequence[int]) -> Opened:
        if not isinstance(memory, TorchMemory):
            raise SharingError(
                f"memory of torch was announced as {type(memory).__name__}"
            )
        return _OpenedTorch(memory, read_export(memory, fds))


def read_export(memory: TorchMemory, fds: Sequence[int]) -> TorchExport:
    """Return the export in a fetched file. Raises SharingError unless it is one, of the announced size."""
    if len(fds) != 1:
        raise SharingError(
            f"memory of torch came with {len(fds)} descriptors; it has one"
        )
    try:
        export = _decode(os.pread(fds[0], _MOST_BYTES, 0))
    except (OSError, *DecodeError) as e:
        raise SharingError(
            f"the announced export of torch cannot be read: {e}"
        ) from None
    kind = export.handle[1:2]
    length = len(export.handle)
    if kind not in (_MALLOC, _EXPANDABLE) or (kind == _MALLOC and length != 66):
        raise SharingError(
            f"a handle of torch of type {kind!r} with {length} bytes, not {_MALLOC!r} with 66 or b'e'"
        )
    if export.size != memory.size or export.offset + export.size > limits.MAX_SEGMENT:
        raise SharingError(
            f"{export.size} bytes at {export.offset} of torch's memory; {memory.size} were announced"
        )
    return export


class _OpenedTorch(Opened):
    """A storage of another process's torch, opened at the first use."""

    def __init__(self, memory: TorchMemory, export: TorchExport):
        super().__init__(memory.gpu, memory.size)
        self._export = export

    def _map_into(self, mapped: Mapped) -> None:
        import torch

        e = self._export
        no_event = (b"", False)
        try:
            storage = torch.UntypedStorage._new_shared_cuda(
                mapped.index,
                e.handle,
                e.size,
                e.offset,
                e.counter.encode(),
                e.counter_offset,
                *no_event,
            )
        except RuntimeError as error:
            raise SharingError(
                f"torch cannot open memory ({str(error).splitlines()[0]}): install the same torch on "
                "both sides, allow reading the trainer's descriptors (ptrace) or copy=True"
            ) from None
        held = [storage]
        mapped.undo.append(held.clear)  # torch returns the reference
        mapped.address = storage.data_ptr()
        # torch does not compare with the allocation's size.
        if e.handle[1:2] == _MALLOC:
            base, size = (
                int(n) for n in driver.call("cuMemGetAddressRange", mapped.address)
            )
            inside = mapped.address + e.size <= base + size
        else:
            inside = bool(
                driver.pointer_attribute(_MAPPED, mapped.address + e.size - 1)
            )
        if not inside:
            raise SharingError(
                f"{e.size} bytes of torch's memory were announced; the allocation ends before them"
            )
