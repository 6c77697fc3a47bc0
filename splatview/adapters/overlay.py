"""From what callers draw over another stream's picture to an overlay frame (`splatview_ipc.kinds.overlay`)."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splatview.adapters import checks
from splatview.adapters.metadata import check_text
from splatview.adapters.overlay_parts import Names, boxes, colors, extents, flat, lines, masks, notes, points
from splatview.adapters.values import floats, numbers, shown, texts
from splatview_ipc.kinds.overlay import OVERLAY_MOST
from splatview_ipc.shm.segment import round_up
from splatview_ipc.shm.slot_layout import ALIGN

if TYPE_CHECKING:
    from collections.abc import Mapping

    Tensors = dict[str, torch.Tensor]
    Meta = dict[str, Any]

OPTIONS = ("classes", "names", "colors", "point_classes", "skeleton", "lines", "line_classes", "notes", "size",
           "format", "order", "motion", "run", "by", "rate_hz", "work_ms", "skipped", "trouble")
"""Keywords of `annotate` beside its parameters."""
ORDERED = ("boxes", "labels", "scores", "classes", "points", "masks")
"""Legal names within `order`."""
_MAX_TEXT = {"by": 100, "trouble": 400}
"""Characters of these texts that are kept."""


def adapted(given: Mapping[str, Any]) -> tuple[Tensors, Meta]:
    """Return the tensors of an overlay frame, on the CPU and on GPUs, and its metadata but for what it was computed on.

    `given`: what `annotate` was called with, by name. Raises TypeError, ValueError.
    """
    if given.get("order") is not None:
        given = _in_order(given)
    get = given.get
    tensors: Tensors = {}
    meta: Meta = {"width": 0, "height": 0, "motion": False}
    size = get("size")
    if size is not None:
        try:
            width, height = size
        except (TypeError, ValueError):
            raise TypeError(f"size is {shown(size)}, not (width, height)") from None
        most = OVERLAY_MOST["side"]
        size = checks.whole("width of size", width, 1, most), checks.whole("height of size", height, 1, most)
        meta["width"], meta["height"] = size
    if get("boxes") is not None:
        found = tensors["boxes"] = boxes(get("boxes"), get("format"))
        # Boxes on a GPU are not looked at. The sum is not finite if one of them is not.
        if found.device.type == "cpu" and not isfinite(found.sum(dtype=torch.float64)) and (
                lost := int((~found.isfinite()).any(1).sum())):
            meta["trouble"] = f"{lost} of {len(found)} boxes are not finite, and not drawn"
    if get("masks") is not None:
        found, (width, height) = masks(get("masks"), size)
        if "boxes" not in tensors:
            meta["width"], meta["height"] = size or (width, height)
            tensors["boxes"] = extents(found, size or (width, height))
        if len(found) or len(tensors["boxes"]):
            tensors["masks"] = found
    _describe_boxes(tensors, get)
    tensors |= points(get("points"), get("skeleton"), get("point_classes"))
    if "points" in tensors and "point_classes" not in tensors and "classes" in tensors and (
            0 < len(tensors["points"]) == len(tensors["boxes"])):
        tensors["point_classes"] = tensors["classes"].clone()
    tensors |= lines(get("lines"), get("line_classes"))
    tensors |= notes(get("notes"))
    _add_words(meta, get)
    return tensors, meta


def _in_order(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with the parts of `boxes`, a detector's result, under the names that `order` gives."""
    order, parts = given["order"], given.get("boxes")
    names = order.replace(" ", "").split(",") if isinstance(order, str) else ()
    if not names or len(set(names)) < len(names) or not {"boxes"} <= set(names) <= set(ORDERED):
        raise ValueError(f"order is {shown(order)}; legal are boxes and any of {', '.join(ORDERED[1:])}, each once, "
                         'such as "boxes,scores,classes"')
    if not isinstance(parts, (list, tuple)) or len(parts) != len(names):
        raise ValueError(f"boxes is {shown(parts)}, not a tuple of {len(names)}: {', '.join(names)}, as order says")
    if twice := [name for name in names if name != "boxes" and given.get(name) is not None]:
        raise ValueError(f"{twice[0]} twice: as an argument, and within boxes as order says")
    return {**given, **dict(zip(names, parts, strict=True))}


