"""Convert a caller's numbers and texts to the tensors of a frame.

Tensors on a GPU stay there and are never waited for, so that their values are not
checked. Everything on the CPU is copied, so that the caller may change its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splatview.adapters.checks import check_text
from splatview.adapters.tensors import as_tensor
from splatview.adapters.value_texts import short_repr, type_text
from splatview_ipc.control.limits import MAX_META_TEXT

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_INT32 = 2**31 - 1


def number_tensor(value: Any, name: str, empty: tuple[int, ...] = (0,)) -> torch.Tensor:
    """Convert a tensor, an array of any library, or lists of numbers to a tensor.

    Args:
        value: the caller's numbers.
        name: the name of the argument, for errors.
        empty: shape of the result for an empty list or vector.

    Raises:
        TypeError: the value has no numbers of its own, or is of another type.
        ValueError: the numbers do not make an array, such as lists of different lengths.
    """
    if not isinstance(value, (list, tuple)):
        tensor = as_tensor(value, name).detach()
    elif value and all(isinstance(item, torch.Tensor) for item in value):
        try:
            tensor = torch.stack([as_tensor(item, name) for item in value]).detach()
        except RuntimeError as error:
            raise ValueError(
                f"{name}: these tensors do not make one: {error}"
            ) from None
    else:
        tensor = torch.from_numpy(_number_array(value, name))
    if tensor.shape == (0,):
        return tensor.reshape(empty)
    return tensor


def _number_array(value: Any, name: str) -> np.ndarray:
    """Convert lists of numbers to an array; None becomes NaN."""
    try:
        array = np.array(value)
        if array.dtype.kind in "biuf":
            return array
        return np.array(value, np.float32)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(
            f"{name} is {short_repr(value)}, of which no array of numbers can be made: "
            f"{error}"
        ) from None


def floats(
    value: Any, name: str, empty: tuple[int, ...] = (0,), double: bool = False
) -> torch.Tensor:
    """Convert numbers to float32. On a GPU the result may share the caller's memory.

    Args:
        value: the caller's numbers.
        name: the name of the argument, for errors.
        empty: shape of the result for an empty list or vector.
        double: True to leave float64 as it is.

    Raises:
        TypeError: the value has no numbers of its own, or is of another type.
        ValueError: the numbers are complex, or do not make an array.
    """
    tensor = number_tensor(value, name, empty)
    if tensor.is_complex():
        raise ValueError(f"{name} is complex; expected real numbers")
    keeps_double = double and tensor.dtype == torch.float64
    dtype = torch.float64 if keeps_double else torch.float32
    if tensor.device.type == "cpu":
        return tensor.to(dtype, copy=True, memory_format=torch.contiguous_format)
    return tensor.to(dtype)


def integers(
    value: Any,
    name: str,
    minimum: int = -1,
    maximum: int = _MAX_INT32,
    empty: tuple[int, ...] = (0,),
) -> torch.Tensor:
    """Convert whole numbers to int32, and check their range if they are on the CPU.

    Args:
        value: the caller's numbers.
        name: the name of the argument, for errors.
        minimum: the smallest number that is accepted.
        maximum: the largest number that is accepted.
        empty: shape of the result for an empty list or vector.

    Raises:
        TypeError: the numbers are not integers.
        ValueError: a number is out of the range.
    """
    tensor = number_tensor(value, name, empty)
    if not tensor.numel():
        # An empty list becomes a floating-point tensor.
        tensor = tensor.to(torch.int64)
    is_integral = not (tensor.is_floating_point() or tensor.is_complex())
    if not is_integral or tensor.dtype is torch.bool:
        dtype = str(tensor.dtype).removeprefix("torch.")
        raise TypeError(f"{name} are {dtype}; expected integers")
    if tensor.device.type != "cpu":
        return tensor.to(torch.int32)
    if tensor.numel():
        lowest = int(tensor.min())
        highest = int(tensor.max())
        if lowest < minimum or highest > maximum:
            illegal = lowest if lowest < minimum else highest
            raise ValueError(f"{name} holds {illegal}; expected {minimum} to {maximum}")
    return tensor.to(torch.int32, copy=True, memory_format=torch.contiguous_format)


def texts(value: Sequence[str], name: str) -> torch.Tensor:
    """Convert texts to a tensor of UTF-8 bytes, with a zero byte behind each text.

    Raises:
        TypeError: an item is not a str.
        ValueError: a text is too long, or is not valid UTF-8 without zero characters.
    """
    for i, text in enumerate(value):
        if not isinstance(text, str):
            raise TypeError(f"{name}[{i}] is {type_text(text)}, not a text")
        if len(text) > MAX_META_TEXT:
            raise ValueError(
                f"{name}[{i}] has {len(text)} characters; at most {MAX_META_TEXT} are "
                "shown"
            )
        if "\0" in text:
            raise ValueError(
                f"{name}[{i}] is {short_repr(text)}: a text holds no zero character"
            )
        check_text(text, f"{name}[{i}]")
    raw = bytearray("".join(text + "\0" for text in value), "utf-8")
    if raw:
        return torch.frombuffer(raw, dtype=torch.uint8)
    return torch.empty(0, dtype=torch.uint8)
