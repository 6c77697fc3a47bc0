"""Print the trainer's events: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import math
import shutil
import sys
from typing import Any

from splatview_ipc.system.terminal import printable

_BAR_PERIOD_S = 0.1
_LINE_PERIOD_S = 5.0
"""Between two updates of the progress, on a terminal and in a log."""
_MIN_BAR_WIDTH = 5
_CLEAR_LINE = "\r\x1b[2K"


class ProgressPrinter:
    """Prints events, and not more of the progress than can be read."""

    def __init__(self, started_at: float) -> None:
        self._started_at = started_at
        self._printed_at = -math.inf
        """When progress was printed last."""
        self._is_terminal = sys.stdout.isatty()

    def show(self, event: dict[str, Any], now: float) -> None:
        """Print an event of the trainer, or a note."""
        text = printable(event.get("text", ""))
        elapsed = f"{now - self._started_at:.0f} s"
        if event["event"] == "done":
            self._write(f"{text}, {elapsed}\n")
            return
        if event["event"] not in ("progress", "train"):
            self._write(f"{text}\n")
            return
        done = event["done"] / event["of"]
        period_s = _BAR_PERIOD_S if self._is_terminal else _LINE_PERIOD_S
        if done < 1 and now - self._printed_at < period_s:
            return
        self._printed_at = now
        if not self._is_terminal:
            self._write(f"{text}\n")
            return
        label = f"  {text}  {elapsed}"
        columns = shutil.get_terminal_size().columns
        width = max(columns - len(label) - 3, _MIN_BAR_WIDTH)
        end = "" if done < 1 else "\n"
        self._write(f"[{'=' * round(width * done):{width}}]{label}{end}")

    def _write(self, text: str) -> None:
        """Write a text, over the bar where there is one."""
        if self._is_terminal:
            text = _CLEAR_LINE + text
        sys.stdout.write(text)
        sys.stdout.flush()
