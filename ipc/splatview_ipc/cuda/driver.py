"""The CUDA driver API, checked.

A call that fails raises CudaError, which names the call, the error and what to do.
Devices are named by their ordinal in this process, which is torch's as well (both
follow CUDA_VISIBLE_DEVICES), and between processes by UUID. Functions make a context
only where documented: always the primary context, torch's own.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
from typing import TYPE_CHECKING, Any

from splatview_ipc.control.errors import SharingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import torch

_ADVICE = {
    "CUDA_ERROR_OUT_OF_MEMORY": (
        "the GPU's memory is full; free some, or publish less at once"
    ),
    "CUDA_ERROR_NO_DEVICE": (
        "no GPU is visible; see nvidia-smi and CUDA_VISIBLE_DEVICES"
    ),
    "CUDA_ERROR_DEINITIALIZED": "CUDA is shutting down with this process",
    "CUDA_ERROR_NOT_SUPPORTED": (
        "this GPU or driver cannot do it (MIG, WSL2 and some virtual GPUs cannot share "
        "memory)"
    ),
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": (
        "driver and libcuda are of different versions; restart after a driver update"
    ),
    "CUDA_ERROR_OPERATING_SYSTEM": (
        "the system refused; is the limit of open files reached (ulimit -n), or is this "
        "container allowed less than the trainer?"
    ),
    "CUDA_ERROR_INVALID_HANDLE": (
        "is the process that shared it still there? Containers must have its PID and IPC "
        "namespaces (--pid=host --ipc=host)"
    ),
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": (
        "a CUDA graph is being captured; publish outside of the capture"
    ),
}


class CudaError(SharingError):
    """A call of the driver failed."""

    def __init__(self, call: str, error: str):
        self.error = error
        """The error's name, as in "CUDA_ERROR_OUT_OF_MEMORY"."""
        message = f"{call}: {error}"
        if error in _ADVICE:
            message += f" ({_ADVICE[error]})"
        super().__init__(message)


# -- calls -----------------------------------------------------------------------------


@functools.cache
def bindings() -> Any:
    """Return `cuda.bindings.driver`, initialised (without a context).

    Raises SharingError if there is no driver.
    """
    try:
        # The module is compiled: pyright does not see it.
        from cuda.bindings import driver  # pyright: ignore[reportAttributeAccessIssue]

        error = driver.cuInit(0)[0]
    except (ImportError, RuntimeError) as e:
        raise SharingError(
            "GPU memory is shared by the NVIDIA driver and the package "
            f"cuda-bindings>=12.8, and one is missing: {e}"
        ) from None
    if int(error) != 0:
        raise CudaError("cuInit", error.name)
    return driver


def fd_type() -> Any:
    """Return the type of all handles to shared memory: POSIX file descriptors."""
    types = bindings().CUmemAllocationHandleType
    return types.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


def call(name: str, *args: Any) -> Any:
    """Call a function of the driver.

    Returns its values after the error code: None, one value or a tuple. Raises
    SharingError.
    """
    driver = bindings()
    try:
        result = getattr(driver, name)(*args)
    except (AttributeError, RuntimeError) as e:
        # The driver, or the bindings, lack the function.
        raise SharingError(
            f"{name}: {e}; update the NVIDIA driver, and cuda-bindings (pip install -U)"
        ) from None
    if int(result[0]) != 0:
        raise CudaError(name, result[0].name)
    if len(result) == 1:
        return None
    if len(result) == 2:
        return result[1]
    return result[1:]


def call_for_handle(name: str, *args: Any) -> Any:
    """Call a function of the driver for a handle or an address, which is never null.

    Some releases of cuda-bindings report success with a null. Raises SharingError.
    """
    value = call(name, *args)
    if int(value) == 0:
        raise SharingError(
            f"{name} returned nothing: pip install -U cuda-bindings, or restart after a "
            "driver update"
        )
    return value


def call_quietly(name: str, *args: Any) -> str:
    """Call a function of the driver that releases something; never raise.

    Returns "" or the error's name. At exit, and after a fault in a kernel, every call
    fails; the driver takes all back when the process ends.
    """
    try:
        call(name, *args)
    except CudaError as e:
        return e.error
    except Exception as e:
        # Errors of modules that are being torn down are among these.
        return type(e).__name__
    return ""


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def pointer_attribute(attribute: int, pointer: int) -> int:
    """Return an attribute of a device address.

    The bindings refuse attributes that are newer than they are: this asks the library.
    Raises CudaError; needs a current context (`context`).
    """
    cu = bindings()
    value = ctypes.c_uint64(0)
    error = _library().cuPointerGetAttribute(
        ctypes.byref(value), attribute, ctypes.c_uint64(pointer)
    )
    if error != 0:
        raise CudaError("cuPointerGetAttribute", cu.CUresult(error).name)
    return value.value


# -- devices and contexts --------------------------------------------------------------


@functools.cache
def device_handle(index: int) -> Any:
    """Return the driver's handle of a device; makes no context."""
    return call("cuDeviceGet", index)


