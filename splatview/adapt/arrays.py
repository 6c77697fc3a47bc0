"""Arrays of any library as torch tensors over the same memory.

| array | comes by |
|---|---|
| NumPy, and what has `__array_interface__` alone, as PIL's images | `torch.from_numpy` |
| JAX, CuPy, and what has `__dlpack__` | DLPack |
| Numba, and what has `__cuda_array_interface__` alone | that |

Read-only memory is taken as it is, since we only read; what torch cannot hold (negative or odd strides, other byte
orders) is copied. In GPU memory torch's current stream is ordered behind the library's own: by the library for DLPack,
by us for `__cuda_array_interface__`; what has to happen after the copy, so that the library may go on with its memory,
is in `splatview.adapt.foreign`. In the host's memory JAX waits until an array has been computed.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

DEVICES = ("cpu", "cuda")
_CPU, _CUDA, _CUDA_HOST, _MANAGED = 1, 2, 3, 13
_DLPACK_DEVICES = {_CPU: "CPU", _CUDA: "CUDA", _CUDA_HOST: "CUDAHost", 4: "OpenCL", 7: "Vulkan", 8: "Metal",
                   10: "ROCm", 11: "ROCmHost", _MANAGED: "CUDAManaged", 14: "oneAPI", 15: "WebGPU", 16: "Hexagon"}
_PIL_MODES = ("L", "RGB", "RGBA", "F")
_JAX = ("jax", "jaxlib")
_DEFAULT_STREAM = 1
"""How the interfaces name CUDA's default stream, which torch calls 0."""


def is_array(value: Any) -> bool:
    """Whether a value is one array, of whatever library."""
    return isinstance(value, torch.Tensor) or (
        not isinstance(value, (dict, list, tuple))
        and (any(hasattr(value, a) for a in ("__dlpack__", "__cuda_array_interface__", "__array_interface__"))
             or type(value).__name__ == "PyCapsule"))


def as_tensor(value: Any, what: str) -> torch.Tensor:
    """A tensor over the memory of an array; a copy only where there is no other way. It is to be read only.

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


def named_stream(value: Any) -> int | None:
    """The CUDA stream on which an array's library works on it now, as torch numbers it; None: it names none."""
    if _library(value) in _JAX:
        return None  # whose interface waits for the GPU; its arrays never change
    interface = getattr(value, "__cuda_array_interface__", None)
    number = interface.get("stream") if interface else None
    return 0 if number == _DEFAULT_STREAM else number


def wait(device: torch.device, number: int | None, behind: bool) -> None:
    """Have torch's current stream of a device wait for what this one was given so far (`behind`), or the reverse.

    Nothing waits on the host. While a CUDA graph is captured nothing is done: nothing runs then.
    """
    current = torch.cuda.current_stream(device)
    if number is None or number == current.cuda_stream or torch.cuda.is_current_stream_capturing():
        return
    other = torch.cuda.ExternalStream(number, device=device) if number else torch.cuda.default_stream(device)
    first, then = (other, current) if behind else (current, other)
    then.wait_stream(first)


def _convert(value: Any, what: str) -> torch.Tensor:
    import numpy as np

    name = type(value).__name__
    if name == "PyCapsule":
        raise TypeError(f"{what} is a DLPack capsule, which can be read a single time; publish the array that it came "
                        "from, or torch.from_dlpack(capsule)")
    if _library(value) == "PIL" and value.mode not in _PIL_MODES:
        raise TypeError(f"{what} is a PIL image of mode {value.mode!r}; legal are {', '.join(_PIL_MODES)}: use "
                        '.convert("RGB")')
    if isinstance(value, np.ndarray):
        convert = _from_numpy
    elif hasattr(value, "__dlpack__"):
        convert = _by_dlpack(value, what)
    elif hasattr(value, "__cuda_array_interface__"):
        _need_cuda(what)
        convert = _from_cuda
    else:
        convert = _from_host
    try:
        return convert(value)
    except Exception as e:  # of whatever kind the library raises
        raise TypeError(f"{what}: this {name} cannot be seen as a torch tensor: {e}{_hint(value)}") from None


def _hint(value: Any) -> str:
    """What to do about JAX's arrays that have no memory."""
    if "Tracer" in type(value).__name__:
        return "; it has no values while JAX traces: publish outside of jit, or from jax.debug.callback"
    deleted = getattr(value, "is_deleted", None)
    if callable(deleted) and deleted():
        return "; its memory was given away, by donation or delete(): publish it before that, or what came of it"
    return ""


def _by_dlpack(value: Any, what: str) -> Any:
    """What converts an array that has `__dlpack__`. Raises ValueError on devices that torch cannot reach."""
    try:
        kind = int(value.__dlpack_device__()[0])
    except Exception:
        return torch.from_dlpack  # which says what is wrong
    if kind == _CPU:
        return torch.from_dlpack
    if kind == _CUDA_HOST:
        return _from_host
    if kind == _CUDA or (kind == _MANAGED and hasattr(value, "__cuda_array_interface__")):
        _need_cuda(what)
        return _from_gpu if kind == _CUDA else _from_cuda
    named = _DLPACK_DEVICES.get(kind, "unknown")
    raise ValueError(f"{what} lies on DLPack device {named} ({kind}); legal are {', '.join(DEVICES)}: copy it to one")


def _need_cuda(what: str) -> None:
    if not (torch.cuda.is_initialized() or torch.cuda.is_available()):
        raise ValueError(f"{what} lies in GPU memory, and this torch sees no GPU; install torch with CUDA, or publish "
                         "a copy in the host's memory")


def _from_gpu(value: Any) -> torch.Tensor:
    if torch.cuda.is_current_stream_capturing():  # into which nothing may be recorded, not even that it waits
        return torch.from_dlpack(value.__dlpack__() if _library(value) in _JAX else value.__dlpack__(stream=-1))
    return torch.from_dlpack(value)


def _from_cuda(value: Any) -> torch.Tensor:
    """By `__cuda_array_interface__`, of which torch neither heeds the stream nor takes what is marked read-only."""
    interface = dict(value.__cuda_array_interface__)
    if interface.get("mask") is not None:
        raise TypeError("it has a mask")
    interface["data"] = (interface["data"][0], False)
    tensor = torch.as_tensor(SimpleNamespace(__cuda_array_interface__=interface, keep=value))
    if tensor.is_cuda:
        wait(tensor.device, named_stream(value), behind=True)
    return tensor


def _from_host(value: Any) -> torch.Tensor:
    """What NumPy can look at: `__array_interface__`, or DLPack in pinned memory."""
    import numpy as np

    return _from_numpy(np.asarray(value) if hasattr(value, "__array_interface__") else np.from_dlpack(value))


def _from_numpy(array: Any) -> torch.Tensor:
    import numpy as np

    if isinstance(array, np.ma.MaskedArray):
        array = array.filled(0)
    if array.dtype.name == "bfloat16":  # of ml_dtypes, as JAX's arrays have it in NumPy
        return _from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if any(stride < 0 or stride % array.itemsize for stride in array.strides):
        array = array.copy()
    if not array.flags.writeable:
        # torch warns about those, since it might write.
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        array = np.asarray(SimpleNamespace(__array_interface__=interface, keep=array))
    return torch.from_numpy(array)


def _library(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def shape_text(tensor: torch.Tensor) -> str:
    return f"({', '.join(map(str, tensor.shape))}{',' if tensor.ndim == 1 else ''})"
