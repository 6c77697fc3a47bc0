"""Publish for hours while viewers come and go, and report what grows.

`python -m benchmarks.soak --seconds 7200`

A trainer publishes an image, a scene whose size changes, scalars and boxes, as fast as
`--pace` says; one viewer looks all the time, and every `--churn` seconds another is
started, to be killed at some moment of its life. Memory, descriptors and threads of the
trainer and of the viewer, the time of a call and the time from a publish to its being
read are noted once a second. The first fifth does not count. Through the rest goes a straight line (least squares):
what rises by more than chance and by more than a little is called a leak, and the
program ends with 1; what rises by more than chance, but by no more than a little, is
said to be too short to tell.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

import splatview
from benchmarks.crowd import Crowd
from benchmarks.harness import table
from benchmarks.machines import this_machine
from splatview.api import session as publishing

SURE = 4.0
"""Standard errors from zero at which a slope is no chance."""
LITTLE = {
    "MB": 4.0,
    "shared MB": 4.0,
    "descriptors": 8.0,
    "threads": 2.5,
    "call us": math.inf,
    "late ms": math.inf,
}
"""By how much each quantity may rise over the whole time without being called a leak:
as many viewers as are alive just then have descriptors in the trainer. Times are only
told."""


@dataclass(frozen=True)
class Line:
    """A straight line through a series."""

    slope: float
    """Per second."""
    error: float
    """Standard error of the slope."""
    rise: float
    """From the series' begin to its end."""

    @classmethod
    def through(cls, times: list[float], values: list[float]) -> Line:
        """Return the line of least squares through points.

        Raises ValueError for fewer than three points, or points of one time alone.
        """
        n = len(times)
        if n < 3 or len(values) != n or max(times) <= min(times):
            raise ValueError(
                f"{n} times and {len(values)} values; a line takes three points of different times"
            )
        t = statistics.fmean(times)
        v = statistics.fmean(values)
        spread = sum((x - t) ** 2 for x in times)
        slope = (
            sum((x - t) * (y - v) for x, y in zip(times, values, strict=True)) / spread
        )
        left = sum(
            (y - v - slope * (x - t)) ** 2 for x, y in zip(times, values, strict=True)
        )
        return cls(
            slope, math.sqrt(left / (n - 2) / spread), slope * (max(times) - min(times))
        )

    def leaks(self, little: float) -> bool:
        """Return whether it rises by more than chance, and more than `little` in all."""
        return self.rise > little and self.surely_rises

    @property
    def surely_rises(self) -> bool:
        """Return whether it rises by more than chance, be it by ever so little."""
        return self.slope > SURE * self.error

    def verdict(self, little: float) -> str:
        """Return the finding in words.

        What surely rises, but by no more than `little` so far, may be a leak that a
        longer run would show, or a start that takes its time: nothing can be said.
        Where any rise is little, none is asked about.
        """
        if self.leaks(little):
            return "LEAK"
        if self.surely_rises and math.isfinite(little):
            return "too short to tell"
        return "steady"


def taken_up(pid: int) -> dict[str, float]:
    """Return the resources of a process now. Raises OSError when it is gone.

    Raises OSError when it is gone.
    """
    root = Path(f"/proc/{pid}")
    status = dict(
        line.split(":", 1) for line in (root / "status").read_text().splitlines()
    )
    return {
        "MB": int(status["RssAnon"].split()[0]) / 1024,
        "shared MB": int(status["RssShmem"].split()[0]) / 1024,
        "descriptors": float(len(os.listdir(root / "fd"))),
        "threads": float(status["Threads"]),
    }


