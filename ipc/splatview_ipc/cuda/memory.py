"""GPU memory that other processes open: made here, found behind tensors, and opened there.

Two kinds can be shared. Memory of cudaMalloc (torch by default) is one allocation with a 64-byte IPC handle. Memory of
cuMemCreate (torch with expandable_segments, and `Allocation`) is a list of physical chunks, one file descriptor each,
which OpenGL can import too, in a process without a CUDA context.

Lifetime: memory stays mapped until its owner called `close` and the last tensor over it is gone. Plain reference
counts decide: the owner and each tensor refer to one `Mapped`, which unmaps when it is collected.
"""

from __future__ import annotations

import contextlib
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from splatview_ipc.control import limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import Piece
from splatview_ipc.control.messages import FdMemory, IpcMemory
from splatview_ipc.control.sockets import close_all
from splatview_ipc.cuda import driver, retiring
from splatview_ipc.cuda.export import export_fd
from splatview_ipc.cuda.tensors import check_bounds, contiguous_strides, tensor_at

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch


_MOST_TENSORS = limits.MAX_SLOTS * limits.MAX_TENSORS


class MappedMemory:
    """GPU memory at an address of this process, and the calls that give it back, the last one first."""

    def __init__(self, index: int):
        self.index = index
        self.address = 0
        self.undo: list[Callable[[], object]] = []
        self.is_idle = False
        """Nothing on the GPU uses the memory any more."""
        self._pid = os.getpid()

    def map_chunks(self, chunks: Sequence[tuple[Any, int]], writable: bool) -> None:
        """Map chunks, allocation handle and bytes each, one after the other. Raises SharingError."""
        size = sum(size for _, size in chunks)
        at = int(driver.call_for_handle("cuMemAddressReserve", size, 0, 0, 0))
        self.address = at
        self.undo.append(partial(driver.call_quietly, "cuMemAddressFree", at, size))
        for chunk, chunk_size in chunks:
            driver.call("cuMemMap", at, chunk_size, 0, chunk, 0)
            self.undo.append(partial(driver.call_quietly, "cuMemUnmap", at, chunk_size))
            at += chunk_size
        cu = driver.bindings()
        access = cu.CUmemAccessDesc()
        access.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = self.index
        if not writable:
            access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READ
            with contextlib.suppress(
                driver.CudaError
            ):  # not every driver can map a GPU's memory read-only
                driver.call("cuMemSetAccess", self.address, size, [access], 1)
                return
        access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        driver.call("cuMemSetAccess", self.address, size, [access], 1)

    def give_back(self, idle: bool = False) -> None:
        """Undo all, after waiting for the device unless nothing there uses the memory (`idle`). Never raises."""
        with (
            contextlib.suppress(SharingError),
            driver.context(self.index),
            driver.relaxed_capture(),
        ):
            if not idle:
                driver.call_quietly("cuCtxSynchronize")
            while self.undo:
                self.undo.pop()()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at interpreter exit modules may be gone
            if (
                not self.undo or os.getpid() != self._pid
            ):  # CUDA does not survive a fork: it stays the parent's
                return
            if driver.is_capturing():  # waiting for the device would spoil the capture
                stream = driver.current_stream(self.index)
                retiring.retire(
                    lambda: not driver.is_captured(self.index, stream), self.give_back
                )
            else:
                self.give_back(self.is_idle)


