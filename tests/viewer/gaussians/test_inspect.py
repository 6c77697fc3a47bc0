"""Tools of Gaussians: a conformance suite over all; choosing, filtering, cropping."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from imgui_bundle import imgui
from support import widgets
from support.frames import cloud, gaussian_frame
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
from splatview_viewer.scene import Box
from splatview_viewer.scene.statistics import QUANTITIES
from splatview_viewer.scene_view.tool import Tool
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.shell.panel import Panel

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
    made = scene_view(screen)
    assert made.update(gaussian_frame())
    view_pixels(made, screen)
    yield made
    made.close()


@pytest.fixture
def panel(screen: OffscreenScreen) -> Iterator[Panel]:
    made = Panel(1.0)
    yield made
    made.close()


def see(view: Any, panel: Panel, screen: OffscreenScreen, *titles: str) -> None:
    """Take a turn of the loop while these parts of the panel are open."""

    def over(_: Rect, scale: float) -> bool:
        view.draw_ui(RECT, scale)
        imgui.set_next_window_size(imgui.ImVec2(300, 2000))
        imgui.begin("parts")
        for section in view.sections:
            if section.title in titles:
                section.draw()
        imgui.end()
        return False

    view.tick(clock())
    panel.draw_over(screen.framebuffer, over, 1.0)


def turn_until(view: Any, condition: Callable[[], object]) -> None:
    """Take turns of the loop until it holds."""
    wait_until(lambda: (view.tick(clock()), condition())[1])


# -- all tools -----------------------------------------------------------------


def test_keys_of_tools_are_listed_where_the_scene_has_something_for_them(
    view: Any,
) -> None:
    assert all(
        line.group and line.keys and line.does
        for tool in view.view.tools.values()
        for line in tool.keys
    )
    groups = {line.group for line in view.view.keys}
    assert "Camera" in groups
    assert not groups & {
        "Training cameras",
        "History",
    }


@pytest.mark.parametrize("loaded", [False, True], ids=["empty", "loaded"])
def test_tools_take_every_event_and_draw_in_every_place(
    screen: OffscreenScreen, panel: Panel, loaded: bool
) -> None:
    view = scene_view(screen)
    if loaded:
        assert view.update(gaussian_frame())
        unfiltered = view_pixels(view, screen)
        for tool in view.view.tools.values():
            tool.draw(screen.framebuffer, RECT)
            np.testing.assert_array_equal(screen.pixels()[..., :3], unfiltered)
    for tool in view.view.tools.values():
        for event in EVENTS:
            assert tool.handle(event, RECT) in (None, True, False)
            assert tool.tick(0.0) in (True, False)
        view_pixels(view, screen)
        for rect, scale in ((RECT, 1.0), (Rect(0, 0, 8, 8), 2.0)):

            def over(_: Rect, s: float, rect: Rect = rect, tool: Tool = tool) -> bool:
                changed = [
                    tool.draw_over(rect, s),
                    tool.bar(rect, s),
                    *(part.draw() for part in tool.sections()),
                ]
                assert set(changed) <= {True, False, None}
                return False

            panel.draw_over(screen.framebuffer, over, scale)
            assert all(isinstance(board, Rect) for board in tool.covered(rect))
        assert 0 <= tool.bar_height() < math.inf
    for tool in view.view.tools.values():
        tool.close()
        tool.close()
    view.close()


# -- a click -------------------------------------------------------------------


def test_alt_and_a_click_choose_what_is_seen(view: Any) -> None:
    tool = view.view.tools["inspect"]
    expected = pick(
        view.content.renderer.scene(),
        view.view.rig.camera(RECT),
        *MIDDLE,
        view.view.options,
    )
    assert expected is not None
    for event in (
        PointerMove(*MIDDLE, ALT),
        PointerPress(*MIDDLE, mods=ALT),
        PointerRelease(*MIDDLE, mods=ALT),
    ):
        view.handle(event, RECT)
    turn_until(view, lambda: tool.values)
    assert tool.index == expected.index
    assert tool.hit.weight == pytest.approx(expected.weight)
    assert view.view.state.selection.marked == (expected.index,)
    np.testing.assert_allclose(
        tool.values.mean, cloud()["means"][expected.index].numpy(), rtol=1e-6
    )


def test_a_choice_survives_versions_until_their_number_changes(view: Any) -> None:
    tool = view.view.tools["inspect"]
    messages = []
    view.view.host = replace(view.view.host, notify=messages.append)
    tool.choose(7)
    turn_until(view, lambda: len(tool.history) == 1)
    brighter = cloud()
    brighter["opacities"] = brighter["opacities"] + 1
    assert view.update(gaussian_frame(brighter, version=2))
    turn_until(view, lambda: len(tool.history) == 2)
    assert tool.index == 7
    assert tool.history[1].opacity > tool.history[0].opacity
    assert not messages
    assert view.update(gaussian_frame(cloud(300), version=3))
    view.tick(clock())
    assert tool.index is None
    assert view.view.state.selection.marked == ()
    assert len(messages) == 1


# -- histograms ----------------------------------------------------------------


def test_what_is_filtered_is_counted_and_not_drawn(
    view: Any, panel: Panel, screen: OffscreenScreen
) -> None:
    tool = view.view.tools["filter"]
    unfiltered = view_pixels(view, screen)
    assert not tool.details()

    def counted() -> bool:
        see(view, panel, screen, "Filter")
        return tool.counted_selection == replace(view.view.state.selection, marked=())

    wait_until(counted)
    assert (tool.statistics.total, tool.statistics.selected) == (400, 400)
    opacity = QUANTITIES[0]
    tool.limit(opacity, 0.8, 0.85)
    wait_until(counted)
    expected = int(
        ((o := 1 / (1 + np.exp(-cloud()["opacities"].numpy()))) >= 0.8).sum()
        - (o > 0.85).sum()
    )
    assert 0 < expected < 400
    assert tool.statistics.selected == expected
    assert tool.details() == [f"{expected:,} of them shown"]
    assert (view_pixels(view, screen) != unfiltered).any()
    tool.reset(opacity)
    np.testing.assert_array_equal(view_pixels(view, screen), unfiltered)
    assert not tool.is_active


# -- boxes and spheres ---------------------------------------------------------


def test_coefficients_of_a_gaussian_are_a_table_that_can_be_folded(
    view: Any, panel: Panel, screen: OffscreenScreen
) -> None:
    screen.resize(440, 1200)  # high enough for the part of the panel
    tool = view.view.tools["inspect"]
    tool.choose(3)
    turn_until(view, lambda: tool.values is not None)

    def fold_height() -> int:
        """The height of the fold and what it holds."""
        widgets.drawn.clear()
        see(view, panel, screen, "Inspect")
        return widgets.drawn["Look at it"].y - widgets.drawn["Coefficients"].y

    folded = fold_height()
    for event in (PointerMove, PointerPress, PointerRelease):
        at = widgets.middle("Coefficients")
        panel.handle(event(*at), RECT, covered=[Rect(0, 0, 4000, 4000)])
        see(view, panel, screen, "Inspect")
    lines = 1 + 1 + len(tool.values.shN)  # names, degree 0, and the higher ones
    assert fold_height() - folded > 12 * lines


def test_handles_are_dragged_only_while_the_part_is_open(
    view: Any, panel: Panel, screen: OffscreenScreen
) -> None:
    tool = view.view.tools["crop"]
    camera = view.view.rig.camera(RECT)
    assert camera is not None
    tool.set_shape(Box(half=(0.6, 0.6, 0.6)))
    at = dict(tool.handles(camera))[0, 1]
    see(view, panel, screen)
    view.handle(PointerPress(*at), RECT)
    view.handle(PointerRelease(*at), RECT)
    assert tool.grabbed is None
    see(view, panel, screen, "Crop")
    assert view.handle(PointerMove(*at), RECT)
    assert tool.hovered == (0, 1)
    orbit = view.view.rig.orbit.rotation.copy()
    view.handle(PointerPress(*at), RECT)
    expected = project(camera, np.array([0.9, 0.0, 0.0]))
    view.handle(PointerMove(*expected), RECT)
    view.handle(PointerRelease(*expected), RECT)
    box = tool.shape
    assert isinstance(box, Box)
    assert box.center[0] + box.half[0] == pytest.approx(0.9, abs=1e-5)
    assert box.center[0] - box.half[0] == pytest.approx(-0.6, abs=1e-5)
    np.testing.assert_array_equal(
        view.view.rig.orbit.rotation, orbit
    )  # the camera did not take it
    assert tool.grabbed is None


# -- saving --------------------------------------------------------------------


def test_it_is_saved_where_it_is_said(
    view: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tool = view.view.tools["filter"]
    messages = []
    view.view.host = replace(
        view.view.host, notify=messages.append, name="../my run: splats.ply"
    )
    assert view.update(gaussian_frame(step=1500, version=2))
    tool.limit(QUANTITIES[0], 0.8, 1.0)
    tool.save(only_shown=True)
    turn_until(view, lambda: messages)
    (path,) = tmp_path.iterdir()
    assert str(path) in messages[0]
    assert path.name.endswith("-step1500.ply")
    back = open_file(path)
    opacities = 1 / (1 + np.exp(-cloud()["opacities"].numpy()))
    keep = opacities >= 0.8
    # OpenGL has positions as float32 from the middle of the scene.
    np.testing.assert_allclose(
        back.means, cloud()["means"].numpy()[keep], rtol=1e-6, atol=1e-7
    )
    assert f"{keep.sum():,} Gaussians" in messages[0]
