"""Tensors of the CPU that change in place without another publish: followed however often they change, and at rest they
cost nobody anything."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import splatview
from splatview import publishing
from splatview.ipc import Subscriber

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from splatview.ipc import RemoteStream


@pytest.fixture
def subscriber() -> Iterator[Subscriber]:
    with Subscriber() as s:
        yield s


def opened(subscriber: Subscriber, wait_until: Callable[..., Any]) -> RemoteStream:
    def find() -> RemoteStream | None:
        subscriber.poll()
        return next((s for s in subscriber.streams if s.run.alive), None)

    stream = wait_until(find)
    stream.open()
    return stream


def seen(subscriber: Subscriber, stream: RemoteStream, name: str = "image") -> np.ndarray | None:
    """A copy of what the newest frame holds."""
    subscriber.poll()
    frame = stream.read()
    if frame is None:
        return None
    with frame:
        array = frame.tensors[name].array.copy()  # type: ignore[union-attr]
        return array if frame.intact() else None


def published() -> Any:
    publisher = publishing.begun()
    assert publisher is not None
    return next(iter(publisher.streams.values()))


def test_a_tensor_that_is_never_at_rest_is_followed(subscriber: Subscriber, wait_until: Callable[..., Any]) -> None:
    """As the loops of `Window`'s users: a write every few milliseconds, which is less than a copy at rest waits for."""
    image, over = torch.zeros(64, 64, 3), threading.Event()
    splatview.publish(image, live=True)

    def write() -> None:
        while not over.wait(0.002):
            image.add_(1)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        stream = opened(subscriber, wait_until)
        values: set[float] = set()

        def several() -> bool:
            array = seen(subscriber, stream)
            if array is not None:
                values.add(float(array[0, 0, 0]))
            return len(values) >= 5

        wait_until(several)
    finally:
        over.set()
        thread.join()
    last = float(image[0, 0, 0])
    wait_until(lambda: (a := seen(subscriber, stream)) is not None and (a == last).all(), what="the last write")


def test_writes_that_torch_does_not_count_are_seen(subscriber: Subscriber, wait_until: Callable[..., Any]) -> None:
    array = np.zeros((20, 30), np.float32)
    splatview.publish(array, live=True)
    stream = opened(subscriber, wait_until)
    for value in (0.25, 0.5, 0.75):
        array[-1, -1] = value
        wait_until(lambda v=value: (a := seen(subscriber, stream)) is not None and a[-1, -1] == v)


@pytest.mark.parametrize("make", [
    lambda: torch.full((9, 7, 3), float("nan")), lambda: torch.rand(3, 7, 9).permute(1, 2, 0),
], ids=["nan", "strided"])
def test_what_is_at_rest_is_not_copied_again(make: Callable[[], torch.Tensor], subscriber: Subscriber,
                                             wait_until: Callable[..., Any]) -> None:
    image = make()
    splatview.publish(image, live=True)
    stream = opened(subscriber, wait_until)
    wait_until(lambda: seen(subscriber, stream) is not None)
    own = published()
    version = own.version
    for _ in range(3):
        own.catch_up()  # what the helper thread does thirty times a second
    assert own.version == version
    image[-1, -1] = 1
    own.catch_up()
    wait_until(lambda: (a := seen(subscriber, stream)) is not None and (a[-1, -1] == 1).all())
    assert own.version == version + 1
