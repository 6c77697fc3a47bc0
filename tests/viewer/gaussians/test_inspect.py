"""Tools of Gaussians: a conformance suite over all; choosing, filtering, cropping."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from imgui_bundle import imgui
from support import widgets
from support.frames import cloud, gaussian_frame, scene
from support.renderer_cases import pick
from support.view_cases import RECT, scene_view, view_pixels
from support.wait import clock, wait_until

from splatview_viewer.core.events import (
    Key,
    Mods,
    Pinch,
    PointerLeave,
    PointerMove,
    PointerPress,
    PointerRelease,
    Text,
    Wheel,
)
from splatview_viewer.core.screen import Rect
from splatview_viewer.formats import open_file
from splatview_viewer.geometry.cameras import project
from splatview_viewer.recording.packed import pack
from splatview_viewer.recording.player import Player
from splatview_viewer.recording.recording import Recording, SceneSnapshot
from splatview_viewer.scene import Box, Cylinder, shapes
from splatview_viewer.scene.statistics import QUANTITIES
from splatview_viewer.scene_view.tool import Tool
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.shell.surface import Surface

pytestmark = pytest.mark.usefixtures("sharp")
MIDDLE = RECT.width / 2, RECT.height / 2
ALT: Mods = frozenset({"alt"})


EVENTS = (
    PointerMove(40, 30),
    PointerPress(40, 30),
    PointerMove(44, 32),
    PointerRelease(44, 32),
    PointerLeave(),
    PointerPress(40, 30, "right"),
    PointerRelease(40, 30, "right"),
    PointerPress(40, 30, clicks=2),
    PointerRelease(40, 30),
    Wheel(40, 30, 1.0),
    Wheel(40, 30, 0.0, 1.0),
    Pinch(40, 30, 1.1, 2, 1),
    Text("x"),
    Text("?"),
    *(
        Key(name, pressed)
        for name in ("w", "q", "f", "escape", "space", "shift", "1", "delete")
        for pressed in (True, False)
    ),
)


@pytest.fixture
def view(screen: OffscreenScreen) -> Iterator[Any]:
    new_view = scene_view(screen)
    assert new_view.update(gaussian_frame())
    view_pixels(new_view, screen)
    yield new_view
    new_view.close()


@pytest.fixture
def panel(screen: OffscreenScreen) -> Iterator[Surface]:
    new_panel = Surface(1.0)
    yield new_panel
    new_panel.close()


def see(view: Any, panel: Surface, screen: OffscreenScreen, *titles: str) -> None:
    """Take a turn of the loop while these parts of the panel are open."""

    def draw_parts(_: Rect, scale: float) -> bool:
        view.draw_ui(RECT, scale)
        imgui.set_next_window_size(imgui.ImVec2(300, 2000))
        imgui.begin("parts")
        for section in view.sections:
            if section.title in titles:
                section.draw()
        imgui.end()
        return False

    view.tick(clock())
    panel.draw_over(screen.framebuffer, draw_parts, 1.0)


def tick_until(view: Any, condition: Callable[[], object]) -> None:
    """Take turns of the loop until the condition holds."""

    def holds_after_a_tick() -> object:
        view.tick(clock())
        return condition()

    wait_until(holds_after_a_tick)


def has_values(tool: Any) -> bool:
    return tool.values is not None


def has_history(tool: Any, count: int) -> bool:
    return len(tool.history) == count


def no_news() -> None:
    """Take a call that a snapshot is ready, which no loop waits for."""


# -- all tools -----------------------------------------------------------------


def test_keys_are_listed_for_tools_that_the_scene_can_use(
    view: Any,
) -> None:
    for tool in view.view.tools.values():
        for line in tool.keys:
            assert line.group
            assert line.keys
            assert line.does
    groups = {line.group for line in view.view.keys}
    assert "Camera" in groups
    assert "Training cameras" not in groups
    assert "History" not in groups


def draw_tool(tool: Tool, rect: Rect, _: Rect, scale: float) -> bool:
    """Draw all that a tool draws with imgui, as the panel asks for it."""
    changes = [tool.draw_over(rect, scale), tool.bar(rect, scale)]
    changes += [section.draw() for section in tool.sections()]
    assert set(changes) <= {True, False, None}
    return False


@pytest.mark.parametrize("loaded", [False, True], ids=["empty", "loaded"])
def test_tools_take_every_event_and_draw_in_every_rectangle(
    screen: OffscreenScreen, panel: Surface, loaded: bool
) -> None:
    view = scene_view(screen)
    if loaded:
        assert view.update(gaussian_frame())
        unfiltered = view_pixels(view, screen)
        for tool in view.view.tools.values():
            assert not tool.paints
            tool.draw(screen.framebuffer, RECT)
            np.testing.assert_array_equal(screen.pixels()[..., :3], unfiltered)
    for tool in view.view.tools.values():
        for event in EVENTS:
            assert tool.handle(event, RECT) in (None, True, False)
            assert tool.tick(0.0) in (True, False)
        view_pixels(view, screen)
        for rect, scale in ((RECT, 1.0), (Rect(0, 0, 8, 8), 2.0)):
            panel.draw_over(screen.framebuffer, partial(draw_tool, tool, rect), scale)
            for board in tool.covered(rect):
                assert isinstance(board, Rect)
        assert 0 <= tool.bar_height() < math.inf
    for tool in view.view.tools.values():
        tool.close()
        tool.close()
    view.close()


# -- a click -------------------------------------------------------------------


def test_alt_click_chooses_the_gaussian_under_the_pointer(view: Any) -> None:
    tool = view.view.tools["inspect"]
    loaded_scene = view.content.renderer.scene()
    expected = pick(
        loaded_scene, view.view.rig.camera(RECT), *MIDDLE, view.view.options
    )
    assert expected is not None
    for event in (
        PointerMove(*MIDDLE, ALT),
        PointerPress(*MIDDLE, mods=ALT),
        PointerRelease(*MIDDLE, mods=ALT),
    ):
        view.handle(event, RECT)
    tick_until(view, partial(has_values, tool))
    assert tool.index == expected.index
    assert tool.hit.weight == pytest.approx(expected.weight)
    assert view.view.state.selection.marked == (expected.index,)
    mean = cloud()["means"][expected.index].numpy()
    np.testing.assert_allclose(tool.values.mean, mean, rtol=1e-6)


def test_choice_survives_versions_until_their_count_changes(view: Any) -> None:
    tool = view.view.tools["inspect"]
    messages = []
    view.view.host = replace(view.view.host, notify=messages.append)
    tool.choose(7)
    tick_until(view, partial(has_history, tool, 1))
    brighter = cloud()
    brighter["opacities"] = brighter["opacities"] + 1
    assert view.update(gaussian_frame(brighter, version=2))
    tick_until(view, partial(has_history, tool, 2))
    assert tool.index == 7
    assert tool.history[1].opacity > tool.history[0].opacity
    assert not messages
    assert view.update(gaussian_frame(cloud(300), version=3))
    view.tick(clock())
    assert tool.index is None
    assert view.view.state.selection.marked == ()
    assert len(messages) == 1


def test_course_is_read_from_the_recording_since_the_count_changed(view: Any) -> None:
    recording = Recording(limit=1 << 30)
    for serial, count in enumerate((400, 300, 400, 400, 400), 1):
        file = f"{serial:09}.gaussians"
        packed = pack(scene(count, seed=serial))
        snapshot = SceneSnapshot(file, serial * 10, serial, serial, count, 1)
        recording.add(snapshot, packed)
    recording.live_time_ns = 6
    player = Player(recording, wake=no_news)
    view.content.player = player
    tool = view.view.tools["inspect"]
    tool.choose(7)
    tick_until(view, partial(has_history, tool, 1))

    def is_read() -> bool:
        return tool.course.snapshot_count == 3

    tick_until(view, is_read)
    assert tool.course.first_step == 30
    expected = scene(400, seed=4).means[7]
    # The version that is shown is the last one.
    assert len(tool.course.values) == 4
    np.testing.assert_allclose(tool.course.values[1].mean, expected)
    assert tool.course.values[-1] is tool.values
    tool.choose(8)
    view.tick(clock())
    assert not tool.course.snapshot_count


# -- histograms ----------------------------------------------------------------


def test_filtered_gaussians_are_counted_and_not_drawn(
    view: Any, panel: Surface, screen: OffscreenScreen
) -> None:
    tool = view.view.tools["filter"]
    unfiltered = view_pixels(view, screen)
    assert not tool.details()

    def is_counted() -> bool:
        see(view, panel, screen, "Filter")
        selection = replace(view.view.state.selection, marked=())
        return tool.counted_selection == selection

    wait_until(is_counted)
    assert tool.statistics.total == 400
    assert tool.statistics.selected == 400
    opacity = QUANTITIES[0]
    tool.limit(opacity, 0.8, 0.85)
    wait_until(is_counted)
    opacities = 1 / (1 + np.exp(-cloud()["opacities"].numpy()))
    expected = int(((opacities >= 0.8) & (opacities <= 0.85)).sum())
    assert 0 < expected < 400
    assert tool.statistics.selected == expected
    assert view.view.info().details[0] == f"{expected:,} of 400 Gaussians"
    assert (view_pixels(view, screen) != unfiltered).any()
    tool.reset(opacity)
    np.testing.assert_array_equal(view_pixels(view, screen), unfiltered)
    assert not tool.is_active


# -- values of one -------------------------------------------------------------


def test_coefficients_of_a_gaussian_are_a_table_that_can_be_folded(
    view: Any, panel: Surface, screen: OffscreenScreen
) -> None:
    # The screen is high enough for the section of the panel.
    screen.resize(440, 1200)
    tool = view.view.tools["inspect"]
    tool.choose(3)
    tick_until(view, partial(has_values, tool))

    def fold_height() -> int:
        """Return the height of the fold and of what it holds."""
        widgets.drawn.clear()
        see(view, panel, screen, "Inspect")
        return widgets.drawn["Look at it"].y - widgets.drawn["Coefficients"].y

    folded = fold_height()
    for event in (PointerMove, PointerPress, PointerRelease):
        pixel = widgets.middle("Coefficients")
        panel.input.handle(event(*pixel), RECT, covered=[Rect(0, 0, 4000, 4000)])
        see(view, panel, screen, "Inspect")
    # A line of names, one of degree 0, and those of the higher degrees.
    lines = 1 + 1 + len(tool.values.shN)
    assert fold_height() - folded > 12 * lines


# -- shapes to crop by ---------------------------------------------------------


def test_handles_are_dragged_only_while_their_section_is_open(
    view: Any, panel: Surface, screen: OffscreenScreen
) -> None:
    tool = view.view.tools["crop"]
    camera = view.view.rig.camera(RECT)
    assert camera is not None
    tool.set_shape(Box(half=(0.6, 0.6, 0.6)))
    handle = dict(tool.handles(camera))[0, 1]
    see(view, panel, screen)
    view.handle(PointerPress(*handle), RECT)
    view.handle(PointerRelease(*handle), RECT)
    assert tool.grabbed is None
    see(view, panel, screen, "Crop")
    assert view.handle(PointerMove(*handle), RECT)
    assert tool.hovered == (0, 1)
    rotation = view.view.rig.orbit.rotation.copy()
    view.handle(PointerPress(*handle), RECT)
    expected = project(camera, np.array([0.9, 0.0, 0.0]))
    view.handle(PointerMove(*expected), RECT)
    view.handle(PointerRelease(*expected), RECT)
    box = tool.shape
    assert isinstance(box, Box)
    assert box.center[0] + box.half[0] == pytest.approx(0.9, abs=1e-5)
    assert box.center[0] - box.half[0] == pytest.approx(-0.6, abs=1e-5)
    # The camera did not take the drag.
    np.testing.assert_array_equal(view.view.rig.orbit.rotation, rotation)
    assert tool.grabbed is None


def test_side_of_a_cylinder_is_dragged_all_around_and_an_end_alone(
    view: Any, panel: Surface, screen: OffscreenScreen
) -> None:
    tool = view.view.tools["crop"]
    camera = view.view.rig.camera(RECT)
    assert camera is not None
    tool.set_shape(Cylinder(radius=0.6, half_height=0.6))
    see(view, panel, screen, "Crop")

    def drag(name: Any, *point: float) -> None:
        """Drag a handle to where a point of the world is seen."""
        end = project(camera, np.array(point))
        view.handle(PointerPress(*dict(tool.handles(camera))[name]), RECT)
        assert tool.grabbed == name
        view.handle(PointerMove(*end), RECT)
        view.handle(PointerRelease(*end), RECT)

    drag((0, 1), 0.9, 0.0, 0.0)
    assert tool.shape.center == (0.0, 0.0, 0.0)
    assert tool.shape.radius == pytest.approx(0.9, abs=1e-5)
    assert tool.shape.half_height == 0.6
    drag((1, -1), 0.0, -0.8, 0.0)
    assert tool.shape.center == pytest.approx((0.0, -0.1, 0.0), abs=1e-5)
    assert tool.shape.half_height == pytest.approx(0.7, abs=1e-5)
    assert tool.shape.radius == pytest.approx(0.9, abs=1e-5)


def test_cylinder_is_chosen_in_the_panel_upright_and_fitted_again(
    view: Any, panel: Surface, screen: OffscreenScreen
) -> None:
    screen.resize(440, 1200)
    tool = view.view.tools["crop"]
    orbit = view.view.rig.orbit
    orbit.up = np.array([0.0, 0.0, 1.0])
    view.view.rig.apply_orbit()
    uncropped = view_pixels(view, screen)

    def press(name: str) -> None:
        see(view, panel, screen, "Crop")
        pixel = widgets.middle(name)
        for event in (PointerMove, PointerPress, PointerRelease):
            panel.input.handle(event(*pixel), RECT, covered=[Rect(0, 0, 4000, 4000)])
            see(view, panel, screen, "Crop")
        widgets.drawn.clear()
        see(view, panel, screen, "Crop")

    press("Cylinder")
    assert {"Centre 2", "Radius", "Height", "Rotation 0", "Fit to scene"} <= set(
        widgets.drawn
    )
    fitted = tool.shape
    assert isinstance(fitted, Cylinder)
    assert fitted.axis_index == 2
    assert fitted.radius == pytest.approx(1.05, abs=0.05)
    assert fitted.half_height == pytest.approx(1.05, abs=0.05)
    assert tool.details() == ["cropped"]
    axes = shapes.axes_of((0, 30, 0))
    tool.set_shape(replace(fitted, radius=0.5, axes=axes, outside=True))
    assert (view_pixels(view, screen) != uncropped).any()
    press("Fit to scene")
    assert tool.shape == replace(fitted, outside=True)
    press("None")
    assert tool.shape is None
    np.testing.assert_array_equal(view_pixels(view, screen), uncropped)


@pytest.mark.parametrize("outside", [False, True])
def test_scene_cropped_by_a_cylinder_is_drawn_and_saved_without_the_rest(
    view: Any,
    screen: OffscreenScreen,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    outside: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    uncropped = view_pixels(view, screen)
    shape = Cylinder(radius=0.5, half_height=2.0, axis_index=2, outside=outside)
    view.view.tools["crop"].set_shape(shape)
    assert (view_pixels(view, screen) != uncropped).any()
    # Another view of the scene begins with the same crop.
    second_view = view.another_view()
    assert second_view.view.tools["crop"].shape == shape
    second_view.close()
    messages: list[str] = []
    view.view.host = replace(view.view.host, notify=messages.append)
    tool = view.view.tools["filter"]
    assert tool.is_active
    tool.save(only_shown=True)

    def has_message() -> bool:
        return bool(messages)

    tick_until(view, has_message)
    (path,) = tmp_path.iterdir()
    means = cloud()["means"].numpy()
    is_inside = np.hypot(means[:, 0], means[:, 1]) <= 0.5
    keep = is_inside != outside
    assert 0 < keep.sum() < len(means)
    np.testing.assert_allclose(open_file(path).means, means[keep], rtol=1e-6, atol=1e-7)
    tool.reset()
    assert view.view.tools["crop"].shape is None
    np.testing.assert_array_equal(view_pixels(view, screen), uncropped)


# -- saving --------------------------------------------------------------------


def test_filtered_scene_is_saved_where_the_message_says(
    view: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tool = view.view.tools["filter"]
    messages = []
    view.view.host = replace(
        view.view.host, notify=messages.append, name="../val/my run: splats.ply"
    )
    assert view.update(gaussian_frame(step=1500, version=2))
    tool.limit(QUANTITIES[0], 0.8, 1.0)
    tool.save(only_shown=True)

    def has_message() -> bool:
        return bool(messages)

    tick_until(view, has_message)
    (path,) = tmp_path.iterdir()
    assert str(path) in messages[0]
    assert path.name == "val-my-run-splats-step1500.ply"
    saved = open_file(path)
    opacities = 1 / (1 + np.exp(-cloud()["opacities"].numpy()))
    keep = opacities >= 0.8
    means = cloud()["means"].numpy()[keep]
    # OpenGL has positions as float32 from the middle of the scene.
    np.testing.assert_allclose(saved.means, means, rtol=1e-6, atol=1e-7)
    assert f"{keep.sum():,} Gaussians" in messages[0]
