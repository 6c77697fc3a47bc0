"""What else the tool has that moves a scene's camera: bookmarks, the clipboard, axes in the corner, the panel."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.navigate_cases import (  # noqa: F401
    CENTERS,
    CTRL,
    FRONT,
    RECT,
    SHIFT,
    SIDE,
    arrive,
    balls,
    module_screen,
    navigate_fixture,
    said,
    screen_fixture,
    view_fixture,
    viewmat,
)
from support.view_cases import shown

from splatview.viewer_app.cameras import look_at
from splatview.viewer_app.controls import Rect
from splatview.viewer_app.events import Key, PointerMove, PointerPress, PointerRelease, Text
from splatview.viewer_app.interface.panel import Panel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview.viewer_app.screens.offscreen import OffscreenScreen
    from splatview.viewer_app.views._gaussians.navigate import Navigate
    from splatview.viewer_app.views.gaussians import GaussianView


# -- bookmarks and the clipboard -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mods", [SHIFT, CTRL])
def test_bookmarks_by_keys(view: GaussianView, mods: frozenset[str]) -> None:
    assert view.handle(Key("3", mods=mods), RECT)
    assert "bookmark 3" in said(view)
    view.use_camera(SIDE)
    assert view.handle(Key("4"), RECT) is False  # there is none
    assert view.handle(Key("3"), RECT)
    arrive(view)
    np.testing.assert_array_equal(viewmat(view), FRONT.viewmat)
    assert view.desk.memo.get("bookmarks/scene")["3"]["camera"]["viewmat"] == FRONT.viewmat.tolist()


def test_the_camera_goes_to_the_clipboard_and_back(view: GaussianView, screen: OffscreenScreen) -> None:
    from imgui_bundle import imgui

    assert view.handle(Key("c", mods=CTRL), RECT)
    view.handle(Key("c", False, CTRL), RECT)
    panel = Panel()
    try:
        panel.draw_over(screen.framebuffer, lambda _, scale: view.over(RECT, scale), 1.0)
        text = imgui.get_clipboard_text()
    finally:
        panel.close()
    assert json.loads(text)["viewmat"] == FRONT.viewmat.tolist()
    view.desk.pasted = lambda: text
    view.use_camera(SIDE)
    assert view.handle(Key("v", mods=CTRL), RECT)
    arrive(view)
    np.testing.assert_array_equal(viewmat(view), FRONT.viewmat)
    view.use_camera(SIDE)
    assert view.handle(Text(text), RECT)  # how a page pastes
    arrive(view)
    np.testing.assert_array_equal(viewmat(view), FRONT.viewmat)


def test_what_cannot_be_pasted_is_said(view: GaussianView) -> None:
    before = viewmat(view)
    view.desk.pasted = lambda: "something else"
    view.handle(Key("v", mods=CTRL), RECT)
    view.handle(Text('{"camera": "none"}'), RECT)
    for typed in ("w", "?", "{", "a text"):
        view.handle(Text(typed), RECT)
    assert "'something else'" in said(view)
    assert "unknown key" in said(view)
    assert len(view.said) == 2  # type: ignore[attr-defined]
    assert not arrive(view)
    np.testing.assert_array_equal(viewmat(view), before)


# -- the axes in the corner ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", range(6))
def test_a_click_on_an_axis_looks_along_it(view: GaussianView, navigate: Navigate, axis: int) -> None:
    view.use_camera(SIDE)
    view.orbit.orbit(0.4, 0.3)
    view.moved()
    middle = navigate.gizmo._middle(RECT)
    assert middle is not None
    x, y, _ = navigate.gizmo._dots(middle)[axis]
    assert RECT.contains(x, y)
    distance, target = view.orbit.distance, view.orbit.target.copy()
    assert view.handle(PointerMove(float(x), float(y)), RECT)
    assert view.handle(PointerPress(float(x), float(y)), RECT)
    view.handle(PointerRelease(float(x), float(y)), RECT)
    arrive(view)
    end = np.eye(3)[axis // 2] * (1 if axis % 2 == 0 else -1)
    np.testing.assert_allclose(view.orbit.position, target + distance * end, atol=1e-6)
    assert not view.orbit.dragging


def test_the_axes_leave_small_pictures_alone(view: GaussianView, navigate: Navigate) -> None:
    assert navigate.gizmo._middle(Rect(0, 0, 200, 150)) is None
    navigate.gizmo.shown = False
    assert navigate.gizmo._middle(RECT) is None
    assert view.desk.memo.get("axes") is False
    navigate.gizmo.shown = True
    assert navigate.gizmo._middle(RECT) is not None


def test_the_axes_are_seen_but_not_in_pictures_to_keep(view: GaussianView, screen: OffscreenScreen) -> None:
    panel = Panel()

    def drawn() -> np.ndarray:
        shown(view, screen, RECT)
        panel.draw_over(screen.framebuffer, lambda _, scale: view.over(RECT, scale), 1.0)
        return screen.pixels()[..., :3].astype(int)

    try:
        bare = shown(view, screen, RECT)
        np.testing.assert_array_equal(drawn()[:180], bare[:180])
        assert np.abs(drawn() - bare)[190:310, 20:140].max() > 100
        view.desk.exact = True
        np.testing.assert_array_equal(drawn(), bare)
    finally:
        panel.close()


# -- the panel -----------------------------------------------------------------------------------------------------


@pytest.fixture
def in_panel(screen: OffscreenScreen, navigate: Navigate, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`in_panel(choice={"Up": "+z"})`: draw the part "Camera" with all folds open while its user does that."""
    from splatview.viewer_app.views._gaussians import navigate_panel

    panel, navigate.numbers = Panel(), True

    def draw(**used: dict[str, Any]) -> bool:
        with monkeypatch.context() as patch:
            for name, answers in used.items():
                where = navigate_panel if hasattr(navigate_panel, name) else navigate_panel.ui
                patch.setattr(where, name, lambda label, value, *_, _answers=answers, **__: _answers.get(label, value))
            changed: list[bool] = []
            panel.draw_over(screen.framebuffer, lambda *_: bool(changed.append(navigate_panel.panel(navigate))), 1.0)
        return changed[0]

    yield draw
    panel.close()


