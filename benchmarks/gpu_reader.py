"""Measure what readers who draw a training on their own GPUs cost it.

1M Gaussians, 1920x1080, against no viewer.

Three readers draw by themselves and move all the time: each is a program that takes all
that comes at once and says after each second where its camera is. They read over a local
line, or over lines of 20 Mbit/s and 80 ms of their own. A ratio is held against the same
process training without a viewer just before and just after, and against the turns
between in which the readers' pages are hidden. The age of what a reader sees counts from
`publish`: when it comes, and when the next version takes its place.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import splatview
from benchmarks.browser.reading import (
    LINE_MBIT_S,
    ROUND_TRIP_S,
    Publications,
    Reader,
    age_text,
    ages_of,
    line_to,
    viewer_port,
)
from benchmarks.gpu import packing
from benchmarks.gpu.load import Pace, Training, train
from benchmarks.gpu.scenes import SIZE
from benchmarks.harness import Program, percentile, require_gpu, tried, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

Row = dict[str, str]

_READERS = 3
_PERIOD_S = 1.0
"""Seconds of a move of the camera."""
_PATIENCE_S = 60.0
_TARGET = "0.995"


@dataclass(frozen=True)
class ReaderPlan:
    """Sizes and durations of what is measured."""

    gaussians: int = 1_000_000
    size: tuple[int, int] = SIZE
    device: str = "cuda"
    warm_s: float = 4.0
    """Seconds of training until its speed has settled."""
    without_s: float = 3.0
    """Seconds without a viewer, before and after."""
    turn_s: float = 4.0
    hidden_s: float = 4.0
    """Seconds of a turn with readers, and of one with hidden pages."""
    turn_count: int = 4
    settle_s: float = 0.5
    training: Callable[..., Any] = Training


def run() -> list[Row]:
    require_gpu()
    return measure(ReaderPlan())


def measure(plan: ReaderPlan) -> list[Row]:
    """Return the rows."""
    rows = tried("packing", partial(packing.measure, plan.gaussians, plan.device))
    training = plan.training(plan.gaussians, plan.size, plan.device)
    train(training, plan.warm_s)
    for title, mbit_s in (
        ("three readers, local line", 0.0),
        ("three readers, 20 Mbit/s and 80 ms", LINE_MBIT_S),
    ):
        rows += tried(title, partial(_measure_readers, training, plan, title, mbit_s))
    return rows


@dataclass
class _Courses:
    """The courses of the training by turns."""

    with_readers: list[Pace]
    hidden: list[Pace]
    publish_s: list[float]
    """Seconds of each `publish` with readers."""


def _measure_readers(
    training: Any, plan: ReaderPlan, title: str, mbit_s: float
) -> list[Row]:
    """Return the rows of readers on one kind of line."""
    publications = Publications(training.scene)
    # The colours that tell versions are no part of what readers cost.
    pace_before = train(training, plan.without_s, publications.paint)
    try:
        with ExitStack() as programs:
            readers, viewer = _start(training, publications, programs, mbit_s)
            for reader in readers:
                reader.connect()
            wait_until(
                "all readers see the scene",
                lambda: all(reader.has_passes() for reader in readers),
                _PATIENCE_S,
                partial(_step, training, publications),
            )
            courses, ages, gpu_counts = _take_turns(
                training, publications, plan, readers, viewer
            )
            reports = [reader.passes for reader in readers]
    finally:
        splatview.close()
    pace_after = train(training, plan.without_s, publications.paint)
    without = (pace_before.rate + pace_after.rate) / 2
    return [
        {
            "what": f"{title}: no viewer, before and after",
            "training speed": f"1 ({pace_before.rate:.2f} and {pace_after.rate:.2f} steps/s)",
        },
        _row(f"{title}: moving all the time", courses.with_readers, without, _TARGET)
        | {
            "over hidden pages": f"{_rate(courses.with_readers) / _rate(courses.hidden):.4f}",
            "age of what is seen": age_text(ages),
            "passes": _passes_text(reports),
            "the viewer's work": _works_text(gpu_counts, plan),
        },
        _row(f"{title}: their pages hidden", courses.hidden, without, ""),
        {
            "what": f"{title}: `publish`",
            "target": "10 us",
            "us a call": f"{percentile(courses.publish_s, 0.5) * 1e6:.1f}",
        },
    ]


def _start(
    training: Any, publications: Publications, programs: ExitStack, mbit_s: float
) -> tuple[list[Reader], Program]:
    """Start a viewer and readers, while the training goes on."""
    viewer = programs.enter_context(
        Program("benchmarks.browser.serve", "--web", "--port", "0")
    )
    step = partial(_step, training, publications)
    address = viewer_port(viewer, step)
    readers = []
    for index in range(_READERS):
        port = address.port
        if mbit_s:
            port = line_to(programs, port, mbit_s, ROUND_TRIP_S).port
        reader = Reader(address._replace(port=port), f"reader{index}")
        readers.append(programs.enter_context(reader))
    return readers, viewer


def _step(training: Any, publications: Publications) -> None:
    training.step()
    publications.publish(training.steps)


def _take_turns(
    training: Any,
    publications: Publications,
    plan: ReaderPlan,
    readers: list[Reader],
    viewer: Program,
) -> tuple[_Courses, Any, dict[str, Any]]:
    """Train with readers, and with hidden pages, by turns."""
    courses = _Courses([], [], [])
    gpu_counts: dict[str, float] = {}
    ages: list[Any] = []

    def publish(_: int) -> None:
        publications.publish(training.steps)

    for reader in readers:
        reader.move(_PERIOD_S)
    train(training, 3 * plan.settle_s, publish)
    for _ in range(plan.turn_count):
        counts_before = viewer.request("works")
        for reader in readers:
            reader.take_passes()
        publications.seconds.clear()
        courses.with_readers.append(train(training, plan.turn_s, publish))
        courses.publish_s += publications.seconds
        counts_after = viewer.request("works")
        for reader in readers:
            ages += ages_of(reader.take_passes(), publications.times)
        _add(gpu_counts, counts_before, counts_after)
        for reader in readers:
            reader.move(0.0)
            reader.show(on=False)
        train(training, plan.settle_s, publish)
        courses.hidden.append(train(training, plan.hidden_s, publish))
        for reader in readers:
            reader.show(on=True)
            reader.move(_PERIOD_S)
        train(training, 3 * plan.settle_s, publish)
    return courses, ages, gpu_counts


def _add(
    gpu_counts: dict[str, float],
    counts_before: dict[str, Any],
    counts_after: dict[str, Any],
) -> None:
    for name, count in counts_after["works"].items():
        gpu_counts[name] = (
            gpu_counts.get(name, 0) + count - counts_before["works"].get(name, 0)
        )
    paid_ms = counts_after["paid_ms"] - counts_before["paid_ms"]
    gpu_counts["ms"] = gpu_counts.get("ms", 0) + paid_ms


def _rate(paces: list[Pace]) -> float:
    seconds = [second for pace in paces for second in pace.seconds]
    return len(seconds) / sum(seconds)


def _row(title: str, paces: list[Pace], without: float, target: str) -> Row:
    seconds = [second for pace in paces for second in pace.seconds]
    rate = _rate(paces)
    return {
        "what": title,
        "training speed": f"{rate / without:.4f} ({rate:.2f} steps/s)",
        "target": target,
        "step p50 / worst ms": (
            f"{statistics.median(seconds) * 1e3:.3f} / {max(seconds) * 1e3:.2f}"
        ),
    }


def _passes_text(reports: list[list[dict[str, Any]]]) -> str:
    """Return what readers got, and how many packings that were."""
    passes = [page_pass for report in reports for page_pass in report]
    forms: dict[str, int] = {}
    packings = set()
    for page_pass in passes:
        harmonics = " + harmonics" if page_pass["has_harmonics"] else ""
        share = "" if page_pass["count"] == page_pass["total"] else ", a part"
        name = page_pass["form"] + harmonics + share
        forms[name] = forms.get(name, 0) + 1
        packings.add((page_pass["version"], name))
    texts = [f"{count} {name}" for name, count in forms.items()]
    return f"{len(passes)} of {len(packings)} packings: " + "; ".join(texts)


def _works_text(gpu_counts: dict[str, float], plan: ReaderPlan) -> str:
    seconds = plan.turn_count * plan.turn_s
    texts = []
    for name, count in gpu_counts.items():
        unit = " ms" if name == "ms" else f" {name}"
        texts.append(f"{count / seconds:.1f}{unit}")
    return ", ".join(texts) + " a second"
