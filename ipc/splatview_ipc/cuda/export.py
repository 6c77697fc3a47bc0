"""The memory behind torch's tensors, described so that another process can open it."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from splatview_ipc.control import descriptors, limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.messages import FdMemory, IpcMemory, MemoryRef, TensorRef
from splatview_ipc.control.sockets import close_all
from splatview_ipc.cuda import driver
from splatview_ipc.cuda.tensors import element_span
from splatview_ipc.shm.slot_layout import dtype_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

# CUpointer_attribute, by number: older bindings lack the last two, newer ones refuse to ask for them.
_IS_MANAGED = 8
_IS_IPC_CAPABLE = 10
_HANDLE_TYPES = 14
_MEMPOOL = 17
_MAPPING_SIZE = 18
_MAPPING_BASE = 19
_POSIX_FD = 1

Chunk = tuple[int, int]  # address, bytes
Shared = tuple[
    tuple[MemoryRef, ...], tuple[TensorRef, ...], "list[Callable[[], object]]"
]
"""Memories for other processes, each tensor's place in them, and the calls that take them back."""


def check_shareable(tensors: Mapping[str, torch.Tensor]) -> int:
    """Return the ordinal of the device of these tensors. Raises SharingError unless each of them can be announced."""
    import torch

    devices = {t.device for t in tensors.values()}
    if len(devices) != 1 or next(iter(devices)).type != "cuda":
        raise SharingError(
            f"tensors on {', '.join(sorted(map(str, devices))) or 'no device'}: GPU memory is shared "
            "from one CUDA device at a time"
        )
    for name, t in tensors.items():
        if dtype_name(t) not in limits.ITEM_SIZE:
            raise SharingError(
                f"{name} is {dtype_name(t)}; legal are {', '.join(limits.ITEM_SIZE)}"
            )
        if t.layout is not torch.strided:
            raise SharingError(
                f"{name} is {t.layout}; only dense tensors can be shared where they are"
            )
        if t.dim() > limits.MAX_DIMS:
            raise SharingError(
                f"{name} has {t.dim()} dimensions; the limit is {limits.MAX_DIMS}"
            )
    return next(iter(devices)).index or 0


def share_tensors(tensors: Mapping[str, torch.Tensor]) -> Shared:
    """Share the memory of CUDA tensors, all on one device, as long as the caller keeps them.

    Chunks that follow each other become one memory, whose descriptors are offered to viewers; none is kept. An empty
    tensor refers to memory 0, also where there is none. Nothing is waited for.
    Raises SharingError with the reason when the memory cannot be shared, such as PyTorch's cudaMallocAsync allocator.
    """
    index = check_shareable(tensors)
    allocations: set[Chunk] = set()
    chunks: set[Chunk] = set()
    with driver.context(index), driver.relaxed_capture():
        for t in tensors.values():
            if t.numel():
                start = t.data_ptr()
                found, ipc = chunks_behind(
                    start, start + element_span(t.shape, t.stride()) * t.element_size()
                )
                (allocations if ipc else chunks).update(found)
        runs: list[list[Chunk]] = []
        for chunk in sorted(chunks):
            if runs and sum(runs[-1][-1]) == chunk[0]:
                runs[-1].append(chunk)
            else:
                runs.append([chunk])
        if (
            len(chunks) > limits.MAX_PIECES
            or len(runs) + len(allocations) > limits.MAX_MEMORIES
        ):
            raise SharingError(
                f"the tensors are spread over {len(chunks)} chunks and {len(allocations)} allocations; "
                f"at most {limits.MAX_PIECES} and {limits.MAX_MEMORIES} are shared at once: publish "
                "fewer tensors, or with copy=True"
            )
        gpu = driver.gpu_uuid(index)
        for run in runs:
            os.close(
                *_chunk_fds(index, run, 0, 1)
            )  # a failure is better known now than when a viewer asks
        memories: dict[int, FdMemory | IpcMemory] = {}
        """By address."""
        for base, size in sorted(allocations):
            memories[base] = IpcMemory(
                bytes(driver.call("cuIpcGetMemHandle", base).reserved), size, gpu
            )
    undo: list[Callable[[], object]] = []
    for run in runs:
        token = descriptors.offer(len(run), partial(_chunk_fds, index, run))
        undo.append(partial(descriptors.withdraw, token))
        memories[run[0][0]] = FdMemory(token, tuple(size for _, size in run), gpu)
    return (
        tuple(memories.values()),
        tensor_refs(tensors, {start: m.size for start, m in memories.items()}),
        undo,
    )


