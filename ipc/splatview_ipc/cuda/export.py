"""Which memory lies behind torch's tensors, and how another process can open it."""

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
_GRANULE = 2 << 20
"""What GPUs map at once: no chunk is smaller, and all start at a multiple of it."""
_MAX_STEPS = 1 << 16
"""Steps of that size that are walked to find a chunk's ends: 128 GiB."""

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
        """What another process is told; `token` is what it fetches the descriptors by, where there are any."""
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


def describe(tensors: Mapping[str, torch.Tensor]) -> tuple[tuple[Export, ...], tuple[TensorRef, ...]]:
    """How to open the memory of CUDA tensors, all on one device, from another process, and where in it each lies.

    Chunks that follow each other become one memory. An empty tensor refers to memory 0, whether there is one or not.
    Nothing is waited for, and no descriptor is kept.
    Raises SharingError with the reason when the memory cannot be shared, such as PyTorch's cudaMallocAsync allocator.
    """
    devices = {t.device for t in tensors.values()}
    if len(devices) != 1 or next(iter(devices)).type != "cuda":
        raise SharingError(f"tensors on {', '.join(sorted(map(str, devices))) or 'no device'}: GPU memory is shared "
                           "from one CUDA device at a time")
    index = next(iter(devices)).index
    index = 0 if index is None else index
    for name, t in tensors.items():
        _check_tensor(name, t)
    with driver.context(index), driver.relaxed_capture():
        finder = _Finder()
        for t in tensors.values():
            if t.numel():
                start = t.data_ptr()
                finder.add(start, start + span(t.shape, t.stride()) * t.element_size())
        runs = finder.runs()
        if sum(len(chunks) for chunks, ipc in runs if not ipc) > limits.MAX_PIECES:
            raise SharingError(f"the tensors lie in more than {limits.MAX_PIECES} chunks of GPU memory; publish fewer, "
                               "or with copy=True")
        exports = [_export_handle(chunks[0], index) if ipc else _export_chunks(chunks, index) for chunks, ipc in runs]
    starts = [chunks[0][0] for chunks, _ in runs]
    return tuple(exports), tuple(_tensor_ref(name, t, starts, exports) for name, t in tensors.items())


def _check_tensor(name: str, t: torch.Tensor) -> None:
    import torch

    dtype = str(t.dtype).rpartition(".")[2]
    if dtype not in limits.ITEM_SIZE:
        raise SharingError(f"{name} is {dtype}; legal are {', '.join(limits.ITEM_SIZE)}")
    if t.layout is not torch.strided:
        raise SharingError(f"{name} is {t.layout}; only dense tensors can be shared where they lie")
    if t.dim() > limits.MAX_DIMS:
        raise SharingError(f"{name} has {t.dim()} dimensions; the limit is {limits.MAX_DIMS}")


def _tensor_ref(name: str, t: torch.Tensor, starts: list[int], exports: list[Export]) -> TensorRef:
    from splatview_ipc.control.messages import TensorRef

    memory = offset = 0
    if t.numel():
        pointer = t.data_ptr()
        memory = next(i for i, (start, e) in enumerate(zip(starts, exports, strict=True))
                      if start <= pointer < start + e.size)
        offset = pointer - starts[memory]
    dtype: Any = str(t.dtype).rpartition(".")[2]
    return TensorRef(name, dtype, tuple(t.shape), tuple(t.stride()), memory, offset)


