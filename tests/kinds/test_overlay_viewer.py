"""The viewer over streams that others annotate: one process publishes pictures, another says what is on them."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from support.viewer import Viewer
from support.wait import PATIENCE

from splatview.viewer_app.app import AppOptions
from splatview.viewer_app.events import Key, PointerMove, Screenshot
from splatview.viewer_app.screens.offscreen import OffscreenScreen
from splatview.viewer_app.views._overlay.palette import PALETTE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.programs import Programs

    from splatview.viewer_app.views._overlay.layers import Layer

CAMERA = """
import sys, time, torch, splatview
grey = torch.full((120, 160, 3), 90, dtype=torch.uint8)
meta = {"camera_hz": 30.0, "dropped": 2}
for line in iter(lambda: sys.stdin.readline() if len(sys.argv) > 1 else "go", ""):
    if line.strip() == "trouble":
        meta["trouble"] = "The network is gone"
    elif line.strip() == "mended":
        meta.pop("trouble", None)
    splatview.publish(grey, "camera", **meta)
    print("published", flush=True)
    if len(sys.argv) == 1:
        time.sleep(0.02)
"""
"""With an argument: a picture for each line that it is told."""

DETECTOR = """
import sys, splatview
for line in sys.stdin:
    words = line.split()
    if words[0] == "clear":
        splatview.annotate("camera")
    elif words[0] == "trouble":
        splatview.annotate("camera", trouble="No model today")
    elif words[0] == "blind":
        splatview.annotate("camera", boxes=[[1, 1, 2, 2]], run="no-such-run")
    else:
        x, number = int(words[0]), int(words[1])
        splatview.annotate("camera", boxes=[[x, 20, x + 40, 60]], classes=[number], names=["cat", "dog", "cow"],
                           by="tester", version=int(words[2]) if len(words) > 2 else None)
    print("done", flush=True)
