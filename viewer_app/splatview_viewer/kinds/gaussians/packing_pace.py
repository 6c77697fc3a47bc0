"""Holds packings for pages to a share of a GPU that a training needs as well."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from splatview_viewer.gpu.governor import SWITCH

if TYPE_CHECKING:
    from splatview_viewer.blocks.packing_request import GpuTime
    from splatview_viewer.gpu.governor import Governor

SHARE = 0.002
"""Of the GPU that packings take while a training needs it."""
LONGEST_PERIOD_S = 5.0
"""Seconds between two packings at most: what readers see would be too old."""
_FIRST_PERIOD_S = 0.8
"""The same while a reader that has nothing yet waits."""
FRESH_S = 0.2
"""Seconds for which a packing serves readers that ask for the newest version meanwhile:
they come into step."""
_GPU_TURNS = 2
"""Of the GPU to the viewer for a packing: for reading the scene, and for packing it."""
_COPY_MS = 0.03e-6
"""Milliseconds that a training loses while a byte is copied to host memory.

On an H200 it lost 2.7 ms for each 93 MB."""


class PackingPace:
    """Says when the next packing may begin; `now` is in seconds by the loop's clock."""

    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        self._least_ms: dict[tuple[object, ...], float] = {}
        """The least milliseconds that the GPU took, by kind of packing."""
        self._period_s = _period_of(0.0)
        self._begun_s = -math.inf

    def may_begin(self, now: float, is_first: bool = False) -> bool:
        """Return whether the next packing may begin.

        is_first: a reader that has nothing yet waits for it.
        """
        period_s = self._period_s
        if is_first:
            period_s = min(period_s, _FIRST_PERIOD_S)
        is_due = now >= self._begun_s + period_s
        return is_due or not self._governor.account.limited

    def fresh_from(self, now: float) -> float:
        """Return since when packings serve who asks for the newest version; inf: none."""
        if self._governor.account.limited:
            return now - FRESH_S
        return math.inf

    def note_begun(self, now: float) -> None:
        """Take note that a packing begins."""
        self._begun_s = now

    def count(self, gpu_time: GpuTime) -> None:
        """Take note of what a packing cost.

        What the training did in between counts in. Packings are too rare for the governor
        to tell from the last few what they cost.
        """
        least_ms = self._least_ms.get(gpu_time.work_key, math.inf)
        ms = min(least_ms, gpu_time.ms)
        self._least_ms[gpu_time.work_key] = ms
        self._governor.account.pay(_GPU_TURNS * SWITCH + ms)
        self._period_s = _period_of(ms + gpu_time.copied_bytes * _COPY_MS)


def _period_of(ms: float) -> float:
    """Return the seconds from a packing to the next, by what it costs a training."""
    return min((_GPU_TURNS * SWITCH + ms) * 1e-3 / SHARE, LONGEST_PERIOD_S)
