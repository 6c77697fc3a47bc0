"""Boxes of an overlay, with their classes, labels, scores and colours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splatview.adapters import checks
from splatview.adapters.checks import short_repr
from splatview.adapters.overlay_colors import box_colors
from splatview.adapters.values import floats, integers, texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    Tensors = dict[str, torch.Tensor]

_NUMBERS_OF_FORMAT = {"xyxy": 4, "xywh": 4, "cxcywh": 4, "xywhr": 5, "xyxyxyxy": 8}
"""Legal forms of boxes, with the numbers of each box."""
_MAX_CLASSES = 10_000
"""Classes that may have a name or a colour."""
_MAX_REMEMBERED = 4096
_class_of_label: dict[str, int] = {}
"""The class of each label that was used without one, so that it keeps its colour."""


def box_tensors(value: Any, form: str | None) -> Tensors:
    """Return "boxes" (N, 4) x0 y0 x1 y1, and of turned boxes also "corners" (N, 4, 2).

    Args:
        form: as `format` of `annotate`.
    """
    if form is not None and (
        not isinstance(form, str) or form not in _NUMBERS_OF_FORMAT
    ):
        legal = ", ".join(map(repr, _NUMBERS_OF_FORMAT))
        raise ValueError(f"format is {short_repr(form)}, not one of {legal}")
    boxes = floats(value, "boxes", empty=(0, _NUMBERS_OF_FORMAT[form or "xyxy"]))
    corners = _corners(boxes, form)
    if corners is None:
        return {"boxes": _upright_boxes(boxes, form)}
    if not len(corners):
        return {"boxes": torch.empty(0, 4)}
    bounds = torch.cat((corners.amin(1), corners.amax(1)), 1)
    return {"boxes": bounds, "corners": corners}


def _upright_boxes(boxes: torch.Tensor, form: str | None) -> torch.Tensor:
    """Return boxes in the form "xyxy", "xywh" or "cxcywh" as x0 y0 x1 y1."""
    if boxes.shape == (4,):
        boxes = boxes[None]
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        advice = ""
        if boxes.ndim == 2 and boxes.shape[1] > 4:
            advice = ": the first four columns are boxes[:, :4]"
        if boxes.ndim == 2 and boxes.shape[1] == 5:
            advice += (
                ', and five are a middle, extents and an angle with format="xywhr"'
            )
        raise ValueError(
            f"boxes have shape {tuple(boxes.shape)}, not (N, 4), or (N, 4, 2) for "
            f"corners{advice}"
        )
    if form in (None, "xyxy"):
        return boxes
    first_corner = boxes[:, :2]
    extent = boxes[:, 2:]
    if form == "cxcywh":
        first_corner = first_corner - extent / 2
    return torch.cat((first_corner, first_corner + extent), 1)


def _corners(boxes: torch.Tensor, form: str | None) -> torch.Tensor | None:
    """Return the corners (N, 4, 2) of boxes that may be turned, in order around each.

    Such boxes are "xywhr", (N, 5), or their corners: (N, 4, 2), or "xyxyxyxy", (N, 8).
    Returns None for others.
    """
    if form == "xywhr":
        return _turned_corners(boxes)
    if form == "xyxyxyxy" and boxes.shape[-1:] == (8,):
        boxes = boxes.reshape(-1, 4, 2)
    has_corners = boxes.shape[-2:] == (4, 2) and boxes.ndim < 4
    if form in (None, "xyxyxyxy") and has_corners:
        return boxes.reshape(-1, 4, 2)
    if form == "xyxyxyxy":
        raise ValueError(
            f"boxes have shape {tuple(boxes.shape)}, not (N, 8) or (N, 4, 2), as "
            'format="xyxyxyxy" says'
        )
    return None


def _turned_corners(boxes: torch.Tensor) -> torch.Tensor:
    """Return the corners of boxes "xywhr": middle, extents, and the angle from x to y."""
    if boxes.shape == (5,):
        boxes = boxes[None]
    if boxes.ndim != 2 or boxes.shape[1] != 5:
        raise ValueError(
            f'boxes have shape {tuple(boxes.shape)}, not (N, 5), as format="xywhr" says'
        )
    middle, extent, angle = boxes.split((2, 2, 1), 1)
    cos = angle.cos()
    sin = angle.sin()
    right = torch.cat((cos, sin), 1) * extent[:, :1] / 2
    down = torch.cat((-sin, cos), 1) * extent[:, 1:] / 2
    offsets = (-right - down, right - down, right + down, down - right)
    return torch.stack([middle + offset for offset in offsets], 1)


# ---- classes, labels, scores and colours


@dataclass(slots=True)
class BoxLabels:
    """The caller's labels and classes of boxes; `labels` may be either."""

    labels: Sequence[Any] | None
    classes: Any
    classes_argument: str
    """The argument that holds the classes, for errors."""


