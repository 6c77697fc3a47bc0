"""A V4L2 camera where there is none: `fake_camera.c` between a program and its C library."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image

if TYPE_CHECKING:
    from numpy.typing import NDArray


class FakeCamera:
    """The camera of one folder; programs with its `environment` see it at `node`."""

    def __init__(self, folder: Path):
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("no C compiler: apt-get install gcc")
        folder.mkdir()
        library = folder / "fake_camera.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library),
                        str(Path(__file__).with_name("fake_camera.c")), "-ldl"], check=True)
        self._folder = folder
        self.node = folder / "node"
        self.environment = {"FAKE_CAMERA": str(folder), "LD_PRELOAD": str(library)}
        self.plug()

    def plug(self) -> None:
        self.node.symlink_to("/dev/null")

    def unplug(self) -> None:
        self.node.unlink()

    def show(self, image: NDArray) -> None:
        """Have it give this picture, (H, W, 3) RGB, as JPEG from now on."""
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=95)
        self.give(file.getvalue())

    def give(self, data: bytes, letters: str = "MJPG") -> None:
        """Have it give these very bytes from now on, which it says are of this format."""
        (self._folder / "format").write_text(letters)
        whole = self._folder / "frame.new"
        whole.write_bytes(data)
        whole.rename(self._folder / "frame")

    def freeze(self, frozen: bool = True) -> None:
        if frozen:
            (self._folder / "frozen").touch()
        else:
            (self._folder / "frozen").unlink()

    def take_no_pictures(self) -> None:
        """Be the node of a camera that carries something else."""
        (self._folder / "node_only").touch()

    @property
    def asked(self) -> list[str]:
        """What it was asked for last: width, height, format, pictures a second."""
        path = self._folder / "asked"
        return path.read_text().split() if path.exists() else []
