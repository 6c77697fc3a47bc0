"""Choosing Gaussians: by a click, in histograms, by boxes and spheres; and saving them."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pytest
from imgui_bundle import imgui
from support.frames import cloud, gaussian_frame
from support.view_cases import RECT, module_screen, screen_fixture, shown  # noqa: F401

from splatview.viewer_app.controls import Rect
from splatview.viewer_app.events import Event, Key, PointerMove, PointerPress, PointerRelease
from splatview.viewer_app.files import load_scene
from splatview.viewer_app.interface.panel import Panel
from splatview.viewer_app.selecting import Box, Sphere, shapes
from splatview.viewer_app.selecting.pick import pick
from splatview.viewer_app.selecting.statistics import QUANTITIES
from splatview.viewer_app.state import GaussianSettings
from splatview.viewer_app.views._gaussians.crop import Crop
from splatview.viewer_app.views._gaussians.filter import Filter
from splatview.viewer_app.views._gaussians.inspect import Inspect
from splatview.viewer_app.views.gaussians import GaussianView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from splatview.viewer_app.screens.offscreen import OffscreenScreen
    from splatview.viewer_app.views._gaussians.tool import Tool

MIDDLE = RECT.width / 2, RECT.height / 2
ALT = frozenset({"alt"})
T = TypeVar("T", bound="Tool")


@pytest.fixture
def view(screen: OffscreenScreen) -> Iterator[GaussianView]:
    made = GaussianView(screen.ctx, GaussianSettings(coarse_ms=math.inf))
    assert made.update(gaussian_frame())
    shown(made, screen)
    yield made
    made.close()


@pytest.fixture
def panel(screen: OffscreenScreen) -> Iterator[Panel]:
    made = Panel(screen.scale)
    yield made
    made.close()


def tool_of(view: GaussianView, cls: type[T]) -> T:
    found = view.tools[cls.name]
    assert isinstance(found, cls)
    return found


def see(view: GaussianView, panel: Panel, screen: OffscreenScreen, *titles: str) -> None:
    """A turn of the loop in which these parts of the panel are open, in a window of their own."""
    def over(_: Rect, scale: float) -> bool:
        view.over(RECT, scale)
        imgui.set_next_window_size(imgui.ImVec2(300, 2000))
        imgui.begin("parts")
        for section in view.sections:
            if section.title in titles:
                section.draw()
        imgui.end()
        return False

    view.tick(time.monotonic())
    panel.draw_over(screen.framebuffer, over, 1.0)


def click(view: GaussianView, x: float, y: float, mods: frozenset[str] = frozenset()) -> None:
    for event in (PointerMove(x, y, mods), PointerPress(x, y, mods=mods), PointerRelease(x, y, mods=mods)):
        view.handle(event, RECT)


def ticked(view: GaussianView, condition: Callable[[], object]) -> Callable[[], object]:
    """The condition, after a turn of the loop."""
    def ask() -> object:
        view.tick(time.monotonic())
        return condition()

    return ask


# -- a click -----------------------------------------------------------------------------------------------------


def test_alt_and_a_click_choose_what_is_seen(view: GaussianView, wait_until: Callable[..., object]) -> None:
    tool, camera = tool_of(view, Inspect), view.camera(RECT)
    assert camera is not None
    wanted = pick(view.content.renderer.scene(), camera, *MIDDLE, view.options)
    assert wanted is not None
    click(view, *MIDDLE, ALT)
    wait_until(ticked(view, lambda: tool.values))
    assert tool.index == wanted.index
    assert tool.hit is not None and tool.hit.weight == pytest.approx(wanted.weight)
    assert view.settings.selection.marked == (wanted.index,)
    assert tool.values is not None
    np.testing.assert_allclose(tool.values.mean, cloud()["means"][wanted.index].numpy(), rtol=1e-6)


def test_without_alt_a_click_chooses_only_while_the_part_is_open(
        view: GaussianView, panel: Panel, screen: OffscreenScreen, wait_until: Callable[..., object]) -> None:
    tool = tool_of(view, Inspect)
    see(view, panel, screen)
    click(view, *MIDDLE)
    assert not tool._picker.busy
    see(view, panel, screen, "Inspect")
    click(view, *MIDDLE)
    wait_until(ticked(view, lambda: tool.index is not None))


def test_a_drag_and_a_double_click_choose_nothing(view: GaussianView) -> None:
    tool = tool_of(view, Inspect)
    x, y = MIDDLE
    for event in (PointerPress(x, y, mods=ALT), PointerMove(x + 9, y, ALT), PointerMove(x, y, ALT),
                  PointerRelease(x, y, mods=ALT), PointerPress(x, y, clicks=2, mods=ALT), PointerRelease(x, y)):
        view.handle(event, RECT)
    assert not tool._picker.busy


def test_escape_and_a_click_beside_choose_none(view: GaussianView, wait_until: Callable[..., object]) -> None:
    tool = tool_of(view, Inspect)
    tool.choose(5)
    assert view.settings.selection.marked == (5,)
    assert view.handle(Key("escape"), RECT)
    assert tool.index is None and view.settings.selection.marked == ()
    tool.choose(5)
    click(view, 0.5, 0.5, ALT)  # a corner, where nothing is
    wait_until(ticked(view, lambda: tool.index is None))


def test_a_choice_survives_versions_until_their_number_changes(view: GaussianView,
                                                               wait_until: Callable[..., object]) -> None:
    tool, said = tool_of(view, Inspect), []
    view.desk = replace(view.desk, say=said.append)
    tool.choose(7)
    wait_until(ticked(view, lambda: len(tool.history) == 1))
    more = cloud()
    more["opacities"] = more["opacities"] + 1
    assert view.update(gaussian_frame(more, version=2))
    wait_until(ticked(view, lambda: len(tool.history) == 2))
    assert tool.index == 7
    assert tool.history[1].opacity > tool.history[0].opacity
    assert not said
    assert view.update(gaussian_frame(cloud(300), version=3))
    view.tick(time.monotonic())
    assert tool.index is None and view.settings.selection.marked == ()
    assert len(said) == 1


def test_an_index_that_is_not_there_is_not_chosen(view: GaussianView) -> None:
    tool = tool_of(view, Inspect)
    for index in (-1, 400, 10**9):
        tool.choose(index)
        assert tool.index is None


def test_indices_are_those_of_what_was_published(screen: OffscreenScreen, wait_until: Callable[..., object]) -> None:
    """Also where some are left out because they cannot be drawn."""
    view = GaussianView(screen.ctx)
    try:
        tensors = cloud()
        tensors["means"][:100] = math.nan
        assert view.update(gaussian_frame(tensors))
        shown(view, screen)
        tool = tool_of(view, Inspect)
        click(view, *MIDDLE, ALT)
        wait_until(ticked(view, lambda: tool.values))
        assert tool.index is not None and tool.index >= 100 and tool.values is not None
        np.testing.assert_allclose(tool.values.mean, tensors["means"][tool.index].numpy(), rtol=1e-6)
    finally:
        view.close()


def test_the_card_lies_over_the_picture_while_the_part_is_closed(view: GaussianView, panel: Panel,
                                                                 screen: OffscreenScreen) -> None:
    tool = tool_of(view, Inspect)
    large = Rect(0, 0, 800, 600)
    see(view, panel, screen, "Inspect")
    tool.choose(3)
    see(view, panel, screen, "Inspect")
    assert not tool.boards(large)
    see(view, panel, screen)
    see(view, panel, screen)
    board, = tool.boards(large)
    assert large.contains(board.x, board.y)
    assert large.contains(board.x + board.width, board.y + board.height)
    assert not tool.boards(RECT)  # no room


def test_the_camera_goes_where_the_chosen_one_is(view: GaussianView, wait_until: Callable[..., object]) -> None:
    tool = tool_of(view, Inspect)
    tool.choose(11)
    wait_until(ticked(view, lambda: tool.values))
    tool.look_at()
    mean = cloud()["means"][11].numpy().astype(np.float64)

    def there() -> bool:
        camera = view.camera(RECT)
        assert camera is not None
        at = shapes.place(camera, mean)
        return at is not None and bool(np.allclose(at, MIDDLE, atol=0.5))

    wait_until(ticked(view, there))


# -- histograms ----------------------------------------------------------------------------------------------------


def test_what_is_filtered_is_counted_and_not_drawn(view: GaussianView, panel: Panel, screen: OffscreenScreen,
                                                   wait_until: Callable[..., object]) -> None:
    tool, before = tool_of(view, Filter), shown(view, screen)
    assert not tool.details()

    def counted() -> bool:
        see(view, panel, screen, "Filter")
        return tool.chosen_by == replace(view.settings.selection, marked=())

    wait_until(counted)
    assert tool.statistics is not None
    assert (tool.statistics.total, tool.statistics.chosen) == (400, 400)
    opacity = QUANTITIES[0]
    tool.limit(opacity, 0.8, 0.85)
    wait_until(counted)
    wanted = int(((o := 1 / (1 + np.exp(-cloud()["opacities"].numpy()))) >= 0.8).sum() - (o > 0.85).sum())
    assert 0 < wanted < 400
    assert tool.statistics.chosen == wanted
    assert tool.details() == [f"{wanted:,} of them shown"]
    assert (shown(view, screen) != before).any()
    tool.reset(opacity)
    np.testing.assert_array_equal(shown(view, screen), before)
    assert not tool.filters


def test_nothing_is_counted_while_the_part_is_closed(view: GaussianView, panel: Panel, screen: OffscreenScreen) -> None:
    tool = tool_of(view, Filter)
    for _ in range(3):
        see(view, panel, screen, "View")
    assert tool._counted is None and tool.statistics is None


def test_a_range_is_drawn_in_a_histogram(view: GaussianView, panel: Panel, screen: OffscreenScreen) -> None:
    """With the pointer, as imgui has it."""
    tool, io, places = tool_of(view, Filter), [], []
    screen.resize(400, 1000, 1.0)

    def over(_: Rect, scale: float) -> bool:
        imgui.set_next_window_pos(imgui.ImVec2(0, 0))
        imgui.set_next_window_size(imgui.ImVec2(300, 900))
        imgui.begin("parts", None, imgui.WindowFlags_.no_title_bar.value | imgui.WindowFlags_.no_move.value)
        places.append((imgui.get_cursor_screen_pos().x, imgui.get_content_region_avail().x,
                       imgui.get_cursor_screen_pos().y + imgui.get_frame_height_with_spacing() + 20))
        next(s for s in view.sections if s.title == "Filter").draw()
        imgui.end()
        io.append(imgui.get_io())
        return False

    def turn(event: Event | None = None) -> None:
        if event is not None:
            panel.handle(event, Rect(0, 0, 400, 1000), str, [Rect(0, 0, 400, 1000)])
        for _ in range(2):
            panel.draw_over(screen.framebuffer, over, 1.0)

    turn()
    x, width, y = places[-1]
    turn(PointerMove(x + width * 0.25, y))
    turn(PointerPress(x + width * 0.25, y))
    assert not tool.filters  # a click alone does nothing
    turn(PointerMove(x + width * 0.75, y))
    turn(PointerRelease(x + width * 0.75, y))
    assert view.settings.selection.opacity == pytest.approx((0.25, 0.75), abs=0.01)
    turn(PointerPress(x + width * 0.75, y))  # its end, to the right edge
    turn(PointerMove(x + width * 1.5, y))
    turn(PointerRelease(x + width * 1.5, y))
    assert view.settings.selection.opacity == pytest.approx((0.25, 1.0), abs=0.01)
    assert view.settings.selection.opacity[1] == 1.0
    turn(PointerPress(x + width * 0.5, y, "right"))
    turn(PointerRelease(x + width * 0.5, y, "right"))
    assert not tool.filters


# -- boxes and spheres ---------------------------------------------------------------------------------------------


def test_handles_are_dragged_only_while_the_part_is_open(view: GaussianView, panel: Panel,
                                                         screen: OffscreenScreen) -> None:
    tool, camera = tool_of(view, Crop), view.camera(RECT)
    assert camera is not None
    tool.set(Box(half=(0.6, 0.6, 0.6)))
    at = dict(tool.handles(camera))[0, 1]
    see(view, panel, screen)
    view.handle(PointerPress(*at), RECT)
    view.handle(PointerRelease(*at), RECT)
    assert tool.grabbed is None
    see(view, panel, screen, "Crop")
    assert view.handle(PointerMove(*at), RECT)
    assert tool.hovered == (0, 1)
    orbit = view.orbit.rotation.copy()
    view.handle(PointerPress(*at), RECT)
    wanted = shapes.place(camera, [0.9, 0.0, 0.0])
    assert wanted is not None
    view.handle(PointerMove(*wanted), RECT)
    view.handle(PointerRelease(*wanted), RECT)
    box = tool.box
    assert box is not None
    assert box.center[0] + box.half[0] == pytest.approx(0.9, abs=1e-5)
    assert box.center[0] - box.half[0] == pytest.approx(-0.6, abs=1e-5)
    np.testing.assert_array_equal(view.orbit.rotation, orbit)  # the camera did not take it
    assert tool.grabbed is None


def test_a_sphere_is_moved_and_made_larger(view: GaussianView, panel: Panel, screen: OffscreenScreen) -> None:
    tool, camera = tool_of(view, Crop), view.camera(RECT)
    assert camera is not None
    tool.set(Sphere(radius=0.5))
    see(view, panel, screen, "Crop")

    def drag(handle: str, dx: float, dy: float) -> None:
        x, y = dict(tool.handles(camera))[handle]
        for event in (PointerPress(x, y), PointerMove(x + dx, y + dy), PointerRelease(x + dx, y + dy)):
            view.handle(event, RECT)

    drag("radius", 5, 0)
    assert tool.sphere is not None
    assert tool.sphere.radius > 0.55
    before = tool.sphere
    x, y = dict(tool.handles(camera))["center"]
    drag("center", 6, -3)
    assert tool.sphere.radius == before.radius
    np.testing.assert_allclose(dict(tool.handles(camera))["center"], (x + 6, y - 3), atol=1e-3)


def test_a_crop_is_seen_and_taken_back(view: GaussianView, screen: OffscreenScreen) -> None:
    tool, before = tool_of(view, Crop), shown(view, screen)
    box, sphere = tool.fitted()
    np.testing.assert_allclose([box.center, sphere.center], 0, atol=0.1)
    tool.set(Sphere((0.0, 0.0, -1.0), 0.5, outside=True))  # of a ball, what is nearest
    some = shown(view, screen)
    assert (some != before).any()
    tool.set(Box((50.0, 0, 0)))
    assert not shown(view, screen).any()
    assert "cropped" in view.details
    tool.set(None)
    np.testing.assert_array_equal(shown(view, screen), before)


# -- saving --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chosen", [False, True], ids=["all", "shown"])
def test_it_is_saved_where_it_is_said(view: GaussianView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                      wait_until: Callable[..., object], chosen: bool) -> None:
    monkeypatch.chdir(tmp_path)
    tool, said = tool_of(view, Filter), []
    view.desk = replace(view.desk, say=said.append, name="../my run: splats.ply")
    assert view.update(gaussian_frame(step=1500, version=2))
    tool.limit(QUANTITIES[0], 0.8, 1.0)
    tool.export.begin(chosen)
    wait_until(ticked(view, lambda: said))
    path, = tmp_path.iterdir()
    assert str(path) in said[0]
    assert path.name.endswith("-step1500.ply")
    back = load_scene(path)
    opacities = 1 / (1 + np.exp(-cloud()["opacities"].numpy()))
    keep = opacities >= 0.8 if chosen else np.ones(400, bool)
    # OpenGL has positions as float32 from the middle of the scene.
    np.testing.assert_allclose(back.means, cloud()["means"].numpy()[keep], rtol=1e-6, atol=1e-7)
    assert f"{keep.sum():,} Gaussians" in said[0]


def test_what_cannot_be_saved_is_said(view: GaussianView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                      wait_until: Callable[..., object]) -> None:
    monkeypatch.chdir(tmp_path)
    tool, said = tool_of(view, Filter), []
    view.desk = replace(view.desk, say=said.append)
    tool.limit(QUANTITIES[0], 0.0, 0.0001)
    tool.export.begin(True)
    wait_until(ticked(view, lambda: said))
    assert "Not saved" in said[0] and tool.export.progress is None
    assert not list(tmp_path.iterdir())
