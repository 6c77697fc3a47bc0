"""`annotate` between runs: which pictures its results lie over, and how they are taken away."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.annotate_cases import Overlays, texts
from support.wait import PATIENCE

import splatview
from splatview.api import frames as reading
from splatview.api import session as publishing

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.pair import OtherRun

BOXES = [[1.0, 2.0, 30.0, 40.5], [5.0, 6.0, 20.0, 20.0]]
IMAGE = torch.zeros(48, 64, 3, dtype=torch.uint8)


def own_run() -> str:
    publisher = publishing.session().run()
    assert publisher is not None
    return publisher.run_id


# ---- frames that results belong to


def test_results_belong_to_the_frames_that_they_were_computed_on(
        other_run: Callable[[], OtherRun], overlays: Overlays) -> None:
    camera = other_run()
    with splatview.frames("camera", timeout=PATIENCE) as frames:
        for n in range(10):
            camera.show(torch.full((48, 64, 3), n + 50, dtype=torch.uint8), "camera")
            frame = next(frames)
            given = {} if n % 2 else {"version": frame}
            splatview.annotate("camera", boxes=[float(frame.tensor[0, 0, 0])] * 4, **given)  # type: ignore[arg-type]
            version, meta, tensors = overlays.read(overlays.over("camera", camera.run_id), n)
            assert version == n + 1
            assert (meta["version"], meta["time_ns"]) == (frame.version, frame.time_ns)
            assert tensors["boxes"].tolist() == [[n + 50] * 4]


def test_it_arrives(overlays: Overlays) -> None:
    for _ in range(3):
        splatview.publish(IMAGE, "camera")
    splatview.annotate("camera", boxes=BOXES, labels=["person", "dog"], scores=[0.9, 0.5], motion=True, by="a test",
                       notes="hello", lines=[(0, 0), (5, 5)])
    stream = overlays.over("camera")
    assert stream.name == "camera overlay"
    version, meta, tensors = overlays.read(stream)
    assert tensors["boxes"].tolist() == BOXES
    assert texts(tensors["labels"]) == ["person", "dog"]
    assert texts(tensors["notes"]) == ["hello"]
    assert np.allclose(tensors["scores"], [0.9, 0.5])
    assert (meta["version"], meta["time_ns"], meta["motion"], meta["by"]) == (3, 0, True, "a test")
    splatview.publish(IMAGE, "camera")
    splatview.annotate("camera", boxes=BOXES[:1])
    version, meta, tensors = overlays.read(stream, version)
    assert version == 2
    assert meta["version"] == 4
    assert set(tensors) == {"boxes"}


@pytest.mark.parametrize("given", [7, np.int64(7), SimpleNamespace(version=7, time_ns=1234)])
def test_the_version_it_was_computed_on(given: Any, overlays: Overlays) -> None:
    splatview.publish(IMAGE, "camera")
    splatview.annotate("camera", boxes=BOXES, version=given)
    _, meta, _ = overlays.read(overlays.over("camera"))
    assert (meta["version"], meta["time_ns"]) == (7, 1234 if isinstance(given, SimpleNamespace) else 0)


def test_of_another_process_the_newest_frame_that_was_handed_out(overlays: Overlays) -> None:
    reading.seen |= {"camera": (41, 99, "cam-1-ab"), "own": (5, 6, "cam-1-ab")}
    splatview.annotate("camera", boxes=BOXES)
    _, meta, _ = overlays.read(overlays.over("camera", "cam-1-ab"))
    assert (meta["version"], meta["time_ns"]) == (41, 99)
    splatview.annotate("camera", boxes=BOXES, version=40)  # a number alone: of the same run
    _, meta, _ = overlays.read(overlays.over("camera", "cam-1-ab"), 1)
    assert (meta["version"], meta["time_ns"]) == (40, 0)
    splatview.publish(IMAGE, "own")
    splatview.annotate("own", boxes=BOXES)  # what this process publishes comes first
    assert overlays.read(overlays.over("own"))[1]["version"] == 1
    splatview.annotate("own", boxes=BOXES, run="cam-1-ab")
    assert overlays.read(overlays.over("own", "cam-1-ab"))[1]["version"] == 5
    splatview.annotate("own", boxes=BOXES, run="cam-2-cd")
    assert overlays.read(overlays.over("own", "cam-2-cd"), 1)[1]["version"] == 0  # the overlay of a run that ended
    splatview.annotate("own", boxes=BOXES, run=own_run())
    assert overlays.read(overlays.over("own"), 1)[1]["version"] == 1


def test_a_frame_says_which_run_it_is_of(overlays: Overlays) -> None:
    reading.seen["camera"] = 41, 99, "cam-1-ab"
    splatview.publish(IMAGE, "camera")
    splatview.annotate("camera", boxes=BOXES, version=SimpleNamespace(version=41, time_ns=99))
    assert overlays.read(overlays.over("camera", "cam-1-ab"))[1]["version"] == 41
    splatview.annotate("camera", boxes=BOXES, version=SimpleNamespace(version=3, time_ns=9, run="cam-2-cd"))
    # The overlay of a run that has ended serves the next: that is announced before its next version is there.
    assert overlays.read(overlays.over("camera", "cam-2-cd"), 1)[1]["version"] == 3
    splatview.annotate("camera", boxes=BOXES, version=SimpleNamespace(version=1, time_ns=9, run=own_run()))
    assert overlays.read(overlays.over("camera"), 2)[1]["version"] == 1


def test_only_pictures_are_drawn_over() -> None:
    scene = {"means": torch.zeros(5, 3), "quats": torch.zeros(5, 4), "scales": torch.zeros(5, 3),
             "opacities": torch.zeros(5), "sh0": torch.zeros(5, 1, 3)}
    splatview.publish(scene, "scene")
    with pytest.raises(ValueError, match="'scene' shows gaussians; only over pictures"):
        splatview.annotate("scene", boxes=BOXES)


def test_two_runs_of_one_name_have_an_overlay_each(other_run: Callable[[], OtherRun], overlays: Overlays) -> None:
    cameras = [other_run(), other_run()]
    for camera in cameras:
        camera.show(IMAGE, "camera")
    runs = [camera.run_id for camera in cameras]
    for run in runs:
        splatview.annotate("camera", boxes=BOXES, run=run, version=5)
    streams = [overlays.over("camera", run) for run in runs]
    assert [s.name for s in streams] == ["camera overlay", "camera overlay 2"]
    for n, run in enumerate(runs):
        splatview.annotate("camera", boxes=BOXES[n:], run=run, version=6)
        assert len(overlays.read(streams[n], 1)[2]["boxes"]) == 2 - n


def test_a_source_that_starts_again_keeps_the_overlay(
        other_run: Callable[[], OtherRun], overlays: Overlays) -> None:
    """However often it does, there is one stream."""
    for n in range(4):
        camera = other_run()
        camera.show(IMAGE, "camera")
        splatview.annotate("camera", boxes=BOXES, run=camera.run_id, version=n)
        assert overlays.read(overlays.over("camera", camera.run_id), n)[1]["version"] == n
        camera.close()
    assert [s.name for s in overlays.streams()] == ["camera overlay"]


# ---- how it ends


def test_it_is_taken_away(other_run: Callable[[], OtherRun], overlays: Overlays) -> None:
    cameras = [other_run(), other_run()]
    for camera in cameras:
        camera.show(IMAGE, "camera")
    runs = [camera.run_id for camera in cameras]
    for run in runs:
        splatview.annotate("camera", boxes=BOXES, labels="x", notes="y", run=run)
    splatview.annotate("other", boxes=BOXES)
    streams = [*(overlays.over("camera", run) for run in runs), overlays.over("other")]
    for stream in streams:
        overlays.read(stream)
    splatview.annotate("camera", run=runs[1])
    version, meta, tensors = overlays.read(streams[1], 1)
    assert (version, meta["version"], set(tensors)) == (2, 0, {"boxes"})
    assert not len(tensors["boxes"])
    assert [s.version for s in streams] == [1, 2, 1]
    splatview.annotate("camera")  # in every run
    assert not len(overlays.read(streams[0], 1)[2]["boxes"])
    assert [s.version for s in streams] == [2, 3, 1]
