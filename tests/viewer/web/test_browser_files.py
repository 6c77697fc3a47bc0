"""Files from and for a page, the whole way: shown, decoded by another program, and what is written is downloaded."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image
from support.house import House
from support.programs import children
from support.scene_files import ply_columns, truth, write_ply
from support.web_visitors import ask, kept

from splatview_viewer import formats as files
from splatview_viewer.formats import load_scene, nerfstudio, sandbox
from splatview_viewer.kinds.gaussians.filter import Filter
from splatview_viewer.kinds.gaussians.path import PathTool
from splatview_viewer.kinds.gaussians.view import GaussianView
from splatview_viewer.web import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.web_clients import Page

    from splatview_viewer.shell.seat import Seat


class FilePages(House):
    """Browser pages that upload and download files."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def send(self, page: Page, path: Path) -> None:
        """As the page's script does."""
        headers = {"Origin": f"http://127.0.0.1:{page.port}", "X-Splatview-Page": self.keys[page],
                   "X-Splatview-Token": self.browsers.server.token}
        status, words, *_ = ask(page.port, "POST", f"/upload?name={quote(path.name)}", path.read_bytes(), headers)
        assert status == 200, words

    def kept(self) -> list[str]:
        """Names of the files that were sent and are there."""
        return [path.name for path in kept(self.folder)]

    def fetch(self, page: Page, to: Path) -> Path:
        """Download what is offered next into a folder."""
        found: list[m.Offer] = []
        self.until(lambda: found.extend(o for o in page.messages() if isinstance(o, m.Offer)) or found)
        (offer,) = found
        status, _, _, body = ask(page.port, "GET", f"/download?key={offer.key}&token={self.browsers.server.token}")
        assert status == 200 and len(body) == offer.size
        (to / offer.name).write_bytes(body)
        return to / offer.name

    def show(self, page: Page, scene: Path) -> GaussianView:
        """Have a page show a file of this machine."""
        seat = self.seats[page]
        self.app.catalogue.open_file(scene, seat.panes.active)
        self.until(lambda: isinstance(seat.view, GaussianView) and seat.view.content.facts is not None)
        assert isinstance(seat.view, GaussianView)
        return seat.view

    def forget_all(self) -> None:
        for entry in list(self.app.catalogue.entries):
            self.app.catalogue.forget(entry.key)


@pytest.fixture
def pages(folder: Path) -> Iterator[FilePages]:
    with FilePages(folder) as made:
        yield made
    assert not made.kept()


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    return write_ply(tmp_path / "fox.ply", ply_columns(truth(200)))


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that decode files do nothing: they wait for their input."""
    class Waiting(sandbox.ReadingProgram):
        def __init__(self, module: str, *args: Any, **options: Any) -> None:
            super().__init__("asyncio", *args, **options)

    monkeypatch.setattr(sandbox, "ReadingProgram", Waiting)


def readers() -> list[int]:
    """Programs that decode files for this one."""
    return [pid for pid, line in children(os.getpid()).items()
            if "splatview_viewer.formats" in line or "asyncio" in line]


def shown(seat: Seat) -> str:
    entry = seat.state.shown
    return "" if entry is None else entry.name


def path_tool(view: GaussianView) -> PathTool:
    tool = view.tools["path"]
    assert isinstance(tool, PathTool)
    return tool


# -- from pages -------------------------------------------------------------------------------------------------------


@pytest.mark.programs
def test_files_of_pages_are_never_decoded_in_the_viewer(pages: FilePages, scene: Path, tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is opened for the page that sent it, found in the list by others, and gone from the disk once closed."""
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("decoded in the viewer")

    Image.new("RGB", (40, 30), (200, 10, 30)).save(tmp_path / "picture.png")
    (tmp_path / "evil.pt").write_bytes(f"cposix\nsystem\n(S'touch {tmp_path}/done'\ntR.".encode())
    page, other = pages.page(), pages.page()
    with monkeypatch.context() as patch:
        for module, name in ((files, "open_file"), (files, "find_format"), (json, "loads"), (np, "load")):
            patch.setattr(module, name, refuse)
        for name, kind in (("fox.ply", "gaussians"), ("picture.png", "image")):
            pages.send(page, tmp_path / name)
            pages.until(lambda name=name, kind=kind: any(
                entry.name == name and entry.kind == kind for entry in pages.app.catalogue.entries))
            pages.until(lambda name=name: shown(pages.seats[page]) == name)
        pages.send(page, tmp_path / "evil.pt")
        pages.until(lambda: pages.app.catalogue.entries[-1].fault_of_source)
    assert not (tmp_path / "done").exists()
    assert [entry.name for entry in pages.seats[other].state.entries] == ["fox.ply", "picture.png", "evil.pt"]
    assert set(pages.kept()) == {"fox.ply", "picture.png", "evil.pt"}
    pages.forget_all()
    pages.until(lambda: not pages.kept() and not readers())