def _describe_boxes(tensors: Tensors, get: Any) -> None:
    """Add classes, scores, labels and colours."""
    names = Names.of(get("names"))
    if "boxes" not in tensors:
        if wrong := [what for what in ("labels", "scores", "classes", "colors") if get(what) is not None]:
            raise ValueError(f"{' and '.join(wrong)} without boxes or masks: there is nothing that they belong to")
        tensors["boxes"] = torch.empty(0, 4)
        return
    count = len(tensors["boxes"])
    labels, classes, what = get("labels"), get("classes"), "classes"
    if isinstance(labels, str):
        labels = [labels] * count
    if labels is not None and not (labels.dtype.kind in "UO" and labels.ndim == 1 if isinstance(labels, np.ndarray) else
                                   isinstance(labels, (list, tuple)) and any(isinstance(t, str) for t in labels)):
        if classes is not None:
            raise ValueError("labels are class numbers, and classes as well; give texts as labels, or no classes")
        labels, classes, what = None, labels, "labels"
    if classes is not None:
        tensors["classes"] = flat(numbers(classes, what))
    if labels is not None:
        labels = ["" if t is None else t for t in labels]
        if len(labels) != count:
            raise ValueError(f"labels are {len(labels)}, not {count}: one for each of the boxes")
        tensors["labels"] = texts(labels, "labels")
        if classes is None:
            tensors["classes"] = torch.tensor([names.number(t) for t in labels], dtype=torch.int32)
    elif classes is not None and tensors["classes"].device.type == "cpu":
        if tensors["classes"].ndim == 1:
            tensors["labels"] = texts([names.text(c) for c in tensors["classes"].tolist()], "labels")
    elif classes is not None and names.by_number:
        tensors["names"] = names.packed()
    if get("scores") is not None:
        tensors["scores"] = flat(floats(get("scores"), "scores"))
    if get("colors") is not None:
        found = colors(get("colors"), count, tensors.get("classes"), names)
        if found is not None:
            tensors["colors"] = found


def _add_words(meta: Meta, get: Any) -> None:
    """Add what is shown of the whole."""
    motion = get("motion")
    if motion is not None:
        if not isinstance(motion, (bool, np.bool_)):
            raise TypeError(f"motion is {shown(motion)}, not True or False")
        meta["motion"] = bool(motion)
    for what, most in _MAX_TEXT.items():
        text = get(what)
        if text is None:
            continue
        if not isinstance(text, str):
            raise TypeError(f"{what} is a {type(text).__name__}, not a text")
        check_text(text, what)
        meta[what] = text if len(text) <= most else text[: most - 3] + "..."
    for what in ("rate_hz", "work_ms"):
        if get(what) is not None:
            meta[what] = checks.number(what, get(what), 0, 2**53)
    if get("skipped") is not None:
        meta["skipped"] = int(checks.number("skipped", get("skipped"), 0, 2**53))


def together(tensors: Tensors, device: torch.device) -> Tensors:
    """Return all on one GPU without waiting for it: what is on the CPU is copied in one piece. Raises ValueError."""
    here = {name: t for name, t in tensors.items() if t.device.type == "cpu"}
    if any(t.device != device for name, t in tensors.items() if name not in here):
        places = "; ".join(f"{name} on {t.device}" for name, t in tensors.items())
        raise ValueError(f"an overlay on several GPUs ({places}): put all on one, or on the "
                         "CPU")
    offsets, end = [], 0
    for t in here.values():
        offsets.append(end)
        end = round_up(end + t.nbytes, ALIGN)
    buffer = torch.empty(end, dtype=torch.uint8, pin_memory=True)
    for offset, t in zip(offsets, here.values(), strict=True):
        buffer[offset : offset + t.nbytes].copy_(t.contiguous().view(-1).view(torch.uint8))
    there = buffer.to(device, non_blocking=True)
    return tensors | {name: there[offset : offset + t.nbytes].view(t.dtype).view(t.shape)
                      for offset, (name, t) in zip(offsets, here.items(), strict=True)}


def device_of(tensors: Tensors) -> torch.device | None:
    """Return the GPU of some of them; None: all are on the CPU."""
    return next((t.device for t in tensors.values() if t.device.type != "cpu"), None)
