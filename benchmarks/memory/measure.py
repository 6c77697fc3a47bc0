"""The measurements; see the package."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.gpu.viewer import Viewer
from benchmarks.harness import tried, wait_until
from benchmarks.memory import peers
from benchmarks.memory.processes import ProgramReport, Watch, cpu_seconds, run_program
from benchmarks.memory.traces import RECORDED, write_trace

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = (1920, 1080)
SECONDS = 4.0
"""A hand moves so long."""
SHARES = (1.0, 0.2, 0.001)
"""The shares of the whole time that are seen while it moves."""
TIMEOUT_S = 300.0
GB = 1e9


@dataclass(frozen=True)
class Case:
    title: str
    events: int
    """0: the real one."""
    load: str = ""
    picture: str = ""
    """The target: memory while it is loaded; seconds and memory to the first
    picture."""


CASES = (
    Case("real", 0, "", "0.3 s after the window"),
    Case("1M", 1_000_000, "8 times the file", "3 s, 1 GB"),
    Case("10M", 10_000_000, "8 times the file", "35 s"),
)


def run(cases: tuple[Case, ...] = CASES) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory(prefix="sv-memory-") as folder:
        for case in cases:
            rows += tried(case.title, lambda case=case: _case(case, Path(folder)))
    return rows


def _case(case: Case, folder: Path) -> list[dict[str, str]]:
    trace = _trace(case, folder)
    live = folder / f"{case.title}.npz"
    env = {"XDG_CACHE_HOME": str(folder / f"cache-{case.title}")}
    rows: list[dict[str, str]] = []

    def show(title: str, measure: Callable[[], dict[str, str]]) -> None:
        rows.extend(
            tried(
                f"{case.title}: {title}",
                lambda: [{"trace": case.title, "what": title, **measure()}],
            )
        )

    reference = run_program("benchmarks.memory.reference", trace, live)
    limit = reference.answer
    plain_bytes = trace.stat().st_size

    def loaded(target: str) -> dict[str, str]:
        report = run_program("benchmarks.memory.load", trace, env=env)
        answer = report.answer
        return {
            "seconds": f"{answer['seconds']:.2f}",
            "CPU": f"{answer['cpu']:.2f} s",
            "peak GB": f"{report.peak / GB:.2f}",
            "target": target,
            "beside it": f"pickle.load alone {limit['seconds']:.2f} s (CPU {limit['cpu']:.2f}), "
            f"{limit['peak'] / GB:.2f} GB",
            "of which": f"{answer['events']:,} events, {answer['allocations']:,} allocations; "
            f"file {plain_bytes / GB:.3f} GB, afterwards {answer['left'] / GB:.2f} GB are in memory",
        }

    show("load", lambda: loaded(case.load))
    show("load again, from the cache", lambda: loaded(""))
    show(
        "first picture, from the command",
        lambda: _pictures_first(trace, folder / f"new-{case.title}", case.picture),
    )
    show(
        "first picture again, from the cache",
        lambda: _pictures_first(trace, Path(env["XDG_CACHE_HOME"]), ""),
    )
    rows += tried(
        f"{case.title}: answers",
        lambda: _answers(
            case, run_program("benchmarks.memory.answers", trace, live, env=env)
        ),
    )
    rows += tried(f"{case.title}: pan and zoom", lambda: _moved(case, trace, env))
    show("SnapViewer's converter", lambda: _snapviewer(trace, case.events))
    show("memory_viz's processing, in node", lambda: _memory_viz(trace, case.events))
    return rows


def _trace(case: Case, folder: Path) -> Path:
    if not case.events:
        return RECORDED
    saved_folder = os.environ.get("SPLATVIEW_BENCH_TRACES")
    path = (
        Path(saved_folder) if saved_folder else folder
    ) / f"benchmark-{case.events}.pickle"
    if not path.is_file():
        partial_path = path.with_suffix(".part")
        write_trace(partial_path, case.events)
        partial_path.replace(path)
    return path


def _pictures_first(trace: Path, cache: Path, target: str) -> dict[str, str]:
    """Measure the time from the command to the whole picture.

    What came before it; the memory of all processes meanwhile.
    """
    started_at = time.monotonic()
    with _viewer(trace, {"XDG_CACHE_HOME": str(cache)}) as viewer:
        watch = Watch(viewer.pid)
        first = _wait_until_whole(viewer)
        peak = watch.end()
        cpu = cpu_seconds(viewer.pid)
    return {
        "seconds": f"{first['whole'] - started_at:.2f}",
        "CPU": f"{cpu:.2f} s without loading",
        "peak GB": f"{peak / GB:.2f}",
        "target": target,
        "of which": f"{first['first'] - started_at:.2f} until the window is up, {first['whole'] - first['first']:.2f} "
        f"after that: {first['loaded'] - first['first']:.2f} to load, a plot after "
        f"{first['plot'] - first['first']:.2f}",
    }


def _wait_until_whole(viewer: Viewer) -> dict[str, float]:
    """Wait; return when there was a first picture, and one with the whole plot."""
    end = time.monotonic() + TIMEOUT_S
    while True:
        first = viewer.request("first", timeout=TIMEOUT_S)
        if first["whole"] is not None:
            return first
        if time.monotonic() > end:
            raise RuntimeError(
                f"no whole picture within {TIMEOUT_S:g} s; the viewer: {viewer.request('state')}"
            )
        fault = viewer.request("state")["fault"]
        if fault:
            raise RuntimeError(f"the viewer cannot show it: {fault}")
        time.sleep(0.05)


def _viewer(trace: Path, env: dict[str, str]) -> Viewer:
    return Viewer(
        str(trace),
        "--max-fps",
        "240",
        size=SIZE,
        env=env,
        program="benchmarks.memory.user",
    )


def _answers(case: Case, report: ProgramReport) -> list[dict[str, str]]:
    a = report.answer
    layout = a["bands"] + a["addresses"]
    worst, (slowest, hits) = max(a["search"].items(), key=lambda item: item[1][0])
    checked = "every moment's live bytes equal a replay's"
    rows = [
        {
            "what": "layout",
            "seconds": f"{layout:.3f}",
            "target": "2 s" if case.events >= 10**7 else "",
            "of which": f"bands {a['bands']:.3f}, addresses {a['addresses']:.3f}; importing "
            f" numba and the kernels {a['warm']:.2f} before that",
            "checked": checked,
        },
        {
            "what": "search",
            "seconds": f"{slowest:.3f}",
            "target": "0.5 s",
            "of which": f"the slowest of {len(a['search'])}, {worst!r}, {hits:,} hits; again {a['search again']:.3f}",
        },
        {
            "what": "tables",
            "seconds": f"{max(a['flame'], a['stacks'], a['leaks']):.3f}",
            "of which": f"flame graph at the peak {a['flame']:.3f}, all by stack {a['stacks']:.3f}, leaks "
            f"{a['leaks']:.3f}",
        },
        {
            "what": "SQL: all allocations by stack",
            "seconds": f"{a['sql']:.3f}",
            "of which": f"opening the database {a['open database']:.3f} before that",
        },
    ]
    return [{"trace": case.title, **row} for row in rows]


def _moved(case: Case, trace: Path, env: dict[str, str]) -> list[dict[str, str]]:
    rows = []
    with _viewer(trace, env) as viewer:
        _wait_until_whole(viewer)
        viewer.request("key", name="h")
        for share in SHARES:
            for gesture in ("pan", "zoom"):
                if share == 1.0 and gesture == "pan":
                    continue  # there is nowhere to go
                viewer.request("look", part=share)
                wait_until(
                    "a whole picture",
                    lambda: viewer.request("painted")["complete"],
                    TIMEOUT_S,
                )
                viewer.request("hand", how=gesture)
                time.sleep(0.5)
                viewer.request("begin")
                cpu = cpu_seconds(viewer.pid)
                time.sleep(SECONDS)
                got = viewer.request("painted")
                cpu = cpu_seconds(viewer.pid) - cpu
                viewer.request("hand", how="rest")
                started_at = time.monotonic()
                wait_until(
                    "a whole picture",
                    lambda: viewer.request("painted")["complete"],
                    TIMEOUT_S,
                )
                rows.append(
                    {
                        "trace": case.title,
                        "what": f"{gesture} at {share:g} of the time",
                        **_rate(got, cpu, time.monotonic() - started_at),
                    }
                )
    return rows


def _rate(got: dict[str, Any], cpu: float, idle_cpu: float) -> dict[str, str]:
    """Return the columns of a rate.

    cpu: seconds of processor time; idle_cpu: seconds until the picture was whole.
    """
    timings = ", ".join(f"{name} {ms:.1f}" for name, ms in got["timings"].items())
    return {
        "new pictures/s": f"{got['painted'] / got['seconds']:.1f}",
        "CPU": f"{cpu / max(got['painted'], 1) * 1e3:.1f} ms a picture",
        "target": "30 pictures/s, 60 on a GPU",
        "of which": f"frames {got['presented'] / got['seconds']:.1f}/s; whole {idle_cpu:.2f} s after the hand rests; "
        f"ms at the end: {timings}",
    }


def _snapviewer(trace: Path, events: int) -> dict[str, str]:
    missing = peers.missing("SPLATVIEW_SNAPVIEWER", events)
    if missing:
        return {"of which": f"not measured: {missing}"}
    report, allocations = peers.convert(trace)
    return {**_cost_columns(report), "of which": f"{allocations:,} allocations"}


def _memory_viz(trace: Path, events: int) -> dict[str, str]:
    missing = peers.missing("SPLATVIEW_MEMORY_VIZ", events)
    if missing:
        return {"of which": f"not measured: {missing}"}
    report = peers.process(trace)
    a = report.answer
    return {
        **_cost_columns(report),
        "of which": f"unpickling {a['unpickle']:.2f}; {a['bands']:,} bands of {a['points']:,} "
        "points, not drawn",
    }


def _cost_columns(report: ProgramReport) -> dict[str, str]:
    return {
        "seconds": f"{report.seconds:.2f}",
        "CPU": f"{report.cpu:.2f} s",
        "peak GB": f"{report.peak / GB:.2f}",
    }


if __name__ == "__main__":
    from benchmarks.harness import table

    names = set(sys.argv[1:])
    print(table(run(tuple(case for case in CASES if case.title in names))))
