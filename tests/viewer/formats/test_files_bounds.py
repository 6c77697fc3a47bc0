"""What a file may become in memory: bounded by its size and by the memory that is free, before anything is made."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from fuzz.crafted import compressed, plane_of, ply, sog, zip_of
from PIL import Image
from support import scene_files as w

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats import load_scene, open_file, silent
from splatview_viewer.formats.splat import SPLAT

if TYPE_CHECKING:
    from pathlib import Path

T = w.truth(20, degree=1)


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_sog_of_some_hundred_bytes_is_not_a_scene_of_millions(tmp_path: Path) -> None:
    path = put(tmp_path / "a.sog", sog(4096 * 4096, plane_of(4096, 4096), plane_of(960, 1024)))
    assert path.stat().st_size < 1000
    with w.little_memory(), pytest.raises(FileError, match=r"exhaust memory: the positions of 16,777,216 Gaussians"):
        load_scene(path)


@pytest.mark.parametrize("case", ["ascii", "compressed", "binary", "before"])
def test_ply_counts_that_nothing_can_hold_are_errors(case: str, tmp_path: Path) -> None:
    large = "9" * 4299
    data = {"ascii": ply(large, form="ascii"), "compressed": compressed(large, large), "binary": ply(large),
            "before": ply(before=f"element a {10**19}\nproperty float q\n")}[case]
    with pytest.raises(FileError, match=r"a count of \d{20,40}.*; expected a number of at most 18 digits"):
        open_file(put(tmp_path / "a.ply", data))


def test_ply_counts_are_digits_alone(tmp_path: Path) -> None:
    for text in ("1_000", "+5", "\u0663", "-1", "1e3", "1" * 19, "0x5"):
        with pytest.raises(FileError, match="expected a number of at most 18 digits"):
            open_file(put(tmp_path / "a.ply", ply(text)))


@pytest.mark.parametrize(("lines", "message"), [
    ("".join(f"property char {i}\n" for i in range(5000)), "more than 4,096 properties"),
    ("comment\n" * 30_000, r"a header of 30,\d+ lines; at most 20,000"),
    ("".join(f"element e{i} 0\n" for i in range(200)), "more than 100 elements"),
    ("element vertex 1\n", "element 'vertex' twice")])
def test_ply_headers_have_limits_that_their_errors_name(lines: str, message: str, tmp_path: Path) -> None:
    data = ply().replace(b"end_header", lines.encode() + b"end_header")
    with pytest.raises(FileError, match=message):
        open_file(put(tmp_path / "a.ply", data))


def test_files_larger_than_the_free_memory_name_what_is_needed(tmp_path: Path) -> None:
    """Sparse files, which are large on paper."""
    for name, head in (("a.splat", b""), ("a.spz", b"NGSP"), ("a.ply", ply(str(10**10), body=b"")),
                       ("b.ply", compressed(str(10**9), str(10**9)))):
        path = put(tmp_path / name, head)
        os.truncate(path, 1 << 40)
        with pytest.raises(FileError, match=r"need [\d,.]+ GB of memory, [\d,.]+ [GM]B are free: end other programs"):
            open_file(path)


def test_pictures_of_one_color_are_bounded_and_may_be_large(tmp_path: Path) -> None:
    with w.little_memory(), pytest.raises(FileError, match=r"11000x11000 pixels of the picture take 484,000,000 bytes"):
        open_file(put(tmp_path / "a.webp", plane_of(11_000, 11_000)))
    value = open_file(put(tmp_path / "b.webp", plane_of(3840, 2160)))
    assert isinstance(value, np.ndarray) and value.shape == (2160, 3840, 3)


def test_zips_of_many_entries_are_errors(tmp_path: Path) -> None:
    first = "data.pkl"
    path = put(tmp_path / "a.zip", zip_of({first: b"{}", **{str(i): b"" for i in range(21_000)}}))
    with pytest.raises(FileError, match=r"a zip of 21,001 entries; at most 20,000"):
        open_file(path)
    small = zip_of({first: b"{}"})
    start, end = small.index(b"PK\1\2"), small.rindex(b"PK\5\6")
    entries = small[start:end] * 100_000
    put(path, small[:start] + entries + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 9, 9, len(entries), start, 0))
    with pytest.raises(FileError, match=r"a directory of [\d,]+ bytes; at most 4,194,304"):
        open_file(path)


ODD = [ValueError("x" * 5000), KeyError("x"), IndexError(), OverflowError(), RecursionError(), struct.error("x"),
       zlib.error("x"), zipfile.BadZipFile("x"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "\ud800"), RuntimeError(),
       Image.DecompressionBombError("x"), Image.DecompressionBombWarning("x"), SyntaxError("x"), AssertionError(),
       TypeError(), MemoryError(), ZeroDivisionError(), NotImplementedError(), EOFError(), StopIteration()]


def test_no_exception_but_fileerror_leaves_a_reader(tmp_path: Path) -> None:
    path = w.write_splat(tmp_path / "a.splat", T)
    for error in ODD:
        def read(*_args: object, error: Exception = error) -> None:
            raise error

        with pytest.raises(FileError) as caught:
            open_file(path, silent, (replace(SPLAT, read=read),))
        assert str(caught.value).startswith(f"{path}: ") and len(str(caught.value)) < 1000
        assert caught.value.__cause__ is error
        str(caught.value).encode()