def test_untouched_the_panel_changes_nothing(view: GaussianView, in_panel: Any) -> None:
    camera = view.camera(RECT)
    assert in_panel() is False
    assert view.camera(RECT) is camera


def test_the_lens_in_the_panel(view: GaussianView, in_panel: Any) -> None:
    assert in_panel(choice={"Projection": "fisheye"}, slider={"Field of view": 120.0})
    camera = view.camera(RECT)
    assert camera is not None
    assert camera.model == "fisheye"
    assert camera.K[1, 1] == pytest.approx(150 / math.radians(60))
    assert in_panel(_distance={"Near": 0.5})
    assert in_panel(_distance={"Far": 7.5})
    assert not in_panel(_distance={"Near": 8.0})  # beyond far
    camera = view.camera(RECT)
    assert camera is not None
    assert (camera.near, camera.far) == (0.5, 7.5)
    in_panel(_distance={"Far": 1e10})
    camera = view.camera(RECT)
    assert camera is not None
    assert camera.far == 1e10


def test_up_in_the_panel(view: GaussianView, in_panel: Any) -> None:
    assert in_panel(choice={"Up": "+z"})
    np.testing.assert_array_equal(view.orbit.up, (0, 0, 1))
    assert viewmat(view)[1, 2] < -0.4  # z is up in the picture
    assert not in_panel(choice={"Up": "detect"})
    assert "what is up" in said(view)


def test_numbers_in_the_panel(view: GaussianView, in_panel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from splatview.viewer_app.views._gaussians import navigate_panel

    assert in_panel(slider={"Roll": 30.0})
    assert math.degrees(view.orbit.tilt) == pytest.approx(30)
    typed = {"Position": (1.0, 2.0, -6.0), "Looks at": (0.0, 1.0, 1.0)}
    monkeypatch.setattr(navigate_panel, "_vector", lambda label, value, _: (
        (True, np.array(typed[label])) if label in typed else (False, value)))
    assert in_panel()
    np.testing.assert_allclose(viewmat(view), look_at(typed["Position"], typed["Looks at"]), atol=1e-9)
    before = viewmat(view)
    typed["Looks at"] = typed["Position"]  # half typed
    assert not in_panel()
    np.testing.assert_array_equal(viewmat(view), before)


def test_buttons_in_the_panel(view: GaussianView, navigate: Navigate, in_panel: Any,
                              monkeypatch: pytest.MonkeyPatch) -> None:
    pressed = [2]
    monkeypatch.setattr("splatview.viewer_app.interface.widgets.buttons", lambda *_: pressed[0])
    in_panel()
    assert "Ctrl + V" in said(view)  # nothing is known to be on the clipboard
    view.desk.pasted = SIDE.to_json
    in_panel()
    arrive(view)
    np.testing.assert_array_equal(viewmat(view), SIDE.viewmat)
    pressed[0] = 0
    assert in_panel()
    assert arrive(view)
    navigate.keep()
    navigate.keep(12)
    pressed[0] = None  # type: ignore[call-overload]
    assert not in_panel()
    assert navigate.bookmarks.numbers == [1, 12]
