"""Controls of the training script, which every viewer of it shows and sets.

For example::

    time = splatview.controls.slider("time", 0.0, 1.0, value=0.5)
    with splatview.controls.folder("Deformation"):
        is_deformed = splatview.controls.checkbox("deform", True)
    save = splatview.controls.button("save")

    for step in range(30_000):
        train(step, time.value, is_deformed.value)
        if save.clicked():
            save_checkpoint()

Each function returns a `ScriptControl`, whose `value` is what a viewer's user has set:
reading it takes a fraction of a microsecond, and waits for nothing. The script may set it
as well, and viewers follow. Where several set a control, the last one counts. Functions
that draw (`splatview.renderer`, `publish(..., render=...)`) are given the values of all
controls, by name.

Controls may be declared at any time. Their names are unique in the script, whatever folder
they are in. Declared again in the same way, as in a notebook's cell, a control is the one
that it was, with its value. After `splatview.close` the next run shows them again.

A control with `remember=True` begins with the value that it had at the end of the last run
of the same name, if it can be set to that.

Without a run, and with SPLATVIEW_DISABLE=1, controls are there and keep the values that
the script gives them.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from splatview.adapters import checks
from splatview.adapters import controls as declarations
from splatview.api import script_controls
from splatview.api.script_controls import ScriptButton, ScriptControl
from splatview.api.session import (
    callers_line,
    disabled,
    first_features,
    public,
    run_name,
    session,
    started_publisher,
    untraced_function,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from splatview.api.controls_stream import ControlsStream
    from splatview.api.remembered_values import RememberedValues
    from splatview_ipc.kinds.controls import Control
    from splatview_ipc.publisher.publisher import Publisher

__all__ = [
    "ScriptButton",
    "ScriptControl",
    "button",
    "checkbox",
    "color",
    "dropdown",
    "folder",
    "number",
    "slider",
    "text",
    "vector",
]

_FEATURE = "controls"
_folder: ContextVar[str] = ContextVar("folder", default="")
"""The folder of the controls that are declared now; "": none."""


@untraced_function
def slider(
    name: str,
    low: float,
    high: float,
    value: float | None = None,
    step: float | None = None,
    *,
    remember: bool = False,
) -> ScriptControl[float]:
    """Declare a slider.

    Args:
        name: as `publish` takes names; it is unique in the script.
        low: the lowest value.
        high: the highest value.
        value: the one to begin with; None: `low`.
        step: the distance between two values; None: any value. Where it, `low` and
            `value` are ints, values are ints.
        remember: begin with the value at the end of the last run of the same name.

    Raises:
        TypeError, ValueError: an argument is not as above, or the name is declared
            otherwise.
    """
    folder_name = _folder.get()
    declaration = declarations.declared_slider(
        name, low, high, value, step, folder_name
    )
    return _declared(declaration, remember)


@untraced_function
def number(
    name: str,
    value: float = 0.0,
    low: float | None = None,
    high: float | None = None,
    step: float | None = None,
    *,
    remember: bool = False,
) -> ScriptControl[float]:
    """Declare a field for a number.

    Args:
        name: as `slider` takes it.
        value: the number to begin with. Where it is an int, values are ints.
        low: the lowest value; None: any.
        high: the highest value; None: any.
        step: the distance between two values; None: any value.
        remember: as `slider` takes it.

    Raises:
        TypeError, ValueError: as `slider`.
    """
    declaration = declarations.declared_number(
        name, value, low, high, step, _folder.get()
    )
    return _declared(declaration, remember)


@untraced_function
def checkbox(
    name: str, value: bool = False, *, remember: bool = False
) -> ScriptControl[bool]:
    """Declare a checkbox, which is on or off. Arguments and errors as for `slider`."""
    return _declared(
        declarations.declared_checkbox(name, value, _folder.get()), remember
    )


@untraced_function
def button(name: str) -> ScriptButton:
    """Declare a button, whose `clicked()` is True once for each click.

    Clicks wait until the script asks for them. `value` is their number so far.

    Args:
        name: as `slider` takes it.

    Raises:
        TypeError, ValueError: as `slider`.
    """
    return _declared(declarations.declared_button(name, _folder.get()), False)


@untraced_function
def dropdown(
    name: str,
    choices: Sequence[str],
    value: str | None = None,
    *,
    remember: bool = False,
) -> ScriptControl[str]:
    """Declare a choice between texts.

    Args:
        name: as `slider` takes it.
        choices: 1 to 1,000 different texts of up to 1,024 characters.
        value: the one to begin with; None: the first.
        remember: as `slider` takes it.

    Raises:
        TypeError, ValueError: as `slider`.
    """
    declaration = declarations.declared_dropdown(name, choices, value, _folder.get())
    return _declared(declaration, remember)


@untraced_function
def text(name: str, value: str = "", *, remember: bool = False) -> ScriptControl[str]:
    """Declare a field for a text of up to 1,024 characters, as `slider` does."""
    return _declared(declarations.declared_text(name, value, _folder.get()), remember)


@untraced_function
def color(
    name: str,
    value: Sequence[float] = (1.0, 1.0, 1.0),
    *,
    remember: bool = False,
) -> ScriptControl[tuple[float, float, float]]:
    """Declare a color: red, green and blue from 0 to 1. The rest is as for `slider`."""
    return _declared(declarations.declared_color(name, value, _folder.get()), remember)


@untraced_function
def vector(
    name: str,
    value: Sequence[float],
    low: float | None = None,
    high: float | None = None,
    *,
    remember: bool = False,
) -> ScriptControl[tuple[float, ...]]:
    """Declare fields for several numbers.

    Args:
        name: as `slider` takes it.
        value: 1 to 16 numbers to begin with; their count stays.
        low: the lowest value of each; None: any.
        high: the highest value of each; None: any.
        remember: as `slider` takes it.

    Raises:
        TypeError, ValueError: as `slider`.
    """
    declaration = declarations.declared_vector(name, value, low, high, _folder.get())
    return _declared(declaration, remember)


@contextlib.contextmanager
def folder(name: str) -> Iterator[None]:
    """Put the controls that the block declares into a folder of the viewers' panel.

    Folders may stand in folders. Raises TypeError or ValueError for a wrong name.
    """
    outer = _folder.get()
    token = _folder.set(declarations.joined_folder(outer, name))
    try:
        yield
    finally:
        _folder.reset(token)


def _declared(declaration: Control, remember: bool) -> Any:
    """Return the control of a declaration, which is made at the first one.

    Raises TypeError, ValueError.
    """
    is_remembered = checks.checked_bool("remember", remember)
    location = callers_line()
    registry = script_controls.registry
    # A declaration while the process forks would leave the child half a registry.
    with session().lock:
        control = registry.find(declaration, location)
        if control is not None:
            if is_remembered and not disabled():
                _remember(control)
            return control
        if declaration.form == "button":
            control = ScriptButton(registry, declaration, location)
        else:
            control = ScriptControl(registry, declaration, location, is_remembered)
        if is_remembered and not disabled():
            _restore(control)
        _publish_controls()
        registry.add(control)
        return control


@public()
def _restore(control: ScriptControl[Any]) -> None:
    """Set a control to the value of the last run."""
    _remembered_values().restore(control)


@public()
def _remember(control: ScriptControl[Any]) -> None:
    """Have the next run find the value of a control that is declared already."""
    if control.is_remembered:
        return
    _remembered_values()
    control.is_remembered = True
    script_controls.registry.note(control)


def _remembered_values() -> RememberedValues:
    from splatview.api.remembered_values import RememberedValues, file_of_run

    registry = script_controls.registry
    if registry.remembered is None:
        registry.remembered = RememberedValues(file_of_run(run_name()))
    return registry.remembered


@public()
def _publish_controls() -> None:
    """Have this run and all to come show the controls."""
    first_features[_FEATURE] = _stream_of
    if started_publisher() is not None:
        session().feature(_FEATURE, _stream_of)


def _stream_of(publisher: Publisher) -> ControlsStream:
    from splatview.api.controls_stream import ControlsStream

    return ControlsStream(publisher, script_controls.registry)
