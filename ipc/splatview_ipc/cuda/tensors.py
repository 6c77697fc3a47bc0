"""Tensors over GPU memory that is already there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_ipc.control import limits
from splatview_ipc.control.errors import SharingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch


class _Interface:
    """An address for `torch.as_tensor`, and an object that the tensor keeps alive."""

    def __init__(self, pointer: int, size: int, owner: Any):
        # Never marked read-only: torch refuses that.
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
        }
        self.owner = owner


def element_span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return the elements from a tensor's first to its last in memory, both included.

    Returns 0 for an empty tensor.
    """
    if 0 in shape:
        return 0
    last = 0
    for extent, stride in zip(shape, strides, strict=True):
        last += (extent - 1) * stride
    return last + 1


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a C-contiguous tensor."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def tensor_at(
    pointer: int,
    dtype: str,
    shape: Sequence[int],
    strides: Sequence[int],
    device: int,
    owner: Any,
) -> torch.Tensor:
    """Return a tensor over GPU memory that is already there; nothing is copied.

    Args:
        pointer: the address of the first element.
        dtype: "uint8", "float32", ...
        shape: of the tensor.
        strides: in elements, none negative.
        device: its ordinal in this process.
        owner: lives as long as the tensor's storage.
    """
    import torch

    torch_device = torch.device("cuda", device)
    torch_dtype = getattr(torch, dtype)
    if 0 in shape:
        return torch.empty(tuple(shape), dtype=torch_dtype, device=torch_device)
    size = element_span(shape, strides) * torch_dtype.itemsize
    memory = _Interface(pointer, size, owner)
    storage = torch.as_tensor(memory, device=torch_device)
    return storage.view(torch_dtype).as_strided(tuple(shape), tuple(strides))


def check_bounds(
    dtype: str, shape: Sequence[int], strides: Sequence[int], offset: int, size: int
) -> None:
    """Raise SharingError unless a tensor lies within memory of `size` bytes.

    Its offset, in bytes, must be a multiple of the size of an element.
    """
    if not _is_within(dtype, shape, strides, offset, size):
        raise SharingError(
            f"{dtype} {tuple(shape)} with strides {tuple(strides)} at byte {offset} does "
            f"not lie within {size} bytes, aligned to its elements"
        )


def _is_within(
    dtype: str, shape: Sequence[int], strides: Sequence[int], offset: int, size: int
) -> bool:
    item_size = limits.ITEM_SIZE.get(dtype)
    if item_size is None or len(shape) != len(strides):
        return False
    if min(0, offset, *shape, *strides) < 0 or offset % item_size:
        return False
    return offset + element_span(shape, strides) * item_size <= size
