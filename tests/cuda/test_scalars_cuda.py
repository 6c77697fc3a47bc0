"""`splatview.log` of numbers that lie on the GPU: nothing waits, and each is plotted as it was at its call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.frames import host_array

import splatview
from splatview_ipc.subscriber.subscriber import Subscriber

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.cuda


def rows_of(viewer: Subscriber, samples: int, wait_until: Callable[..., Any]) -> np.ndarray:
    """The rows of the only series, once so many samples are seen."""
    found: list[np.ndarray] = []

    def there() -> bool:
        viewer.poll()
        for stream in viewer.streams:
            stream.open()
            frame = stream.read()
            if frame is not None:
                with frame:
                    found[:] = [np.array(host_array(frame.tensors["rows"]))]
        return bool(found) and found[0][:, 5].sum() == samples

    wait_until(there)
    return found[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64])
def test_each_number_is_plotted_as_it_was(dtype: torch.dtype, wait_until: Callable[..., Any]) -> None:
    loss = torch.zeros((), dtype=dtype, device="cuda")
    for step in range(100):
        loss.fill_(step)
        splatview.log(step, loss=loss)
        loss.fill_(-1)  # what comes later on the stream does not reach it
    with Subscriber() as viewer:
        rows = rows_of(viewer, 100, wait_until)
    assert rows[:, 2].tolist() == list(range(100))


def test_the_call_does_not_wait_for_the_gpu(wait_until: Callable[..., Any]) -> None:
    loss = torch.ones((), device="cuda")
    splatview.log(0, loss=loss)  # pinned memory is allocated once
    torch.cuda.synchronize()
    calls = 1

    def returned_first() -> bool:  # unless this process was stopped meanwhile
        nonlocal calls
        busy = torch.cuda.Event()
        torch.cuda._sleep(2_000_000_000)  # about a second
        splatview.log(calls, loss=loss + calls)
        busy.record()
        calls += 1
        return not busy.query()

    wait_until(returned_first)
    with Subscriber() as viewer:
        assert rows_of(viewer, calls, wait_until)[:, 2].tolist() == list(range(1, calls + 1))


def test_nothing_is_queued_while_a_graph_is_captured(wait_until: Callable[..., Any]) -> None:
    x = torch.zeros((), device="cuda")
    splatview.log(0, it=x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x += 1
        splatview.log(1, it=x)
    for _ in range(3):
        graph.replay()
    splatview.log(2, it=x)
    with Subscriber() as viewer:
        rows = rows_of(viewer, 2, wait_until)
    assert rows[:, 0].tolist() == [0, 2]
    assert rows[1, 2] == 3
