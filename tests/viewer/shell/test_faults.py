"""A part of the picture that fails is told in its place; the picture, the panel and
other users go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from splatview_viewer.core.view import Section
from splatview_viewer.kinds.image.view import ImageView
from splatview_viewer.ui.recovery import Faults


class Extra:
    """Adds sections to the panel, as comparisons do."""

    def __init__(self, *sections: Section) -> None:
        self.added = sections

    def pull(self, user: Any) -> None:
        """Nothing is prepared."""

    def sections(self, viewport: Any) -> Sequence[Section]:
        if not self.added:
            raise RuntimeError("no sections today")
        return self.added

    def compare(self, how: str, viewport: Any, key: str) -> None:
        """Nothing is compared."""


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


def well() -> bool:
    imgui.button("Well")
    return False


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was written with imgui since it was cleared."""
    written: list[str] = []
    plain = imgui.text_unformatted

    def note(text: str, *more: Any) -> None:
        written.append(text)
        plain(text, *more)

    monkeypatch.setattr(imgui, "text_unformatted", note)
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
def test_section_that_fails_is_shown_as_failed_and_nothing_else_suffers(
    showing: Viewer,
    texts: list[str],
    caplog: pytest.LogCaptureFixture,
    fail: Callable[[], bool],
    reason: str,
) -> None:
    viewer = showing
    before = viewer.picture()
    viewer.catalogue.features.append(
        Extra(Section("Bad", fail, True), Section("Good", well, True))
    )
    for _ in range(3):
        assert reason in redraw(viewer, texts)
    assert caplog.text.count(reason) == 1
    assert viewer.state.selected_entry is not None
    assert not viewer.state.selected_entry.fault
    np.testing.assert_array_equal(viewer.picture(), before)
    assert widgets.drawn["Well"].width > 0
    viewer.catalogue.features.pop()
    assert reason not in redraw(viewer, texts)


def test_section_is_well_again_once_it_does_not_fail(
    showing: Viewer, texts: list[str]
) -> None:
    how = [leave_all_open]
    showing.catalogue.features.append(Extra(Section("Bad", lambda: how[0](), True)))
    assert "the sensor is cross" in redraw(showing, texts)
    how[0] = well
    assert "the sensor is cross" not in redraw(showing, texts)


def test_list_of_sections_that_fails_is_told_in_the_panel(
    showing: Viewer, texts: list[str]
) -> None:
    showing.catalogue.features.append(Extra())
    assert "no sections today" in redraw(showing, texts)
    assert showing.image.state is not None
    assert "no sections today" in redraw(showing, texts)


def test_words_over_a_picture_that_fail_leave_the_picture(
    showing: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewer = showing
    before = viewer.picture()

    def fail(*_: Any) -> bool:
        return leave_all_open()

    monkeypatch.setattr(ImageView, "ui", fail)
    viewer.user.mark(3)
    viewer.do()
    faults = viewer.user.layout.active.faults
    assert "the sensor is cross" in faults.reason("overlay")
    assert viewer.state.selected_entry is not None
    assert not viewer.state.selected_entry.fault
    changed = (viewer.picture() != before).any(axis=2)
    assert 0.001 < changed.mean() < 0.3  # a card with the reason
    monkeypatch.undo()
    viewer.user.mark(3)
    viewer.do()
    np.testing.assert_array_equal(viewer.picture(), before)


def test_event_that_fails_is_told_to_its_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "picture.png"
    Image.new("RGB", (60, 40), (200, 120, 40)).save(path)
    with House(path) as house:
        first = house.page()
        second = house.page()
        house.final_picture(first)
        before = house.final_picture(second)

        def fail(*_: Any) -> bool:
            raise RuntimeError("no such gesture")

        with monkeypatch.context() as failing:
            failing.setattr(ImageView, "handle", fail)
            for x in range(4):
                first.send(ev.Wheel(x=500 + x, y=200, dy=1))
            house.until(lambda: house.app.users[0].state.toasts)
        np.testing.assert_array_equal(house.final_picture(second), before)
        assert not any(entry.fault for entry in house.app.catalogue.entries)
        assert "no such gesture" in house.app.users[0].state.toasts[0][1]
        assert not house.app.users[1].state.toasts
        assert caplog.text.count("no such gesture") == 1


def test_command_that_fails_is_told_and_the_next_one_is_executed(
    showing: Viewer, caplog: pytest.LogCaptureFixture
) -> None:
    done = []

    def rename_all() -> None:
        raise KeyError("nobody")

    for _ in range(3):
        showing.catalogue.do(rename_all)
    showing.catalogue.do(done.append, True)
    showing.until(lambda: done)
    assert done == [True]
    assert showing.state.notices == ["rename all failed: 'nobody'"]
    assert caplog.text.count("nobody") == 1


def test_user_that_cannot_be_drawn_ends_nobody(
    showing: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("no such corner")

    with monkeypatch.context() as failing:
        failing.setattr("splatview_viewer.shell.panel.draw_heads", fail)
        showing.user.mark(3)
        showing.do()
        failing.setattr("splatview_viewer.shell.user.caption_of", fail)
        showing.user.mark(3)
        showing.do()
    assert showing.user.panel.faults.reason("heads") == "no such corner"
    assert showing.state.notices == ["drawing a picture failed: no such corner"]
    showing.do(ev.Wheel(PICTURE.x + 50, 200, 2))
    assert showing.image.zoom > 1


def test_faults_of_many_reasons_are_not_logged_without_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = Faults("owner")
    for number in range(200):
        with faults.guard("part"):
            raise RuntimeError(f"reason {number}")
    assert faults.reason("part") == "reason 199"
    assert 10 < caplog.text.count("reason") <= 64
