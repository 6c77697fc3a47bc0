"""A script's controls: what it declares and sets, and what viewers set, checked.

The script's numbers may be NumPy's or tensors. What it cannot declare or set raises
TypeError or ValueError, with the bad value and the legal ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral
from typing import TYPE_CHECKING, Any

from splatview.adapters import checks
from splatview.adapters.value_texts import short_repr, type_text
from splatview_ipc.control.limits import MAX_NAME
from splatview_ipc.kinds.controls import (
    MAX_CHOICES,
    MAX_NUMBERS,
    MAX_TEXT,
    MAX_WHOLE,
    Control,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_ipc.kinds.controls import Value

MAX_TEXT_BYTES = 4 * MAX_TEXT
"""Bytes of the longest text, in UTF-8."""
_NUMBER_BYTES = 9
"""Bytes of the longest number in a frame."""


# ---- declarations


def declared_slider(
    name: str, low: Any, high: Any, value: Any, step: Any, folder: str
) -> Control:
    """Return the declaration of a slider. None: `value` is `low`, without steps."""
    label = _label("slider", name)
    low_bound = _checked_number(f"{label}: low", low)
    high_bound = _checked_number(f"{label}: high", high)
    if not low_bound < high_bound:
        raise ValueError(
            f"{label} has the bounds {low_bound:g} and {high_bound:g}; expected a lower "
            "one and then a higher one"
        )
    start = low if value is None else value
    is_whole = all(map(_is_whole, (step, low, start)))
    return Control(
        name,
        "slider",
        _checked_number(label, start, low_bound, high_bound, is_whole),
        folder,
        low=low_bound,
        high=high_bound,
        step=_step(label, step),
    )


def declared_number(
    name: str, value: Any, low: Any, high: Any, step: Any, folder: str
) -> Control:
    """Return the declaration of a number. None: it has no such bound, or no steps."""
    label = _label("number", name)
    low_bound, high_bound = _optional_bounds(label, low, high)
    return Control(
        name,
        "number",
        _checked_number(label, value, low_bound, high_bound, _is_whole(value)),
        folder,
        low=low_bound,
        high=high_bound,
        step=_step(label, step),
    )


def declared_vector(name: str, value: Any, low: Any, high: Any, folder: str) -> Control:
    """Return the declaration of a vector. None: its numbers have no such bound."""
    label = _label("vector", name)
    low_bound, high_bound = _optional_bounds(label, low, high)
    coordinates = _checked_numbers(label, value, low_bound, high_bound)
    if not 1 <= len(coordinates) <= MAX_NUMBERS:
        raise ValueError(
            f"{label} has {len(coordinates)} numbers; expected 1 to {MAX_NUMBERS}"
        )
    return Control(name, "vector", coordinates, folder, low=low_bound, high=high_bound)


def declared_dropdown(name: str, choices: Any, value: Any, folder: str) -> Control:
    """Return the declaration of a dropdown. None: `value` is the first choice."""
    label = _label("dropdown", name)
    if isinstance(choices, str):
        raise TypeError(f"{label}: choices is a str; expected a list of texts")
    if not isinstance(choices, Iterable):
        raise TypeError(
            f"{label}: choices is {type_text(choices)}; expected a list of texts"
        )
    texts = [_text(f"{label}: a choice", choice) for choice in choices]
    if not 1 <= len(texts) <= MAX_CHOICES:
        raise ValueError(
            f"{label} has {len(texts)} choices; expected 1 to {MAX_CHOICES}"
        )
    if len(set(texts)) < len(texts):
        twice = next(text for text in texts if texts.count(text) > 1)
        raise ValueError(f"{label} has the choice {twice!r} twice; expected it once")
    start = texts[0] if value is None else _choice(label, value, texts)
    return Control(name, "dropdown", start, folder, choices=tuple(texts))


def declared_checkbox(name: str, value: Any, folder: str) -> Control:
    """Return the declaration of a checkbox."""
    start = _bool(_label("checkbox", name), value)
    return Control(name, "checkbox", start, folder)


def declared_button(name: str, folder: str) -> Control:
    """Return the declaration of a button that was not clicked so far."""
    _label("button", name)
    return Control(name, "button", 0, folder)


def declared_text(name: str, value: Any, folder: str) -> Control:
    """Return the declaration of a text field."""
    start = _text(_label("text", name), value)
    return Control(name, "text", start, folder)


def declared_color(name: str, value: Any, folder: str) -> Control:
    """Return the declaration of a color."""
    start = _color(_label("color", name), value)
    return Control(name, "color", start, folder)


def joined_folder(outer: str, name: Any) -> str:
    """Return the name of a folder within another one; "": within none."""
    if not isinstance(name, str):
        raise TypeError(f"folder is {type_text(name)}, not a str")
    checks.name_text("folder", name, MAX_NAME)
    joined = f"{outer}/{name}" if outer else name
    if len(joined) > MAX_TEXT:
        raise ValueError(
            f"the names of folder {name!r} and of those around it have {len(joined)} "
            f"characters; expected at most {MAX_TEXT}"
        )
    return joined


def declaration_text(declaration: Control) -> str:
    """Return a declaration for users, without its value."""
    arguments = [repr(declaration.name)]
    if declaration.choices:
        arguments.append(short_repr(list(declaration.choices)))
    bounds = {
        "low": declaration.low,
        "high": declaration.high,
        "step": declaration.step,
    }
    arguments += [
        f"{key}={bound:g}" for key, bound in bounds.items() if bound is not None
    ]
    description = f"{declaration.form}({', '.join(arguments)})"
    if declaration.form == "vector" and isinstance(declaration.value, tuple):
        description += f" of {len(declaration.value)} numbers"
    if declaration.form in ("slider", "number") and _is_whole(declaration.value):
        description += " of whole numbers"
    if declaration.folder:
        description += f" in the folder {declaration.folder!r}"
    return description


def form_of(declaration: Control) -> tuple[object, ...]:
    """Return what two declarations of one control must share."""
    value = declaration.value
    length = len(value) if isinstance(value, tuple) else 0
    return (
        declaration.form,
        declaration.folder,
        declaration.low,
        declaration.high,
        declaration.step,
        declaration.choices,
        type(value),
        length,
    )


def max_bytes(declaration: Control) -> int:
    """Return the bytes that a control takes in a frame at most, whatever its value."""
    text_bytes = MAX_TEXT_BYTES if declaration.form in ("text", "dropdown") else 0
    return len(encode(declaration)) + _NUMBER_BYTES + text_bytes


def _label(form: str, name: Any) -> str:
    """Return the words for a control in messages, after a check of its name."""
    checks.stream_name(name)
    return f"{form} {name!r}"


# ---- values


def checked_value(declaration: Control, value: Any) -> Value:
    """Return a value that the script sets, as one that travels."""
    label = _label(declaration.form, declaration.name)
    low = declaration.low
    high = declaration.high
    match declaration.form:
        case "slider" | "number":
            return _checked_number(
                label, value, low, high, _is_whole(declaration.value)
            )
        case "checkbox":
            return _bool(label, value)
        case "dropdown":
            return _choice(label, value, declaration.choices)
        case "text":
            return _text(label, value)
        case "color":
            return _color(label, value)
        case "vector":
            assert isinstance(declaration.value, tuple)
            coordinates = _checked_numbers(label, value, low, high)
            count = len(declaration.value)
            if len(coordinates) != count:
                raise ValueError(
                    f"{label} has {len(coordinates)} numbers; expected {count}"
                )
            return coordinates
        case "button":
            raise TypeError(f"{label} counts its clicks; it cannot be set")


def value_of_viewer(declaration: Control, value: Value) -> Value:
    """Return what a control becomes where a viewer, or an earlier run, sets it.

    Numbers are rounded to the control's step. Raises ValueError for what the control
    cannot be set to.
    """
    declaration.check(value)
    if isinstance(value, tuple):
        return tuple(float(element) for element in value)
    if declaration.form not in ("slider", "number"):
        return value
    assert isinstance(value, (int, float))
    return declaration.nearest(value)


def _checked_number(
    label: str,
    value: Any,
    low: float | None = None,
    high: float | None = None,
    is_whole: bool = False,
) -> float:
    """Return a finite number within bounds; an int if it is to be whole."""
    if is_whole:
        whole_low = -MAX_WHOLE if low is None else max(math.ceil(low), -MAX_WHOLE)
        whole_high = MAX_WHOLE if high is None else min(math.floor(high), MAX_WHOLE)
        return checks.integer(label, value, whole_low, whole_high)
    real_low = -math.inf if low is None else low
    real_high = math.inf if high is None else high
    real = checks.real(label, value, real_low, real_high)
    if math.isinf(real):
        raise ValueError(f"{label} is {real}; expected a finite number")
    return real


def _is_whole(value: Any) -> bool:
    """Return whether a number is whole by its type."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _step(label: str, step: Any) -> float | None:
    if step is None:
        return None
    real = _checked_number(f"{label}: step", step)
    if real <= 0:
        raise ValueError(f"{label}: step is {real:g}; expected a number over 0")
    return real


