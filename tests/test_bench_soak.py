"""The soak: what leaks is found out, what only goes up and down is not, and it runs."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import pytest

from benchmarks import soak

if TYPE_CHECKING:
    from programs import Processes

ROWS = [f"{who}: {what}" for who in ("trainer", "viewer") for what in ("MB", "shared MB", "descriptors", "threads")]


def series(slope: float, noise: float, count: int = 200) -> list[tuple[float, float]]:
    chance = random.Random(7)
    return [(float(t), 150.0 + slope * t + chance.gauss(0.0, noise)) for t in range(count)]


@pytest.mark.parametrize(("what", "slope", "noise", "verdict"), [
    ("MB", 0.1, 1.0, "LEAK"),
    ("MB", 0.001, 0.0, "too short to tell"),  # a fifth of a megabyte in all, in a straight line
    ("MB", 0.02, 0.3, "too short to tell"),
    ("MB", 0.0, 0.0, "steady"),
    ("MB", 0.0, 5.0, "steady"),
    ("MB", -1.0, 1.0, "steady"),
    ("descriptors", 0.1, 0.5, "LEAK"),
    ("descriptors", 0.03, 0.5, "too short to tell"),
    ("descriptors", 0.0, 2.0, "steady"),
    ("call us", 10.0, 0.0, "steady"),  # of times nothing is said
])
def test_what_rises_is_told_from_chance(what: str, slope: float, noise: float, verdict: str) -> None:
    found, leaking = soak.rows({f"trainer: {what}": series(slope, noise)})
    assert found[0]["verdict"] == verdict
    assert leaking is (verdict == "LEAK")


def test_a_longer_run_tells() -> None:
    """What was too short to tell is called a leak once it has risen by more than a little."""
    verdicts = [soak.rows({"viewer: MB": series(0.02, 0.3, count)})[0][0]["verdict"] for count in (200, 800)]
    assert verdicts == ["too short to tell", "LEAK"]


def test_what_was_not_measured_is_no_success() -> None:
    found, leaking = soak.rows({"trainer: MB": [(0.0, 1.0), (1.0, 1.0)]})
    assert leaking
    assert found[0]["verdict"].startswith("not measured: 2 times")


def test_a_line_and_its_error() -> None:
    line = soak.Line.through([0.0, 1.0, 2.0, 3.0], [1.0, 3.0, 5.0, 7.0])
    assert (line.slope, line.error, line.rise) == (2.0, 0.0, 6.0)
    line = soak.Line.through([0.0, 1.0, 2.0], [0.0, 1.0, 0.0])
    assert (line.slope, line.error) == (0.0, pytest.approx(math.sqrt(2 / 3 / 2)))


@pytest.mark.exhaustive
def test_some_seconds_of_it(processes: Processes) -> None:
    process = processes.python("-m", "benchmarks.soak", "--seconds", "6", "--churn", "0.5")
    out, err = process.communicate()
    assert process.returncode == 0, out + err
    assert "faults 0" in out
    for row in [*ROWS, "publish: call us", "publish: late ms"]:
        assert f"| {row} |" in out
    killed = int(out.partition(" viewers killed")[0].rpartition(" ")[2])
    assert killed > 0
