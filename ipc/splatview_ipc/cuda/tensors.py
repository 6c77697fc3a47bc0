"""Torch tensors at addresses of GPU memory, without a copy, and checks of their bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_ipc.control.dtypes import DTYPES
from splatview_ipc.control.errors import SharingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch


class _CudaArray:
    """Bytes at a GPU address, as CUDA's array interface describes them to torch.

    A tensor that `torch.as_tensor` makes of it keeps it alive, and with it `owner`.
    """

    def __init__(self, address: int, size: int, owner: Any):
        # Torch refuses arrays that are read-only, also where the memory is.
        is_read_only = False
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, is_read_only),
            "version": 3,
        }
        self.owner = owner


def element_span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return how many elements of memory a tensor spans, from its first to its last.

    Elements in the gaps between rows count too. An empty tensor spans 0.
    """
    if 0 in shape:
        return 0
    last_offset = 0
    for extent, stride in zip(shape, strides, strict=True):
        last_offset += (extent - 1) * stride
    return last_offset + 1


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a C-contiguous tensor, in elements."""
    strides: list[int] = []
    stride = 1
    for extent in reversed(shape):
        strides.append(stride)
        # As in torch, an extent of 0 counts as 1.
        stride *= max(extent, 1)
    return tuple(reversed(strides))


def tensor_from_address(
    address: int,
    dtype: str,
    shape: Sequence[int],
    strides: Sequence[int],
    device: int,
    owner: Any,
) -> torch.Tensor:
    """Return a tensor that uses the GPU memory at an address, without a copy.

    Args:
        address: the address of the first element.
        dtype: torch's name of the type: "uint8", "float32", ...
        shape: the extents of the tensor.
        strides: in elements, none negative.
        device: the CUDA device's index in this process.
        owner: an object that keeps the memory; the tensor's storage keeps it alive.
    """
    import torch

    torch_device = torch.device("cuda", device)
    torch_dtype = getattr(torch, dtype)
    if 0 in shape:
        return torch.empty(tuple(shape), dtype=torch_dtype, device=torch_device)
    size = element_span(shape, strides) * torch_dtype.itemsize
    data = torch.as_tensor(_CudaArray(address, size, owner), device=torch_device)
    return data.view(torch_dtype).as_strided(tuple(shape), tuple(strides))


def check_bounds(
    dtype: str, shape: Sequence[int], strides: Sequence[int], offset: int, size: int
) -> None:
    """Check that a tensor lies within a piece of memory, aligned to its elements.

    Args:
        dtype: torch's name of the type.
        shape: the extents of the tensor.
        strides: in elements.
        offset: the offset of the first element in the memory, in bytes.
        size: the size of the memory, in bytes.

    Raises:
        SharingError: the tensor does not.
    """
    if not _is_within(dtype, shape, strides, offset, size):
        raise SharingError(
            f"{dtype} {tuple(shape)} with strides {tuple(strides)} at byte {offset} does "
            f"not lie within {size} bytes, aligned to its elements"
        )


def _is_within(
    dtype: str, shape: Sequence[int], strides: Sequence[int], offset: int, size: int
) -> bool:
    """Return whether a tensor lies within memory; its description may be anything."""
    if dtype not in DTYPES or len(shape) != len(strides):
        return False
    item_size = DTYPES[dtype].item_size
    has_negative = any(number < 0 for number in (offset, *shape, *strides))
    is_aligned = offset % item_size == 0
    if has_negative or not is_aligned:
        return False
    return offset + element_span(shape, strides) * item_size <= size
