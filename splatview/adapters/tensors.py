"""Arrays of any library as torch tensors over the same memory.

| array | comes by |
|---|---|
| NumPy, and what has `__array_interface__` alone, as PIL's images | `torch.from_numpy` |
| CuPy, and what has `__dlpack__` | DLPack |
| JAX | DLPack, over a copy that JAX makes |
| Numba, and what has `__cuda_array_interface__` alone | that |

Read-only memory is taken as it is, since we only read; what torch cannot hold (negative or odd strides, other byte
orders), and PIL's images, are copied. In GPU memory torch's current stream is ordered behind the library's own: by the
library for DLPack, by us for `__cuda_array_interface__`; what has to follow the copy, so that the library may go on, is
in `splatview.adapters.foreign`. In the host's memory JAX waits until an array has been computed.

JAX does not let a program donate an array to a step while anybody else refers to its memory, and the step would fail.
Nor could we have JAX's next step wait until we have read what it writes into. So JAX itself makes the copy, in the
order of its own work, and waits for nothing; nobody else ever refers to the array.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from splatview.adapters.dlpack import CUDA, MOST, StridesError, from_dlpack
from splatview_ipc.control.errors import SharingError

DEVICES = ("cpu", "cuda")
_CPU, _CUDA_HOST, _MANAGED = 1, 3, 13
_DLPACK_DEVICES = {_CPU: "CPU", CUDA: "CUDA", _CUDA_HOST: "CUDAHost", 4: "OpenCL", 7: "Vulkan", 8: "Metal",
                   10: "ROCm", 11: "ROCmHost", _MANAGED: "CUDAManaged", 14: "oneAPI", 15: "WebGPU", 16: "Hexagon"}
_PIL_MODES = {"L": ((), "uint8"), "RGB": ((3,), "uint8"), "RGBA": ((4,), "uint8"), "F": ((), "float32")}
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_transform = torch._C._functorch.peek_interpreter_stack  # type: ignore[attr-defined]
_JAX = ("jax", "jaxlib")
_outlines: dict[Any, torch.Tensor] = {}
_MANY = 64
"""Outlines to remember."""
_DEFAULT_STREAM = 1
"""How the interfaces name CUDA's default stream, which torch calls 0."""


class GoneError(TypeError):
    """The memory of an array of JAX was given away."""


def is_array(value: Any) -> bool:
    """Whether a value is one array, of whatever library."""
    return isinstance(value, (torch.Tensor, np.ndarray)) or (
        not isinstance(value, (dict, list, tuple))
        and (_library(value) == "PIL"  # which makes a copy when it is asked for its interface
             or any(hasattr(value, a) for a in ("__dlpack__", "__cuda_array_interface__", "__array_interface__"))
             or type(value).__name__ == "PyCapsule"))


def holds_values(tensor: torch.Tensor) -> bool:
    """Whether a tensor has values here that can be copied, as all have but those that `check_values` refuses."""
    return _transform() is None and (type(tensor) in _PLAIN or not (
        isinstance(tensor, FakeTensor) or is_traceable_wrapper_subclass(tensor)))


def check_values(value: Any, what: str) -> None:
    """Raise TypeError, which says what to give instead, for a tensor that stands for others or for none."""
    if isinstance(value, torch.Tensor) and not holds_values(value):
        why = ("without values: call this where nothing is traced" if isinstance(value, FakeTensor) else
               "over many ranks: give .full_tensor(), or this rank's .to_local()" if hasattr(value, "full_tensor") else
               "made of other tensors: give those" if is_traceable_wrapper_subclass(value) else
               "within torch.vmap or a transform of torch.func: call this outside, with what comes of it")
        raise TypeError(f"{what} is a {type(value).__name__}, {why}")


def as_tensor(value: Any, what: str) -> torch.Tensor:
    """A tensor over the memory of an array; a copy only where there is no other way. It is to be read only.

    Of arrays of JAX it is a copy of JAX's own, so that the program can donate them.

    `what` names the value in errors. Raises TypeError when it is no array or `check_values` refuses it, ValueError on
    devices other than cpu and cuda or on sparse and quantised tensors, SharingError when JAX can make no copy.
    """
    if isinstance(value, torch.Tensor):
        check_values(value, what)
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


def outline(value: Any, what: str) -> torch.Tensor:
    """As `as_tensor`, but of what that may copy (NumPy's, JAX's, PIL's) only the shape, dtype and device."""
    fleeting, image = is_fleeting(value), _library(value) == "PIL"
    if not (fleeting or image or issubclass(type(value), np.ndarray)):
        return as_tensor(value, what)
    if _is_deleted(value):
        raise GoneError(f"{what}: this {type(value).__name__} has no values{_hint(value)}")
    try:
        if image:
            bands, dtype = _PIL_MODES[value.mode]
            key = (value.height, value.width, *bands), dtype, None
        else:
            key = value.shape, value.dtype, value.sharding if fleeting else None
        found = _outlines.get(key)
        if found is None:
            kind, index = map(int, value.__dlpack_device__()) if fleeting else (_CPU, 0)
            device = {_CPU: torch.device("cpu"), CUDA: torch.device("cuda", index)}[kind]
            found = torch.empty((), dtype=getattr(torch, np.dtype(key[1]).name), device=device).expand(key[0])
            if len(_outlines) >= _MANY:
                _outlines.clear()
            _outlines[key] = found
        return found
    except Exception:
        return as_tensor(value, what)  # which says what is wrong, if anything is


