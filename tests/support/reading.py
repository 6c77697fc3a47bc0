"""What a viewer of a run sees, for tests of what is published: in this process, without a screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from splatview_ipc.control.frame import StreamFrame
from splatview_ipc.kinds import check_frame
from splatview_ipc.kinds.scalars import SCALAR_COLUMNS
from splatview_ipc.subscriber.remote_run import RemoteRun
from splatview_ipc.subscriber.remote_stream import RemoteStream
from splatview_ipc.subscriber.subscriber import Subscriber
from support.frames import host_array
from support.wait import wait_until


def stream_of(
    subscriber: Subscriber, name: str = "gaussians", pid: int | None = None
) -> RemoteStream:
    """Wait for a stream of a living run (of process `pid`), and open it."""

    def find() -> RemoteStream | None:
        subscriber.poll()
        return next(
            (
                s
                for s in subscriber.streams
                if s.name == name and s.run.alive and pid in (None, s.run.pid)
            ),
            None,
        )

    found = wait_until(find, f"stream {name}")
    found.open()
    return found


def next_frame(
    subscriber: Subscriber,
    stream: RemoteStream,
    after: int = 0,
    fits: Callable[[StreamFrame], bool] = lambda frame: True,
) -> StreamFrame:
    """Wait for the newest frame with a version over `after` that fits."""

    def read() -> StreamFrame | None:
        nonlocal after
        subscriber.poll()
        frame = _checked(stream, after)
        if frame is None:
            return None
        after = frame.version
        if fits(frame):
            return frame
        frame.close()
        return None

    try:
        return wait_until(read, f"a frame of {stream.name}")
    except AssertionError as e:
        raise AssertionError(
            f"{e}; after {after}: version {stream.version}, by {stream.sharing!r}, fault "
            f"{stream.fault!r}, fallback {stream.fallback!r}, {stream.run.counters}"
        ) from None


def values(frame: StreamFrame) -> dict[str, np.ndarray]:
    """Copies of its tensors on the host."""
    return {name: t.to_float32() for name, t in frame.tensors.items()}


def newest(
    subscriber: Subscriber, name: str, after: int = 0, pid: int | None = None
) -> Any:
    """Wait for a whole frame with a version over `after`: its version, metadata, and copies of its arrays."""
    found = stream_of(subscriber, name, pid)

    def read() -> Any:
        subscriber.poll()
        return copied(found, after)

    return wait_until(read, f"a frame of {name} after {after}")


def _checked(stream: RemoteStream, after: int) -> StreamFrame | None:
    """Return the newest frame over `after`, which has to pass the receiver's check; None: there is none."""
    frame = stream.read(after)
    if frame is not None:
        check_frame(
            frame.kind,
            {name: (t.dtype, t.shape) for name, t in frame.tensors.items()},
            frame.meta,
        )
    return frame


def copied(stream: RemoteStream, after: int = 0) -> Any:
    """Return the newest whole frame with a version over `after` as `newest` does; None: there is none."""
    frame = _checked(stream, after)
    if frame is None:
        return None
    with frame:
        found = (
            frame.version,
            frame.meta,
            {name: host_array(t).copy() for name, t in frame.tensors.items()},
        )
        return found if frame.intact() else None


def logged_rows(
    subscriber: Subscriber, name: str, samples: int
) -> dict[str, np.ndarray]:
    """The rows of all scalars, once there are so many samples of one."""
    stream = stream_of(subscriber, "scalars")

    def there() -> dict[str, np.ndarray] | None:
        subscriber.poll()
        found = copied(stream)
        if found is None:
            return None
        names = found[2]["names"].tobytes().decode().split("\0")[:-1]
        rows = dict(
            zip(names, np.split(found[2]["rows"], found[2]["ends"][:-1]), strict=True)
        )
        if (
            name in rows
            and rows[name][:, SCALAR_COLUMNS.index("count")].sum() == samples
        ):
            return rows
        return None

    return wait_until(there, f"{samples} samples of {name}")


def welcomed(subscriber: Subscriber) -> RemoteRun:
    """Wait until a run has answered."""

    def find() -> RemoteRun | None:
        subscriber.poll()
        return next((run for run in subscriber.runs if run.welcomed), None)

    return wait_until(find, "a run that answers")
