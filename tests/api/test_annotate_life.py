"""`annotate` between programs: what it belongs to, how it ends, how it behaves when much of it comes."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.annotate_cases import Overlays, texts
from support.open_files import open_files
from support.wait import PATIENCE

import splatview
from splatview import annotating, publishing, reading
from splatview.ipc import Subscriber
from splatview.ipc.limits import MAX_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.programs import Programs

pytestmark = pytest.mark.usefixtures("few_objects")

BOXES = [[1.0, 2.0, 30.0, 40.5], [5.0, 6.0, 20.0, 20.0]]
IMAGE = torch.zeros(48, 64, 3, dtype=torch.uint8)

CAMERA = """
import sys, time, torch, splatview
for i in range(int(sys.argv[1])):
    splatview.publish(torch.full((48, 64, 3), i, dtype=torch.uint8), "camera")
from splatview import publishing
print(publishing.running().run_id, flush=True)
sys.stdin.read()
"""
"""Publishes so many frames, says its run's id and waits."""


@pytest.fixture
def overlays(wait_until: Callable[..., Any]) -> Iterator[Overlays]:
    with Subscriber() as subscriber:
        yield Overlays(subscriber, wait_until)


def handed(monkeypatch: pytest.MonkeyPatch, **seen: tuple[int, int, str]) -> None:
    """Have it that `splatview.frames` handed out these frames last: version, time in ns, run."""
    monkeypatch.setattr(reading, "newest_seen", seen.get)


