"""Photographs as files, for screens that lay them over pictures which they draw."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from io import BytesIO

import numpy as np
import pytest
from PIL import Image
from support.wait import wait_until

from splatview_viewer.core.handed import PhotoFile
from splatview_viewer.kinds.gaussians.photo_files import PhotoFiles

WHITE = (1.0, 1.0, 1.0)
LARGE = (400, 300)
SMALL = (90, 70)


def ignore() -> None:
    """Stand for the loop, which nothing has to wake here."""


@pytest.fixture
def files() -> Iterator[PhotoFiles]:
    new_files = PhotoFiles()
    yield new_files
    new_files.close()


def gradient(channels: int = 3) -> np.ndarray:
    """Make a photograph of 400 x 300."""
    photo = np.zeros((300, 400, channels), np.uint8)
    photo[..., 0] = np.linspace(0, 255, 400)
    photo[..., 1] = np.linspace(0, 255, 300)[:, None]
    if channels == 4:
        photo[..., 3] = 255
        photo[:, :200, 3] = 0
    return photo


def find(
    files: PhotoFiles, photo: np.ndarray, size: tuple[int, int]
) -> PhotoFile | None:
    return files.find(photo, size, WHITE, ignore)


def until_made(
    files: PhotoFiles, photo: np.ndarray, size: tuple[int, int], pixels: tuple[int, int]
) -> PhotoFile:
    """Wait for a file of so many pixels."""

    def is_made() -> bool:
        file = find(files, photo, size)
        return file is not None and image_of(file).size == pixels

    wait_until(is_made)
    file = find(files, photo, size)
    assert file is not None
    return file


def image_of(file: PhotoFile) -> Image.Image:
    return Image.open(BytesIO(file.data))


def test_file_has_the_pixels_that_are_seen(files: PhotoFiles) -> None:
    photo = gradient()
    large = until_made(files, photo, LARGE, LARGE)
    assert np.abs(np.asarray(image_of(large), int) - photo).max() <= 6
    # The one that is there does until a smaller one is made.
    assert find(files, photo, SMALL) in (large, None)
    small = until_made(files, photo, SMALL, (100, 75))
    assert small.number != large.number
    assert find(files, photo, (100, 75)) == small
    assert find(files, photo, (4000, 3000)) == large


def test_background_is_seen_through_a_photograph(files: PhotoFiles) -> None:
    photo = gradient(4)
    pixels = np.asarray(image_of(until_made(files, photo, LARGE, LARGE)), int)
    assert pixels[:, :190].min() >= 250
    assert np.abs(pixels[:, 210:] - photo[:, 210:, :3]).max() <= 8


def test_few_files_are_kept(files: PhotoFiles) -> None:
    photos = [gradient() for _ in range(9)]
    photo_files = [until_made(files, photo, SMALL, (100, 75)) for photo in photos]
    assert len({file.number for file in photo_files}) == 9
    assert find(files, photos[-1], SMALL) == photo_files[-1]
    assert until_made(files, photos[0], SMALL, (100, 75)) not in photo_files


def test_each_picture_keeps_the_file_of_its_photograph(files: PhotoFiles) -> None:
    """Else they would take each other's, and be made again and again."""
    photos = [gradient() for _ in range(9)]
    files.reserve(9)
    photo_files = [until_made(files, photo, SMALL, (100, 75)) for photo in photos]
    assert [find(files, photo, SMALL) for photo in photos] == photo_files
    files.reserve(1)
    until_made(files, gradient(), SMALL, (100, 75))
    assert find(files, photos[-1], SMALL) == photo_files[-1]
    assert until_made(files, photos[0], SMALL, (100, 75)) not in photo_files


def test_views_are_told_once_and_not_kept(files: PhotoFiles) -> None:
    wakes = []

    def is_woken() -> bool:
        return bool(wakes)

    def wake() -> None:
        wakes.append(1)

    view = weakref.ref(wake)
    photo = gradient()
    files.find(photo, SMALL, WHITE, wake)
    wait_until(is_woken)
    files.find(photo, SMALL, WHITE, wake)
    del wake
    wait_until(lambda: view() is None)
    assert len(wakes) == 1
