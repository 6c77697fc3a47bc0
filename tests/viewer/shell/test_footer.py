"""The footer of the panel: files to open, what can be saved, and running jobs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from PIL import Image
from support import widgets
from support.viewer import Viewer

import splatview
from splatview_viewer.core.events import Key, Text
from splatview_viewer.core.jobs import RunningJob
from splatview_viewer.kinds.image.view import ImageView
from splatview_viewer.shell.runs import logged_curves


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a folder with two pictures, a text, and a folder with another picture."""
    folder = tmp_path / "here"
    (folder / "inner").mkdir(parents=True)
    for path in (folder / "a.png", folder / "b.png", folder / "inner" / "c.png"):
        Image.new("RGB", (8, 8)).save(path)
    Image.new("RGB", (8, 8)).save(tmp_path / "outside.png")
    (folder / "notes.txt").write_text("nothing to see")
    monkeypatch.chdir(folder)
    return folder


def is_drawn(viewer: Viewer, name: str) -> bool:
    widgets.drawn.clear()
    viewer.user.mark()
    viewer.do()
    return name in widgets.drawn


def open_list(viewer: Viewer, *names: str) -> None:
    """Open the list of files, and wait until it has these."""
    viewer.do(Key("o", mods=frozenset({"ctrl"})), Key("o", pressed=False))
    for name in names:
        viewer.until(partial(is_drawn, viewer, name))


def press_enter(viewer: Viewer) -> None:
    viewer.do(Key("enter"))
    viewer.do(Key("enter", pressed=False))


def test_open_lists_what_can_be_read_and_opens_it(viewer: Viewer, folder: Path) -> None:
    open_list(viewer, "a.png", "b.png", "inner", "Folder above")
    assert "notes.txt" not in widgets.drawn
    viewer.click("inner")
    viewer.until(partial(is_drawn, viewer, "c.png"))
    viewer.click("c.png")
    viewer.until(viewer.loaded)
    assert viewer.state.selected == str(folder / "inner" / "c.png")
    assert not is_drawn(viewer, "c.png") or "Folder above" not in widgets.drawn


def test_typed_path_is_opened(viewer: Viewer, folder: Path) -> None:
    open_list(viewer, "a.png")
    viewer.do(Text("inner/"))
    viewer.until(lambda: is_drawn(viewer, "c.png"))
    assert "a.png" not in widgets.drawn
    viewer.do(Text("../../ou"))
    viewer.until(lambda: is_drawn(viewer, "outside.png"))
    press_enter(viewer)
    viewer.until_listed()
    viewer.until(viewer.loaded)
    assert viewer.state.entries[0].name == "outside.png"


def test_page_opens_only_what_is_below_its_folder(
    viewer: Viewer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desktop = viewer.screen.desktop
    monkeypatch.setattr(desktop, "favours", frozenset({"files"}))
    open_list(viewer, "a.png", "Send one of yours …")
    assert "Folder above" not in widgets.drawn
    viewer.do(Text("../outside.png"))
    assert not is_drawn(viewer, "outside.png")
    press_enter(viewer)
    assert not viewer.state.entries
    assert viewer.state.toasts


def test_opened_file_is_listed_as_opened_lately(viewer: Viewer, folder: Path) -> None:
    viewer.user.open(folder / "b.png")
    viewer.until(viewer.loaded)
    assert viewer.catalogue.memo.get("recent") == [str(folder / "b.png")]


def test_curves_are_saved_as_csv(viewer: Viewer, folder: Path) -> None:
    splatview.publish(torch.zeros((8, 8, 3), dtype=torch.uint8), "render")
    splatview.log(7, loss=0.25)

    def can_save() -> bool:
        groups = viewer.user.interface.groups.update(viewer.user)
        return any(logged_curves(viewer.user, group) for group in groups)

    viewer.until(can_save)
    viewer.until(viewer.loaded)
    viewer.click("Save")
    viewer.click("Curves as .csv")
    (file,) = folder.glob("*-curves.csv")
    lines = file.read_text().splitlines()
    assert lines[0].startswith("curve,step,time,value")
    assert lines[1].startswith("loss,7.0,")


def test_running_jobs_are_counted_and_can_be_given_up(
    viewer: Viewer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewer.user.open(folder / "a.png")
    viewer.until(viewer.loaded)
    assert not is_drawn(viewer, "Running jobs")
    given_up = []

    def jobs(_: ImageView) -> list[RunningJob]:
        if given_up:
            return []
        return [RunningJob("The film", 0.5, lambda: given_up.append("film"))]

    monkeypatch.setattr(ImageView, "jobs", jobs)
    viewer.click("Running jobs")
    viewer.click("Cancel")
    assert given_up == ["film"]
    assert not is_drawn(viewer, "Running jobs")
