"""The values of the trainer's controls, as a render worker reads them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from splatview.rendering.control_values import NO_CONTROLS, ControlValues
from splatview_ipc.control.frame import RemoteTensor
from splatview_ipc.kinds.controls import decode

if TYPE_CHECKING:
    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_ipc.subscriber.subscriber import Subscriber

_TRIES = 4
"""Readings of a frame that the trainer writes meanwhile, until the next drawing."""
_MAX_MISSES = 100
"""Calls of `read` without the newest values, after which older ones do."""


class PublishedControls:
    """The newest values of the controls of a run."""

    def __init__(self, subscriber: Subscriber, run: str) -> None:
        """Follow a run.

        Args:
            subscriber: follows it, and is polled by another reader.
            run: its id.
        """
        self.values = NO_CONTROLS
        self._subscriber = subscriber
        self._run = run
        self._stream: RemoteStream | None = None
        self._version = 0
        self._misses = 0
        """Calls of `read` in a row that found older values than those announced."""

    def find_stream(self) -> None:
        """Open the stream of the controls once the run has one. Never waits."""
        if self._stream is not None:
            return
        for stream in self._subscriber.streams:
            if stream.run.id == self._run and stream.kind == "controls":
                self._stream = stream
                stream.open()
                self._subscriber.poll()
                return

    def read(self) -> bool:
        """Take the newest values, if there are others; return whether to draw with them.

        Pictures wait for values that the run has announced, but not for long.
        """
        stream = self._stream
        if stream is None:
            return True
        for _ in range(_TRIES):
            frame = stream.read(self._version)
            if frame is None:
                break
            with frame:
                tensor = frame.tensors["controls"]
                assert isinstance(tensor, RemoteTensor)
                packed = tensor.array.tobytes()
                is_whole = frame.intact()
            if is_whole:
                self._version = frame.version
                self._take(packed)
                break
        # What the trainer has announced may be written a moment later.
        if self._version > 0 and self._version >= stream.version:
            self._misses = 0
            return True
        self._misses += 1
        return self._misses > _MAX_MISSES

    def _take(self, packed: bytes) -> None:
        """Make the values of a frame the newest ones, unless it is broken."""
        with contextlib.suppress(msgspec.DecodeError):
            values = {control.name: control.value for control in decode(packed)}
            self.values = ControlValues(values)