def rows(
    series: dict[str, list[tuple[float, float]]],
) -> tuple[list[dict[str, str]], bool]:
    """Return a row for each quantity, such as "trainer: MB", and whether one leaks."""
    findings = []
    leaking = False
    for name, points in series.items():
        points = points[len(points) // 5 :]
        times = [t for t, _ in points]
        values = [v for _, v in points]
        try:
            line = Line.through(times, values)
        except ValueError as e:
            findings.append({"what": name, "verdict": f"not measured: {e}"})
            leaking = True
            continue
        little = LITTLE[name.partition(": ")[2]]
        leaking |= line.leaks(little)
        findings.append(
            {
                "what": name,
                "first": f"{values[0]:.2f}",
                "last": f"{values[-1]:.2f}",
                "middle": f"{statistics.median(values):.2f}",
                "slope per hour": f"{line.slope * 3600:+.3f}",
                "standard error": f"{line.error * 3600:.3f}",
                "verdict": line.verdict(little),
            }
        )
    return findings, leaking


class Trainer:
    """Publishes what a trainer publishes."""

    def __init__(self) -> None:
        g = torch.Generator().manual_seed(0)
        self._all_gaussians = {
            name: torch.randn(4000, *shape, generator=g)
            for name, shape in {
                "means": (3,),
                "quats": (4,),
                "scales": (3,),
                "opacities": (),
                "sh0": (1, 3),
                "shN": (3, 3),
            }.items()
        }
        self.step = 0
        self.times: list[float] = []

    def publish(self) -> None:
        i = self.step + 1
        self.step = i
        image = torch.full((90, 160, 3), i % 251, dtype=torch.uint8)
        count = 1000 + i * 37 % 3000
        if i % 500 == 0:
            count = 0
        scene = None
        if i % 10 == 0:
            scene = {name: t[:count] for name, t in self._all_gaussians.items()}
        started_at = time.perf_counter()
        splatview.publish(image, "render", meta={"step": i})
        self.times.append((time.perf_counter() - started_at) * 1e6)
        if scene is not None:
            splatview.publish(scene, "scene", meta={"step": i})
            splatview.log(i, loss=1.0 / i, count=count)
            splatview.annotate(
                "render",
                boxes=torch.tensor([[1.0, 2.0, 30.0, 40.0]]),
                labels=[str(i % 7)],
            )


def soak(
    seconds: float, churn: float, pace: float
) -> tuple[dict[str, list[tuple[float, float]]], str]:
    """Measure: return (seconds, value) by quantity, and counts of everything."""
    series: dict[str, list[tuple[float, float]]] = {}
    trainer = Trainer()
    started_at = time.monotonic()
    trainer.publish()
    with Crowd() as crowd:
        try:
            crowd.churn(churn)
            started_at = time.monotonic()
            next_look_at = started_at
            while (now := time.monotonic()) < started_at + seconds:
                trainer.publish()
                if now >= next_look_at:
                    next_look_at = now + min(1.0, seconds / 30)
                    killed = crowd.churn(
                        churn
                    )  # takes in how late the viewer is as well
                    for process_name, process in (
                        ("trainer", os.getpid()),
                        ("viewer", crowd.steady),
                    ):
                        for name, value in taken_up(process).items():
                            series.setdefault(f"{process_name}: {name}", []).append(
                                (now - started_at, value)
                            )
                    figures = {"call us": statistics.median(trainer.times)}
                    trainer.times.clear()
                    if crowd.late:
                        figures["late ms"] = statistics.median(
                            ms for ms, _ in crowd.late
                        )
                        crowd.late.clear()
                    for name, value in figures.items():
                        series.setdefault(f"publish: {name}", []).append(
                            (now - started_at, value)
                        )
                time.sleep(pace)
            killed = crowd.churn(0.0)
            publisher = publishing.started_publisher()
            assert publisher is not None
            counters = ", ".join(
                f"{name} {value:,}"
                for name, value in publisher.control.counters().items()
            )
        finally:
            splatview.close()
    return (
        series,
        f"{trainer.step:,} steps in {seconds:,.0f} s, {killed:,} viewers killed; {counters}",
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=3600.0,
        help="how long; 3600 by default, at least 5",
    )
    parser.add_argument(
        "--churn",
        type=float,
        default=1.0,
        help="seconds between two viewers that are killed; 0: none",
    )
    parser.add_argument(
        "--pace",
        type=float,
        default=0.002,
        help="seconds that a step takes beside publishing",
    )
    options = parser.parse_args(arguments)
    if options.seconds < 5 or options.churn < 0 or options.pace < 0:
        parser.error("--seconds is at least 5, --churn and --pace are at least 0")
    with tempfile.TemporaryDirectory(prefix="sv-soak-") as folder:
        saved = os.environ.get("SPLATVIEW_RUNTIME_DIR")
        os.environ["SPLATVIEW_RUNTIME_DIR"] = folder  # not among the user's own runs
        try:
            series, load = soak(options.seconds, options.churn, options.pace)
        finally:
            if saved is None:
                del os.environ["SPLATVIEW_RUNTIME_DIR"]
            else:
                os.environ["SPLATVIEW_RUNTIME_DIR"] = saved
    findings, leaking = rows(series)
    print(f"{this_machine().label}  \n{load}\n\n{table(findings)}")
    return int(leaking)


if __name__ == "__main__":
    sys.exit(main())
