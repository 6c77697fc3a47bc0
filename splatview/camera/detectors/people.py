"""Find people who stand or walk by OpenCV's own detector: no file, any machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from splatview.camera.detectors import DetectorError, cpu_threads
from splatview_ipc.system.optional_packages import install_line

if TYPE_CHECKING:
    from splatview.camera.detectors import InferenceSettings

_DEFAULT_THRESHOLD = 0.7
_MAX_SIDE = 800
"""Longer side of the searched picture, pixels: people are found from 128 pixels on, in
50 to 100 ms."""
_WINDOW = (64, 128)
"""Width and height of the detector's window, pixels."""
_FREE = (1 / 8, 1 / 16)
"""Part of a window that is free at each side of the person: 8 of its 64 x 128
pixels."""


class PeopleDetector:
    """Histograms of oriented gradients and a support vector machine.

    Dalal and Triggs, 2005. Scores are the logistic function of twice the distance from
    the machine's margin: 0.5 on the margin.
    """

    title = "OpenCV's people detector on CPU"

    def __init__(self, settings: InferenceSettings) -> None:
        """Load the detector. Raises DetectorError."""
        if not hasattr(cv2, "HOGDescriptor"):
            raise DetectorError(
                f"detecting people needs OpenCV 4, this is {cv2.__version__}: "
                f"{install_line('camera')}"
            )
        cv2.setNumThreads(cpu_threads())
        self._threshold = _DEFAULT_THRESHOLD
        if settings.threshold is not None:
            self._threshold = settings.threshold
        self._detector = cv2.HOGDescriptor()
        self._detector.setSVMDetector(
            # OpenCV's stubs do not declare this function.
            getattr(cv2, "HOGDescriptor_getDefaultPeopleDetector")()  # noqa: B009
        )

    def detect(self, image: np.ndarray) -> dict[str, Any]:
        height, width = image.shape[:2]
        scale = min(1.0, _MAX_SIDE / max(width, height))
        size = max(1, round(width * scale)), max(1, round(height * scale))
        windows, distances = self._search(image, size)
        margin = windows[:, 2:] * np.array(_FREE, np.float32)
        upper_left = windows[:, :2] + margin
        lower_right = windows[:, :2] + windows[:, 2:] - margin
        corners = np.stack([upper_left, lower_right], axis=1)
        corners = corners * np.divide((width, height), size)
        boxes = np.clip(corners, 0, (width, height)).reshape(-1, 4)
        scores = 1 / (1 + np.exp(-2 * distances))
        has_extent = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
        is_person = (scores >= self._threshold) & has_extent
        count = int(is_person.sum())
        annotations: dict[str, Any] = {
            "boxes": boxes[is_person],
            "scores": scores[is_person],
            "classes": np.zeros(count, np.int32),
        }
        # `annotate` takes no empty list.
        if count:
            annotations["labels"] = ["person"] * count
        return annotations

    def _search(
        self, image: np.ndarray, size: tuple[int, int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return windows with people, and their distances from the machine's margin.

        Args:
            image: (H, W, 3), uint8, RGB.
            size: width and height of the picture to search.

        Returns:
            Windows (N, 4) x y w h, in pixels of that picture; distances (N,).
        """
        windows: Any = []
        distances: Any = []
        if size[0] >= _WINDOW[0] and size[1] >= _WINDOW[1]:
            resized = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
            # Groups of one window are left out: a person is found several times, noise
            # seldom.
            windows, distances = self._detector.detectMultiScale(
                cv2.cvtColor(resized, cv2.COLOR_RGB2BGR),
                winStride=(8, 8),
                padding=(8, 8),
                scale=1.05,
                groupThreshold=1,
            )
        return (
            np.asarray(windows, np.float32).reshape(-1, 4),
            np.asarray(distances, np.float32).reshape(-1),
        )
