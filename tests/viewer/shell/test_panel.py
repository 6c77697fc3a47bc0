"""The loop and the panel of the viewer, driven by events as a user would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from signal import SIGTERM
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.viewer import PICTURE, SIZE, Viewer, picture_of
from support.wait import clock, wait_until

from splatview_viewer.app.loop import run, step
from splatview_viewer.core.events import (
    Close,
    Key,
    PointerLeave,
    PointerMove,
    PointerPress,
    PointerRelease,
    Wheel,
)
from splatview_viewer.core.settings import State, Timings
from splatview_viewer.core.view import TABS, Info
from splatview_viewer.geometry.pan_zoom import FITTED
from splatview_viewer.kinds.image.view import ImageView
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.shell.overlay import status_phrases
from splatview_viewer.shell.zones import Wishes


@pytest.fixture
def picture_file(tmp_path: Path) -> Path:
    """Write a picture that fills what the interface leaves of the window.

    No two rows or columns are alike.
    """
    y, x = np.mgrid[0 : PICTURE.height, 0 : PICTURE.width]
    channels = [x * 255 // x.max(), y * 255 // y.max(), (x + y) % 256]
    path = tmp_path / "picture.png"
    Image.fromarray(np.stack(channels, -1).astype(np.uint8)).save(path)
    return path


@pytest.fixture
def showing(viewer: Viewer, picture_file: Path) -> Viewer:
    viewer.catalogue.open_file(picture_file)
    viewer.until(viewer.loaded)
    return viewer


def assert_exact(viewer: Viewer, file: Path) -> None:
    np.testing.assert_array_equal(viewer.picture(), np.asarray(Image.open(file)))


def test_picture_fills_what_the_interface_leaves_and_the_panel_can_be_hidden(
    showing: Viewer, picture_file: Path
) -> None:
    viewer = showing
    assert viewer.user.layout.active.rect == PICTURE
    assert_exact(viewer, picture_file)
    initial = viewer.picture()
    viewer.do(Key("h"), Key("h", pressed=False))
    # The strip above and the time area below it stay.
    rect = picture_of(SIZE, Wishes(panel=False))
    assert viewer.user.layout.active.rect == rect
    assert (rect.x, rect.width) == (0, SIZE[0])
    assert (rect.y, rect.height) == (PICTURE.y, PICTURE.height)
    pane_pixels = viewer.pixels()[PICTURE.y :, : PICTURE.x]
    viewer.do(Key("h"), Key("h", pressed=False), PointerLeave())
    assert (viewer.pixels()[PICTURE.y :, : PICTURE.x] != pane_pixels).any()
    np.testing.assert_array_equal(viewer.picture(), initial)


def test_tab_moves_the_focus_and_leaves_the_panel_open(showing: Viewer) -> None:
    viewer = showing
    initial = viewer.picture()
    viewer.do(Key("tab"), Key("tab", pressed=False))
    assert viewer.user.has_panel
    np.testing.assert_array_equal(viewer.picture(), initial)


def test_click_in_the_list_shows_its_entry(
    showing: Viewer, picture_file: Path, tmp_path: Path
) -> None:
    viewer = showing
    second_file = tmp_path / "other.png"
    Image.new("RGB", (PICTURE.width, PICTURE.height), (10, 200, 30)).save(second_file)
    viewer.catalogue.open_file(second_file)
    viewer.until(viewer.loaded)
    assert viewer.state.selected == str(picture_file)
    for file in (second_file, picture_file):
        viewer.click(str(file))
        viewer.until(viewer.loaded)
        assert viewer.state.selected == str(file)
        assert_exact(viewer, file)


def test_events_go_to_the_picture_or_to_the_panel(showing: Viewer) -> None:
    viewer = showing
    x = PICTURE.x + 200
    # The wheel is over the panel.
    viewer.do(Wheel(100, 400, 2))
    assert viewer.image.state.place == FITTED
    viewer.do(Wheel(x, 300, 2))
    zoom = viewer.image.zoom
    assert zoom == pytest.approx(1.2**2)
    viewer.do(PointerMove(x, 300), PointerPress(x, 300))
    # A drag of the picture continues over the panel.
    viewer.do(PointerMove(x - 100, 300), PointerMove(100, 300))
    center = viewer.image.state.place.center
    viewer.do(PointerRelease(100, 300))
    viewer.do(PointerMove(x - 50, 300))
    assert viewer.image.state.place.center == center
    viewer.do(PointerMove(100, 300), PointerPress(100, 400))
    # A drag that started in the panel is the panel's.
    viewer.do(PointerMove(x, 300), PointerRelease(x, 300))
    assert viewer.image.state.place.center == center


def test_damaged_file_is_reported_and_nothing_else_suffers(
    viewer: Viewer, picture_file: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.ply"
    bad.write_bytes(b"ply\nformat binary_little_endian 1.0\nelement vertex 5\n")
    viewer.catalogue.open_file(bad)
    viewer.catalogue.open_file(tmp_path / "missing.png")

    def has_read_all() -> bool:
        return all(entry.progress is None for entry in viewer.state.entries)

    viewer.until(has_read_all)
    damaged, missing = viewer.state.entries
    assert damaged.fault_of_source
    assert "no such file" in missing.fault_of_source
    viewer.do()
    # The viewport shows the message.
    assert viewer.picture().std() > 1
    viewer.catalogue.open_file(picture_file, viewer.user.layout.active)
    viewer.until(viewer.loaded)
    assert_exact(viewer, picture_file)


def test_fault_in_a_view_is_shown_and_logged_once(
    viewer: Viewer,
    picture_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("the shader is cross")

    with monkeypatch.context() as failing:
        failing.setattr(ImageView, "draw", fail)
        viewer.catalogue.open_file(picture_file)
        viewer.until(viewer.loaded)
        for x in range(3):
            viewer.do(PointerMove(PICTURE.x + x, PICTURE.y + 26))
        assert viewer.state.selected_entry is not None
        assert viewer.state.selected_entry.fault == "the shader is cross"
        assert caplog.text.count("the shader is cross") == 1
        assert not viewer.user.dirty
    # A click tries to draw it again.
    viewer.click(str(picture_file))
    assert viewer.state.selected_entry.fault == ""
    assert_exact(viewer, picture_file)


def close_screen(viewer: Viewer) -> None:
    viewer.screen.push(Close())


def leave_running(viewer: Viewer) -> None:
    pass


@pytest.mark.parametrize(
    ("end", "signals"),
    [(close_screen, ()), (Viewer.stop, ()), (leave_running, [SIGTERM])],
)
def test_loop_ends_by_its_screen_a_call_or_a_signal(
    end: Callable[[Viewer], None], signals: Any
) -> None:
    viewer = Viewer(OffscreenScreen(*SIZE))
    end(viewer)
    run(viewer, signals)
    assert viewer.screen.state.closed
    viewer.close()


def test_viewer_at_rest_draws_nothing(showing: Viewer) -> None:
    viewer = showing
    # The panel would show the rate of the pictures drawn until now.
    viewer.user.interface.state.panel_open = False

    def rests() -> bool:
        drawn = viewer.user.pace.drawn_at
        step(viewer)
        return viewer.user.pace.drawn_at == drawn

    viewer.until(rests)


@pytest.mark.parametrize("viewer", [{"max_fps": 20}], indirect=True)
def test_max_fps_is_kept(viewer: Viewer) -> None:
    def may_draw() -> bool:
        return viewer.user.may_draw(clock()) <= clock()

    wait_until(may_draw)
    now = clock()
    viewer.user.draw(now)
    viewer.user.present(now)
    viewer.user.mark()
    assert not viewer.user.due(now)
    assert now + 0.5 / 20 <= viewer.user.may_draw(now) <= now + 1 / 20
    assert viewer.user.due(now + 1 / 20)


def test_each_tab_has_its_own_sections_prepared_and_no_others(
    viewer: Viewer, picture_file: Path
) -> None:
    viewer.catalogue.open_file(picture_file)
    viewer.until(viewer.loaded)
    view = viewer.user.view
    assert view is not None
    sections = {tab: view.sections_of(tab) for tab in TABS}
    for tab, prepared in sections.items():
        assert {section.tab for section in prepared} <= {tab}
    assert sum(map(len, sections.values())) == len(view.sections) > 0


def test_share_of_the_gpu_tells_what_functions_took() -> None:
    timings = Timings(gpu_share=0.09, gpu_budget=0.1, worker_share=0.06)
    phrases = status_phrases(State(displayed_timings=timings), Info())
    assert phrases == ["GPU share 9% of 10%, 6% by functions"]
