"""Where the pictures of a film go: a folder of PNGs, or an mp4."""

from __future__ import annotations

import os
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from splatview.viewer_app.errors import FileError
from splatview.viewer_app.permissions import share
from splatview.viewer_app.pictures import save_png

if TYPE_CHECKING:
    from types import TracebackType

_QUALITY = "18"
"""Of x264 (its CRF): nothing is seen of the loss."""


class Writer(Protocol):
    """Takes pictures one by one; what it writes is whole when `close` has been called, and gone after `abort`."""

    out: Path

    def add(self, picture: np.ndarray) -> None:
        """(H, W, 3 or 4) uint8, top row first; the fourth is alpha, not multiplied into the colours."""
        ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


def make_writer(out: Path, width: int, height: int, fps: float, transparent: bool) -> Writer:
    """By the name: .mp4, or a folder for PNGs, which is made.

    Raises FileError when it cannot be written there, or when the one does not go with transparency.
    """
    if out.suffix.lower() in (".mp4", ".m4v", ".mov"):
        if transparent:
            raise FileError(f"{out}: an mp4 cannot be transparent; name a folder, for PNGs")
        return Mp4(out, width, height, fps)
    if out.suffix and not out.is_dir():
        raise FileError(f"{out}: films are written as .mp4, or as PNGs into a folder; {out.suffix!r} is neither")
    return PngFolder(out)


class PngFolder:
    """000000.png and so on."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self._count = 0
        try:
            out.mkdir(parents=True, exist_ok=True)
            taken = next(out.glob("[0-9]*.png"), None)
        except OSError as e:
            raise FileError(f"{out}: cannot be written: {e.strerror or e}") from e
        if taken is not None:
            raise FileError(f"{out}: there are pictures already ({taken.name}); name an empty folder")

    def add(self, picture: np.ndarray) -> None:
        save_png(picture, self.out / f"{self._count:06}.png")
        self._count += 1

    def close(self) -> None:
        """Nothing: every picture is whole."""

    def abort(self) -> None:
        """Pictures that are there stay: they are whole."""


class Mp4:
    """H.264, by PyAV. Sides are made even by leaving out a row or column."""

    def __init__(self, out: Path, width: int, height: int, fps: float) -> None:
        try:
            import av
        except ImportError:
            raise FileError(f"{out}: an mp4 needs PyAV: pip install av. Or name a folder, for PNGs") from None
        self.out = out
        self._av: Any = av
        self._size = width // 2 * 2, height // 2 * 2
        if min(self._size) < 2:
            raise FileError(f"{out}: a film of {width}x{height} pixels is too small; 2x2 is the least")
        self._temporary = ""
        try:
            fd, self._temporary = tempfile.mkstemp(prefix=f".{out.name}.", suffix=".mp4", dir=out.absolute().parent)
            os.close(fd)
            self._file = av.open(self._temporary, "w", format="mp4")
            rate = Fraction(fps).limit_denominator(1001)
            codec, options = _codec(av)
            self._stream: Any = self._file.add_stream(codec, rate=rate)
            self._stream.codec_context.options = options
            self._stream.width, self._stream.height = self._size
            self._stream.pix_fmt = "yuv420p"
            self._stream.codec_context.color_range = 1
        except OSError as e:  # PyAV's own are of this kind
            if self._temporary:
                Path(self._temporary).unlink(missing_ok=True)
            raise FileError(f"{out}: cannot be written: {e.strerror or e}") from e

    def add(self, picture: np.ndarray) -> None:
        width, height = self._size
        frame = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(picture[:height, :width, :3]), format="rgb24")
        try:
            self._file.mux(self._stream.encode(frame))
        except OSError as e:
            raise FileError(f"{self.out}: cannot be written: {e.strerror or e}") from e

    def close(self) -> None:
        try:
            self._file.mux(self._stream.encode(None))
            self._file.close()
            share(self._temporary)
            os.replace(self._temporary, self.out)
        except OSError as e:
            self.abort()
            raise FileError(f"{self.out}: cannot be written: {e.strerror or e}") from e

    def abort(self) -> None:
        try:
            self._file.close()
        except OSError:
            pass
        Path(self._temporary).unlink(missing_ok=True)


def _codec(av: Any) -> tuple[str, dict[str, str]]:
    """The best encoder that PyAV was built with, and its options."""
    if "libx264" in av.codecs_available:
        return "libx264", {"crf": _QUALITY, "preset": "medium"}
    return "mpeg4", {"qscale": "2"}


class writing:  # noqa: N801  (used as a context)
    """`with writing(writer): ...`: closed when all went well, given up otherwise."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def __enter__(self) -> Writer:
        return self._writer

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self._writer.close()
        else:
            self._writer.abort()
