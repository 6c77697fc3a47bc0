"""Pictures that are given by an address: of tensors, of other memory, and of none."""

from __future__ import annotations

import ctypes
import mmap
from itertools import pairwise

import numpy as np
import pytest
import torch

from splatview.adapt.address import picture_at


@pytest.mark.parametrize("channels", [3, 4])
def test_a_tensor_is_found_by_its_address(channels: int) -> None:
    tensor = torch.rand(20, 30, channels)
    picture = picture_at(tensor.data_ptr(), 30, 20)
    assert picture.shape == (20, 30, channels)
    assert torch.equal(picture, tensor)
    tensor[3, 4] = 7
    assert (picture[3, 4] == 7).all(), "the memory itself"


def test_a_picture_within_a_larger_tensor() -> None:
    batch = torch.rand(5, 20, 30, 3)
    assert torch.equal(picture_at(batch[2].data_ptr(), 30, 20, 3), batch[2])
    with pytest.raises(ValueError, match="bytes"):
        picture_at(batch.data_ptr(), 300, 200, 3)


def test_other_memory_is_copied() -> None:
    array = np.random.default_rng(0).random((20, 30, 4), np.float32)
    picture = picture_at(array.ctypes.data, 30, 20, 4)
    np.testing.assert_array_equal(picture.numpy(), array)
    array[:] = 0
    assert picture.any(), "it may be gone tomorrow"


def test_what_is_no_memory_of_this_process_is_refused() -> None:
    """Read by a pointer, each of these would end it."""
    there = mmap.mmap(-1, 4 * mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(there))
    assert picture_at(address, 64, 16, 4).shape == (16, 64, 4)
    for bad in (0, -16, 2**47, 2**63, 2**64):
        with pytest.raises(ValueError, match=r"no .* bytes of this process can be read there"):
            picture_at(bad, 64, 16, 4)
    with open("/proc/self/maps") as maps:
        ranges = [tuple(int(n, 16) for n in line.split()[0].split("-")) for line in maps]
    end = next(stop for (_, stop), (start, _) in pairwise(ranges) if stop < start)
    with pytest.raises(ValueError, match="can be read there"):
        picture_at(end - 4096, 64, 64, 4)  # it begins well, and ends where nothing is


def test_other_types_of_numbers() -> None:
    tensor = torch.zeros(20, 30, 3, dtype=torch.float16)
    with pytest.raises(ValueError, match="float16"):
        picture_at(tensor.data_ptr(), 30, 20)
