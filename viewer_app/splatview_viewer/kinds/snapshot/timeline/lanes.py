"""One lane of bands for each pool of memory."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.kinds.snapshot.model import UNKNOWN_POOL
from splatview_viewer.kinds.snapshot.timeline.bands import Bands
from splatview_viewer.kinds.snapshot.timeline.index import never
from splatview_viewer.kinds.snapshot.timeline.series import reserved

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_viewer.kinds.snapshot.model import Trace


class Lane:
    """A pool of memory. Its arrays are worked out when they are first asked for: on a worker thread, please."""

    def __init__(self, trace: Trace, pool: int, name: str, cancelled: Callable[[], bool] = never) -> None:
        self.pool = pool
        """A place in `Snapshot.pools`, or UNKNOWN_POOL."""
        self.name = name
        """What people call it: "default pool", "private pool (0, 3)"."""
        self._trace = trace
        self._cancelled = cancelled

    @cached_property
    def bands(self) -> Bands:
        """The allocations of this pool, stacked. Raises CancelledError."""
        return Bands(self._trace, self._trace.allocations.pool == self.pool, cancelled=self._cancelled)

    @cached_property
    def reserved(self) -> np.ndarray:
        """int64 (M + 1,): bytes reserved for this pool at each moment."""
        return reserved(self._trace, self.pool)

    @cached_property
    def height(self) -> int:
        """Bytes that the lane needs: the most that was ever live or reserved."""
        return int(max(self.reserved.max(), self.bands.live.max()))


def lanes(trace: Trace, pools: Sequence[tuple[int, int]] = (), *, cancelled: Callable[[], bool] = never) -> list[Lane]:
    """A lane for each pool that has allocations or memory: the default one first, then by number, unknown ones last.

    pools: `Snapshot.pools`, for the names; without them the private ones are named by their numbers in it."""
    seen = set(np.unique(trace.allocations.pool).tolist()) | set(np.unique(trace.spans.pool).tolist())
    return [Lane(trace, pool, _name(pool, pools), cancelled) for pool in sorted(seen, key=lambda p: (p < 0, p))]


def _name(pool: int, pools: Sequence[tuple[int, int]]) -> str:
    if pool == UNKNOWN_POOL:
        return "pool not known"
    if pool == 0:
        return "default pool"
    return f"private pool {tuple(pools[pool])}" if pool < len(pools) else f"private pool {pool}"
