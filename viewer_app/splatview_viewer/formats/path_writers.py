"""Where the pictures of a film go: a folder of PNGs, or an mp4."""

from __future__ import annotations

import contextlib
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from splatview_ipc.system.files import Output, output_error, output_file
from splatview_ipc.system.optional_packages import needed, require
from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.pictures import check_writable, make_new_folder, make_output_folder, save_picture

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NEEDED = "an mp4, unlike a folder of PNGs, needs"
"""Subject of the error for a missing PyAV."""
_QUALITY = "18"
"""Of x264 (its CRF): nothing is seen of the loss."""


class Writer(Protocol):
    """Takes pictures one by one; what it writes is whole when `close` has been called, and gone after `abort`."""

    out: Path
    """The film; of a numbered mp4 known after `close`."""

    def add(self, picture: np.ndarray) -> None:
        """(H, W, 3 or 4) uint8, top row first; the fourth is alpha, not multiplied into the colours."""
        ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


def is_mp4(out: Path) -> bool:
    """Return whether a film of this name is one file; else it is a folder of PNGs."""
    return out.suffix.lower() in (".mp4", ".m4v", ".mov")


def check_film(out: Path) -> None:
    """Raise FileError for a film that cannot be written: before the scene is read and drawn."""
    if is_mp4(out):
        require(f"{out}: {NEEDED}", "av", error=FileError)
        check_writable(out)
    else:
        PngFolder(out).abort()


def make_writer(out: Path, width: int, height: int, fps: float, transparent: bool, numbered: bool = False) -> Writer:
    """By the name: .mp4, or a folder for PNGs, which is made.

    `numbered`: take the next free name where the film exists; default: an mp4 is replaced, a folder with pictures
    refused. Raises FileError when it cannot be written there, or when the one does not go with transparency.
    """
    if is_mp4(out):
        if transparent:
            raise FileError(f"{out}: an mp4 cannot be transparent; name a folder, for PNGs")
        return Mp4(out, width, height, fps, numbered)
    return PngFolder(out, numbered)


class PngFolder:
    """000000.png and so on."""

    def __init__(self, out: Path, numbered: bool = False) -> None:
        self.out = out
        self._count = 0
        self._made: list[Path] = []
        if out.suffix and not numbered and not out.is_dir():
            raise FileError(f"{out}: films are written as .mp4, or as PNGs into a folder; {out.suffix!r} is neither")
        try:
            if numbered:
                self.out = make_new_folder(out)
                self._made = [self.out]
            else:
                self._made = make_output_folder(out)
            taken = next(self.out.glob("[0-9]*.png"), None)
        except OSError as e:
            raise FileError(str(output_error(self.out, e))) from e
        if taken is not None:
            raise FileError(f"{self.out}: there are pictures already ({taken.name}); name an empty folder")

    def add(self, picture: np.ndarray) -> None:
        save_picture(picture, self.out / f"{self._count:06}.png")
        self._count += 1

    def close(self) -> None:
        """Nothing: every picture is whole."""

    def abort(self) -> None:
        """Pictures that are there stay: they are whole. A folder without any, made for them, goes."""
        if not self._count:
            with contextlib.suppress(OSError):
                for folder in self._made:
                    folder.rmdir()


class Mp4:
    """H.264, by PyAV. Sides are made even by leaving out a row or column."""

    def __init__(self, out: Path, width: int, height: int, fps: float, numbered: bool = False) -> None:
        with needed(f"{out}: {NEEDED}", "av", error=FileError):
            import av
        self.out = out
        self._av: Any = av
        self._size = width // 2 * 2, height // 2 * 2
        if min(self._size) < 2:
            raise FileError(f"{out}: a film of {width}x{height} pixels is too small; 2x2 is the least")
        self._output: Output | None = None
        self._file: Any = None
        self._opened = contextlib.ExitStack()
        with self._whole():
            self._output = self._opened.enter_context(output_file(out, numbered=numbered))
            self._file = av.open(self._output.file, "w", format="mp4")
            rate = Fraction(fps).limit_denominator(1001)
            codec, options = _codec(av)
            self._stream: Any = self._file.add_stream(codec, rate=rate)
            self._stream.codec_context.options = options
            self._stream.width, self._stream.height = self._size
            self._stream.pix_fmt = "yuv420p"
            self._stream.codec_context.color_range = 1

    def add(self, picture: np.ndarray) -> None:
        width, height = self._size
        frame = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(picture[:height, :width, :3]), format="rgb24")
        try:
            self._file.mux(self._stream.encode(frame))
        except OSError as e:
            raise FileError(str(output_error(self.out, e))) from e

    def close(self) -> None:
        with self._whole():
            self._file.mux(self._stream.encode(None))
            self._file.close()
            self._opened.close()
            self.out = self.out if self._output is None else self._output.path

    def abort(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        if self._output is not None:
            self._output.keep = False
        self._opened.close()

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """Remove the film if the block raises."""
        try:
            yield
        except BaseException as e:
            self.abort()
            if isinstance(e, OSError):  # PyAV's own are of this kind
                raise FileError(str(output_error(self.out, e))) from e
            raise


def _codec(av: Any) -> tuple[str, dict[str, str]]:
    """The best encoder that PyAV was built with, and its options."""
    if "libx264" in av.codecs_available:
        return "libx264", {"crf": _QUALITY, "preset": "medium"}
    return "mpeg4", {"qscale": "2"}