def _optional_bounds(
    label: str, low: Any, high: Any
) -> tuple[float | None, float | None]:
    low_bound = None if low is None else _checked_number(f"{label}: low", low)
    high_bound = None if high is None else _checked_number(f"{label}: high", high)
    return low_bound, high_bound


def _checked_numbers(
    label: str, value: Any, low: float | None, high: float | None
) -> tuple[float, ...]:
    """Return the numbers of a sequence, an array or a tensor."""
    checks.check_tensor(value, label)
    if hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, (tuple, list)):
        raise TypeError(f"{label} is {type_text(value)}, not a sequence of numbers")
    return tuple(_checked_number(label, element, low, high) for element in value)


def _color(label: str, value: Any) -> tuple[float, ...]:
    channels = _checked_numbers(label, value, None, None)
    if len(channels) != 3:
        raise ValueError(
            f"{label} has {len(channels)} numbers; expected red, green and blue"
        )
    if min(channels) < 0 or max(channels) > 1:
        raise ValueError(
            f"{label} is {short_repr(channels)}; expected numbers from 0 to 1: divide those "
            "from 0 to 255 by 255"
        )
    return channels


def _bool(label: str, value: Any) -> bool:
    checks.check_tensor(value, label)
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if not isinstance(value, int) or value not in (0, 1):
        raise TypeError(f"{label} is {short_repr(value)}, not True or False")
    return bool(value)


def _text(label: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{label} is {type_text(value)}, not a str")
    if len(value) > MAX_TEXT:
        raise ValueError(
            f"{label} has {len(value)} characters; expected at most {MAX_TEXT}"
        )
    checks.check_text(value, label)
    return value


def _choice(label: str, value: Any, choices: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(
            f"{label} is {short_repr(value)}; expected one of {short_repr(choices)}"
        )
    return value