@pytest.fixture(autouse=True)
def _nothing_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests of this process read does not matter."""
    handed(monkeypatch)


def own_run() -> str:
    publisher = publishing.running()
    assert publisher is not None
    return publisher.run_id


# -- what it belongs to ------------------------------------------------------------------------------------------

def test_it_arrives(overlays: Overlays) -> None:
    for _ in range(3):
        splatview.publish(IMAGE, "camera")
    splatview.annotate("camera", boxes=BOXES, labels=["person", "dog"], scores=[0.9, 0.5], motion=True, by="a test",
                       notes="hello", lines=[(0, 0), (5, 5)])
    stream = overlays.over("camera")
    assert stream.name == "camera overlay"
    version, tensors, meta = overlays.read(stream)
    assert tensors["boxes"].tolist() == BOXES
    assert texts(tensors["labels"]) == ["person", "dog"]
    assert texts(tensors["notes"]) == ["hello"]
    assert np.allclose(tensors["scores"], [0.9, 0.5])
    assert (meta["version"], meta["time_ns"], meta["motion"], meta["by"]) == (3, 0, True, "a test")
    splatview.publish(IMAGE, "camera")
    splatview.annotate("camera", boxes=BOXES[:1])
    version, tensors, meta = overlays.read(stream, version)
    assert version == 2
    assert meta["version"] == 4
    assert set(tensors) == {"boxes"}


@pytest.mark.parametrize("given", [7, np.int64(7), SimpleNamespace(version=7, time_ns=1234)])
def test_the_version_it_was_computed_on(given: Any, overlays: Overlays) -> None:
    splatview.publish(IMAGE, "camera")
    splatview.annotate("camera", boxes=BOXES, version=given)
    _, _, meta = overlays.read(overlays.over("camera"))
    assert (meta["version"], meta["time_ns"]) == (7, 1234 if isinstance(given, SimpleNamespace) else 0)


def test_of_another_process_the_newest_frame_that_was_handed_out(
        overlays: Overlays, monkeypatch: pytest.MonkeyPatch) -> None:
    handed(monkeypatch, camera=(41, 99, "cam-1-ab"), own=(5, 6, "cam-1-ab"))
    splatview.annotate("camera", boxes=BOXES)
    _, _, meta = overlays.read(overlays.over("camera", "cam-1-ab"))
    assert (meta["version"], meta["time_ns"]) == (41, 99)
    splatview.annotate("camera", boxes=BOXES, version=40)  # a number alone: of the same run
    _, _, meta = overlays.read(overlays.over("camera", "cam-1-ab"), 1)
    assert (meta["version"], meta["time_ns"]) == (40, 0)
    splatview.publish(IMAGE, "own")
    splatview.annotate("own", boxes=BOXES)  # what this process publishes comes first
    assert overlays.read(overlays.over("own"))[2]["version"] == 1
    splatview.annotate("own", boxes=BOXES, run="cam-1-ab")
    assert overlays.read(overlays.over("own", "cam-1-ab"))[2]["version"] == 5
    splatview.annotate("own", boxes=BOXES, run="cam-2-cd")
    assert overlays.read(overlays.over("own", "cam-2-cd"), 1)[2]["version"] == 0  # the overlay of a run that ended
    splatview.annotate("own", boxes=BOXES, run=own_run())
    assert overlays.read(overlays.over("own"), 1)[2]["version"] == 1


def test_a_frame_says_which_run_it_is_of(overlays: Overlays, monkeypatch: pytest.MonkeyPatch) -> None:
    handed(monkeypatch, camera=(41, 99, "cam-1-ab"))
    splatview.publish(IMAGE, "camera")
    splatview.annotate("camera", boxes=BOXES, version=SimpleNamespace(version=41, time_ns=99))
    assert overlays.read(overlays.over("camera", "cam-1-ab"))[2]["version"] == 41
    splatview.annotate("camera", boxes=BOXES, version=SimpleNamespace(version=3, time_ns=9, run="cam-2-cd"))
    # The overlay of a run that has ended serves the next: that is announced before its next version is there.
    assert overlays.read(overlays.over("camera", "cam-2-cd"), 1)[2]["version"] == 3
    splatview.annotate("camera", boxes=BOXES, version=SimpleNamespace(version=1, time_ns=9, run=own_run()))
    assert overlays.read(overlays.over("camera"), 2)[2]["version"] == 1


def test_a_stream_that_nobody_knows_yet(overlays: Overlays) -> None:
    splatview.annotate("later", boxes=BOXES)
    stream = overlays.over("later")
    _, _, meta = overlays.read(stream)
    assert (meta["version"], meta["time_ns"]) == (0, 0)
    splatview.publish(IMAGE, "later")
    splatview.annotate("later", boxes=BOXES)
    assert overlays.read(stream, 1)[2]["version"] == 1


def test_only_pictures_are_drawn_over() -> None:
    scene = {"means": torch.zeros(5, 3), "quats": torch.zeros(5, 4), "scales": torch.zeros(5, 3),
             "opacities": torch.zeros(5), "sh0": torch.zeros(5, 1, 3)}
    splatview.publish(scene, "scene")
    with pytest.raises(ValueError, match="'scene' shows gaussians; only over pictures"):
        splatview.annotate("scene", boxes=BOXES)


def test_two_runs_of_one_name_have_an_overlay_each(programs: Programs, overlays: Overlays) -> None:
    cameras = [programs.code(CAMERA, "1") for _ in range(2)]
    runs = [camera.stdout.readline().strip() for camera in cameras]  # type: ignore[union-attr]
    for run in runs:
        splatview.annotate("camera", boxes=BOXES, run=run, version=5)
    streams = [overlays.over("camera", run) for run in runs]
    assert [s.name for s in streams] == ["camera overlay", "camera overlay 2"]
    for n, run in enumerate(runs):
        splatview.annotate("camera", boxes=BOXES[n:], run=run, version=6)
        assert len(overlays.read(streams[n], 1)[1]["boxes"]) == 2 - n


def test_a_source_that_starts_again_keeps_the_overlay(programs: Programs, overlays: Overlays) -> None:
    """However often it does, there is one stream."""
    publishing.running()
    for n in range(4):
        camera = programs.code(CAMERA, "1")
        run = camera.stdout.readline().strip()  # type: ignore[union-attr]
        splatview.annotate("camera", boxes=BOXES, run=run, version=n)
        assert overlays.read(overlays.over("camera", run), n)[2]["version"] == n
        camera.kill()
        camera.wait()
    assert [s.name for s in overlays.streams()] == ["camera overlay"]


def test_names_that_are_taken_or_long(overlays: Overlays) -> None:
    splatview.publish(IMAGE, "camera overlay")
    splatview.annotate("camera", boxes=BOXES)
    assert overlays.over("camera").name == "camera overlay 2"
    for end in "ab":
        name = "x" * (MAX_NAME - 1) + end
        splatview.publish(IMAGE, name)
        splatview.annotate(name, boxes=BOXES)
        overlays.read(overlays.over(name))
    assert {len(s.name) for s in overlays.streams()} == {MAX_NAME, len("camera overlay 2")}


def test_too_many_streams_are_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="one too many"):
        for n in range(300):
            splatview.annotate(f"stream {n}", boxes=BOXES)


# -- how it ends -------------------------------------------------------------------------------------------------

def test_it_is_taken_away(programs: Programs, overlays: Overlays) -> None:
    cameras = [programs.code(CAMERA, "1") for _ in range(2)]
    runs = [camera.stdout.readline().strip() for camera in cameras]  # type: ignore[union-attr]
    for run in runs:
        splatview.annotate("camera", boxes=BOXES, labels="x", notes="y", run=run)
    splatview.annotate("other", boxes=BOXES)
    streams = [*(overlays.over("camera", run) for run in runs), overlays.over("other")]
    for stream in streams:
        overlays.read(stream)
    splatview.annotate("camera", run=runs[1])
    version, tensors, meta = overlays.read(streams[1], 1)
    assert (version, meta["version"], set(tensors)) == (2, 0, {"boxes"})
    assert not len(tensors["boxes"])
    assert [s.version for s in streams] == [1, 2, 1]
    splatview.annotate("camera")  # in every run
    assert not len(overlays.read(streams[0], 1)[1]["boxes"])
    assert [s.version for s in streams] == [2, 3, 1]


def test_taking_away_what_is_not_there_makes_nothing(runtime_dir: Any) -> None:
    splatview.annotate("camera")
    assert publishing._publisher is None
    splatview.publish(IMAGE, "camera")
    splatview.annotate("camera")
    assert list(publishing._publisher.streams) == ["camera"]  # type: ignore[union-attr]


def test_a_result_of_nothing_is_a_result(overlays: Overlays) -> None:
    splatview.publish(IMAGE, "camera")
    splatview.annotate("camera", boxes=[])
    assert overlays.read(overlays.over("camera"))[2]["version"] == 1
    splatview.annotate("camera", trouble="the network does not load")
    assert overlays.read(overlays.over("camera"), 1)[2]["trouble"] == "the network does not load"


def test_after_close_a_new_run_begins(overlays: Overlays, wait_until: Callable[..., Any]) -> None:
    splatview.annotate("camera", boxes=BOXES)
    overlays.over("camera")
    before = own_run()
    splatview.close()
    wait_until(lambda: not overlays.streams())
    splatview.annotate("camera", boxes=BOXES)
    overlays.read(overlays.over("camera"))
    assert own_run() != before


def test_nothing_is_left_open(wait_until: Callable[..., Any]) -> None:
    def annotate() -> None:
        for count in (0, 10, 1000):
            splatview.annotate("camera", boxes=np.zeros((count, 4)), masks=np.zeros((count, 8, 8), bool))
        splatview.close()
        gc.collect()

    annotate()
    before = open_files()
    for _ in range(5):
        annotate()
    wait_until(lambda: open_files() <= before)


def test_a_forked_child_has_its_own(overlays: Overlays) -> None:
    splatview.publish(IMAGE, "camera")
    splatview.annotate("camera", boxes=BOXES)
    mine = own_run()
    with annotating._lock:  # as if another thread were at it
        child = os.fork()
    if not child:
        try:
            splatview.annotate("camera", boxes=BOXES, version=77)
            os._exit(0 if own_run() != mine else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert overlays.read(overlays.over("camera"))[2]["version"] == 1
    splatview.annotate("camera", boxes=BOXES)
    assert overlays.read(overlays.over("camera"), 1)[0] == 2


def test_a_script_that_ends_at_once(programs: Programs) -> None:
    done = programs.code("import splatview; splatview.annotate('camera', boxes=[[0, 0, 5, 5]], labels='x')")
    assert done.wait(PATIENCE) == 0
    assert done.stderr.read() == ""  # type: ignore[union-attr]


# -- much of it --------------------------------------------------------------------------------------------------

@pytest.mark.exhaustive
def test_as_many_as_come_and_from_several_threads(overlays: Overlays) -> None:
    """Each overlay that arrives is whole: all of it is of one call."""
    splatview.publish(IMAGE, "camera")
    splatview.annotate("camera", boxes=np.zeros((1, 4)), labels=["1"], version=1)
    stream = overlays.over("camera")
    failed: list[BaseException] = []

    def annotate(first: int) -> None:
        try:
            for n in range(first, 2000, 3):
                count = 1 + n % 60
                splatview.annotate("camera", boxes=np.full((count, 4), n), labels=[str(n)] * count, version=n,
                                   scores=np.full(count, n) if n % 2 else None)
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=annotate, args=(first,)) for first in (1, 2, 3)]
    for thread in threads:
        thread.start()
    version = 0
    while version < 2000:
        version, tensors, meta = overlays.read(stream, version)
        n = meta["version"]
        if version > 1:
            assert tensors["boxes"].tolist() == [[n] * 4] * (1 + n % 60)
            assert texts(tensors["labels"]) == [str(n)] * (1 + n % 60)
            assert ("scores" in tensors) == bool(n % 2)
            assert "scores" not in tensors or (tensors["scores"] == n).all()
    for thread in threads:
        thread.join()
    assert not failed
    assert version == 2000
    assert len([fd for fd in os.listdir("/proc/self/fd")]) < 200


def test_what_viewers_are_told_does_not_change_with_every_result(
        overlays: Overlays, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream is announced once, whatever is in the results."""
    splatview.publish(IMAGE, "camera")
    splatview.annotate("camera", boxes=BOXES)
    stream = overlays.over("camera")
    overlays.read(stream)
    announced: list[int] = []
    publisher = publishing._publisher
    monkeypatch.setattr(publisher, "announce", lambda: announced.append(1))
    for n in range(50):
        splatview.annotate("camera", boxes=np.zeros((n, 4)), labels="x" if n % 2 else None, notes=[(0, 0, "y")] * n)
    assert overlays.read(stream, 50)[0] == 51
    assert not announced
    assert len(annotating._forms) <= annotating._MOST_FORMS


