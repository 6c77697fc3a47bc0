"""What callers say about a picture (numbers, texts, colours), as tensors of an overlay frame.

Tensors of a GPU stay there and are never waited for; what their values are is therefore not looked at. Of everything on
the CPU a copy is made, so that the caller may go on with its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splatview.adapters.tensors import as_tensor, shape_text
from splatview_ipc.control.limits import MAX_META_TEXT
from splatview_ipc.system.terminal import check_text

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_CLASSES = 10_000
"""Classes that may have a name or a colour."""
_INT32 = 2**31 - 1
_MOST_REMEMBERED = 4096
_numbers: dict[str, int] = {}
"""The class number of each text that was used as a label without one, so that it keeps its colour."""


def array(value: Any, what: str) -> torch.Tensor:
    """A tensor of numbers from a tensor, an array of any library or lists of numbers. Raises TypeError, ValueError."""
    if not isinstance(value, (list, tuple)):
        return as_tensor(value, what).detach()
    if value and all(isinstance(part, torch.Tensor) for part in value):
        try:
            return torch.stack(tuple(as_tensor(part, what) for part in value)).detach()
        except RuntimeError as e:
            raise ValueError(f"{what}: these tensors do not make one: {e}") from None
    try:
        made = np.array(value)
    except (TypeError, ValueError, RuntimeError) as e:  # the last of tensors within it
        raise ValueError(f"{what}: this list does not make an array: {e}") from None
    if made.dtype.kind not in "biuf":
        try:
            made = np.array(value, np.float32)  # None is taken for NaN
        except (TypeError, ValueError, OverflowError):
            raise TypeError(f"{what} holds more than numbers: {shown(value)}") from None
    return torch.from_numpy(made)


def floats(value: Any, what: str) -> torch.Tensor:
    """float32, the caller's own memory only on a GPU."""
    tensor = array(value, what)
    if tensor.is_complex():
        raise ValueError(f"{what} is complex; legal are real numbers")
    if tensor.device.type == "cpu":
        return tensor.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    return tensor.to(torch.float32)


def numbers(value: Any, what: str, least: int = -1) -> torch.Tensor:
    """int32, of numbers that are whole; on the CPU no less than `least`. Raises TypeError, ValueError."""
    tensor = array(value, what)
    if not tensor.numel():
        tensor = tensor.to(torch.int64)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool:
        raise TypeError(f"{what} are {str(tensor.dtype).removeprefix('torch.')}; legal are integers")
    if tensor.device.type == "cpu":
        if tensor.numel():
            low, high = int(tensor.min()), int(tensor.max())
            if low < least or high > _INT32:
                raise ValueError(f"{what} holds {low if low < least else high}; legal are {least} to {_INT32}")
        return tensor.to(torch.int32, copy=True, memory_format=torch.contiguous_format)
    return tensor.to(torch.int32)


def boxes(value: Any, form: str | None) -> torch.Tensor:
    """(N, 4) x0 y0 x1 y1. Raises TypeError, ValueError."""
    if form is None:
        form = "xyxy"
    elif not isinstance(form, str) or form not in BOX_FORMATS:
        raise ValueError(f"format is {shown(form)}, not one of {', '.join(map(repr, BOX_FORMATS))}")
    found = floats(value, "boxes")
    if found.ndim == 1 and found.shape[0] in (0, 4):
        found = found.reshape(-1, 4)
    if found.ndim != 2 or found.shape[1] != 4:
        mend = ": the first four columns are boxes[:, :4]" if found.ndim == 2 and found.shape[1] > 4 else ""
        raise ValueError(f"boxes have shape {shape_text(found)}, not (N, 4){mend}")
    if form == "xyxy":
        return found
    first, extent = found[:, :2], found[:, 2:]
    if form == "cxcywh":
        first = first - extent / 2
    return torch.cat((first, first + extent), 1)


BOX_FORMATS = ("xyxy", "xywh", "cxcywh")


def per_box(found: torch.Tensor, count: int, what: str, owner: str = "boxes") -> torch.Tensor:
    """One number of each. Raises ValueError."""
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    elif found.ndim == 0 and count == 1:
        found = found.reshape(1)
    if found.shape != (count,):
        raise ValueError(f"{what} have shape {shape_text(found)}, not ({count},): one for each of the {owner}")
    return found


def texts(value: Sequence[str], what: str) -> torch.Tensor:
    """UTF-8, each ended by a zero byte. Raises TypeError, ValueError."""
    try:
        whole = "\0".join(value) + "\0" if len(value) else ""
    except TypeError:
        wrong = next(i for i, text in enumerate(value) if not isinstance(text, str))
        raise TypeError(f"{what}[{wrong}] is a {type(value[wrong]).__name__}, not a text") from None
    if len(whole) > MAX_META_TEXT or whole.count("\0") != len(value):
        for i, text in enumerate(value):
            if len(text) > MAX_META_TEXT:
                raise ValueError(f"{what}[{i}] has {len(text)} characters; at most {MAX_META_TEXT} are shown")
            if "\0" in text:
                raise ValueError(f"{what}[{i}] is {shown(text)}: a text holds no zero character")
    if not whole.isascii():
        for i, text in enumerate(value):
            check_text(text, f"{what}[{i}]")
    raw = bytearray(whole, "utf-8")
    return torch.frombuffer(raw, dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8)


