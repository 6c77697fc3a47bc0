"""The number of Gaussians of each scene over time, beside what its run logs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_ipc.kinds.series import Series, scalar_rows, scalar_series
from splatview_viewer.kinds import about
from splatview_viewer.kinds.scalars.curves import Curve
from splatview_viewer.workspace.shards import runs_of

if TYPE_CHECKING:
    from splatview_viewer.workspace.catalogue import Catalogue
    from splatview_viewer.workspace.slot import Slot

_PERIOD_S = 0.25
"""Seconds between two looks at the number of Gaussians of each scene."""
_MAX_ROWS = 2048
"""Numbers that are kept of each scene."""


@dataclass(slots=True)
class _CountedScene:
    """The numbers of Gaussians that one stream has had."""

    series: Series = field(default_factory=lambda: scalar_series(_MAX_ROWS))
    run: Any = None
    """That publishes it."""
    last_count: int = -1
    last_version: int = -1
    """The version that had `last_count`; -1: none yet."""

    def add(self, version: int, count: int) -> None:
        row = np.array([[version, time.time(), count]], np.float64)
        self.series.extend(scalar_rows(row))
        self.last_count = count
        self.last_version = version


class CountRecorder:
    """The number of Gaussians of each scene over time, whether or not its run logs it."""

    def __init__(self) -> None:
        self.curves: dict[int, Curve] = {}
        """Curves of the scenes whose number has changed, by the `id` of the stream.
        Their steps are versions."""
        self._scenes: dict[int, _CountedScene] = {}
        """By the `id` of the stream."""
        self._next_update = 0.0

    def of_run(self, stream: Any) -> Curve | None:
        """Return the curve of a stream, or else of a scene of its run; None: none.

        Its steps are versions.
        """
        if stream is None:
            return None
        curves = self.curves.get(id(stream))
        if curves is not None:
            return curves
        runs = runs_of(stream)
        for key, scene in self._scenes.items():
            if scene.run in runs and key in self.curves:
                return self.curves[key]
        return None

    def update(self, catalogue: Catalogue, now: float) -> None:
        """Note the number of Gaussians of all scenes. Opens none: shapes are known."""
        if now < self._next_update:
            return
        self._next_update = now + _PERIOD_S
        streams = {}
        for stream in [*catalogue.subscriber.streams, *catalogue.shards.streams]:
            if about(stream.kind).counted:
                streams[id(stream)] = stream
        self.curves = {k: curve for k, curve in self.curves.items() if k in streams}
        self._scenes = {k: scene for k, scene in self._scenes.items() if k in streams}
        has_new = False
        for stream in streams.values():
            has_new |= self._note(stream)
        if has_new:
            catalogue.rate_changes += 1
            for slot in catalogue.slots.values():
                self._hand_over(slot)

    def _note(self, stream: Any) -> bool:
        """Note a stream's number of Gaussians; return whether its curve has changed.

        The last one of a run that ended is noted as well.
        """
        scene = self._scenes.get(id(stream)) or _CountedScene()
        shape = stream.shape
        version = stream.version
        if not (shape and version):
            return False
        count = shape[0]
        has_changed = count != scene.last_count
        if not has_changed and version == scene.last_version:
            return False
        was_counted = scene.last_count >= 0
        scene.run = stream.run
        scene.add(version, count)
        self._scenes[id(stream)] = scene
        if id(stream) in self.curves or (was_counted and has_changed):
            self.curves[id(stream)] = Curve.from_rows(stream.name, scene.series.rows)
        return has_changed or id(stream) in self.curves

    def _hand_over(self, slot: Slot) -> None:
        """Have an entry with curves plot the numbers of its run's scenes beside them.

        They are plotted by the steps that the run logs, which are not versions.
        """
        stream = slot.source.stream
        if not about(slot.entry.kind).plots_counts or slot.view is None:
            return
        if stream is None:
            return
        logged = slot.content.curves
        if not logged.all:
            return
        curves = []
        for scene in stream.run.streams.values():
            curve = self.curves.get(id(scene))
            if curve is None:
                continue
            rows = np.array(curve.rows, order="F")
            clock = logged.clock
            rows[:, 0] = np.interp(rows[:, 1], clock["time"], clock["step"])
            curves.append(Curve.from_rows(curve.name, rows))
        if curves:
            slot.content.beside = {"Gaussians": curves}
