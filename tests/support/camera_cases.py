"""What every source of pictures must do, whatever it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from splatview.camera.pattern import number_of
from support.stream_servers import H, W, pattern

if TYPE_CHECKING:
    from splatview.camera.sources import Source

CLOSE_TO = 6.0
"""The mean difference of levels that compression may make; swapped colours make 50."""


def check_pictures(source: Source) -> None:
    """They are what was sent, upright, in RGB, in order, with times that grow, in memory that is the caller's."""
    source.open()
    try:
        kept, times = [], []
        for _ in range(10):
            at = source.grab()
            assert at is not None
            times.append(at)
            kept.append(np.asarray(source.retrieve()))
        numbers = [number_of(image) for image in kept]
        assert numbers == list(range(numbers[0], numbers[0] + 10))
        assert times == (sorted(set(times)) if source.recorded else [0.0] * 10)
        for image, number in zip(kept, numbers, strict=True):
            assert image.dtype == np.uint8 and image.flags.c_contiguous and image.flags.writeable
            assert image.shape == pattern(number).shape
            assert np.abs(image.astype(int) - pattern(number)).mean() < CLOSE_TO
    finally:
        source.close()


def check_life(source: Source, words: str) -> None:
    """It is opened and closed any number of times, and says what it reads."""
    for _ in range(3):
        source.open()
        assert words in source.words
        source.grab()
        source.retrieve()
        source.close()
        source.close()


def check_size(source: Source) -> None:
    """Settings of half the width make it as much smaller, in its proportions."""
    source.open()
    try:
        source.grab()
        image = source.retrieve()
    finally:
        source.close()
    assert image is not None
    assert image.shape == (H // 2, W // 2, 3)
    assert np.abs(image[2 * H // 5 :, -W // 8 :].astype(int) - (200, 30, 40)).mean() < CLOSE_TO
