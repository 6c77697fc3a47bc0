"""Parts of an interface that are sent, and what their files hold."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from splatview_viewer.core.screen import Rect
from splatview_viewer.screens.draw_target import Copy
from splatview_viewer.web.changes import (
    MAX_RECTS,
    changed_rects,
    encode_part,
    straight,
)

WIDTH = 300
HEIGHT = 200


def copy_of(pixels: np.ndarray) -> Copy:
    """Return a picture with its top row first as OpenGL reads it."""
    return Copy(np.ascontiguousarray(pixels[::-1]), 0.0)


def test_tensors_are_compared_as_arrays_are() -> None:
    """Check the way of pictures that stay on a GPU, here on the CPU."""
    rng = np.random.default_rng(2)
    old_pixels = np.zeros((HEIGHT, WIDTH, 4), np.uint8)
    new_pixels = old_pixels.copy()
    new_pixels[rng.integers(0, HEIGHT, 9), rng.integers(0, WIDTH, 9)] = 255
    arrays = copy_of(new_pixels), copy_of(old_pixels)
    tensors = [Copy(torch.from_numpy(copy.pixels), 0.0) for copy in arrays]
    rects = changed_rects(*arrays)
    assert changed_rects(*tensors) == rects
    files = [encode_part(copy, rects[0]) for copy in (arrays[0], tensors[0])]
    assert files[0] == files[1]


def covered(rects: list[Rect]) -> np.ndarray:
    area = np.zeros((HEIGHT, WIDTH), bool)
    for rect in rects:
        area[rect.y : rect.y + rect.height, rect.x : rect.x + rect.width] = True
    return area


points = st.tuples(st.integers(0, HEIGHT - 1), st.integers(0, WIDTH - 1))


@settings(deadline=None)
@given(st.lists(points, max_size=60))
def test_few_rectangles_hold_all_changes(changes: list[tuple[int, int]]) -> None:
    old_pixels = np.zeros((HEIGHT, WIDTH, 4), np.uint8)
    new_pixels = old_pixels.copy()
    for y, x in changes:
        new_pixels[y, x, 3] = 1
    rects = changed_rects(copy_of(new_pixels), copy_of(old_pixels))
    assert len(rects) <= MAX_RECTS
    assert bool(rects) == bool(changes)
    assert covered(rects)[new_pixels[..., 3] > 0].all()
    for rect in rects:
        assert min(rect.x, rect.y) >= 0
        assert rect.x + rect.width <= WIDTH
        assert rect.y + rect.height <= HEIGHT


def test_first_picture_and_another_size_are_sent_as_a_whole() -> None:
    picture = copy_of(np.zeros((HEIGHT, WIDTH, 4), np.uint8))
    picture_rects = [Rect(0, 0, WIDTH, HEIGHT)]
    assert changed_rects(picture, None) == picture_rects
    smaller = copy_of(np.zeros((HEIGHT, WIDTH - 1, 4), np.uint8))
    assert changed_rects(picture, smaller) == picture_rects
    assert changed_rects(picture, picture) == []


def test_one_change_costs_little() -> None:
    old_pixels = np.zeros((1000, 1600, 4), np.uint8)
    new_pixels = old_pixels.copy()
    new_pixels[500:520, 700:760] = 255
    (rect,) = changed_rects(copy_of(new_pixels), copy_of(old_pixels))
    assert rect.width * rect.height < 100 * 70


@pytest.mark.parametrize("seed", range(3))
def test_file_is_exact_once_it_is_multiplied_again(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (HEIGHT, WIDTH, 4), np.uint8)
    pixels[:50, :, 3] = 255
    pixels[50:80] = 0
    pixels[..., :3] = np.minimum(pixels[..., :3], pixels[..., 3:])
    rect = Rect(10, 20, 120, 100)
    file = encode_part(copy_of(pixels), rect)
    with Image.open(io.BytesIO(file)) as image:
        read = np.asarray(image.convert("RGBA")).astype(int)
    expected = pixels[20:120, 10:130]
    np.testing.assert_array_equal(read[..., 3], expected[..., 3])
    multiplied = (2 * read[..., :3] * read[..., 3:] + 255) // 510
    np.testing.assert_array_equal(multiplied, expected[..., :3])


def test_opaque_colors_stay_as_they_are() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (9, 7, 4), np.uint8)
    pixels[..., 3] = 255
    np.testing.assert_array_equal(straight(pixels), pixels)
