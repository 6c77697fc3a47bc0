"""Detectors: a network in ONNX, OpenCV's people detector, a function of the user's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import msgspec

if TYPE_CHECKING:
    import numpy as np

LEGAL = "a file MODEL.onnx, people, or module:function"
MOST_FOUND = 300
"""Maximum number of things that a detector of ours reports for one picture: those with the highest scores."""

_Part = Annotated[float, msgspec.Meta(ge=0, le=1)]


class DetectorError(Exception):
    """A detector cannot be made as it was requested. The message is for users."""


class Detector(Protocol):
    """Finds things in pictures, one at a time, always in the same thread."""

    @property
    def by(self) -> str:
        """Name of the detector and of its device: "yolo11n on CPU"."""
        ...

    def detect(self, image: np.ndarray) -> dict[str, Any]:
        """Return what is in a picture, as keywords of `splatview.annotate`, in pixels of the picture.

        `image` is (H, W, 3), uint8, RGB, read-only, of any size. May raise: the next picture is tried all the same.
        """
        ...


class DetectorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The requested detector and its parameters."""

    detect: str
    """"people", a file MODEL.onnx, or "module:function"."""
    labels: str = ""
    """A file with the names of a network's classes, or "coco"; "" for those in the network's own metadata."""
    threshold: _Part | None = None
    """Minimum score; None for the detector's own."""
    nms: _Part = 0.45
    """Of two boxes of a class whose intersection over union exceeds this, the one with the higher score is kept."""
    provider: Literal["", "cuda", "cpu"] = ""
    """Device on which onnxruntime runs; "" for CUDA where it works, else the CPU."""


def open_detector(settings: DetectorSettings) -> Detector:
    """Return the requested detector, ready for pictures: networks are loaded and tried. Raises DetectorError."""
    what = settings.detect
    if what == "people":
        from splatview.camera.detectors.people import PeopleDetector

        return PeopleDetector(settings)
    if what.lower().endswith(".onnx"):
        from splatview.camera.detectors.onnx import OnnxDetector

        return OnnxDetector(settings)
    if ":" in what:
        from splatview.camera.detectors.function import FunctionDetector

        return FunctionDetector(what)
    raise DetectorError(f"detect is {what!r}; legal are {LEGAL}")
