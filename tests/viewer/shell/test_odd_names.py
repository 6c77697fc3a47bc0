"""Names of files that are not UTF-8.

They are shown with escapes in place of their bytes, and end nothing.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support import widgets
from support.house import House
from support.scene_files import ply_columns, truth, write_ply
from support.viewer import Viewer

from splatview_viewer.core import events as ev
from splatview_viewer.core.jobs import JobQueue
from splatview_viewer.web.messages import Clipboard, Offer, encode
from splatview_viewer.workspace.file_source import FileSource

ODD = os.fsdecode(b"caf\xe9-\xff")
READABLE = r"caf\udce9-\udcff"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a folder of such a name that has a scene, a picture and a path."""
    new_folder = tmp_path / ODD
    new_folder.mkdir()
    monkeypatch.chdir(new_folder)
    Image.new("RGB", (60, 40), (200, 30, 40)).save(new_folder / f"{ODD}.png")
    write_ply(new_folder / f"{ODD}.ply", ply_columns(truth(100)))
    (new_folder / f"{ODD}.json").write_text("{}")
    return new_folder


def has_read_all(viewer: Viewer) -> bool:
    return all(entry.progress is None for entry in viewer.state.entries)


@pytest.mark.parametrize("ending", ["png", "ply", "json", "missing"])
def test_file_of_any_name_is_shown_in_list_and_panel(
    viewer: Viewer, folder: Path, ending: str
) -> None:
    viewer.catalogue.open_file(folder / f"{ODD}.{ending}")
    viewer.until(partial(has_read_all, viewer))
    x, y = viewer.find(f"{folder.parent}/{READABLE}/{READABLE}.{ending}")
    viewer.do(ev.PointerMove(x, y))
    viewer.user.mark(3)
    viewer.do()
    interface_faults = viewer.user.interface.faults
    for part_name in ("list of streams", "sections", "details", "panel", "strips"):
        assert not interface_faults.reason(part_name)
    viewport_faults = viewer.user.layout.active.faults
    assert not viewport_faults.reason("overlay")
    assert [entry.name for entry in viewer.state.entries] == [f"{READABLE}.{ending}"]
    viewer.user.drop([str(folder / f"{ODD}.{ending}")])
    viewer.do()
    viewer.do(ev.Key("s", mods=frozenset({"ctrl"})))
    assert not viewer.state.notices
    widgets.drawn.clear()


def test_page_receives_names_that_are_not_utf8(folder: Path) -> None:
    with House(folder / f"{ODD}.png") as house:
        page = house.page()
        assert house.final_picture(page).shape == (520, 900, 3)
        user = house.app.users[0]
        user.screen.desktop.hand_over(folder / f"{ODD}.json")
        user.say(f"Saved {folder / ODD}")
        user.screen.desktop.copy(ODD)
        assert house.final_picture(page).shape == (520, 900, 3)
        assert not house.app.catalogue.notices


def test_messages_to_a_page_are_always_utf8() -> None:
    assert '"caf\ufffd-\ufffd"' in encode(Clipboard(ODD))
    message = encode(Offer(ODD, "key", 5))
    assert '"caf\ufffd-\ufffd"' in message
    assert '"size":5' in message
    assert '"plain"' in encode(Clipboard("plain"))


def test_reason_of_a_job_can_be_shown(viewer: Viewer) -> None:
    def fail(_: object) -> None:
        raise ValueError(f"{ODD} is damaged")

    job = JobQueue("odd").submit(fail)
    assert job.wait(30)
    assert job.fault == f"ValueError: {READABLE} is damaged"
    viewer.catalogue.notice(f"{ODD} cannot be used")
    viewer.do()
    assert viewer.state.notices == [f"{READABLE} cannot be used"]


def test_menu_belongs_to_its_file_among_names_that_imgui_confuses(
    viewer: Viewer, tmp_path: Path
) -> None:
    paths = [tmp_path / folder / "a###b.png" for folder in ("first", "second")]
    for path in paths:
        path.parent.mkdir()
        Image.new("RGB", (8, 8)).save(path)
        viewer.catalogue.open_file(path)
    viewer.until(viewer.loaded)
    x, y = viewer.find(str(paths[0]))
    viewer.do(ev.PointerMove(x, y), ev.PointerPress(x, y, "right"))
    viewer.do(ev.PointerRelease(x, y, "right"))
    viewer.click("Take out of the list")
    assert [entry.key for entry in viewer.state.entries] == [str(paths[1])]


def test_list_of_many_files_costs_as_much_as_its_visible_lines(
    viewer: Viewer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / f"{i:03}.png" for i in range(60)]
    for path in paths:
        Image.new("RGB", (8, 8)).save(path)
        viewer.catalogue.open_file(path)
    viewer.until(partial(has_read_all, viewer))
    viewer.find(str(paths[0]))
    lines = [name for name in widgets.drawn if name.startswith(str(tmp_path))]
    assert 5 < len(lines) < 30

    refreshed = []
    refresh = FileSource.refresh

    def record_refresh(source: FileSource, *arguments: Any) -> Any:
        refreshed.append(source)
        return refresh(source, *arguments)

    monkeypatch.setattr(FileSource, "refresh", record_refresh)
    for _ in range(5):
        viewer.tick(viewer.due + 1)
    assert {source.file for source in refreshed} == {paths[0]}

    viewer.do(*[ev.Wheel(100.0, 200.0, -20.0)] * 20)
    viewer.click(str(paths[-1]))
    assert viewer.state.selected == str(paths[-1])
