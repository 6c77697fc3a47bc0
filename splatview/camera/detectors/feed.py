"""A network's input: what it says it takes, and pictures made into that."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview.camera.detectors.base import DetectorError
from splatview.camera.detectors.placement import STRIDE, Placement, least, letterbox, stretched

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCALES = {
    "0..1": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "-1..1": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "0..255": ((0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
"""mean and deviation of red, green and blue in 0..1: what is subtracted, and then divided by."""
_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(uint8)": np.uint8}
_LONGEST = 640
"""Pixels along the long side, where a network takes any."""
_LONGEST_AS_IT_IS = 1333
"""The same for networks that resize pictures themselves: torchvision's make them no larger."""
_MOST_SIDE = 8192
_GREY = 114
"""What letterboxed pictures are surrounded with: networks were trained with it."""


class Feed:
    """The one input of a network, (1, 3, H, W), (1, H, W, 3), or without the 1."""

    def __init__(self, inputs: Sequence[Any], metadata: Mapping[str, str], scale: str = "") -> None:
        """`inputs`: as an onnxruntime session names them. `scale`: one of SCALES, "" for what the network says.

        Raises DetectorError."""
        said = ", ".join(f"{i.name} {i.type} {list(i.shape)}" for i in inputs) or "nothing"
        wrong = f"the network takes {said}; "
        if scale and scale not in SCALES:
            raise DetectorError(f"normalize is {scale!r}, not one of {', '.join(SCALES)}")
        if len(inputs) != 1:
            raise DetectorError(f"{wrong}legal is one picture")
        self.name: str = inputs[0].name
        if inputs[0].type not in _TYPES:
            raise DetectorError(f"{wrong}legal types are {', '.join(_TYPES)}")
        self._dtype = _TYPES[inputs[0].type]
        shape = [n if isinstance(n, int) and n > 0 else None for n in inputs[0].shape]
        self._batch = len(shape) == 4
        rest = shape[1:] if self._batch else shape
        if len(rest) != 3 or (self._batch and shape[0] not in (None, 1)):
            raise DetectorError(f"{wrong}legal shapes are (1, 3, H, W) and (1, H, W, 3), or without the 1")
        # Where no side is named 3, what networks of that type have.
        first, last = rest[0] == 3, rest[2] == 3
        if not first and not last and (rest[0] is None or rest[2] is None):
            last = rest[2] is None and (rest[0] is not None or self._dtype == np.uint8)
            first = not last
        if not first and not last:
            raise DetectorError(f"{wrong}legal are 3 channels, red, green and blue")
        self._planes = first
        self._down, self._across = rest[1:] if first else rest[:2]
        if max(self._down or 1, self._across or 1) > _MOST_SIDE:
            raise DetectorError(f"{wrong}at most {_MOST_SIDE} pixels along a side")
        self._longest = _sides(metadata.get("imgsz", ""))
        self.array = np.empty(0, self._dtype)
        self._laid: Placement | None = None
        self._free = not scale
        self._tables = _tables(*(SCALES[scale] if scale else _said(metadata, self._said_free)), self._dtype)

    def normalise_by_default(self, scale: str) -> None:
        """What holds where neither the caller nor the network says something else."""
        if self._free:
            self._tables = _tables(*SCALES[scale], self._dtype)
            self._laid = None

    def likely_size(self) -> tuple[int, int]:
        """x y of an input to try the network with."""
        return self._across or max(self._longest), self._down or max(self._longest)

    def lay(self, image: np.ndarray, stretched: bool, resizes: bool = False) -> Placement:
        """Make `array` of a picture (H, W, 3), uint8, RGB. `resizes`: the network takes any size and makes it fit."""
        import cv2

        placement = self._placed(image.shape[1], image.shape[0], stretched, resizes)
        if placement != self._laid:
            self._surround(placement)
            self._laid = placement
        inner = image
        if placement.inner != (image.shape[1], image.shape[0]):
            inner = cv2.resize(image, placement.inner, interpolation=cv2.INTER_LINEAR)  # as in their training
        target = self.array[0] if self._batch else self.array
        rows = slice(placement.top, placement.top + placement.inner[1])
        columns = slice(placement.left, placement.left + placement.inner[0])
        parts = cv2.split(inner)
        for channel, (table, part) in enumerate(zip(self._tables, parts, strict=True)):
            place = target[channel, rows, columns] if self._planes else target[rows, columns, channel]
            if self._dtype == np.uint8:
                place[:] = part
            else:  # OpenCV knows no table of float16, but moves any two bytes
                place[:] = cv2.LUT(part, table.view(np.int16) if table.itemsize == 2 else table).view(table.dtype)
        return placement

    def _placed(self, width: int, height: int, fill: bool, resizes: bool) -> Placement:
        if self._across and self._down:
            across, down = self._across, self._down
        elif resizes:
            scale = min(1.0, _LONGEST_AS_IT_IS / max(width, height))
            across, down = (self._across or max(1, round(width * scale)), self._down or max(1, round(height * scale)))
        else:
            x, y = least(width, height, max(self._longest))
            across, down = self._across or x, self._down or y
        return stretched(width, height, across, down) if fill else letterbox(width, height, across, down)

    def _surround(self, placement: Placement) -> None:
        """An input that is grey all over."""
        size = (placement.down, placement.across)
        shape = (3, *size) if self._planes else (*size, 3)
        self.array = np.empty((1, *shape) if self._batch else shape, self._dtype)
        grey = [_GREY if self._dtype == np.uint8 else table[_GREY] for table in self._tables]
        self.array[:] = np.reshape(grey, (3, 1, 1) if self._planes else (1, 1, 3))

    def _said_free(self, said: bool) -> None:
        self._free = self._free and not said


def _said(metadata: Mapping[str, str], said: Any) -> tuple[Sequence[float], Sequence[float]]:
    """mean and deviation as the network's metadata has them, else those of 0..1."""
    mean, deviation = (_three(metadata.get(name, "")) for name in ("mean", "std"))
    if mean and deviation and min(deviation) > 0:
        said(True)
        part = 255 if max(deviation) > 2 or max(mean) > 2 else 1
        return [m / part for m in mean], [d / part for d in deviation]
    for name in ("normalization", "normalize", "preprocessing"):
        if "imagenet" in metadata.get(name, "").lower():
            said(True)
            return SCALES["imagenet"]
    return SCALES["0..1"]


def _three(text: str) -> list[float] | None:
    """Three finite numbers, as a list in JSON or Python."""
    numbers = re.findall(r"[-+0-9.eE]+", text[:200])
    try:
        found = [float(json.loads(n)) for n in numbers]
    except (ValueError, TypeError):
        return None
    return found if len(found) == 3 and all(map(math.isfinite, found)) else None


def _sides(text: str) -> tuple[int, int]:
    """The size that Ultralytics trained for: "[640, 640]"."""
    numbers = [int(n) for n in re.findall(r"\d{1,5}", text[:100])][:2]
    if numbers and all(STRIDE <= n <= _MOST_SIDE for n in numbers):
        return numbers[0], numbers[-1]
    return _LONGEST, _LONGEST


def _tables(mean: Sequence[float], deviation: Sequence[float], dtype: Any) -> list[np.ndarray]:
    """What each value of red, green and blue becomes."""
    values = np.arange(256) / 255
    return [((values - m) / d).astype(dtype if dtype != np.uint8 else np.float32)
            for m, d in zip(mean, deviation, strict=True)]