def test_large_results_do_not_leave_memory_behind(overlays: Overlays, wait_until: Callable[..., Any]) -> None:
    """Rings grow with what they carry; the smaller ones are given back."""
    def rings() -> int:
        count = 0
        for fd, *_ in open_files():
            with contextlib.suppress(OSError):  # closed meanwhile
                count += "splatview-ring" in os.readlink(f"/proc/self/fd/{fd}")
        return count

    splatview.publish(IMAGE, "camera")
    splatview.annotate("camera", boxes=BOXES)
    stream = overlays.over("camera")
    version, _, _ = overlays.read(stream)
    there = rings()
    for n in range(1, 30):
        splatview.annotate("camera", boxes=np.zeros((n * 100, 4)), masks=np.zeros((n * 100, 10, 10), np.uint8))
        version, tensors, _ = overlays.read(stream, version)
        assert len(tensors["masks"]) == n * 100
    wait_until(lambda: rings() <= there)
    before = open_files()
    for n in range(1, 30):
        splatview.annotate("camera", boxes=np.zeros((n * 100, 4)))
        version, _, _ = overlays.read(stream, version)
    wait_until(lambda: open_files() <= before)


def test_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLATVIEW_DISABLE", "1")
    splatview.annotate("camera", boxes="nonsense")
    assert publishing._publisher is None


