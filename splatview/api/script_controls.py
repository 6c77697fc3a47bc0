"""The controls that the script has declared, by name, and their values.

Values are attributes of Python objects: the script reads and sets them, and so does the
helper thread as messages of viewers come. Neither waits for the other. What has changed
is noted, and published by the worker thread (`splatview.api.controls_stream`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from splatview.adapters.controls import (
    MAX_TEXT_BYTES,
    checked_value,
    declaration_text,
    form_of,
    max_bytes,
    value_of_viewer,
)
from splatview.api.session import session
from splatview.rendering.control_values import NO_CONTROLS, ControlValues
from splatview_ipc.kinds.controls import MAX_BYTES, MAX_CONTROLS, Control

if TYPE_CHECKING:
    from typing import Self

    from splatview.api.remembered_values import RememberedValues
    from splatview_ipc.kinds.controls import Value

T = TypeVar("T")


class ScriptControl(Generic[T]):
    """A control of the script, which viewers show and set.

    Reading `value` takes a fraction of a microsecond and no lock. It changes when a
    viewer's user changes it, between any two lines of the script: where two places must
    agree, read it once.
    """

    __slots__ = ("_registry", "_value", "declaration", "is_remembered", "location")

    def __init__(
        self,
        registry: ControlRegistry,
        declaration: Control,
        location: str,
        is_remembered: bool = False,
    ) -> None:
        """Start with the declared value.

        Args:
            registry: notes what has changed.
            declaration: form, name and bounds, and the value to start with.
            location: the line that declares it, for users.
            is_remembered: True if a restarted script finds its value again.
        """
        self._registry = registry
        self._value: Any = declaration.value
        self.declaration = declaration
        self.location = location
        self.is_remembered = is_remembered

    @property
    def name(self) -> str:
        """The name that the script has given it."""
        return self.declaration.name

    @property
    def value(self) -> T:
        """The value that a viewer's user, or the script, has set last.

        The script may set it, and viewers follow. Raises TypeError or ValueError for
        what the control cannot be set to.
        """
        return self._value

    @value.setter
    def value(self, value: T) -> None:
        checked = checked_value(self.declaration, value)
        if checked != self._value:
            self._value = checked
            self._registry.note(self)

    def __repr__(self) -> str:
        return f"<{self.declaration.form} {self.name!r}: {self._value!r}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return this control: the copy of a model that holds it follows viewers too."""
        del memo
        return self

    def current(self) -> Control:
        """Return the declaration with the present value."""
        return msgspec.structs.replace(self.declaration, value=self._value)

    def restore(self, value: Value) -> None:
        """Begin with the value of an earlier run. Raises ValueError."""
        self._value = value_of_viewer(self.declaration, value)

    def take(self, value: Value, clicks: int) -> None:
        """Take what a viewer's user has set. On the helper thread.

        Args:
            value: the new value.
            clicks: those of a button.

        Raises:
            ValueError: the control cannot be set to this.
        """
        del clicks
        try:
            self._value = value_of_viewer(self.declaration, value)
        finally:
            # Also where nothing has changed: the viewer learns of it by a new version.
            self._registry.note(self)


class ScriptButton(ScriptControl[int]):
    """A button, whose `value` is the number of its clicks."""

    __slots__ = ("_taken_clicks",)

    def __init__(
        self, registry: ControlRegistry, declaration: Control, location: str
    ) -> None:
        """Start without clicks, as `ScriptControl` does."""
        super().__init__(registry, declaration, location)
        self._taken_clicks = 0
        """Clicks for which `clicked` has returned True."""

    def clicked(self) -> bool:
        """Return True once for each click of a viewer's user."""
        if self._taken_clicks >= self._value:
            return False
        self._taken_clicks += 1
        return True

    def take(self, value: Value, clicks: int) -> None:
        """Add a viewer's clicks. On the helper thread, which alone does so."""
        del value
        self._value += clicks
        self._registry.note(self)


