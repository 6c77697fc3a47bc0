"""People who stand or walk, found by OpenCV's own detector: no file, no network, any machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from splatview.camera.detectors import DetectorError, cpu_threads
from splatview_ipc.system.optional_packages import install_line

if TYPE_CHECKING:
    from splatview.camera.detectors import InferenceSettings

_THRESHOLD = 0.7
_LONGEST = 800
"""Longer side of the searched picture, pixels: people are found from 128 pixels on, in 50 to 100 ms."""


class PeopleDetector:
    """Histograms of oriented gradients and a support vector machine (Dalal and Triggs, 2005)."""

    by = "OpenCV's people detector on CPU"

    def __init__(self, settings: InferenceSettings) -> None:
        """Scores are the logistic function of twice the distance from the machine's margin: 0.5 on the margin.

        Raises DetectorError.
        """
        if not hasattr(cv2, "HOGDescriptor"):
            raise DetectorError(
                f"detecting people needs OpenCV 4, this is {cv2.__version__}: {install_line('camera')}"
            )
        cv2.setNumThreads(cpu_threads())
        if settings.threshold is None:
            self._threshold = _THRESHOLD
        else:
            self._threshold = settings.threshold
        self._detector = cv2.HOGDescriptor()
        self._detector.setSVMDetector(
            # OpenCV's stubs do not declare this function.
            getattr(cv2, "HOGDescriptor_getDefaultPeopleDetector")()  # noqa: B009
        )

    def detect(self, image: np.ndarray) -> dict[str, Any]:
        height, width = image.shape[:2]
        scale = min(1.0, _LONGEST / max(width, height))
        size = max(1, round(width * scale)), max(1, round(height * scale))
        found = []
        distances = []
        if size[0] >= 64 and size[1] >= 128:  # the detector's window
            small = cv2.cvtColor(
                cv2.resize(image, size, interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2BGR
            )
            # Groups of one window are left out: a person is found several times, noise seldom.
            found, distances = self._detector.detectMultiScale(
                small, winStride=(8, 8), padding=(8, 8), scale=1.05, groupThreshold=1
            )
        windows = np.asarray(found, np.float32).reshape(-1, 4)
        # A window has an eighth of its width free at each side of the person: 8 of 64 x 128 pixels.
        margin = windows[:, 2:] * np.array([1 / 8, 1 / 16], np.float32)
        corners = np.stack(
            [windows[:, :2] + margin, windows[:, :2] + windows[:, 2:] - margin], axis=1
        )
        boxes = np.clip(
            corners * np.divide((width, height), size), 0, (width, height)
        ).reshape(-1, 4)
        scores = 1 / (1 + np.exp(-2 * np.asarray(distances, np.float32).reshape(-1)))
        good = (scores >= self._threshold) & (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
        # annotate takes no empty list
        if good.any():
            labels = {"labels": ["person"] * int(good.sum())}
        else:
            labels = {}
        return {
            "boxes": boxes[good],
            "scores": scores[good],
            "classes": np.zeros(int(good.sum()), np.int32),
            **labels,
        }
