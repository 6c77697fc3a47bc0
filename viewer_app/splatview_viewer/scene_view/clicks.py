"""Clicks of the pointer, as distinct from drags."""

from __future__ import annotations

_MAX_MOVE = 4.0
"""Points that the pointer may move between press and release of a click."""


class ClickGesture:
    """A press of a button, which may become a click."""

    def __init__(self) -> None:
        self._start: tuple[float, float] | None = None

    @property
    def is_open(self) -> bool:
        """True while a release would make a click."""
        return self._start is not None

    def press(self, x: float, y: float) -> None:
        """Start a press at a pixel of the screen."""
        self._start = (x, y)

    def move(self, x: float, y: float, scale: float) -> None:
        """Follow the pointer, which ends a click when it goes too far.

        Args:
            scale: pixels per point.
        """
        if self._start is None:
            return
        start_x, start_y = self._start
        if max(abs(x - start_x), abs(y - start_y)) > _MAX_MOVE * scale:
            self._start = None

    def release(self) -> bool:
        """End the press; return whether it was a click."""
        is_click = self._start is not None
        self._start = None
        return is_click

    def cancel(self) -> None:
        """End the press without a click."""
        self._start = None
