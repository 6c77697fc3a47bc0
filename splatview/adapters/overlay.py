"""The arguments of `annotate` as the tensors and metadata of an overlay frame.

`splatview_ipc.kinds.overlay` describes those tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from splatview.adapters import checks
from splatview.adapters.detections import with_result
from splatview.adapters.masks import extents, masks
from splatview.adapters.overlay_boxes import add_box_properties, box_tensors
from splatview.adapters.overlay_shapes import (
    line_tensors,
    note_tensors,
    point_tensors,
)
from splatview.adapters.value_texts import short_repr, type_text
from splatview_ipc.kinds.overlay import OVERLAY_LIMITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    Tensors = dict[str, torch.Tensor]
    Meta = dict[str, Any]

_NAMES_IN_ORDER = ("boxes", "labels", "scores", "classes", "points", "masks")
"""Legal names within `order`."""
_MAX_TEXT = {"by": 100, "trouble": 400}
"""Characters of these texts that are kept."""


def overlay_tensors(arguments: Mapping[str, Any]) -> tuple[Tensors, Meta]:
    """Return the tensors of an overlay frame, on the CPU and on GPUs, and its metadata.

    The metadata does not say yet which version the overlay was computed on.

    Args:
        arguments: those of `annotate`, by name.

    Raises:
        TypeError: an argument is of another type.
        ValueError: shapes or numbers cannot be drawn.
    """
    if arguments.get("order") is not None:
        arguments = _unpacked(arguments)
    arguments = with_result(arguments)
    get = arguments.get
    tensors: Tensors = {}
    meta: Meta = {"width": 0, "height": 0}
    size = _picture_size(get("size"))
    if size is not None:
        meta["width"], meta["height"] = size
    if get("boxes") is not None:
        tensors |= box_tensors(get("boxes"), get("format"))
        _note_not_finite(tensors["boxes"], meta)
    if get("masks") is not None:
        _add_masks(tensors, meta, get("masks"), size)
    add_box_properties(tensors, arguments)
    tensors |= point_tensors(get("points"), get("skeleton"), get("point_classes"))
    _share_classes_with_points(tensors)
    tensors |= line_tensors(get("lines"), get("line_classes"))
    tensors |= note_tensors(get("notes"))
    _add_texts_and_rates(meta, arguments)
    return tensors, meta


def _unpacked(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with a detector's result, given as `boxes`, taken apart.

    `order` names the parts of that result.
    """
    order = arguments["order"]
    result = arguments.get("boxes")
    names = order.replace(" ", "").split(",") if isinstance(order, str) else []
    is_unique = len(set(names)) == len(names)
    is_legal = {"boxes"} <= set(names) <= set(_NAMES_IN_ORDER)
    if not is_unique or not is_legal:
        raise ValueError(
            f"order is {short_repr(order)}; expected boxes and any of "
            f"{', '.join(_NAMES_IN_ORDER[1:])}, each once, such as "
            '"boxes,scores,classes"'
        )
    if not isinstance(result, (list, tuple)) or len(result) != len(names):
        raise ValueError(
            f"boxes is {short_repr(result)}, not a tuple of {len(names)}: "
            f"{', '.join(names)}, as order says"
        )
    for name in names:
        if name != "boxes" and arguments.get(name) is not None:
            raise ValueError(
                f"{name} twice: as an argument, and within boxes as order says"
            )
    return {**arguments, **dict(zip(names, result, strict=True))}


def _picture_size(size: Any) -> tuple[int, int] | None:
    """Return the checked (width, height) of the picture that this was computed on."""
    if size is None:
        return None
    try:
        width, height = size
    except (TypeError, ValueError):
        raise TypeError(f"size is {short_repr(size)}, not (width, height)") from None
    max_side = OVERLAY_LIMITS["side"]
    return (
        checks.integer("width of size", width, 1, max_side),
        checks.integer("height of size", height, 1, max_side),
    )


def _note_not_finite(boxes: torch.Tensor, meta: Meta) -> None:
    """Add to the metadata how many boxes are not drawn; those on a GPU are not read."""
    # The sum is not finite if one of them is not.
    if boxes.device.type != "cpu" or boxes.sum(dtype=torch.float64).isfinite():
        return
    count = int((~boxes.isfinite()).any(1).sum())
    if count:
        meta["trouble"] = f"{count} of {len(boxes)} boxes are not finite, and not drawn"


def _add_masks(
    tensors: Tensors, meta: Meta, value: Any, size: tuple[int, int] | None
) -> None:
    """Add masks; without boxes also those around the masks."""
    mask_tensor, mask_size = masks(value, size)
    if "boxes" not in tensors:
        picture_size = size or mask_size
        meta["width"], meta["height"] = picture_size
        tensors["boxes"] = extents(mask_tensor, picture_size)
    if len(mask_tensor) or len(tensors["boxes"]):
        tensors["masks"] = mask_tensor


def _share_classes_with_points(tensors: Tensors) -> None:
    """Give groups of points the classes of the boxes if there are as many of both."""
    if "points" not in tensors or "point_classes" in tensors:
        return
    count = len(tensors["points"])
    if "classes" in tensors and 0 < count == len(tensors["boxes"]):
        tensors["point_classes"] = tensors["classes"].clone()


def _add_texts_and_rates(meta: Meta, arguments: Mapping[str, Any]) -> None:
    """Add what is shown beside the picture: who found this, how fast, what went wrong."""
    for name, max_length in _MAX_TEXT.items():
        text = arguments.get(name)
        if text is None:
            continue
        if not isinstance(text, str):
            raise TypeError(f"{name} is {type_text(text)}, not a text")
        checks.check_text(text, name)
        if len(text) > max_length:
            text = text[: max_length - 3] + "..."
        meta[name] = text
    for name in ("rate_hz", "work_ms"):
        value = arguments.get(name)
        if value is not None:
            meta[name] = checks.real(name, value, 0, 2**53)
    skipped = arguments.get("skipped")
    if skipped is not None:
        meta["skipped"] = checks.integer("skipped", skipped, 0, 2**53)


def are_fractions(tensors: Tensors, meta: Meta) -> bool:
    """Return whether all boxes lie within the first pixel: they are fractions then.

    Boxes on a GPU are not read.
    """
    boxes = tensors["boxes"]
    if boxes.device.type != "cpu" or not len(boxes) or float(boxes.max()) > 1:
        return False
    is_of_pixels = meta["width"] != 1 and meta["height"] != 1
    is_within = float(boxes.min()) >= 0 and bool((boxes % 1 != 0).any())
    return is_of_pixels and is_within


def on_one_device(tensors: Tensors, otherwise: str = "cpu") -> tuple[Tensors, str]:
    """Return all tensors on one device, and that device. Waits for no GPU.

    It is the GPU of some of them, or `otherwise`. Raises ValueError for several GPUs.
    """
    gpus = sorted({str(t.device) for t in tensors.values() if t.is_cuda})
    if len(gpus) > 1:
        raise ValueError(
            f"tensors on several GPUs ({', '.join(gpus)}): put all on one, or on the CPU"
        )
    device = gpus[0] if gpus else otherwise
    if device == "cpu":
        return tensors, device
    moved: Tensors = {}
    for name, tensor in tensors.items():
        if tensor.is_cuda:
            moved[name] = tensor
        else:
            pinned = tensor.contiguous().pin_memory()
            moved[name] = pinned.to(device, non_blocking=True)
    return moved, device