def is_texts(value: Any) -> bool:
    """Whether these are texts, and not class numbers."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "UO" and value.ndim == 1
    return isinstance(value, (list, tuple)) and any(isinstance(text, str) for text in value)


class Names:
    """What classes are called: a list, or a mapping from numbers."""

    def __init__(self, value: Sequence[str] | Mapping[int, str] | None = None):
        self.by_number: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        if value is None:
            return
        try:
            if isinstance(value, str):
                raise TypeError("it is one text")
            pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
            self.by_number = {index(number): text for number, text in pairs}
        except TypeError as e:
            raise TypeError(f"names is a {type(value).__name__}, not a list of texts or a mapping from class numbers "
                            f"to texts: {e}") from None
        for number, text in self.by_number.items():
            if not isinstance(text, str):
                raise TypeError(f"names[{number}] is a {type(text).__name__}, not a text")
            check_text(text, f"names[{number}]")
            if not 0 <= number < MOST_CLASSES:
                raise ValueError(f"names has the class {number}; legal are 0 to {MOST_CLASSES - 1}")
            self._numbers.setdefault(text, number)

    def number(self, text: str) -> int:
        """The class that is called so. Texts that no class is called by get numbers in the order in which they come."""
        found = self._numbers.get(text)
        if found is None:
            found = _numbers.get(text) if text else -1
        if found is None:
            found = len(_numbers)
            if found < _MOST_REMEMBERED:
                _numbers[text] = found
        return found

    def text(self, number: int) -> str:
        """What a class is called; its number, if nobody said."""
        return self.by_number.get(number, str(number)) if number >= 0 else ""

    def packed(self) -> torch.Tensor:
        """The texts of all classes from 0 on."""
        return texts([self.by_number.get(n, "") for n in range(max(self.by_number, default=-1) + 1)], "names")


def named(value: Sequence[str] | Mapping[int, str] | None) -> Names:
    """What `names` says: nearly always what it said the last time. Raises TypeError, ValueError."""
    global _last
    known, names = _last
    if value is None:
        return _NAMELESS
    if type(value) is type(known) and value == known:
        return names
    names = Names(value)
    if isinstance(value, (list, tuple, dict)):
        _last = copy(value), names
    return names


_NAMELESS = Names()
_last: tuple[Any, Names] = (None, _NAMELESS)


def colors(value: Any, count: int, classes: torch.Tensor | None, names: Names) -> torch.Tensor | None:
    """(N, 4) uint8 RGBA, from one colour for all, one for each box, or a mapping from classes or their names; None if
    there are no boxes. Raises TypeError, ValueError."""
    if isinstance(value, Mapping):
        return _by_class(value, count, classes, names)
    if isinstance(value, str):
        value = _hex(value)
    elif isinstance(value, (list, tuple)) and any(isinstance(c, str) for c in value):
        value = [_rgba(_hex(c) if isinstance(c, str) else c) for c in value]
    found = _bytes(array(value, "colors"))
    if found.ndim == 1 and found.shape[0] in (3, 4):
        found = found.expand(count, -1)
    elif not found.numel():
        found = found.reshape(0, 4)
    if found.ndim != 2 or found.shape[0] != count or found.shape[1] not in (3, 4):
        raise ValueError(f"colors have shape {shape_text(found)}, not ({count}, 3|4): one for each of the boxes")
    if found.shape[1] == 3:
        found = torch.nn.functional.pad(found, (0, 1), value=255)
    return found.contiguous()


def _by_class(value: Mapping[int | str, Any], count: int, classes: torch.Tensor | None, names: Names
              ) -> torch.Tensor | None:
    if classes is None:
        if count:
            raise ValueError("colors is a mapping from classes, and the boxes have none: give labels or classes")
        return None
    known: dict[int, Any] = {}
    for key, color in value.items():
        number = names.number(key) if isinstance(key, str) else index(key)
        if not 0 <= number < MOST_CLASSES:
            raise ValueError(f"colors has the class {shown(key)}; legal are 0 to {MOST_CLASSES - 1}")
        known[number] = _rgba(_hex(color) if isinstance(color, str) else color)
    rows = np.zeros((max(known, default=-1) + 2, 4), np.uint8)  # the last: by class
    for number, color in known.items():
        rows[number] = color
    table, last = torch.from_numpy(rows), len(rows) - 1
    if classes.device.type != "cpu":
        table = table.pin_memory().to(classes.device, non_blocking=True)
    return table[torch.where((classes >= 0) & (classes < last), classes, last).long()]


def _hex(text: str) -> tuple[int, ...]:
    digits = text.removeprefix("#")
    try:
        if text.startswith("#") and len(digits) in (6, 8):
            return tuple(bytes.fromhex(digits))
    except ValueError:
        pass
    raise ValueError(f"colors holds {shown(text)}; legal are '#rrggbb', '#rrggbbaa', or 3 or 4 numbers")


def _rgba(color: Any) -> tuple[int, ...]:
    found = _bytes(array(color, "colors").cpu())
    if found.ndim != 1 or found.shape[0] not in (3, 4):
        raise ValueError(f"colors holds one of shape {shape_text(found)}; legal are 3 or 4 numbers, or '#rrggbb'")
    return (*found.tolist(), 255)[:4]


def _bytes(found: torch.Tensor) -> torch.Tensor:
    """Colours as uint8: floating point from 0 to 1, integers from 0 to 255."""
    if found.is_floating_point():
        return (found * 255).round().clamp(0, 255).nan_to_num(0).to(torch.uint8)
    if found.dtype is torch.bool or found.is_complex():
        raise TypeError(f"colors are {str(found.dtype).removeprefix('torch.')}; legal are integers from 0 to 255 and "
                        "floating point from 0 to 1")
    if found.device.type == "cpu" and found.numel() and not 0 <= int(found.min()) <= int(found.max()) <= 255:
        raise ValueError(f"colors hold {int(found.min())} to {int(found.max())}; legal are integers from 0 to 255 and "
                         "floating point from 0 to 1")
    return found.to(torch.uint8)


def shown(value: Any) -> str:
    """A value in an error, on one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."
