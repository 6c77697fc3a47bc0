"""Masks of an overlay: tensors, and run lengths as COCO writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import index
from typing import Any

import numpy as np
import torch

from splatview.adapters.values import number_tensor, short_repr
from splatview_ipc.kinds.overlay import OVERLAY_MOST

_LEGAL = (
    "a tensor (N, h, w) of bool, uint8 or floating point, a list of COCO's {'size': [h, w], 'counts': ...}, or a "
    "list of run lengths for each box"
)
_DECODED_BYTES = 1 << 26
"""Masks that come as runs are sampled where all of them together would take more."""
_LONGEST = 7
"""Characters of one number of compressed counts: 35 bits."""


def masks(
    value: Any, size: tuple[int, int] | None
) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return masks in any of the forms as (N, h, w) uint8, and the width and height of the picture that they are of.

    `size`: the picture's width and height, if the caller gave it. A tensor of bytes or bools is not copied.
    Raises TypeError, ValueError.
    """
    if isinstance(value, Mapping):
        value = [value]
    if isinstance(value, (list, tuple)) and any(
        isinstance(mask, Mapping) for mask in value
    ):
        sizes = []
        for n, mask in enumerate(value):
            try:
                height, width = map(index, mask["size"])
                sizes.append((width, height, mask["counts"]))
            except (TypeError, ValueError, LookupError):
                raise ValueError(
                    f"masks[{n}] is {short_repr(mask)}, not {{'size': [height, width], 'counts': ...}}, as "
                    "others are"
                ) from None
            if sizes[n][:2] != sizes[0][:2]:
                raise ValueError(
                    f"masks[{n}] is of size {[height, width]}, and masks[0] of another; all are of one"
                )
        width, height, _ = sizes[0]
        return _decoded([counts for _, _, counts in sizes], width, height), (
            width,
            height,
        )
    if (
        isinstance(value, (list, tuple))
        and len(value)
        and all(
            isinstance(mask, (list, tuple, np.ndarray)) and np.ndim(mask[:1]) == 1
            for mask in value
        )
    ):
        if size is None:
            raise ValueError(
                "masks are lists of runs: size=(width, height) says of which picture"
            )
        return _decoded(list(value), *size), size
    found = number_tensor(value, "masks", empty=(0, 0, 0))
    if found.ndim == 4 and found.shape[1] == 1:  # as torchvision's models give them
        found = found[:, 0]
    if found.ndim == 2:
        found = found[None]
    if found.ndim != 3 or found.is_complex() or (len(found) and not found.numel()):
        raise ValueError(
            f"masks are {found.dtype} of shape {tuple(found.shape)}; legal are {_LEGAL}"
        )
    size = found.shape[2], found.shape[1]
    if found.numel() > OVERLAY_MOST["mask_bytes"]:
        raise ValueError(
            f"an overlay of {found.numel()} bytes of masks; at most {OVERLAY_MOST['mask_bytes']}"
        )
    if found.dtype is torch.uint8:
        return found, size
    if found.dtype is not torch.bool:
        found = found > 0.5 if found.is_floating_point() else found != 0
    return found.contiguous().view(torch.uint8), size


def _decoded(found: list[Any], width: int, height: int) -> torch.Tensor:
    """Return the masks of run lengths: outside and inside by turns, column by column, as COCO counts them."""
    side = OVERLAY_MOST["side"]
    most = OVERLAY_MOST["mask_bytes"]
    if not (0 < width <= side and 0 < height <= side and width * height <= most):
        raise ValueError(
            f"masks of {width}x{height} pixels; legal are 1 to {side} along each side, {most} in all"
        )
    step = math.ceil(math.sqrt(len(found) * width * height / _DECODED_BYTES))
    out = np.empty((len(found), -(-height // step), -(-width // step)), bool)
    for n, given in enumerate(found):
        try:
            if isinstance(given, (str, bytes)):
                counts = _uncompressed(given)
            else:
                counts = np.asarray(given)
            if counts.size and (counts.dtype.kind not in "iu" or counts.ndim != 1):
                raise TypeError(f"they are {counts.dtype} of {counts.ndim} dimensions")
        except (TypeError, ValueError) as e:
            raise ValueError(
                f"the runs of masks[{n}] are no list of integers: {e}"
            ) from None
        # nothing is inside
        if counts.size:
            counts = counts.astype(np.int64)
        else:
            counts = np.array([width * height])
        if (
            int(counts.min()) < 0
            or int(counts.max()) > width * height
            or int(counts.sum()) != width * height
        ):
            raise ValueError(
                f"the runs of masks[{n}] sum up to {int(counts.sum())} and none may be below 0; "
                f"a mask of {width}x{height} pixels has {width * height}"
            )
        inside = np.repeat(np.arange(len(counts)) % 2 == 1, counts)
        out[n] = inside.reshape(width, height).T[::step, ::step]
    return torch.from_numpy(out).view(torch.uint8)


def _uncompressed(counts: str | bytes) -> np.ndarray:
    """Return what pycocotools compressed: five bits a character, each from the third on less the last but one."""
    coded = counts.encode("ascii") if isinstance(counts, str) else counts
    raw = np.frombuffer(coded, np.uint8).astype(np.int64) - 48
    if not len(raw):
        return np.zeros(0, np.int64)
    last = np.flatnonzero(raw & 0x20 == 0)
    first = np.concatenate(([0], last[:-1] + 1)) if len(last) else last
    if (
        raw.min() < 0
        or raw.max() > 63
        or not len(last)
        or last[-1] != len(raw) - 1
        or (last - first).max() >= _LONGEST
    ):
        raise ValueError("they are not compressed as pycocotools does it")
    place = np.arange(len(raw)) - np.repeat(first, last - first + 1)
    values = np.add.reduceat((raw & 0x1F) << (5 * place), first)
    values -= np.where(raw[last] & 0x10, 1 << (5 * (last - first + 1)), 0)
    values[1::2] = np.cumsum(values[1::2])
    values[2::2] = np.cumsum(values[2::2])
    return values


def extents(found: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """Return (N, 4) float32: x0 y0 x1 y1 of the inside of masks, in a picture of this size; NaN where nothing is."""
    if not len(found):
        return torch.empty(0, 4)
    sides = []
    for across, extent in (
        (1, size[0]),
        (2, size[1]),
    ):  # over rows there is x, over columns y
        there = found.amax(across).bool()
        first = there.to(torch.uint8).argmax(1)
        last = there.shape[1] - there.flip(1).to(torch.uint8).argmax(1)
        sides += [
            side.to(torch.float32).masked_fill(~there.any(1), math.nan)
            * (extent / there.shape[1])
            for side in (first, last)
        ]
    x0, x1, y0, y1 = sides
    return torch.stack((x0, y0, x1, y1), 1)
