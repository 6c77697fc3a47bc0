"""What a reader gets: one whole frame of a stream, its tensors seen where they lie."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

_NUMPY = {"uint8": np.uint8, "float16": np.float16, "bfloat16": np.uint16, "float32": np.float32,
          "float64": np.float64}


@dataclass(frozen=True)
class RemoteTensor:
    """A tensor in another process's memory, read-only."""

    dtype: str
    """"uint8", "float16", "bfloat16", "float32" or "float64"."""
    array: np.ndarray
    """A view, valid while the frame is held. bfloat16, which NumPy lacks, comes as uint16."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def to_float32(self) -> np.ndarray:
        """A float32 copy of its own, C-contiguous. (uint8 keeps its values 0 to 255.)"""
        if self.dtype == "bfloat16":  # the upper half of a float32
            return (self.array.astype(np.uint32) << 16).view(np.float32)
        return np.array(self.array, np.float32, order="C")

    @classmethod
    def view(cls, buffer: Any, dtype: str, shape: tuple[int, ...], offset: int) -> RemoteTensor:
        """A tensor at a byte offset of a buffer that is known to hold it whole."""
        if 0 in shape:
            return cls(dtype, np.empty(shape, _NUMPY[dtype]))
        count = int(np.prod(shape, dtype=np.int64)) if shape else 1
        return cls(dtype, np.frombuffer(buffer, _NUMPY[dtype], count, offset).reshape(shape))


@dataclass
class Frame:
    """One version of a stream. Use it as a context manager: leaving gives its slot back to the writer.

    The writer does not wait for readers. Read, copy or upload, then ask `intact()`: False means that the writer
    came by meanwhile, and what was read must be thrown away.
    """

    kind: str
    version: int
    time_ns: int
    """When it was published, in ns since the epoch."""
    meta: dict[str, Any]
    tensors: dict[str, RemoteTensor]
    intact: Callable[[], bool]
    release: Callable[[], None] = field(repr=False)

    def close(self) -> None:
        self.tensors = {}
        self.release()

    def __enter__(self) -> Frame:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
