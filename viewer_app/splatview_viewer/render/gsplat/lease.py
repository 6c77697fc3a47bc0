"""When a scene on a GPU is read from where it was, and when that is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.scene.scene import GaussianScene


class _PendingScene(NamedTuple):
    """A scene on a GPU that is still to be read."""

    scene: GaussianScene
    ready: Callable[[int], None] | None
    """As for `Renderer.load`."""
    event: Any
    """A CUDA event: the scene's data is there from then on; None: `ready` waits for
    it."""


class ArrayLease:
    """Keeps the arrays of a scene on a GPU from being reused while they may be read.

    As a context: all work that one stream is given inside is awaited as a whole.
    """

    def __init__(self, stream: torch.cuda.Stream) -> None:
        """Start without a scene.

        Args:
            stream: the one that reads and draws.
        """
        self._stream = stream
        self._next: _PendingScene | None = None
        self._current: _PendingScene | None = None
        """The scene that the stream reads."""
        self._end: torch.cuda.Event | None = None
        """Recorded after the stream's work."""

    @property
    def pending(self) -> bool:
        """True if there is a scene that `begin` was not called for."""
        return self._next is not None

    @property
    def in_use(self) -> bool:
        """True if a scene may still be read, or is going to. Never waits."""
        if self._current is not None and self.done:
            self._current = None
        return self._current is not None or self._next is not None

    def put(
        self, scene: GaussianScene | None, ready: Callable[[int], None] | None = None
    ) -> None:
        """Set the scene to read next, in place of the one before, or none.

        Args:
            ready: as for `Renderer.load`.
        """
        self._next = None
        if scene is None:
            return
        event: Any = None
        if ready is None:
            event = torch.cuda.current_stream(scene.gpu).record_event()
        self._next = _PendingScene(scene, ready, event)

    def begin(self) -> GaussianScene | None:
        """Begin to read the scene that is pending, if any; the stream waits for its data."""
        pending = self._next
        if pending is None:
            return None
        self._current = pending
        self._next = None
        if pending.event is not None:
            self._stream.wait_event(pending.event)
        if pending.ready is not None:
            pending.ready(self._stream.cuda_stream)
        return pending.scene

    def restore(self) -> None:
        """Make a scene that was not read after all pending again."""
        if self._current is not None:
            self._next = self._current._replace(event=None)
            self._current = None

    @property
    def done(self) -> bool:
        """True if all work is done. Never waits."""
        return self._end is None or self._end.query()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        """Mark the end: all that reads the scene, or draws, was given to the stream."""
        if self._end is None:
            self._end = torch.cuda.Event()
        self._end.record(self._stream)

    def wait(self) -> None:
        """Wait until all work is done.

        The driver looks at the event all the time: a thread that sleeps wakes too late.
        """
        if self._end is not None:
            self._end.synchronize()

    def to_host(self) -> GaussianScene | None:
        """Return the scene that is pending, copied on the current stream; None for none."""
        if self._next is None:
            return None
        scene, ready, event = self._next
        if event is not None:
            torch.cuda.current_stream(scene.gpu).wait_event(event)
        return scene.to_host(ready)
