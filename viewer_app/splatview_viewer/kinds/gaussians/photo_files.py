"""Photographs as files, for screens that lay them over pictures which they draw."""

from __future__ import annotations

import logging
from collections import OrderedDict
from io import BytesIO
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from splatview_viewer.core.handed import PhotoFile
from splatview_viewer.core.jobs import JobQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.core.jobs import Job
    from splatview_viewer.core.settings import Color

_FEWEST_FILES = 4
"""Files that may always be kept, those that were wanted last."""
_QUALITY = 95
_MOST_FACTOR = 64

_log = logging.getLogger("splatview")
_file_numbers = count(1)


class _FileKey(NamedTuple):
    """All that decides a file."""

    photo_id: int
    factor: int
    """By which the photograph is made smaller."""
    background: Color


class _CodingFile(NamedTuple):
    """A file, as far as it is made."""

    photo: np.ndarray
    """Kept, so that no other one has its `id`."""
    job: Job[PhotoFile]
    listeners: list[Callable[[], None]]
    """Called once it is made."""

    @property
    def file(self) -> PhotoFile | None:
        """The file; None while it is being made, and where that failed."""
        if not self.job.done or self.job.error is not None:
            return None
        return self.job.result()


class PhotoFiles:
    """Makes files of the photographs that views show, once for all screens."""

    def __init__(self) -> None:
        self._jobs = JobQueue("photograph")
        self._files: OrderedDict[_FileKey, _CodingFile] = OrderedDict()
        self._most = _FEWEST_FILES

    def reserve(self, count: int) -> None:
        """Keep so many files at least: one for each picture that may show another."""
        self._most = max(count, _FEWEST_FILES)

    def find(
        self,
        photo: np.ndarray,
        size: tuple[int, int],
        background: Color,
        wake: Callable[[], None],
    ) -> PhotoFile | None:
        """Return the file of a photograph; None while there is none.

        It has at least the pixels that are seen, unless the photograph has fewer, and
        less than twice as many a side: it stays the same while a window is resized.
        Until that is made, it may be another one.

        Args:
            photo: (H, W, 3) or (H, W, 4) uint8, which does not change.
            size: width and height in which it is seen.
            background: RGB in [0, 1], seen where it is transparent.
            wake: called from another thread once it is made.
        """
        key = _FileKey(id(photo), _factor(photo, size), background)
        coding = self._files.get(key)
        if coding is None:
            coding = self._start(photo, key)
        self._files.move_to_end(key)
        if not coding.job.done and wake not in coding.listeners:
            coding.listeners.append(wake)
        file = coding.file
        if file is None:
            file = self._other_size(key)
        return file

    def _other_size(self, key: _FileKey) -> PhotoFile | None:
        """Return a file of the same photograph in another size, for the time being."""
        for other, coding in self._files.items():
            is_same = other.photo_id == key.photo_id
            is_same &= other.background == key.background
            if is_same and coding.file is not None:
                return coding.file
        return None

    def _start(self, photo: np.ndarray, key: _FileKey) -> _CodingFile:
        """Begin to make a file, and forget those that were not wanted for long."""
        listeners: list[Callable[[], None]] = []

        def tell() -> None:
            for wake in listeners:
                wake()
            # They would keep views that have closed.
            listeners.clear()

        def encode(_: Job[PhotoFile]) -> PhotoFile:
            try:
                return _encode(photo, key.factor, key.background)
            except (OSError, MemoryError) as error:
                _log.warning("a photograph could not be encoded: %s", error)
                raise

        coding = _CodingFile(photo, self._jobs.submit(encode, wake=tell), listeners)
        self._files[key] = coding
        while len(self._files) > self._most:
            _, oldest = self._files.popitem(last=False)
            oldest.job.cancel()
        return coding

    def close(self) -> None:
        """Forget all files. Idempotent."""
        for coding in self._files.values():
            coding.job.cancel()
        self._files.clear()


def _factor(photo: np.ndarray, size: tuple[int, int]) -> int:
    """Return the power of two by which a photograph can be smaller for a size."""
    height, width = photo.shape[:2]
    factor = 1
    while factor < _MOST_FACTOR:
        is_too_small = width // (2 * factor) < size[0]
        is_too_small |= height // (2 * factor) < size[1]
        if is_too_small:
            break
        factor *= 2
    return factor


def _encode(photo: np.ndarray, factor: int, background: Color) -> PhotoFile:
    from PIL import Image

    if photo.shape[2] == 4:
        alpha = photo[..., 3:].astype(np.float32) / 255
        below = np.array(background, np.float32) * 255 * (1 - alpha)
        photo = (photo[..., :3] * alpha + below).round().astype(np.uint8)
    image = Image.fromarray(np.ascontiguousarray(photo)).reduce(factor)
    file = BytesIO()
    # Colours are not made coarser: users compare them.
    image.save(file, "JPEG", quality=_QUALITY, subsampling=0)
    return PhotoFile(next(_file_numbers), file.getvalue())
