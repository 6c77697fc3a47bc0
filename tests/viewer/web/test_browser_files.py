"""Files from and for a page, the whole way: uploaded, decoded, shown and downloaded."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image
from support.house import House
from support.programs import children
from support.scene_files import ply_columns, truth, write_ply
from support.web_clients import send_request, uploaded_files

from splatview_viewer import formats as files
from splatview_viewer.formats import camera_paths, open_file
from splatview_viewer.web import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.web_clients import Page

    from splatview_viewer.scene_view.path import PathTool


class FilePages(House):
    """Browser pages that upload and download files."""

    def send(self, page: Page, path: Path) -> None:
        """Upload a file as the page's script does."""
        answer = send_request(
            page.port,
            f"/upload?name={quote(path.name)}",
            path.read_bytes(),
            **{
                "X-Splatview-Page": self.keys[page],
                "X-Splatview-Token": self.browsers.server.token,
            },
        )
        assert answer.status == 200, answer.text

    def fetch(self, page: Page, to: Path) -> Path:
        """Download what is offered next into a folder."""
        offers: list[m.Offer] = []

        def has_offer() -> bool:
            offers.extend(o for o in page.messages() if isinstance(o, m.Offer))
            return bool(offers)

        self.until(has_offer)
        (offer,) = offers
        answer = send_request(
            page.port, f"/download?key={offer.key}&token={self.browsers.server.token}"
        )
        assert answer.status == 200
        assert len(answer.body) == offer.size
        (to / offer.name).write_bytes(answer.body)
        return to / offer.name

    def path_tool(self, page: Page, scene: Path) -> tuple[Any, PathTool]:
        """Have a page show a file of this machine, with a camera path around it."""
        user: Any = self.users[page]
        self.app.catalogue.open_file(scene, user.layout.active)

        def is_shown() -> bool:
            return user.view is not None and not user.view.empty

        self.until(is_shown)
        tool = user.view.view.tools["path"]
        tool.circle_scene()
        return user.view, tool

    def forget_all(self) -> None:
        for entry in list(self.app.catalogue.entries):
            self.app.catalogue.forget(entry.key)


@pytest.fixture
def pages(folder: Path) -> Iterator[FilePages]:
    with FilePages() as new_pages:
        yield new_pages
    assert not uploaded_files(folder)


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    return write_ply(tmp_path / "fox.ply", ply_columns(truth(200)))


@pytest.mark.programs
def test_scenes_of_pages_are_never_decoded_in_the_viewer(
    pages: FilePages,
    scene: Path,
    tmp_path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each file is shown to its page, listed for others, and removed once closed.

    A camera path is for the scene that is shown: it is read at once, and not kept.
    """

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("decoded in the viewer")

    Image.new("RGB", (40, 30), (200, 10, 30)).save(tmp_path / "picture.png")
    (tmp_path / "evil.pt").write_bytes(
        f"cposix\nsystem\n(S'touch {tmp_path}/done'\ntR.".encode()
    )
    page = pages.page()
    other_page = pages.page()

    def selects(name: str) -> bool:
        entry = pages.users[page].state.selected_entry
        return entry is not None and entry.name == name

    _, tool = pages.path_tool(page, scene)
    (tmp_path / "path.json").write_text(camera_paths.write_path(tool.film))
    keys = len(tool.path.keys)
    tool.path.keys.clear()
    pages.send(page, tmp_path / "path.json")

    def is_path_opened() -> bool:
        return len(tool.path.keys) == keys and not uploaded_files(folder)

    pages.until(is_path_opened)
    pages.forget_all()
    with monkeypatch.context() as patch:
        for module, name in (
            (files, "open_file"),
            (files, "find_format"),
            (json, "loads"),
            (np, "load"),
        ):
            patch.setattr(module, name, refuse)
        for name in ("fox.ply", "picture.png"):
            pages.send(page, tmp_path / name)
            pages.until(partial(selects, name))
        pages.send(page, tmp_path / "evil.pt")
        pages.until(lambda: pages.app.catalogue.entries[-1].fault_of_source)
    assert not (tmp_path / "done").exists()
    names = ["fox.ply", "picture.png", "evil.pt"]
    assert [entry.name for entry in pages.users[other_page].state.entries] == names
    assert [path.name for path in uploaded_files(folder)] == names
    pages.forget_all()

    def is_cleared() -> bool:
        has_readers = "splatview_viewer.formats" in str(children(os.getpid()))
        return not has_readers and not uploaded_files(folder)

    pages.until(is_cleared)


def test_written_files_are_downloaded_by_the_page_that_asked(
    pages: FilePages, scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A camera path, the scene and a film are downloaded."""
    viewer_folder, user_folder = (tmp_path / name for name in ("viewer", "user"))
    viewer_folder.mkdir()
    user_folder.mkdir()
    monkeypatch.chdir(viewer_folder)
    page = pages.page()
    other_page = pages.page()
    view, tool = pages.path_tool(page, scene)
    tool.storage.save()
    assert len(camera_paths.read_path(pages.fetch(page, user_folder)).path.keys) == len(
        tool.path.keys
    )
    view.view.tools["filter"].save(only_shown=False)
    back = open_file(pages.fetch(page, user_folder))
    np.testing.assert_allclose(
        np.sort(back.means[:, 0]), np.sort(open_file(scene).means[:, 0]), rtol=1e-6
    )
    tool.film = replace(tool.film, width=64, height=48, fps=1.0)
    tool.film_maker.start()
    pages.until(lambda: tool.film_maker.filming is None)
    film = pages.fetch(page, user_folder)
    assert film.suffix == ".mp4"
    assert film.read_bytes() == (viewer_folder / film.name).read_bytes()
    assert not any(isinstance(message, m.Offer) for message in other_page.messages())
