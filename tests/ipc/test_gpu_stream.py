"""Entering and leaving a CUDA stream, with torch's part of it stood in for. tests/cuda has the real thing."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from splatview.viewer_app.renderers import gpu_stream
from splatview.viewer_app.renderers.gpu_stream import OnStream

if TYPE_CHECKING:
    from collections.abc import Iterator


class Cuda:
    """Two GPUs, and the stream that is current on each."""

    def __init__(self) -> None:
        self.device = 0
        self.current = [stream(0, 0), stream(1, 0)]

    @property
    def state(self) -> tuple[int, int, int, bool]:
        return self.device, *(s.cuda_stream for s in self.current), torch.is_grad_enabled()

    def current_stream(self, index: int) -> Any:
        return self.current[index]

    def set_stream(self, s: Any) -> None:
        self.device = s.device_index
        self.current[self.device] = s

    @contextmanager
    def on_device(self, index: int) -> Iterator[None]:
        before, self.device = self.device, index
        yield
        self.device = before

    @contextmanager
    def on_stream(self, s: Any) -> Iterator[None]:
        assert s.device_index == self.device, "torch looks after both, but would make a context on the other GPU"
        before = self.current[self.device]
        self.set_stream(s)
        yield
        self.set_stream(before)


def stream(index: int, handle: int) -> Any:
    return SimpleNamespace(device_index=index, cuda_stream=handle)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    made = Cuda()
    for name, value in {"current_device": lambda: made.device, "current_stream": made.current_stream,
                        "set_stream": made.set_stream, "device": made.on_device, "stream": made.on_stream}.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(gpu_stream, "raw_stream", lambda index: made.current[index].cuda_stream)
    return made


def test_there_and_back(cuda: Cuda) -> None:
    on, before = OnStream(stream(0, 7)), cuda.state
    for _ in range(3):
        with on:
            assert cuda.state == (0, 7, 0, False)
            with on:
                assert cuda.state == (0, 7, 0, False)
            assert cuda.state == (0, 7, 0, False)
        assert cuda.state == before == (0, 0, 0, True)


def test_from_another_gpu(cuda: Cuda) -> None:
    on = OnStream(stream(1, 8))
    cuda.set_stream(stream(0, 5))
    with on:
        assert cuda.state == (1, 5, 8, False)
        with cuda.on_device(0), on:
            assert cuda.state == (1, 5, 8, False)
        assert cuda.state == (1, 5, 8, False)
    assert cuda.state == (0, 5, 0, True)


def test_an_error_leaves_everything_as_it_was(cuda: Cuda) -> None:
    on, before = OnStream(stream(0, 7)), cuda.state
    with pytest.raises(KeyError), on, on:
        raise KeyError
    assert cuda.state == before
