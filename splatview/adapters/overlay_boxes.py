"""Boxes of an overlay, with their classes, labels, scores and colours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splatview.adapters import checks
from splatview.adapters.overlay_colors import box_colors
from splatview.adapters.value_texts import short_repr
from splatview.adapters.values import floats, integers, texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    Tensors = dict[str, torch.Tensor]

_VALUES_PER_BOX = {"xyxy": 4, "xywh": 4, "cxcywh": 4, "xywhr": 5, "xyxyxyxy": 8}
"""Legal formats of boxes, and the number of values of one box."""
_MAX_CLASSES = 10_000
"""Classes that may have a name or a colour."""
_MAX_REMEMBERED = 4096
"""Labels whose class is remembered."""
_class_of_label: dict[str, int] = {}
"""The class of each label that was used without one, so that it keeps its colour."""


def box_tensors(value: Any, box_format: str | None) -> Tensors:
    """Convert a caller's boxes to the tensors of an overlay.

    Args:
        value: an array of boxes.
        box_format: "xyxy", "xywh", "cxcywh", "xywhr" or "xyxyxyxy"; None: told by the
            shape, "xyxy" or corners.

    Returns:
        "boxes" (N, 4) x0 y0 x1 y1. If boxes may be rotated, also "corners" (N, 4, 2);
        "boxes" then are the upright boxes around them.

    Raises:
        TypeError: these are no numbers.
        ValueError: the format is unknown, or the shape does not fit it.
    """
    if box_format is not None:
        _check_format(box_format)
    empty_shape = (0, _VALUES_PER_BOX[box_format or "xyxy"])
    boxes = floats(value, "boxes", empty=empty_shape)
    if _are_rotated(boxes, box_format):
        corners = _box_corners(boxes, box_format)
        if not len(corners):
            # The minimum over no boxes would be an error.
            return {"boxes": torch.empty(0, 4)}
        bounds = torch.cat((corners.amin(1), corners.amax(1)), 1)
        return {"boxes": bounds, "corners": corners}
    return {"boxes": _upright_boxes(boxes, box_format)}


def _check_format(box_format: Any) -> None:
    """Raise ValueError for an unknown format of boxes."""
    if not isinstance(box_format, str) or box_format not in _VALUES_PER_BOX:
        legal = ", ".join(map(repr, _VALUES_PER_BOX))
        raise ValueError(f"format is {short_repr(box_format)}, not one of {legal}")


def _upright_boxes(boxes: torch.Tensor, box_format: str | None) -> torch.Tensor:
    """Return boxes in the format "xyxy", "xywh" or "cxcywh" as x0 y0 x1 y1."""
    if boxes.shape == (4,):
        boxes = boxes[None]
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise ValueError(
            f"boxes have shape {tuple(boxes.shape)}, not (N, 4), or (N, 4, 2) for "
            f"corners{_shape_advice(boxes)}"
        )
    if box_format in (None, "xyxy"):
        return boxes
    first_corner = boxes[:, :2]
    extent = boxes[:, 2:]
    if box_format == "cxcywh":
        first_corner = first_corner - extent / 2
    return torch.cat((first_corner, first_corner + extent), 1)


def _shape_advice(boxes: torch.Tensor) -> str:
    """Return how to make boxes of rows that have more than four columns, or ""."""
    if boxes.ndim != 2 or boxes.shape[1] <= 4:
        return ""
    advice = ": the first four columns are boxes[:, :4]"
    if boxes.shape[1] == 5:
        advice += ', and five are a middle, extents and an angle with format="xywhr"'
    return advice


def _are_rotated(boxes: torch.Tensor, box_format: str | None) -> bool:
    """Return whether boxes are in a format that can hold rotated ones."""
    if box_format is None:
        # The corners of one box (4, 2), or of several (N, 4, 2).
        return boxes.shape[-2:] == (4, 2) and boxes.ndim < 4
    return box_format in ("xywhr", "xyxyxyxy")


def _box_corners(boxes: torch.Tensor, box_format: str | None) -> torch.Tensor:
    """Return the corners (N, 4, 2) of boxes that may be rotated, in order around each.

    The boxes are (N, 5) "xywhr", (N, 8) "xyxyxyxy", or corners already.
    """
    if box_format == "xywhr":
        return _rotated_corners(boxes)
    if boxes.shape[-1:] == (8,):
        return boxes.reshape(-1, 4, 2)
    has_corners = boxes.shape[-2:] == (4, 2) and boxes.ndim < 4
    if not has_corners:
        raise ValueError(
            f"boxes have shape {tuple(boxes.shape)}, not (N, 8) or (N, 4, 2), as "
            'format="xyxyxyxy" says'
        )
    return boxes.reshape(-1, 4, 2)


def _rotated_corners(boxes: torch.Tensor) -> torch.Tensor:
    """Return the corners (N, 4, 2) of boxes (N, 5) "xywhr".

    A box is its middle, its extents, and the angle from the x axis towards the y axis.
    """
    if boxes.shape == (5,):
        boxes = boxes[None]
    if boxes.ndim != 2 or boxes.shape[1] != 5:
        raise ValueError(
            f'boxes have shape {tuple(boxes.shape)}, not (N, 5), as format="xywhr" says'
        )
    middle, extent, angle = boxes.split((2, 2, 1), 1)
    cos = angle.cos()
    sin = angle.sin()
    half_width = torch.cat((cos, sin), 1) * extent[:, :1] / 2
    half_height = torch.cat((-sin, cos), 1) * extent[:, 1:] / 2
    corners = (
        middle - half_width - half_height,
        middle + half_width - half_height,
        middle + half_width + half_height,
        middle - half_width + half_height,
    )
    return torch.stack(corners, 1)


# -- classes, labels, scores and colours -----------------------------------------------


@dataclass(slots=True)
class BoxLabels:
    """Texts and classes of boxes, told apart: callers may give either as `labels`."""

    labels: Sequence[Any] | None
    """The texts."""
    classes: Any
    """The class numbers."""
    classes_argument: str
    """The argument that held the classes, for errors."""


def add_box_properties(tensors: Tensors, arguments: Mapping[str, Any]) -> None:
    """Add the classes, labels, scores and colours of "boxes" to the tensors.

    If there are no "boxes", an empty tensor of them is added.

    Args:
        tensors: the tensors of the overlay.
        arguments: those of `annotate`, by name.
    """
    class_names = _class_names(arguments.get("names"))
    if "boxes" not in tensors:
        _refuse_properties(arguments)
        tensors["boxes"] = torch.empty(0, 4)
        return
    # Of several classes with the same name, the first one counts.
    class_of_name = {name: class_id for class_id, name in reversed(class_names.items())}
    count = len(tensors["boxes"])
    box_labels = _box_labels(arguments.get("labels"), arguments.get("classes"), count)
    if box_labels.classes is not None:
        classes = integers(box_labels.classes, box_labels.classes_argument)
        tensors["classes"] = _one_per_box(classes)
    if box_labels.labels is not None:
        _add_labels(tensors, box_labels, count, class_of_name)
    elif box_labels.classes is not None:
        _add_class_names(tensors, class_names)
    scores = arguments.get("scores")
    if scores is not None:
        tensors["scores"] = _one_per_box(floats(scores, "scores"))
    if arguments.get("colors") is not None:
        _add_colors(tensors, arguments["colors"], count, class_of_name)


def _add_colors(
    tensors: Tensors, colors: Any, count: int, class_of_name: Mapping[str, int]
) -> None:
    """Add the colours of boxes; a mapping gives them by class or by label."""
    classes = tensors.get("classes")
    if isinstance(colors, Mapping):
        colors = _class_colors(colors, class_of_name)
        if classes is None and count:
            raise ValueError(
                "colors is a mapping from classes, and the boxes have none: give "
                "labels or classes"
            )
        if classes is None:
            return
    tensors["colors"] = box_colors(colors, count, classes)


def _refuse_properties(arguments: Mapping[str, Any]) -> None:
    """Raise ValueError for properties of boxes where there are no boxes."""
    properties = ("labels", "scores", "classes", "colors")
    present = [name for name in properties if arguments.get(name) is not None]
    if present:
        raise ValueError(
            f"{' and '.join(present)} without boxes or masks: there is nothing that they "
            "belong to"
        )


def _box_labels(labels: Any, classes: Any, count: int) -> BoxLabels:
    """Return texts and classes; `labels` that are class numbers count as classes."""
    if isinstance(labels, str):
        labels = [labels] * count
    if labels is None or _are_texts(labels):
        return BoxLabels(labels, classes, "classes")
    if classes is not None:
        raise ValueError(
            "labels are class numbers, and classes as well; give texts as labels, or no "
            "classes"
        )
    return BoxLabels(None, labels, "labels")


def _are_texts(labels: Any) -> bool:
    """Return whether labels are a list or an array of texts."""
    if isinstance(labels, np.ndarray):
        is_text_dtype = labels.dtype.kind in "UO"
        return is_text_dtype and labels.ndim == 1
    if not isinstance(labels, (list, tuple)):
        return False
    # Not all need be texts: None is no label, and `texts` refuses anything else.
    return not labels or any(isinstance(label, str) for label in labels)


def _add_labels(
    tensors: Tensors,
    box_labels: BoxLabels,
    count: int,
    class_of_name: Mapping[str, int],
) -> None:
    """Add a text for each box, and its class where the caller gave none."""
    assert box_labels.labels is not None
    labels = ["" if label is None else label for label in box_labels.labels]
    if len(labels) != count:
        raise ValueError(
            f"labels are {len(labels)}, not {count}: one for each of the boxes"
        )
    tensors["labels"] = texts(labels, "labels")
    if box_labels.classes is None:
        classes = [_label_class(label, class_of_name) for label in labels]
        tensors["classes"] = torch.tensor(classes, dtype=torch.int32)


def _add_class_names(tensors: Tensors, class_names: Mapping[int, str]) -> None:
    """Add the names of the classes: as labels, or as "names" for classes on a GPU."""
    classes = tensors["classes"]
    if classes.device.type == "cpu":
        labels = []
        for class_id in classes.reshape(-1).tolist():
            label = class_names.get(class_id, str(class_id))
            labels.append(label if class_id >= 0 else "")
        tensors["labels"] = texts(labels, "labels")
    elif class_names:
        # Reading the classes would wait for the GPU: the viewer looks up their names.
        class_ids = range(max(class_names) + 1)
        names = [class_names.get(class_id, "") for class_id in class_ids]
        tensors["names"] = texts(names, "names")


def _class_names(value: Sequence[str] | Mapping[int, str] | None) -> dict[int, str]:
    """Return the names of classes, from a list or a mapping from numbers."""
    if value is None:
        return {}
    try:
        if isinstance(value, str):
            raise TypeError("it is one text")
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        names = {index(class_id): name for class_id, name in pairs}
        checks.check_text("".join(names.values()), "names")
    except TypeError as error:
        raise TypeError(
            f"names is {short_repr(value)}, not a list of texts or a mapping from class "
            f"numbers to texts: {error}"
        ) from None
    if names and not 0 <= min(names) <= max(names) < _MAX_CLASSES:
        raise ValueError(
            f"names has the classes {min(names)} to {max(names)}; expected 0 to "
            f"{_MAX_CLASSES - 1}"
        )
    return names


def _label_class(label: str, class_of_name: Mapping[str, int]) -> int:
    """Return the class of a label: that of its name, or else one of its own.

    Labels without a class are numbered in the order in which they come. The empty label
    has class -1.
    """
    if label in class_of_name:
        return class_of_name[label]
    if not label:
        return -1
    if label not in _class_of_label and len(_class_of_label) < _MAX_REMEMBERED:
        _class_of_label[label] = len(_class_of_label)
    # All labels beyond the limit share one class.
    return _class_of_label.get(label, _MAX_REMEMBERED)


def _class_colors(
    colors: Mapping[Any, Any], class_of_name: Mapping[str, int]
) -> dict[int, Any]:
    """Return colours by class, from colours whose keys are classes or labels."""
    color_of_class: dict[int, Any] = {}
    for key, color in colors.items():
        class_id = key
        if isinstance(key, str):
            class_id = _label_class(key, class_of_name)
        class_id = checks.integer("a class in colors", class_id, 0, _MAX_CLASSES - 1)
        color_of_class[class_id] = color
    return color_of_class


def _one_per_box(values: torch.Tensor) -> torch.Tensor:
    """Return values of boxes as (N,).

    Detectors also give them as (N, 1), and as a number where there is one box.
    """
    if values.ndim == 2 and values.shape[1] == 1:
        return values[:, 0]
    if values.ndim == 0:
        return values.reshape(1)
    return values
