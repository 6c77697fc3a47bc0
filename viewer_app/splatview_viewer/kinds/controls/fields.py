"""The fields of a script's controls in the panel, one for each form.

Each is drawn with imgui in the row of its control, and returns the value after this frame.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from imgui_bundle import ImVec2, imgui

from splatview_ipc.kinds.controls import MAX_TEXT
from splatview_ipc.system.terminal import printable
from splatview_viewer.ui import controls, lettering, theme, widgets
from splatview_viewer.ui.color_field import draw_color, draw_swatch, hex_digits
from splatview_viewer.ui.drags import columns, drag
from splatview_viewer.ui.text_field import text_field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from splatview_ipc.kinds.controls import Control, Value

_MAX_DRAGGED = 1e7
"""Numbers above it are typed only: a drag has 7 digits."""
_SLIDER_DIGITS = 3
"""Digits that a slider has behind the first one of its range."""
_MAX_BOUND = 1e30
"""The greatest bound of a slider."""
_NO_BOUND = 3e38
_PADDING = 10.0
"""Points from the left of a field to its text."""
_RESTING_REASON = "The script has ended"


class Field(NamedTuple):
    """A control as one row shows it."""

    control: Control
    label: str
    """Its name, without characters that cannot be shown."""
    value: Any
    """What is shown before this frame."""
    start: Any
    """Its first value, which says how fast a drag changes it."""
    components: slice
    """The numbers of a vector that are in this row."""

    @property
    def tip(self) -> str:
        """The text that is shown once the pointer rests on it."""
        bounds = _bounds_text(self.control)
        return f"{self.label}\n{bounds}" if bounds else self.label


def _bounds_text(control: Control) -> str:
    """Return the numbers that a control allows, in words; "" where all."""
    low = control.low
    high = control.high
    if low is not None and high is not None:
        return f"{low:.6g} to {high:.6g}"
    if low is not None:
        return f"{low:.6g} or more"
    if high is not None:
        return f"{high:.6g} or less"
    return ""


def _draw_slider(field: Field) -> Value:
    control = field.control
    low = control.low
    high = control.high
    assert low is not None
    assert high is not None
    if max(abs(low), abs(high)) > _MAX_BOUND:
        return _draw_number(field)
    new = widgets.slider(
        field.label,
        field.tip,
        field.value,
        (low, high),
        _format_of(field.value),
        step=_least_step(control),
    )
    if new != field.value and imgui.is_item_active() and high > low:
        # A drag ends at short numbers.
        new = round(new, _SLIDER_DIGITS - math.floor(math.log10(high - low)))
    return _as_edited(control, field.value, new)


def _draw_checkbox(field: Field) -> Value:
    return widgets.check(field.label, field.tip, field.value)


def _draw_button(field: Field) -> Value:
    """Draw a button; its value is the number of its clicks."""
    clicks = f"Clicks so far: {field.value:,}"
    is_pressed = controls.button(
        field.label, name=f"##{field.label}", width=-1, hint=f"{field.label}\n{clicks}"
    )
    return field.value + is_pressed


def _draw_dropdown(field: Field) -> Value:
    options = _options_of(field.control.choices)
    return widgets.choice(field.label, field.tip, field.value, options)


@lru_cache(64)
def _options_of(choices: tuple[str, ...]) -> dict[str, str]:
    """Return choices, and the text of each."""
    return {choice: printable(choice) for choice in choices}


def _draw_text(field: Field) -> Value:
    widgets.row(field.label)
    edited, text = text_field(f"##{field.label}", "", field.value)
    controls.tip(f"{field.tip}\nSet by Enter, or by leaving the field.")
    if edited:
        return text[:MAX_TEXT]
    return field.value


def _draw_color(field: Field) -> Value:
    return draw_color(field.label, field.tip, field.value)


def _draw_number(field: Field) -> Value:
    widgets.row(field.label)
    new = _draw_numbers(field, [field.value], [field.start])
    controls.tip(f"{field.tip}\nDrag, or Ctrl + click to type a number.")
    return _as_edited(field.control, field.value, new[0])


def _draw_vector(field: Field) -> Value:
    is_first = not field.components.start
    widgets.row(field.label if is_first else "")
    old = field.value[field.components]
    new = _draw_numbers(field, old, field.start)
    controls.tip(f"{field.tip}\nDrag, or Ctrl + click to type a number.")
    vector = list(field.value)
    vector[field.components] = [
        _as_edited(field.control, *pair) for pair in zip(old, new, strict=True)
    ]
    return tuple(vector)


def _draw_numbers(
    field: Field, values: Sequence[float], starts: Sequence[float]
) -> Sequence[float]:
    """Draw fields for numbers in what is left of a row; return them after this frame."""
    fmt = _format_of(values[0], 7 if len(values) == 1 else 5)
    name = f"{field.label}.{field.components.start or 0}"
    imgui.begin_group()
    if max(map(abs, values)) > _MAX_DRAGGED:
        _, new = widgets.vector(name, values, fmt)
    else:
        step = _drag_step(field.control, starts)
        limits = _limits_of(field.control)
        new = [
            drag(f"##{name}.{index}", values[index], step, fmt, limits)
            for index in columns(len(values))
        ]
    imgui.end_group()
    return new


def _drag_step(control: Control, starts: Sequence[float]) -> float:
    """Return what a pixel of dragging changes."""
    if control.low is not None and control.high is not None:
        step = (control.high - control.low) / 400
    else:
        step = (max(map(abs, starts)) or 1.0) / 100
    return min(max(step, _least_step(control)), _NO_BOUND)


def _least_step(control: Control) -> float:
    """Return the distance between two values of a control; 0: any value is allowed."""
    if control.step is not None:
        return control.step
    return 1.0 if isinstance(control.value, int) else 0.0


def _limits_of(control: Control) -> tuple[float, float]:
    """Return the bounds of numbers as `drag` has them."""
    if control.low is None and control.high is None:
        return 0.0, 0.0
    low = -_NO_BOUND if control.low is None else control.low
    high = _NO_BOUND if control.high is None else control.high
    return max(low, -_NO_BOUND), min(high, _NO_BOUND)


def _format_of(value: float, digits: int = 5) -> str:
    if isinstance(value, int):
        return "%.0f"
    return f"%.{digits}g"


def _as_edited(control: Control, old: float, new: float) -> float:
    """Return a number after it was edited, as the control allows it."""
    if new == old or not math.isfinite(new):
        return old
    return control.nearest(new)


FIELDS: Mapping[str, Callable[[Field], Value]] = {
    "slider": _draw_slider,
    "checkbox": _draw_checkbox,
    "button": _draw_button,
    "dropdown": _draw_dropdown,
    "text": _draw_text,
    "color": _draw_color,
    "number": _draw_number,
    "vector": _draw_vector,
}
"""Draws the field of each form, and returns the value after this frame."""


def draw_resting(field: Field) -> None:
    """Draw a control that nothing can set any more, in faint letters."""
    control = field.control
    if control.form == "button":
        name = f"##{field.label}"
        controls.button(field.label, name=name, width=-1, reason=_RESTING_REASON)
        return
    if control.form == "checkbox":
        widgets.check(field.label, "", field.value, reason=_RESTING_REASON)
        return
    is_first = not field.components.start
    widgets.row(field.label if is_first else "")
    scale = theme.scale()
    width = imgui.get_content_region_avail().x
    name = f"##{field.label}"
    ground = controls.item(name, width, theme.ROW_HEIGHT * scale, enabled=False)
    controls.tip(f"{field.label}\n{_RESTING_REASON}")
    controls.fill(ground, theme.FIELD)
    x = ground.x + _PADDING * scale
    if control.form == "color":
        side = 16 * scale
        corner = ImVec2(x, ground.middle[1] - side / 2)
        draw_swatch(imgui.get_window_draw_list(), corner, field.value, side)
        x += side + 9 * scale
    text = lettering.fitted(_value_text(field), ground.high.x - 4 * scale - x)
    controls.write_around(text, x, ground.middle[1], theme.FAINT)


def _value_text(field: Field) -> str:
    value = field.value
    match field.control.form:
        case "color":
            return hex_digits(value)
        case "vector":
            return ", ".join(
                f"{component:.5g}" for component in value[field.components]
            )
        case "slider" | "number":
            return _format_of(value, 7) % value
    return printable(value)
