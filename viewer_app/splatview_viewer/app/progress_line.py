"""The progress of a long work, on stderr."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_TERMINAL_PERIOD_S = 0.2
"""Seconds between two reports on a terminal, which are written over each other."""
_LOG_PERIOD_S = 10.0
"""Seconds between two reports elsewhere, one a line."""


class ProgressLine:
    """A line that says how far a work is which began now; nothing for a short one."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._period = _LOG_PERIOD_S
        if self._is_terminal:
            self._period = _TERMINAL_PERIOD_S
        self._started_at = time.monotonic()
        self._last_report = self._started_at

    def report(self, text_at: Callable[[float], str]) -> None:
        """Print the line, if the last report is a period ago.

        text_at: returns the line for the seconds since the beginning.
        """
        now = time.monotonic()
        if now - self._last_report <= self._period:
            return
        self._last_report = now
        text = text_at(now - self._started_at)
        if self._is_terminal:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        else:
            print(f"splatview: {text}", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Remove the last report from a terminal."""
        if self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
