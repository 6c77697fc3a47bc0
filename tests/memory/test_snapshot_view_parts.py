"""The parts of the view of memory snapshots by themselves: answers of threads, where things lie, ticks."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.snapshot_cases import small_snapshot
from support.view_cases import module_screen, screen_fixture  # noqa: F401
from support.wait import PATIENCE

from splatview.viewer_app.controls import Rect
from splatview.viewer_app.errors import ViewerError
from splatview.viewer_app.memory.model import Annotation
from splatview.viewer_app.views._snapshot import ticks
from splatview.viewer_app.views._snapshot.annotations import ranges_of
from splatview.viewer_app.views._snapshot.content import Content
from splatview.viewer_app.views._snapshot.layout import Window, held, lay_out
from splatview.viewer_app.views._snapshot.state import TABS, Look

if TYPE_CHECKING:
    from collections.abc import Iterator


pytestmark = pytest.mark.usefixtures("timeline_kernels")


# -- answers -------------------------------------------------------------------------------------------------


@pytest.fixture
def content() -> Iterator[Content]:
    made = Content(small_snapshot(0))
    yield made
    made.close()


def test_what_was_laid_out_goes_with_it() -> None:
    content = Content(small_snapshot(0))
    edges = np.array([0, 3, 9])
    while (bands := content.bands(0)) is None or (reserved := content.reserved_envelope(0)) is None:
        content.wait(PATIENCE)
    assert len(bands.envelope(edges)[0]) == len(reserved(edges)[0]) == 2
    held = [weakref.ref(value) for value in (bands, reserved, bands.live, content.snapshot)]
    content.close()
    del content, bands, reserved
    gc.collect()
    assert [value() for value in held] == [None] * 4


def test_an_answer_comes_later_and_stays(content: Content) -> None:
    calls = []
    assert content.ask("key", lambda: calls.append(1) or 42, words="Counting") is None
    assert content.misses == 1
    assert content.wait(PATIENCE)
    assert content.changes >= 2
    assert [content.ask("key", lambda: 0) for _ in range(3)] == [42] * 3
    assert (content.peek("key"), content.misses, calls) == (42, 1, [1])
    content.forget("key")
    assert content.peek("key") is None


def test_what_fails_is_said_once_and_not_tried_again(content: Content, caplog: pytest.LogCaptureFixture) -> None:
    def expected() -> int:
        raise ViewerError("no such thing")

    def unexpected() -> int:
        raise ZeroDivisionError("oh")

    for function, words in ((expected, "no such thing"), (unexpected, "ZeroDivisionError: oh")):
        content.ask(function, function)
        assert content.wait(PATIENCE)
        before = content.misses, content.changes
        assert content.ask(function, function) is None
        assert content.fault(function) == words
        assert (content.misses, content.changes) == before
    assert [r.levelname for r in caplog.records] == ["ERROR"]


def test_of_a_slot_only_the_newest_question_is_worked_on(content: Content) -> None:
    begun, go, done = threading.Event(), threading.Event(), []
    content.ask("first", lambda: begun.set() or go.wait(PATIENCE), slot="s")
    assert begun.wait(PATIENCE)
    for k in range(20):
        content.ask(k, lambda k=k: done.append(k) or k, slot="s")
    content.ask("other", lambda: done.append("other") or 1)
    go.set()
    assert content.wait(PATIENCE)
    assert done == [19, "other"]
    for k in range(100, 120):
        content.ask(k, lambda k=k: k, slot="s")
        assert content.wait(PATIENCE)
    assert [k for k in range(100, 120) if content.peek(k)] == list(range(114, 120))
    assert content.peek("other") == 1


def test_a_long_question_stops_no_other_lane_and_none_outlives_its_content(content: Content) -> None:
    go, began = threading.Event(), threading.Event()
    content.ask("long", lambda: (began.set(), go.wait(PATIENCE)), lane="query", words="A long question")
    assert began.wait(PATIENCE)
    content.ask("short", lambda: 1)
    end = time.monotonic() + PATIENCE
    while content.peek("short") is None and time.monotonic() < end:
        time.sleep(0.001)
    assert content.peek("short") == 1
    assert content.working[0][0] == "A long question"
    content.ask("never", lambda: 1, lane="query")
    content.close()
    content.close()
    assert content.cancelled()
    go.set()
    assert content.wait(PATIENCE)
    assert content.peek("long") is content.peek("never") is None
    assert content.ask("after", lambda: 1) is None
    assert content.wait(0)


def test_the_loop_is_never_kept_waiting(content: Content) -> None:
    """While a lane works, asking and looking return at once: no lock is held."""
    go = threading.Event()
    content.ask("slow", lambda: go.wait(PATIENCE))
    assert content.ask("slow", lambda: 1) is None
    assert content.peek("slow") is None
    assert content.fault("slow") == ""
    go.set()
    assert content.wait(PATIENCE)


# -- where things lie ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tab", TABS)
@pytest.mark.parametrize("details", [False, True])
def test_nothing_overlaps(tab: str, details: bool) -> None:
    for scale in (1.0, 2.0, 3.0):
        for width, height in ((1000, 694), (1640, 1054), (390, 514), (844, 390), (260, 180), (64, 48), (1, 1)):
            rect = Rect(11, 7, round(width * scale), round(height * scale))
            found = lay_out(rect, scale, tab, details=details)
            parts = [r for r in (found.plot, found.bar, found.minimap, found.pane, found.details) if r is not None]
            cover = np.zeros((rect.height + 20, rect.width + 20), np.int8)
            for r in parts:
                assert r.width > 0
                assert r.height > 0
                cover[r.y: r.y + r.height, r.x: r.x + r.width] += 1
            assert cover.max() == 1, (tab, details, width, height)
            cover[rect.y: rect.y + rect.height, rect.x: rect.x + rect.width] = 0
            assert not cover.any(), (tab, details, width, height)
            if width >= 390 and height >= 500:
                assert found.details is not None or not details
                assert (found.pane is not None) == (tab not in ("timeline", "addresses"))
                assert found.plot is not None or tab == "about" or details


def test_a_plot_without_words_has_all_the_room() -> None:
    rect = Rect(3, 4, 500, 400)
    assert lay_out(rect, None, "stacks", details=True).plot == rect


def test_a_window_maps_both_ways() -> None:
    w = Window(Rect(10, 20, 300, 200), 5.0, 65.0, 1e9, 3e9)
    assert (w.x_at(10), w.x_at(310), w.y_at(220), w.y_at(20)) == (5.0, 65.0, 1e9, 3e9)
    for x, y in ((5.0, 1e9), (31.5, 2.2e9)):
        assert (w.x_at(w.px(x)), w.y_at(w.py(y))) == pytest.approx((x, y))


def test_ranges_are_held_within_what_there_is() -> None:
    full = (0.0, 100.0)
    assert held((-5.0, 200.0), full, 4) is None
    assert held((90.0, 120.0), full, 4) == pytest.approx((70.0, 100.0))
    assert held((50.0, 51.0), full, 4) == pytest.approx((48.5, 52.5))
    first = held((20.123456789, 61.7), full, 4)
    assert first is not None
    assert held(first, full, 4) == first


# -- ticks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "high", "want"), [
    (0, 12 << 30, ["0", "2 GiB", "4 GiB", "6 GiB", "8 GiB", "10 GiB", "12 GiB"]),
    (6 << 30, 7 << 30, ["6.00 GiB", "6.25 GiB", "6.50 GiB", "6.75 GiB", "7.00 GiB"]),
    ((12 << 30) + (3 << 20), (12 << 30) + (7 << 20), ["12,291 MiB", "12,292 MiB", "12,293 MiB", "12,294 MiB",
                                                       "12,295 MiB"]),
    (0, 4096, ["0", "1 KiB", "2 KiB", "3 KiB", "4 KiB"]),
    (0, 100, ["0", "16 B", "32 B", "48 B", "64 B", "80 B", "96 B"]),
])
def test_ticks_of_bytes(low: float, high: float, want: list[str]) -> None:
    assert [text for _, text in ticks.byte_ticks(low, high, 7 if len(want) > 5 else 5)] == want


def test_ticks_of_events() -> None:
    assert ticks.event_ticks(0, 22_333, 5) == [(0, "0"), (5000, "5,000"), (10000, "10,000"), (15000, "15,000"),
                                               (20000, "20,000")]
    assert [t for _, t in ticks.event_ticks(10.2, 14.9, 10)] == ["11", "12", "13", "14"]


@pytest.mark.parametrize(("span", "most"), [(40, 8), (5_000, 6), (700_000, 6), (90e6, 6), (3 * 3600e6, 7),
                                            (5 * 86400e6, 6)])
def test_ticks_of_time_are_round_on_the_clock(span: float, most: int) -> None:
    origin = 1_700_000_123_456_789
    found = ticks.time_ticks(0, span, origin, most)
    assert 2 <= len(found) <= most + 1
    step = found[1][0] - found[0][0]
    for at, text in found:
        when = datetime.fromtimestamp(round(origin + at) // 1_000_000)
        micros = round(origin + at) % 1_000_000
        midnight = (when.hour * 3600 + when.minute * 60 + when.second) * 1_000_000 + micros
        assert midnight % min(step, 86400e6) == pytest.approx(0, abs=1)
        digits = f".{micros:06d}"
        assert text in (f"{when:%H:%M:%S}" + digits[:k] for k in (0, 2, 3, 4, 5, 6, 7)) or text == f"{when:%H:%M}"
    assert len({text for _, text in found}) == len(found) or span > 86400e6


def test_ticks_without_a_clock_count_from_the_beginning() -> None:
    assert [t for _, t in ticks.time_ticks(0, 1e6, 0, 5)] == ["0.0 s", "0.2 s", "0.4 s", "0.6 s", "0.8 s", "1.0 s"]


# -- annotations ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["events", "time"])
def test_annotations_lie_where_they_were_said(unit: str) -> None:
    from dataclasses import replace

    base = small_snapshot(0, 400)
    times = base.traces[0].events.time_us
    said = (Annotation("step", "START", 0, int(times[100])), Annotation("step", "END", 0, int(times[200])))
    content, look = Content(replace(base, annotations=said)), Look()
    look.settings.unit = unit  # type: ignore[assignment]
    end = time.monotonic() + PATIENCE
    while (found := ranges_of(content, look)) is None and time.monotonic() < end:
        content.wait(1.0)
    axis = content.axis(0, unit)  # type: ignore[arg-type]
    assert found is not None
    assert axis is not None
    assert found.names == ["step"]
    assert abs(found.begin[0] - axis.x_of(101)) <= (2 if unit == "events" else 2000)
    assert abs(found.end[0] - axis.x_of(201)) <= (2 if unit == "events" else 2000)
    content.close()
