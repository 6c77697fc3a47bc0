"""Files that are replaced on the disk while they are shown."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support import scene_files as w
from support.viewer import Viewer
from support.wait import polls

from splatview_viewer.core.events import Wheel
from splatview_viewer.core.settings import Entry
from splatview_viewer.formats import checkpoint
from splatview_viewer.workspace.file_source import FileSource


def replace(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a file beside another and rename it, as many programs do."""
    temporary_path = path.with_name(f"beside{path.suffix}")
    write(temporary_path)
    os.replace(temporary_path, path)


class Reader:
    """Source whose entry is shown, in a time of its own.

    A second goes by with each turn.
    """

    def __init__(self, path: Path) -> None:
        self.source = FileSource(path)
        self.entry = Entry(str(path), "Files", path.name, is_file=True)
        self.now = 0.0
        self.source.open()

    def take_turns(self, condition: Callable[[], Any]) -> None:
        for _ in polls(f"{condition}, {self.entry}"):
            self.now += 1.0
            self.source.refresh(self.entry, self.now)
            if condition():
                return

    def reads(self, count: int) -> bool:
        """Return whether a scene of this many Gaussians was read."""
        value: Any = self.source.value
        return value is not None and len(value) == count

    def until_reads(self, count: int) -> None:
        """Take turns until a scene of this many Gaussians was read."""
        self.take_turns(partial(self.reads, count))

    def until_fault(self, text: str) -> None:
        """Take turns until the fault of the source has this text."""

        def has_fault() -> bool:
            return text in self.entry.fault_of_source

        self.take_turns(has_fault)


@pytest.fixture
def read(request: pytest.FixtureRequest) -> Callable[[Path], Reader]:
    def make(path: Path) -> Reader:
        reader = Reader(path)
        request.addfinalizer(reader.source.close)
        return reader

    return make


def _write_folder(path: Path, files: dict[str, bytes]) -> None:
    path.mkdir(exist_ok=True)
    for name, data in files.items():

        def write(temporary_path: Path, data: bytes = data) -> None:
            temporary_path.write_bytes(data)

        replace(path / name, write)


def _replace_file(path: Path, count: int) -> None:
    columns = w.ply_columns(w.truth(count, 0))

    def write(temporary_path: Path) -> None:
        w.write_ply(temporary_path, columns)

    replace(path, write)


def _write_file_anew(path: Path, count: int) -> None:
    w.write_splat(path, w.truth(count, 0))


def _write_sog_planes(path: Path, count: int) -> None:
    _write_folder(path, w.sog_files(w.truth(count, 1)))


def _write_gsplat_planes(path: Path, count: int) -> None:
    _write_folder(path, w.gsplat_png_files(w.truth(count, 1)))


def _write_iteration(path: Path, count: int) -> None:
    folder = path / "point_cloud" / f"iteration_{1000 * count}"
    folder.mkdir(parents=True)
    w.write_ply(folder / "point_cloud.ply", w.ply_columns(w.truth(count, 0)))


def _write_rank(path: Path, count: int) -> None:
    path.mkdir(exist_ok=True)
    w.write_checkpoint(path / f"ckpt_{count}_rank0.pt", w.truth(count, 0))


KINDS: dict[str, Callable[[Path, int], Any]] = {
    "a file replaced": _replace_file,
    "a file written again": _write_file_anew,
    "planes of a SOG": _write_sog_planes,
    "planes of gsplat": _write_gsplat_planes,
    "a new iteration": _write_iteration,
    "a new step": _write_rank,
}


@pytest.mark.parametrize("kind", KINDS)
def test_file_replaced_on_disk_is_read_again(
    kind: str,
    read: Callable[[Path], Reader],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoint, "run", w.read_in_process)
    path = tmp_path / "scene.splat"
    KINDS[kind](path, 4)
    reader = read(path)
    reader.until_reads(4)
    # A view has taken the value.
    reader.source.value = None
    KINDS[kind](path, 9)
    reader.until_reads(9)
    assert reader.entry.fault_of_source == ""
    assert reader.entry.progress is None


def test_file_of_the_same_size_and_time_is_read_again(
    read: Callable[[Path], Reader], tmp_path: Path
) -> None:
    """Write a file as `cp -p` and `rsync --inplace -t` leave it."""
    path = w.write_splat(tmp_path / "scene.splat", w.truth(4, 0, seed=1))
    stat = path.stat()
    reader = read(path)
    reader.until_reads(4)
    reader.source.value = None
    second_path = w.write_splat(tmp_path / "other.splat", w.truth(4, 0, seed=2))
    with path.open("r+b") as f:
        f.write(second_path.read_bytes())
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    reader.until_reads(4)


def test_file_is_read_again_once_and_only_while_it_is_shown(
    read: Callable[[Path], Reader], tmp_path: Path
) -> None:
    path = w.write_splat(tmp_path / "scene.splat", w.truth(4, 0))
    witness_path = w.write_splat(tmp_path / "other.splat", w.truth(4, 0))
    reader = read(path)
    witness = read(witness_path)
    for r in (reader, witness):
        r.until_reads(4)
        r.source.value = None
    reader.source.release()
    w.write_splat(path, w.truth(9, 0))
    w.write_splat(witness_path, w.truth(9, 0))

    def witness_reads(count: int) -> bool:
        """Refresh both sources, and return whether the witness has read its file."""
        reader.source.refresh(reader.entry, witness.now)
        return witness.reads(count)

    witness.take_turns(partial(witness_reads, 9))
    assert reader.source.value is None
    reader.source.open()
    reader.until_reads(9)
    reader.source.value = None
    witness.source.value = None
    w.write_splat(witness_path, w.truth(16, 0))
    witness.take_turns(partial(witness_reads, 16))
    assert reader.source.value is None


def test_damaged_replacement_is_reported_until_it_is_complete(
    read: Callable[[Path], Reader], tmp_path: Path
) -> None:
    path = w.write_ply(tmp_path / "scene.ply", w.ply_columns(w.truth(4, 0)))
    reader = read(path)
    reader.until_reads(4)
    complete = path.read_bytes()
    path.write_bytes(complete[:-9])
    reader.until_fault("truncated")
    # An error would end a viewer of this file alone.
    assert reader.source.error == ""
    path.unlink()
    w.write_ply(path, w.ply_columns(w.truth(9, 0)))
    reader.until_reads(9)
    assert reader.entry.fault_of_source == ""


def test_file_that_comes_later_is_read(
    read: Callable[[Path], Reader], tmp_path: Path
) -> None:
    path = tmp_path / "scene.splat"
    reader = read(path)
    reader.until_fault("no such file")
    w.write_splat(path, w.truth(4, 0))
    reader.until_reads(4)
    assert reader.source.error == ""


def test_replaced_picture_keeps_the_zoom(viewer: Viewer, tmp_path: Path) -> None:
    path = tmp_path / "a.png"

    def write(grey: int) -> None:
        replace(path, Image.fromarray(np.full((40, 60, 3), grey, np.uint8)).save)

    def shows(grey: int) -> bool:
        picture = viewer.picture()
        middle = picture[picture.shape[0] // 2, picture.shape[1] // 2]
        return bool((middle == grey).all())

    write(80)
    viewer.catalogue.open_file(path)
    viewer.until(viewer.loaded)
    viewer.do(Wheel(590, 247, 3))
    zoom = viewer.image.zoom
    write(170)
    viewer.until(partial(shows, 170))
    assert viewer.image.zoom == zoom
