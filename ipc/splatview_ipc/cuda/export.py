"""The memory behind torch's tensors, described so that another process can open it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from splatview_ipc.control import limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.cuda import driver
from splatview_ipc.cuda.tensors import span

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from splatview_ipc.control.messages import FdMemory, IpcMemory, TensorRef

# CUpointer_attribute, by number: older bindings lack the last two, newer ones refuse to ask for them.
_IS_MANAGED, _IS_IPC_CAPABLE, _HANDLE_TYPES, _MEMPOOL = 8, 10, 14, 17
_MAPPING_SIZE, _MAPPING_BASE = 18, 19
_POSIX_FD = 1

Chunk = tuple[int, int]  # address, bytes


@dataclass(frozen=True)
class Export:
    """Memory of this process, ready to be announced."""

    gpu: str
    size: int
    handle: bytes = b""
    """64 bytes for cudaMalloc memory, else empty."""
    chunks: tuple[Chunk, ...] = ()
    """In order, for memory with descriptors."""
    index: int = 0
    """The device's ordinal."""

    def ref(self, token: str = "") -> IpcMemory | FdMemory:
        """The message for another process; it fetches the descriptors, if any, with `token`."""
        from splatview_ipc.control.messages import FdMemory, IpcMemory

        if self.handle:
            return IpcMemory(self.handle, self.size, self.gpu)
        return FdMemory(token, self.pieces, self.gpu)

    @property
    def pieces(self) -> tuple[int, ...]:
        """Bytes of each chunk."""
        return tuple(size for _, size in self.chunks)

    def descriptors(self, start: int = 0, stop: int | None = None) -> list[int]:
        """New descriptors, the caller's, of the chunks from number `start` to before `stop`. The tensors must still be
        there. Raises SharingError."""
        fds: list[int] = []
        try:
            with driver.context(self.index), driver.relaxed_capture():
                for base, _ in self.chunks[start:stop]:
                    chunk = driver.handle("cuMemRetainAllocationHandle", base)
                    try:
                        fds.append(export_fd(chunk))
                    finally:
                        driver.release("cuMemRelease", chunk)
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        return fds


def check_shareable(tensors: Mapping[str, torch.Tensor]) -> int:
    """Return the ordinal of the device of these tensors. Raises SharingError unless each of them can be announced."""
    import torch

    devices = {t.device for t in tensors.values()}
    if len(devices) != 1 or next(iter(devices)).type != "cuda":
        raise SharingError(f"tensors on {', '.join(sorted(map(str, devices))) or 'no device'}: GPU memory is shared "
                           "from one CUDA device at a time")
    index = next(iter(devices)).index or 0
    for name, t in tensors.items():
        if dtype_name(t) not in limits.ITEM_SIZE:
            raise SharingError(f"{name} is {dtype_name(t)}; legal are {', '.join(limits.ITEM_SIZE)}")
        if t.layout is not torch.strided:
            raise SharingError(f"{name} is {t.layout}; only dense tensors can be shared where they are")
        if t.dim() > limits.MAX_DIMS:
            raise SharingError(f"{name} has {t.dim()} dimensions; the limit is {limits.MAX_DIMS}")
    return index


def describe(tensors: Mapping[str, torch.Tensor]) -> tuple[tuple[Export, ...], tuple[TensorRef, ...]]:
    """Return the memory of CUDA tensors, all on one device, for other processes, and each tensor's place in it.

    Chunks that follow each other become one memory. An empty tensor refers to memory 0, also where there is none.
    Nothing is waited for, and no descriptor is kept.
    Raises SharingError with the reason when the memory cannot be shared, such as PyTorch's cudaMallocAsync allocator.
    """
    index = check_shareable(tensors)
    allocations: set[Chunk] = set()
    chunks: set[Chunk] = set()
    with driver.context(index), driver.relaxed_capture():
        for t in tensors.values():
            if t.numel():
                start = t.data_ptr()
                found, ipc = chunks_behind(start, start + span(t.shape, t.stride()) * t.element_size())
                (allocations if ipc else chunks).update(found)
        if len(chunks) > limits.MAX_PIECES:
            raise SharingError(f"the tensors lie in more than {limits.MAX_PIECES} chunks of GPU memory; publish fewer, "
                               "or with copy=True")
        exports: dict[int, Export] = {}
        """By address."""
        gpu = driver.gpu_uuid(index)
        for run in _runs(chunks):
            made = exports[run[0][0]] = Export(gpu, sum(size for _, size in run), chunks=tuple(run), index=index)
            os.close(*made.descriptors(0, 1))  # a failure is better known now than when a viewer asks
        for base, size in sorted(allocations):
            exports[base] = Export(gpu, size, bytes(driver.call("cuIpcGetMemHandle", base).reserved))
    return tuple(exports.values()), tensor_refs(tensors, {start: export.size for start, export in exports.items()})


