"""The protocol of a view, or of a part of one, that undo brings back."""

from __future__ import annotations

from typing import Any, Protocol


class Undoable(Protocol):
    """Something whose state is a frozen dataclass of values that users change."""

    @property
    def state(self) -> Any:
        """The state now."""
        ...

    def undoable_state(self) -> Any:
        """Return the state without what passes; None while it is not settled."""
        ...

    def restore(self, state: Any) -> None:
        """Return to a state that it had, whatever is under way."""
        ...
