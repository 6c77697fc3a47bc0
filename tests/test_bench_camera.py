"""The benchmark of cameras: what it counts is there, and a result that belongs to another picture is found out."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from forking import forked_popen
from patience import PATIENCE
from repetitions import exhaustive

from benchmarks import camera
from benchmarks.cameras import detectors
from splatview.camera.pattern import PatternSource, square
from splatview.camera.sources import Buffers, SourceSettings

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH, HEIGHT = camera.SIZE


def seen(**changes: Any) -> dict[str, Any]:
    """20 pictures of which every second was looked at, with nothing wrong but for the changes."""
    results = [[i * 10**6 + 50, i, i * 10**6, 100 + i, square(100 + i, WIDTH, HEIGHT)[0]] for i in range(2, 20, 2)]
    return {"pictures": [[i * 10**6, 100 + i] for i in range(20)], "results": results,
            "versions": [[i, 100 + i] for i in range(20)], **changes}


def test_pictures_and_results_are_counted() -> None:
    row = camera._row("ours", seen(), "")
    assert row["checked"] == "9 versions, 9 boxes"
    assert row["shown pictures/s"] == "1000.00"
    assert row["longest"] == "1"


@pytest.mark.parametrize(("changes", "message"), [
    ({"versions": [[i, 101 + i] for i in range(20)]}, "which shows picture 103, is of picture 102"),
    ({"results": [[i, i, i, 100 + i, 7] for i in range(2, 20, 2)]}, "was drawn at 7, that of picture 102 is at 408"),
    ({"results": [[i, i, i, 100 + i, -1] for i in range(2, 20, 2)]}, "0 boxes of 9"),
    ({"versions": [[1, 101]]}, "0 versions"),
    ({"results": []}, "20 pictures and 0 results"),
    ({"pictures": [[0, 100]]}, "1 pictures"),
])
def test_what_is_wrong_is_found_out(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        camera._row("ours", seen(**changes), "")


def test_the_detectors_find_the_square() -> None:
    source = PatternSource(SourceSettings(source="test", fps=1000.0))
    source.open()
    for _ in range(5):
        source.grab()
        image = source.retrieve(Buffers())
        found = detectors.Detector(0.0)(image)
        number = int(found["labels"][0])
        assert found["boxes"] == [square(number, WIDTH, HEIGHT)]


@pytest.mark.parametrize("seconds", [0.5, exhaustive(2.0)])
@pytest.mark.parametrize("measure", [exhaustive(camera._ours), camera._other])
def test_a_design_is_seen(measure: Callable[[str], dict[str, Any]], seconds: float,
                          monkeypatch: pytest.MonkeyPatch) -> None:
    """A short look: pictures are drawn, results come, and each belongs where it says."""
    monkeypatch.setattr(camera, "SECONDS", seconds)
    monkeypatch.setattr(camera, "WARM", 0.0)
    monkeypatch.setattr(camera, "subprocess", forked_popen)
    end = time.monotonic() + PATIENCE
    while not (found := measure("fast"))["results"]:  # where little moved in those seconds, we look again
        assert time.monotonic() < end
    numbers = [number for _, number in found["pictures"]]
    assert numbers == sorted(set(numbers))
    assert all(at > taken for at, _, taken, *_ in found["results"])
    versions = dict(map(tuple, found["versions"]))
    for _, version, _, number, x in found["results"]:
        assert versions.get(version, number) == number
        assert x < 0 or abs(x - square(number, WIDTH, HEIGHT)[0]) <= 3
