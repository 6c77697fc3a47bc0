"""Pictures that are known by an address alone, as async_torchwindow's first `set_image` took them."""

from __future__ import annotations

import gc
import os
import weakref
from collections import deque
from operator import index
from typing import Any

import torch

from splatview.adapters.tensors import DEVICES

CHANNELS = (3, 4)
MOST = 16384
"""Pixels of a side."""
_FLOAT = 4
"""Bytes of a float32."""
_MEMORY_TYPE, _ORDINAL, _RANGE_START, _RANGE_SIZE = 2, 9, 11, 12
"""Of CUpointer_attribute."""
_DEVICE = 2
"""CU_MEMORYTYPE_DEVICE."""

_lately: deque[weakref.ref[torch.Tensor]] = deque(maxlen=8)
"""Tensors that were found: to look through all objects takes a while, and loops name the same ones again and again."""


def picture_at(address: Any, width: Any, height: Any, channels: Any = None) -> torch.Tensor:
    """The (height, width, channels) float32 picture that lies at an address of this process, of the CPU or a GPU.

    Where a tensor of torch lies there, it is a view of that, which keeps it alive; of other memory, which may be gone
    tomorrow, it is a copy. channels: 3 or 4; None: as the size of that tensor tells. Raises TypeError for what is no
    number, ValueError for an address that is no such memory, and where the size leaves a doubt.
    """
    address, width, height = (_whole(n, v) for n, v in (("data_ptr", address), ("width", width), ("height", height)))
    for name, value in (("width", width), ("height", height)):
        if not 1 <= value <= MOST:
            raise ValueError(f"{name} is {value}; legal are 1 to {MOST}")
    if channels not in (None, *CHANNELS):
        raise ValueError(f"channels is {channels!r}; legal are 3, 4, and None: as the memory tells")
    pixels = width * height
    owner = _owner(address)
    if owner is None:
        picture = _copy(address, (height, width, channels or min(CHANNELS)))
        if channels is None:
            raise ValueError(f"no tensor of torch lies at data_ptr {address:#x}, so that its size could tell whether "
                             "pixels have 3 or 4 channels: hand over the tensor itself, or say channels=3 or 4")
        return picture
    if owner.dtype != torch.float32:
        raise ValueError(f"the tensor at data_ptr {address:#x} is {str(owner.dtype).removeprefix('torch.')}; with an "
                         "address pixels are float32 in [0, 1]: hand over the tensor itself")
    storage = owner.untyped_storage()
    offset = address - storage.data_ptr()
    left = storage.nbytes() - offset
    if channels is None:
        channels = _channels(owner if owner.data_ptr() == address else None, left, pixels)
    need = pixels * (channels or min(CHANNELS)) * _FLOAT
    if need > left:
        raise ValueError(f"{width} x {height} pixels of {channels or min(CHANNELS)} channels, float32, are {need:,} "
                         f"bytes, and {left:,} lie at data_ptr {address:#x}")
    if channels is None:
        raise ValueError(f"{left:,} bytes lie at data_ptr {address:#x}: enough for {width} x {height} pixels of 3 "
                         "and of 4 channels; say channels=3 or 4, or hand over the tensor itself")
    if offset % _FLOAT:
        raise ValueError(f"data_ptr {address:#x} is not the address of a float32 in its tensor")
    picture = torch.empty(0, dtype=torch.float32, device=owner.device)
    return picture.set_(storage, offset // _FLOAT, (height, width, channels), (width * channels, channels, 1))


def _whole(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return index(value)
    except TypeError:
        raise TypeError(f"{name} is a {type(value).__name__}, not a whole number") from None


def _channels(there: torch.Tensor | None, left: int, pixels: int) -> int | None:
    """3 or 4 where one of them fits exactly, or only one fits; None where that tells nothing. `there`: a tensor that
    begins at the address; `left`: bytes up to its storage's end."""
    sizes = [left] if there is None else [there.numel() * _FLOAT, left]
    for size in sizes:
        for channels in CHANNELS:
            if size == pixels * channels * _FLOAT:
                return channels
    return min(CHANNELS) if pixels * max(CHANNELS) * _FLOAT > left >= pixels * min(CHANNELS) * _FLOAT else None


def _owner(address: int) -> torch.Tensor | None:
    """A tensor of this process in whose memory an address lies; one that begins there before others."""
    for known in list(_lately):
        one = known()
        if one is not None and _place(one, address) == 0:
            return one
    within = None
    for generation in range(3):  # the youngest first
        for one in _tensors(generation):
            place = _place(one, address)
            if place == 0:
                _lately.append(weakref.ref(one))
                return one
            if place and within is None:
                within = one
    return within


def _place(tensor: torch.Tensor, address: int) -> int | None:
    """0 where a tensor begins at an address, 1 where its memory holds it, None elsewhere."""
    try:
        if tensor.device.type not in DEVICES or tensor.layout is not torch.strided:
            return None
        if tensor.data_ptr() == address and tensor.numel():
            return 0
        storage = tensor.untyped_storage()
        return 1 if storage.data_ptr() <= address < storage.data_ptr() + storage.nbytes() else None
    except (RuntimeError, NotImplementedError):  # one without memory of its own, as in tracing
        return None


def _tensors(generation: int) -> list[torch.Tensor]:
    """Those that Python knows. (No generator: it would be among what it looks through, and keep it.)"""
    return [one for one in gc.get_objects(generation) if issubclass(type(one), torch.Tensor)]


def _copy(address: int, shape: tuple[int, int, int]) -> torch.Tensor:
    """A copy of memory that is not torch's."""
    size = shape[0] * shape[1] * shape[2] * _FLOAT
    found = _copy_from_gpu(address, shape, size)
    if found is not None:
        return found
    picture = torch.empty(shape, dtype=torch.float32)
    view = memoryview(picture.view(-1).numpy()).cast("B")  # pyright: ignore[reportArgumentType]  (older than 3.12)
    if 0 < address < 2**63 - size:
        fd = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:  # read like a file: what is not there is an error, not the end of the process
            done = 0
            while done < size and (count := os.preadv(fd, [view[done:]], address + done)):
                done += count
            if done == size:
                return picture
        except OSError:
            pass
        finally:
            os.close(fd)
    raise ValueError(f"data_ptr {address:#x}: no {size:,} bytes of this process can be read there")


def _copy_from_gpu(address: int, shape: tuple[int, int, int], size: int) -> torch.Tensor | None:
    """The same on torch's current stream; None for what is not in a GPU's memory."""
    if not torch.cuda.is_initialized():
        return None
    from splatview_ipc.cuda import driver
    from splatview_ipc.cuda.tensors import contiguous, tensor_at

    try:
        with driver.context(torch.cuda.current_device()):
            kind, ordinal, start, length = (driver.pointer_attribute(a, address) for a in (
                _MEMORY_TYPE, _ORDINAL, _RANGE_START, _RANGE_SIZE))
    except driver.CudaError:
        return None
    if kind & 0xFFFFFFFF != _DEVICE:
        return None
    if address + size > start + length:
        raise ValueError(f"data_ptr {address:#x}: {size:,} bytes are needed, and {start + length - address:,} of its "
                         "allocation lie there")
    return tensor_at(address, "float32", shape, contiguous(shape), ordinal & 0xFFFFFFFF).clone()
