"""GPU memory that one process allocates and other processes map.

Two kinds can be shared. Memory of cudaMalloc (torch by default) is one allocation with
a 64-byte IPC handle. Memory of cuMemCreate (torch with expandable_segments, and
`ExportableMemory`) is a list of physical chunks, one file descriptor each, which OpenGL
can import too, in a process without a CUDA context.

Lifetime: memory stays mapped until its owner has called `close` and the last tensor
over it is gone. Reference counts decide: the owner and each tensor refer to one
`MappedMemory`, which unmaps the memory when it is collected.
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
"""Number of tensors that an `OpenedMemory` keeps for the next versions of a stream."""


class MappedMemory:
    """One mapping of GPU memory into this process, released when it is collected."""

    def __init__(self, index: int):
        self.index = index
        """Ordinal of the device."""
        self.address = 0
        """The device address; 0 until something is mapped."""
        self.cleanups: list[Callable[[], object]] = []
        """Calls that undo each step of the mapping, in the order of the steps."""
        self.is_idle = False
        """True if nothing on the GPU uses the memory any more."""
        self._pid = os.getpid()

    def map_chunks(self, chunks: Sequence[tuple[Any, int]], writable: bool) -> None:
        """Map chunks at consecutive addresses. Raises SharingError.

        Args:
            chunks: the handle and the bytes of each allocation.
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
        """Have `release` call a function of the driver."""
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
        """Unmap the memory and free it. Never raises.

        Args:
            idle: nothing on the device uses the memory; otherwise it is waited for.
        """
        with (
            contextlib.suppress(SharingError),
            driver.context(self.index),
            driver.relaxed_capture(),
        ):
            if not idle:
                driver.call_quietly("cuCtxSynchronize")
            while self.cleanups:
                cleanup = self.cleanups.pop()
                cleanup()

    def __del__(self) -> None:
        # When the interpreter exits, modules may be gone already.
        with contextlib.suppress(Exception):
            # CUDA does not survive a fork: the memory still belongs to the parent.
            if not self.cleanups or os.getpid() != self._pid:
                return
            if not driver.is_capturing():
                self.release(self.is_idle)
                return
            # A CUDA graph is being captured, and waiting for the device would make the
            # capture invalid. A later `retiring.release_idle` releases the memory.
            index = self.index
            stream = driver.current_stream(index)
            retiring.retire(lambda: not driver.is_captured(index, stream), self.release)


class ExportableMemory:
    """GPU memory of this process that others, and OpenGL, open by a descriptor."""

    def __init__(self, size: int, index: int):
        """Allocate memory, which need not be zero. Raises SharingError.

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
        """Return a new descriptor, which the caller closes. Raises SharingError."""
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
        """Return a writable tensor over the memory.

        Args:
            dtype: name of the dtype.
            shape: the tensor's shape.
            offset: the offset of the first element, in bytes.
            strides: in elements; by default the tensor is C-contiguous.

        Raises:
            SharingError: the tensor would not lie within the memory.
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
        """Release the memory once the tensors over it are gone. Idempotent.

        Other processes keep what they have opened.

        Args:
            idle: nothing on the device uses the memory; otherwise it is waited for.
        """
        mapped = self._mapped
        self._mapped = None
        if mapped is not None:
            mapped.is_idle = idle


def _allocation_properties(index: int) -> Any:
    """Return the driver's properties of memory that is exported as descriptors."""
    cu = driver.bindings()
    properties = cu.CUmemAllocationProp()
    properties.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = index
    properties.requestedHandleTypes = driver.fd_type()
    return properties


class OpenedMemory:
    """GPU memory of another process, which is mapped when it is first used.

    It fulfils the protocol `splatview_ipc.control.frame.DeviceMemory`.
    """

    def __init__(
        self, gpu: str, size: int, handle: bytes = b"", pieces: tuple[Piece, ...] = ()
    ):
        """Store the announcement of the memory, without mapping it.

        Args:
            gpu: UUID of the GPU.
            size: in bytes.
            handle: IPC handle of memory of cudaMalloc, or empty.
            pieces: chunks of memory of cuMemCreate. `close` closes their descriptors.
        """
        self.gpu = gpu
        self.size = size
        self.pieces = pieces
        self._handle = handle
        self._mapped: MappedMemory | None = None
        self._tensors: dict[tuple[Any, ...], torch.Tensor] = {}
        """Tensors by dtype, shape, strides and offset.

        Making one takes longer than everything else that is done with a version.
        """
        self._closed = False

    def pointer(self) -> int:
        """Return the device address of the memory in this process.

        The first call maps the memory, and creates the GPU's primary context.

        Raises:
            SharingError: the GPU is not visible to this process, or the memory is not
                what was announced.
        """
        return self._map().address

    def tensor(
        self, dtype: str, shape: Sequence[int], strides: Sequence[int], offset: int
    ) -> torch.Tensor:
        """Return a tensor over the memory, which keeps it mapped. Raises SharingError.

        Callers only read from it: the memory is the other process's.
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
        # A tensor made in inference mode cannot be used outside of it.
        if not tensor.is_inference():
            self._tensors[key] = tensor
        return tensor

    def _map(self) -> MappedMemory:
        if self._closed:
            raise SharingError("this memory has been closed")
        if self._mapped is not None:
            return self._mapped
        # Two threads may map the memory at once. Each mapping then lives as long as the
        # tensors that were made over it.
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

        Each step adds its own cleanup, so that the caller can release the mapping also
        after an error. Subclasses open memory of other kinds.
        """
        if self._handle:
            self._map_allocation(mapped)
        elif self.pieces:
            self._map_pieces(mapped)
        # Without either the memory is for tensors without elements.

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
        """Map the chunks of memory of cuMemCreate."""
        chunks: list[tuple[Any, int]] = []
        try:
            for piece in self.pieces:
                chunk = driver.call_for_handle(
                    "cuMemImportFromShareableHandle", piece.fd, driver.fd_type()
                )
                chunks.append((chunk, piece.size))
            mapped.map_chunks(chunks, writable=False)
        finally:
            # A mapping keeps its chunks: only the handles are released.
            for chunk, _ in chunks:
                driver.call_quietly("cuMemRelease", chunk)

    def close(self) -> None:
        """Close the descriptors and drop the mapping. Idempotent.

        The memory is unmapped once the tensors over it are gone. An object that is
        collected is closed as well.
        """
        if not self._closed:
            self._closed = True
            self._mapped = None
            self._tensors.clear()
            close_all([piece.fd for piece in self.pieces])

    def __del__(self) -> None:
        # When the interpreter exits, modules may be gone already.
        with contextlib.suppress(Exception):
            self.close()


def open_memory(
    announced: IpcMemory | FdMemory, fds: Sequence[int] = ()
) -> OpenedMemory:
    """Return the memory that another process has announced.

    No CUDA is used until `pointer` or `tensor` is called.

    Args:
        announced: the announcement.
        fds: descriptors of the pieces of an FdMemory, closed by the result's `close`.

    Raises:
        SharingError: sizes or descriptors do not fit. The descriptors are closed.
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
            f"GPU memory of {announced.size} bytes in {len(sizes)} pieces came with "
            f"{len(fds)} descriptors; expected 1 to {limits.MAX_SEGMENT} bytes, and a "
            "descriptor for each piece"
        )
    return OpenedMemory(
        announced.gpu, announced.size, handle, tuple(map(Piece, fds, sizes))
    )
