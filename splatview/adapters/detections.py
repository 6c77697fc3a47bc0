"""Results of detection libraries as arguments of `annotate`, recognised by their attributes.

Neither library is imported. Ultralytics: `Results`, its `Boxes`, `OBB`, and YOLOv5's `Detections`.
supervision: `Detections`, `KeyPoints`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splatview.adapters.tensors import is_array
from splatview.adapters.values import floats, number_tensor, short_repr

if TYPE_CHECKING:
    Arguments = dict[str, Any]

_MIN_CONFIDENCE = 0.25
"""Keypoints of a lower confidence are not drawn, as Ultralytics does it."""
_PERSON_POINTS = 17
"""Points of a person in COCO, whose skeleton is known."""
_MAX_NAMES = 10_000
_MAX_CLASS = 2**31 - 128
"""The largest float32 below the largest int32."""


def is_result(value: Any) -> bool:
    """Return True for a result of a detection library, and for a list of such results."""
    if isinstance(value, (list, tuple)):
        return bool(value) and not is_array(value[0]) and is_result(value[0])
    if is_array(value):
        return False
    return _reader_of(value) is not None


def with_result(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of `annotate` with a result given as `boxes` replaced by its parts.

    What the caller gives beside it goes before the result's own. Raises TypeError, ValueError.
    """
    value = arguments.get("boxes")
    if isinstance(value, Mapping) and "boxes" in value:
        raise TypeError(
            "boxes is a mapping with boxes in it; give its parts by their names: "
            "splatview.annotate(name, **result)"
        )
    if value is None or not is_result(value):
        return arguments
    if isinstance(value, (list, tuple)):
        if len(value) != 1:
            raise ValueError(
                f"boxes is a list of {len(value)} results; legal is that of one picture, "
                "such as results[0]"
            )
        value = value[0]
    reader = _reader_of(value)
    assert reader is not None
    parts = reader(value)
    if arguments.get("labels") is not None:
        parts.pop("labels", None)
    given = {key: a for key, a in arguments.items() if a is not None and key != "boxes"}
    return {**parts, **given}


def _reader_of(value: Any) -> Any:
    """Return the function that reads a result of this form; None for another value."""
    has = lambda *names: all(hasattr(value, name) for name in names)  # noqa: E731
    if has("orig_shape", "names", "boxes"):
        return _ultralytics
    if has("orig_shape", "xyxy", "conf", "cls"):
        return _ultralytics_boxes
    if has("xyxy", "class_id", "confidence"):
        return _supervision
    if has("xy", "class_id", "data"):
        return _supervision_points
    if has("xyxy", "names", "pred"):
        return _yolov5
    return None


# ---- Ultralytics


def _ultralytics(result: Any) -> Arguments:
    """Return the parts of Ultralytics' `Results` of one picture."""
    height, width = (int(side) for side in result.orig_shape[:2])
    names = _names(result.names)
    parts: Arguments = {"size": (width, height)}
    boxes = result.boxes
    if boxes is None:
        boxes = getattr(result, "obb", None)
    if boxes is not None:
        parts |= _ultralytics_boxes(boxes, names)
    masks = getattr(result, "masks", None)
    if masks is not None:
        parts["masks"] = _without_border(masks.data, width, height)
    keypoints = getattr(result, "keypoints", None)
    if keypoints is not None:
        parts |= _seen_points(keypoints.data, _MIN_CONFIDENCE)
    probabilities = getattr(result, "probs", None)
    if probabilities is not None:
        parts["notes"] = _best_classes(probabilities, names)
    if len(parts) == 1:
        _refuse_dense(result)
    return parts


def _ultralytics_boxes(boxes: Any, names: Mapping[int, str] | None = None) -> Arguments:
    """Return the parts of Ultralytics' `Boxes`, or of its `OBB`, whose boxes are turned."""
    corners = getattr(boxes, "xyxyxyxy", None)
    parts: Arguments = {
        "boxes": boxes.xyxy if corners is None else corners,
        "scores": boxes.conf,
        "classes": class_numbers(boxes.cls),
    }
    if names:
        parts["names"] = names
    tracks = getattr(boxes, "id", None)
    if tracks is not None:
        parts |= _tracked(tracks, parts["classes"], names or {})
    return parts


def _yolov5(result: Any) -> Arguments:
    """Return the parts of YOLOv5's `Detections` of one picture, (N, 6) x0 y0 x1 y1, score, class."""
    tables = result.xyxy
    if len(tables) != 1:
        raise ValueError(
            f"boxes is a result of {len(tables)} pictures; legal is that of one: "
            "result.xyxy[0][:, :4]"
        )
    table = tables[0]
    return {
        "boxes": table[:, :4],
        "scores": table[:, 4],
        "classes": class_numbers(table[:, 5]),
        "names": _names(result.names),
    }


def _without_border(masks: Any, width: int, height: int) -> Any:
    """Return masks (N, h, w) of a network's whole input without the border around the picture."""
    down, across = masks.shape[1:]
    gain = min(down / height, across / width)
    free_y = (down - height * gain) / 2
    free_x = (across - width * gain) / 2
    rows = slice(round(free_y - 0.1), down - round(free_y + 0.1))
    columns = slice(round(free_x - 0.1), across - round(free_x + 0.1))
    return masks[:, rows, columns]


