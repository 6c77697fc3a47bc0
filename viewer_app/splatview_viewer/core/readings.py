"""Values that a view reads off at one place, such as the line of a timeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Reading:
    """One value in words."""

    name: str
    """"live", "reserved"."""
    value: str
    """"7.16 GiB"; "" while it is not known."""
    badge: str = ""
    """The letter of a run that is compared; "" for none."""


@dataclass(frozen=True)
class Readings:
    """All values at one place."""

    title: str
    """"At the line"."""
    place: str
    """"event 14,293"."""
    values: Sequence[Reading]
