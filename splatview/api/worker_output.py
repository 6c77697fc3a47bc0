"""The output of a scene's render workers, for the script's log.

A worker that crashes at each picture is started again and again: the lines that each one
writes are printed once.
"""

from __future__ import annotations

import logging
import re
import sys
from collections import deque

from splatview_ipc.system.terminal import printable

_log = logging.getLogger("splatview")

_KEPT_LINES = 200
"""Last lines of a program that are kept for its end."""
_MAX_PRINTED = 1000
"""Lines of a program that are printed."""
_MAX_KNOWN = 5000
"""Different lines by which repeated ones are known."""
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")


class WorkerOutput:
    """Prints the lines of a scene's render workers. `take` has a thread of its own."""

    def __init__(self, scene: str) -> None:
        """Note the scene's name, with which lines begin."""
        self.lines: deque[str] = deque(maxlen=_KEPT_LINES)
        """The last lines of the program that was started last."""
        self._scene = printable(scene)
        self._printed_count = 0
        """Lines of that program that were printed."""
        self._known: set[str] = set()
        """Lines of all programs, with # for each number."""
        self._earlier: frozenset[str] = frozenset()
        """Those of the programs before this one."""
        self._last_reason = ""

    def begin(self) -> None:
        """Take note that another program is started."""
        self.lines.clear()
        self._printed_count = 0
        self._earlier = frozenset(self._known)

    def take(self, line: str) -> None:
        """Keep a line of stderr, and print it unless an earlier program wrote it too."""
        self.lines.append(line)
        if self._printed_count > _MAX_PRINTED or not line.strip():
            return
        pattern = _NUMBER.sub("#", line)
        if pattern in self._earlier:
            return
        if len(self._known) < _MAX_KNOWN:
            self._known.add(pattern)
        self._printed_count += 1
        if self._printed_count > _MAX_PRINTED:
            line = f"more than {_MAX_PRINTED:,} lines: the others are not printed"
        print(f"{self._scene}: {printable(line)}", file=sys.stderr, flush=True)

    def log_end(self, reason: str) -> None:
        """Log why a program has ended, unless the one before ended alike."""
        pattern = _NUMBER.sub("#", reason)
        if pattern == self._last_reason:
            return
        self._last_reason = pattern
        _log.warning("splatview: %s: %s", self._scene, reason)
