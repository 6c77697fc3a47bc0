"""Arrays of any library as torch tensors over the same memory."""

from __future__ import annotations

from typing import Any

import torch

DEVICES = ("cpu", "cuda")


def is_array(value: Any) -> bool:
    """Whether a value is one array, of whatever library."""
    return isinstance(value, torch.Tensor) or (
        not isinstance(value, (dict, list, tuple))
        and any(hasattr(value, a) for a in ("__dlpack__", "__cuda_array_interface__", "__array_interface__")))


def as_tensor(value: Any, what: str) -> torch.Tensor:
    """A tensor over the memory of an array; a copy only where the library gives no other way.

    `what` names the value in errors. Raises TypeError when it is no array, ValueError on devices other than
    cpu and cuda or on sparse and quantised tensors.
    """
    if isinstance(value, torch.Tensor):
        tensor = value
    elif not is_array(value):
        raise TypeError(f"{what} is a {type(value).__name__}, not a tensor or an array (torch, NumPy, DLPack, "
                        "__cuda_array_interface__)")
    else:
        tensor = _convert(value, what)
    if tensor.device.type not in DEVICES:
        raise ValueError(f"{what} lies on device {str(tensor.device)!r}; legal are {', '.join(DEVICES)}: move it "
                         "with .cpu() or .cuda()")
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise ValueError(f"{what} is {'quantised' if tensor.is_quantized else tensor.layout}; publish a dense "
                         "tensor: .dequantize() or .to_dense()")
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return tensor


def _convert(value: Any, what: str) -> torch.Tensor:
    import numpy as np

    try:
        if not hasattr(value, "__dlpack__") and hasattr(value, "__array_interface__"):
            value = np.asarray(value)
        if isinstance(value, np.ndarray):
            # torch warns about read-only arrays since it might write; we only read. Negative strides it refuses.
            if not value.flags.writeable or any(s < 0 for s in value.strides):
                value = value.copy()
            return torch.from_numpy(value)
        if hasattr(value, "__dlpack__"):
            return torch.from_dlpack(value)
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, BufferError) as e:
        raise TypeError(f"{what}: this {type(value).__name__} cannot be seen as a torch tensor: {e}") from None


def shape_text(tensor: torch.Tensor) -> str:
    return f"({', '.join(map(str, tensor.shape))}{',' if tensor.ndim == 1 else ''})"
