"""DLPack capsules, looked at before torch sees them: it ends the process over strides that it cannot hold."""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

CUDA = 2
"""The number of a CUDA device's kind."""
_DEFAULT_STREAM = 1
"""How the interfaces name CUDA's default stream, which torch calls 0."""
MOST = 1 << 62
"""Bytes that no memory has."""


class _Array(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_kind", ctypes.c_int32), ("device_index", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64))


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("array", _Array))


_KINDS = ((b"dltensor", 0), (b"dltensor_versioned", _Versioned.array.offset))
"""The names of capsules, and where in what they point to the array is described."""
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))


class StridesError(TypeError):
    """Strides that torch cannot hold: negative, or longer than any memory."""


def from_dlpack(value: Any, keep_out: bool = False, own: bool = False) -> torch.Tensor:
    """A tensor over an array's memory, with torch's current stream behind the library's work on it.

    `keep_out`: have the library record nothing on torch's current stream, which is being captured. `own`: over a copy,
    made by the library. Raises StridesError, or whatever the library raises.
    """
    kind, index = value.__dlpack_device__()
    options: dict[str, Any] = {"copy": True} if own else {}
    if int(kind) == CUDA:
        if not keep_out:
            options["stream"] = torch.cuda.current_stream(index).cuda_stream or _DEFAULT_STREAM
        elif not own:  # what has to make a copy waits for it on the host
            options["stream"] = -1
    capsule = _capsule(value, options)
    _check(capsule)
    return torch.from_dlpack(capsule)


def _capsule(value: Any, options: dict[str, Any]) -> Any:
    """As new a capsule as the library has. One that is not passed on gives back itself what it holds."""
    try:
        return value.__dlpack__(**options, max_version=(1, 0))
    except TypeError:  # it knows no versions
        return value.__dlpack__(**options)


def _check(capsule: Any) -> None:
    for name, offset in _KINDS:
        if _is_valid(capsule, name):
            array = _Array.from_address(_pointer(capsule, name) + offset)
            break
    else:
        raise TypeError("what its __dlpack__ gives is no DLPack capsule that has not been read yet")
    if not 0 <= array.ndim <= 64 or (array.ndim and not array.shape):
        raise TypeError(f"it has {array.ndim} dimensions, and no shape that could be read")
    shape = array.shape[: array.ndim] if array.ndim else []
    strides = array.strides[: array.ndim] if array.strides else None
    size = (array.bits * array.lanes + 7) // 8
    if not _fits(shape, strides, size):
        raise StridesError(f"torch cannot hold its shape {shape} with strides {strides}; publish a copy that is "
                           "contiguous")


def _fits(shape: Sequence[int], strides: Sequence[int] | None, size: int) -> bool:
    """Whether torch can hold an array with elements of `size` bytes: neither anything negative nor too large."""
    if min(shape, default=0) < 0 or size * math.prod(shape) >= MOST:
        return False
    if strides is None:
        return True
    if min(strides, default=0) < 0 or max(strides, default=0) >= MOST:
        return False
    return size * (1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))) < MOST
