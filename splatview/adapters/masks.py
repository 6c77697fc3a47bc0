"""Masks of an overlay: tensors, and run lengths as COCO writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import index
from typing import Any, NamedTuple

import numpy as np
import torch

from splatview.adapters.value_texts import short_repr
from splatview.adapters.values import number_tensor
from splatview_ipc.kinds.overlay import OVERLAY_LIMITS

_LEGAL = (
    "a tensor (N, h, w) of bool, uint8 or floating point, a list of COCO's {'size': "
    "[h, w], 'counts': ...}, or a list of run lengths for each box"
)
_DECODED_BYTES = 1 << 26
"""Masks that come as runs are sampled where all of them together would take more."""
_MAX_NUMBER_CHARACTERS = 7
"""Characters of one number of compressed counts: 35 bits."""


class CocoMask(NamedTuple):
    """One mask in COCO's form."""

    width: int
    height: int
    counts: Any
    """Run lengths: integers, or compressed as pycocotools does it."""


def masks(
    value: Any, size: tuple[int, int] | None
) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return masks as (N, h, w) uint8, and (width, height) of the picture they are of.

    A tensor of bytes or bools is not copied.

    Args:
        value: masks in any of the forms of `annotate`.
        size: the picture's (width, height), if the caller gave it.

    Raises:
        TypeError: a mask is of another type.
        ValueError: shapes, sizes or runs do not fit.
    """
    if isinstance(value, Mapping):
        value = [value]
    if isinstance(value, (list, tuple)):
        if any(isinstance(mask, Mapping) for mask in value):
            return _coco_masks(value)
        if len(value) and all(_is_list_of_runs(mask) for mask in value):
            if size is None:
                raise ValueError(
                    "masks are lists of runs: size=(width, height) says of which picture"
                )
            return _decode(list(value), *size), size
    return _tensor_masks(value)


def _is_list_of_runs(mask: Any) -> bool:
    is_list = isinstance(mask, (list, tuple, np.ndarray))
    return is_list and np.ndim(mask[:1]) == 1


def _coco_masks(value: Any) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return masks that are mappings of "size" and "counts"."""
    coded: list[CocoMask] = []
    for i, mask in enumerate(value):
        try:
            height, width = map(index, mask["size"])
            coded.append(CocoMask(width, height, mask["counts"]))
        except (TypeError, ValueError, LookupError):
            raise ValueError(
                f"masks[{i}] is {short_repr(mask)}, not {{'size': [height, width], "
                "'counts': ...}, as others are"
            ) from None
        if (width, height) != (coded[0].width, coded[0].height):
            raise ValueError(
                f"masks[{i}] is of size {[height, width]}, and masks[0] of another; all "
                "are of one"
            )
    size = (coded[0].width, coded[0].height)
    return _decode([mask.counts for mask in coded], *size), size