def add_box_properties(tensors: Tensors, arguments: Mapping[str, Any]) -> None:
    """Add the classes, labels, scores and colours of "boxes" to the tensors.

    Without boxes an empty tensor of them is added.
    """
    class_names = _class_names(arguments.get("names"))
    if "boxes" not in tensors:
        _refuse_properties(arguments)
        tensors["boxes"] = torch.empty(0, 4)
        return
    class_of_name = {name: class_id for class_id, name in reversed(class_names.items())}
    count = len(tensors["boxes"])
    box_labels = _box_labels(arguments.get("labels"), arguments.get("classes"), count)
    if box_labels.classes is not None:
        tensors["classes"] = _value_of_each(
            integers(box_labels.classes, box_labels.classes_argument)
        )
    if box_labels.labels is not None:
        _add_labels(tensors, box_labels, count, class_of_name)
    elif box_labels.classes is not None:
        _add_class_names(tensors, class_names)
    scores = arguments.get("scores")
    if scores is not None:
        tensors["scores"] = _value_of_each(floats(scores, "scores"))
    colors = arguments.get("colors")
    if isinstance(colors, Mapping):
        colors = _class_colors(colors, class_of_name)
        if "classes" not in tensors:
            if count:
                raise ValueError(
                    "colors is a mapping from classes, and the boxes have none: give "
                    "labels or classes"
                )
            return
    if colors is not None:
        tensors["colors"] = box_colors(colors, count, tensors.get("classes"))


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
    """Tell texts from class numbers, which `labels` may be as well."""
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
        return labels.dtype.kind in "UO" and labels.ndim == 1
    if not isinstance(labels, (list, tuple)):
        return False
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
        labels = [
            class_names.get(class_id, str(class_id)) if class_id >= 0 else ""
            for class_id in classes.reshape(-1).tolist()
        ]
        tensors["labels"] = texts(labels, "labels")
    elif class_names:
        names = [class_names.get(i, "") for i in range(max(class_names) + 1)]
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

    Labels without a class are numbered in the order in which they come; "" has class -1.
    """
    if label in class_of_name or not label:
        return class_of_name.get(label, -1)
    if label not in _class_of_label and len(_class_of_label) < _MAX_REMEMBERED:
        _class_of_label[label] = len(_class_of_label)
    return _class_of_label.get(label, _MAX_REMEMBERED)


def _class_colors(
    colors: Mapping[Any, Any], class_of_name: Mapping[str, int]
) -> dict[int, Any]:
    """Return colours by class, of those by class or by label."""
    by_class: dict[int, Any] = {}
    for key, color in colors.items():
        class_id = _label_class(key, class_of_name) if isinstance(key, str) else key
        class_id = checks.integer("a class in colors", class_id, 0, _MAX_CLASSES - 1)
        by_class[class_id] = color
    return by_class


def _value_of_each(values: torch.Tensor) -> torch.Tensor:
    """Return (N,) values of N boxes.

    Detectors also give (N, 1), and a number for a single box.
    """
    if values.ndim == 2 and values.shape[1] == 1:
        return values[:, 0]
    if values.ndim == 0:
        return values.reshape(1)
    return values
