"""Of which kind a network is: told by the names and shapes of its outputs, and by its metadata."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from splatview.camera.detectors.base import DetectorError
from splatview.camera.detectors.found import Traits
from splatview.camera.detectors.named import Named
from splatview.camera.detectors.yolo import Yolo, YoloEndToEnd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from splatview.camera.detectors.found import Decoder

KINDS = {
    "yolov5": "(1, N, 5 + classes): YOLOv5 and v7",
    "yolov8": "(1, 4 + classes, N) or (1, N, 4 + classes): YOLOv8, 9, 11 and 12, their -pose and -seg",
    "yolov10": "(1, N, 6): YOLOv10, 26 and whatever was exported end to end",
    "yolov7-end2end": "(N, 7)",
    "ssd-tensorflow": "detection_boxes, detection_classes, detection_scores, num_detections",
    "ssd": "bboxes (1, N, 4) in 0 to 1, labels (1, N), scores (1, N): the ONNX model zoo's",
    "torchvision": "boxes (N, 4), labels (N,), scores (N,)[, masks (N, 1, H, W)]",
}
"""What can be read."""
_STRIDES = ((8, 16, 32), (8, 16, 32, 64), (4, 8, 16, 32), (16, 32))


@dataclass(frozen=True)
class Network:
    """What is known of a network once it was tried."""

    names: Sequence[str]
    """Of its outputs."""
    outputs: Sequence[np.ndarray]
    """For an empty picture."""
    size: tuple[int, int]
    """Of the input, x y."""
    metadata: Mapping[str, str]
    classes: int | None = None
    """How many there are, if that is known."""

    @property
    def described(self) -> str:
        return ", ".join(f"{name} {output.dtype} {output.shape}"
                         for name, output in zip(self.names, self.outputs, strict=True)) or "nothing"


def recognised(network: Network, kind: str = "") -> Decoder:
    """What reads this network's outputs. `kind`: one of KINDS, "" to find out. Raises DetectorError."""
    if kind and kind not in KINDS:
        raise DetectorError(f"decode is {kind!r}, not one of {', '.join(KINDS)}")
    for attempt in (_tensorflow, _named, _yolo):
        decoder = attempt(network, kind)
        if decoder is not None:
            return decoder
    wanted = f"which is not {kind}, {KINDS[kind]}" if kind else "; ".join(
        ["which is none of what can be read", *(f"{name}: {looks}" for name, looks in KINDS.items())])
    raise DetectorError(f"the network gives {network.described}, {wanted}. Export it as one of these, or give a "
                        "function of your own, module:function")


def _tensorflow(network: Network, kind: str) -> Decoder | None:
    if kind not in ("", "ssd-tensorflow"):
        return None
    places = {re.sub(r":\d+$", "", name).rpartition("/")[2].lower(): i for i, name in enumerate(network.names)}
    try:
        boxes, classes, scores = (places[f"detection_{what}"] for what in ("boxes", "classes", "scores"))
    except KeyError:
        return None
    return Named("ssd-tensorflow", boxes, classes, scores, places.get("num_detections"), rows_first=True, parts=True,
                 traits=Traits(stretched=True, resizes=True, first=1, gaps=True))


def _named(network: Network, kind: str) -> Decoder | None:
    if kind not in ("", "ssd", "torchvision"):
        return None
    names = [name.lower() for name in network.names]
    shapes = [o.shape[1:] if o.ndim > 1 and o.shape[0] == 1 and not (o.ndim == 2 and o.shape[1] == 4) else o.shape
              for o in network.outputs]
    floats = [o.dtype.kind == "f" for o in network.outputs]

    def only(*of: int) -> int | None:
        return of[0] if len(of) == 1 else None

    every = range(len(names))
    boxes = only(*(i for i in every if names[i] in ("boxes", "bboxes")))
    scores = only(*(i for i in every if names[i] == "scores"))
    classes = only(*(i for i in every if names[i] in ("labels", "classes")))
    if None in (boxes, scores, classes):
        boxes = only(*(i for i in every if len(shapes[i]) == 2 and shapes[i][1] == 4 and floats[i]))
        scores = only(*(i for i in every if len(shapes[i]) == 1 and floats[i]))
        classes = only(*(i for i in every if len(shapes[i]) == 1 and not floats[i]))
    if boxes is None or scores is None or classes is None:
        return None
    masks = only(*(i for i in every if names[i] == "masks" or (len(shapes[i]) == 4 and shapes[i][1] == 1)))
    points = only(*(i for i in every if names[i] == "keypoints"))
    parts = kind == "ssd" or (not kind and names[boxes] == "bboxes")
    return Named("ssd" if parts else "torchvision", boxes, classes, scores, masks=masks, points=points, parts=parts,
                 traits=Traits(stretched=parts, resizes=True, first=1, gaps=not parts))


