"""GPU memory that other processes open: made here, found behind tensors, and opened there.

Two kinds can be shared. Memory of cudaMalloc (torch by default) goes as a 64-byte IPC handle, as one allocation.
Memory of cuMemCreate (torch with expandable_segments, and `Allocation`) goes as file descriptors, one per physical
chunk, which OpenGL can import too, in a process without a CUDA context.

Lifetime: what is mapped stays mapped until its owner called `close` and the last tensor over it is gone.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from splatview_ipc.control import limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.cuda import driver, retiring
from splatview_ipc.cuda.export import Export, describe, export_fd
from splatview_ipc.cuda.tensors import check_within, contiguous, tensor_at
from splatview_ipc.shm.segment import round_up

__all__ = ["Allocation", "Export", "describe", "open_memory", "tensor_at"]

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from splatview_ipc.control.frame import Piece
    from splatview_ipc.control.messages import FdMemory, IpcMemory


_CAPTURE = 1.0
"""Seconds within which a CUDA graph has been captured."""


class _Counted:
    """Memory that is given back when its owner and every tensor over it have let go."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._holds: set[object] = {self}
        self._ticket = [None]  # whoever takes it frees: `pop` is atomic, and a collector may call us at any line

    def hold(self) -> Hold:
        """Keep the memory, beyond `close`, until the hold is closed or collected. Raises SharingError."""
        if not self._holds:
            raise SharingError("this memory has been closed")
        return Hold(self)

    def _drop(self, holder: object) -> None:
        self._holds.discard(holder)
        if self._holds:
            return
        try:
            self._ticket.pop()
        except IndexError:
            return
        if os.getpid() != self._pid:  # CUDA does not survive a fork; what the parent has stays the parent's
            return
        if driver.is_capturing():  # waiting for the device would spoil the capture
            over = time.monotonic() + _CAPTURE
            retiring.retire(lambda: time.monotonic() > over, self._free)
        else:
            self._free()

    def close(self) -> None:
        """Let go; tensors over the memory keep it. Idempotent, never raises."""
        self._drop(self)

    def _free(self) -> None:
        raise NotImplementedError


class Hold:
    """A share in some memory."""

    def __init__(self, owner: _Counted):
        self._owner = owner
        self._key = object()
        owner._holds.add(self._key)

    def close(self) -> None:
        """Let go. Idempotent."""
        self._owner._drop(self._key)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at interpreter exit modules may be gone
            self.close()


def _properties(index: int) -> Any:
    cu = driver.bindings()
    properties = cu.CUmemAllocationProp()
    properties.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = index
    properties.requestedHandleTypes = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    return properties


def _fd_type() -> Any:
    return driver.bindings().CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


class _Mapping:
    """Chunks of memory one after the other in this process's addresses."""

    def __init__(self, chunks: Sequence[tuple[Any, int]], index: int, writable: bool):
        """`chunks`: allocation handle and bytes of each. Raises SharingError, with nothing left behind."""
        self.size = sum(size for _, size in chunks)
        self._mapped: list[tuple[int, int]] = []
        self.address = int(driver.handle("cuMemAddressReserve", self.size, 0, 0, 0))
        try:
            at = self.address
            for chunk, size in chunks:
                driver.call("cuMemMap", at, size, 0, chunk, 0)
                self._mapped.append((at, size))
                at += size
            self._allow(index, writable)
        except BaseException:
            self.unmap()
            raise

    def _allow(self, index: int, writable: bool) -> None:
        cu = driver.bindings()
        access = cu.CUmemAccessDesc()
        access.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = index
        if not writable:
            access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READ
            try:
                driver.call("cuMemSetAccess", self.address, self.size, [access], 1)
                return
            except driver.CudaError:
                pass  # not every driver can map a GPU's memory read-only
        access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        driver.call("cuMemSetAccess", self.address, self.size, [access], 1)

    def unmap(self) -> None:
        """Nothing on the GPU may still use it. Never raises."""
        while self._mapped:
            driver.release("cuMemUnmap", *self._mapped.pop())
        address, self.address = self.address, 0
        if address:
            driver.release("cuMemAddressFree", address, self.size)


