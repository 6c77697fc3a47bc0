"""Files that are replaced on the disk while they are shown."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support import scene_files as w
from support.viewer import Viewer
from support.wait import turns

from splatview_viewer.core.events import Wheel
from splatview_viewer.core.settings import Entry
from splatview_viewer.workspace.sources import FileSource


def replace(path: Path, write: Callable[[Path], Any]) -> None:
    """Put another file in the place of one, as programs that write beside it and rename
    do.
    """
    beside = path.with_name(f"beside{path.suffix}")
    write(beside)
    os.replace(beside, path)


class Reader:
    """A source whose entry is seen, in a time of its own: seconds go by with each turn."""

    def __init__(self, path: Path) -> None:
        self.source = FileSource(path)
        self.entry = Entry(str(path), "Files", path.name, is_file=True)
        self.now = 0.0
        self.source.open()

    def until(self, condition: Callable[[], Any]) -> None:
        for _ in turns(f"{condition}, {self.entry}"):
            self.now += 1.0
            self.source.refresh(self.entry, self.now)
            if condition():
                return

    def reads(self, count: int) -> bool:
        """Whether a scene of so many Gaussians was read."""
        value: Any = self.source.value
        return value is not None and len(value) == count


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
        replace(path / name, lambda p, data=data: p.write_bytes(data))


def _write_iteration(path: Path, count: int) -> None:
    folder = path / "point_cloud" / f"iteration_{1000 * count}"
    folder.mkdir(parents=True)
    w.write_ply(folder / "point_cloud.ply", w.ply_columns(w.truth(count, 0)))


def _write_rank(path: Path, count: int) -> None:
    path.mkdir(exist_ok=True)
    w.write_checkpoint(path / f"ckpt_{count}_rank0.pt", w.truth(count, 0))


KINDS: dict[str, Callable[[Path, int], Any]] = {
    "a file replaced": lambda p, n: replace(
        p, lambda q: w.write_ply(q, w.ply_columns(w.truth(n, 0)))
    ),
    "a file written anew": lambda p, n: w.write_splat(p, w.truth(n, 0)),
    "planes of a SOG": lambda p, n: _write_folder(p, w.sog_files(w.truth(n, 1))),
    "planes of gsplat": lambda p, n: _write_folder(
        p, w.gsplat_png_files(w.truth(n, 1))
    ),
    "a new iteration": _write_iteration,
    "a new step": _write_rank,
}


@pytest.mark.parametrize("kind", KINDS)
def test_file_replaced_on_disk_is_read_again(
    kind: str, read: Callable[[Path], Reader], tmp_path: Path
) -> None:
    path = tmp_path / "scene.splat"
    KINDS[kind](path, 4)
    reader = read(path)
    reader.until(lambda: reader.reads(4))
    reader.source.value = None  # a view has it
    KINDS[kind](path, 9)
    reader.until(lambda: reader.reads(9))
    assert reader.entry.fault_of_source == ""
    assert reader.entry.progress is None


def test_file_of_the_same_size_and_time_is_read_again(
    read: Callable[[Path], Reader], tmp_path: Path
) -> None:
    """As `cp -p` and `rsync --inplace -t` leave it."""
    path = w.write_splat(tmp_path / "scene.splat", w.truth(4, 0, seed=1))
    before = path.stat()
    reader = read(path)
    reader.until(lambda: reader.reads(4))
    reader.source.value = None
    other = w.write_splat(tmp_path / "other.splat", w.truth(4, 0, seed=2))
    with path.open("r+b") as f:
        f.write(other.read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    reader.until(lambda: reader.reads(4))


def test_file_is_read_again_once_and_only_while_it_is_seen(
    read: Callable[[Path], Reader], tmp_path: Path
) -> None:
    path = w.write_splat(tmp_path / "scene.splat", w.truth(4, 0))
    other = w.write_splat(tmp_path / "other.splat", w.truth(4, 0))
    reader = read(path)
    witness = read(other)
    for r in (reader, witness):
        r.until(lambda r=r: r.reads(4))
        r.source.value = None
    reader.source.release()
    w.write_splat(path, w.truth(9, 0))
    w.write_splat(other, w.truth(9, 0))

    def both_turn() -> bool:
        reader.source.refresh(reader.entry, witness.now)
        return witness.reads(9)

    witness.until(both_turn)
    assert reader.source.value is None
    reader.source.open()
    reader.until(lambda: reader.reads(9))
    reader.source.value = None
    witness.source.value = None
    w.write_splat(other, w.truth(16, 0))
    witness.until(
        lambda: reader.source.refresh(reader.entry, witness.now) or witness.reads(16)
    )
    assert reader.source.value is None


def test_damaged_file_in_the_place_of_a_good_one_is_told_until_it_is_whole(
    read: Callable[[Path], Reader], tmp_path: Path
) -> None:
    path = w.write_ply(tmp_path / "scene.ply", w.ply_columns(w.truth(4, 0)))
    reader = read(path)
    reader.until(lambda: reader.reads(4))
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    reader.until(lambda: "truncated" in reader.entry.fault_of_source)
    assert reader.source.error == ""  # with it, a viewer of this file alone would end
    path.unlink()
    w.write_ply(path, w.ply_columns(w.truth(9, 0)))
    reader.until(lambda: reader.reads(9))
    assert reader.entry.fault_of_source == ""


def test_file_that_comes_later_is_read(
    read: Callable[[Path], Reader], tmp_path: Path
) -> None:
    path = tmp_path / "scene.splat"
    reader = read(path)
    reader.until(lambda: "no such file" in reader.entry.fault_of_source)
    w.write_splat(path, w.truth(4, 0))
    reader.until(lambda: reader.reads(4))
    assert reader.source.error == ""


def test_picture_that_replaces_another_is_shown_in_its_place(
    viewer: Viewer, tmp_path: Path
) -> None:
    path = tmp_path / "a.png"

    def write(grey: int) -> None:
        replace(path, Image.fromarray(np.full((40, 60, 3), grey, np.uint8)).save)

    def shows(grey: int) -> bool:
        picture = viewer.picture()
        return bool(
            (picture[picture.shape[0] // 2, picture.shape[1] // 2] == grey).all()
        )

    write(80)
    viewer.catalogue.open_file(path)
    viewer.until(viewer.loaded)
    viewer.do(Wheel(590, 247, 3))
    zoom = viewer.image.zoom
    write(170)
    viewer.until(lambda: shows(170))
    assert viewer.image.zoom == zoom
