"""One snapshot and all answers about it, for all its views: worked out by jobs, kept, never waited for.

    table = content.answer(("group", device, moment, "stack"))
    if table is None:
        ...  # `working`, or `fault(key)`; the view draws again once `changes` is another number
"""

from __future__ import annotations

import atexit
import itertools
import logging
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar
from weakref import WeakSet

import numpy as np

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.jobs import Job, Jobs
from splatview_viewer.kinds.snapshot.analysis.details import describe, segments_at
from splatview_viewer.kinds.snapshot.analysis.flame import flame
from splatview_viewer.kinds.snapshot.analysis.frames import sites
from splatview_viewer.kinds.snapshot.analysis.search import Hits, search
from splatview_viewer.kinds.snapshot.analysis.tables import colors, compare, group, leaks, post_mortem
from splatview_viewer.kinds.snapshot.model import ACTIONS, live_mask, peak_moment
from splatview_viewer.kinds.snapshot.query import Database
from splatview_viewer.kinds.snapshot.timeline.bands import Addresses, Axis, Bands
from splatview_viewer.ui.format import count_text

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from splatview_viewer.kinds.snapshot.analysis.tables import ColorBy, Colors
    from splatview_viewer.kinds.snapshot.model import Snapshot
    from splatview_viewer.kinds.snapshot.state import Lit

    Key = tuple[Hashable, ...]

T = TypeVar("T")
log = logging.getLogger("splatview")

LANES = ("layout", "analysis", "query")
"""Threads that work side by side."""
ROWS = 100_000
"""Rows of an answer to SQL that the viewer shows."""
_PARTING_S = 3.0
"""Wait for a job when the program ends."""
_KEPT = 6
"""Answers that are kept of questions of which only the newest matters."""


def _end() -> None:
    """The program ends: no thread may still be in compiled code when Python takes itself apart."""
    for content in list(Content._all):
        content.close()
        content.wait(_PARTING_S)


atexit.register(_end)


@dataclass(eq=False)
class _Question:
    job: Job[Any]
    words: str
    lane: str
    begun: bool = False