class _Finder:
    """Collects the memory that address ranges lie in."""

    def __init__(self) -> None:
        self._ipc: set[Chunk] = set()
        self._chunks: set[Chunk] = set()

    def add(self, start: int, end: int) -> None:
        """Raises SharingError when the memory at `start` to `end` cannot be shared."""
        if _attribute(_MEMPOOL, start):
            raise SharingError("memory of PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync cannot be shared with "
                               "another process; leave the backend out, or publish with copy=True")
        if _attribute(_IS_MANAGED, start):
            raise SharingError("managed memory (cudaMallocManaged) cannot be shared with another process; publish with "
                               "copy=True")
        types = _attribute(_HANDLE_TYPES, start)
        if _attribute(_IS_IPC_CAPABLE, start):
            base, size = (int(n) for n in driver.call("cuMemGetAddressRange", start))
            if not base <= start or end > base + size:
                raise SharingError(f"a tensor at {start:#x} to {end:#x} reaches beyond its allocation of {size} bytes "
                                   f"at {base:#x}")
            self._ipc.add((base, size))
        elif types & _POSIX_FD:
            at = start
            while at < end:
                chunk = next((c for c in self._chunks if c[0] <= at < c[0] + c[1]), None) or chunk_at(at)
                self._chunks.add(chunk)
                at = chunk[0] + chunk[1]
        else:
            reason = f"handle types {types:#x}" if types else "no way to export it"
            raise SharingError(f"this GPU memory was not made to be shared ({reason}); publish with copy=True, or use "
                               "PyTorch's own allocator, from 2.5 on if with expandable_segments")

    def runs(self) -> list[tuple[list[Chunk], bool]]:
        """Lists of chunks that follow each other, and whether each is one allocation with an IPC handle."""
        merged: list[tuple[list[Chunk], bool]] = []
        for chunk in sorted(self._chunks):
            last = merged[-1][0][-1] if merged else (0, 0)
            if merged and last[0] + last[1] == chunk[0]:
                merged[-1][0].append(chunk)
            else:
                merged.append(([chunk], False))
        return merged + [([allocation], True) for allocation in sorted(self._ipc)]


def _attribute(attribute: int, pointer: int) -> int:
    """0 where the driver does not know the attribute."""
    try:
        return driver.pointer_attribute(attribute, pointer)
    except driver.CudaError as e:
        if e.error in ("CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_NOT_SUPPORTED"):
            return 0
        raise


def chunk_at(address: int) -> Chunk:
    """The physical chunk mapped at an address: where it starts and its bytes. Raises SharingError."""
    base, size = _attribute(_MAPPING_BASE, address), _attribute(_MAPPING_SIZE, address)
    if base <= address < base + size and size % _GRANULE == 0 and _same_chunk(base, base + size - _GRANULE):
        return base, size
    return _walk(address)


def _walk(address: int) -> Chunk:
    """`chunk_at` by looking which handle is mapped at the addresses around."""
    wanted = _identity(address)
    if wanted is None:
        raise SharingError(f"no shareable memory is mapped at {address:#x}")
    first = last = address // _GRANULE * _GRANULE
    steps = 0
    while steps < _MAX_STEPS and _identity(first - _GRANULE) == wanted:
        first, steps = first - _GRANULE, steps + 1
    while steps < _MAX_STEPS and _identity(last + _GRANULE) == wanted:
        last, steps = last + _GRANULE, steps + 1
    if steps == _MAX_STEPS:
        raise SharingError(f"one chunk of GPU memory has more than {_MAX_STEPS * _GRANULE >> 30} GiB; publish with "
                           "copy=True")
    return first, last + _GRANULE - first


def _same_chunk(a: int, b: int) -> bool:
    return a == b or (_identity(a) is not None and _identity(a) == _identity(b))


def _identity(address: int) -> int | None:
    """The allocation handle mapped at an address, as a number; None where nothing is mapped."""
    try:
        chunk = driver.handle("cuMemRetainAllocationHandle", address)
    except driver.CudaError:
        return None
    driver.release("cuMemRelease", chunk)
    return int(chunk)


def export_fd(chunk: Any) -> int:
    """A new descriptor of an allocation, given by its handle; the caller closes it. Raises SharingError."""
    fd_type = driver.bindings().CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    fd = int(driver.call("cuMemExportToShareableHandle", chunk, fd_type, 0))
    os.set_inheritable(fd, False)
    return fd


def _export_handle(allocation: Chunk, index: int) -> Export:
    base, size = allocation
    handle = bytes(driver.call("cuIpcGetMemHandle", base).reserved)
    return Export(driver.gpu_uuid(index), size, handle=handle)


def _export_chunks(chunks: list[Chunk], index: int) -> Export:
    export = Export(driver.gpu_uuid(index), sum(size for _, size in chunks), chunks=tuple(chunks), index=index)
    os.close(*export.descriptors(0, 1))  # whether it can be done is better known now than when a viewer asks
    return export
