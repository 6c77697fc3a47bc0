"""GPU memory that other processes open: made here, and opened there.

Two kinds can be shared. Memory of cudaMalloc (torch by default) is one allocation with
a 64-byte IPC handle. Memory of cuMemCreate (torch with expandable_segments, and
`ExportableMemory`) is a list of physical chunks, one file descriptor each, which OpenGL
can import too, in a process without a CUDA context.

Lifetime: memory stays mapped until its owner called `close` and the last tensor over it
is gone. Plain reference counts decide: the owner and each tensor refer to one
`MappedMemory`, which unmaps when it is collected.
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
from splatview_ipc.cuda.tensors import (
    check_bounds,
    contiguous_strides,
    tensor_from_address,
)
from splatview_ipc.shm.segment import round_up

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch


_MAX_CACHED_TENSORS = limits.MAX_SLOTS * limits.MAX_TENSORS


class MappedMemory:
    """GPU memory at an address of this process, and the calls that release it."""

    def __init__(self, index: int):
        self.index = index
        self.address = 0
        self.cleanups: list[Callable[[], object]] = []
        """The calls that release the memory; the last one is called first."""
        self.is_idle = False
        """Nothing on the GPU uses the memory any more."""
        self._pid = os.getpid()

    def map_chunks(self, chunks: Sequence[tuple[Any, int]], writable: bool) -> None:
        """Map chunks one after the other. Raises SharingError.

        Args:
            chunks: of each the allocation's handle and its bytes.
            writable: False asks for a mapping that can only be read.
        """
        total = sum(size for _, size in chunks)
        address = int(driver.call_for_handle("cuMemAddressReserve", total, 0, 0, 0))
        self.address = address
        self.add_cleanup("cuMemAddressFree", address, total)
        for chunk, size in chunks:
            driver.call("cuMemMap", address, size, 0, chunk, 0)
            self.add_cleanup("cuMemUnmap", address, size)
            address += size
        self._set_access(total, writable)

    def add_cleanup(self, name: str, *args: Any) -> None:
        """Have `give_back` call a function of the driver."""
        self.cleanups.append(partial(driver.call_quietly, name, *args))

    def _set_access(self, size: int, writable: bool) -> None:
        cu = driver.bindings()
        access = cu.CUmemAccessDesc()
        access.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = self.index
        if not writable:
            access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READ
            # Not every driver can map a GPU's memory read-only.
            with contextlib.suppress(driver.CudaError):
                driver.call("cuMemSetAccess", self.address, size, [access], 1)
                return
        access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        driver.call("cuMemSetAccess", self.address, size, [access], 1)

    def release(self, idle: bool = False) -> None:
        """Unmap the memory and release it. Never raises.

        The device is waited for first, unless nothing there uses the memory (`idle`).
        """
        with (
            contextlib.suppress(SharingError),
            driver.context(self.index),
            driver.relaxed_capture(),
        ):
            if not idle:
                driver.call_quietly("cuCtxSynchronize")
            while self.cleanups:
                undo = self.cleanups.pop()
                undo()

    def __del__(self) -> None:
        # At interpreter exit modules may be gone.
        with contextlib.suppress(Exception):
            # CUDA does not survive a fork: the memory stays the parent's.
            if not self.cleanups or os.getpid() != self._pid:
                return
            if not driver.is_capturing():
                self.release(self.is_idle)
                return
            # To wait for the device would spoil the capture.
            index = self.index
            stream = driver.current_stream(index)
            retiring.retire(lambda: not driver.is_captured(index, stream), self.release)


class ExportableMemory:
    """GPU memory of our own that other processes, and OpenGL, open by a descriptor."""

    def __init__(self, size: int, index: int):
        """Allocate memory. Not zeroed by contract, though drivers do.

        Raises SharingError when the GPU has no such memory.

        Args:
            size: in bytes, rounded up to what the GPU maps at once (2 MiB).
            index: the device's ordinal.
        """
        self.index = index
        self.gpu = driver.gpu_uuid(index)
        properties = _allocation_properties(index)
        flags = driver.bindings().CUmemAllocationGranularity_flags
        minimum = flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        mapped = MappedMemory(index)
        with driver.context(index), driver.relaxed_capture():
            granule = driver.call("cuMemGetAllocationGranularity", properties, minimum)
            self.size = round_up(size, int(granule))
            self._chunk = driver.call_for_handle(
                "cuMemCreate", self.size, properties, 0
            )
            mapped.add_cleanup("cuMemRelease", self._chunk)
            try:
                mapped.map_chunks([(self._chunk, self.size)], writable=True)
            except BaseException:
                mapped.release(idle=True)
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
        """Return a writable tensor over the memory from byte `offset` on.

        Its strides are in elements; by default it is C-contiguous. Raises SharingError
        when it does not lie within the memory.
        """
        if strides is None:
            strides = contiguous_strides(shape)
        check_bounds(dtype, shape, strides, offset, self.size)
        mapped = self._mapped
        if mapped is None:
            raise SharingError("this memory has been closed")
        pointer = mapped.address + offset
        return tensor_from_address(
            pointer, dtype, shape, strides, self.index, owner=mapped
        )

    def close(self, idle: bool = False) -> None:
        """Release the memory, once the tensors over it are gone. Idempotent.

        Other processes keep what they opened. The device is waited for first, unless
        the caller knows that nothing there uses the memory any more (`idle`).
        """
        mapped = self._mapped
        self._mapped = None
        if mapped is not None:
            mapped.is_idle = idle


def _allocation_properties(index: int) -> Any:
    """Return the properties of memory on a device that is exported as descriptors."""
    cu = driver.bindings()
    properties = cu.CUmemAllocationProp()
    properties.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = index
    properties.requestedHandleTypes = driver.fd_type()
    return properties


class OpenedMemory:
    """GPU memory of another process: a `splatview_ipc.control.frame.DeviceMemory`."""

    def __init__(
        self, gpu: str, size: int, handle: bytes = b"", pieces: tuple[Piece, ...] = ()
    ):
        """Keep what was announced; nothing is mapped yet.

        Args:
            gpu: UUID of the GPU.
            size: bytes.
            handle: for memory of cudaMalloc.
            pieces: otherwise its chunks, whose descriptors become ours.
        """
        self.gpu = gpu
        self.size = size
        self.pieces = pieces
        self._handle = handle
        self._mapped: MappedMemory | None = None
        self._tensors: dict[tuple[Any, ...], torch.Tensor] = {}
        """By form and offset: to make one takes longer than all else that is done with
        a version."""
        self._closed = False

    def pointer(self) -> int:
        """Return the device address here.

        The memory is mapped at the first call, which makes the GPU's primary context.
        Raises SharingError when the GPU is not visible here, or the memory is not what
        was announced.
        """
        return self._map().address

    def tensor(
        self, dtype: str, shape: Sequence[int], strides: Sequence[int], offset: int
    ) -> torch.Tensor:
        """Return a tensor over the memory, which keeps it mapped. Raises SharingError.

        It is to be read, never written.
        """
        key = dtype, tuple(shape), tuple(strides), offset
        cached = self._tensors.get(key)
        if cached is not None:
            return cached
        check_bounds(dtype, shape, strides, offset, self.size)
        mapped = self._map()
        pointer = mapped.address + offset
        tensor = tensor_from_address(
            pointer, dtype, shape, strides, mapped.index, owner=mapped
        )
        if len(self._tensors) >= _MAX_CACHED_TENSORS:
            self._tensors.clear()
        # A tensor of inference mode could not be used everywhere.
        if not tensor.is_inference():
            self._tensors[key] = tensor
        return tensor

    def _map(self) -> MappedMemory:
        if self._closed:
            raise SharingError("this memory has been closed")
        if self._mapped is not None:
            return self._mapped
        # Two threads may map it twice: the tensors of each keep their own mapping.
        mapped = MappedMemory(driver.require_device(self.gpu))
        with driver.context(mapped.index), driver.relaxed_capture():
            try:
                self._map_into(mapped)
            except BaseException:
                mapped.release(idle=True)
                raise
        self._mapped = mapped
        return mapped

    def _map_into(self, mapped: MappedMemory) -> None:
        """Map the memory, in the GPU's context. Raises SharingError.

        `mapped.undo` takes back what was done, also after an error. A subclass opens
        memory of another kind.
        """
        if self._handle:
            self._map_allocation(mapped)
        elif self.pieces:
            self._map_pieces(mapped)
        # Otherwise the memory is for tensors without elements.

    def _map_allocation(self, mapped: MappedMemory) -> None:
        """Map memory of cudaMalloc."""
        cu = driver.bindings()
        handle = cu.CUipcMemHandle()
        handle.reserved = self._handle
        flags = int(cu.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        address = int(driver.call_for_handle("cuIpcOpenMemHandle", handle, flags))
        mapped.address = address
        mapped.add_cleanup("cuIpcCloseMemHandle", address)
        base, size = driver.call("cuMemGetAddressRange", address)
        if int(base) != address or int(size) < self.size:
            raise SharingError(
                f"the shared allocation has {int(size)} bytes; {self.size} were announced"
            )

    def _map_pieces(self, mapped: MappedMemory) -> None:
        """Map the chunks, one after the other."""
        chunks: list[tuple[Any, int]] = []
        try:
            for piece in self.pieces:
                chunk = driver.call_for_handle(
                    "cuMemImportFromShareableHandle", piece.fd, driver.fd_type()
                )
                chunks.append((chunk, piece.size))
            mapped.map_chunks(chunks, writable=False)
        finally:
            # Chunks that are mapped stay.
            for chunk, _ in chunks:
                driver.call_quietly("cuMemRelease", chunk)

    def close(self) -> None:
        """Close the descriptors and give up the mapping.

        The memory is unmapped once the tensors over it are gone. Idempotent; done when
        collected.
        """
        if not self._closed:
            self._closed = True
            self._mapped = None
            self._tensors.clear()
            close_all([piece.fd for piece in self.pieces])

    def __del__(self) -> None:
        # At interpreter exit modules may be gone.
        with contextlib.suppress(Exception):
            self.close()


def open_memory(
    announced: IpcMemory | FdMemory, fds: Sequence[int] = ()
) -> OpenedMemory:
    """Return another process's memory, from what was announced.

    Touches no CUDA until `pointer` or `tensor` is called. Raises SharingError (the
    descriptors are then closed).

    Args:
        ref: the announced memory.
        fds: for FdMemory its descriptors, which become ours.
    """
    handle = b""
    sizes: tuple[int, ...] = ()
    if isinstance(announced, IpcMemory):
        handle = announced.handle
    else:
        sizes = announced.pieces
    if len(fds) != len(sizes) or not 1 <= announced.size <= limits.MAX_SEGMENT:
        close_all(fds)
        raise SharingError(
            f"GPU memory of {announced.size} bytes in {len(sizes)} pieces came with {len(fds)} "
            f"descriptors; expected 1 to {limits.MAX_SEGMENT} bytes, and a descriptor for "
            "each piece"
        )
    return OpenedMemory(
        announced.gpu, announced.size, handle, tuple(map(Piece, fds, sizes))
    )