def _tensor_masks(value: Any) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return masks that are a tensor or an array, (N, h, w)."""
    batch = number_tensor(value, "masks", empty=(0, 0, 0))
    if batch.ndim == 4 and batch.shape[1] == 1:
        # torchvision's models return masks in this shape.
        batch = batch[:, 0]
    if batch.ndim == 2:
        batch = batch[None]
    has_no_pixels = len(batch) and not batch.numel()
    if batch.ndim != 3 or batch.is_complex() or has_no_pixels:
        raise ValueError(
            f"masks are {batch.dtype} of shape {tuple(batch.shape)}; expected {_LEGAL}"
        )
    if batch.numel() > OVERLAY_LIMITS["mask_bytes"]:
        raise ValueError(
            f"an overlay of {batch.numel()} bytes of masks; at most "
            f"{OVERLAY_LIMITS['mask_bytes']}"
        )
    size = batch.shape[2], batch.shape[1]
    if batch.dtype is torch.uint8:
        return batch, size
    if batch.is_floating_point():
        batch = batch > 0.5
    elif batch.dtype is not torch.bool:
        batch = batch != 0
    return batch.contiguous().view(torch.uint8), size


# ---- run lengths


def _decode(coded: list[Any], width: int, height: int) -> torch.Tensor:
    """Return the masks of run lengths.

    Runs are outside and inside by turns, column by column, as COCO counts them.
    """
    max_side = OVERLAY_LIMITS["side"]
    max_pixels = OVERLAY_LIMITS["mask_bytes"]
    has_legal_sides = 0 < width <= max_side and 0 < height <= max_side
    if not has_legal_sides or width * height > max_pixels:
        raise ValueError(
            f"masks of {width}x{height} pixels; expected 1 to {max_side} along each "
            f"side, {max_pixels} in all"
        )
    step = math.ceil(math.sqrt(len(coded) * width * height / _DECODED_BYTES))
    decoded = np.empty((len(coded), -(-height // step), -(-width // step)), bool)
    for i, counts in enumerate(coded):
        runs = _runs(counts, f"masks[{i}]", width, height)
        is_inside = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
        decoded[i] = is_inside.reshape(width, height).T[::step, ::step]
    return torch.from_numpy(decoded).view(torch.uint8)


def _runs(counts: Any, name: str, width: int, height: int) -> np.ndarray:
    """Return the run lengths of one mask, which sum up to its pixels."""
    try:
        if isinstance(counts, (str, bytes)):
            runs = _uncompressed(counts)
        else:
            runs = np.asarray(counts)
        if runs.size and (runs.dtype.kind not in "iu" or runs.ndim != 1):
            raise TypeError(f"they are {runs.dtype} of {runs.ndim} dimensions")
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the runs of {name} are no list of integers: {error}"
        ) from None
    pixel_count = width * height
    if not runs.size:
        # Nothing is inside.
        return np.array([pixel_count])
    runs = runs.astype(np.int64)
    is_in_range = int(runs.min()) >= 0 and int(runs.max()) <= pixel_count
    if not is_in_range or int(runs.sum()) != pixel_count:
        raise ValueError(
            f"the runs of {name} sum up to {int(runs.sum())} and none may be below 0; a "
            f"mask of {width}x{height} pixels has {pixel_count}"
        )
    return runs


def _uncompressed(counts: str | bytes) -> np.ndarray:
    """Return the run lengths that pycocotools compressed.

    A character holds five bits of a number; from the third number on, each is the
    difference from the last but one.
    """
    coded = counts.encode("ascii") if isinstance(counts, str) else counts
    characters = np.frombuffer(coded, np.uint8).astype(np.int64) - 48
    if not len(characters):
        return np.zeros(0, np.int64)
    ends = np.flatnonzero(characters & 0x20 == 0)
    is_in_range = characters.min() >= 0 and characters.max() <= 63
    if not is_in_range or not len(ends) or ends[-1] != len(characters) - 1:
        raise ValueError("they are not compressed as pycocotools does it")
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    if lengths.max() > _MAX_NUMBER_CHARACTERS:
        raise ValueError("they are not compressed as pycocotools does it")
    digit_index = np.arange(len(characters)) - np.repeat(starts, lengths)
    runs = np.add.reduceat((characters & 0x1F) << (5 * digit_index), starts)
    is_negative = characters[ends] & 0x10
    runs -= np.where(is_negative, 1 << (5 * lengths), 0)
    runs[1::2] = np.cumsum(runs[1::2])
    runs[2::2] = np.cumsum(runs[2::2])
    return runs


# ---- boxes around masks


def extents(batch: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """Return the boxes around masks (N, h, w), as (N, 4) float32 x0 y0 x1 y1.

    Args:
        size: (width, height) of the picture whose pixels the boxes count. A mask with
            nothing inside has a box of NaN.
    """
    if not len(batch):
        return torch.empty(0, 4)
    width, height = size
    x0, x1 = _bounds_along(batch.amax(1), width)
    y0, y1 = _bounds_along(batch.amax(2), height)
    return torch.stack((x0, y0, x1, y1), 1)


def _bounds_along(
    profiles: torch.Tensor, extent: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return where the inside begins and ends along an axis, (N,) each, in pixels.

    Args:
        profiles: (N, n), not 0 where anything is inside.
    """
    is_inside = profiles.bool()
    count = is_inside.shape[1]
    first = is_inside.to(torch.uint8).argmax(1)
    last = count - is_inside.flip(1).to(torch.uint8).argmax(1)
    is_empty = ~is_inside.any(1)
    start, end = (
        side.to(torch.float32).masked_fill(is_empty, math.nan) * (extent / count)
        for side in (first, last)
    )
    return start, end
