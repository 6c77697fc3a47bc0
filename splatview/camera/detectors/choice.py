"""Which detector is meant by what stands behind `--detect`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from splatview.camera.detectors.base import DetectorError

if TYPE_CHECKING:
    from splatview.camera.detectors.base import Detector

_Part = Annotated[float, msgspec.Meta(ge=0, le=1)]


class DetectorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What detects, and how."""

    detect: str
    """"people", a file MODEL.onnx, or "module:function"."""
    labels: str = ""
    """A file with the names of a network's classes, or "coco"; "" for those in the network's own metadata."""
    threshold: _Part | None = None
    """The least score; None for what suits the detector."""
    nms: _Part = 0.45
    """Of boxes of a class that share more than this of the area of both, the surest stays."""
    provider: str = ""
    """"tensorrt", "cuda" or "cpu" (`providers.PROVIDERS`); "" for the fastest that works."""
    decode: str = ""
    """Of which kind a network is (`recognise.KINDS`); "" to find out."""
    normalize: str = ""
    """How a network wants colours (`feed.SCALES`); "" for what its metadata says, else 0..1."""


def open_detector(settings: DetectorSettings) -> Detector:
    """The detector that is asked for, ready for pictures: networks are loaded and tried. Raises DetectorError."""
    what = settings.detect
    if what == "people":
        from splatview.camera.detectors.people import PeopleDetector

        return PeopleDetector(settings.threshold, settings.nms)
    if what.lower().endswith(".onnx"):
        from splatview.camera.detectors.onnx import OnnxDetector

        return OnnxDetector(settings)
    if ":" in what:
        from splatview.camera.detectors.function import FunctionDetector

        return FunctionDetector(what)
    raise DetectorError(f"detect is {what!r}; legal are people, a file MODEL.onnx, and module:function")
