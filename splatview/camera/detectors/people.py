"""People who stand or walk, found by OpenCV's own detector: no file, no network, any machine."""

from __future__ import annotations

import numpy as np

from splatview.camera.detectors.base import MOST_FOUND, Detections, DetectorError
from splatview.camera.detectors.nms import apart
from splatview.camera.detectors.providers import threads
from splatview_ipc.system.optional_packages import install_line, needed

THRESHOLD = 0.7
_LONGEST = 800
"""Pixels along the long side of what is searched: people are found from 128 pixels on, in 50 to 100 ms."""


class PeopleDetector:
    """Histograms of oriented gradients and a support vector machine (Dalal and Triggs, 2005)."""

    by = "OpenCV's people detector on CPU"

    def __init__(self, threshold: float | None = None, overlap: float = 0.45) -> None:
        """`threshold`: of the score in 0..1, the logistic function of twice the distance from the machine's margin:
        0.5 on the margin. `overlap`: as for `nms.apart`. Raises DetectorError."""
        with needed("detecting people needs", "cv2", error=DetectorError):
            import cv2
        try:
            people = getattr(cv2, "HOGDescriptor_getDefaultPeopleDetector")()  # noqa: B009, type stubs lack it
        except AttributeError:
            raise DetectorError(f"detecting people needs OpenCV 4, this is {cv2.__version__}: {install_line('camera')}"
                                ) from None
        cv2.setNumThreads(threads())
        self._threshold = THRESHOLD if threshold is None else threshold
        self._overlap = overlap
        self._detector = cv2.HOGDescriptor()
        self._detector.setSVMDetector(people)

    def detect(self, image: np.ndarray) -> Detections:
        import cv2

        height, width = image.shape[:2]
        scale = min(1.0, _LONGEST / max(width, height))
        size = max(1, round(width * scale)), max(1, round(height * scale))
        small = cv2.resize(image, size, interpolation=cv2.INTER_AREA) if scale < 1 else image
        if size[0] < 64 or size[1] < 128:  # nobody fits in
            return _people(np.empty((0, 4), np.float32), np.empty(0, np.float32))
        found, distances = self._detector.detectMultiScale(cv2.cvtColor(small, cv2.COLOR_RGB2BGR), winStride=(8, 8),
                                                           padding=(8, 8), scale=1.05, groupThreshold=0)
        corners = np.asarray(found, np.float32).reshape(-1, 2, 2)
        corners[:, 1] += corners[:, 0]
        # What it says lies around a person with an eighth of the width free at each side: 8 of 64 and 128 pixels.
        margin = (corners[:, 1] - corners[:, 0]) * np.array([1 / 8, 1 / 16], np.float32)
        corners[:, 0] += margin
        corners[:, 1] -= margin
        corners *= np.array((width / size[0], height / size[1]), np.float32)
        boxes = np.clip(corners, 0, np.array([width, height], np.float32)).reshape(-1, 4)
        scores = (1 / (1 + np.exp(-2 * np.asarray(distances, np.float64).reshape(-1)))).astype(np.float32)
        good = np.flatnonzero((scores >= self._threshold) & (boxes[:, 2:] > boxes[:, :2]).all(axis=1))
        kept = good[apart(boxes[good], scores[good], np.zeros(len(good)), self._overlap, MOST_FOUND)]
        kept = kept[_confirmed(boxes[kept], boxes)]
        return _people(boxes[kept], scores[kept])

    def close(self) -> None:
        pass


def _confirmed(boxes: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """Which boxes were found more than once, a little beside: a person is, noise seldom."""
    low = np.maximum(boxes[:, None, :2], windows[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], windows[None, :, 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=2)
    area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)[:, None] + np.prod(windows[:, 2:] - windows[:, :2], axis=1)
    return (shared > 0.5 * (area - shared)).sum(axis=1) > 1


def _people(boxes: np.ndarray, scores: np.ndarray) -> Detections:
    return Detections(boxes, scores, np.zeros(len(boxes), np.int32), ["person"] * len(boxes))
