"""Several users of one viewer: each with an own size, selection and camera over the
same data.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
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


def shown(user: User) -> str:
    entry = user.state.selected_entry
    return "" if entry is None else entry.name


@pytest.fixture
def house(picture: Path) -> Iterator[House]:
    with House(picture) as made:
        yield made


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """No two rows or columns alike."""
    y, x = np.mgrid[0:300, 0:400]
    path = tmp_path / "picture.png"
    Image.fromarray(
        np.stack([x * 255 // 399, y * 255 // 299, (x + y) % 256], -1).astype(np.uint8)
    ).save(path)
    return path


def test_each_page_has_its_own_size_zoom_and_entry(
    house: House, picture: Path, tmp_path: Path
) -> None:
    wide = house.page(900, 520)
    tall = house.page(400, 700)
    whole = np.asarray(Image.open(picture)).astype(int)
    before = house.final_picture(tall)
    assert before.shape == (700, 400, 3)
    np.testing.assert_array_equal(
        before[200:500], whole
    )  # a narrow page begins without the panel
    wide.send(ev.Wheel(x=590, y=250, dx=0, dy=4, at=1.0))
    house.until(lambda: house.app.users[0].view.view.zoom > 2)  # type: ignore[union-attr]
    assert house.final_picture(wide).shape == (520, 900, 3)
    assert house.app.users[1].view.view.zoom == 1  # type: ignore[union-attr]
    tall.send(ev.Key(name="h", pressed=True, repeat=False, at=2.0))
    tall.send(ev.Key(name="h", pressed=True, repeat=False, at=2.0))
    np.testing.assert_array_equal(house.final_picture(tall), before)
    Image.new("RGB", (50, 40), (200, 10, 30)).save(tmp_path / "other.png")
    house.app.catalogue.open_file(
        tmp_path / "other.png", house.app.users[1].layout.active
    )
    house.until(
        lambda: (
            [shown(user) for user in house.app.users] == ["picture.png", "other.png"]
        )
    )


def test_a_picture_is_written_beside_browsers(picture: Path, tmp_path: Path) -> None:
    """`serve --web --out`: the file has a user of its own."""
    out = tmp_path / "out.png"
    house = House(picture, watched=True, out=out)
    page = house.page()
    house.until(out.exists)
    assert house.final_picture(page).shape == (520, 900, 3)
    with Image.open(out) as written:
        assert written.size == (700, 400)
    house.close()


def test_page_that_is_hidden_or_closes_gives_back_what_it_was_drawn_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trimmed = threading.Event()
    monkeypatch.setattr("splatview_viewer.web.browser.trim", trimmed.set)
    scene = write_ply(tmp_path / "scene.ply", ply_columns(truth(200)))
    with House(scene) as house:
        house.until(
            lambda: all(e.progress is None for e in house.app.catalogue.entries)
        )
        before = living_pixels()
        page = house.page(1600, 1200)
        other = house.page(1600, 1200)
        house.final_picture(page)
        house.final_picture(other)
        shown = living_pixels()
        assert shown - before > 2 * 1600 * 1200
        first, second = house.app.users
        page.send(Visible(False))
        other.end()
        house.until(lambda: len(house.app.users) == 1)
        house.until(lambda: not first.screen.has_target)  # type: ignore[attr-defined]
        assert not second.screen.has_target  # type: ignore[attr-defined]
        house.until(lambda: living_pixels() < before + 1600 * 1200 // 2)
        house.until(trimmed.is_set)
        page.send(Visible(True))
        assert house.final_picture(page).shape == (1200, 1600, 3)


def test_a_page_that_comes_back_sees_what_it_saw_and_costs_nothing_meanwhile(
    house: House,
) -> None:
    splatview.publish(torch.full((40, 60, 3), 77, dtype=torch.uint8), "render")
    page = house.page(id="mine")
    house.until(lambda: any(e.name == "render" for e in house.app.catalogue.entries))
    entry = next(e for e in house.app.catalogue.entries if e.name == "render")
    house.app.users[0].select(entry.key)
    house.until(lambda: house.app.users[0].view is not None)
    page.send(ev.Wheel(x=590, y=250, dx=0, dy=4, at=1.0))
    house.until(lambda: house.app.users[0].view.view.zoom > 2)  # type: ignore[union-attr]
    before, zoom = house.final_picture(page), house.app.users[0].view.view.zoom  # type: ignore[union-attr]
    assert before[250, 600].tolist() == [77, 77, 77]
    stream = house.app.catalogue.slots[entry.key].source.stream  # type: ignore[attr-defined]
    assert stream.opened
    page.end()
    house.until(lambda: not house.app.users)
    assert not stream.opened
    other = house.page(id="another")
    back = house.page(id="mine")
    house.until(lambda: stream.opened)
    np.testing.assert_array_equal(
        house.final_picture(back)[:480, 280:], before[:480, 280:]
    )
    assert house.app.users[1].view.view.zoom == zoom  # type: ignore[union-attr]
    assert shown(house.users[other]) == "picture.png"
