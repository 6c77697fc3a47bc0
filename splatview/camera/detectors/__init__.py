"""Detectors: a network in ONNX, OpenCV's people detector, a function of the user's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from splatview_ipc.system.optional_packages import needed
from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    import numpy as np

LEGAL = "a file MODEL.onnx, people, or module:function"


class DetectorError(Exception):
    """A detector cannot be made as it was requested. The message is for users."""


class Detector(Protocol):
    """Finds things in pictures, one at a time, always in the same thread."""

    @property
    def by(self) -> str:
        """Name of the detector and of its device: "yolo11n on CPU"."""
        ...

    def detect(self, image: np.ndarray) -> dict[str, Any]:
        """Return what is in a picture, (H, W, 3), uint8, RGB, the detector's own: keywords of `splatview.annotate`, in
        pixels of the picture. May raise: the next picture is tried all the same.
        """
        ...


class InferenceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The requested detector, and the pictures for it. Settings of `python -m splatview.camera.inference`."""

    detect: str
    labels: str = ""
    """A file with the names of a network's classes, or "coco"; "" for those in the network's own metadata."""
    threshold: float | None = None
    """Minimum score; None for the detector's own."""
    nms: float = 0.45
    """Of two boxes of a class whose intersection over union exceeds this, the one with the higher score is kept."""
    provider: Literal["", "cuda", "cpu"] = ""
    """Device on which onnxruntime runs; "" for CUDA where it works, else the CPU."""
    stream: str = "camera"
    run: str | None = None
    """The run that publishes the stream, as for `splatview.frames`."""
    every: int | Literal["auto"] = "auto"
    """Look at every N-th picture, or "auto": at the newest as soon as the last result is published."""


def open_detector(settings: InferenceSettings) -> Detector:
    """Return the requested detector, ready for pictures: networks are loaded and tried. Raises DetectorError."""
    what = settings.detect
    subject = f"detecting with {printable(what)} needs"
    if what == "people":
        with needed(subject, "cv2", error=DetectorError):
            from splatview.camera.detectors.people import PeopleDetector

        return PeopleDetector(settings)
    if what.lower().endswith(".onnx"):
        with (
            needed(subject, "onnxruntime", error=DetectorError),
            needed(subject, "cv2", error=DetectorError),
        ):
            from splatview.camera.detectors.onnx import OnnxDetector

        return OnnxDetector(settings)
    if ":" in what:
        from splatview.camera.detectors.function import FunctionDetector

        return FunctionDetector(what)
    raise DetectorError(f"detect is {what!r}; legal are {LEGAL}")


def cpu_threads() -> int:
    """Return the number of threads for a detector on the CPU: one processor is left to capture and viewer."""
    return max(1, len(os.sched_getaffinity(0)) - 1)
