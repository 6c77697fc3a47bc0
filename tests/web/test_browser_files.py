"""Files of somebody at a browser, the whole way: what they drop is opened, what is written is theirs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pytest
from support.scene_files import ply_columns, truth, write_ply
from support.web_visitors import ask, folder_fixture  # noqa: F401
from test_seats import House, shown

from splatview.viewer_app.files import load_scene
from splatview.viewer_app.paths.nerfstudio import read_path
from splatview.viewer_app.screens.offscreen import OffscreenScreen
from splatview.viewer_app.views._gaussians.filter import Filter
from splatview.viewer_app.views._gaussians.path import PathTool
from splatview.viewer_app.views.gaussians import GaussianView
from splatview.viewer_app.web import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.web_clients import Page

    from splatview.viewer_app.app import App
    from splatview.viewer_app.seat import Seat


class FilePages(House):
    """Browser pages that upload and download files."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.keys: dict[Page, str] = {}

    def page(self, *args: Any, **options: Any) -> Page:
        page = super().page(*args, **options)
        self.keys[page] = self.app.seats[-1].screen._connection.key  # type: ignore[attr-defined]
        return page

    def seat(self, page: Page) -> Seat:
        return next(seat for seat in self.app.seats if seat.screen._connection.key == self.keys[page])  # type: ignore[attr-defined]

    def send(self, page: Page, path: Path) -> None:
        """As the page's script does."""
        headers = {"Origin": f"http://127.0.0.1:{page.port}", "X-Splatview-Page": self.keys[page]}
        status, words, *_ = ask(page.port, "POST", f"/upload?name={quote(path.name)}", path.read_bytes(), headers)
        assert status == 200, words

    def kept(self) -> list[str]:
        """Names of the files that were sent and are there."""
        return sorted(name for parent, _, names in os.walk(self.folder) for name in names
                      if Path(parent).parent.name.startswith("splatview-files-"))

    def offer(self, page: Page) -> m.Offer:
        """What the page is offered next."""
        found: list[m.Offer] = []

        def come() -> bool:
            while not page._messages.empty():
                message = page.receive()
                if isinstance(message, m.Offer):
                    found.append(message)
            return bool(found)

        self.until(come)
        (offer,) = found
        return offer

    def fetch(self, page: Page, to: Path) -> Path:
        """Download what is offered next into a folder."""
        offer = self.offer(page)
        status, _, _, body = ask(page.port, "GET", f"/download?key={offer.key}")
        assert status == 200 and len(body) == offer.size
        (to / offer.name).write_bytes(body)
        return to / offer.name


@pytest.fixture
def pages(folder: Path) -> Iterator[FilePages]:
    made = FilePages(folder)
    yield made
    made.close()
    assert not made.kept()


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    path = tmp_path / "fox.ply"
    write_ply(path, ply_columns(truth(200)))
    return path


def view_of(app: App, seat: Seat) -> GaussianView:
    view = seat.view
    assert isinstance(view, GaussianView)
    return view


def opened(pages: FilePages, page: Page, scene: Path) -> GaussianView:
    """Send a scene; what shows it."""
    pages.send(page, scene)
    seat = pages.seat(page)
    pages.until(lambda: isinstance(seat.view, GaussianView) and seat.view.content.facts is not None)
    pages.at_rest(page)
    return view_of(pages.app, seat)


def path_of(view: GaussianView) -> PathTool:
    tool = view.tools["path"]
    assert isinstance(tool, PathTool)
    return tool


def test_a_scene_is_opened_for_who_sent_it(pages: FilePages, scene: Path) -> None:
    """Others find it in the list. It goes from the disk when it is closed there."""
    page, other = pages.page(), pages.page()
    pages.seat(other).select(None)
    view = opened(pages, page, scene)
    assert view.content.facts is not None and view.content.facts.count == 200
    assert shown(pages.seat(page)) == "fox.ply"
    assert [entry.name for entry in pages.seat(other).state.entries] == ["fox.ply"]
    assert pages.kept() == ["fox.ply"]
    pages.send(page, scene)
    pages.until(lambda: len(pages.app.catalogue.entries) == 2)
    for entry in list(pages.app.catalogue.entries):
        pages.app.catalogue.forget(entry.key)
    pages.until(lambda: not pages.kept())


@pytest.mark.exhaustive
def test_a_camera_path_is_for_the_scene_that_is_shown(pages: FilePages, scene: Path, tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read at once, and not kept."""
    page = pages.page()
    tool = path_of(opened(pages, page, scene))
    tool.around()
    before = len(tool.path.keys)
    monkeypatch.chdir(tmp_path)
    tool.save()
    saved = pages.fetch(page, tmp_path)
    tool.path.keys.clear()
    pages.send(page, saved)
    pages.until(lambda: len(tool.path.keys) == before)
    pages.until(lambda: pages.kept() == ["fox.ply"])
    assert shown(pages.seat(page)) == "fox.ply" and len(pages.app.catalogue.entries) == 1


def test_what_is_no_file_of_ours_is_said_and_can_be_closed(pages: FilePages, tmp_path: Path) -> None:
    page = pages.page()
    (tmp_path / "evil.pt").write_bytes(f"cposix\nsystem\n(S'touch {tmp_path}/done'\ntR.".encode())
    pages.send(page, tmp_path / "evil.pt")
    pages.until(lambda: any(entry.fault_of_source for entry in pages.app.catalogue.entries))
    (entry,) = pages.app.catalogue.entries
    assert not (tmp_path / "done").exists()
    pages.app.catalogue.forget(entry.key)
    pages.until(lambda: not pages.kept())


def test_a_page_that_leaves_at_once_leaves_nothing(pages: FilePages, scene: Path) -> None:
    """The file has come, and nobody has looked at the screen's events since."""
    page = pages.page()
    pages.send(page, scene)
    page.drop()
    pages.seat(page).screen.close()
    pages.until(lambda: not pages.kept())


def test_what_is_written_is_downloaded_by_who_asked(pages: FilePages, scene: Path, tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """A path, the scene, a film. A folder of pictures stays where it is, and the words say where."""
    there, here = tmp_path / "viewer", tmp_path / "user"
    there.mkdir()
    here.mkdir()
    monkeypatch.chdir(there)
    page, other = pages.page(), pages.page()
    view = opened(pages, page, scene)
    tool, filters = path_of(view), view.tools["filter"]
    assert isinstance(filters, Filter)
    tool.around()
    tool.save()
    assert len(read_path(pages.fetch(page, here)).path.keys) == len(tool.path.keys)
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
    while not other._messages.empty():
        assert not isinstance(other.receive(), m.Offer)


def test_where_nobody_is_far_nothing_is_handed_over(tmp_path: Path) -> None:
    screen = OffscreenScreen(64, 64)
    try:
        (tmp_path / "file").write_text("x")
        screen.hand_over(tmp_path / "file")
        assert [path.name for path in tmp_path.iterdir()] == ["file"]
    finally:
        screen.close()


def test_offers_of_what_is_not_there(pages: FilePages, tmp_path: Path) -> None:
    page = pages.page()
    screen = pages.seat(page).screen
    screen.hand_over(tmp_path / "nothing")
    screen.hand_over(tmp_path)
    (tmp_path / "file").write_text("x")
    screen.hand_over(tmp_path / "file")
    assert pages.offer(page).name == "file"
