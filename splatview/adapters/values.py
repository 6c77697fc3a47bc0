"""Numbers and texts of callers as tensors of a frame.

Tensors on a GPU stay there and are never waited for, so that their values are not checked. Everything on the CPU is
copied: the caller may go on with its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splatview.adapters.checks import check_text, short_repr
from splatview.adapters.tensors import as_tensor
from splatview_ipc.control.limits import MAX_META_TEXT

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_INT32 = 2**31 - 1


def number_tensor(value: Any, what: str, empty: tuple[int, ...] = (0,)) -> torch.Tensor:
    """Return a tensor of a tensor, an array of any library or lists of numbers. Raises TypeError, ValueError.

    `empty`: shape of a list or a vector of nothing.
    """
    if not isinstance(value, (list, tuple)):
        found = as_tensor(value, what).detach()
    elif value and all(isinstance(part, torch.Tensor) for part in value):
        try:
            found = torch.stack([as_tensor(part, what) for part in value]).detach()
        except RuntimeError as e:
            raise ValueError(f"{what}: these tensors do not make one: {e}") from None
    else:
        try:
            made = np.array(value)
            if made.dtype.kind not in "biuf":
                made = np.array(value, np.float32)  # None is taken for NaN
        except (TypeError, ValueError, RuntimeError, OverflowError) as e:
            raise ValueError(
                f"{what} is {short_repr(value)}, of which no array of numbers can be made: {e}"
            ) from None
        found = torch.from_numpy(made)
    return found.reshape(empty) if found.shape == (0,) else found


def floats(
    value: Any, what: str, empty: tuple[int, ...] = (0,), double: bool = False
) -> torch.Tensor:
    """Return float32, or float64 as it is if `double`; the caller's own memory only on a GPU."""
    tensor = number_tensor(value, what, empty)
    if tensor.is_complex():
        raise ValueError(f"{what} is complex; legal are real numbers")
    dtype = torch.float64 if double and tensor.dtype == torch.float64 else torch.float32
    if tensor.device.type == "cpu":
        return tensor.to(dtype, copy=True, memory_format=torch.contiguous_format)
    return tensor.to(dtype)


def integers(
    value: Any,
    what: str,
    least: int = -1,
    most: int = _MAX_INT32,
    empty: tuple[int, ...] = (0,),
) -> torch.Tensor:
    """Return int32 of whole numbers, on the CPU from `least` to `most`. Raises TypeError, ValueError."""
    tensor = number_tensor(value, what, empty)
    if not tensor.numel():
        tensor = tensor.to(torch.int64)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool:
        raise TypeError(
            f"{what} are {str(tensor.dtype).removeprefix('torch.')}; legal are integers"
        )
    if tensor.device.type != "cpu":
        return tensor.to(torch.int32)
    if tensor.numel():
        low = int(tensor.min())
        high = int(tensor.max())
        if low < least or high > most:
            raise ValueError(
                f"{what} holds {low if low < least else high}; legal are {least} to {most}"
            )
    return tensor.to(torch.int32, copy=True, memory_format=torch.contiguous_format)


def texts(value: Sequence[str], what: str) -> torch.Tensor:
    """Return texts as UTF-8, each ended by a zero byte. Raises TypeError, ValueError."""
    for i, text in enumerate(value):
        if not isinstance(text, str):
            raise TypeError(f"{what}[{i}] is a {type(text).__name__}, not a text")
        if len(text) > MAX_META_TEXT:
            raise ValueError(
                f"{what}[{i}] has {len(text)} characters; at most {MAX_META_TEXT} are shown"
            )
        if "\0" in text:
            raise ValueError(
                f"{what}[{i}] is {short_repr(text)}: a text holds no zero character"
            )
        check_text(text, f"{what}[{i}]")
    raw = bytearray("".join(text + "\0" for text in value), "utf-8")
    if raw:
        return torch.frombuffer(raw, dtype=torch.uint8)
    return torch.empty(0, dtype=torch.uint8)
