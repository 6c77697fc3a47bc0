"""A run and its viewer in one process, without threads.

Messages go by inproc://, and `pump` gives both their turns.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from splatview.adapters import recognise
from splatview_ipc.control.sockets import wait_readable
from splatview_ipc.publisher.publisher import Publisher
from splatview_ipc.publisher.stream import Stream
from splatview_ipc.subscriber.remote_run import RemoteRun
from splatview_ipc.subscriber.remote_stream import RemoteStream
from splatview_ipc.subscriber.subscriber import Subscriber
from support.reading import copied

TURN_S = 0.05
"""Time that passes in one turn of a pair."""


def inproc(folder: Path, name: str) -> str:
    """Return the ZeroMQ address of a viewer's socket, within this process."""
    return f"inproc://{folder}/{name}"


def show(publisher: Publisher, value: Any, name: str, **meta: Any) -> None:
    """Publish the next version of a stream."""
    layout = recognise(value)
    stream = publisher.stream(name, layout.kind)
    stream.describe(layout)
    published = layout.match(value, meta)
    assert published is not None
    stream.publish(published)


class Pair:
    """A publisher and a subscriber; `now` is their clock, in seconds."""

    def __init__(self, **options: Any):
        """Make both; `options` are the subscriber's.

        Without `run` it sees this run alone.
        """
        self.now = 100.0
        self.faults: list[BaseException] = []
        self.publisher = Publisher(
            "pair",
            self.faults.append,
            threaded=False,
            clock=self._clock,
            endpoint=inproc,
        )
        self.other_programs: list[Callable[[], object]] = []
        """Called in each turn: other programs that take part."""
        self.viewers: list[Subscriber] = []
        self.viewer = self.attach(**options)

    def _clock(self) -> float:
        return self.now

    def attach(self, **options: Any) -> Subscriber:
        """Make another viewer of the run, which `pump` polls too."""
        viewer = Subscriber(
            options.pop("run", self.publisher.run_id), endpoint=inproc, **options
        )
        self.viewers.append(viewer)
        return viewer

    def publish(self, image: torch.Tensor, name: str = "image", **meta: Any) -> None:
        """Publish the next version of a stream."""
        show(self.publisher, image, name, **meta)

    def turn_helper(self) -> float | None:
        """Give the trainer's helper one turn; return when it is due."""
        helper = self.publisher.helper
        return helper.turn(self.now, wait_readable(helper.fds(), 0))

    def pump(self, turns: int = 1) -> None:
        """Give all one turn, this many times."""
        for _ in range(turns):
            self.now += TURN_S
            self.turn_helper()
            for take_turn in self.other_programs:
                take_turn()
            for viewer in self.viewers:
                viewer.poll(self.now)

    def until(self, condition: Callable[[], Any], expected: str = "") -> Any:
        """Pump until a condition is true, and return it."""
        for _ in range(200):
            result = condition()
            if result:
                return result
            self.pump()
        raise AssertionError(f"not within 200 turns: {expected or condition}")

    def until_fault(self, stream: RemoteStream) -> str:
        """Pump until a stream has a fault, and return it."""
        return self.until(lambda: stream.fault, "a fault of the stream")

    def until_viewers(self, count: int) -> None:
        """Pump until so many viewers are attached to the run."""

        def are_attached() -> bool:
            return len(self.run.viewers) == count

        self.until(are_attached, f"{count} viewers")

    def until_read(self, stream: Stream) -> None:
        """Pump until one viewer reads a stream of the trainer."""

        def is_read() -> bool:
            return stream.readers == 1

        self.until(is_read, "one reader")

    @property
    def run(self) -> RemoteRun:
        """The run, as the first viewer sees it, once it has answered."""

        def find() -> RemoteRun | None:
            for run in self.viewer.runs:
                if run.welcomed and run.id == self.publisher.run_id:
                    return run
            return None

        return self.until(find, "the run answers")

    def stream(
        self, name: str = "image", viewer: Subscriber | None = None
    ) -> RemoteStream:
        """Wait for a stream of the run, and open it."""
        subscriber = viewer or self.viewer

        def find() -> RemoteStream | None:
            for stream in subscriber.streams:
                if stream.name == name and stream.run.id == self.publisher.run_id:
                    return stream
            return None

        stream = self.until(find, f"stream {name}")
        stream.open()
        return stream

    def newest(
        self, name: str = "image", after: int = 0, viewer: Subscriber | None = None
    ) -> Any:
        """Return version, metadata and arrays of the newest frame over `after`."""
        stream = self.stream(name, viewer)
        return self.until(
            lambda: copied(stream, after), f"a frame of {name} after {after}"
        )

    def counted(self, name: str) -> int:
        """Pump once and return one of the run's counters."""
        self.pump()
        return self.publisher.control.counters()[name]

    def close(self) -> None:
        for viewer in self.viewers:
            viewer.close()
        self.publisher.close()


class OtherRun(Publisher):
    """A second run of this process beside that of `splatview.publish`.

    Readers take it for another program's.
    """

    show = show
