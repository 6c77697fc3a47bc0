"""Frames given to other libraries by DLPack: the same memory, or a copy if one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.wait import PATIENCE

import splatview

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview.reading import Frame

CPU = (1, 0)
PIXELS = torch.arange(60, dtype=torch.float32).reshape(6, 10)


@pytest.fixture
def frame() -> Iterator[Frame]:
    splatview.publish(PIXELS, "it")
    with splatview.frames("it", timeout=PATIENCE) as frames:
        yield next(frames)


def address(frame: Frame) -> int:
    return frame.numpy().ctypes.data


def test_numpy_sees_the_same_memory(frame: Frame) -> None:
    assert frame.__dlpack_device__() == CPU
    array = np.from_dlpack(frame)
    assert array.ctypes.data == address(frame)
    assert np.array_equal(array, PIXELS.numpy())


def test_torch_sees_the_same_memory(frame: Frame) -> None:
    tensor = torch.from_dlpack(frame)
    assert tensor.data_ptr() == frame.tensor.data_ptr() == address(frame)
    assert torch.equal(tensor, PIXELS)


class Asks:
    """A consumer with wishes of its own."""

    def __init__(self, frame: Frame, **wishes: Any):
        self._frame, self._wishes = frame, wishes

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._frame.__dlpack_device__()

    def __dlpack__(self, **asked: Any) -> Any:
        return self._frame.__dlpack__(**{**asked, **self._wishes})


def test_a_copy_is_writable_and_one_s_own(frame: Frame) -> None:
    tensor = torch.from_dlpack(Asks(frame, copy=True))
    tensor.fill_(-1)
    assert tensor.data_ptr() != address(frame)
    assert torch.equal(frame.tensor, PIXELS)
    old = torch.from_dlpack(Asks(frame, copy=True, max_version=None))
    assert torch.equal(old, PIXELS)


@pytest.mark.parametrize("newest", [None, (0, 8), (1, 0)])
def test_no_copy_is_no_copy(frame: Frame, newest: tuple[int, int] | None) -> None:
    tensor = torch.from_dlpack(Asks(frame, copy=False, max_version=newest))
    assert tensor.data_ptr() == address(frame)
    tensor[0, 0] = -1
    assert float(frame.tensor[0, 0]) == -1


@pytest.mark.parametrize(("wishes", "message"), [
    ({"max_version": (1, 0), "dl_device": (2, 0)}, r"device \(1, 0\), not \(2, 0\).*\.to\(device\)"),
    ({"max_version": (1, 0), "stream": 3}, "stream is 3"),
])
def test_what_cannot_be_is_refused_and_said(frame: Frame, wishes: dict[str, Any], message: str) -> None:
    with pytest.raises(BufferError, match=message):
        frame.__dlpack__(**wishes)


def test_bfloat16_travels_without_numpy() -> None:
    image = torch.arange(60).reshape(6, 10).to(torch.bfloat16)
    splatview.publish(image, "it")
    with splatview.frames("it", timeout=PATIENCE) as frames:
        frame = next(frames)
        tensor = torch.from_dlpack(Asks(frame, max_version=(1, 0)))
        assert tensor.dtype == torch.bfloat16
        assert torch.equal(tensor, image)


def test_an_older_torch_makes_capsules_of_its_own_kind(frame: Frame, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = torch.Tensor.__dlpack__

    def old(self: torch.Tensor, stream: Any = None) -> Any:
        return whole(self) if stream is None else whole(self, stream=stream)

    monkeypatch.setattr(torch.Tensor, "__dlpack__", old)
    capsule = frame.__dlpack__(max_version=(1, 0))
    assert torch.equal(torch.from_dlpack(capsule), PIXELS)


def test_jax_sees_it(frame: Frame) -> None:
    jax_numpy = pytest.importorskip("jax.numpy")
    assert np.array_equal(np.asarray(jax_numpy.from_dlpack(frame)), PIXELS.numpy())