"""


@pytest.fixture
def viewer() -> Iterator[Viewer]:
    app = Viewer(OffscreenScreen(700, 400), AppOptions(max_fps=500))
    yield app
    error = app.screen.ctx.error
    app.close()
    assert error == "GL_NO_ERROR"


class Told:
    """A program that does something for each line."""

    def __init__(self, process: Any) -> None:
        self.process = process

    def __call__(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline()


@pytest.fixture
def told(programs: Programs) -> Callable[..., Told]:
    def start(code: str, *args: str) -> Told:
        return Told(programs.code(code, *args))

    return start


def layers(viewer: Viewer) -> list[Layer]:
    slot = viewer.seat.shown
    if slot is None or slot.view is None:
        return []
    return viewer.image.content.layers.all


def boxes(viewer: Viewer) -> list[list[float]]:
    return [box for layer in layers(viewer) if layer.result is not None for box in layer.result.boxes.tolist()]


def box(x: int) -> list[float]:
    return [x, 20, x + 40, 60]


def colored(viewer: Viewer, number: int) -> bool:
    return bool((np.abs(viewer.picture() - PALETTE[number].astype(int)) <= 2).all(-1).sum() > 50)


def opened(viewer: Viewer) -> list[str]:
    return [s.name for s in viewer.catalogue.subscriber.streams if s.kind == "overlay" and s._opened]


def test_it_is_seen_over_a_stream_of_another_process(viewer: Viewer, programs: Programs,
                                                     told: Callable[..., Told]) -> None:
    programs.code(CAMERA)
    viewer.until(lambda: viewer.seat.view is not None)
    assert not colored(viewer, 0)
    detector = told(DETECTOR)
    detector("30 0")
    viewer.until(lambda: boxes(viewer) == [box(30)])
    viewer.until(lambda: colored(viewer, 0))
    detector("70 1")
    viewer.until(lambda: boxes(viewer) == [box(70)])
    viewer.until(lambda: colored(viewer, 1) and not colored(viewer, 0))
    assert [(e.name, e.kind) for e in viewer.state.entries] == [("camera", "image")]  # it is no entry of the list
    detector("clear")
    viewer.until(lambda: boxes(viewer) == [])
    viewer.until(lambda: not colored(viewer, 1))


def test_a_new_result_is_drawn_though_no_picture_comes(viewer: Viewer, told: Callable[..., Told]) -> None:
    camera, detector = told(CAMERA, "when told"), told(DETECTOR)
    camera("go")
    viewer.until(lambda: viewer.seat.view is not None)
    for x, number in ((20, 0), (60, 1), (100, 2)):
        detector(f"{x} {number}")
        viewer.until(lambda n=number: colored(viewer, n))
        assert viewer.image.content.layers.version == 1
    draws = viewer.draws
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        viewer.turn()
    assert viewer.draws <= draws + 2  # and then it rests; the rates are said once more


def test_only_what_is_shown_is_read(viewer: Viewer, programs: Programs, told: Callable[..., Told],
                                    tmp_path: Path) -> None:
    programs.code(CAMERA)
    told(DETECTOR)("30 0")
    viewer.until(lambda: boxes(viewer) == [box(30)])
    assert opened(viewer) == ["camera overlay"]
    camera = viewer.state.selected
    Image.new("RGB", (8, 6)).save(tmp_path / "other.png")
    viewer.seat.drop([str(tmp_path / "other.png")])
    viewer.until(lambda: opened(viewer) == [])
    viewer.seat.select(camera)
    viewer.until(lambda: opened(viewer) == ["camera overlay"] and boxes(viewer) == [box(30)])


def test_it_survives_a_detector_that_is_killed_and_started_again(viewer: Viewer, programs: Programs,
                                                                 told: Callable[..., Told]) -> None:
    programs.code(CAMERA)
    first = told(DETECTOR)
    first("30 0")
    viewer.until(lambda: boxes(viewer) == [box(30)])
    first.process.send_signal(signal.SIGKILL)
    viewer.until(lambda: [layer.ended for layer in layers(viewer)] == [True])
    assert boxes(viewer) == [box(30)]  # what it said last stays until it is too old
    second = told(DETECTOR)
    second("60 1")
    viewer.until(lambda: boxes(viewer) == [box(60)])
    assert [layer.ended for layer in layers(viewer)] == [False]
    assert viewer.seat.shown is not None
    assert not viewer.seat.shown.entry.fault


def test_two_detectors_over_one_stream(viewer: Viewer, programs: Programs, told: Callable[..., Told]) -> None:
    programs.code(CAMERA)
    for x in (30, 90):
        told(DETECTOR)(f"{x} 0")
    viewer.until(lambda: sorted(boxes(viewer)) == [box(30), box(90)])


def test_what_belongs_to_another_run_is_not_shown(viewer: Viewer, programs: Programs,
                                                  told: Callable[..., Told]) -> None:
    programs.code(CAMERA)
    detector = told(DETECTOR)
    detector("blind")
    viewer.until(lambda: any(s.kind == "overlay" for s in viewer.catalogue.subscriber.streams))
    viewer.until(lambda: viewer.seat.view is not None)
    for _ in range(30):
        viewer.turn()
    assert layers(viewer) == []
    assert opened(viewer) == []


@pytest.mark.exhaustive
def test_a_camera_that_is_started_again(viewer: Viewer, programs: Programs, told: Callable[..., Told]) -> None:
    first, detector = programs.code(CAMERA), told(DETECTOR)
    viewer.until(lambda: viewer.seat.view is not None)
    detector("30 0")
    viewer.until(lambda: boxes(viewer) == [box(30)])
    first.kill()
    first.wait(PATIENCE)
    viewer.until(lambda: not viewer.state.entries[0].alive)
    assert boxes(viewer) == [box(30)]
    programs.code(CAMERA)
    viewer.until(lambda: viewer.state.entries[0].alive)
    detector("50 1")  # no run is named: it is the newest's
    viewer.until(lambda: boxes(viewer) == [box(50)])
    viewer.until(lambda: colored(viewer, 1))


def test_trouble_is_said_over_the_picture(viewer: Viewer, told: Callable[..., Told]) -> None:
    camera, detector = told(CAMERA, "when told"), told(DETECTOR)
    camera("go")
    viewer.until(lambda: viewer.seat.view is not None and not viewer.seat.view.empty)
    plain = viewer.picture()
    detector("trouble")

    def troubles() -> list[str]:
        assert viewer.seat.shown is not None
        return viewer.catalogue.overlays.troubles(viewer.seat.shown)

    def at_the_top() -> bool:
        return bool((viewer.picture()[:26] != plain[:26]).any())

    viewer.until(lambda: troubles() == ["No model today"] and at_the_top())
    camera("trouble")
    viewer.until(lambda: troubles() == ["The network is gone", "No model today"])
    viewer.do(Key("h"), Key("h", pressed=False))  # without the panel as well
    assert viewer.picture()[:30].std() > 1
    viewer.do(Key("h"), Key("h", pressed=False))
    camera("mended")
    detector("clear")
    viewer.until(lambda: troubles() == [])
    viewer.until(lambda: not at_the_top())


def test_a_screenshot_has_it(viewer: Viewer, told: Callable[..., Told], monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[np.ndarray] = []
    monkeypatch.setattr(viewer.screen, "keep", lambda pixels, name: kept.append(pixels.astype(int)))
    told(CAMERA, "when told")("go")
    told(DETECTOR)("30 0")
    viewer.until(lambda: colored(viewer, 0))
    viewer.do(Screenshot())
    (pixels,) = kept
    assert pixels.shape == (400, 700, 3)
    assert (np.abs(pixels - PALETTE[0].astype(int)) <= 2).all(-1).sum() > 50
    label = pixels[40:66, 180:215]  # above the box, whose left edge is at 186
    assert (np.abs(label - (0.92 * PALETTE[0] + 0.08 * 90)) <= 4).all(-1).sum() > 100


def test_the_pointer_finds_names(viewer: Viewer, told: Callable[..., Told]) -> None:
    told(CAMERA, "when told")("go")
    told(DETECTOR)("30 1")
    viewer.until(lambda: colored(viewer, 1))
    rect = viewer.seat.layout()
    x, y, zoom = viewer.image.pan_zoom.placed(rect)
    viewer.do(PointerMove(x + 50 * zoom, y + 40 * zoom))
    assert viewer.image.readout == "(50, 40)   90  90  90   dog"


@pytest.mark.exhaustive
def test_the_words_in_the_corner_are_right_in_the_end(viewer: Viewer, told: Callable[..., Told]) -> None:
    camera, detector = told(CAMERA, "when told"), told(DETECTOR)
    camera("go")
    viewer.until(lambda: viewer.seat.view is not None)
    detector("30 1 1")
    viewer.until(lambda: colored(viewer, 1))
    for _ in range(5):
        camera("go")
    viewer.until(lambda: viewer.image.content.layers.version == 6)

    def lines() -> list[str]:
        words = viewer.seat.view._words  # type: ignore[union-attr]
        return [] if words is None else words._lines

    viewer.until(lambda: len(lines()) == 2 and "result 5 frames old" in lines()[1])  # after half a second
    assert lines()[0] == "camera 30.0/s \u00b7 2 dropped"
    assert lines()[1].startswith("tester")


@pytest.mark.exhaustive
def test_a_thousand_results_a_second_do_no_harm(viewer: Viewer, programs: Programs) -> None:
    programs.code(CAMERA)
    flood = programs.code("""
