"""Lay pictures into the input of a network, and scale its coordinates back.

A picture keeps its proportions; the rest of the input is grey.
"""

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
_DEFAULT_SIDE = 640
"""Longer side of an input of any size, unless the metadata names another, pixels."""
_MAX_SIDE = 8192
_STRIDE = 32
"""Sides of an input of any size are multiples of this."""
_GREY = (114, 114, 114)
"""Border of letterboxed pictures in Ultralytics' trainings."""
_MAX_MASK_SIDE = 320
"""Maximum side of a mask, pixels: about twice the resolution of the networks."""


@dataclass(frozen=True)
class LetterboxFit:
    """The position of a picture in the input of a network."""

    size: tuple[int, int]
    """Width and height of the picture, pixels."""
    input_width: int
    """Width of the input, pixels."""
    input_height: int
    """Height of the input, pixels."""
    left: int
    top: int
    """Upper left corner of the scaled picture in the input."""
    inner: tuple[int, int]
    """Width and height of the scaled picture."""

    def to_picture(self, points: np.ndarray) -> np.ndarray:
        """Return points (..., 2) of the input in pixels of the picture."""
        scale = np.divide(self.size, self.inner)
        return ((points - (self.left, self.top)) * scale).astype(np.float32)

    def picture_boxes(self, boxes: np.ndarray) -> np.ndarray:
        """Return boxes (N, 4) x0 y0 x1 y1 of the input in pixels of the picture.

        They are clipped to the picture.
        """
        corners = self.to_picture(boxes.reshape(-1, 2, 2))
        return np.clip(corners, 0, np.array(self.size, np.float32)).reshape(-1, 4)

    def picture_masks(self, logits: np.ndarray, boxes: np.ndarray) -> np.ndarray:
        """Return masks (N, h, w), bool, of the whole picture.

        A mask is where its logits are over 0, within its box.

        Args:
            logits: (N, h', w'), which cover the whole input.
            boxes: (N, 4) x0 y0 x1 y1, pixels of the picture.
        """
        scale = min(1.0, _MAX_MASK_SIDE / max(self.size))
        width = max(1, round(self.size[0] * scale))
        height = max(1, round(self.size[1] * scale))
        transform = self._mask_transform(width, height, logits.shape[1:])
        x = (np.arange(width) + 0.5) * (self.size[0] / width)
        y = (np.arange(height) + 0.5) * (self.size[1] / height)
        masks = np.zeros((len(logits), height, width), dtype=bool)
        for mask, grid, (x0, y0, x1, y1) in zip(masks, logits, boxes, strict=True):
            warped = cv2.warpAffine(
                grid,
                transform,
                (width, height),
                flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
                borderMode=cv2.BORDER_REPLICATE,
            )
            is_in_rows = (y >= y0) & (y <= y1)
            is_in_columns = (x >= x0) & (x <= x1)
            mask[:] = (warped > 0) & is_in_rows[:, None] & is_in_columns
        return masks

    def _mask_transform(
        self, width: int, height: int, grid_shape: tuple[int, ...]
    ) -> np.ndarray:
        """Return the affine map (2, 3) from a mask's pixels to the network's grid.

        It leads from the centre of a pixel to the picture, to the input, to the grid.

        Args:
            width: the width of the mask.
            height: the height of the mask.
            grid_shape: height and width of the network's grid.
        """
        scale_x = grid_shape[1] / self.input_width
        scale_y = grid_shape[0] / self.input_height
        step_x = self.inner[0] / width * scale_x
        step_y = self.inner[1] / height * scale_y
        return np.array(
            [
                [step_x, 0, step_x / 2 + self.left * scale_x - 0.5],
                [0, step_y, step_y / 2 + self.top * scale_y - 0.5],
            ]
        )


class Letterbox:
    """The one input of a network, (1, 3, H, W), RGB in 0 to 1; H and W may be any."""

    def __init__(self, inputs: Sequence[Any], metadata: Mapping[str, str]) -> None:
        """Check the input of a network. Raises DetectorError.

        Args:
            inputs: as an onnxruntime session lists them.
            metadata: the metadata of the network.
        """
        sides = _sides_of(inputs)
        if sides is None:
            names = [f"{i.name} {i.type} {list(i.shape)}" for i in inputs]
            raise DetectorError(
                f"the network takes {', '.join(names) or 'nothing'}; expected one picture "
                f"(1, 3, H, W) of {', '.join(_TYPES)} and at most {_MAX_SIDE} pixels "
                "along a side"
            )
        self._input_height, self._input_width = sides
        """Sides of the input; 0 for any."""
        self.name: str = inputs[0].name
        self._dtype = _TYPES[inputs[0].type]
        self._side = _trained_side(metadata)
        self.trial_size = (
            self._input_width or self._side,
            self._input_height or self._side,
        )
        """Width and height of a picture to try the network with."""

    def fit(self, width: int, height: int) -> LetterboxFit:
        """Return the position of a picture of this size.

        It is rounded as Ultralytics does: networks are trained with it.
        """
        scale = self._side / max(width, height)
        input_width = self._input_width or _strided(width * scale)
        input_height = self._input_height or _strided(height * scale)
        scale = min(input_width / width, input_height / height)
        inner = max(1, round(width * scale)), max(1, round(height * scale))
        return LetterboxFit(
            size=(width, height),
            input_width=input_width,
            input_height=input_height,
            left=round((input_width - inner[0]) / 2 - 0.1),
            top=round((input_height - inner[1]) / 2 - 0.1),
            inner=inner,
        )

    def prepare(self, image: np.ndarray) -> tuple[np.ndarray, LetterboxFit]:
        """Return the network's input for a picture, and the picture's position in it.

        Args:
            image: (H, W, 3), uint8, RGB.
        """
        fit = self.fit(image.shape[1], image.shape[0])
        inner = image
        if fit.inner != fit.size:
            inner = cv2.resize(image, fit.inner, interpolation=cv2.INTER_LINEAR)
        canvas = cv2.copyMakeBorder(
            inner,
            fit.top,
            fit.input_height - fit.top - fit.inner[1],
            fit.left,
            fit.input_width - fit.left - fit.inner[0],
            cv2.BORDER_CONSTANT,
            value=_GREY,
        )
        blob = cv2.dnn.blobFromImage(canvas, 1 / 255)
        return blob.astype(self._dtype, copy=False), fit


def _sides_of(inputs: Sequence[Any]) -> tuple[int, int] | None:
    """Return height and width of the one input of pictures, 0 for any.

    None if a network has other inputs.
    """
    if len(inputs) != 1 or len(inputs[0].shape) != 4:
        return None
    # A side of any length is a name or None.
    batch, channels, height, width = (
        n if isinstance(n, int) and n > 0 else 0 for n in inputs[0].shape
    )
    is_picture = batch <= 1 and channels in (0, 3)
    is_legal = max(batch, channels, height, width) <= _MAX_SIDE
    if not is_picture or not is_legal or inputs[0].type not in _TYPES:
        return None
    return height, width


def _trained_side(metadata: Mapping[str, str]) -> int:
    """Return the longer side with which a network was trained, such as "[640, 640]"."""
    matches = re.findall(r"\d{1,5}", metadata.get("imgsz", "")[:100])
    sides = [int(match) for match in matches]
    if sides and all(_STRIDE <= side <= _MAX_SIDE for side in sides):
        return max(sides)
    return _DEFAULT_SIDE


def _strided(side: float) -> int:
    """Return the smallest legal side of an input for a side of a picture."""
    return max(1, -(-round(side) // _STRIDE)) * _STRIDE