@functools.cache
def gpu_uuid(device_index: int) -> str:
    """Return a device's UUID, 32 lower-case hexadecimal digits; makes no context.

    With MIG it is the UUID of the instance.
    """
    name = "cuDeviceGetUuid"
    if hasattr(bindings(), "cuDeviceGetUuid_v2"):
        name = "cuDeviceGetUuid_v2"
    return bytes(call(name, device_handle(device_index)).bytes).hex()


def find_device(uuid: str) -> int | None:
    """Return a GPU's ordinal in this process; makes no context.

    Returns None when the GPU is not visible here. Raises SharingError if there is no
    driver.
    """
    try:
        count = int(call("cuDeviceGetCount"))
    except CudaError as e:
        if e.error == "CUDA_ERROR_NO_DEVICE":
            return None
        raise
    for index in range(count):
        if gpu_uuid(index) == uuid:
            return index
    return None


def require_device(uuid: str) -> int:
    """Return a GPU's ordinal in this process.

    Raises SharingError when it is not visible here.
    """
    index = find_device(uuid)
    if index is None:
        raise SharingError(
            f"GPU {uuid} is not visible in this process: look at CUDA_VISIBLE_DEVICES, and "
            "in a container at which GPUs it was given"
        )
    return index


_primary: dict[int, Any] = {}
"""Primary contexts that were retained here, until the process ends (as torch keeps
them)."""


def devices_in_use() -> tuple[int, ...]:
    """Return the devices whose primary context was retained here."""
    return tuple(_primary)


@contextlib.contextmanager
def context(index: int) -> Iterator[None]:
    """Have the device's primary context current in this thread.

    Leaves the thread as it was.
    """
    current = call("cuCtxGetCurrent")
    is_current = int(current) and int(call("cuCtxGetDevice")) == int(
        device_handle(index)
    )
    if is_current:
        yield
        return
    if index not in _primary:
        # Two threads may both retain it: it is counted twice, which does no harm.
        handle = device_handle(index)
        _primary[index] = call_for_handle("cuDevicePrimaryCtxRetain", handle)
    call("cuCtxPushCurrent", _primary[index])
    try:
        yield
    finally:
        call_quietly("cuCtxPopCurrent")


def is_broken(index: int) -> bool:
    """Return whether a device takes no more work. Never waits.

    So it is after a fault in a kernel, and as CUDA shuts down.
    """
    try:
        with context(index), relaxed_capture():
            flags = int(bindings().CUevent_flags.CU_EVENT_DISABLE_TIMING)
            event = call_for_handle("cuEventCreate", flags)
            error = call_quietly("cuEventQuery", event)
            call_quietly("cuEventDestroy", event)
    except CudaError as e:
        return e.error != "CUDA_ERROR_OUT_OF_MEMORY"
    return error not in ("", "CUDA_ERROR_NOT_READY")


# -- captures of CUDA graphs -----------------------------------------------------------


@contextlib.contextmanager
def relaxed_capture() -> Iterator[None]:
    """Let this thread allocate and register while some thread captures a CUDA graph.

    The capture is not spoiled by it.
    """
    driver = bindings()
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    previous = call("cuThreadExchangeStreamCaptureMode", relaxed)
    try:
        yield
    finally:
        call_quietly("cuThreadExchangeStreamCaptureMode", previous)


def torch_with_cuda() -> Any:
    """Return the module torch if it has begun to use CUDA in this process, else None.

    Imports nothing.
    """
    torch = sys.modules.get("torch")
    # The module lacks it while another thread imports torch.
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None
    return torch


def is_capturing() -> bool:
    """Return whether torch's current stream is being captured into a CUDA graph.

    Returns False if CUDA is lost.
    """
    torch = torch_with_cuda()
    try:
        return torch is not None and torch._C._cuda_isCurrentStreamCapturing()
    except RuntimeError:
        return False


def is_captured(index: int, stream: int) -> bool:
    """Return whether a stream of a device is being captured into a CUDA graph.

    For the default stream: whether any is. Any thread. Returns False if CUDA is lost
    for this process.
    """
    with contextlib.suppress(CudaError), context(index), relaxed_capture():
        try:
            return int(call("cuStreamIsCapturing", stream_object(stream))) != 0
        except CudaError as e:
            return e.error == "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"
    return False


# -- streams ---------------------------------------------------------------------------


def current_stream(index: int) -> int:
    """Return torch's current stream on a device, as a number.

    Returns 0 (the default stream) while torch has no CUDA.
    """
    torch = torch_with_cuda()
    return torch._C._cuda_getCurrentRawStream(index) if torch is not None else 0


@functools.lru_cache(256)
def stream_object(stream: int) -> Any:
    """Return a stream as cuda-bindings takes it without conversion.

    Cached: making one costs more than most calls.
    """
    return bindings().CUstream(stream)


