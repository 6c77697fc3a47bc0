"""Painting by another program while a viewer opens its window."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from open_files import open_files
from patience import PATIENCE
from timeline_cases import any_paint, random_trace

from splatview.viewer_app import memory
from splatview.viewer_app.memory.timeline import Addresses, Axis, Bands, Canvas, _ready, lanes
from splatview.viewer_app.memory.timeline._child import ChildError, Painter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


pytestmark = pytest.mark.usefixtures("timeline_kernels")  # so that the program only has to load them


@pytest.fixture
def painter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Painter]:
    """As it is while a viewer opens: own kernels are not there yet."""
    painter = Painter(60.0)
    monkeypatch.setattr(_ready, "_done", threading.Event())
    monkeypatch.setattr(_ready, "_begun", time.monotonic() - 100.0)
    monkeypatch.setattr(_ready, "_painter", painter)
    yield painter
    painter.close()


def painted(seed: int, parts: int = 2) -> list[np.ndarray]:
    """Pictures of a trace, painted by as many threads at once as there are parts."""
    trace = random_trace(seed, 500)
    paint = any_paint(trace, seed, lit=seed % 2 == 0)
    edges = Axis(trace, "events").edges(3, 470, 90)
    bands, addresses = Bands(trace), Addresses(trace)
    moments, out = bands.peaks(edges), [bands.live]
    moments[40:43] = -1
    for layer in (bands, addresses, *(lane.bands for lane in lanes(trace, []))):
        canvas = Canvas(90, 70)
        threads = [threading.Thread(target=layer.paint, args=(
            canvas, slice(90 * i // parts, 90 * (i + 1) // parts), moments, 100.0, 3e5 / 70, paint))
            for i in range(parts)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        out += [canvas.rgba, canvas.ids]
    canvas = Canvas(90, 70)
    bands.paint(canvas, slice(5, 5), moments, 0.0, 1.0, paint)  # nothing
    bands.paint(canvas, slice(20, 60), moments, 0.0, 7e3, paint, np.arange(90) * 1000)
    return [*out, canvas.rgba, canvas.ids]


def ask(painter: Painter, name: str = "paint_bands") -> np.ndarray:
    """One call."""
    none, empty = np.empty(0, np.int32), np.empty(0, np.int64)
    index = (none, none, np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(2, np.int64), none, none, none)
    inks = (np.empty(0, np.uint16), np.empty(0, np.uint8), np.zeros((2, 3)), np.full((2, 3), 9.0))
    canvas = np.zeros((4, 5), np.uint32), np.zeros((4, 5), np.int32)
    room = (np.zeros(256, np.int32), np.zeros(256, np.int32), np.zeros(256), np.zeros((16, 4)), np.zeros((1, 4)), none)
    painter.paint(name, (index, empty, none, inks, (np.zeros(4, np.int32), empty, 0.0, 1.0), (1, 3), canvas, room))
    return canvas[0]


@pytest.mark.parametrize("parts", [1, 2, 7])
@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_painted_there_looks_as_painted_here(seed: int, parts: int, painter: Painter) -> None:
    there = painted(seed, parts)
    assert painter._painted is not None and not painter._closed
    _ready._done.set()
    for theirs, ours in zip(there, painted(seed), strict=True):
        np.testing.assert_array_equal(theirs, ours)


def test_when_the_painter_dies_it_is_done_here(painter: Painter) -> None:
    os.kill(painter._process.pid, signal.SIGKILL)
    plain = painted(4)  # by numpy: the own kernels are not there either
    assert painter._closed and painter._process.returncode is not None
    _ready._done.set()
    for ours, kernels in zip(plain, painted(4), strict=True):
        np.testing.assert_allclose(ours.astype(float), kernels, atol=float(ours.dtype == np.uint8))


def test_a_painter_that_does_not_answer_is_left_alone(painter: Painter) -> None:
    assert ask(painter)[:, 0].tolist() == [0, 0xFF090909, 0xFF090909, 0]  # it runs, and paints what it is asked for
    os.kill(painter._process.pid, signal.SIGSTOP)
    painter._socket.settimeout(0.2)
    for words in (r"timed out|TimeoutError", "given back"):
        with pytest.raises(ChildError, match=words):
            ask(painter)
    assert painter._process.returncode == -signal.SIGKILL


def test_its_faults_are_told_and_it_goes_on(painter: Painter) -> None:
    with pytest.raises(ChildError, match="KeyError: 'absent'"):
        ask(painter, "absent")
    with pytest.raises(ChildError, match="TypeError"):
        ask(painter, "paint_addresses")
    assert ask(painter)[1, 0] == 0xFF090909


def test_it_is_given_back_when_own_kernels_are_there(painter: Painter) -> None:
    pid = painter._process.pid
    thread = threading.Thread(target=_ready.warm_up)
    thread.start()
    painted(5)  # as if it were the first picture
    assert painter._painted is not None
    thread.join(PATIENCE)
    assert _ready._done.is_set() and not _ready.painter_is_used()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert painter._socket.fileno() == -1


def test_it_ends_with_its_viewer() -> None:
    code = """import os
from splatview.viewer_app.memory.timeline._child import Painter
print(Painter(30.0)._process.pid, flush=True)
os.kill(os.getpid(), 9)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    pid, end = int(done.stdout), time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if stat.read().rpartition(")")[2].split()[0] == "Z":  # nobody waits for it in a container
                    return
        except OSError:
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("it went on")


def test_without_another_program_everything_is_painted_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/absent/python")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(_ready, "_done", threading.Event())
    monkeypatch.setattr(_ready, "_painter", None)
    before = open_files()
    _ready.start_painter()
    assert not _ready.painter_is_used()
    assert open_files() <= before


@pytest.mark.parametrize(("processors", "compiled", "size", "there"), [
    (2, True, 1 << 20, True), (1, True, 1 << 20, False), (2, False, 1 << 20, False), (2, True, 10, False),
])
def test_when_another_program_paints(processors: int, compiled: bool, size: int, there: bool, tmp_path: Path,
                               monkeypatch: pytest.MonkeyPatch) -> None:
    """For a short file, on two processors, where they were compiled before."""
    path = tmp_path / "short.pickle"
    from benchmarks.memory.traces import write_trace

    write_trace(path, 200, layers=2)
    made: list[float] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(processors)))
    monkeypatch.setattr(_ready, "_done", threading.Event())
    monkeypatch.setattr(_ready, "_painter", None)
    monkeypatch.setattr(_ready, "Painter", lambda patience: made.append(patience))
    monkeypatch.setattr(_ready, "kept", lambda beside, module: compiled)
    monkeypatch.setattr(memory, "_SHORT", size)
    monkeypatch.setattr("splatview.viewer_app.memory.timeline.warm_up", lambda: None)
    memory.expect(path)
    assert bool(made) is there
