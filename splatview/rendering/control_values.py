"""The values of a script's controls, as functions that draw are given them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_NAMED = 20
"""Names of controls in one message."""


class ControlValues(Mapping[str, Any]):
    """The values of a script's controls at one moment: `controls.time`.

    A mapping from names to values as well: `controls["Time of day"]`, for names that are
    no identifiers, or those of a mapping's methods; `controls.get("time", 0.5)`.
    """

    __slots__ = ("_values",)
    _values: Mapping[str, Any]

    def __init__(self, values: Mapping[str, Any]) -> None:
        """Hold values by name. The mapping must not change."""
        object.__setattr__(self, "_values", values)

    def __getitem__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise KeyError(self._text_of_missing(name)) from None

    def __getattr__(self, name: str) -> Any:
        # Those of Python's protocols are looked for before there are values.
        if name == "_values" or name.startswith("__"):
            raise AttributeError(name)
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(self._text_of_missing(name)) from None

    def _text_of_missing(self, name: object) -> str:
        """Return a message that names the controls there are."""
        if not self._values:
            return (
                f"there is no control {name!r}: the script has none; declare it, for "
                f"example by splatview.controls.slider({name!r}, 0.0, 1.0)"
            )
        names = [repr(known) for known in self._values]
        if len(names) > _MAX_NAMED:
            names[_MAX_NAMED:] = [f"{len(names) - _MAX_NAMED} more"]
        return f"there is no control {name!r}; the script has {', '.join(names)}"

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"control {name!r} cannot be set by a function that draws; set `.value` of "
            "what splatview.controls returned to the script"
        )

    def __reduce__(self) -> tuple[type[ControlValues], tuple[dict[str, Any]]]:
        return ControlValues, (dict(self._values),)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __dir__(self) -> list[str]:
        names = [name for name in self._values if name.isidentifier()]
        return [*super().__dir__(), *names]

    def __repr__(self) -> str:
        return f"ControlValues({dict(self._values)!r})"


NO_CONTROLS = ControlValues({})
"""Those of a script that has declared none."""