def enqueue(index: int, stream: int, name: str, *args: Any) -> None:
    """Call a function that queues work on a stream of a device, at the least cost.

    Stream 0 is the default stream of the current context, so the device's own must be
    current: as a rule torch's current device has it.
    """
    torch = sys.modules["torch"]
    has_context = stream or torch._C._cuda_getDevice() == index
    if has_context:
        error = getattr(bindings(), name)(*args)[0]
        if not error:
            return
    # For the default stream of another device, and for threads without a context.
    with context(index):
        call(name, *args)


class StreamMarks:
    """Words of pinned host memory that a GPU writes in the order of a stream.

    What a mark needs is looked up and made once, and the library is called without the
    bindings: in a training, whose caches are cold at each call, the lookups and
    conversions cost more than the driver does. For one thread at a time.
    """

    def __init__(self, index: int, addresses: Sequence[int]) -> None:
        """Prepare the writes.

        Args:
            index: the device.
            addresses: the words' device addresses, in memory of `register_host`.
        """
        torch = sys.modules["torch"]
        self._device = index
        self._addresses = [ctypes.c_uint64(address) for address in addresses]
        self._stream = ctypes.c_void_p()
        self._stream_number = 0
        self._value = ctypes.c_uint64()
        self._current_stream = torch._C._cuda_getCurrentRawStream
        self._current_device = torch._C._cuda_getDevice
        # "v2" is what the headers of CUDA mean by cuStreamWriteValue64.
        self._write_value = _library().cuStreamWriteValue64_v2

    def mark(self, index: int, value: int) -> None:
        """Have the GPU write a word when all earlier work of torch's stream has ended.

        The writes of that work can be seen everywhere by then. Never waits.

        Args:
            index: of the word's address.
            value: to write, 64 bits.
        """
        stream = self._current_stream(self._device)
        address = self._addresses[index]
        if stream or self._current_device() == self._device:
            if stream != self._stream_number:
                self._stream.value = stream
                self._stream_number = stream
            self._value.value = value
            if not self._write_value(self._stream, address, self._value, 0):
                return
        # For the default stream of another device, and for threads without a context;
        # it also names the error of a call that failed.
        name = "cuStreamWriteValue64"
        with context(self._device):
            call(name, stream_object(stream), address.value, value, 0)


def torch_stream(stream: int, device: torch.device | int) -> torch.cuda.Stream:
    """Return torch's stream for one of the driver's number, 0 for the default one.

    torch's own `ExternalStream` takes 0 for a stream that is yet to be made: what waits
    for that waits for nothing.
    """
    import torch

    if not stream:
        return torch.cuda.default_stream(device)
    return torch.cuda.ExternalStream(stream, device)


_side_streams: dict[int, torch.cuda.Stream] = {}
"""A stream of ours per device, used by the helper thread alone."""


@contextlib.contextmanager
def stream_after(index: int, stream: int) -> Iterator[bool]:
    """Make one of our streams torch's current one in this thread.

    It waits for another stream, that is for all that the other one was given so far.
    Nothing is waited for on the host. Yields False, with nothing changed, while the
    other stream is being captured into a CUDA graph.

    Args:
        index: the device.
        stream: a stream of the trainer, by the driver's number.
    """
    import torch

    with relaxed_capture(), torch.cuda.device(index):
        if is_captured(index, stream):
            yield False
            return
        if index not in _side_streams:
            _side_streams[index] = torch.cuda.Stream(index)
        side_stream = _side_streams[index]
        side_stream.wait_stream(torch_stream(stream, index))
        with torch.cuda.stream(side_stream):
            yield True


def keep_for_current_stream(tensors: Iterable[torch.Tensor]) -> None:
    """Have memory of tensors be used again only after the current stream's work so far.

    Tensors that are not on a GPU need no keeping. The host waits for nothing.
    """
    for tensor in tensors:
        if tensor.is_cuda:
            tensor.record_stream(
                sys.modules["torch"].cuda.current_stream(tensor.device)
            )


# -- pinned host memory ----------------------------------------------------------------


def register_host(address: int, size: int, index: int) -> int:
    """Pin host memory so that the GPU reads and writes it; return its device address.

    The GPU can write also in the order of a stream (`StreamMarks`). `release_host` the
    memory before it is unmapped. Takes about a millisecond per 3 MB. Raises
    SharingError, also if the GPU cannot write so.
    """
    cu = bindings()
    can_write = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS
    if not call("cuDeviceGetAttribute", can_write, device_handle(index)):
        raise SharingError(
            "this GPU or driver cannot write 64 bits in the order of a stream"
        )
    flags = cu.CU_MEMHOSTREGISTER_PORTABLE | cu.CU_MEMHOSTREGISTER_DEVICEMAP
    with context(index), relaxed_capture():
        call("cuMemHostRegister", address, size, flags)
        try:
            return int(call_for_handle("cuMemHostGetDevicePointer", address, 0))
        except SharingError:
            call_quietly("cuMemHostUnregister", address)
            raise


def release_host(address: int, index: int) -> None:
    """Undo `register_host`. Never raises.

    Nothing on the GPU may still use the memory.
    """
    with contextlib.suppress(SharingError), context(index), relaxed_capture():
        call_quietly("cuMemHostUnregister", address)
