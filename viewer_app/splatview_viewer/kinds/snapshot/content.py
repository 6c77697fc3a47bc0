"""One snapshot and all answers about it, for all its views."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar, Literal
from weakref import WeakSet

import numpy as np

from splatview_viewer.core.jobs import end_jobs_before
from splatview_viewer.kinds.snapshot.answers import SnapshotAnswers
from splatview_viewer.snapshot.analysis.colors import color_allocations
from splatview_viewer.snapshot.analysis.search import Hits, search
from splatview_viewer.snapshot.model import ACTIONS, busiest_device
from splatview_viewer.snapshot.query import Database, import_duckdb
from splatview_viewer.snapshot.timeline.bands import (
    Addresses,
    Bands,
    TimelineAxis,
    why_not_measured,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.core.jobs import Job
    from splatview_viewer.kinds.snapshot.answers import Key
    from splatview_viewer.kinds.snapshot.state import ColorBy, Highlight
    from splatview_viewer.snapshot.analysis.colors import Colors
    from splatview_viewer.snapshot.model import MemorySnapshot, Trace
    from splatview_viewer.snapshot.timeline.bands import Measure

_MAX_OOMS = 50
DATABASE_KEY: Key = ("database",)


def _argmax(values: np.ndarray) -> int:
    """Return the index of the largest value."""
    return int(np.argmax(values))


def _find_ooms(trace: Trace) -> list[int]:
    """Return the moments at which an allocation failed, the first 50."""
    is_oom = trace.events.action == ACTIONS.index("oom")
    return np.flatnonzero(is_oom).tolist()[:_MAX_OOMS]


class Content(SnapshotAnswers):
    """A snapshot, and the answers about it.

    `device` is always an index into `MemorySnapshot.traces`. Called by the thread of the
    viewer's loop alone.
    """

    _all: ClassVar[WeakSet[Content]] = WeakSet()

    def __init__(
        self, snapshot: MemorySnapshot, wake: Callable[[], None] = lambda: None
    ) -> None:
        """Start without answers.

        Args:
            wake: called from a thread when an answer is there.
        """
        super().__init__(wake)
        self.snapshot = snapshot
        self._measure_faults: dict[tuple[int, Measure], str] = {}
        """Why traces do not tell a measure, by device."""
        self.holder: object = None
        """The data that views share of which it is the content; None: there are none."""
        Content._all.add(self)

    # -- the snapshot ------------------------------------------------------------------

    def _trace(self, device: int) -> Trace:
        return self.snapshot.traces[device]

    @cached_property
    def busiest(self) -> int:
        """The GPU with most events; pinned host memory where there is no GPU."""
        return busiest_device(self.snapshot)

    def other_contents(self) -> list[Content]:
        """Return the other open snapshots, by name, to compare them with this one."""
        contents = [c for c in Content._all if c is not self and not c.closed]
        return sorted(contents, key=lambda content: content.snapshot.name)

    # -- the timeline ------------------------------------------------------------------

    def bands(self, device: int, measure: Measure = "requested") -> Bands | None:
        """Return the layout of the timeline."""
        return self.request(
            ("bands", device, measure),
            partial(Bands, self._trace(device), measure),
            lane="layout",
            description="Laying out the timeline",
        )

    def why_not_measured(self, device: int, measure: Measure) -> str:
        """Return why bands cannot show some bytes of a device; "" where they can."""
        key = (device, measure)
        if key not in self._measure_faults:
            self._measure_faults[key] = why_not_measured(self._trace(device), measure)
        return self._measure_faults[key]

    def addresses(self, device: int) -> Addresses | None:
        """Return the layout of the address space."""
        return self.request(
            ("addresses", device),
            partial(Addresses, self._trace(device)),
            lane="layout",
            description="Laying out the addresses",
        )

    def axis(self, device: int, unit: Literal["events", "time"]) -> TimelineAxis | None:
        """Return the time axis."""
        return self.request(
            ("axis", device, unit),
            partial(TimelineAxis, self._trace(device), unit),
            lane="layout",
            description="Reading the times",
        )

    def peak(self, device: int) -> int | None:
        """Return the moment with most live bytes."""
        bands = self.bands(device)
        if bands is None:
            return None
        return self.request(
            ("peak", device),
            partial(_argmax, bands.live),
            lane="layout",
            description="Looking for the peak",
        )

    def colors(self, device: int, color_by: ColorBy) -> Colors | None:
        """Return the colour of each allocation, and the legend."""
        return self.request(
            ("colors", device, color_by),
            partial(color_allocations, self.snapshot, self._trace(device), color_by),
            lane="layout",
            description="Colouring",
        )

    def ooms(self, device: int) -> list[int] | None:
        """Return the moments at which an allocation failed, the first 50."""
        return self.request(
            ("ooms", device),
            partial(_find_ooms, self._trace(device)),
            lane="layout",
        )

    # -- search and SQL ----------------------------------------------------------------

    def hits(self, device: int, text: str) -> Hits | None:
        """Return the hits of a search; None without a search."""
        text = text.strip()
        if not text:
            return None
        return self.request(
            ("search", device, text),
            partial(search, self.snapshot, self._trace(device), text),
            newest=True,
        )

    def highlight_mask(
        self, device: int, text: str, highlight: Highlight | None
    ) -> tuple[Key, np.ndarray | None]:
        """Return the allocations that a search and a row highlight together.

        Returns:
            A key of them, and bool (A,); None for all.
        """
        hits = self.hits(device, text)
        if hits is None and highlight is None:
            return ("", None), None
        if hits is None:
            assert highlight is not None
            return ("", highlight), highlight.mask
        if highlight is None:
            return (text, None), hits.mask
        return (text, highlight), hits.mask & highlight.mask

    def _open_database(self, job: Job[Database]) -> Database:
        return _open_database(job, self.snapshot)

    def database(self) -> Database | None:
        """Return the database that answers SQL. To be used in the lane "query" alone."""
        return self.request(
            DATABASE_KEY,
            self._open_database,
            lane="query",
            description="Opening the database",
        )

    def database_of_pair(
        self, key: Key, first: Content, second: Content
    ) -> Database | None:
        """Return the database of two snapshots, in the schemas `a` and `b`.

        Args:
            key: names the pair (`pair_key`).
            first: A. One of both is this one.
            second: B.
        """

        def open_both(job: Job[Database]) -> Database:
            return _open_database(job, first.snapshot, second.snapshot)

        return self.request(
            key,
            open_both,
            newest=True,
            lane="query",
            description="Opening the database of both",
        )


def pair_key(first: Content, second: Content) -> Key:
    """Return the key of the database of two snapshots."""
    return ("database of both", id(first), id(second))


def _open_database(
    job: Job[Database],
    snapshot: MemorySnapshot,
    other_snapshot: MemorySnapshot | None = None,
) -> Database:
    """Make the tables of one snapshot or of two. For the thread of a job."""
    import_duckdb()
    # DuckDB's own end, from which on it takes no arrays, is registered by its import.
    end_jobs_before("duckdb")
    return Database(snapshot, other_snapshot, cancelled=lambda: job.cancelled)
