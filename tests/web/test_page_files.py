"""Files of pages in a whole viewer: each is shown, none is decoded in the viewer, and hostile ones cost it nothing."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.meters import children
from support.repetitions import exhaustive
from support.web_visitors import folder_fixture  # noqa: F401
from test_browser_files import (
    FilePages,
    opened,
    pages,  # noqa: F401
    path_of,
    scene,  # noqa: F401
    shown,
)
from test_files_apart import FILES

from splatview.viewer_app import files
from splatview.viewer_app.paths import nerfstudio

if TYPE_CHECKING:
    from support.web_clients import Page


def readers() -> list[int]:
    """Programs that decode files for this one."""
    found = []
    for pid in children(os.getpid()):
        try:
            if b"splatview.viewer_app.files.reading" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


@pytest.fixture
def no_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process fails where it decodes a file; the programs that it starts do not."""
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("decoded in the viewer")

    for module, name in ((files, "open_file"), (files, "_read"), (files, "recognise"), (nerfstudio, "parse_path"),
                         (json, "loads"), (np, "load")):
        monkeypatch.setattr(module, name, refuse)
    monkeypatch.setattr("splatview.viewer_app.views._gaussians.path.read_path", refuse)


def long_path(folder: Path) -> Path:
    """A camera path that takes seconds to decode."""
    matrix = np.eye(4).ravel().tolist()
    (folder / "long.json").write_text('{"camera_path": [' + ",".join(
        [f'{{"camera_to_world": {matrix}}}'] * 400_000) + "]}")
    return folder / "long.json"


@pytest.mark.usefixtures("no_decoding")
@pytest.mark.parametrize("kinds", [("ply", "sog", "png"), exhaustive(tuple(FILES), id="all")], ids=", ".join)
def test_files_of_pages_are_never_decoded_in_the_viewer(pages: FilePages, kinds: tuple[str, ...],  # noqa: F811
                                                        tmp_path: Path) -> None:
    page = pages.page()
    for kind in kinds:
        file = FILES[kind](tmp_path)
        pages.send(page, file)
        wanted = "image" if kind.split()[0] in ("png", "jpeg", "webp", "npy") else "gaussians"

        def come(name: str = file.name, wanted: str = wanted) -> bool:
            entry = next((e for e in pages.app.catalogue.entries if e.name == name), None)
            assert entry is None or not entry.fault_of_source, entry.fault_of_source
            return entry is not None and entry.kind == wanted and pages.seat(page).view is not None

        pages.until(come)
        assert shown(pages.seat(page)) == file.name
        for entry in list(pages.app.catalogue.entries):
            pages.app.catalogue.forget(entry.key)
    pages.until(lambda: not pages.kept() and not readers())


@pytest.mark.exhaustive  # quick: scenes
def test_camera_paths_of_pages_are_not_decoded_in_the_viewer(pages: FilePages, scene: Path, tmp_path: Path,  # noqa: F811
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    page = pages.page()
    tool = path_of(opened(pages, page, scene))
    tool.around()
    (tmp_path / "path.json").write_text(nerfstudio.write_path(tool.film))
    before = len(tool.path.keys)
    tool.path.keys.clear()
    monkeypatch.setattr("splatview.viewer_app.views._gaussians.path.read_path", None)
    monkeypatch.setattr(nerfstudio, "parse_path", None)
    pages.send(page, tmp_path / "path.json")
    pages.until(lambda: len(tool.path.keys) == before)
    (tmp_path / "bad.json").write_text("[" * 100_000)
    pages.send(page, tmp_path / "bad.json")
    pages.until(lambda: any("this is no JSON" in text for _, text in pages.seat(page).state.toasts))
    pages.until(lambda: pages.kept() == ["fox.ply"])
    assert len(pages.app.catalogue.entries) == 1


def test_the_loop_goes_on_while_a_file_is_decoded(pages: FilePages, scene: Path, tmp_path: Path) -> None:  # noqa: F811
    """A program that does nothing any more is the same to the viewer as one that takes long."""
    page = pages.page()
    opened(pages, page, scene)
    pages.send(page, long_path(tmp_path))
    pages.until(readers)
    (pid,) = readers()
    os.kill(pid, signal.SIGSTOP)
    for _ in range(20):
        draws = pages.app.draws
        pages.seat(page).mark()
        pages.until(lambda draws=draws: pages.app.draws > draws)
    assert readers() == [pid]
    os.kill(pid, signal.SIGSEGV)
    os.kill(pid, signal.SIGCONT)
    pages.until(lambda: any("crashed (SIGSEGV)" in text for _, text in pages.seat(page).state.toasts))
    pages.until(lambda: pages.kept() == ["fox.ply"] and not readers())


def test_a_crash_is_the_fault_of_one_entry(pages: FilePages, tmp_path: Path) -> None:  # noqa: F811
    page: Page = pages.page()
    (tmp_path / "scene.ply").write_bytes(FILES["ply"](tmp_path).read_bytes())
    pages.send(page, long_path(tmp_path))  # no scene is shown that it could be for: it is an entry
    pages.until(readers)
    for pid in readers():
        os.kill(pid, signal.SIGABRT)
    pages.until(lambda: any("crashed (SIGABRT)" in entry.fault_of_source for entry in pages.app.catalogue.entries))
    pages.send(page, tmp_path / "scene.ply")
    pages.until(lambda: any(entry.kind == "gaussians" for entry in pages.app.catalogue.entries))
    for entry in list(pages.app.catalogue.entries):
        pages.app.catalogue.forget(entry.key)
    pages.until(lambda: not pages.kept() and not readers())


def test_a_page_that_leaves_ends_the_decoding_of_its_path(pages: FilePages, scene: Path,  # noqa: F811
                                                          tmp_path: Path) -> None:
    page = pages.page()
    opened(pages, page, scene)
    pages.send(page, long_path(tmp_path))
    pages.until(readers)
    os.kill(readers()[0], signal.SIGSTOP)  # it would not end by itself
    page.drop()
    pages.until(lambda: not readers() and pages.kept() == ["fox.ply"])


def test_an_entry_that_is_closed_ends_its_decoding(pages: FilePages, tmp_path: Path) -> None:  # noqa: F811
    page = pages.page()
    pages.send(page, long_path(tmp_path))
    pages.until(readers)
    os.kill(readers()[0], signal.SIGSTOP)
    (entry,) = pages.app.catalogue.entries
    pages.app.catalogue.forget(entry.key)
    pages.until(lambda: not readers() and not pages.kept())