@pytest.mark.programs
def test_camera_paths_of_pages_are_not_decoded_in_the_viewer(pages: FilePages, scene: Path, tmp_path: Path,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """A path is for the scene that is shown, read at once, and not kept."""
    page = pages.page()
    tool = path_tool(pages.show(page, scene))
    tool.around()
    (tmp_path / "path.json").write_text(nerfstudio.write_path(tool.film))
    before = len(tool.path.keys)
    tool.path.keys.clear()
    monkeypatch.setattr("splatview_viewer.kinds.gaussians.path.read_path", None)
    monkeypatch.setattr(nerfstudio, "parse_path", None)
    pages.send(page, tmp_path / "path.json")
    pages.until(lambda: len(tool.path.keys) == before and not pages.kept())
    assert len(pages.app.catalogue.entries) == 1


@pytest.mark.programs
@pytest.mark.usefixtures("waiting")
def test_the_loop_goes_on_while_a_file_is_decoded_and_a_crash_is_the_fault_of_one_entry(
        pages: FilePages, scene: Path) -> None:
    page = pages.page()
    pages.send(page, scene)
    pages.until(readers)
    (pid,) = readers()
    for _ in range(5):
        pages.seats[page].mark()
        pages.until(lambda: not pages.seats[page].dirty)
    assert readers() == [pid]
    os.kill(pid, signal.SIGSEGV)
    pages.until(lambda: any("crashed (SIGSEGV)" in entry.fault_of_source for entry in pages.app.catalogue.entries))
    pages.forget_all()
    pages.until(lambda: not pages.kept() and not readers())


@pytest.mark.programs
@pytest.mark.usefixtures("waiting")
def test_decoding_ends_with_its_page_or_its_entry(pages: FilePages, scene: Path, tmp_path: Path) -> None:
    page = pages.page()
    pages.send(page, scene)
    pages.until(readers)
    pages.forget_all()
    pages.until(lambda: not readers() and not pages.kept())
    pages.show(page, scene)
    (tmp_path / "path.json").write_text("{}")
    pages.send(page, tmp_path / "path.json")
    pages.until(readers)
    page.drop()
    pages.until(lambda: not readers() and not pages.kept())


# -- for pages --------------------------------------------------------------------------------------------------------


def test_what_is_written_is_downloaded_by_the_page_that_asked(pages: FilePages, scene: Path, tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    """A path, the scene, a film. A folder of pictures stays where it is, and the words say where."""
    there, here = tmp_path / "viewer", tmp_path / "user"
    there.mkdir()
    here.mkdir()
    monkeypatch.chdir(there)
    page, other = pages.page(), pages.page()
    view = pages.show(page, scene)
    tool, filters = path_tool(view), view.tools["filter"]
    assert isinstance(filters, Filter)
    tool.around()
    tool.save()
    assert len(nerfstudio.read_path(pages.fetch(page, here)).path.keys) == len(tool.path.keys)
    filters.export.begin(False)
    back = load_scene(pages.fetch(page, here))
    np.testing.assert_allclose(np.sort(back.means[:, 0]), np.sort(load_scene(scene).means[:, 0]), rtol=1e-6)
    tool.film = replace(tool.film, width=64, height=48, fps=1.0)
    tool.as_frames = True
    tool.record()
    pages.until(lambda: tool.filming is None)
    assert (there / "fox").is_dir()
    tool.as_frames = False
    tool.record()
    film = pages.fetch(page, here)
    assert film.suffix == ".mp4" and film.read_bytes() == (there / film.name).read_bytes()
    assert not any(isinstance(message, m.Offer) for message in other.messages())
