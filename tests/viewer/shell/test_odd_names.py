"""Names of files that are not UTF-8 are shown with what stands for their bytes, and end
nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image
from support import widgets
from support.house import House
from support.scene_files import ply_columns, truth, write_ply
from support.viewer import Viewer

from splatview_viewer.core import events as ev
from splatview_viewer.core.jobs import Jobs
from splatview_viewer.web.messages import Clipboard, Offer, encode
from splatview_viewer.workspace.sources import FileSource

ODD = os.fsdecode(b"caf\xe9-\xff")
SHOWN = r"caf\udce9-\udcff"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of such a name, which is the current one, with a scene, a picture and a
    path in it.
    """
    made = tmp_path / ODD
    made.mkdir()
    monkeypatch.chdir(made)
    Image.new("RGB", (60, 40), (200, 30, 40)).save(made / f"{ODD}.png")
    write_ply(made / f"{ODD}.ply", ply_columns(truth(100)))
    (made / f"{ODD}.json").write_text("{}")
    return made


@pytest.mark.parametrize("ending", ["png", "ply", "json", "missing"])
def test_file_of_any_name_is_shown_in_list_and_panel(
    viewer: Viewer, folder: Path, ending: str
) -> None:
    viewer.catalogue.open_file(folder / f"{ODD}.{ending}")
    viewer.until(lambda: all(e.progress is None for e in viewer.state.entries))
    x, y = viewer.find(f"{folder.parent}/{SHOWN}/{SHOWN}.{ending}")
    viewer.do(ev.PointerMove(x, y))
    viewer.user.mark(3)
    viewer.do()
    panel = viewer.user.panel.faults
    viewport = viewer.user.layout.active.faults
    assert not panel.reason("list")
    assert not panel.reason("panel")
    assert not viewport.reason("overlay")
    assert [entry.name for entry in viewer.state.entries] == [f"{SHOWN}.{ending}"]
    viewer.user.drop([str(folder / f"{ODD}.{ending}")])
    viewer.do()
    viewer.do(ev.Key("s", mods=frozenset({"ctrl"})))
    assert not viewer.state.notices
    widgets.drawn.clear()


def test_page_is_offered_and_told_names_that_are_not_utf8(folder: Path) -> None:
    with House(folder / f"{ODD}.png") as house:
        page = house.page()
        assert house.final_picture(page).shape == (520, 900, 3)
        user = house.app.users[0]
        user.screen.desktop.hand_over(folder / f"{ODD}.json")
        user.say(f"Saved {folder / ODD}")
        user.screen.desktop.copy(ODD)
        assert house.final_picture(page).shape == (520, 900, 3)
        assert not house.app.catalogue.notices


def test_messages_to_a_page_are_utf8_whatever_is_in_them() -> None:
    assert '"caf\ufffd-\ufffd"' in encode(Clipboard(ODD))
    message = encode(Offer(ODD, "key", 5))
    assert '"caf\ufffd-\ufffd"' in message
    assert '"size":5' in message
    assert '"plain"' in encode(Clipboard("plain"))


def test_reason_of_a_job_can_be_shown(viewer: Viewer) -> None:
    def fail(_: object) -> None:
        raise ValueError(f"{ODD} is damaged")

    job = Jobs("odd").submit(fail)
    assert job.wait(30)
    assert job.fault == f"ValueError: {SHOWN} is damaged"
    viewer.catalogue.notice(f"{ODD} cannot be used")
    viewer.do()
    assert viewer.state.notices == [f"{SHOWN} cannot be used"]


def test_menu_of_a_file_is_its_own_among_names_that_imgui_takes_for_one(
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
    viewer.click("Close this file")
    assert [entry.key for entry in viewer.state.entries] == [str(paths[1])]


def test_list_of_very_many_files_costs_what_is_seen_of_it(
    viewer: Viewer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / f"{i:03}.png" for i in range(120)]
    for path in paths:
        Image.new("RGB", (8, 8)).save(path)
        viewer.catalogue.open_file(path)
    viewer.until(lambda: all(entry.progress is None for entry in viewer.state.entries))
    viewer.find(str(paths[0]))
    lines = [name for name in widgets.drawn if name.startswith(str(tmp_path))]
    assert 5 < len(lines) < 30

    asked = []
    refresh = FileSource.refresh
    monkeypatch.setattr(
        FileSource, "refresh", lambda *of: (asked.append(of[0]), refresh(*of))
    )
    for _ in range(5):
        viewer.tick(viewer.due + 1)
    assert {source.file for source in asked} == {paths[0]}

    for _ in range(40):
        viewer.do(ev.Wheel(100.0, 200.0, -20.0))
    viewer.click(str(paths[-1]))
    assert viewer.state.selected == str(paths[-1])
