"""A key or button that is down when its screen goes away is let go: nobody will tell of
its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    with House(write_ply(tmp_path / "a.ply", ply_columns(truth(200)))) as made:
        yield made


def shown(house: House) -> Any:
    return house.app.users[0].view.view  # type: ignore[union-attr]


def hold(house: House, page: Page) -> None:
    """Hold a drag and a key that flies."""
    house.until(lambda: house.app.users and house.app.users[0].view is not None)
    house.until(lambda: shown(house).rig.is_framed)
    page.send(ev.PointerMove(X, Y))
    page.send(ev.PointerPress(X, Y))
    page.send(ev.Key("w"))
    house.until(lambda: shown(house).rig.orbit.dragging)
    motion = shown(house).rig.motion
    house.until(lambda: motion.flying.moving)


def still(house: House, page: Page) -> bool:
    """Return whether the camera stays where it is when the pointer moves."""
    user = house.app.users[0]
    motion = shown(house).rig.motion
    house.until(lambda: not motion.is_under_way)
    before = shown(house).rig.orbit.place
    page.send(ev.PointerMove(X + 60, Y + 40))
    house.until(lambda: user.held.pointer == (X + 60, Y + 40))
    return (
        shown(house).rig.orbit.place == before and not shown(house).rig.orbit.dragging
    )


def test_page_that_connects_again_holds_nothing(house: House) -> None:
    page = house.page(id="mine")
    hold(house, page)
    page.end()
    house.until(lambda: not house.app.users)
    back = house.page(id="mine")
    assert still(house, back)
    assert not house.app.users[0].held.buttons
    assert not house.app.users[0].held.keys


def test_page_that_takes_over_from_its_lost_connection_holds_nothing_and_keeps_its_view(
    house: House,
) -> None:
    """The network is gone, and the viewer has not noticed when the page is there again."""
    page = house.page(id="mine")
    hold(house, page)
    user = house.app.users[0]
    lost = user.screen
    back = Page(house.browsers.server.port, acks=True)
    house.users[back] = user
    back.connect(token=house.browsers.server.token)
    back.greet(900, 520, id="mine")
    house.until(lambda: user.screen is not lost)
    assert house.app.users == [user]
    assert lost.state.closed
    assert still(house, back)


def test_page_that_is_hidden_holds_nothing(house: House) -> None:
    page = house.page()
    hold(house, page)
    page.send(Visible(False))
    house.until(lambda: not house.app.users[0].screen.state.visible)
    page.send(Visible(True))
    house.until(lambda: house.app.users[0].screen.state.visible)
    assert still(house, page)


def test_button_of_the_panel_that_is_held_is_let_go_and_not_pressed(
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


def test_drag_ends_where_another_entry_is_shown(
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