class Allocation(_Counted):
    """GPU memory of our own that other processes, and OpenGL, can open by a file descriptor."""

    def __init__(self, size: int, index: int):
        """`size` in bytes, rounded up to what the GPU maps at once (2 MiB); `index`: the device's ordinal.

        Raises SharingError when the GPU has no such memory. Not zeroed by contract, though drivers do.
        """
        super().__init__()
        if not 1 <= size <= limits.MAX_SEGMENT:
            raise SharingError(f"GPU memory of {size} bytes; legal are 1 to {limits.MAX_SEGMENT}")
        self.index = index
        self.gpu = driver.gpu_uuid(index)
        self._idle = False
        properties = _properties(index)
        minimum = driver.bindings().CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        with driver.context(index), driver.relaxed_capture():
            granularity = int(driver.call("cuMemGetAllocationGranularity", properties, minimum))
            self.size = round_up(size, granularity)
            self._chunk = driver.handle("cuMemCreate", self.size, properties, 0)
            try:
                self._mapping = _Mapping([(self._chunk, self.size)], index, writable=True)
            except BaseException:
                driver.release("cuMemRelease", self._chunk)
                raise

    def pointer(self) -> int:
        """Its device address here."""
        return self._mapping.address

    def fd(self) -> int:
        """A new descriptor of the memory; the caller closes it. Raises SharingError."""
        return export_fd(self._chunk)

    def tensor(self, dtype: str, shape: Sequence[int], offset: int = 0,
               strides: Sequence[int] | None = None) -> torch.Tensor:
        """A writable tensor over the memory from byte `offset` on; `strides` in elements, C-contiguous by default.

        Raises SharingError when it does not lie within the memory.
        """
        strides = contiguous(shape) if strides is None else strides
        check_within(dtype, shape, strides, offset, self.size)
        return tensor_at(self.pointer() + offset, dtype, shape, strides, self.index, self.hold())

    def close(self, idle: bool = False) -> None:
        """Give it back, once the tensors over it are gone; other processes keep what they opened. Idempotent.

        The device is waited for first, unless the caller knows that nothing there uses the memory any more (`idle`).
        """
        self._idle = idle
        self._drop(self)

    def _free(self) -> None:
        with contextlib.suppress(SharingError), driver.context(self.index), driver.relaxed_capture():
            if not self._idle:
                driver.release("cuCtxSynchronize")
            self._mapping.unmap()
            driver.release("cuMemRelease", self._chunk)


# Opening what another process shares.

