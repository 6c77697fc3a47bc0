"""Read as a viewer of a run does, in this process and without a screen."""

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
        for stream in subscriber.streams:
            is_of_process = pid in (None, stream.run.pid)
            if stream.name == name and stream.run.alive and is_of_process:
                return stream
        return None

    stream = wait_until(find, f"stream {name}")
    stream.open()
    return stream


def _fits_always(frame: StreamFrame) -> bool:
    return True


def next_frame(
    subscriber: Subscriber,
    stream: RemoteStream,
    after: int = 0,
    fits: Callable[[StreamFrame], bool] = _fits_always,
) -> StreamFrame:
    """Wait for the newest frame with a version over `after` that fits."""
    last_version = after

    def read() -> StreamFrame | None:
        nonlocal last_version
        subscriber.poll()
        frame = _checked(stream, last_version)
        if frame is None:
            return None
        last_version = frame.version
        if fits(frame):
            return frame
        frame.close()
        return None

    try:
        return wait_until(read, f"a frame of {stream.name}")
    except AssertionError as e:
        raise AssertionError(
            f"{e}; after {last_version}: version {stream.version}, "
            f"by {stream.sharing!r}, fault {stream.fault!r}, "
            f"fallback {stream.fallback!r}, {stream.run.counters}"
        ) from None


def values(frame: StreamFrame) -> dict[str, np.ndarray]:
    """Return copies of a frame's tensors on the host."""
    return {name: t.to_float32() for name, t in frame.tensors.items()}


def newest(
    subscriber: Subscriber, name: str, after: int = 0, pid: int | None = None
) -> Any:
    """Wait for a whole frame with a version over `after`.

    Returns:
        Its version, metadata, and copies of its arrays.
    """
    stream = stream_of(subscriber, name, pid)

    def read() -> Any:
        subscriber.poll()
        return copied(stream, after)

    return wait_until(read, f"a frame of {name} after {after}")


def _checked(stream: RemoteStream, after: int) -> StreamFrame | None:
    """Return the newest frame over `after`, if any, once the receiver's check passes."""
    frame = stream.read(after)
    if frame is not None:
        forms = {name: (t.dtype, t.shape) for name, t in frame.tensors.items()}
        check_frame(frame.kind, forms, frame.meta)
    return frame


def copied(stream: RemoteStream, after: int = 0) -> Any:
    """Return the newest whole frame over `after` as `newest` does; None: there is none."""
    frame = _checked(stream, after)
    if frame is None:
        return None
    with frame:
        arrays = {name: host_array(t).copy() for name, t in frame.tensors.items()}
        # The frame may have been overwritten while it was copied.
        if not frame.intact():
            return None
        return frame.version, frame.meta, arrays


def logged_rows(
    subscriber: Subscriber, name: str, samples: int
) -> dict[str, np.ndarray]:
    """Wait for this many samples of one scalar; return the rows of all scalars."""
    stream = stream_of(subscriber, "scalars")
    count = SCALAR_COLUMNS.index("count")

    def read() -> dict[str, np.ndarray] | None:
        subscriber.poll()
        frame = copied(stream)
        if frame is None:
            return None
        _, _, arrays = frame
        names = arrays["names"].tobytes().decode().split("\0")[:-1]
        series = np.split(arrays["rows"], arrays["ends"][:-1])
        rows = dict(zip(names, series, strict=True))
        if name not in rows or rows[name][:, count].sum() != samples:
            return None
        return rows

    return wait_until(read, f"{samples} samples of {name}")


def welcomed(subscriber: Subscriber) -> RemoteRun:
    """Wait until a run has answered."""

    def find() -> RemoteRun | None:
        subscriber.poll()
        return next((run for run in subscriber.runs if run.welcomed), None)

    return wait_until(find, "a run that answers")
