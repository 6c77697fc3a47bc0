"""The memory behind torch's tensors, described so that another process can open it."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from splatview_ipc.control import descriptors, limits
from splatview_ipc.control.dtypes import DTYPES, dtype_name
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.messages import FdMemory, IpcMemory, MemoryRef, TensorRef
from splatview_ipc.control.sockets import close_all
from splatview_ipc.cuda import driver
from splatview_ipc.cuda.tensors import element_span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

# CUpointer_attribute, by number: older bindings lack the last two, newer ones refuse to
# ask for them.
_IS_MANAGED = 8
_IS_IPC_CAPABLE = 10
_HANDLE_TYPES = 14
_MEMPOOL = 17
_MAPPING_SIZE = 18
_MAPPING_BASE = 19
_POSIX_FD = 1
"""Handle type of memory that can be exported as a file descriptor."""


class Chunk(NamedTuple):
    """Memory that the driver gave out at once: a physical chunk, or an allocation."""

    address: int
    size: int
    """Size in bytes."""

    @property
    def end(self) -> int:
        return self.address + self.size


Shared = tuple[
    tuple[MemoryRef, ...], tuple[TensorRef, ...], "list[Callable[[], object]]"
]
"""Memories for other processes, each tensor's memory and offset, and the calls that
take the memories back."""


class _Extents(NamedTuple):
    """The memory behind some tensors."""

    allocations: set[Chunk]
    """Of cudaMalloc, with an IPC handle each."""
    runs: list[list[Chunk]]
    """Chunks of cuMemCreate; those of a run follow each other."""


def check_shareable(tensors: Mapping[str, torch.Tensor]) -> int:
    """Return the ordinal of the device of these tensors.

    Raises SharingError unless each of them can be announced.
    """
    import torch

    devices = {tensor.device for tensor in tensors.values()}
    if len(devices) != 1 or next(iter(devices)).type != "cuda":
        names = ", ".join(sorted(map(str, devices))) or "no device"
        raise SharingError(
            f"tensors on {names}: GPU memory is shared from one CUDA device at a time"
        )
    for name, tensor in tensors.items():
        if dtype_name(tensor) not in DTYPES:
            expected = ", ".join(DTYPES)
            raise SharingError(f"{name} is {dtype_name(tensor)}; expected {expected}")
        if tensor.layout is not torch.strided:
            raise SharingError(
                f"{name} is {tensor.layout}; only dense tensors can be shared where they "
                "are"
            )
        if tensor.dim() > limits.MAX_DIMS:
            raise SharingError(
                f"{name} has {tensor.dim()} dimensions; the limit is {limits.MAX_DIMS}"
            )
    return next(iter(devices)).index or 0


def share_tensors(tensors: Mapping[str, torch.Tensor]) -> Shared:
    """Share the memory of CUDA tensors, as long as the caller keeps them.

    All are on one device. Chunks that follow each other become one memory, whose
    descriptors are offered to viewers; none is kept. An empty tensor refers to memory
    0, also if there is none. Nothing is waited for.

    Raises SharingError with the reason when the memory cannot be shared, for example
    that of PyTorch's cudaMallocAsync allocator.
    """
    index = check_shareable(tensors)
    memories: dict[int, FdMemory | IpcMemory] = {}
    """Memories by their addresses."""
    with driver.context(index), driver.relaxed_capture():
        allocations, runs = _find_extents(tensors)
        _check_count(allocations, runs)
        gpu = driver.gpu_uuid(index)
        for run in runs:
            # A failure is better known now than when a viewer asks.
            os.close(*_chunk_fds(index, run, 0, 1))
        for allocation in sorted(allocations):
            handle = driver.call("cuIpcGetMemHandle", allocation.address)
            memories[allocation.address] = IpcMemory(
                bytes(handle.reserved), allocation.size, gpu
            )
    undo: list[Callable[[], object]] = []
    for run in runs:
        token = descriptors.offer(len(run), partial(_chunk_fds, index, run))
        undo.append(partial(descriptors.withdraw, token))
        sizes = tuple(chunk.size for chunk in run)
        memories[run[0].address] = FdMemory(token, sizes, gpu)
    size_by_address = {address: memory.size for address, memory in memories.items()}
    refs = tensor_refs(tensors, size_by_address)
    return tuple(memories.values()), refs, undo


def _find_extents(tensors: Mapping[str, torch.Tensor]) -> _Extents:
    """Return the memory behind tensors.

    Raises SharingError. Needs a current context.
    """
    allocations: set[Chunk] = set()
    chunks: set[Chunk] = set()
    for tensor in tensors.values():
        if not tensor.numel():
            continue
        start = tensor.data_ptr()
        size = element_span(tensor.shape, tensor.stride()) * tensor.element_size()
        found_chunks, has_ipc_handle = chunks_behind(start, start + size)
        if has_ipc_handle:
            allocations.update(found_chunks)
        else:
            chunks.update(found_chunks)
    runs: list[list[Chunk]] = []
    for chunk in sorted(chunks):
        if runs and runs[-1][-1].end == chunk.address:
            runs[-1].append(chunk)
        else:
            runs.append([chunk])
    return _Extents(allocations, runs)


def _check_count(allocations: set[Chunk], runs: list[list[Chunk]]) -> None:
    """Raise SharingError for more chunks or memories than can be announced at once."""
    chunk_count = sum(map(len, runs))
    is_too_scattered = len(runs) + len(allocations) > limits.MAX_MEMORIES
    if chunk_count > limits.MAX_PIECES or is_too_scattered:
        raise SharingError(
            f"the tensors are spread over {chunk_count} chunks and {len(allocations)} "
            f"allocations; at most {limits.MAX_PIECES} and {limits.MAX_MEMORIES} are "
            "shared at once: publish fewer tensors, or with copy=True"
        )


def tensor_refs(
    tensors: Mapping[str, torch.Tensor], memories: Mapping[int, int]
) -> tuple[TensorRef, ...]:
    """Return each tensor's memory and offset.

    Args:
        tensors: by name; an empty one is in memory 0.
        memories: bytes by address; their order is that of their indices.
    """
    refs = []
    for name, tensor in tensors.items():
        index = 0
        offset = 0
        if tensor.numel():
            index, offset = _locate(tensor.data_ptr(), memories)
        ref = TensorRef(
            name=name,
            dtype=dtype_name(tensor),  # type: ignore[arg-type]
            shape=tuple(tensor.shape),
            strides=tuple(tensor.stride()),
            memory=index,
            offset=offset,
        )
        refs.append(ref)
    return tuple(refs)


def _locate(pointer: int, memories: Mapping[int, int]) -> tuple[int, int]:
    """Return the index of the memory that a pointer is in, and the offset there."""
    for index, (address, size) in enumerate(memories.items()):
        if address <= pointer < address + size:
            return index, pointer - address
    raise AssertionError(f"{pointer:#x} is in none of the memories")


def chunks_behind(start: int, end: int) -> tuple[list[Chunk], bool]:
    """Return the memory behind a range of addresses.

    The second value is True if it is one cudaMalloc allocation with an IPC handle.
    Raises SharingError when it cannot be shared. Needs a current context.
    """
    if _attribute(_MEMPOOL, start):
        raise SharingError(
            "memory of PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync cannot be shared "
            "with another process; leave the backend out, or publish with copy=True"
        )
    if _attribute(_IS_MANAGED, start):
        raise SharingError(
            "managed memory (cudaMallocManaged) cannot be shared with another process; "
            "publish with copy=True"
        )
    if _attribute(_IS_IPC_CAPABLE, start):
        return [_allocation_behind(start, end)], True
    types = _attribute(_HANDLE_TYPES, start)
    if not types & _POSIX_FD:
        reason = f"handle types {types:#x}" if types else "no way to export it"
        raise SharingError(
            f"this GPU memory was not made to be shared ({reason}); publish with "
            "copy=True, or use PyTorch's own allocator, from 2.5 on if with "
            "expandable_segments"
        )
    chunks: list[Chunk] = []
    while start < end:
        chunk = Chunk(
            _attribute(_MAPPING_BASE, start), _attribute(_MAPPING_SIZE, start)
        )
        if not chunk.address <= start < chunk.end:
            raise SharingError(
                f"this NVIDIA driver does not tell which memory is mapped at {start:#x}; "
                "publish with copy=True, or update the driver"
            )
        chunks.append(chunk)
        start = chunk.end
    return chunks, False


def _allocation_behind(start: int, end: int) -> Chunk:
    """Return the cudaMalloc allocation that a range of addresses lies in."""
    base, size = driver.call("cuMemGetAddressRange", start)
    allocation = Chunk(int(base), int(size))
    if not allocation.address <= start or end > allocation.end:
        raise SharingError(
            f"a tensor at {start:#x} to {end:#x} reaches beyond its allocation of "
            f"{allocation.size} bytes at {allocation.address:#x}"
        )
    return allocation


def _attribute(attribute: int, pointer: int) -> int:
    """Return an attribute of an address; 0 if the driver does not know it."""
    try:
        return driver.pointer_attribute(attribute, pointer)
    except driver.CudaError as e:
        if e.error in ("CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_NOT_SUPPORTED"):
            return 0
        raise


def _chunk_fds(index: int, chunks: Sequence[Chunk], start: int, stop: int) -> list[int]:
    """Return new descriptors of `chunks[start:stop]` on device `index`.

    Raises SharingError.
    """
    fds: list[int] = []
    try:
        with driver.context(index), driver.relaxed_capture():
            for chunk in chunks[start:stop]:
                handle = driver.call_for_handle(
                    "cuMemRetainAllocationHandle", chunk.address
                )
                try:
                    fds.append(export_fd(handle))
                finally:
                    driver.call_quietly("cuMemRelease", handle)
    except BaseException:
        close_all(fds)
        raise
    return fds


def export_fd(chunk: Any) -> int:
    """Return a new descriptor of an allocation, given by its handle.

    Raises SharingError.
    """
    fd = int(driver.call("cuMemExportToShareableHandle", chunk, driver.fd_type(), 0))
    os.set_inheritable(fd, False)
    return fd