def _best_classes(probabilities: Any, names: Mapping[int, str]) -> str:
    """Return the most probable classes of a picture as lines of text. Waits for a GPU."""
    lines = []
    scores = torch.as_tensor(probabilities.top5conf).tolist()
    for class_id, score in zip(probabilities.top5, scores, strict=True):
        lines.append(f"{names.get(int(class_id), class_id)} {score:.2f}")
    return "\n".join(lines)


def _refuse_dense(result: Any) -> None:
    """Raise ValueError for a result that holds pictures alone."""
    for name in ("semantic_mask", "depth"):
        if getattr(result, name, None) is not None:
            raise ValueError(
                f"boxes is a result with {name} alone; show that with "
                f"splatview.publish(result.{name}.data)"
            )


# ---- supervision


def _supervision(detections: Any) -> Arguments:
    """Return the parts of supervision's `Detections`."""
    data = getattr(detections, "data", None) or {}
    corners = data.get("xyxyxyxy")
    parts: Arguments = {
        "boxes": detections.xyxy if corners is None else corners,
        "scores": detections.confidence,
        "classes": class_numbers(detections.class_id),
    }
    masks = getattr(detections, "mask", None)
    if masks is not None:
        parts["masks"] = masks.to_dense() if hasattr(masks, "to_dense") else masks
    labels = None
    class_names = data.get("class_name")
    if class_names is not None and len(class_names) == len(detections.xyxy):
        labels = ["" if name is None else str(name) for name in class_names]
    tracks = getattr(detections, "tracker_id", None)
    if labels is not None:
        parts["labels"] = labels
    if tracks is not None:
        known = dict(enumerate(labels)) if labels is not None else {}
        numbers = parts["classes"] if labels is None else np.arange(len(tracks))
        parts |= _tracked(tracks, numbers, known)
    return parts


def _supervision_points(keypoints: Any) -> Arguments:
    """Return the parts of supervision's `KeyPoints`."""
    points = torch.as_tensor(np.asarray(keypoints.xy, np.float32))
    # Its older name warns where it is deprecated.
    has_new_name = hasattr(keypoints, "keypoint_confidence")
    attribute = "keypoint_confidence" if has_new_name else "confidence"
    confidence = getattr(keypoints, attribute, None)
    visible = getattr(keypoints, "visible", None)
    if visible is not None:
        confidence = visible
    if confidence is not None and points.ndim == 3:
        scores = torch.as_tensor(np.asarray(confidence, np.float32))
        points = torch.cat((points, scores.reshape(*points.shape[:2], 1)), 2)
    parts = _seen_points(points, 0.0)
    parts["point_classes"] = class_numbers(keypoints.class_id)
    return parts


# ---- parts of both


def class_numbers(value: Any) -> Any:
    """Return class numbers as integers, which detectors give as floating point; -1 for NaN."""
    if value is None:
        return None
    tensor = number_tensor(value, "classes")
    if tensor.is_floating_point():
        sound = tensor.float().nan_to_num(-1, -1, -1)
        tensor = sound.clamp(-1, _MAX_CLASS).to(torch.int32)
    return tensor


def _names(value: Any) -> dict[int, str]:
    """Return the names of classes, from a list or a mapping from numbers."""
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value or ())
    names = {}
    for class_id, name in pairs:
        number = int(class_id)
        if 0 <= number < _MAX_NAMES and name is not None:
            names[number] = str(name)
    return names


def _tracked(tracks: Any, numbers: Any, names: Mapping[int, str]) -> Arguments:
    """Return labels with the ids of tracked things; none on a GPU, whose values are not looked at.

    numbers: of each thing, its key in `names`; None for no more than the id.
    """
    ids = number_tensor(tracks, "id")
    if ids.device.type != "cpu":
        return {}
    keys = [] if numbers is None else number_tensor(numbers, "classes").tolist()
    labels = []
    for n, track in enumerate(ids.reshape(-1).tolist()):
        name = names.get(keys[n], str(keys[n])) if keys else ""
        labels.append(f"id:{int(track)} {name}".rstrip())
    return {"labels": labels}


def _seen_points(value: Any, least: float) -> Arguments:
    """Return keypoints (M, K, 2|3) as arguments; one at (0, 0), or below this confidence, was not seen."""
    points = floats(value, "keypoints", empty=(0, 0, 3))
    if points.ndim != 3 or points.shape[2] not in (2, 3):
        raise ValueError(
            f"keypoints have shape {short_repr(tuple(points.shape))}; legal is (M, K, 2|3)"
        )
    is_seen = (points[..., :2] != 0).any(-1)
    if points.shape[2] == 3:
        is_seen = is_seen & (points[..., 2] > 0) & (points[..., 2] >= least)
    points = torch.cat((points[..., :2], is_seen[..., None].to(points.dtype)), 2)
    parts: Arguments = {"points": points}
    if points.shape[1] == _PERSON_POINTS:
        parts["skeleton"] = "coco"
    return parts
