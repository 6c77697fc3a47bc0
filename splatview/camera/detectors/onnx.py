"""A network in an ONNX file, run by onnxruntime: on a GPU where it can, and which one runs it is said."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview.camera.detectors import labels as names_of
from splatview.camera.detectors.base import MOST_FOUND, Detections, DetectorError, printable
from splatview.camera.detectors.feed import Feed
from splatview.camera.detectors.nms import apart, surest
from splatview.camera.detectors.providers import session
from splatview.camera.detectors.recognise import Network, recognised
from splatview_ipc.system.optional_packages import require

if TYPE_CHECKING:
    from splatview.camera.detectors.choice import DetectorSettings
    from splatview.camera.detectors.found import Found
    from splatview.camera.detectors.placement import Placement

THRESHOLD = 0.25
_MOST_NUMBERS = 1 << 26
"""The most numbers in one output: 20 times what the largest networks give."""
_MOST_MASKS = 100


class OnnxDetector:
    """Finds what a network was trained to find."""

    def __init__(self, settings: DetectorSettings) -> None:
        """Raises DetectorError for a file that cannot be run or read."""
        path = Path(settings.detect).expanduser()
        if not path.is_file():
            raise DetectorError(f"no file {str(path)!r}; give a model.onnx, people, or module:function")
        require(f"detecting with {printable(path.name)} needs", "onnxruntime", "cv2", error=DetectorError)
        self._threshold = THRESHOLD if settings.threshold is None else settings.threshold
        self._overlap = settings.nms
        self._session, provider = session(path, settings.provider)
        self.by = f"{printable(path.stem, 80)} on {provider}"
        self._outputs = [output.name for output in self._session.get_outputs()]
        for output in self._session.get_outputs():
            _check_size(output.name, [n if isinstance(n, int) else 1 for n in output.shape])
        metadata = self._session.get_modelmeta().custom_metadata_map
        self._feed = Feed(self._session.get_inputs(), metadata, settings.normalize)
        own = names_of.from_metadata(metadata.get("names"))
        given = names_of.coco() if settings.labels == "coco" else (
            names_of.read(settings.labels) if settings.labels else own)
        size = self._feed.likely_size()
        blank = np.full((size[1], size[0], 3), 114, dtype=np.uint8)
        # Tried with an empty picture: what is wrong is found now, and engines and memory are ready for the first.
        self._feed.lay(blank, stretched=False, resizes=False)
        outputs = self._run()
        self.decoder = recognised(Network(self._outputs, outputs, size, metadata, len(own or given or ()) or None),
                                  settings.decode)
        if self.decoder.kind == "ssd":
            self._feed.normalise_by_default("imagenet")  # the model zoo's were trained so
        try:
            self.decoder.decode(outputs, self._threshold, *size)
        except ValueError as e:
            raise DetectorError(f"{path}: {e}") from e
        if settings.labels == "coco":
            given = names_of.coco(self.decoder.traits.gaps)
        elif given is None and getattr(self.decoder, "classes", None) == 80:
            given = names_of.coco()
            print(f"{path.name} names no classes; it has 80, taken for COCO's", file=sys.stderr)
        self._labels = given or names_of.Labels({})

    def detect(self, image: np.ndarray) -> Detections:
        placement = self._feed.lay(image, self.decoder.traits.stretched, self.decoder.traits.resizes)
        outputs = self._run()
        found = self.decoder.decode(outputs, self._threshold, placement.across, placement.down)
        return self._said(self._chosen(found), outputs, placement)

    def close(self) -> None:
        self._session: Any = None

    def _run(self) -> list[np.ndarray]:
        outputs = self._session.run(self._outputs, {self._feed.name: self._feed.array})
        for name, output in zip(self._outputs, outputs, strict=True):
            if not isinstance(output, np.ndarray):
                raise DetectorError(f"the network's output {name} is a {type(output).__name__}, not a tensor")
            _check_size(name, output.shape)
        return outputs

    def _chosen(self, found: Found) -> Found:
        most = MOST_FOUND if found.weights is None and found.masks is None else _MOST_MASKS
        if self.decoder.traits.overlapping:
            return found.taken(apart(found.boxes, found.scores, found.classes, self._overlap, most))
        return found.taken(surest(found.scores, most))

    def _said(self, found: Found, outputs: list[np.ndarray], placement: Placement) -> Detections:
        """In pixels of the picture, with names."""
        boxes = placement.boxes(found.boxes)
        seen = np.asarray((boxes[:, 2:] > boxes[:, :2]).all(axis=1))
        if not seen.all():  # boxes beside the picture
            found, boxes = found.taken(seen), boxes[seen]
        labels = [self._labels.text(int(number), self.decoder.traits.first) for number in found.classes]
        result = Detections(boxes, found.scores.astype(np.float32), found.classes, labels)
        if found.points is not None and len(found):
            sure = found.points[..., 2:] if found.points.shape[2] == 3 else np.ones_like(found.points[..., :1])
            result.points = np.concatenate([placement.back(found.points[..., :2]), sure], axis=2, dtype=np.float32)
            result.more = {"skeleton": "coco"} if found.points.shape[1] == 17 else {}
        values = self._mask_values(found, outputs)
        if values is not None:
            result.masks = placement.masks(values, boxes)
        return result

    def _mask_values(self, found: Found, outputs: list[np.ndarray]) -> np.ndarray | None:
        """(N, h, w) over the whole input, over 0: inside."""
        if not len(found):
            return None
        if found.masks is not None:
            return found.masks - np.float32(0.5)
        place = getattr(self.decoder, "prototypes", None)
        if found.weights is None or place is None:
            return None
        prototypes = outputs[place][0].astype(np.float32, copy=False)
        values = found.weights @ prototypes.reshape(len(prototypes), -1)
        return np.nan_to_num(values).reshape(len(found), *prototypes.shape[1:])


def _check_size(name: str, shape: Any) -> None:
    numbers = 1
    for extent in shape:
        numbers *= max(int(extent), 0)
    if numbers > _MOST_NUMBERS:
        raise DetectorError(f"the network's output {name} has {numbers} numbers; at most {_MOST_NUMBERS}")