class _Opened(_Counted):
    """Another process's GPU memory (`splatview_ipc.control.frame.DeviceMemory`)."""

    def __init__(self, gpu: str, size: int):
        super().__init__()
        self.gpu = gpu
        self.size = size
        self._address = 0
        self._index = -1

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Its chunks in order as descriptors that OpenGL can import; () for cudaMalloc memory."""
        return ()

    def pointer(self) -> int:
        """Its device address here, mapped at the first call, which makes the GPU's primary context.

        Raises SharingError when the GPU is not visible here, or the memory is not what was announced.
        """
        with self._lock:
            if not self._holds:
                raise SharingError("this memory has been closed")
            if not self._address:
                index = driver.here(self.gpu)
                with driver.context(index), driver.relaxed_capture():
                    self._address = self._map(index)
                self._index = index
            return self._address

    def tensor(self, dtype: str, shape: Sequence[int], strides: Sequence[int], offset: int) -> torch.Tensor:
        """A tensor over it, which keeps it mapped; to be read, never written. Raises SharingError."""
        check_within(dtype, shape, strides, offset, self.size)
        address = self.pointer()
        return tensor_at(address + offset, dtype, shape, strides, self._index, self.hold())

    def _map(self, index: int) -> int:
        raise NotImplementedError

    def _unmap(self) -> None:
        raise NotImplementedError

    def _free(self) -> None:
        if self._address:
            with contextlib.suppress(SharingError), driver.context(self._index), driver.relaxed_capture():
                driver.release("cuCtxSynchronize")  # our own kernels may still be reading
                self._unmap()
            self._address = 0


class _OpenedHandle(_Opened):
    def __init__(self, handle: bytes, size: int, gpu: str):
        super().__init__(gpu, size)
        self._handle = handle

    def _map(self, index: int) -> int:
        cu = driver.bindings()
        handle = cu.CUipcMemHandle()
        handle.reserved = self._handle
        lazily = cu.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
        address = int(driver.handle("cuIpcOpenMemHandle", handle, int(lazily)))
        try:
            base, size = driver.call("cuMemGetAddressRange", address)
            if int(base) != address or int(size) < self.size:
                raise SharingError(f"the shared allocation has {int(size)} bytes; {self.size} were announced")
        except BaseException:
            driver.release("cuIpcCloseMemHandle", address)
            raise
        return address

    def _unmap(self) -> None:
        driver.release("cuIpcCloseMemHandle", self._address)


class _OpenedPieces(_Opened):
    def __init__(self, pieces: tuple[Piece, ...], gpu: str):
        super().__init__(gpu, sum(piece.size for piece in pieces))
        self._pieces = pieces
        self._mapping: _Mapping | None = None

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return self._pieces

    def _map(self, index: int) -> int:
        chunks: list[tuple[Any, int]] = []
        try:
            for piece in self._pieces:
                chunk = driver.handle("cuMemImportFromShareableHandle", piece.fd, _fd_type())
                chunks.append((chunk, piece.size))
            self._mapping = _Mapping(chunks, index, writable=False)
        finally:
            for chunk, _ in chunks:
                driver.release("cuMemRelease", chunk)  # what is mapped stays
        return self._mapping.address

    def _unmap(self) -> None:
        if self._mapping is not None:
            self._mapping.unmap()

    def _free(self) -> None:
        super()._free()
        for piece in self._pieces:
            with contextlib.suppress(OSError):
                os.close(piece.fd)


def open_memory(ref: IpcMemory | FdMemory, fds: Sequence[int] = ()) -> _Opened:
    """Another process's memory, from what was announced and, for FdMemory, its descriptors, which become ours.

    Touches no CUDA until `pointer` or `tensor` is called. Raises SharingError (the descriptors are then closed).
    """
    from splatview_ipc.control.frame import Piece
    from splatview_ipc.control.messages import IpcMemory

    try:
        if isinstance(ref, IpcMemory):
            if fds:
                raise SharingError(f"memory behind an IPC handle came with {len(fds)} descriptors; it has none")
            if len(ref.handle) != 64 or not 1 <= ref.size <= limits.MAX_SEGMENT:
                raise SharingError(f"an IPC handle of {len(ref.handle)} bytes for {ref.size} bytes of memory; legal "
                                   f"are 64, for 1 to {limits.MAX_SEGMENT}")
            return _OpenedHandle(bytes(ref.handle), ref.size, ref.gpu)
        if not fds or len(fds) != len(ref.pieces):
            raise SharingError(f"memory in {len(ref.pieces)} pieces came with {len(fds)} descriptors")
        if min(ref.pieces) < 1 or sum(ref.pieces) > limits.MAX_SEGMENT:
            raise SharingError(f"pieces of {min(ref.pieces)} bytes or more, {sum(ref.pieces)} together; legal are 1 to "
                               f"{limits.MAX_SEGMENT}")
        return _OpenedPieces(tuple(Piece(fd, size) for fd, size in zip(fds, ref.pieces, strict=True)), ref.gpu)
    except BaseException:
        for fd in fds:
            with contextlib.suppress(OSError):
                os.close(fd)
        raise
