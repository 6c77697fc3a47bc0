"""The detector that settings name, with what it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview.camera.detectors import LEGAL, DetectorError
from splatview_ipc.system.optional_packages import importing
from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    from splatview.camera.detectors import Detector, InferenceSettings


def open_detector(settings: InferenceSettings) -> Detector:
    """Return the requested detector, ready for pictures. Raises DetectorError.

    Networks are loaded and tried.
    """
    detect = settings.detect
    subject = f"detecting with {printable(detect)} needs"
    if detect == "people":
        with importing(subject, "cv2", error=DetectorError):
            from splatview.camera.detectors.people import PeopleDetector

        return PeopleDetector(settings)
    if detect.lower().endswith(".onnx"):
        with (
            importing(subject, "onnxruntime", error=DetectorError),
            importing(subject, "cv2", error=DetectorError),
        ):
            from splatview.camera.detectors.onnx import OnnxDetector

        return OnnxDetector(settings)
    if ":" in detect:
        from splatview.camera.detectors.function import FunctionDetector

        return FunctionDetector(detect)
    raise DetectorError(f"detect is {detect!r}; expected {LEGAL}")
