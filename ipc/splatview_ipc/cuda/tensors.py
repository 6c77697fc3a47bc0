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

    def __init__(self, pointer: int, size: int, keep: Any):
        # Never marked read-only: torch refuses that.
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
        }
        self.keep = keep


def element_span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return the elements from a tensor's first to its last in memory, both included; 0 for an empty tensor."""
    if 0 in shape:
        return 0
    return 1 + sum(
        (extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)
    )


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

    `dtype`: "uint8", "float32", ...; `strides` in elements, none negative; `device`: the ordinal here; `keep` lives as
    long as the tensor's storage.
    """
    import torch

    where = torch.device("cuda", device)
    kind = getattr(torch, dtype)
    if 0 in shape:
        return torch.empty(tuple(shape), dtype=kind, device=where)
    raw = torch.as_tensor(
        _Interface(pointer, element_span(shape, strides) * kind.itemsize, owner),
        device=where,
    )
    return raw.view(kind).as_strided(tuple(shape), tuple(strides))


def check_bounds(
    dtype: str, shape: Sequence[int], strides: Sequence[int], offset: int, size: int
) -> None:
    """Raise SharingError unless a tensor lies within memory of `size` bytes, at a multiple of its element's size."""
    item = limits.ITEM_SIZE.get(dtype)
    if (
        item is None
        or len(shape) != len(strides)
        or min(0, offset, *shape, *strides) < 0
        or offset % item
        or offset + element_span(shape, strides) * item > size
    ):
        raise SharingError(
            f"{dtype} {tuple(shape)} with strides {tuple(strides)} at byte {offset} does not lie within "
            f"{size} bytes, aligned to its elements"
        )
