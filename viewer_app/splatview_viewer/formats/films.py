"""The pictures of a film: an mp4, or a folder of PNGs."""

from __future__ import annotations

import contextlib
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from splatview_ipc.system.files import output_error, output_file, take_free_name
from splatview_ipc.system.optional_packages import importing, require
from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.pictures import (
    check_writable,
    make_output_folder,
    save_picture,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

NEEDED = "an mp4, unlike a folder of PNGs, needs"
"""Subject of the error for a missing PyAV."""
_QUALITY = "18"
"""CRF of x264, at which the loss is invisible."""


def is_mp4(out: Path) -> bool:
    """Return whether a film of this name is one file; else it is a folder of PNGs."""
    return out.suffix.lower() in (".mp4", ".m4v", ".mov")


class PngFolder:
    """Writes 000000.png and so on into a folder."""

    def __init__(self, out: Path, numbered: bool = False) -> None:
        self._count = 0
        if out.suffix and not numbered and not out.is_dir():
            raise FileError(
                f"{out}: films are written as .mp4, or as PNGs into a folder; "
                f"{out.suffix!r} is neither"
            )
        with _named(out):
            if numbered:
                self.out = take_free_name(out, Path.mkdir)
            else:
                self.out = out
            self._is_new_folder = numbered or not self.out.exists()
            make_output_folder(self.out)
            existing = next(self.out.glob("[0-9]*.png"), None)
        if existing is not None:
            raise FileError(
                f"{self.out}: there are pictures already ({existing.name}); name an "
                "empty folder"
            )

    def add(self, picture: np.ndarray) -> None:
        """Write a picture, (H, W, 3) uint8, or (H, W, 4) with alpha; top row first.

        Alpha is not multiplied into the colours.
        """
        save_picture(picture, self.out / f"{self._count:06}.png")
        self._count += 1

    def close(self) -> None:
        """Do nothing: every picture is complete."""

    def abort(self) -> None:
        """Remove a new folder that is empty; pictures in it are complete and stay."""
        if self._is_new_folder:
            with contextlib.suppress(OSError):
                self.out.rmdir()


class _Target:
    """The file of a film, as PyAV writes it, and why it could not be written."""

    def __init__(self, file: BinaryIO) -> None:
        self.seek = file.seek
        self.tell = file.tell
        self.fault: OSError | None = None
        self._file = file

    def write(self, content: bytes) -> int:
        """Write a part of the film."""
        try:
            return self._file.write(content)
        except OSError as e:
            self.fault = e
            raise


class Mp4:
    """Writes a film of H.264, by PyAV.

    Sides are made even by leaving out a row or column. The film is complete after
    `close`, which also sets the name of a numbered one; `abort` removes it.
    """

    def __init__(
        self, out: Path, width: int, height: int, fps: float, numbered: bool = False
    ) -> None:
        with importing(f"{out}: {NEEDED}", "av", error=FileError):
            import av
        self.out = out
        self._av: Any = av
        self._target: _Target | None = None
        self._size = width // 2 * 2, height // 2 * 2
        if min(self._size) < 2:
            raise FileError(
                f"{out}: a film of {width}x{height} pixels is too small; 2x2 is the "
                "least"
            )
        with self._named(), contextlib.ExitStack() as opened:
            self._output = opened.enter_context(output_file(out, numbered=numbered))
            self._target = _Target(self._output.file)
            self._file: Any = opened.enter_context(
                av.open(self._target, "w", format="mp4")
            )
            codec = "mpeg4"
            options = {"qscale": "2"}
            if "libx264" in av.codecs_available:
                codec = "libx264"
                options = {"crf": _QUALITY, "preset": "medium"}
            rate = Fraction(fps).limit_denominator(1001)
            self._stream: Any = self._file.add_stream(codec, rate=rate)
            self._stream.codec_context.options = options
            self._stream.width, self._stream.height = self._size
            self._stream.pix_fmt = "yuv420p"
            self._stream.codec_context.color_range = 1
            self._opened = opened.pop_all()

    def add(self, picture: np.ndarray) -> None:
        """Add a picture, (H, W, 3) uint8, or (H, W, 4) whose alpha is left out."""
        width, height = self._size
        frame = self._av.VideoFrame.from_ndarray(
            np.ascontiguousarray(picture[:height, :width, :3]), format="rgb24"
        )
        with self._named():
            self._file.mux(self._stream.encode(frame))

    def close(self) -> None:
        """Finish the film; an exception removes it."""
        with self._named(), self._opened:
            self._file.mux(self._stream.encode(None))
        self.out = self._output.path

    def abort(self) -> None:
        """Remove the film."""
        self._output.keep = False
        with contextlib.suppress(OSError, self._av.FFmpegError):
            self._opened.close()

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Raise OSErrors as FileErrors that name the film.

        Where a write failed PyAV's error does not say why, and may be no OSError.
        """
        with _named(self.out):
            try:
                yield
            except (OSError, self._av.FFmpegError):
                if self._target is not None and self._target.fault is not None:
                    raise self._target.fault from None
                raise


Writer = PngFolder | Mp4
"""Takes pictures one by one."""


def check_film(out: Path) -> None:
    """Raise FileError for a film that cannot be written.

    For use before the scene is read and drawn.
    """
    if is_mp4(out):
        require(f"{out}: {NEEDED}", "av", error=FileError)
        check_writable(out)
    else:
        PngFolder(out).abort()


def make_writer(
    out: Path,
    width: int,
    height: int,
    fps: float,
    transparent: bool,
    numbered: bool = False,
) -> Writer:
    """Return the writer of a film: of an .mp4, or of a folder for PNGs, which is made.

    Args:
        out: the film; its name decides.
        width, height: of the pictures.
        fps: pictures a second.
        transparent: the pictures have alpha, which an mp4 cannot have.
        numbered: take the next free name where the film exists; otherwise an mp4 is
            replaced and a folder with pictures refused.

    Raises:
        FileError: the film cannot be written there, or not with transparency.
    """
    if is_mp4(out):
        if transparent:
            raise FileError(
                f"{out}: an mp4 cannot be transparent; name a folder, for PNGs"
            )
        return Mp4(out, width, height, fps, numbered)
    return PngFolder(out, numbered)


@contextlib.contextmanager
def _named(out: Path) -> Iterator[None]:
    """Raise OSErrors, PyAV's own among them, as FileErrors that name the film."""
    try:
        yield
    except OSError as e:
        raise FileError(str(output_error(out, e))) from e