def tensor_refs(
    tensors: Mapping[str, torch.Tensor], memories: Mapping[int, int]
) -> tuple[TensorRef, ...]:
    """Return each tensor's place in memories, given by address and bytes; an empty tensor is in memory 0."""
    refs = []
    for name, t in tensors.items():
        memory = 0
        offset = 0
        if t.numel():
            pointer = t.data_ptr()
            memory, start = next(
                (i, start)
                for i, (start, size) in enumerate(memories.items())
                if start <= pointer < start + size
            )
            offset = pointer - start
        refs.append(
            TensorRef(
                name,
                dtype_name(t),  # type: ignore[arg-type]
                tuple(t.shape),
                tuple(t.stride()),
                memory,
                offset,
            )
        )
    return tuple(refs)


def chunks_behind(start: int, end: int) -> tuple[list[Chunk], bool]:
    """Return the memory behind a range of addresses, and True if it is one cudaMalloc allocation with an IPC handle.

    Raises SharingError when it cannot be shared. Needs a current context.
    """
    if _attribute(_MEMPOOL, start):
        raise SharingError(
            "memory of PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync cannot be shared with another "
            "process; leave the backend out, or publish with copy=True"
        )
    if _attribute(_IS_MANAGED, start):
        raise SharingError(
            "managed memory (cudaMallocManaged) cannot be shared with another process; publish with "
            "copy=True"
        )
    if _attribute(_IS_IPC_CAPABLE, start):
        base, size = (int(n) for n in driver.call("cuMemGetAddressRange", start))
        if not base <= start or end > base + size:
            raise SharingError(
                f"a tensor at {start:#x} to {end:#x} reaches beyond its allocation of {size} bytes at "
                f"{base:#x}"
            )
        return [(base, size)], True
    types = _attribute(_HANDLE_TYPES, start)
    if not types & _POSIX_FD:
        reason = f"handle types {types:#x}" if types else "no way to export it"
        raise SharingError(
            f"this GPU memory was not made to be shared ({reason}); publish with copy=True, or use "
            "PyTorch's own allocator, from 2.5 on if with expandable_segments"
        )
    chunks: list[Chunk] = []
    while start < end:
        base = _attribute(_MAPPING_BASE, start)
        size = _attribute(_MAPPING_SIZE, start)
        if not base <= start < base + size:
            raise SharingError(
                f"this NVIDIA driver does not tell which memory is mapped at {start:#x}; publish with "
                "copy=True, or update the driver"
            )
        chunks.append((base, size))
        start = base + size
    return chunks, False


def _attribute(attribute: int, pointer: int) -> int:
    """Return an attribute of an address; 0 where the driver does not know it."""
    try:
        return driver.pointer_attribute(attribute, pointer)
    except driver.CudaError as e:
        if e.error in ("CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_NOT_SUPPORTED"):
            return 0
        raise


def _chunk_fds(index: int, chunks: Sequence[Chunk], start: int, stop: int) -> list[int]:
    """Return new descriptors of chunks on device `index`, from number `start` to before `stop`. Raises SharingError."""
    fds: list[int] = []
    try:
        with driver.context(index), driver.relaxed_capture():
            for base, _ in chunks[start:stop]:
                chunk = driver.call_for_handle("cuMemRetainAllocationHandle", base)
                try:
                    fds.append(export_fd(chunk))
                finally:
                    driver.call_quietly("cuMemRelease", chunk)
    except BaseException:
        close_all(fds)
        raise
    return fds


def export_fd(chunk: Any) -> int:
    """Return a new descriptor of an allocation, given by its handle. Raises SharingError."""
    fd = int(driver.call("cuMemExportToShareableHandle", chunk, driver.fd_type(), 0))
    os.set_inheritable(fd, False)
    return fd
