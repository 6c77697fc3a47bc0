"""Detectors: a network in ONNX, OpenCV's people detector, a function of the user's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

if TYPE_CHECKING:
    import numpy as np

LEGAL = "a file MODEL.onnx, people, or module:function"


class DetectorError(Exception):
    """A detector cannot be made as it was requested. The message is for users."""


class Detector(Protocol):
    """Finds things in pictures, one at a time, always in the same thread."""

    @property
    def title(self) -> str:
        """Name of the detector and of its device: "yolo11n on CPU"."""
        ...

    def detect(self, image: np.ndarray) -> dict[str, Any]:
        """Return the things in a picture, as keywords of `splatview.annotate`.

        May raise anything: the next picture is tried all the same.

        Args:
            image: (H, W, 3), uint8, RGB, the detector's own.

        Returns:
            Coordinates are in pixels of the picture.
        """
        ...


class InferenceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of `python -m splatview.camera.inference`: a detector, and pictures."""

    detect: str
    labels: str = ""
    """A file with the names of a network's classes, or "coco"; "" for those in the
    network's own metadata."""
    threshold: float | None = None
    """Minimum score; None for the detector's own."""
    nms: float = 0.45
    """Of two boxes of a class whose intersection over union exceeds this, the one with
    the higher score is kept."""
    provider: Literal["", "cuda", "cpu"] = ""
    """Device on which onnxruntime runs; "" for CUDA where it works, else the CPU."""
    stream: str = "camera"
    run: str | None = None
    """The run that publishes the stream, as for `splatview.frames`."""
    every: int | Literal["auto"] = "auto"
    """Look at every N-th picture, or "auto": at the newest as soon as the last result
    is published."""


def cpu_threads() -> int:
    """Return the number of threads for a detector on the CPU.

    One processor is left to capture and viewer.
    """
    return max(1, len(os.sched_getaffinity(0)) - 1)
