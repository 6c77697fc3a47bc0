"""Results of detection libraries as arguments of `annotate`, recognised by their attributes.

Neither library is imported. Ultralytics: `Results`, its `Boxes`, `OBB`, and YOLOv5's
`Detections`. supervision: `Detections`, `KeyPoints`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splatview.adapters.tensors import is_array
from splatview.adapters.value_texts import short_repr
from splatview.adapters.values import floats, number_tensor

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
    """Return the arguments of `annotate` with a result given as `boxes` taken apart.

    Arguments that the caller gives beside it go before the result's own. Raises
    TypeError, ValueError.
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
                f"boxes is a list of {len(value)} results; expected that of one picture, "
                "such as results[0]"
            )
        value = value[0]
    reader = _reader_of(value)
    assert reader is not None
    parsed = reader(value)
    if arguments.get("labels") is not None:
        parsed.pop("labels", None)
    for key, argument in arguments.items():
        if argument is not None and key != "boxes":
            parsed[key] = argument
    return parsed


def _reader_of(value: Any) -> Any:
    """Return the function that reads a result of this form; None for another value."""
    for reader, attributes in _ATTRIBUTES.items():
        if all(hasattr(value, name) for name in attributes):
            return reader
    return None


# ---- Ultralytics


def _ultralytics(result: Any) -> Arguments:
    """Return the parts of Ultralytics' `Results` of one picture."""
    height, width = (int(side) for side in result.orig_shape[:2])
    names = _names(result.names)
    arguments: Arguments = {"size": (width, height)}
    boxes = result.boxes
    if boxes is None:
        boxes = getattr(result, "obb", None)
    if boxes is not None:
        arguments |= _ultralytics_boxes(boxes, names)
    masks = getattr(result, "masks", None)
    if masks is not None:
        arguments["masks"] = _without_border(masks.data, width, height)
    keypoints = getattr(result, "keypoints", None)
    if keypoints is not None:
        arguments |= _visible_points(keypoints.data, _MIN_CONFIDENCE)
    probabilities = getattr(result, "probs", None)
    if probabilities is not None:
        arguments["notes"] = _best_classes(probabilities, names)
    if len(arguments) == 1:
        _refuse_dense(result)
    return arguments


def _ultralytics_boxes(boxes: Any, names: Mapping[int, str] | None = None) -> Arguments:
    """Return the parts of Ultralytics' `Boxes`, or of its rotated boxes, `OBB`."""
    corners = getattr(boxes, "xyxyxyxy", None)
    arguments: Arguments = {
        "boxes": boxes.xyxy if corners is None else corners,
        "scores": boxes.conf,
        "classes": class_numbers(boxes.cls),
    }
    if names:
        arguments["names"] = names
    tracks = getattr(boxes, "id", None)
    if tracks is not None:
        arguments |= _track_labels(tracks, arguments["classes"], names or {})
    return arguments


def _yolov5(result: Any) -> Arguments:
    """Return the parts of YOLOv5's `Detections` of one picture.

    They are one table (N, 6): x0 y0 x1 y1, score, class.
    """
    tables = result.xyxy
    if len(tables) != 1:
        raise ValueError(
            f"boxes is a result of {len(tables)} pictures; expected that of one: "
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
    """Return masks (N, h, w) of a network's input without the picture's border."""
    row_count, column_count = masks.shape[1:]
    scale = min(row_count / height, column_count / width)
    margin_y = (row_count - height * scale) / 2
    margin_x = (column_count - width * scale) / 2
    # Rounded as Ultralytics does it.
    rows = slice(round(margin_y - 0.1), row_count - round(margin_y + 0.1))
    columns = slice(round(margin_x - 0.1), column_count - round(margin_x + 0.1))
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
    arguments: Arguments = {
        "boxes": detections.xyxy if corners is None else corners,
        "scores": detections.confidence,
        "classes": class_numbers(detections.class_id),
    }
    masks = getattr(detections, "mask", None)
    if masks is not None:
        if hasattr(masks, "to_dense"):
            masks = masks.to_dense()
        arguments["masks"] = masks
    labels = None
    class_names = data.get("class_name")
    if class_names is not None and len(class_names) == len(detections.xyxy):
        labels = ["" if name is None else str(name) for name in class_names]
        arguments["labels"] = labels
    tracks = getattr(detections, "tracker_id", None)
    if tracks is not None and labels is not None:
        indices = np.arange(len(tracks))
        arguments |= _track_labels(tracks, indices, dict(enumerate(labels)))
    elif tracks is not None:
        arguments |= _track_labels(tracks, arguments["classes"], {})
    return arguments


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
    arguments = _visible_points(points, 0.0)
    arguments["point_classes"] = class_numbers(keypoints.class_id)
    return arguments


# ---- parts of both


def class_numbers(value: Any) -> Any:
    """Return class numbers as integers, which detectors give as floating point; -1 for NaN."""
    if value is None:
        return None
    tensor = number_tensor(value, "classes")
    if tensor.is_floating_point():
        finite = tensor.float().nan_to_num(-1, -1, -1)
        tensor = finite.clamp(-1, _MAX_CLASS).to(torch.int32)
    return tensor


def _names(value: Any) -> dict[int, str]:
    """Return the names of classes, from a list or a mapping from numbers."""
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value or ())
    names = {}
    for key, name in pairs:
        class_id = int(key)
        if 0 <= class_id < _MAX_NAMES and name is not None:
            names[class_id] = str(name)
    return names


def _track_labels(tracks: Any, keys: Any, names: Mapping[int, str]) -> Arguments:
    """Return labels with the ids of tracked objects; none on a GPU, which is not read.

    Args:
        keys: of each object, its key in `names`; None for no more than the id.
    """
    ids = number_tensor(tracks, "id")
    if ids.device.type != "cpu":
        return {}
    track_ids = ids.reshape(-1).tolist()
    texts = [""] * len(track_ids)
    if keys is not None:
        key_list = number_tensor(keys, "classes").tolist()
        texts = [names.get(key, str(key)) for key in key_list] or texts
    labels: list[str] = []
    for track, text in zip(track_ids, texts, strict=False):
        labels.append(f"id:{int(track)} {text}".rstrip())
    return {"labels": labels}


def _visible_points(value: Any, min_confidence: float) -> Arguments:
    """Return keypoints (M, K, 2|3) as arguments.

    A keypoint at (0, 0), or below the confidence, was not seen.
    """
    points = floats(value, "keypoints", empty=(0, 0, 3))
    if points.ndim != 3 or points.shape[2] not in (2, 3):
        raise ValueError(
            f"keypoints have shape {short_repr(tuple(points.shape))}; expected (M, K, 2|3)"
        )
    positions = points[..., :2]
    is_visible = (positions != 0).any(-1)
    if points.shape[2] == 3:
        confidence = points[..., 2]
        is_visible &= (confidence > 0) & (confidence >= min_confidence)
    visibility = is_visible[..., None].to(points.dtype)
    arguments: Arguments = {"points": torch.cat((positions, visibility), 2)}
    if points.shape[1] == _PERSON_POINTS:
        arguments["skeleton"] = "coco"
    return arguments


_ATTRIBUTES = {
    _ultralytics: ("orig_shape", "names", "boxes"),
    _ultralytics_boxes: ("orig_shape", "xyxy", "conf", "cls"),
    _supervision: ("xyxy", "class_id", "confidence"),
    _supervision_points: ("xy", "class_id", "data"),
    _yolov5: ("xyxy", "names", "pred"),
}
"""Readers of results, the most specific first, and the attributes that results have."""
