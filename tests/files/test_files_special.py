"""What people name that is no file: pipes, devices, sockets. It is refused at once; reading it would never end."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from splatview.viewer_app.cameras import camera_from_json
from splatview.viewer_app.errors import CameraError, FileError
from splatview.viewer_app.files import open_file
from splatview.viewer_app.memo import Memo
from splatview.viewer_app.paths.nerfstudio import read_path
from splatview.viewer_app.recorder.files import INDEX, read_index, read_packed
from splatview.viewer_app.regular import open_regular

if TYPE_CHECKING:
    from pathlib import Path

WORDS = "it is no file but a pipe, a device or a socket"


@pytest.fixture(params=["pipe", "device", "socket"])
def special(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "scene.ply"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "device":
        path.symlink_to("/dev/zero")
    else:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(path))
    return path


def test_readers_refuse_it(special: Path, caplog: pytest.LogCaptureFixture) -> None:
    pipe = special.is_fifo() or special.is_char_device()
    with pytest.raises(FileError, match=WORDS if pipe else "No such device or address"):
        open_file(special)
    with pytest.raises(CameraError):
        camera_from_json(str(special), 64, 48)
    with pytest.raises(CameraError, match="cannot be read"):
        read_path(special)
    with pytest.raises(FileError, match="cannot be read"):
        read_packed(special)
    special.rename(special.with_name(INDEX))
    with pytest.raises(FileError, match="cannot be read"):
        read_index(special.parent)
    memo = Memo(special.with_name(INDEX))
    assert memo.get("x", 5) == 5 and "cannot be used" in caplog.text


def test_files_are_opened_as_ever(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    (tmp_path / "b").symlink_to("a")
    for name in ("a", "b"):
        with open_regular(tmp_path / name) as f:
            assert f.read() == b"content"
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "c")
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)


def test_data_of_the_demo_and_cameras_for_grab_are_refused(tmp_path: Path) -> None:
    """Each would wait without end for a writer to open the FIFO."""
    import splatview
    from splatview.demo import datasets, ply
    from splatview.demo.errors import DemoError

    for name in ("a.npz", "a.json", "a.ply", "camera"):
        os.mkfifo(tmp_path / name)
    for name in ("a.npz", "a.json"):
        with pytest.raises(DemoError, match="not a regular file"):
            datasets.load(tmp_path / name, pixels=100, max_points=10)
    with pytest.raises(DemoError, match="not a regular file"):
        ply.read_points(tmp_path / "a.ply")
    with pytest.raises(ValueError, match="not a regular file"):
        splatview.grab("nothing", camera=str(tmp_path / "camera"))


def test_downloads_are_refused(special: Path) -> None:
    from splatview.viewer_app.web.files import _open

    with pytest.raises(OSError, match=f"{WORDS}|No such device or address"):
        _open(special)