class Content:
    """A snapshot, and its answers. `device` is always a place in `Snapshot.traces`.

    Called by the thread of the viewer's loop alone.
    """

    _all: ClassVar[WeakSet[Content]] = WeakSet()

    def __init__(self, snapshot: Snapshot, wake: Callable[[], None] = lambda: None) -> None:
        """`wake`: called from a thread when an answer is there."""
        self.snapshot = snapshot
        Content._all.add(self)
        self.misses = 0
        """Counts questions without an answer yet: a picture for which it rose is drawn again when `changes` does."""
        self.changes = 0
        """Another number after each job that began or ended."""
        self._numbers = itertools.count(1)
        self._wake = wake
        self._lanes = {lane: Jobs(f"snapshot {lane}", self._ended) for lane in LANES}
        self._questions: dict[Key, _Question] = {}
        """By key; the newest of a name is the last of that name."""
        self._closed = False

    # -- questions -----------------------------------------------------------------------------------------------

    def ask(self, key: Key, function: Callable[..., T], *, newest: bool = False,
            lane: Literal["layout", "analysis", "query"] = "analysis", words: str = "") -> T | None:
        """Return the result of `function()` once a thread has called it; None until then, or if it failed (`fault`).

        The answer is kept as long as the snapshot. newest: of the questions whose key begins with the same name only
        the newest is worked on, and a few answers are kept. words: what is being done, for the user. `function` reads
        nothing that the loop changes; in the lane "query" it is called with its job.
        """
        def work(job: Job[T]) -> T:
            question.begun, self.changes = True, next(self._numbers)
            try:
                return function(job) if lane == "query" else function()
            except Exception as e:
                if not isinstance(e, ViewerError):  # its pane says it, and the others go on
                    log.error("%s", words or key, exc_info=e)
                raise

        if key in self._questions:
            if newest:
                self._questions[key] = self._questions.pop(key)
            self.misses += not self._questions[key].job.done
            return self.peek(key)
        self.misses += 1
        if self._closed:
            return None
        if newest:
            same = [(k, q) for k, q in self._questions.items() if k[0] == key[0]]
            waiting = [k for k, q in same if not q.job.done and (lane == "query" or not q.begun)]
            answered = [k for k, q in same if k not in waiting]
            for old in (*waiting, *answered[:max(len(answered) - _KEPT + 1, 0)]):
                self.forget(old)
        question: Any = _Question(None, words, lane)  # type: ignore[arg-type]
        question.job = self._lanes[lane].submit(work)
        self._questions[key] = question
        return None

    def _ended(self) -> None:
        self.changes = next(self._numbers)
        self._wake()

    def peek(self, key: Key) -> Any:
        """The answer, if it is there; asks nothing."""
        question = self._questions.get(key)
        return None if question is None or not question.job.done or question.job.fault else question.job.result()

    def fault(self, key: Key) -> str:
        """The reason why there will be no answer; "" while there may be one."""
        question = self._questions.get(key)
        return question.job.fault if question is not None else ""

    def forget(self, key: Key) -> None:
        """Drop a question and its answer, so that asking works on it anew. A query that runs is interrupted."""
        if (question := self._questions.pop(key, None)) is not None:
            question.job.cancel()

    @property
    def working(self) -> str:
        """The job in progress, in words; "" without one."""
        return next((q.words for q in self._questions.values() if q.words and q.begun and not q.job.done), "")

    @property
    def fault_of_layout(self) -> str:
        """The reason why something cannot be laid out; "" while nothing failed."""
        return next((q.job.fault for q in self._questions.values() if q.lane == "layout" and q.job.fault), "")

    def wait(self, timeout: float) -> bool:
        """Wait until nothing is worked on any more, at most so many seconds. Returns whether that is so."""
        return all([lane.wait(timeout) for lane in self._lanes.values()])

    def close(self) -> None:
        """Drop what waits, and cancel what runs. Idempotent."""
        self._closed = True
        for lane in self._lanes.values():
            lane.close()
        self._questions.clear()

    # -- the snapshot ----------------------------------------------------------------------------------------------

    @cached_property
    def busiest(self) -> int:
        """The device with most events."""
        return max(range(len(self.snapshot.traces)), key=lambda k: (
            len(self.snapshot.traces[k].events), len(self.snapshot.traces[k].segments)))

    @cached_property
    def phrases(self) -> list[str]:
        """Counts of its content, in short phrases."""
        traces, notes = self.snapshot.traces, len(self.snapshot.notes)
        counts = {"device": len(traces) if len(traces) > 1 else 0, "event": sum(len(t.events) for t in traces),
                  "allocation": sum(len(t.allocations) for t in traces), "note": notes}
        return [count_text(count, what) for what, count in counts.items() if count]

    def others(self) -> list[Content]:
        """Return the other open snapshots, to compare it with this one, by name."""
        return sorted((c for c in Content._all if c is not self and not c._closed), key=lambda c: c.snapshot.name)

    # -- the timeline ----------------------------------------------------------------------------------------------

    def bands(self, device: int) -> Bands | None:
        """The timeline, laid out."""
        return self.ask(("bands", device), lambda: Bands(self.snapshot.traces[device]),
                        lane="layout", words="Laying out the timeline")

    def addresses(self, device: int) -> Addresses | None:
        """The address space, laid out."""
        return self.ask(("addresses", device), lambda: Addresses(self.snapshot.traces[device]),
                        lane="layout", words="Laying out the addresses")

    def axis(self, device: int, unit: Literal["events", "time"]) -> Axis | None:
        """The time axis."""
        return self.ask(("axis", device, unit), lambda: Axis(self.snapshot.traces[device], unit),
                        lane="layout", words="Reading the times")

    def peak(self, device: int) -> int | None:
        """The moment with most live bytes."""
        bands = self.bands(device)
        return None if bands is None else self.ask(
            ("peak", device), lambda: int(np.argmax(bands.live)), lane="layout", words="Looking for the peak")

    def colors(self, device: int, by: ColorBy) -> Colors | None:
        """The colour of each allocation, and the legend; `by`: see `analysis.colors`."""
        return self.ask(("colors", device, by), lambda: colors(self.snapshot, self.snapshot.traces[device], by),
                        lane="layout", words="Colouring")

    def ooms(self, device: int) -> list[int] | None:
        """The moments at which an allocation failed, the first 50."""
        action = self.snapshot.traces[device].events.action
        return self.ask(("ooms", device), lambda: np.flatnonzero(action == ACTIONS.index("oom")).tolist()[:50],
                        lane="layout")

    # -- what is lit -----------------------------------------------------------------------------------------------

    def hits(self, device: int, text: str) -> Hits | None:
        """Return the hits of a search."""
        text = text.strip()
        return None if not text else self.ask(
            ("search", device, text), lambda: search(self.snapshot, self.snapshot.traces[device], text), newest=True)

    def lit(self, device: int, lit: Lit | None) -> np.ndarray | None:
        """bool (A,): the allocations that a row of a table, or the like, stands for."""
        if lit is None:
            return None
        key, row, trace = lit.key, lit.row, self.snapshot.traces[device]
        answer = self.answer(key)
        if answer is None:
            return None

        def work() -> np.ndarray:
            mask = np.zeros(len(trace.allocations), bool)
            mask[IDS[str(key[0])](answer, row, trace, key)] = True
            return mask

        return self.ask(("lit", device, key, row), work, newest=True)

    def mask(self, device: int, text: str, lit: Lit | None) -> tuple[Key, np.ndarray | None]:
        """The allocations that a search and a row light together, bool (A,), and a key of them; None: all."""
        hits, rows = self.hits(device, text), self.lit(device, lit)
        key = (text if hits is not None else "", (lit.key, lit.row) if rows is not None and lit is not None else None)
        if hits is None or rows is None:
            return key, rows if hits is None else hits.mask
        return key, self.ask(("both", device, *key), lambda: hits.mask & rows, newest=True)

    # -- questions that a state can name: a name and plain values ------------------------------------------------------

    def answer(self, key: Key) -> Any:
        """Return the answer to one of `QUESTIONS`, or None."""
        return QUESTIONS[str(key[0])](self, *key)

    def database(self) -> Database | None:
        """Answers SQL. To be used in the lane "query" alone."""
        return self.ask(("database",), lambda _: Database(self.snapshot), lane="query", words="Opening the database")

    def sites(self) -> np.ndarray | None:
        """The frame of each stack that names it."""
        return self.ask(("sites",), lambda: sites(self.snapshot))