import time, splatview
n = 0
while True:
    splatview.annotate("camera", boxes=[[30, 20, 70, 60]] * 20, classes=[n % 3] * 20)
    n += 1
    time.sleep(0.001)
""")
    viewer.until(lambda: len(boxes(viewer)) == 20)
    version = viewer.image.content.layers.version
    viewer.until(lambda: viewer.image.content.layers.version > version + 20)  # pictures go on
    flood.send_signal(signal.SIGSTOP)
    for _ in range(20):
        viewer.turn()
    version = viewer.image.content.layers.version
    viewer.until(lambda: viewer.image.content.layers.version > version + 5)  # also while nobody answers
    flood.send_signal(signal.SIGCONT)


def test_a_single_picture_has_it(programs: Programs, told: Callable[..., Told], tmp_path: Path) -> None:
    programs.code(CAMERA)
    detector = told(DETECTOR)
    for number in (0, 1):
        detector(f"30 {number}")
        shot = programs.splatview("shot", str(tmp_path / "out.png"), "--stream", "camera", "--size", "640x480")
        assert shot.wait(PATIENCE) == 0, shot.stderr.read()  # type: ignore[union-attr]
        pixels = np.asarray(Image.open(tmp_path / "out.png")).astype(int)
        found = (np.abs(pixels - PALETTE[number].astype(int)) <= 2).all(-1)
        assert found[80, 130:270].all()
        label = pixels[58:78, 122:140]
        assert (np.abs(label - (0.92 * PALETTE[number] + 0.08 * 90)) <= 4).all(-1).mean() > 0.5


class Ended:
    """A stream of a run that ended before anybody opened it, whose tensors lay on a GPU."""

    class Run:
        alive = False

    run, fault, sharing, refused = Run(), "", "device-ring", 0

    class info:  # noqa: N801
        ways = ("device-ring", "host")

    def open(self) -> None: ...

    def refuse(self, reason: str) -> None:
        self.refused += 1


def test_what_ended_on_a_gpu_is_not_waited_for() -> None:
    from splatview.viewer_app import overlays

    stream: Any = Ended()
    overlays._open(stream)
    assert stream.refused == 0
    Ended.Run.alive = True  # and one that offers nothing for the host
    overlays._open(stream)
    assert stream.refused == 2
