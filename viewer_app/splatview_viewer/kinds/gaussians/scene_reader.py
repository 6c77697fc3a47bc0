"""Numbers of a scene that a tool computes again for each of its versions."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from splatview_viewer.core.errors import RendererError
from splatview_viewer.scene_view.questions import Question

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.kinds.gaussians.view import GaussianView
    from splatview_viewer.scene.scene import GaussianScene

    StartReading = Callable[[GaussianScene], Callable[[], Any] | None]
    """Starts to read a scene, which may change afterwards, and returns what computes an
    answer of it in a job; None: there is no answer."""

_MIN_PERIOD = 0.5
"""Seconds between two versions of a live scene that are read for a tool."""
_MAX_SHARE = 0.05
"""Share of the loop's time that may go into reading the scene."""


class SceneReader(Question):
    """Computes something of each version of a scene, in little of the loop's time.

    Answers are pairs of the key and the result.
    """

    def __init__(self, view: GaussianView, name: str) -> None:
        super().__init__(view, name)
        self._scene_view = view
        self._read_of: tuple[int, object] | None = None
        """The scene (`SceneCache.loads`) and the key of what was read last."""
        self._next_at = -math.inf
        """Time from which another version is read."""

    def read(self, now: float, key: object, start: StartReading) -> None:
        """Have the scene read, unless that is done, under way, or too early.

        Args:
            now: time of the turn of the loop, in seconds.
            key: tells what is computed; another key is read at once.
            start: starts to read.
        """
        if self._jobs.busy:
            return
        data = self._scene_view.data
        if self._read_of is not None:
            read_loads, read_key = self._read_of
            if key == read_key and (data.loads == read_loads or now < self._next_at):
                return
        self._read_of = (data.loads, key)
        started_at = time.perf_counter()
        # The picture shows what is wrong with the renderer.
        with suppress(RendererError):
            finish = start(data.renderer.scene())
            if finish is not None:
                self._job = self._jobs.submit(lambda _: (key, finish()))
        spent = time.perf_counter() - started_at
        self._next_at = now + max(_MIN_PERIOD, spent / _MAX_SHARE)

    def forget(self) -> None:
        """Drop the open question; the next `read` is due at once."""
        super().forget()
        self._read_of = None
