"""A frame as a reader gets it: one version of a stream.

Its tensors are views of the trainer's memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from splatview_ipc.control.dtypes import DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


class Piece(NamedTuple):
    """A physical chunk of GPU memory."""

    fd: int
    """POSIX descriptor of CUDA virtual memory.

    It belongs to the memory: duplicate it before giving it away.
    """
    size: int
    """Size in bytes."""


class DeviceMemory(Protocol):
    """An allocation of GPU memory that another process made.

    `splatview_ipc.cuda.memory` opens them.
    """

    gpu: str
    """UUID of the GPU, 32 lower-case hexadecimal digits."""
    size: int
    """Bytes."""

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Return its chunks in order, for importing elsewhere (OpenGL, Vulkan).

        Memory of cudaMalloc has none.
        """
        ...

    def tensor(
        self, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
    ) -> torch.Tensor:
        """Return a CUDA tensor over the memory, which keeps it mapped.

        `strides` are in elements, `offset` is in bytes. Raises SharingError.
        """
        ...


@dataclass(frozen=True)
class RemoteTensor:
    """A tensor in another process's memory on the host, read-only."""

    dtype: str
    """One of `control.dtypes.DTYPES`."""
    array: np.ndarray
    """A view of the slot, which the writer may reuse: see `StreamFrame`.

    bfloat16, which NumPy lacks, comes as uint16.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def to_float32(self) -> np.ndarray:
        """Return a float32 copy, C-contiguous. Integers keep their values."""
        if self.dtype == "bfloat16":
            # It is the upper half of a float32.
            return (self.array.astype(np.uint32) << 16).view(np.float32)
        return np.array(self.array, np.float32, order="C")

    def to_floats(self) -> np.ndarray:
        """Return a copy as `to_float32` does, but float64 stays float64."""
        if self.dtype == "float64":
            return np.array(self.array, order="C")
        return self.to_float32()

    @classmethod
    def view(
        cls, buffer: Any, dtype: str, shape: tuple[int, ...], offset: int
    ) -> RemoteTensor:
        """Return a tensor at a byte offset of a buffer, within which all of it lies."""
        if 0 in shape:
            return cls(dtype, np.empty(shape, DTYPES[dtype].numpy))
        array = np.frombuffer(buffer, DTYPES[dtype].numpy, math.prod(shape), offset)
        return cls(dtype, array.reshape(shape))


def _nothing(*args: object) -> None:
    pass


@dataclass(frozen=True)
class DeviceTensor:
    """A tensor in another process's memory on a GPU. Only read it."""

    dtype: str
    """"uint8", "int32", "float16", "bfloat16", "float32" or "float64"."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements, never negative."""
    memory: DeviceMemory
    offset: int
    """Bytes from the memory's start to the first element."""
    ready: Callable[[int], None] = field(default=_nothing, repr=False, compare=False)
    """Makes a CUDA stream, given as its handle, wait until the data are written (see
    `StreamFrame.wait`)."""

    def torch(self) -> torch.Tensor:
        """Return a CUDA tensor over the same bytes, without a copy.

        It is on this process's device with the UUID of the memory. Keep the frame while
        you use it, and call `StreamFrame.wait` first. It may be the same object for
        several versions in the same memory. Raises SharingError when this process has
        no such device or cannot map the memory.
        """
        return self.memory.tensor(self.dtype, self.shape, self.strides, self.offset)

    def to_float32(self) -> np.ndarray:
        """Return a float32 copy on the host, C-contiguous. Waits for the data."""
        return self.to_floats().astype(np.float32, copy=False)

    def to_floats(self) -> np.ndarray:
        """Return a copy as `to_float32` does, but float64 stays float64."""
        import torch

        tensor = self.torch()
        self.ready(torch.cuda.current_stream(tensor.device).cuda_stream)
        dtype = torch.float64 if self.dtype == "float64" else torch.float32
        return tensor.to(dtype).contiguous().cpu().numpy()


@dataclass
class StreamFrame:
    """One version of a stream. Use it as a context manager: leaving closes it.

    The writer does not wait for readers. Read, copy or upload, and when that is done (a
    GPU's work ended), ask `intact()`: False means that the writer wrote there
    meanwhile, and what was read must be discarded. Zero-copy tensors may change at any
    time: `intact()` then returns True if their memory was kept.
    """

    kind: str
    version: int
    time_ns: int
    """When it was published, in ns since the epoch."""
    meta: dict[str, Any]
    tensors: dict[str, RemoteTensor | DeviceTensor]
    """All on the host, or all on one GPU."""
    intact: Callable[[], bool]
    """Returns True if all that was read until now is this version, unmixed."""
    release: Callable[[], None] = field(default=_nothing, repr=False)
    wait: Callable[[int], None] = field(default=_nothing, repr=False)
    """`wait(stream)`: work queued on a CUDA stream afterwards finds the data there.

    The stream is given by its handle, on the tensors' GPU. For zero-copy tensors this
    waits, on the host, until the trainer's GPU has come that far, the trainer is gone,
    or 5 s have passed. Others are complete when they are handed out.
    """
    arrived: Callable[[], bool] = field(default=lambda: False, repr=False)
    """Returns True once the GPU is known to have written the data."""
    confirmed: bool = True
    """False for a copy that is known to have caught its tensors amid a write.

    It was made while nothing was published. An operation that still runs a little later
    is not noticed.
    """
    _outlives_block: bool = field(default=False, init=False, repr=False)
    _closed: bool = field(default=False, init=False, repr=False)

    @property
    def on_gpu(self) -> bool:
        tensors = self.tensors.values()
        return any(isinstance(tensor, DeviceTensor) for tensor in tensors)

    @property
    def complete(self) -> bool:
        """Return whether the data is known to be there without `wait`.

        For zero-copy tensors it becomes true.
        """
        return self.wait is _nothing or self.arrived()

    def hold(self) -> None:
        """Keep the frame beyond the `with` block, to be read again and closed later."""
        self._outlives_block = True

    def close(self) -> None:
        """Release the frame's memory. Idempotent.

        Call it when no queued GPU work reads the memory any more.
        """
        if not self._closed:
            self._closed = True
            self.tensors = {}
            self.release()

    def __enter__(self) -> StreamFrame:
        return self

    def __exit__(self, *exc: object) -> None:
        if not self._outlives_block:
            self.close()
