"""Memory that is published: its samples, and a viewer that reads the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from splatview.api.session import session
from splatview_ipc.kinds.memory import MEMORY_COLUMNS
from support.reading import copied
from support.wait import wait_until

if TYPE_CHECKING:
    from splatview_ipc.subscriber.subscriber import Subscriber

COLUMN_INDEX = {name: i for i, name in enumerate(MEMORY_COLUMNS)}


def rows(name: str = "memory") -> np.ndarray:
    meter: Any = session().features[f"memory {name}"]
    return meter.samples.tensors()[0].numpy()


def newest(column: str, name: str = "memory") -> float:
    """Return the newest value; NaN before there is one."""
    samples = rows(name)
    if not len(samples):
        return float("nan")
    return float(samples[-1, COLUMN_INDEX[column]])


class MemoryReader:
    """A viewer that reads the stream."""

    def __init__(self, subscriber: Subscriber) -> None:
        self.subscriber = subscriber
        self.stream: Any = None
        self.meta: dict[str, Any] = {}
        self.samples = np.empty((0, len(MEMORY_COLUMNS)))

    def poll(self) -> MemoryReader:
        self.subscriber.poll()
        for stream in self.subscriber.streams:
            if stream.kind != "memory":
                continue
            self.stream = stream
            stream.open()
            frame = copied(stream)
            if frame is not None:
                _, self.meta, tensors = frame
                self.samples = tensors["samples"]
        return self

    def wait_for_meta(self, name: str, value: object) -> None:
        """Wait until a fact about the stream has a value."""

        def has_value() -> bool:
            return self.poll().meta.get(name) == value

        wait_until(has_value)

    def wait_for_least(self, column: str, value: float) -> None:
        """Wait until the newest sample of a column is no less than a value."""
        index = COLUMN_INDEX[column]

        def has_enough() -> bool:
            return self.poll().samples[-1, index] >= value

        wait_until(has_enough)