def _yolo(network: Network, kind: str) -> Decoder | None:
    outputs, metadata = network.outputs, network.metadata
    table = next((i for i, o in enumerate(outputs) if o.ndim == 3 and o.shape[0] == 1 and o.dtype.kind == "f"), None)
    if table is None:
        table = next((i for i, o in enumerate(outputs) if o.ndim == 2 and o.shape[1] == 7 and o.dtype.kind == "f"),
                     None)
        if table is None or kind not in ("", "yolov7-end2end"):
            return None
        return YoloEndToEnd("yolov7-end2end", table, False, 7, picture=True)
    if kind not in ("", "yolov5", "yolov8", "yolov10"):
        return None
    prototypes = next((i for i, o in enumerate(outputs) if o.ndim == 4 and o.shape[0] == 1), None)
    weights = outputs[prototypes].shape[1] if prototypes is not None else 0
    ends = kind == "yolov10" or (not kind and _chosen_inside(metadata))
    points = _points(metadata)
    columns, width, count = _orientation(network, weights, points, ends)
    one, three = _anchors(*network.size)
    if not points[0] and width == 56 and columns and not weights and not kind and network.classes in (None, 1):
        points = (17, 3)  # one class, and COCO's points of a person
    beside = weights + points[0] * points[1]
    if not ends and not kind:
        ends = not columns and width == 6 + beside and count not in one | three
    if ends:
        if width != 6 + beside:
            raise DetectorError(f"the network gives {network.described}; end to end it would have {6 + beside} numbers "
                                f"for each box, not {width}")
        return YoloEndToEnd("yolov10", table, columns, width, points, prototypes)
    objectness = kind == "yolov5"
    if not kind:
        if network.classes is not None and width - beside - network.classes in (4, 5):
            objectness = width - beside - network.classes == 5
        elif not columns and count in one and width == 85:
            raise DetectorError(f"the network gives {network.described}, which may be yolov5 with 80 classes or yolov8 "
                                "with 81; say which by the setting decode, or give a file of labels")
        else:
            objectness = not columns and count not in one
    classes = width - (5 if objectness else 4) - beside
    if classes < 1:
        raise DetectorError(f"the network gives {network.described}: {width} numbers for each box leave {classes} "
                            "for classes; at least 1 is needed")
    return Yolo("yolov5" if objectness else "yolov8", table, columns, width, objectness, classes, points, prototypes)


def _orientation(network: Network, weights: int, points: tuple[int, int], ends: bool) -> tuple[bool, int, int]:
    """Whether boxes are columns, how many numbers each has, and how many boxes there are."""
    _, down, across = next(o.shape for o in network.outputs if o.ndim == 3 and o.shape[0] == 1)
    beside = weights + points[0] * points[1]
    one, three = _anchors(*network.size)
    by_count = [n in one | three for n in (down, across)]
    fitting = {6 + beside} if ends else set() if network.classes is None else {
        network.classes + beside + extra for extra in (4, 5)} | {6 + beside}
    by_width = [n in fitting for n in (down, across)]
    if by_width[0] != by_width[1]:
        columns = by_width[0]
    elif by_count[0] != by_count[1]:
        columns = by_count[1]
    else:
        columns = down < across
    return (columns, down, across) if columns else (columns, across, down)


def _anchors(across: int, down: int) -> tuple[set[int], set[int]]:
    """How many boxes a YOLO gives for an input of this size: one at each place, or three."""
    one = {sum((across // s) * (down // s) for s in strides) for strides in _STRIDES}
    return one, {3 * n for n in one}


def _chosen_inside(metadata: Mapping[str, str]) -> bool:
    """Whether Ultralytics exported it so that the network itself chooses among its boxes."""
    said = metadata.get("end2end", "").lower() == "true"
    return said or re.search(r"['\"]nms['\"]:\s*true", metadata.get("args", "")[:4096].lower()) is not None


def _points(metadata: Mapping[str, str]) -> tuple[int, int]:
    """How many points each thing has, and of how many numbers, as Ultralytics writes it: "[17, 3]"."""
    match = re.fullmatch(r"\s*[\[(]\s*(\d{1,4})\s*,\s*([23])\s*[\])]\s*", metadata.get("kpt_shape", ""))
    return (int(match[1]), int(match[2])) if match else (0, 0)