def is_fleeting(value: Any) -> bool:
    """Whether the memory of an array may be given away by the program at any time (JAX's donation)."""
    return _library(value) in _JAX


def is_copied(value: Any) -> bool:
    """Whether `as_tensor` copies an array."""
    if not isinstance(value, np.ndarray):
        return _library(value) in (*_JAX, "PIL")
    return (isinstance(value, np.ma.MaskedArray) or not value.dtype.isnative
            or any(stride < 0 or stride % value.itemsize for stride in value.strides))


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
    name = type(value).__name__
    if name == "PyCapsule":
        raise TypeError(f"{what} is a DLPack capsule, which can be read a single time; publish the array that it came "
                        "from, or torch.from_dlpack(capsule)")
    if _library(value) == "PIL" and (mode := getattr(value, "mode", None)) not in _PIL_MODES:
        raise TypeError(f"{what} is a PIL image of mode {mode!r}; legal are {', '.join(_PIL_MODES)}: use "
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
        if is_fleeting(value) and isinstance(e, RuntimeError) and not _is_deleted(value):
            raise SharingError(f"{what}: no copy of this {name} could be made: {e}") from None
        kind = GoneError if _is_deleted(value) else TypeError
        raise kind(f"{what}: this {name} cannot be seen as a torch tensor: {e}{_hint(value)}") from None


def _hint(value: Any) -> str:
    """What to do about JAX's arrays that have no memory."""
    if "Tracer" in type(value).__name__:
        return "; it has no values while JAX traces: publish outside of jit, or from jax.debug.callback"
    if _is_deleted(value):
        return "; its memory was given away, by donation or delete(): publish it before that, or what came of it"
    return ""


def _is_deleted(value: Any) -> bool:
    if not is_fleeting(value):
        return False
    deleted = getattr(value, "is_deleted", None)
    return callable(deleted) and bool(deleted())


def _by_dlpack(value: Any, what: str) -> Any:
    """What converts an array that has `__dlpack__`. Raises ValueError on devices that torch cannot reach."""
    try:
        kind = int(value.__dlpack_device__()[0])
    except Exception:
        return from_dlpack  # which says what is wrong
    if kind == _CPU:
        return _from_library
    if kind == _CUDA_HOST:
        return _from_host
    if kind == CUDA or (kind == _MANAGED and hasattr(value, "__cuda_array_interface__")):
        _need_cuda(what)
        return _from_library if kind == CUDA else _from_cuda
    named = _DLPACK_DEVICES.get(kind, "unknown")
    raise ValueError(f"{what} lies on DLPack device {named} ({kind}); legal are {', '.join(DEVICES)}: copy it to one")


def _need_cuda(what: str) -> None:
    if not (torch.cuda.is_initialized() or torch.cuda.is_available()):
        raise ValueError(f"{what} lies in GPU memory, and this torch sees no GPU; install torch with CUDA, or publish "
                         "a copy in the host's memory")


def _from_library(value: Any) -> torch.Tensor:
    """By DLPack, in the host's memory or a GPU's."""
    on_gpu = int(value.__dlpack_device__()[0]) == CUDA
    capturing = on_gpu and torch.cuda.is_current_stream_capturing()
    try:
        # Into what is captured nothing may be recorded, not even that it waits.
        return from_dlpack(value, keep_out=capturing, own=is_fleeting(value))
    except StridesError:
        if on_gpu and hasattr(value, "__cuda_array_interface__"):
            return _from_cuda(value)
        if hasattr(value, "__array_interface__"):
            return _from_host(value)
        raise


def _from_cuda(value: Any) -> torch.Tensor:
    """By `__cuda_array_interface__`, of which torch neither heeds the stream nor takes what is marked read-only."""
    interface = dict(value.__cuda_array_interface__)
    if interface.get("mask") is not None:
        raise TypeError("it has a mask")
    backwards = _turn_round(interface)
    tensor = torch.as_tensor(SimpleNamespace(__cuda_array_interface__=interface, keep=value))
    if tensor.is_cuda:
        wait(tensor.device, named_stream(value), behind=True)
    if not backwards:
        return tensor
    turned = tensor.flip(backwards)
    turned.flipped_from = tensor  # type: ignore[attr-defined]  # whose memory is not to be used again meanwhile
    return turned


def _turn_round(interface: dict[str, Any]) -> list[int]:
    """Have an array's description begin at its lowest address, where torch can look at it, and not be marked read-only.
    Returns the dimensions that go backwards in it, to be flipped. Raises TypeError for strides that no memory has."""
    shape, strides = interface["shape"], interface.get("strides")
    start, backwards = interface["data"][0], []
    if strides is not None:
        if any(abs(stride) >= MOST for stride in strides):
            raise TypeError(f"no memory has strides {tuple(strides)}")
        backwards = [axis for axis, stride in enumerate(strides) if stride < 0]
        start += sum((shape[axis] - 1) * strides[axis] for axis in backwards if 0 not in shape)
        interface["strides"] = tuple(map(abs, strides))
    interface["data"] = (start, False)
    return backwards


def _from_host(value: Any) -> torch.Tensor:
    """What NumPy can look at: `__array_interface__`, or DLPack in pinned memory."""
    return _from_numpy(np.asarray(value) if hasattr(value, "__array_interface__") else np.from_dlpack(value))


def _from_numpy(array: Any) -> torch.Tensor:
    if isinstance(array, np.ma.MaskedArray):
        array = array.filled(0)
    if array.dtype.kind == "V" and array.dtype.name == "bfloat16":  # of ml_dtypes, as JAX's arrays have it in NumPy
        return _from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if is_copied(array):
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
