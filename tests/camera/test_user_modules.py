"""Detectors of the user's in the working folder: what is imported from there, and what
never is.
"""

from __future__ import annotations

import grp
import os
import pwd
import struct
import sys
from importlib.util import MAGIC_NUMBER, cache_from_source
from marshal import dumps
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.other_users import OTHER_USER_ID, needs_root

from splatview.camera.detectors import DetectorError, InferenceSettings
from splatview.camera.detectors.factory import open_detector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

IMAGE = np.zeros((8, 8, 3), np.uint8)
BOX = "    return [[1, 2, {}, 4]]\n"
FIND = "def find(image):\n" + BOX


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder. What is imported in the test is forgotten after it."""
    saved_modules = set(sys.modules)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(sys, "path", [*sys.path])
    folder = tmp_path / "working folder"
    folder.mkdir(mode=0o755)
    monkeypatch.chdir(folder)
    yield folder
    for name in set(sys.modules) - saved_modules:
        del sys.modules[name]


def box(spec: str) -> list[list[float]]:
    """The box that a detector finds."""
    annotations = open_detector(InferenceSettings(detect=spec)).detect(IMAGE)
    return np.asarray(annotations["boxes"]).tolist()


def test_own_module_finds_those_beside_it_at_once_and_later(folder: Path) -> None:
    (folder / "own_detector.py").write_text(
        "import own_helper\n"
        "from own_package.part import SIZE\n"
        "def find(image):\n"
        "    import own_later\n"
        "    return [[1, 2, SIZE + own_helper.MORE, own_later.LAST]]\n"
    )
    (folder / "own_helper.py").write_text("MORE = 2\n")
    (folder / "own_later.py").write_text("LAST = 9\n")
    (folder / "own_package").mkdir()
    (folder / "own_package" / "__init__.py").write_text("")
    (folder / "own_package" / "part.py").write_text("from .deep import SIZE\n")
    (folder / "own_package" / "deep.py").write_text("import own_helper\nSIZE = 5\n")
    assert box("own_detector:find") == [[1, 2, 7, 9]]
    assert str(folder) not in sys.path
    (folder / "own_spaces").mkdir()
    (folder / "own_spaces" / "detector.py").write_text(FIND.format(6))
    assert box("own_spaces.detector:find") == [[1, 2, 6, 4]]


def test_folder_answers_only_to_its_own_modules(folder: Path, tmp_path: Path) -> None:
    """An installed module, also one that the user's imports, finds nothing there."""
    installed = tmp_path / "installed"
    installed.mkdir()
    sys.path.append(str(installed))
    (installed / "own_library.py").write_text(
        "try:\n    import own_optional\nexcept ImportError:\n    own_optional = None\n"
    )
    (installed / "own_twice.py").write_text("WHERE = 5\n")
    (folder / "own_twice.py").write_text("WHERE = 6\n")
    (folder / "own_optional.py").write_text("")
    (folder / "own_detector.py").write_text(
        "import own_library, own_twice\n"
        "assert own_library.own_optional is None\n"
        "import own_optional\n" + FIND.format("own_twice.WHERE")
    )
    assert box("own_detector:find") == [[1, 2, 5, 4]]
    (folder / "own_late.py").write_text("")
    with pytest.raises(ImportError):
        __import__("own_late")
    with pytest.raises(DetectorError, match="own_nowhere"):
        box("own_nowhere:find")


def shared_file(path: Path) -> None:
    path.chmod(0o646)


def group_file(path: Path) -> None:
    os.chown(path, -1, OTHER_USER_ID)
    path.chmod(0o664)


def foreign_file(path: Path) -> None:
    os.chown(path, OTHER_USER_ID, -1)


def symbolic_link(path: Path) -> None:
    path.rename(path.with_suffix(".txt"))
    path.symlink_to(path.with_suffix(".txt"))


def hard_link(path: Path) -> None:
    path.with_suffix(".txt").hardlink_to(path)


@pytest.mark.parametrize(
    ("change", "mode", "reason"),
    [
        (shared_file, 0o755, "all users may write"),
        (symbolic_link, 0o1777, "Too many levels"),
        (hard_link, 0o777, "a link in a folder of others"),
        pytest.param(group_file, 0o755, "all users of the group", marks=needs_root),
        pytest.param(foreign_file, 0o755, "it belongs to", marks=needs_root),
    ],
)
def test_file_that_others_decide_on_is_refused(
    folder: Path, change: Callable[[Path], None], mode: int, reason: str
) -> None:
    """As the detector, and as what it imports; the message says what to do."""
    text = "open('executed', 'w')\n" + FIND.format(3)
    folder.chmod(mode)
    (folder / "own_detector.py").write_text("import own_helper\n" + text)
    (folder / "own_helper.py").write_text(text)
    change(folder / "own_helper.py")
    for spec in ("own_helper:find", "own_detector:find"):
        with pytest.raises(DetectorError, match=reason) as raised:
            box(spec)
        assert f"PYTHONPATH={folder}" in str(raised.value)
    assert not (folder / "executed").exists()


def test_package_of_others_is_refused_as_a_whole(folder: Path) -> None:
    """Its folder may be a link; the folder to name in PYTHONPATH is that around it."""
    (folder / "own_package").mkdir()
    (folder / "own_package" / "__init__.py").write_text(FIND.format(3))
    shared_file(folder / "own_package" / "__init__.py")
    with pytest.raises(DetectorError, match=f"PYTHONPATH={folder}$"):
        box("own_package:find")
    folder.chmod(0o1777)
    (folder / "own_link").symlink_to(folder / "own_package")
    with pytest.raises(DetectorError, match="a link in a folder of others"):
        box("own_link:find")


@pytest.mark.parametrize("mode", [0o755, 0o775, 0o1777])
def test_own_file_is_executed_in_any_folder(folder: Path, mode: int) -> None:
    """Its bytes are the user's, wherever they are.

    A group of the user's alone is none of others.
    """
    group = grp.getgrgid(os.getgid())
    if group.gr_name != pwd.getpwuid(os.getuid()).pw_name or len(group.gr_mem) > 1:
        pytest.skip("the user has no group of its own")
    folder.chmod(mode)
    (folder / "own_detector.py").write_text("import own_helper\n" + FIND.format(3))
    (folder / "own_helper.py").write_text("")
    (folder / "own_helper.py").chmod(0o664)
    assert box("own_detector:find") == [[1, 2, 3, 4]]


def test_compiled_files_are_not_executed_in_a_folder_of_others(folder: Path) -> None:
    folder.chmod(0o1777)
    (folder / "own_detector.so").write_bytes(b"planted")
    (folder / "own_bytes.pyc").write_bytes(b"planted")
    for name in ("own_detector", "own_bytes"):
        with pytest.raises(DetectorError, match="all users may write"):
            box(f"{name}:find")


def test_bytecode_beside_a_source_is_not_executed(folder: Path) -> None:
    source = folder / "own_detector.py"
    source.write_text(FIND.format(3))
    planted = compile(FIND.format(9), str(source), "exec")
    status = source.stat()
    stamp = struct.pack("<III", 0, int(status.st_mtime), status.st_size)
    cached = folder / os.path.relpath(cache_from_source(str(source)), folder)
    cached.parent.mkdir()
    cached.write_bytes(MAGIC_NUMBER + stamp + dumps(planted))
    assert box("own_detector:find") == [[1, 2, 3, 4]]
