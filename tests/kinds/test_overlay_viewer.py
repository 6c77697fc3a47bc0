"""The viewer over streams with results of detectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.viewer import Viewer

import splatview
from splatview.viewer_app.app import AppOptions
from splatview.viewer_app.events import Key, PointerMove, Screenshot
from splatview.viewer_app.screens.offscreen import OffscreenScreen
from splatview.viewer_app.views._overlay.palette import PALETTE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from splatview.viewer_app.views._overlay.layers import Layer

GREY = torch.full((120, 160, 3), 90, dtype=torch.uint8)


def camera(**meta: Any) -> None:
    splatview.publish(GREY, "camera", camera_hz=30.0, dropped=2, **meta)


def detect(x: int, number: int) -> None:
    splatview.annotate("camera", boxes=[[x, 20, x + 40, 60]], classes=[number], names=["cat", "dog", "cow"],
                       by="tester")


@pytest.fixture
def viewer() -> Iterator[Viewer]:
    app = Viewer(OffscreenScreen(700, 400), AppOptions(max_fps=500))
    yield app
    error = app.screen.ctx.error
    app.close()
    assert error == "GL_NO_ERROR"


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


def test_results_are_drawn_over_their_stream(viewer: Viewer) -> None:
    camera()
    viewer.until(lambda: viewer.seat.view is not None)
    assert not colored(viewer, 0)
    detect(30, 0)
    viewer.until(lambda: boxes(viewer) == [box(30)] and colored(viewer, 0))
    detect(70, 1)  # no other picture comes
    viewer.until(lambda: boxes(viewer) == [box(70)] and colored(viewer, 1) and not colored(viewer, 0))
    assert viewer.image.content.layers.version == 1
    assert [(e.name, e.kind) for e in viewer.state.entries] == [("camera", "image")]  # it is no entry of the list
    splatview.annotate("camera")
    viewer.until(lambda: boxes(viewer) == [] and not colored(viewer, 1))


def test_only_overlays_of_shown_streams_are_read(viewer: Viewer, tmp_path: Path) -> None:
    camera()
    detect(30, 0)
    viewer.until(lambda: boxes(viewer) == [box(30)])
    assert opened(viewer) == ["camera overlay"]
    selected = viewer.state.selected
    Image.new("RGB", (8, 6)).save(tmp_path / "other.png")
    viewer.seat.drop([str(tmp_path / "other.png")])
    viewer.until(lambda: opened(viewer) == [])
    viewer.seat.select(selected)
    viewer.until(lambda: opened(viewer) == ["camera overlay"] and boxes(viewer) == [box(30)])


def test_results_for_another_run_are_not_shown(viewer: Viewer) -> None:
    camera()
    splatview.annotate("camera", boxes=[[1, 1, 2, 2]], run="no-such-run")
    viewer.until(lambda: any(s.kind == "overlay" for s in viewer.catalogue.subscriber.streams))
    viewer.until(lambda: viewer.seat.view is not None)
    assert layers(viewer) == [] and opened(viewer) == []


def test_trouble_stands_over_the_picture(viewer: Viewer) -> None:
    camera()
    viewer.until(lambda: viewer.seat.view is not None and not viewer.seat.view.empty)
    plain = viewer.picture()
    splatview.annotate("camera", trouble="No model today")

    def troubles() -> list[str]:
        assert viewer.seat.shown is not None
        return viewer.catalogue.overlays.troubles(viewer.seat.shown)

    def at_the_top() -> bool:
        return bool((viewer.picture()[:26] != plain[:26]).any())

    viewer.until(lambda: troubles() == ["No model today"] and at_the_top())
    camera(trouble="The network is gone")
    viewer.until(lambda: troubles() == ["The network is gone", "No model today"])
    viewer.do(Key("h"), Key("h", pressed=False))  # without the panel as well
    assert viewer.picture()[:30].std() > 1
    viewer.do(Key("h"), Key("h", pressed=False))
    camera()
    splatview.annotate("camera")
    viewer.until(lambda: troubles() == [] and not at_the_top())


def test_a_screenshot_has_the_results(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[np.ndarray] = []
    monkeypatch.setattr(viewer.screen, "keep", lambda pixels, name: kept.append(pixels.astype(int)))
    camera()
    detect(30, 0)
    viewer.until(lambda: colored(viewer, 0))
    viewer.do(Screenshot())
    (pixels,) = kept
    assert pixels.shape == (400, 700, 3)
    assert (np.abs(pixels - PALETTE[0].astype(int)) <= 2).all(-1).sum() > 50
    label = pixels[40:66, 180:215]  # above the box, whose left edge is at 186
    assert (np.abs(label - (0.92 * PALETTE[0] + 0.08 * 90)) <= 4).all(-1).sum() > 100


def test_the_pointer_finds_names(viewer: Viewer) -> None:
    camera()
    detect(30, 1)
    viewer.until(lambda: colored(viewer, 1))
    rect = viewer.seat.layout()
    x, y, zoom = viewer.image.pan_zoom.placed(rect)
    viewer.do(PointerMove(x + 50 * zoom, y + 40 * zoom))
    assert viewer.image.readout == "(50, 40)   90  90  90   dog"
