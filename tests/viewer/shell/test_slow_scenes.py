"""A scene that is drawn in steps: the interface answers between any two of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.house import House
from support.scene_files import ply_columns, truth, write_ply
from support.stepped import (
    Gate,
    draw_in_steps,
    is_like_one_drawn_at_once,
    scene_values,
    until_final,
    until_in_steps,
    view_of,
)
from support.web_clients import Page

import splatview
from splatview.api.session import session
from splatview_viewer.app.loop import step
from splatview_viewer.core import events as ev
from splatview_viewer.core.screen import read_pixels
from splatview_viewer.gpu.steps import StepQueue
from splatview_viewer.kinds.gaussians import stepped
from splatview_viewer.kinds.gaussians.picture import ViewportPicture
from splatview_viewer.render.gl import renderer as gl_renderer
from splatview_viewer.scene.shapes import Box
from splatview_viewer.scene_view.crop import Crop
from splatview_viewer.shell.user import User


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return draw_in_steps(monkeypatch)


@pytest.fixture
def house(tmp_path: Path, gate: Gate) -> Iterator[House]:
    scene = write_ply(tmp_path / "scene.ply", ply_columns(truth(200)))
    with House(scene) as new_house:
        yield new_house


def opened_page(house: House) -> tuple[Page, User]:
    """Return a page that shows all of the scene, and its user."""
    page = house.page(900, 620)
    until_final(house, page)
    return page, house.users[page]


def test_interface_answers_while_a_picture_is_in_steps(
    house: House, gate: Gate
) -> None:
    page = house.page(900, 620)
    user = house.users[page]
    old_picture = until_final(house, page)
    view = view_of(user)
    gate.is_open = False
    turn_camera(page, user)
    until_in_steps(house, view)
    picture_count = len(user.pace.times)
    tabs = user.interface.zones.tabs
    for k in range(4):
        x = tabs.x + 10 + tabs.width // 4 * k
        page.send(ev.PointerMove(x, tabs.y + tabs.height // 2, at=100.0 + k))

    def has_answered() -> bool:
        update = page.next_update()
        return update is not None and update.at >= 103.0

    house.until(has_answered)
    assert view.data.stepped.is_drawing
    assert len(user.pace.times) == picture_count, "nothing new is to be shown"
    gate.is_open = True
    gate.step_count = 0
    new_picture = until_final(house, page)
    assert gate.step_count > 10
    assert np.abs(new_picture - old_picture).max() > 20
    rect = user.layout.active.rect
    assert is_like_one_drawn_at_once(house, page, new_picture, rect)


def turn_camera(page: Page, user: User) -> None:
    """Drag in the picture."""
    rect = user.layout.active.rect
    x = rect.x + rect.width // 2
    y = rect.y + rect.height // 2
    page.send(ev.PointerPress(x, y, at=10.0))
    page.send(ev.PointerMove(x + 40, y + 10, at=11.0))
    page.send(ev.PointerRelease(x + 40, y + 10, at=12.0))


def test_new_look_discards_an_unfinished_picture(house: House, gate: Gate) -> None:
    page, user = opened_page(house)
    view = view_of(user)
    gate.is_open = False
    view.change(show="rings")
    user.mark()
    until_in_steps(house, view)
    view.change(show="points")
    user.mark()
    gate.is_open = True
    until_final(house, page)
    assert view.picture.key is not None
    assert view.picture.key.options.paint == "points"


def test_picture_before_a_new_look_stays_as_it_was(house: House, gate: Gate) -> None:
    page, user = opened_page(house)
    pixels_before = read_pixels(user.screen.framebuffer)
    view = view_of(user)
    gate.is_open = False
    view.change(show="depth")
    user.mark()
    until_in_steps(house, view)
    for _ in range(3):
        step(house.app)
    np.testing.assert_array_equal(read_pixels(user.screen.framebuffer), pixels_before)
    gate.is_open = True
    until_final(house, page)
    assert (read_pixels(user.screen.framebuffer) != pixels_before).any()


def test_hidden_pane_leaves_the_first_picture_of_another_alone(
    house: House, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, user = opened_page(house)
    view = view_of(user)
    data = view.data
    freed_in_steps = []
    free_pictures = gl_renderer.GlRenderer.free_pictures

    def free_noted(renderer: gl_renderer.GlRenderer) -> None:
        freed_in_steps.append(data.stepped.is_drawing)
        free_pictures(renderer)

    monkeypatch.setattr(gl_renderer.GlRenderer, "free_pictures", free_noted)
    data.drop(view.picture)
    gate.is_open = False
    user.mark()
    until_in_steps(house, view)
    data.drop(ViewportPicture(data.ctx))
    assert freed_in_steps == [False]


def test_picture_of_the_version_before_outlives_one_that_measures(
    house: House, gate: Gate
) -> None:
    """The one that measures is of another size, and drawn at once."""
    page, user = opened_page(house)
    view = view_of(user)
    data = view.data
    picture = view.picture
    assert picture.is_borrowed
    assert picture.camera is not None
    assert picture.key is not None
    pixels = read_pixels(user.screen.framebuffer)
    gate.is_open = False
    assert data.put(data.renderer.scene())
    measured = ViewportPicture(data.ctx)
    data.pictures.append(measured)
    data.render(measured, picture.camera.resized(64, 48), picture.key.options)
    user.mark()
    until_in_steps(house, view)
    np.testing.assert_array_equal(read_pixels(user.screen.framebuffer), pixels)
    gate.is_open = True
    until_final(house, page)


def test_slider_that_is_dragged_shows_pictures(house: House, gate: Gate) -> None:
    page, user = opened_page(house)
    view = view_of(user)
    first_key = view.picture.key
    scales = cycle(np.linspace(0.5, 0.99, 400).tolist())

    def shows_another() -> bool:
        view.change(scale=next(scales))
        user.mark()
        house.newest(page)
        return view.picture.key != first_key

    house.until(shows_another)
    view.change(scale=1.0)
    user.mark()
    until_final(house, page)
    assert view.picture.key == first_key


def test_two_panes_of_a_scene_take_turns(house: House, gate: Gate) -> None:
    page, user = opened_page(house)
    user.show_beside(user.layout.active.key)
    until_final(house, page)
    keys = {id(p.view): p.view.view.picture.key for p in user.layout}  # type: ignore[union-attr]
    assert len(keys) == 2
    assert None not in keys.values()


def test_last_version_of_an_ended_run_is_kept_though_a_picture_was_in_steps(
    gate: Gate, runtime_dir: Path
) -> None:
    splatview.publish(scene_values(0.0), "scene")
    splatview.publish(np.zeros((4, 4, 3), np.uint8), "image")
    with House() as house:
        page = house.page(900, 620)
        user = house.users[page]
        house.until(lambda: user.view is not None and user.view.kind == "gaussians")
        until_final(house, page)
        view = view_of(user)
        slot = user.shown
        assert slot is not None
        gate.is_open = False
        view.change(scale=0.5)
        user.mark()
        until_in_steps(house, view)
        splatview.publish(scene_values(1.0), "scene")
        session().close()
        house.until(lambda: not slot.entry.alive)
        image = next(e.key for e in user.state.entries if e.name == "image")
        loads = view.data.loads
        user.layout.active.select(image)
        house.until(lambda: user.shown is not slot and not slot.source.has_new_value())
        assert view.data.loads == loads + 1


def test_version_is_taken_between_two_pictures_of_a_drag(
    gate: Gate, runtime_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stepped, "_MAX_VERSION_WAIT_S", 0.0)
    splatview.publish(scene_values(0.0), "scene")
    with House() as house:
        page = house.page(400, 300)
        user = house.users[page]
        house.until(lambda: user.view is not None and user.view.kind == "gaussians")
        until_final(house, page)
        view = view_of(user)
        loads = view.data.loads
        turn_camera(page, user)
        until_in_steps(house, view)
        splatview.publish(scene_values(1.0), "scene")

        def is_taken() -> bool:
            view.change(scale=view.state.scale * 0.9999)
            user.mark()
            house.newest(page)
            return view.data.loads > loads

        house.until(is_taken)


def test_fault_in_a_step_is_the_scenes(
    house: House, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, user = opened_page(house)

    def fail(*_: object) -> np.ndarray:
        raise RuntimeError("no order")

    monkeypatch.setattr(gl_renderer.GlRenderer, "_sort", fail)
    view_of(user).change(scale=0.5)
    user.mark()
    slot = user.shown
    assert slot is not None

    def has_fault() -> bool:
        return "no order" in slot.entry.fault

    house.until(has_fault)


def test_lines_stay_with_the_picture_that_is_seen(house: House, gate: Gate) -> None:
    """A box around the scene moves once the page has the picture that it belongs to."""
    page, user = opened_page(house)
    view = view_of(user)
    crop = view.tools.of(Crop)
    view.tools.choose(crop.name)
    crop.set_shape(Box((0.0, 0.0, 0.0), (0.5, 0.5, 0.5)))
    user.mark()
    until_final(house, page)
    old_lines = lines_of(house, page)
    gate.is_open = False
    turn_camera(page, user)
    until_in_steps(house, view)
    for _ in range(20):
        step(house.app)
    np.testing.assert_array_equal(lines_of(house, page), old_lines)
    gate.is_open = True
    until_final(house, page)

    def is_with_picture() -> bool:
        return not user.waiting and view.seen_camera == view.picture.camera

    def have_lines_moved() -> bool:
        return bool((lines_of(house, page) != old_lines).any())

    house.until(is_with_picture)
    assert view.seen_camera == view.rig.camera()
    house.until(have_lines_moved)


def lines_of(house: House, page: Page) -> np.ndarray:
    """Return the interface over the middle of a page's picture, as far as it came."""
    rect = house.users[page].layout.active.rect
    interface = house.interface(page)
    assert interface is not None
    top = rect.y + rect.height // 4
    left = rect.x + rect.width // 4
    return interface[top : top + rect.height // 2, left : left + rect.width // 2].copy()


def test_picture_in_steps_tells_of_the_event_that_it_was_begun_with(
    house: House, gate: Gate
) -> None:
    page, user = opened_page(house)
    view = view_of(user)
    gate.is_open = False
    turn_camera(page, user)
    until_in_steps(house, view)
    gate.is_open = True

    def has_answered() -> bool:
        picture = page.next_picture()
        return picture is not None and picture.at >= 11.0

    house.until(has_answered)


def test_steps_make_way_for_input() -> None:
    drawn_steps: list[int] = []

    def take_steps() -> Iterator[None]:
        for count in range(10):
            drawn_steps.append(count)
            yield None

    def has_input() -> bool:
        return len(drawn_steps) == 3

    context: Any = SimpleNamespace(finish=int)
    queue = StepQueue(context)
    queue.start(take_steps())  # type: ignore[arg-type]
    queue.advance(60.0, has_input)
    assert drawn_steps == [0, 1, 2]
    queue.advance(60.0, lambda: False)
    assert len(drawn_steps) == 10
    assert not queue.can_go_on
    queue.close()
