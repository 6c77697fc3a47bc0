"""Keys and buttons that are down when their screen goes away are released.

No event tells of their release.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support import widgets
from support.house import House
from support.scene_files import ply_columns, truth, write_ply
from support.viewer import Viewer
from support.web_clients import Page

from splatview_viewer.core import events as ev
from splatview_viewer.web.messages import Visible

X = 500.0
Y = 200.0


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with House(write_ply(tmp_path / "a.ply", ply_columns(truth(200)))) as new_house:
        yield new_house


def scene_of(house: House) -> Any:
    return house.app.users[0].view.view  # type: ignore[union-attr]


def has_view(house: House) -> bool:
    return bool(house.app.users) and house.app.users[0].view is not None


def has_no_users(house: House) -> bool:
    return not house.app.users


def is_visible(house: House) -> bool:
    return house.app.users[0].screen.state.visible


def hold(house: House, page: Page) -> None:
    """Hold a drag and a key that flies."""
    house.until(partial(has_view, house))
    rig = scene_of(house).rig

    def is_framed() -> bool:
        return rig.is_framed

    def is_held() -> bool:
        return rig.orbit.dragging and rig.motion.flying.moving

    house.until(is_framed)
    page.send(ev.PointerMove(X, Y))
    page.send(ev.PointerPress(X, Y))
    page.send(ev.Key("w"))
    house.until(is_held)


def camera_rests(house: House, page: Page) -> bool:
    """Return whether the camera stays where it is when the pointer moves."""
    user = house.app.users[0]
    rig = scene_of(house).rig

    def has_stopped() -> bool:
        return not rig.motion.is_under_way

    def has_moved() -> bool:
        return user.held.pointer == (X + 60, Y + 40)

    house.until(has_stopped)
    initial = rig.orbit.place
    page.send(ev.PointerMove(X + 60, Y + 40))
    house.until(has_moved)
    return rig.orbit.place == initial and not rig.orbit.dragging


def test_reconnecting_page_holds_nothing(house: House) -> None:
    page = house.page(id="mine")
    hold(house, page)
    page.end()
    house.until(partial(has_no_users, house))
    back = house.page(id="mine")
    assert camera_rests(house, back)
    assert not house.app.users[0].held.buttons
    assert not house.app.users[0].held.keys


def test_page_that_replaces_its_lost_connection_keeps_its_view_and_holds_nothing(
    house: House,
) -> None:
    """Connect a page again before the viewer notices that its network is gone."""
    page = house.page(id="mine")
    hold(house, page)
    user = house.app.users[0]
    lost_screen = user.screen
    back = Page(house.browsers.server.port, acks=True)
    house.users[back] = user
    back.connect(token=house.browsers.server.token)
    back.greet(900, 520, id="mine")

    def has_new_screen() -> bool:
        return user.screen is not lost_screen

    house.until(has_new_screen)
    assert house.app.users == [user]
    assert lost_screen.state.closed
    assert camera_rests(house, back)


def test_hidden_page_holds_nothing(house: House) -> None:
    page = house.page()
    hold(house, page)

    def is_hidden() -> bool:
        return not is_visible(house)

    page.send(Visible(False))
    house.until(is_hidden)
    page.send(Visible(True))
    house.until(partial(is_visible, house))
    assert camera_rests(house, page)


def test_held_button_of_the_panel_is_released_without_a_press(
    viewer: Viewer, tmp_path: Path
) -> None:
    for name in "ab":
        Image.new("RGB", (60, 40)).save(tmp_path / f"{name}.png")
        viewer.catalogue.open_file(tmp_path / f"{name}.png")
    viewer.until(viewer.loaded)
    second = viewer.state.entries[1].key
    x, y = viewer.find(second)
    viewer.do(ev.PointerMove(x, y), ev.PointerPress(x, y))
    viewer.user.let_go()
    viewer.user.mark(3)
    viewer.do()
    viewer.do(ev.PointerMove(x, y))
    assert viewer.state.selected != second
    viewer.click(second)
    assert viewer.state.selected == second
    widgets.drawn.clear()


def test_drag_ends_with_its_release_while_a_fault_is_shown(
    open_viewer: Callable[..., Viewer], tmp_path: Path
) -> None:
    path = tmp_path / "picture.png"
    Image.fromarray(np.zeros((40, 60, 3), np.uint8)).save(path)
    viewer = open_viewer((900, 520), files=(path,))
    viewer.until(viewer.loaded)
    viewer.do(ev.PointerMove(X, Y), ev.PointerPress(X, Y), ev.PointerMove(X + 9, Y))
    assert viewer.state.selected_entry is not None
    viewer.state.selected_entry.fault = "its frame is damaged"
    viewer.do(ev.PointerRelease(X + 9, Y))
    viewer.state.selected_entry.fault = ""
    center = viewer.image.state.place.center
    viewer.do(ev.PointerMove(X + 90, Y + 50))
    assert viewer.image.state.place.center == center


def test_drag_ends_when_another_entry_is_shown(
    open_viewer: Callable[..., Viewer], tmp_path: Path
) -> None:
    paths = [tmp_path / f"{name}.png" for name in "ab"]
    for path in paths:
        Image.fromarray(np.zeros((40, 60, 3), np.uint8)).save(path)
    viewer = open_viewer((900, 520), files=tuple(paths))
    viewer.until(viewer.loaded)
    first = viewer.state.selected
    viewer.do(ev.PointerMove(X, Y), ev.PointerPress(X, Y), ev.PointerMove(X + 9, Y))
    viewer.user.select(next(str(path) for path in paths if str(path) != first))
    viewer.until(viewer.loaded)
    viewer.do(ev.PointerRelease(X + 9, Y))
    viewer.user.select(first)
    viewer.until(viewer.loaded)
    center = viewer.image.state.place.center
    viewer.do(ev.PointerMove(X + 90, Y + 50))
    assert viewer.image.state.place.center == center
