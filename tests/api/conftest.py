"""Fixtures of the tests of what scripts call: readers of streams, and a second run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import numpy as np
import pytest
from support.pair import OtherRun
from support.reading import next_frame, stream_of, values

from splatview.api import session as publishing
from splatview_ipc.subscriber.subscriber import Subscriber


@pytest.fixture
def arrived(subscriber: Subscriber) -> Callable[[str], dict[str, np.ndarray]]:
    """`arrived(name)`: the newest version of a stream, as a viewer reads it."""

    def newest(name: str) -> dict[str, np.ndarray]:
        publisher = publishing.started_publisher()
        assert publisher is not None
        previous_version = publisher.streams[name].version - 1
        stream = stream_of(subscriber, name)
        with next_frame(subscriber, stream, previous_version) as frame:
            return values(frame)

    return newest


@pytest.fixture
def other_run() -> Iterator[Callable[[], OtherRun]]:
    """`other_run()`: a second run of this process, which does not outlive its test."""
    with ExitStack() as runs:

        def start_run() -> OtherRun:
            return runs.enter_context(closing(OtherRun("other")))

        yield start_run