class ControlRegistry:
    """All controls of a process. They outlive a run, for the next one."""

    def __init__(self) -> None:
        self.controls: dict[str, ScriptControl[Any]] = {}
        """By name, in the order of their declarations. Added to by `add` alone."""
        self._changed: dict[ScriptControl[Any], None] = {}
        """Those that viewers do not know as they are now.

        Any thread adds, the worker thread takes out: each step is one of a dict's own,
        which needs no lock.
        """
        self._is_noted = False
        """True if the worker thread was woken since it took changes last."""
        self.remembered: RememberedValues | None = None
        """The values of an earlier run; None before a control is to be remembered."""
        self._replaceable: set[str] = set()
        """Names of those that may be declared otherwise: their run has ended."""
        self._byte_count = 0
        """Bytes that all of them take in a frame at most."""
        self._state = object()
        """Another object after each change."""
        self._newest: tuple[object, ControlValues] = self._state, NO_CONTROLS
        """The state of which values were made last, and these."""

    def find(self, declaration: Control, location: str) -> ScriptControl[Any] | None:
        """Return the control that was declared alike; None if it has to be added.

        Args:
            declaration: the control that the script declares now.
            location: the line that does, for users.

        Raises:
            ValueError: it was declared otherwise.
        """
        name = declaration.name
        control = self.controls.get(name)
        if control is None:
            return None
        if form_of(control.declaration) == form_of(declaration):
            return control
        if name in self._replaceable:
            return None
        raise ValueError(
            f"control {name!r} is declared as {declaration_text(declaration)} in "
            f"{location}, and before as {declaration_text(control.declaration)} in "
            f"{control.location}; declare it alike, or use another name"
        )

    def add(self, control: ScriptControl[Any]) -> None:
        """Add a control, under the session's lock.

        Raises ValueError if there are too many.
        """
        name = control.name
        replaced = self.controls.get(name)
        if replaced is None and len(self.controls) >= MAX_CONTROLS:
            raise ValueError(
                f"control {name!r} is one too many; a script has at most "
                f"{MAX_CONTROLS:,}: let a dropdown choose what one control sets"
            )
        byte_count = self._byte_count + max_bytes(control.declaration)
        if replaced is not None:
            byte_count -= max_bytes(replaced.declaration)
        if byte_count > MAX_BYTES:
            raise ValueError(
                f"control {name!r} is one too many: all controls may take {byte_count:,} "
                f"bytes, {MAX_TEXT_BYTES:,} of each text; expected at most "
                f"{MAX_BYTES:,}: declare fewer texts and choices"
            )
        self._byte_count = byte_count
        self._replaceable.discard(name)
        self.controls[name] = control
        self.note(control)

    def note(self, control: ScriptControl[Any]) -> None:
        """Note that a control has changed. After the change, on any thread."""
        self._state = object()
        self._changed[control] = None
        if not self._is_noted:
            self._is_noted = True
            session().wake()

    def note_all(self) -> None:
        """Have all controls be published: no viewer knows them."""
        self._changed.update(dict.fromkeys(self.controls.values()))

    @property
    def has_changed(self) -> bool:
        """True while `take_changed` would return controls."""
        return bool(self._changed)

    def take_changed(self) -> list[ScriptControl[Any]]:
        """Return the controls that have changed since the last call. On one thread."""
        self._is_noted = False  # first: what comes from now on wakes it again
        controls = []
        while self._changed:
            control, _ = self._changed.popitem()
            # One that was replaced is the script's alone.
            if self.controls.get(control.name) is control:
                controls.append(control)
        return controls

    def allow_replacing(self) -> None:
        """Let each control be declared otherwise once: no viewer shows it any more."""
        self._replaceable = set(self.controls)

    def values(self) -> ControlValues:
        """Return the values of all controls."""
        newest_state, values = self._newest
        # Read before the values: a change meanwhile makes another one.
        state = self._state
        if state is newest_state:
            return values
        controls = list(self.controls.values())
        values = ControlValues({control.name: control.value for control in controls})
        self._newest = state, values
        return values


registry = ControlRegistry()
"""The controls of this process."""
