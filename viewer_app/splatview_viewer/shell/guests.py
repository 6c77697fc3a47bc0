"""Those who come with a screen of their own while the viewer runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Screen
    from splatview_viewer.gpu.work import GpuWork


@dataclass(frozen=True)
class Guest:
    """Somebody who has come."""

    who: str
    """The same for one who comes back."""
    name: str
    """What others call them."""
    screen: Screen


class Guests(Protocol):
    """Where guests come from. Every call comes from the thread that holds the OpenGL context."""

    def arrivals(self, now: float, work: GpuWork) -> list[Guest]:
        """Who has come since the last call. The loop was woken for them. Cheap. `work` times what their screens do."""
        ...

    def close(self) -> None:
        """Let nobody in any more. Idempotent."""
        ...
