"""A failing part of the picture is reported in its place.

The picture, the panel and other users continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from imgui_bundle import ImVec2, imgui, implot
from PIL import Image
from support import widgets
from support.house import House
from support.viewer import PICTURE, Viewer

from splatview_viewer.core import events as ev
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import Section
from splatview_viewer.kinds.image.view import ImageView
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.shell.surface import Surface
from splatview_viewer.ui.boards import board
from splatview_viewer.ui.recovery import Faults
from splatview_viewer.workspace.feature import Feature


class ExtraSections(Feature):
    """Feature that adds sections to the panel, as comparisons do."""

    def __init__(self, *sections: Section) -> None:
        self.added = sections

    def sections(self, viewport: Any) -> Sequence[Section]:
        if not self.added:
            raise RuntimeError("no sections today")
        return self.added


def leave_all_open() -> bool:
    """Raise amid everything that imgui and ImPlot have begin and end for."""
    imgui.begin_group()
    imgui.push_id("open")
    imgui.push_style_var(imgui.StyleVar_.alpha, 0.5)
    imgui.begin_child("child")
    imgui.begin_table("table", 2)
    imgui.table_next_column()
    implot.begin_plot("plot", ImVec2(50, 40))
    imgui.begin("window")
    raise RuntimeError("the sensor is cross")


def close_too_much() -> bool:
    imgui.pop_id()
    imgui.end()
    imgui.end()
    return False


def draw_button() -> bool:
    imgui.button("Well")
    return False


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the texts that imgui has drawn since the list was cleared."""
    written: list[str] = []
    draw_text = imgui.text_unformatted

    def record_text(text: str, *arguments: Any) -> None:
        written.append(text)
        draw_text(text, *arguments)

    monkeypatch.setattr(imgui, "text_unformatted", record_text)
    return written


@pytest.fixture
def showing(viewer: Viewer, tmp_path: Path) -> Viewer:
    path = tmp_path / "picture.png"
    Image.new("RGB", (620, 494), (200, 120, 40)).save(path)
    viewer.catalogue.open_file(path)
    viewer.until(viewer.loaded)
    return viewer


def redraw(viewer: Viewer, texts: list[str]) -> str:
    texts.clear()
    viewer.user.mark(3)
    viewer.do()
    return "\n".join(texts)


@pytest.mark.parametrize(
    ("fail", "reason"),
    [(leave_all_open, "the sensor is cross"), (close_too_much, "IM_ASSERT")],
)
def test_failing_section_shows_its_reason_and_nothing_else_suffers(
    showing: Viewer,
    texts: list[str],
    caplog: pytest.LogCaptureFixture,
    fail: Callable[[], bool],
    reason: str,
) -> None:
    viewer = showing
    initial = viewer.picture()
    viewer.catalogue.features.append(
        ExtraSections(Section("Bad", fail, True), Section("Good", draw_button, True))
    )
    for _ in range(3):
        assert reason in redraw(viewer, texts)
    assert caplog.text.count(reason) == 1
    assert viewer.state.selected_entry is not None
    assert not viewer.state.selected_entry.fault
    np.testing.assert_array_equal(viewer.picture(), initial)
    assert widgets.drawn["Well"].width > 0
    viewer.catalogue.features.pop()
    assert reason not in redraw(viewer, texts)


def test_section_recovers_once_it_no_longer_fails(
    showing: Viewer, texts: list[str]
) -> None:
    draw: Callable[[], bool] = leave_all_open

    def draw_section() -> bool:
        return draw()

    showing.catalogue.features.append(ExtraSections(Section("Bad", draw_section, True)))
    assert "the sensor is cross" in redraw(showing, texts)
    draw = draw_button
    assert "the sensor is cross" not in redraw(showing, texts)


def test_failing_list_of_sections_is_reported_in_the_panel(
    showing: Viewer, texts: list[str]
) -> None:
    showing.catalogue.features.append(ExtraSections())
    assert "no sections today" in redraw(showing, texts)
    assert showing.image.state is not None
    assert "no sections today" in redraw(showing, texts)


