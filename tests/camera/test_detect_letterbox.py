"""Pictures are laid into a network's input, and what is found there is laid back to its place in the picture."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest

from splatview.camera.detectors import DetectorError
from splatview.camera.detectors.letterbox import Letterbox


def letterbox(shape: list[Any], dtype: str = "float", **metadata: str) -> Letterbox:
    return Letterbox([SimpleNamespace(name="images", type=f"tensor({dtype})", shape=shape)], metadata)


def picture(width: int, height: int) -> np.ndarray:
    image = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    image.flags.writeable = False
    return image


@pytest.mark.parametrize("size", [(1920, 1080), (641, 479), (33, 1000), (1, 1)])
def test_there_and_back(size: tuple[int, int]) -> None:
    placement = letterbox([1, 3, 500, 300]).place(*size)
    assert placement.left >= 0 and placement.top >= 0
    assert placement.left + placement.inner[0] <= 300 and placement.top + placement.inner[1] <= 500
    rng = np.random.default_rng(0)
    there = np.sort(rng.uniform(0, 1, (20, 2, 2)), axis=1) * size  # boxes in the picture
    laid = there * placement.inner / np.array(size) + (placement.left, placement.top)
    np.testing.assert_allclose(placement.boxes(laid.reshape(-1, 4)), there.reshape(-1, 4), rtol=1e-4, atol=1e-3)
    outside = placement.boxes(np.array([[-1e6, -1e6, 1e6, 1e6]]))
    np.testing.assert_array_equal(outside, np.array([[0, 0, *size]], np.float32))


def test_placement_is_ultralytics_own() -> None:
    """Networks were trained with this rounding; the numbers are from its LetterBox."""
    fixed = letterbox([1, 3, 640, 640])
    for size, place in (((1920, 1080), (0, 140, (640, 360))), ((810, 1080), (80, 0, (480, 640)))):
        placement = fixed.place(*size)
        assert (placement.left, placement.top, placement.inner) == place
    placement = letterbox([1, 3, 480, 640]).place(641, 480)  # one row is free: below
    assert (placement.left, placement.top, placement.inner) == (0, 0, (640, 479))
    free = letterbox(["batch", 3, "height", "width"])
    for size, whole in (((1920, 1080), (640, 384)), ((480, 640), (480, 640)), ((1, 5000), (32, 640))):
        placement = free.place(*size)
        assert (placement.across, placement.down) == whole
    for imgsz, side in (("[320, 320]", 320), ("[9999999, -1]", 640)):
        assert letterbox([1, 3, None, None], imgsz=imgsz).trial_size == (side, side)


@pytest.mark.parametrize("dtype", ["float", "float16"])
def test_what_the_network_gets(dtype: str) -> None:
    image = picture(192, 96)
    laid, placement = letterbox([1, 3, 64, 96], dtype).lay(image)
    assert (placement.top, placement.inner) == (8, (96, 48))
    whole = np.full((64, 96, 3), 114, np.uint8)
    whole[8:56] = cv2.resize(image, (96, 48), interpolation=cv2.INTER_LINEAR)
    assert laid.dtype == {"float": np.float32, "float16": np.float16}[dtype] and laid.flags.c_contiguous
    np.testing.assert_allclose(laid[0].transpose(1, 2, 0), whole / 255, atol=1e-6 if dtype == "float" else 1e-3)


def test_inputs_that_are_no_picture() -> None:
    for shape, dtype in (([1, 4, 64, 96], "float"), ([4, 3, 64, 96], "float"), ([1, 3], "float"),
                         ([1, 3, 64, 96], "double"), ([1, 3, 9000, 96], "float"), ([1, 64, 96, 3], "float")):
        with pytest.raises(DetectorError, match="legal is") as caught:
            letterbox(shape, dtype)
        assert str(shape) in str(caught.value)
    given = SimpleNamespace(name="images", type="tensor(float)", shape=[1, 3, 64, 96])
    for inputs in ([given, given], []):
        with pytest.raises(DetectorError, match="legal is one picture"):
            Letterbox(inputs, {})
