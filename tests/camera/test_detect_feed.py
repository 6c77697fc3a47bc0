"""Pictures become what a network says it takes, and what it finds is laid back to where it was in the picture."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest

from splatview.camera.detectors.base import DetectorError
from splatview.camera.detectors.feed import SCALES, Feed
from splatview.camera.detectors.placement import Placement, least, letterbox, stretched


def feed(shape: list[Any], dtype: str = "float", scale: str = "", **metadata: str) -> Feed:
    return Feed([SimpleNamespace(name="images", type=f"tensor({dtype})", shape=shape)], metadata, scale)


def picture(width: int, height: int) -> np.ndarray:
    image = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    image.flags.writeable = False
    return image


@pytest.mark.parametrize("size", [(1920, 1080), (641, 479), (33, 1000), (1, 1)])
@pytest.mark.parametrize("lay", [letterbox, stretched])
def test_there_and_back(size: tuple[int, int], lay: Any) -> None:
    into = (300, 500)
    placement: Placement = lay(*size, *into)
    assert placement.left >= 0 and placement.top >= 0
    assert placement.left + placement.inner[0] <= into[0] and placement.top + placement.inner[1] <= into[1]
    whole = np.array([[placement.left, placement.top, placement.left + placement.inner[0],
                       placement.top + placement.inner[1]]], np.float32)
    np.testing.assert_allclose(placement.boxes(whole), [[0, 0, *size]], rtol=1e-6)
    rng = np.random.default_rng(0)
    there = np.sort(rng.uniform(0, 1, (20, 2, 2)), axis=1) * size  # boxes in the picture
    laid = there * placement.inner / np.array(size) + (placement.left, placement.top)
    np.testing.assert_allclose(placement.boxes(laid.reshape(-1, 4)), there.reshape(-1, 4), rtol=1e-4, atol=1e-3)
    outside = placement.boxes(np.array([[-1e6, -1e6, 1e6, 1e6]]))
    np.testing.assert_array_equal(outside, np.array([[0, 0, *size]], np.float32))


def test_letterboxes_are_ultralytics_own() -> None:
    """Networks were trained with this rounding; the numbers are from its LetterBox."""
    placement = letterbox(1920, 1080, 640, 640)
    assert (placement.left, placement.top, placement.inner) == (0, 140, (640, 360))
    placement = letterbox(810, 1080, 640, 640)
    assert (placement.left, placement.top, placement.inner) == (80, 0, (480, 640))
    placement = letterbox(641, 480, 640, 480)  # one row is free: below
    assert (placement.left, placement.top, placement.inner) == (0, 0, (640, 479))
    assert least(1920, 1080, 640) == (640, 384)
    assert least(480, 640, 640) == (480, 640)
    assert least(1, 5000, 640) == (32, 640)


@pytest.mark.parametrize(("planes", "dtype", "scale"), [
    (True, "float", ""), (False, "float", "imagenet"), (True, "float16", "-1..1"), (True, "float", "0..255"),
    (False, "uint8", "")])
def test_what_the_network_gets(planes: bool, dtype: str, scale: str) -> None:
    made = feed([1, 3, 64, 96] if planes else [1, 64, 96, 3], dtype, scale)
    image = picture(192, 96)
    placement = made.lay(image, False)
    assert (placement.top, placement.inner) == (8, (96, 48))
    whole = np.full((64, 96, 3), 114, np.uint8)
    whole[8:56] = cv2.resize(image, (96, 48), interpolation=cv2.INTER_LINEAR)
    mean, deviation = np.array(SCALES[scale or "0..1"])
    expected = whole if dtype == "uint8" else ((whole / 255 - mean) / deviation)
    got = made.array[0].transpose(1, 2, 0) if planes else made.array[0]
    assert made.array.dtype == {"float": np.float32, "float16": np.float16, "uint8": np.uint8}[dtype]
    assert made.array.flags.c_contiguous
    np.testing.assert_array_equal(got, expected.astype(made.array.dtype))


def test_any_size() -> None:
    made = feed(["batch", 3, "height", "width"])
    assert made.likely_size() == (640, 640)
    made.lay(picture(1920, 1080), False)
    assert made.array.shape == (1, 3, 384, 640)
    assert feed([1, 3, None, None], imgsz="[320, 320]").likely_size() == (320, 320)
    assert feed([1, 3, None, None], imgsz="[9999999, -1]").likely_size() == (640, 640)


def test_what_cannot_be_fed() -> None:
    for shape, dtype, words in (
            ([1, 4, 64, 96], "float", "3 channels"), ([4, 3, 64, 96], "float", "legal shapes"),
            ([1, 3], "float", "legal shapes"), ([1, 3, 64, 96], "double", "legal types"),
            ([1, 3, 9000, 96], "float", "at most 8192")):
        with pytest.raises(DetectorError, match=words) as caught:
            feed(shape, dtype)
        assert str(shape) in str(caught.value)
    given = SimpleNamespace(name="images", type="tensor(float)", shape=[1, 3, 64, 96])
    for inputs in ([given, given], []):
        with pytest.raises(DetectorError, match="legal"):
            Feed(inputs, {})
    with pytest.raises(DetectorError, match=r"'0..2', not one of 0..1"):
        feed([1, 3, 64, 96], scale="0..2")


def test_masks_lie_where_the_thing_is() -> None:
    """A rectangle in a picture of 1280 x 640, as a network gives it: on a grid of 160 x 160, positive inside."""
    placement = letterbox(1280, 640, 640, 640)
    middle = (np.arange(160) + 0.5) * 4
    across, down = (middle > 160) & (middle < 480), (middle > 160 + 80) & (middle < 160 + 160)
    values = np.where(across[None] & down[:, None], 1.0, -1.0)[None].astype(np.float32)
    mask = placement.masks(values, np.array([[0, 0, 1280, 640]], np.float32))[0]
    h, w = mask.shape
    assert (w, h) == (320, 160)
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    np.testing.assert_allclose([columns[0], columns[-1] + 1, rows[0], rows[-1] + 1], [80, 240, 40, 80], atol=3)
    cut = placement.masks(values, np.array([[0, 0, 640, 640]], np.float32))[0]
    assert not cut[:, w // 2 + 1:].any() and cut[:, :w // 2].any(), "nothing outside the box"