def test_failing_overlay_leaves_the_picture(
    showing: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewer = showing
    initial = viewer.picture()

    def fail(*_: Any) -> bool:
        return leave_all_open()

    with monkeypatch.context() as failing:
        failing.setattr(ImageView, "ui", fail)
        viewer.user.mark(3)
        viewer.do()
        faults = viewer.user.layout.active.faults
        assert "the sensor is cross" in faults.reason("overlay")
        assert viewer.state.selected_entry is not None
        assert not viewer.state.selected_entry.fault
        changed = (viewer.picture() != initial).any(axis=2)
        # A card shows the reason.
        assert 0.001 < changed.mean() < 0.3
    viewer.user.mark(3)
    viewer.do()
    np.testing.assert_array_equal(viewer.picture(), initial)


def test_failing_event_is_reported_to_its_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "picture.png"
    Image.new("RGB", (60, 40), (200, 120, 40)).save(path)
    with House(path) as house:
        first = house.page()
        second = house.page()
        house.final_picture(first)
        initial = house.final_picture(second)

        def fail(*_: Any) -> bool:
            raise RuntimeError("no such gesture")

        with monkeypatch.context() as failing:
            failing.setattr(ImageView, "handle", fail)
            for x in range(4):
                first.send(ev.Wheel(x=500 + x, y=200, dy=1))

            def has_toast() -> bool:
                return bool(house.app.users[0].state.toasts)

            house.until(has_toast)
        # What is around the picture tells times.
        picture = np.s_[74:420, 340:]
        final = house.final_picture(second)
        np.testing.assert_array_equal(final[picture], initial[picture])
        assert not any(entry.fault for entry in house.app.catalogue.entries)
        assert "no such gesture" in house.app.users[0].state.toasts[0].text
        assert not house.app.users[1].state.toasts
        assert caplog.text.count("no such gesture") == 1


def test_failing_command_is_reported_and_the_next_is_executed(
    showing: Viewer, caplog: pytest.LogCaptureFixture
) -> None:
    executed = []

    def rename_all() -> None:
        raise KeyError("no such name")

    def has_executed() -> bool:
        return bool(executed)

    for _ in range(3):
        showing.catalogue.do(rename_all)
    showing.catalogue.do(executed.append, True)
    showing.until(has_executed)
    assert executed == [True]
    assert showing.state.notices == ["rename all failed: 'no such name'"]
    assert caplog.text.count("no such name") == 1


def test_user_that_cannot_be_drawn_ends_no_other(
    showing: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("no such corner")

    with monkeypatch.context() as failing:
        failing.setattr("splatview_viewer.shell.interface.draw_strips", fail)
        showing.user.mark(3)
        showing.do()
        failing.setattr("splatview_viewer.shell.user_pictures.caption_of", fail)
        showing.user.mark(3)
        showing.do()
    assert showing.user.interface.faults.reason("strips") == "no such corner"
    assert showing.state.notices == [
        "drawing the strips failed: no such corner",
        "drawing a picture failed: no such corner",
    ]
    showing.do(ev.Wheel(PICTURE.x + 50, 200, 2))
    assert showing.image.zoom > 1


def test_faults_of_many_reasons_are_logged_within_bounds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = Faults("owner")
    for i in range(200):
        with faults.guard("part"):
            raise RuntimeError(f"reason {i}")
    assert faults.reason("part") == "reason 199"
    assert 10 < caplog.text.count("reason") <= 64


def draw_buttons_until_end(mistake: str) -> None:
    """Draw a board whose cursor is set beyond its end, which imgui finds at its end.

    mistake: "board", "child" in it, or "" for a board without a mistake.
    """
    with board("bad", Rect(0, 40, 100, 40)):
        imgui.button("In it")
        if mistake == "child":
            imgui.begin_child("child")
        if mistake:
            imgui.set_cursor_pos(ImVec2(10, 400))
        if mistake == "child":
            imgui.end_child()


def test_mistake_that_imgui_finds_at_the_end_of_a_window_costs_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = Faults("interface")

    def draw_frame(mistake: str) -> np.ndarray:
        def draw(rect: Rect, scale: float) -> bool:
            with board("above", Rect(0, 0, 100, 40)):
                imgui.button("Above")
            with faults.guard("bad"):
                draw_buttons_until_end(mistake)
            with board("below", Rect(0, 80, 100, 40)):
                imgui.button("Below")
            return False

        screen.framebuffer.clear()
        surface.draw_over(screen.framebuffer, draw, 1.0)
        return screen.pixels()[..., :3]

    with closing(OffscreenScreen(100, 120)) as screen, closing(Surface()) as surface:
        draw_frame("")
        expected = draw_frame("")
        for mistake in ("board", "board", "child", "child", ""):
            np.testing.assert_array_equal(draw_frame(mistake), expected)
    assert caplog.text.count("SetCursorPos") == 2