def test_surroundings_that_allow_nothing_are_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Any,
                                                      caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", str(tmp_path / "file" / "folder"))
    for _ in range(3):
        splatview.annotate("camera", boxes=BOXES)
    assert "training goes on" in caplog.text
    with pytest.raises(ValueError, match="boxes have shape"):
        splatview.annotate("camera", boxes=[1, 2])
    monkeypatch.setenv("SPLATVIEW_STRICT", "1")
    splatview.close()
    with pytest.raises(Exception, match="runtime folder"):
        splatview.annotate("camera", boxes=BOXES)


def test_status_tells_over_what_it_lies(overlays: Overlays) -> None:
    splatview.publish(IMAGE, "camera")
    splatview.annotate("camera", boxes=BOXES)
    splatview.annotate("webcam", boxes=BOXES, run="cam-1-ab")
    overlays.over("camera")
    done = subprocess.run([sys.executable, "-m", "splatview", "status"], capture_output=True, text=True,
                          timeout=PATIENCE, check=True)
    lines = {line.split("  ")[1]: line for line in done.stdout.splitlines() if line.startswith("  ")}
    assert "overlay    version 1" in lines["camera overlay"]
    assert "over camera, on cpu, shared by ring" in lines["camera overlay"]
    assert "over webcam of run cam-1-ab, on cpu" in lines["webcam overlay"]
