"""Arrays of any library as torch tensors over the same memory, which is only read.

torch tensors are taken as they are; NumPy arrays and PIL images by NumPy; arrays with
`__dlpack__` (JAX, CuPy) by `torch.from_dlpack`, which orders torch's current stream after
the library's; Numba's by `__cuda_array_interface__`. The copy that a viewer needs is
queued on torch's current stream: a program that overwrites such an array on a stream of
its own at once synchronizes first, and one that donates a JAX array to its next step
publishes a copy of it.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from splatview.adapters.value_texts import type_text

DEVICES = ("cpu", "cuda")
_PIL_MODES = ("L", "RGB", "RGBA", "F", "I;16")
_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)
_ARRAY_INTERFACES = ("__dlpack__", "__cuda_array_interface__", "__array_interface__")
_current_transform = torch._C._functorch.peek_interpreter_stack  # type: ignore[attr-defined]
"""Return the transform of torch.func that is under way; None if there is none."""


def is_array(value: Any) -> bool:
    """Return True if a value is one array, of whatever library."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return True
    if isinstance(value, (dict, list, tuple)):
        return False
    # A PIL image makes a copy when it is asked for its interface.
    return _is_pil(value) or any(hasattr(value, name) for name in _ARRAY_INTERFACES)


def holds_values(tensor: torch.Tensor) -> bool:
    """Return True if a tensor has values here that can be copied.

    All tensors have but those that `check_values` refuses.
    """
    if _current_transform() is not None or tensor.is_nested:
        return False
    return type(tensor) in _PLAIN_TYPES or not _stands_for_others(tensor)


def _stands_for_others(tensor: torch.Tensor) -> bool:
    """Return whether a tensor of a subclass has no values of its own, or none yet."""
    return (
        isinstance(tensor, FakeTensor)
        or is_traceable_wrapper_subclass(tensor)
        or is_lazy(tensor)
        or _is_masked(tensor)
    )


def _is_masked(tensor: torch.Tensor) -> bool:
    return type(tensor).__module__.startswith("torch.masked")


def check_values(value: Any, name: str) -> None:
    """Raise TypeError for a tensor that stands for others or for none.

    The message says what to give instead. name: of the value, for errors.
    """
    if not isinstance(value, torch.Tensor) or holds_values(value):
        return
    kind = "nested tensor" if value.is_nested else type(value).__name__
    raise TypeError(f"{name} is a {kind}, {_reason_without_values(value)}")


def _reason_without_values(tensor: torch.Tensor) -> str:
    """Return why a tensor has no values, and what to give instead."""
    if tensor.is_nested:
        return (
            "made of tensors of several shapes: give one of .unbind(), or "
            ".to_padded_tensor(0)"
        )
    if isinstance(tensor, FakeTensor):
        return "without values: call this where nothing is traced"
    if is_lazy(tensor):
        return "without values: call this once the module has seen its first input"
    if _is_masked(tensor):
        return "values and a mask: give .to_tensor(0), or the values"
    if hasattr(tensor, "full_tensor"):
        return "over many ranks: give .full_tensor(), or this rank's .to_local()"
    if is_traceable_wrapper_subclass(tensor):
        return "made of other tensors: give those"
    return (
        "within torch.vmap or a transform of torch.func: call this outside, with what "
        "comes of it"
    )


def as_tensor(value: Any, name: str) -> torch.Tensor:
    """Return a tensor over the memory of an array.

    It is a copy only where torch cannot hold the array's strides.

    Args:
        value: an array of any library.
        name: the name of the value, for errors.

    Raises:
        TypeError: the value is no array, or has no values.
        ValueError: the device is neither cpu nor cuda, or the tensor is sparse or
            quantised.
    """
    if isinstance(value, torch.Tensor):
        check_values(value, name)
        tensor = value
    elif is_array(value):
        try:
            tensor = _converted(value)
        except Exception as error:
            # The library may raise errors of any kind.
            raise TypeError(
                f"{name}: this {type(value).__name__} cannot be read as a torch tensor: "
                f"{error}"
            ) from None
    else:
        raise TypeError(
            f"{name} is {type_text(value)}, not a tensor or an array (torch, NumPy, "
            "DLPack, __cuda_array_interface__)"
        )
    if tensor.device.type not in DEVICES:
        raise ValueError(
            f"{name} is on device {str(tensor.device)!r}; expected {', '.join(DEVICES)}: "
            "move it with .cpu() or .cuda()"
        )
    if tensor.is_quantized:
        raise ValueError(f"{name} is quantised; give a dense tensor: .dequantize()")
    if tensor.layout is not torch.strided:
        raise ValueError(f"{name} is {tensor.layout}; give a dense tensor: .to_dense()")
    return tensor.resolve_conj().resolve_neg()


def _converted(value: Any) -> torch.Tensor:
    """Return a tensor over the memory of another library's array."""
    has_dlpack = hasattr(value, "__dlpack__")
    has_interface = has_dlpack or hasattr(value, "__cuda_array_interface__")
    if isinstance(value, np.ndarray) or not has_interface:
        return _from_numpy(value)
    strides = getattr(value, "strides", None)
    if isinstance(strides, tuple) and min(strides, default=0) < 0:
        # torch would end the process.
        raise ValueError("its strides are negative; publish a contiguous copy")
    if has_dlpack:
        return torch.from_dlpack(value)
    return torch.as_tensor(value)


def _from_numpy(value: Any) -> torch.Tensor:
    """Return a tensor over the memory of a NumPy array, or of what NumPy can read."""
    mode = getattr(value, "mode", None)
    if _is_pil(value) and mode not in _PIL_MODES:
        raise TypeError(
            f"its mode is {mode!r}; expected {', '.join(_PIL_MODES)}: use "
            '.convert("RGB")'
        )
    array = np.asarray(value)
    if not array.flags.writeable:
        array = _as_writeable(array)
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError):
        # Its strides are negative or odd, or it is in another byte order.
        dtype = array.dtype.newbyteorder("=")
        return torch.from_numpy(np.array(array, dtype, copy=True, order="C"))


def _as_writeable(array: np.ndarray) -> np.ndarray:
    """Return an array over the same memory that torch does not warn about.

    torch warns because it might write; nothing here does.
    """
    interface = dict(array.__array_interface__)
    address, _ = interface["data"]
    interface["data"] = (address, False)
    return np.asarray(SimpleNamespace(__array_interface__=interface, keep=array))


def _is_pil(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "PIL"