def tensor_refs(tensors: Mapping[str, torch.Tensor], memories: Mapping[int, int]) -> tuple[TensorRef, ...]:
    """Return each tensor's place in memories, given by address and bytes; an empty tensor is in memory 0."""
    from splatview_ipc.control.messages import TensorRef

    refs = []
    for name, t in tensors.items():
        memory = offset = 0
        if t.numel():
            pointer = t.data_ptr()
            memory, start = next((i, start) for i, (start, size) in enumerate(memories.items())
                                 if start <= pointer < start + size)
            offset = pointer - start
        refs.append(TensorRef(name, dtype_name(t), tuple(t.shape), tuple(t.stride()), memory, offset))
    return tuple(refs)


def dtype_name(t: torch.Tensor) -> Any:
    return str(t.dtype).rpartition(".")[2]


def _runs(chunks: set[Chunk]) -> list[list[Chunk]]:
    """Lists of chunks that follow each other without a gap."""
    runs: list[list[Chunk]] = []
    for chunk in sorted(chunks):
        if runs and sum(runs[-1][-1]) == chunk[0]:
            runs[-1].append(chunk)
        else:
            runs.append([chunk])
    return runs


def chunks_behind(start: int, end: int) -> tuple[list[Chunk], bool]:
    """The memory behind a range of addresses, and True if it is one cudaMalloc allocation, which has an IPC handle.

    Raises SharingError when it cannot be shared. Needs a current context.
    """
    if _attribute(_MEMPOOL, start):
        raise SharingError("memory of PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync cannot be shared with another "
                           "process; leave the backend out, or publish with copy=True")
    if _attribute(_IS_MANAGED, start):
        raise SharingError("managed memory (cudaMallocManaged) cannot be shared with another process; publish with "
                           "copy=True")
    if _attribute(_IS_IPC_CAPABLE, start):
        base, size = (int(n) for n in driver.call("cuMemGetAddressRange", start))
        if not base <= start or end > base + size:
            raise SharingError(f"a tensor at {start:#x} to {end:#x} reaches beyond its allocation of {size} bytes at "
                               f"{base:#x}")
        return [(base, size)], True
    types = _attribute(_HANDLE_TYPES, start)
    if not types & _POSIX_FD:
        reason = f"handle types {types:#x}" if types else "no way to export it"
        raise SharingError(f"this GPU memory was not made to be shared ({reason}); publish with copy=True, or use "
                           "PyTorch's own allocator, from 2.5 on if with expandable_segments")
    chunks: list[Chunk] = []
    while start < end:
        chunks.append(chunk_at(start))
        start = sum(chunks[-1])
    return chunks, False


def chunk_at(address: int) -> Chunk:
    """The physical chunk mapped at an address. Raises SharingError where the driver does not know it."""
    base, size = _attribute(_MAPPING_BASE, address), _attribute(_MAPPING_SIZE, address)
    if not base <= address < base + size:
        raise SharingError(f"this NVIDIA driver does not tell which memory is mapped at {address:#x}; publish with "
                           "copy=True, or update the driver")
    return base, size


def _attribute(attribute: int, pointer: int) -> int:
    """0 where the driver does not know the attribute."""
    try:
        return driver.pointer_attribute(attribute, pointer)
    except driver.CudaError as e:
        if e.error in ("CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_NOT_SUPPORTED"):
            return 0
        raise


def export_fd(chunk: Any) -> int:
    """A new descriptor of an allocation, given by its handle; the caller closes it. Raises SharingError."""
    fd = int(driver.call("cuMemExportToShareableHandle", chunk, driver.fd_type(), 0))
    os.set_inheritable(fd, False)
    return fd
