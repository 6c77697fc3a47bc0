"""Detect the test picture's square, taking as long as a network would.

As `splatview camera --detect` has detectors.

A network's time on a GPU is slept through: it takes no processor, and no interpreter.
What comes after it in Python takes processor time, and the interpreter.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from splatview.camera.pattern import read_index

if TYPE_CHECKING:
    import numpy as np

POSTPROCESSING = 0.020
"""Seconds of processor time."""
MAGENTA = (255, 0, 255)
"""The boxes' colour, which the test picture has not."""


@dataclass(frozen=True)
class Detector:
    network: float
    """Seconds."""
    python: float = 0.0
    """Seconds of processor time behind it."""

    @property
    def seconds(self) -> float:
        return self.network + self.python

    def __call__(self, image: np.ndarray) -> dict[str, Any]:
        """Return the square's box in a test picture (H, W, 3).

        Its label is the index that the picture bears.
        """
        time.sleep(self.network)
        end = time.thread_time() + self.python
        while (
            time.thread_time() < end
        ):  # in Python, as lists are sorted and dictionaries filled
            sum(i * i for i in range(200))
        return {
            "boxes": [find_square(image)],
            "labels": [str(read_index(image))],
            "colors": [MAGENTA],
        }


def find_square(image: np.ndarray) -> tuple[int, int, int, int]:
    """Return x0, y0, x1, y1 of the white square in a test picture (H, W, 3)."""
    height = image.shape[0]
    row = (image[height // 2] == 255).all(1).nonzero()[0]
    x0 = int(row[0])
    x1 = int(row[-1]) + 1
    column = (image[:, (x0 + x1) // 2] == 255).all(1).nonzero()[0]
    return x0, int(column[0]), x1, int(column[-1]) + 1


fast = Detector(0.040)
slow = Detector(0.400)
fast_python = Detector(0.040, POSTPROCESSING)
slow_python = Detector(0.400, POSTPROCESSING)
