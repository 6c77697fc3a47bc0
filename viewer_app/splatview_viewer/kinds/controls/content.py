"""The controls of one script, as all users of this viewer see and set them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from splatview_ipc.control.frame import RemoteTensor
from splatview_ipc.kinds.controls import Control, Value, decode
from splatview_ipc.system.terminal import printable
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.view import frame_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_ipc.control.frame import StreamFrame

_PATIENCE_S = 1.0
"""Seconds after which a value that the script answered by another one gives way to that."""
_MAX_WAIT_S = 10.0
"""The same for a value that it did not answer: it may be busy, and take it later."""


@dataclass(slots=True)
class _SetValue:
    """A value that a user has set, and that the script has not confirmed yet."""

    value: Value
    set_at: float
    has_answer: bool = False
    """A version of the controls has come since, with another value."""

    def is_late(self, now: float) -> bool:
        """Return whether the script is not going to take the value any more."""
        wait = _PATIENCE_S if self.has_answer else _MAX_WAIT_S
        return now > self.set_at + wait


class ScriptControls:
    """Holds the controls of a script, and the values that users set meanwhile.

    A value counts from the moment it is set, so that nothing jumps back while a slider
    is dragged; then the script's own does.
    """

    def __init__(self) -> None:
        self.controls: tuple[Control, ...] = ()
        self.labels: tuple[str, ...] = ()
        """The names of the controls, without characters that cannot be shown."""
        self.starts: tuple[Value, ...] = ()
        """Their first values."""
        self.layouts = 0
        """Number of changes of all but the values."""
        self.send: Callable[[str, Value, int], object] | None = None
        """Sends the value of a control, or the clicks of a button, to the script."""
        self.has_ended = False
        """The script is gone, and nothing can be set."""
        self.now = 0.0
        """Time of the loop."""
        self.set_at = -math.inf
        """When a user of this viewer set something last."""
        self._set_values: dict[str, _SetValue] = {}

    def take(self, frame: StreamFrame) -> bool:
        """Take a frame; return whether it was still whole. Raises ViewerError."""
        tensor = frame_of("controls", frame).tensors["controls"]
        # Links bring frames to host memory.
        assert isinstance(tensor, RemoteTensor)
        packed = tensor.array.tobytes()
        if not frame.intact():
            return False
        try:
            controls = decode(packed)
        except msgspec.DecodeError as e:
            raise ViewerError(f"the script's controls cannot be read: {e}") from e
        if not _are_alike(self.controls, controls):
            self.labels = tuple(printable(control.name) for control in controls)
            self.starts = tuple(control.value for control in controls)
            self.layouts += 1
        self.controls = controls
        for control in controls:
            set_value = self._set_values.get(control.name)
            if set_value is None:
                continue
            set_value.has_answer = True
            if set_value.value == control.value:
                del self._set_values[control.name]
        return True

    def value_of(self, control: Control) -> Value:
        """Return the value that is shown of a control."""
        set_value = self._set_values.get(control.name)
        if set_value is None:
            return control.value
        return set_value.value

    def set(self, control: Control, value: Value) -> None:
        """Set a control. Raises ValueError for a value that it does not allow."""
        control.check(value)
        if value == self.value_of(control) or self.send is None:
            return
        self._set_values[control.name] = _SetValue(value, self.now)
        self.set_at = self.now
        self.send(control.name, value, 0)

    def hold(self, control: Control) -> None:
        """Keep the value that was set, as its user still holds the control."""
        set_value = self._set_values.get(control.name)
        if set_value is not None:
            set_value.set_at = self.now

    def click(self, control: Control) -> None:
        """Click a button once."""
        if self.send is None:
            return
        self.set_at = self.now
        self.send(control.name, 0, 1)

    def settle(self, now: float) -> bool:
        """Drop the values that the script is not going to take; return if there were any."""
        self.now = now
        values = self._set_values.items()
        late = [name for name, set_value in values if set_value.is_late(now)]
        for name in late:
            del self._set_values[name]
        return bool(late)


def _are_alike(first: tuple[Control, ...], second: tuple[Control, ...]) -> bool:
    """Return whether two lists of controls differ in values alone."""
    if len(first) != len(second):
        return False
    return all(map(_is_alike, first, second))


def _is_alike(first: Control, second: Control) -> bool:
    if first.name != second.name or first.form != second.form:
        return False
    if first.folder != second.folder or first.choices != second.choices:
        return False
    if first.form != "vector":
        return True
    assert isinstance(first.value, tuple)
    assert isinstance(second.value, tuple)
    return len(first.value) == len(second.value)