def _of_members(function: Callable[..., Any]) -> Callable[..., Any]:
    """A question about some allocations of a device: ("group", device, whose, by); whose: live at a moment (a number),
    found by a search (a text), or None for all."""
    def asked(content: Content, name: str, device: int, whose: Any, *more: Any) -> Any:
        trace, hits = content.snapshot.traces[device], None
        if isinstance(whose, str) and (hits := content.hits(device, whose)) is None:
            return None

        def work() -> Any:
            mask = hits.mask if hits is not None else None if whose is None else live_mask(trace, int(whose))
            return function(content.snapshot, trace, mask, *more)

        return content.ask((name, device, whose, *more), work, newest=True)

    return asked


def _of_device(function: Callable[..., Any], words: str = "", *, newest: bool = False) -> Callable[..., Any]:
    """A question about a device: ("segments", device, moment)."""
    def asked(content: Content, name: str, device: int, *more: Any) -> Any:
        trace = content.snapshot.traces[device]
        return content.ask((name, device, *more), lambda: function(content.snapshot, trace, *more), newest=newest,
                           words=words)

    return asked


def _compare(content: Content, name: str, device: int, before: Any, after: int, by: Any) -> Any:
    """before: a moment of this snapshot, or "peak" or "end" of another one and, after a space, its name."""
    snapshot, trace = content.snapshot, content.snapshot.traces[device]
    side: Any = snapshot, trace, before
    if isinstance(before, str):
        when, _, file = before.partition(" ")
        other = next((c.snapshot for c in content.others() if c.snapshot.name == file), None)
        there = next((t for t in other.traces if t.device == trace.device), None) if other is not None else None
        if other is None or there is None:
            return None
        side = other, there, len(there.events) if when == "end" else None
    return content.ask((name, device, before, after, by), lambda: compare(
        (*side[:2], peak_moment(side[1]) if side[2] is None else side[2]), (snapshot, trace, after), by), newest=True)


def _sql(content: Content, name: str, text: str) -> Any:
    database = content.database()
    return None if database is None else content.ask(
        (name, text), lambda job: database.run(text, ROWS, cancelled=lambda: job.cancelled), newest=True,
        lane="query", words="Asking the database")


QUESTIONS: dict[str, Callable[..., Any]] = {
    "group": _of_members(group), "flame": _of_members(flame), "compare": _compare, "sql": _sql,
    "leaks": _of_device(leaks, "Looking for leaks"),
    "oom": _of_device(post_mortem, "Looking at what failed", newest=True),
    "segments": _of_device(segments_at, newest=True), "details": _of_device(describe, newest=True),
    "stack": lambda content, name, device: content.snapshot.traces[device],
}
"""By the name that a key begins with: the question."""


IDS: dict[str, Callable[[Any, int, Any, Key], np.ndarray]] = {
    "group": lambda table, key, *_: table.allocations(key),
    "flame": lambda graph, node, *_: graph.allocations(node),
    "compare": lambda found, row, _, key: found.allocations(row, both=not isinstance(key[2], str)),
    "leaks": lambda suspects, row, *_: suspects[row].ids,
    "oom": lambda oom, key, *_: oom.holders.allocations(key),
    "stack": lambda trace, stack, *_: np.flatnonzero(trace.allocations.stack == stack),
    "sql": lambda result, _, trace, *__: result.allocations(trace),
}
"""By the same names: the numbers of the allocations of a row of the answer."""
