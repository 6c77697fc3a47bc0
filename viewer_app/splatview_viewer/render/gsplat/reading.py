"""Which scene a GPU reads, or is going to: with the next picture, so that the GPU turns to this process once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.scene.scene import GaussianScene


class Reading:
    """Keeps the arrays of a scene on a GPU from being given to anybody else while they may be read.

    As a context: what one stream is given inside is awaited as a whole (`end`).
    """

    def __init__(self, stream: torch.cuda.Stream) -> None:
        """`stream`: the one that reads and draws."""
        self._stream = stream
        self._next: tuple[GaussianScene, Callable[[int], None] | None, torch.cuda.Event | None] | None = None
        self._now: GaussianScene | None = None
        self._ready: Callable[[int], None] | None = None
        self._mark: torch.cuda.Event | None = None

    @property
    def pending(self) -> bool:
        """Whether there is a scene that `begin` was not called for."""
        return self._next is not None

    @property
    def going_on(self) -> bool:
        """Whether one may still be read, or is going to. Never waits."""
        if self._now is not None and (self._mark is None or self._mark.query()):
            self._now = None
        return self._now is not None or self._next is not None

    def put(self, scene: GaussianScene | None, ready: Callable[[int], None] | None = None) -> None:
        """The scene to read next, in place of the one before, or none. `ready` as for `Renderer.load`."""
        self._next = None
        if scene is not None:
            made: Any = None if ready is not None else torch.cuda.current_stream(scene.gpu).record_event()
            self._next = scene, ready, made

    def begin(self) -> GaussianScene | None:
        """Take the scene that is pending, if any; the stream waits for its data."""
        if self._next is None:
            return None
        (self._now, self._ready, made), self._next = self._next, None
        if made is not None:
            self._stream.wait_event(made)
        if self._ready is not None:
            self._ready(self._stream.cuda_stream)
        return self._now

    def take_back(self) -> None:
        """It was not read after all: it is pending again."""
        if self._now is not None:
            self._next, self._now = (self._now, self._ready, None), None

    def end(self) -> None:
        """All that reads the scene, or draws, was given to the stream."""
        self._mark = self._mark or torch.cuda.Event()
        self._mark.record(self._stream)

    @property
    def done(self) -> bool:
        """Whether all that is done. Never waits."""
        return self._mark is None or self._mark.query()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        self.end()

    def wait(self) -> None:
        """Until that is done. The driver looks at the event all the time: a thread that sleeps wakes too late."""
        if self._mark is not None:
            self._mark.synchronize()

    def to_host(self) -> GaussianScene | None:
        """The scene that is pending, copied on the current stream; None for none."""
        if self._next is None:
            return None
        scene, ready, made = self._next
        if made is not None:
            torch.cuda.current_stream(scene.gpu).wait_event(made)
        return scene.to_host(ready)
