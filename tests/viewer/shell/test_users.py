"""Several users of one viewer, each with a size, selection and camera of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.house import House
from support.leaks import living_pixels
from support.scene_files import ply_columns, truth, write_ply

import splatview
from splatview_viewer.core import events as ev
from splatview_viewer.shell.user import User
from splatview_viewer.web.messages import Visible


def entry_name(user: User) -> str:
    """Return the name of the user's selected entry, empty without one."""
    entry = user.state.selected_entry
    if entry is None:
        return ""
    return entry.name


def zoom_of(house: House, index: int = 0) -> float:
    """Return how far a user has zoomed into the picture."""
    return house.app.users[index].view.view.zoom  # type: ignore[union-attr]


def has_zoomed(house: House) -> bool:
    return zoom_of(house) > 2


@pytest.fixture
def house(picture: Path) -> Iterator[House]:
    with House(picture) as new_house:
        yield new_house


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """Write a picture in which no two rows or columns are alike."""
    y, x = np.mgrid[0:300, 0:400]
    path = tmp_path / "picture.png"
    channels = [x * 255 // 399, y * 255 // 299, (x + y) % 256]
    Image.fromarray(np.stack(channels, -1).astype(np.uint8)).save(path)
    return path


def test_each_page_has_its_own_size_zoom_and_entry(
    house: House, picture: Path, tmp_path: Path
) -> None:
    wide = house.page(900, 520)
    tall = house.page(400, 700)
    expected = np.asarray(Image.open(picture)).astype(int)
    initial = house.final_picture(tall)
    assert initial.shape == (700, 400, 3)
    # A narrow page starts without the panel.
    rect = house.users[tall].layout.active.rect
    top = rect.y + (rect.height - 300) // 2
    np.testing.assert_array_equal(initial[top : top + 300], expected)
    wide.send(ev.Wheel(x=590, y=250, dx=0, dy=4, at=1.0))
    house.until(partial(has_zoomed, house))
    assert house.final_picture(wide).shape == (520, 900, 3)
    assert zoom_of(house, 1) == 1
    tall.send(ev.Key(name="h", pressed=True, repeat=False, at=2.0))
    tall.send(ev.Key(name="h", pressed=True, repeat=False, at=2.0))
    np.testing.assert_array_equal(house.final_picture(tall), initial)
    second_file = tmp_path / "other.png"
    Image.new("RGB", (50, 40), (200, 10, 30)).save(second_file)
    house.app.catalogue.open_file(second_file, house.app.users[1].layout.active)

    def have_own_entries() -> bool:
        names = [entry_name(user) for user in house.app.users]
        return names == ["picture.png", "other.png"]

    house.until(have_own_entries)


def test_picture_is_written_beside_browsers(picture: Path, tmp_path: Path) -> None:
    """Check `serve --web --out`, where the file has a user of its own."""
    out = tmp_path / "out.png"
    house = House(picture, watched=True, out=out)
    page = house.page()
    house.until(out.exists)
    assert house.final_picture(page).shape == (520, 900, 3)
    with Image.open(out) as written:
        assert written.size == (700, 400)
    house.close()


def test_hidden_or_closed_page_frees_its_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trimmed = threading.Event()
    monkeypatch.setattr("splatview_viewer.web.browsers.trim", trimmed.set)
    scene = write_ply(tmp_path / "scene.ply", ply_columns(truth(200)))
    page_pixels = 800 * 600
    with House(scene) as house:

        def has_read_all() -> bool:
            entries = house.app.catalogue.entries
            return all(entry.progress is None for entry in entries)

        house.until(has_read_all)
        initial = living_pixels()
        hidden = house.page(800, 600)
        closed = house.page(800, 600)
        house.final_picture(hidden)
        house.final_picture(closed)
        assert living_pixels() - initial > 2 * page_pixels
        first, second = house.app.users

        def has_one_user() -> bool:
            return len(house.app.users) == 1

        def has_no_target() -> bool:
            return not first.screen.has_target  # type: ignore[attr-defined]

        def has_freed_pixels() -> bool:
            return living_pixels() < initial + page_pixels // 2

        hidden.send(Visible(False))
        closed.end()
        house.until(has_one_user)
        house.until(has_no_target)
        assert not second.screen.has_target  # type: ignore[attr-defined]
        house.until(has_freed_pixels)
        house.until(trimmed.is_set)
        hidden.send(Visible(True))
        assert house.final_picture(hidden).shape == (600, 800, 3)


def test_returning_page_shows_the_same_and_costs_nothing_meanwhile(
    house: House,
) -> None:
    splatview.publish(torch.full((40, 60, 3), 77, dtype=torch.uint8), "render")
    page = house.page(id="mine")

    def stream_keys() -> list[str]:
        entries = house.app.catalogue.entries
        return [entry.key for entry in entries if entry.name == "render"]

    def has_view() -> bool:
        return house.app.users[0].view is not None

    house.until(stream_keys)
    (stream_key,) = stream_keys()
    house.app.users[0].select(stream_key)
    house.until(has_view)
    page.send(ev.Wheel(x=590, y=250, dx=0, dy=4, at=1.0))
    house.until(partial(has_zoomed, house))
    initial = house.final_picture(page)
    zoom = zoom_of(house)
    assert initial[250, 600].tolist() == [77, 77, 77]
    stream = house.app.catalogue.slots[stream_key].source.stream  # type: ignore[attr-defined]
    assert stream.opened
    page.end()

    def has_no_users() -> bool:
        return not house.app.users

    house.until(has_no_users)
    assert not stream.opened
    second_page = house.page(id="another")
    back = house.page(id="mine")
    house.until(lambda: stream.opened)
    returned = house.final_picture(back)
    rect = house.users[back].layout.active.rect
    pane_slices = (
        slice(rect.y, rect.y + rect.height),
        slice(rect.x, rect.x + rect.width),
    )
    np.testing.assert_array_equal(returned[pane_slices], initial[pane_slices])
    assert zoom_of(house, 1) == zoom
    assert entry_name(house.users[second_page]) == "picture.png"
