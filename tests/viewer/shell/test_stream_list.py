"""The list of streams: its order, pins and folds, as a user meets them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image
from support import widgets
from support.viewer import Viewer

import splatview
from splatview_viewer.core.events import Key, PointerMove, PointerPress, PointerRelease


@pytest.fixture
def files(viewer: Viewer, tmp_path: Path) -> list[str]:
    """Return the keys of three pictures in the list."""
    paths = [tmp_path / name for name in ("first.png", "second.png", "third.png")]
    for path in paths:
        Image.new("RGB", (8, 8)).save(path)
        viewer.catalogue.open_file(path)
    viewer.until(viewer.loaded)
    return [str(path) for path in paths]


def publish(viewer: Viewer, name: str) -> None:
    """Publish a picture, and wait until the list has it."""
    splatview.publish(torch.zeros((8, 8, 3), dtype=torch.uint8), name)
    viewer.until_listed(name)


def choose(viewer: Viewer, key: str, title: str) -> None:
    """Choose a row of the menu of an entry."""
    x, y = viewer.find(key)
    viewer.do(PointerMove(x, y), PointerPress(x, y, "right"))
    viewer.do(PointerRelease(x, y, "right"))
    viewer.click(title)


def height_of(viewer: Viewer, name: str) -> int:
    return viewer.find(name)[1]


def test_pinned_entry_is_first_and_remembered(viewer: Viewer, files: list[str]) -> None:
    choose(viewer, files[2], "Pin to the top of the list")
    choose(viewer, files[1], "Pin to the top of the list")
    third = height_of(viewer, f"pinned {files[2]}")
    second = height_of(viewer, f"pinned {files[1]}")
    assert third < second < height_of(viewer, files[0])
    assert viewer.catalogue.memo.get("interface")["pinned"] == [files[2], files[1]]
    choose(viewer, f"pinned {files[2]}", "Unpin it")
    assert viewer.user.interface.state.pinned == [files[1]]


def test_run_that_ends_stays_where_it_is(viewer: Viewer, files: list[str]) -> None:
    publish(viewer, "render")
    publish(viewer, "depth")
    names = [entry.name for entry in viewer.state.entries]
    assert names == ["render", "depth", "first.png", "second.png", "third.png"]
    splatview.close()
    viewer.until_run_ended()
    assert [entry.name for entry in viewer.state.entries] == names


def test_folders_stand_before_names_and_are_cut_first(viewer: Viewer) -> None:
    folder = "train/a folder of so many letters that the panel cannot hold them all"
    publish(viewer, f"{folder}/render")
    row = viewer.user.interface.rows.all[-1]
    assert (row.folder, row.text) == (f"{folder}/", "render")
    (entry,) = viewer.state.entries
    choose(viewer, entry.key, "Copy its name")
    assert viewer.screen.desktop.pasted() == f"{folder}/render"


def test_head_folds_its_entries(viewer: Viewer, files: list[str]) -> None:
    viewer.click("Files")
    viewer.find("Files")
    assert files[0] not in widgets.drawn
    viewer.click("Files")
    viewer.find("Files")
    assert files[0] in widgets.drawn


def test_run_that_is_published_cannot_be_taken_out(viewer: Viewer) -> None:
    publish(viewer, "render")
    (entry,) = viewer.state.entries
    choose(viewer, entry.key, "Take out of the list")
    viewer.do(Key("escape"), Key("escape", pressed=False))
    assert [entry.name for entry in viewer.state.entries] == ["render"]


def test_name_of_an_entry_is_copied(viewer: Viewer, files: list[str]) -> None:
    choose(viewer, files[1], "Copy its name")
    assert viewer.screen.desktop.pasted() == "second.png"
