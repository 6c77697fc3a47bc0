"""Rules for frames of a script's own controls: what users may set, and the values.

A run has one such stream, named "controls". Viewers set a control by
`splatview_ipc.control.messages.SetControl`.

Tensors:

controls   (B,) uint8, at most MAX_BYTES: `encode` of the list of controls, in the order
           of the panel
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec

from splatview_ipc.kinds.rules import (
    Meta,
    Rules,
    Tensors,
    check_extent,
    check_tensors,
)

MAX_CONTROLS = 10_000
MAX_NAME = 200
"""Characters of a name, as messages carry it (`control.limits.MAX_NAME`)."""
MAX_BYTES = 4 << 20
MAX_TEXT = 1024
"""Characters of a folder, a choice or a text."""
MAX_CHOICES = 1000
MAX_NUMBERS = 16
"""Numbers of a vector."""
MAX_WHOLE = 2**53
"""Largest whole number, which floats of viewers hold exactly."""

_TENSORS: Rules = {"controls": (("uint8",), ("bytes",))}
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]
_Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
_Vector = Annotated[tuple[float, ...], msgspec.Meta(max_length=MAX_NUMBERS)]
Value = bool | int | float | _Text | _Vector


class Control(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A control and its value.

    The value of a button is the number of its clicks, that of a dropdown the choice
    itself, that of a color three numbers in [0, 1].
    """

    name: _Name
    form: Literal[
        "slider", "checkbox", "button", "dropdown", "text", "color", "number", "vector"
    ]
    value: Value
    folder: _Text = ""
    low: float | None = None
    high: float | None = None
    """Bounds of numbers, of each one of a vector; None: none."""
    step: float | None = None
    """Distance between two values of a slider or a number, from `low` (else 0) on.

    None: any value. Where `value` is an int, values are whole.
    """
    choices: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=MAX_CHOICES)] = ()

    def __post_init__(self) -> None:
        if self.form == "slider" and None in (self.low, self.high):
            raise ValueError(f"slider {self.name} needs both bounds")
        if self.step is not None and not 0 < self.step < math.inf:
            raise ValueError(f"{self.name} has step {self.step}; expected one over 0")
        self.check(self.value)

    def check(self, value: object) -> None:
        """Raise ValueError unless a value is legal for this control."""
        if not self._is_legal(value):
            raise ValueError(f"{value!r} is no value of the {self.form} {self.name}")

    def nearest(self, coordinate: float) -> float:
        """Return the nearest number within bounds and on a step to a finite one."""
        nearest = coordinate
        if self.step is not None:
            start = self.low or 0.0
            steps = (coordinate - start) / self.step
            # Steps may be too small to be counted, or too large for the next one.
            if math.isfinite(steps):
                stepped = start + round(steps) * self.step
                nearest = stepped if math.isfinite(stepped) else nearest
        if self.low is not None:
            nearest = max(nearest, self.low)
        if self.high is not None:
            nearest = min(nearest, self.high)
        if not isinstance(self.value, int):
            return float(nearest)
        low = -MAX_WHOLE if self.low is None else max(self.low, -MAX_WHOLE)
        high = MAX_WHOLE if self.high is None else min(self.high, MAX_WHOLE)
        # A bound may lie between two whole numbers; the value is one within.
        return min(max(round(nearest), math.ceil(low)), math.floor(high))

    def _is_legal(self, value: object) -> bool:
        match self.form:
            case "checkbox":
                return isinstance(value, bool)
            case "button":
                return type(value) is int and value >= 0
            case "dropdown":
                return value in self.choices
            case "text":
                return isinstance(value, str) and len(value) <= MAX_TEXT
            case "slider" | "number":
                return self._is_within(value)
            case "color":
                return _is_color(value)
            case "vector":
                return (
                    isinstance(value, tuple)
                    and isinstance(self.value, tuple)
                    and 0 < len(value) == len(self.value) <= MAX_NUMBERS
                    and all(self._is_within(component) for component in value)
                )

    def _is_within(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if isinstance(value, int) and abs(value) > MAX_WHOLE:
            return False
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        return abs(value) < math.inf and low <= value <= high


def _is_color(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 3
        and all(
            isinstance(channel, int | float) and 0 <= channel <= 1 for channel in value
        )
    )


_Controls = Annotated[tuple[Control, ...], msgspec.Meta(max_length=MAX_CONTROLS)]
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(_Controls).decode
"""Raises msgspec.DecodeError, also for a value that its control does not allow."""


def check(tensors: Tensors, meta: Meta) -> None:
    """Raise ValueError unless tensors and metadata make a frame of controls."""
    del meta
    extents = check_tensors("a frame of controls", tensors, _TENSORS, ("controls",))
    check_extent("bytes of controls", extents["bytes"], MAX_BYTES, 1)
