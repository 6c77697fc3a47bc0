"""A network's input: a picture scaled into it with its proportions kept, and coordinates scaled back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from splatview.camera.detectors import DetectorError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
_SIDE = 640
"""Longer side of an input of any size, unless the metadata names another, pixels."""
_MOST_SIDE = 8192
_STRIDE = 32
"""Sides of an input of any size are multiples of this."""
_GREY = (114, 114, 114)
"""Border of letterboxed pictures in Ultralytics' trainings."""
_MASK_SIDE = 320
"""Maximum side of a mask, pixels: about twice the resolution of the networks."""


@dataclass(frozen=True)
class LetterboxFit:
    """A picture of `size` (x, y) in an input of `across` x `down` pixels: scaled to `inner` (x, y), its upper left
    corner at (`left`, `top`).
    """

    size: tuple[int, int]
    across: int
    down: int
    left: int
    top: int
    inner: tuple[int, int]

    def back(self, xy: np.ndarray) -> np.ndarray:
        """Return the picture's coordinates (..., 2) of the input's."""
        return ((xy - (self.left, self.top)) * np.divide(self.size, self.inner)).astype(
            np.float32
        )

    def boxes(self, boxes: np.ndarray) -> np.ndarray:
        """Return the picture's boxes (N, 4) x0 y0 x1 y1 of the input's, clipped to the picture."""
        return np.clip(
            self.back(boxes.reshape(-1, 2, 2)), 0, np.array(self.size, np.float32)
        ).reshape(-1, 4)

    def masks(self, values: np.ndarray, boxes: np.ndarray) -> np.ndarray:
        """Return masks (N, h, w), bool, of the whole picture.

        A mask is where `values` (N, h', w'), which cover the whole input, are over 0, within the picture's `boxes`.
        """
        w, h = (
            max(1, round(side * min(1.0, _MASK_SIDE / max(self.size))))
            for side in self.size
        )
        # From the centre of a mask's pixel to the picture, to the input, to the network's own grid.
        grid = values.shape[2] / self.across, values.shape[1] / self.down
        step = self.inner[0] / w * grid[0], self.inner[1] / h * grid[1]
        transform = np.array(
            [
                [step[0], 0, step[0] / 2 + self.left * grid[0] - 0.5],
                [0, step[1], step[1] / 2 + self.top * grid[1] - 0.5],
            ]
        )
        x = (np.arange(w) + 0.5) * (self.size[0] / w)
        y = (np.arange(h) + 0.5) * (self.size[1] / h)
        masks = np.zeros((len(values), h, w), dtype=bool)
        for mask, value, (x0, y0, x1, y1) in zip(masks, values, boxes, strict=True):
            warped = cv2.warpAffine(
                value,
                transform,
                (w, h),
                flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
                borderMode=cv2.BORDER_REPLICATE,
            )
            mask[:] = (
                (warped > 0)
                & ((y >= y0) & (y <= y1))[:, None]
                & ((x >= x0) & (x <= x1))
            )
        return masks


class Letterbox:
    """The one input of a network, (1, 3, H, W), RGB in 0 to 1; H and W may be any."""

    def __init__(self, inputs: Sequence[Any], metadata: Mapping[str, str]) -> None:
        """`inputs`: as an onnxruntime session lists them. Raises DetectorError."""
        listed = (
            ", ".join(f"{i.name} {i.type} {list(i.shape)}" for i in inputs) or "nothing"
        )
        if len(inputs) == 1:
            sides = [n if isinstance(n, int) and n > 0 else 0 for n in inputs[0].shape]
        else:
            sides = []
        if (
            len(sides) != 4
            or sides[0] > 1
            or sides[1] not in (0, 3)
            or max(sides) > _MOST_SIDE
            or (inputs[0].type not in _TYPES)
        ):
            raise DetectorError(
                f"the network takes {listed}; legal is one picture (1, 3, H, W) of {', '.join(_TYPES)} "
                f"and at most {_MOST_SIDE} pixels along a side"
            )
        down, across = sides[2:]
        self.name: str = inputs[0].name
        self._dtype = _TYPES[inputs[0].type]
        self._fixed = across, down
        trained = [
            int(n) for n in re.findall(r"\d{1,5}", metadata.get("imgsz", "")[:100])
        ]  # "[640, 640]"
        if trained and all(_STRIDE <= n <= _MOST_SIDE for n in trained):
            self._side = max(trained)
        else:
            self._side = _SIDE
        self.trial_size = across or self._side, down or self._side
        """Size of a picture to try the network with."""

    def place(self, width: int, height: int) -> LetterboxFit:
        """Return the position of a picture of this size, with Ultralytics' rounding: networks are trained with it."""
        scale = self._side / max(width, height)
        across, down = (
            fixed or max(1, -(-round(side * scale) // _STRIDE)) * _STRIDE
            for fixed, side in zip(self._fixed, (width, height), strict=True)
        )
        scale = min(across / width, down / height)
        inner = max(1, round(width * scale)), max(1, round(height * scale))
        left = round((across - inner[0]) / 2 - 0.1)
        top = round((down - inner[1]) / 2 - 0.1)
        return LetterboxFit((width, height), across, down, left, top, inner)

    def lay(self, image: np.ndarray) -> tuple[np.ndarray, LetterboxFit]:
        """Return the input for a picture (H, W, 3), uint8, RGB, and the picture's position in it."""
        p = self.place(image.shape[1], image.shape[0])
        if p.inner == p.size:
            inner = image
        else:
            inner = cv2.resize(image, p.inner, interpolation=cv2.INTER_LINEAR)
        whole = cv2.copyMakeBorder(
            inner,
            p.top,
            p.down - p.top - p.inner[1],
            p.left,
            p.across - p.left - p.inner[0],
            cv2.BORDER_CONSTANT,
            value=_GREY,
        )
        return cv2.dnn.blobFromImage(whole, 1 / 255).astype(self._dtype, copy=False), p