class ExportableMemory:
    """GPU memory of our own that other processes, and OpenGL, can open by a file descriptor."""

    def __init__(self, size: int, index: int):
        """`size` in bytes, rounded up to what the GPU maps at once (2 MiB); `index`: the device's ordinal.

        Raises SharingError when the GPU has no such memory. Not zeroed by contract, though drivers do.
        """
        self.index = index
        self.gpu = driver.gpu_uuid(index)
        cu = driver.bindings()
        properties = cu.CUmemAllocationProp()
        properties.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = index
        properties.requestedHandleTypes = driver.fd_type()
        minimum = cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        mapped = MappedMemory(index)
        with driver.context(index), driver.relaxed_capture():
            granule = int(
                driver.call("cuMemGetAllocationGranularity", properties, minimum)
            )
            self.size = -(-size // granule) * granule
            self._chunk = driver.call_for_handle(
                "cuMemCreate", self.size, properties, 0
            )
            mapped.undo.append(
                partial(driver.call_quietly, "cuMemRelease", self._chunk)
            )
            try:
                mapped.map_chunks([(self._chunk, self.size)], writable=True)
            except BaseException:
                mapped.give_back(idle=True)
                raise
        self._mapped: MappedMemory | None = mapped

    def fd(self) -> int:
        """Return a new descriptor of the memory, the caller's. Raises SharingError."""
        if self._mapped is None:
            raise SharingError("this memory has been closed")
        return export_fd(self._chunk)

    def tensor(
        self,
        dtype: str,
        shape: Sequence[int],
        offset: int = 0,
        strides: Sequence[int] | None = None,
    ) -> torch.Tensor:
        """A writable tensor over the memory from byte `offset` on; `strides` in elements, C-contiguous by default.

        Raises SharingError when it does not lie within the memory.
        """
        strides = contiguous_strides(shape) if strides is None else strides
        check_bounds(dtype, shape, strides, offset, self.size)
        if self._mapped is None:
            raise SharingError("this memory has been closed")
        return tensor_at(
            self._mapped.address + offset,
            dtype,
            shape,
            strides,
            self.index,
            self._mapped,
        )

    def close(self, idle: bool = False) -> None:
        """Give it back, once the tensors over it are gone; other processes keep what they opened. Idempotent.

        The device is waited for first, unless the caller knows that nothing there uses the memory any more (`idle`).
        """
        mapped = self._mapped
        self._mapped = None
        if mapped is not None:
            mapped.is_idle = idle


class OpenedMemory:
    """GPU memory that another process made: a `splatview_ipc.control.frame.DeviceMemory`."""

    def __init__(
        self, gpu: str, size: int, handle: bytes = b"", pieces: tuple[Piece, ...] = ()
    ):
        """`handle`: for memory of cudaMalloc; `pieces`: else its chunks, whose descriptors become ours."""
        self.gpu = gpu
        self.size = size
        self.pieces = pieces
        self._handle = handle
        self._mapped: MappedMemory | None = None
        self._tensors: dict[tuple[Any, ...], torch.Tensor] = {}
        """By place: to make one takes longer than all else that is done with a version."""
        self._closed = False

    def pointer(self) -> int:
        """Its device address here, mapped at the first call, which makes the GPU's primary context.

        Raises SharingError when the GPU is not visible here, or the memory is not what was announced.
        """
        return self._map().address

    def tensor(
        self, dtype: str, shape: Sequence[int], strides: Sequence[int], offset: int
    ) -> torch.Tensor:
        """A tensor over it, which keeps it mapped; to be read, never written. Raises SharingError."""
        key = dtype, tuple(shape), tuple(strides), offset
        tensor = self._tensors.get(key)
        if tensor is None:
            check_bounds(dtype, shape, strides, offset, self.size)
            mapped = self._map()
            tensor = tensor_at(
                mapped.address + offset, dtype, shape, strides, mapped.index, mapped
            )
            if len(self._tensors) >= _MOST_TENSORS:
                self._tensors.clear()
            if not tensor.is_inference():  # such a one could not be used everywhere
                self._tensors[key] = tensor
        return tensor

    def _map(self) -> MappedMemory:
        if self._closed:
            raise SharingError("this memory has been closed")
        mapped = self._mapped
        if (
            mapped is None
        ):  # two threads may map it twice: the tensors of each keep their own mapping
            mapped = MappedMemory(driver.require_device(self.gpu))
            with driver.context(mapped.index), driver.relaxed_capture():
                try:
                    self._map_into(mapped)
                except BaseException:
                    mapped.give_back(idle=True)
                    raise
            self._mapped = mapped
        return mapped

    def _map_into(self, mapped: MappedMemory) -> None:
        """Map the memory, in the GPU's context; `mapped.undo` takes back what was done. Raises SharingError."""
        if self._handle:
            cu = driver.bindings()
            handle = cu.CUipcMemHandle()
            handle.reserved = self._handle
            lazily = cu.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
            mapped.address = int(
                driver.call_for_handle("cuIpcOpenMemHandle", handle, int(lazily))
            )
            mapped.undo.append(
                partial(driver.call_quietly, "cuIpcCloseMemHandle", mapped.address)
            )
            base, size = driver.call("cuMemGetAddressRange", mapped.address)
            if int(base) != mapped.address or int(size) < self.size:
                raise SharingError(
                    f"the shared allocation has {int(size)} bytes; {self.size} were announced"
                )
            return
        if not self.pieces:  # for tensors without elements
            return
        chunks: list[tuple[Any, int]] = []
        try:
            for fd, size in self.pieces:
                chunks.append(
                    (
                        driver.call_for_handle(
                            "cuMemImportFromShareableHandle", fd, driver.fd_type()
                        ),
                        size,
                    )
                )
            mapped.map_chunks(chunks, writable=False)
        finally:
            for chunk, _ in chunks:
                driver.call_quietly("cuMemRelease", chunk)  # what is mapped stays

    def close(self) -> None:
        """Close its descriptors, and unmap it once the tensors over it are gone. Idempotent; done when collected."""
        if not self._closed:
            self._closed = True
            self._mapped = None
            self._tensors.clear()
            close_all([piece.fd for piece in self.pieces])

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at interpreter exit modules may be gone
            self.close()


def open_memory(ref: IpcMemory | FdMemory, fds: Sequence[int] = ()) -> OpenedMemory:
    """Return another process's memory, from what was announced and, for FdMemory, its descriptors, which become ours.

    Touches no CUDA until `pointer` or `tensor` is called. Raises SharingError (the descriptors are then closed).
    """
    handle, sizes = (
        (ref.handle, ()) if isinstance(ref, IpcMemory) else (b"", ref.pieces)
    )
    if len(fds) != len(sizes) or not 1 <= ref.size <= limits.MAX_SEGMENT:
        close_all(fds)
        raise SharingError(
            f"GPU memory of {ref.size} bytes in {len(sizes)} pieces came with {len(fds)} descriptors; "
            f"legal are 1 to {limits.MAX_SEGMENT} bytes, and a descriptor for each piece"
        )
    return OpenedMemory(ref.gpu, ref.size, handle, tuple(map(Piece, fds, sizes)))
