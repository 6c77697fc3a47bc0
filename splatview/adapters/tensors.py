"""Arrays of any library as torch tensors over the same memory, which is only read.

torch tensors are taken as they are; NumPy arrays and PIL images by NumPy; what has `__dlpack__` (JAX, CuPy) by
`torch.from_dlpack`, which orders torch's current stream behind the library's; Numba by `__cuda_array_interface__`.
The copy that a viewer needs is queued on torch's current stream: a program that overwrites such an array on a stream of
its own at once synchronizes first, and one that donates a JAX array to its next step publishes a copy of it.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

DEVICES = ("cpu", "cuda")
_PIL_MODES = ("L", "RGB", "RGBA", "F")
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_transform = torch._C._functorch.peek_interpreter_stack  # type: ignore[attr-defined]


def is_array(value: Any) -> bool:
    """Return True if a value is one array, of whatever library."""
    return isinstance(value, (torch.Tensor, np.ndarray)) or (
        not isinstance(value, (dict, list, tuple))
        and (
            _is_pil(value)  # which makes a copy when it is asked for its interface
            or any(
                hasattr(value, a)
                for a in (
                    "__dlpack__",
                    "__cuda_array_interface__",
                    "__array_interface__",
                )
            )
        )
    )


def holds_values(tensor: torch.Tensor) -> bool:
    """Return True if a tensor has values here that can be copied, as all have but those that `check_values` refuses."""
    if _transform() is not None or tensor.is_nested:
        return False
    return type(tensor) in _PLAIN or not _stands_for_others(tensor)


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


def check_values(value: Any, what: str) -> None:
    """Raise TypeError, with what to give instead, for a tensor that stands for others or for none."""
    if not isinstance(value, torch.Tensor) or holds_values(value):
        return
    kind = type(value).__name__
    if value.is_nested:
        kind = "nested tensor"
        why = "made of tensors of several shapes: give one of .unbind(), or .to_padded_tensor(0)"
    elif isinstance(value, FakeTensor):
        why = "without values: call this where nothing is traced"
    elif is_lazy(value):
        why = "without values: call this once the module has seen its first input"
    elif _is_masked(value):
        why = "values and a mask: give .to_tensor(0), or the values"
    elif hasattr(value, "full_tensor"):
        why = "over many ranks: give .full_tensor(), or this rank's .to_local()"
    elif is_traceable_wrapper_subclass(value):
        why = "made of other tensors: give those"
    else:
        why = "within torch.vmap or a transform of torch.func: call this outside, with what comes of it"
    raise TypeError(f"{what} is a {kind}, {why}")


def as_tensor(value: Any, what: str) -> torch.Tensor:
    """Return a tensor over the memory of an array; a copy only where torch cannot hold its strides.

    `what` names the value in errors. Raises TypeError for what is no array or has no values, ValueError for devices
    other than cpu and cuda and for sparse and quantised tensors.
    """
    if isinstance(value, torch.Tensor):
        check_values(value, what)
        tensor = value
    elif is_array(value):
        try:
            tensor = _converted(value)
        except Exception as e:  # of whatever kind the library raises
            raise TypeError(
                f"{what}: this {type(value).__name__} cannot be read as a torch tensor: {e}"
            ) from None
    else:
        raise TypeError(
            f"{what} is a {type(value).__name__}, not a tensor or an array (torch, NumPy, DLPack, "
            "__cuda_array_interface__)"
        )
    if tensor.device.type not in DEVICES:
        raise ValueError(
            f"{what} is on device {str(tensor.device)!r}; legal are {', '.join(DEVICES)}: move it "
            "with .cpu() or .cuda()"
        )
    if tensor.is_quantized:
        raise ValueError(f"{what} is quantised; give a dense tensor: .dequantize()")
    if tensor.layout is not torch.strided:
        raise ValueError(f"{what} is {tensor.layout}; give a dense tensor: .to_dense()")
    return tensor.resolve_conj().resolve_neg()


def _converted(value: Any) -> torch.Tensor:
    if isinstance(value, np.ndarray) or not (
        hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__")
    ):
        if _is_pil(value) and (mode := getattr(value, "mode", None)) not in _PIL_MODES:
            raise TypeError(
                f'its mode is {mode!r}; legal are {", ".join(_PIL_MODES)}: use .convert("RGB")'
            )
        array = np.asarray(value)
        if not array.flags.writeable:  # torch warns about those, since it might write
            interface = {
                **array.__array_interface__,
                "data": (array.__array_interface__["data"][0], False),
            }
            array = np.asarray(
                SimpleNamespace(__array_interface__=interface, keep=array)
            )
        try:
            return torch.from_numpy(array)
        except (TypeError, ValueError):  # negative or odd strides, another byte order
            return torch.from_numpy(
                np.array(array, array.dtype.newbyteorder("="), copy=True, order="C")
            )
    strides = getattr(value, "strides", None)
    if (
        isinstance(strides, tuple) and min(strides, default=0) < 0
    ):  # over which torch ends the process
        raise ValueError("its strides are negative; publish a contiguous copy")
    if hasattr(value, "__dlpack__"):
        return torch.from_dlpack(value)
    return torch.as_tensor(value)


def _is_pil(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "PIL"
