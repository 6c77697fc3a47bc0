"""Pictures that are known by an address: found among torch's tensors, copied from other memory, and nothing else."""

from __future__ import annotations

import ctypes
import mmap
import weakref
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from splatview.adapt.address import picture_at

pytestmark = pytest.mark.usefixtures("few_objects")


@pytest.mark.parametrize("channels", [3, 4])
def test_a_tensor_is_found_by_its_address(channels: int) -> None:
    tensor = torch.rand(20, 30, channels)
    picture = picture_at(tensor.data_ptr(), 30, 20)
    assert picture.shape == (20, 30, channels)
    assert torch.equal(picture, tensor)
    tensor[3, 4] = 7
    assert (picture[3, 4] == 7).all(), "the memory itself"


def test_what_was_found_is_kept_alive() -> None:
    tensor = torch.rand(500, 600, 3)
    copy, gone = tensor.clone(), weakref.ref(tensor)
    picture = picture_at(tensor.data_ptr(), 600, 500)
    del tensor
    assert gone() is None
    others = [torch.zeros(500, 600, 3) for _ in range(4)]
    assert torch.equal(picture, copy)
    assert all(o.data_ptr() != picture.data_ptr() for o in others)


def test_a_picture_within_a_larger_tensor() -> None:
    batch = torch.rand(5, 20, 30, 3)
    assert torch.equal(picture_at(batch[4].data_ptr(), 30, 20), batch[4]), "the last: what is left has its size"
    assert torch.equal(picture_at(batch[2].data_ptr(), 30, 20, 3), batch[2])
    flat = batch.view(-1)  # the same memory in another shape
    assert torch.equal(picture_at(flat.data_ptr(), 30, 20, 3), batch[0])


def test_where_both_could_be_the_caller_is_asked() -> None:
    batch = torch.rand(5, 20, 30, 3)
    address = batch.data_ptr()
    with pytest.raises(ValueError, match="channels=3 or 4"):
        picture_at(address, 30, 20)
    view = batch[0]
    assert picture_at(view.data_ptr(), 30, 20, 4).shape == (20, 30, 4)


def test_the_newest_of_many() -> None:
    kept = [torch.rand(16, 16, 3) for _ in range(50)]
    for tensor in kept:
        assert torch.equal(picture_at(tensor.data_ptr(), 16, 16), tensor)


def test_memory_that_has_another_tensor_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found lately counts only as long as it lies there."""
    one, other = torch.rand(20, 30, 3), torch.rand(20, 30, 4)
    first, second = one.data_ptr(), other.data_ptr()
    assert picture_at(first, 30, 20).shape == (20, 30, 3)
    one.data, other.data = other.data, one.data
    assert picture_at(first, 30, 20).shape == (20, 30, 3)
    assert picture_at(second, 30, 20).shape == (20, 30, 4)
    monkeypatch.setattr("gc.get_objects", lambda generation: [])
    assert torch.equal(picture_at(first, 30, 20), other), "nobody looks further for what was found"


def test_parameters_and_what_needs_gradients() -> None:
    parameter = torch.nn.Parameter(torch.rand(6, 5, 4))
    picture = picture_at(parameter.data_ptr(), 5, 6)
    assert torch.equal(picture, parameter.detach())
    assert not picture.requires_grad


def test_other_memory_is_copied() -> None:
    array = np.random.default_rng(0).random((20, 30, 4), np.float32)
    picture = picture_at(array.ctypes.data, 30, 20, 4)
    np.testing.assert_array_equal(picture.numpy(), array)
    array[:] = 0
    assert picture.any(), "it may be gone tomorrow"
    with pytest.raises(ValueError, match="say channels=3 or 4"):
        picture_at(array.ctypes.data, 30, 20)


def test_what_is_no_memory_of_this_process_is_refused() -> None:
    """Read by a pointer, each of these would end it."""
    there = mmap.mmap(-1, 4 * mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(there))
    assert picture_at(address, 64, 16, 4).shape == (16, 64, 4)
    for bad in (0, 8, -16, 2**47, 2**63 - 1, 2**63, 2**64, 10**30):
        for channels in (None, 3, 4):
            with pytest.raises(ValueError, match=r"no .* bytes of this process can be read there"):
                picture_at(bad, 64, 16, channels)
    with open("/proc/self/maps") as maps:
        ranges = [tuple(int(n, 16) for n in line.split()[0].split("-")) for line in maps]
    end = next(stop for (_, stop), (start, _) in pairwise(ranges) if stop < start)
    with pytest.raises(ValueError, match="can be read there"):
        picture_at(end - 4096, 64, 64, 4)  # it begins well, and ends where nothing is


def test_a_tensor_that_is_too_small() -> None:
    tensor = torch.rand(20, 30, 3)
    with pytest.raises(ValueError, match=r"9,600 bytes, and 7,200 lie"):
        picture_at(tensor.data_ptr(), 30, 20, 4)
    with pytest.raises(ValueError, match=r"7,560 bytes, and 7,200 lie"):
        picture_at(tensor.data_ptr(), 30, 21)
    del tensor


@pytest.mark.parametrize("dtype", [torch.float16, torch.uint8, torch.float64])
def test_other_types_of_numbers(dtype: torch.dtype) -> None:
    tensor = torch.zeros(20, 30, 3, dtype=dtype)
    with pytest.raises(ValueError, match=str(dtype).removeprefix("torch.")):
        picture_at(tensor.data_ptr(), 30, 20)


@pytest.mark.parametrize(("arguments", "error", "words"), [
    (("4096", 3, 3), TypeError, "data_ptr is a str"), ((1.0, 3, 3), TypeError, "data_ptr is a float"),
    ((64, 0, 3), ValueError, "width is 0"), ((64, 3, 10**9), ValueError, "height is 1000000000"),
    ((64, 3, -1), ValueError, "height is -1"), ((64, True, 3), TypeError, "width is a bool"),
    ((64, 3, 3, 2), ValueError, "channels is 2"), ((64, 3, 3, "3"), ValueError, "channels is '3'"),
])
def test_what_is_no_picture(arguments: tuple[Any, ...], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        picture_at(*arguments)
