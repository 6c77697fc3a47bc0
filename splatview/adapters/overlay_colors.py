"""Colours of an overlay's boxes, in any of the forms that callers give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from splatview.adapters.value_texts import short_repr
from splatview.adapters.values import number_tensor


def box_colors(value: Any, count: int, classes: torch.Tensor | None) -> torch.Tensor:
    """Return (N, 4) uint8 RGBA of N boxes.

    Args:
        value: one colour for all, one for each box, or a mapping from classes.
        count: N.
        classes: (N,), needed for a mapping. Boxes of other classes are (0, 0, 0, 0):
            the viewer chooses a colour by their class.
    """
    if not isinstance(value, Mapping):
        colors = _rgba(value)
        if colors.ndim == 1:
            colors = colors.expand(count, 4)
        return colors.contiguous()
    assert classes is not None
    color_of_class = {class_id: _rgba(color) for class_id, color in value.items()}
    table_size = max(color_of_class, default=-1) + 1
    table = torch.zeros(table_size + 1, 4, dtype=torch.uint8)
    for class_id, color in color_of_class.items():
        if color.shape != (4,):
            raise ValueError(
                f"colors has {tuple(color.shape)} numbers for one class; expected 3 or "
                "4, or '#rrggbb'"
            )
        table[class_id] = color
    if classes.device.type != "cpu":
        table = table.pin_memory().to(classes.device, non_blocking=True)
    # The last row of the table is for classes that it does not name.
    is_in_table = (classes >= 0) & (classes < table_size)
    return table[torch.where(is_in_table, classes, table_size).long()]


def _rgba(value: Any) -> torch.Tensor:
    """Return (4,) or (N, 4) uint8 of one or several colours.

    A colour is "#rrggbb", integers from 0 to 255, or floating point from 0 to 1.
    """
    if isinstance(value, str):
        value = _hexadecimal_color(value)
    is_list = isinstance(value, (list, tuple))
    if is_list and any(isinstance(color, str) for color in value):
        return torch.stack([_rgba(color) for color in value])
    colors = number_tensor(value, "colors", empty=(0, 4))
    if colors.is_floating_point():
        colors = (colors * 255).round().clamp(0, 255).nan_to_num(0)
    elif not _are_bytes(colors):
        raise ValueError(
            f"colors hold {short_repr(colors.tolist())}; expected integers from 0 to "
            "255 and floating point from 0 to 1"
        )
    if colors.ndim not in (1, 2) or colors.shape[-1] not in (3, 4):
        raise ValueError(
            f"colors have shape {tuple(colors.shape)}; expected (3|4,) or (N, 3|4)"
        )
    colors = colors.to(torch.uint8)
    if colors.shape[-1] == 3:
        return torch.nn.functional.pad(colors, (0, 1), value=255)
    return colors


def _hexadecimal_color(text: str) -> tuple[int, ...]:
    """Return the numbers of "#rrggbb" or "#rrggbbaa"."""
    try:
        if len(text) not in (7, 9) or text[0] != "#":
            raise ValueError
        return tuple(bytes.fromhex(text[1:]))
    except ValueError:
        raise ValueError(
            f"colors holds {short_repr(text)}; expected '#rrggbb', '#rrggbbaa', or 3 or "
            "4 numbers"
        ) from None


def _are_bytes(colors: torch.Tensor) -> bool:
    """Return whether numbers are integers from 0 to 255. Values on a GPU are not read."""
    if colors.dtype is torch.bool or colors.is_complex():
        return False
    if colors.device.type != "cpu" or not colors.numel():
        return True
    return int(colors.min()) >= 0 and int(colors.max()) <= 255
