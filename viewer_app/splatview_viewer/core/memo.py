"""The viewer's memory between sessions: bookmarks, viewports, light or dark. One small JSON file."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from splatview_ipc.system.files import make_private, write_output
from splatview_viewer.core.regular import open_regular

log = logging.getLogger("splatview")

MOST_BYTES = 1 << 20
"""Size of the file; a larger one is not ours."""
MOST_KEYS = 1000
"""Number of values; the oldest is forgotten first."""


def memo_file() -> Path:
    """Return the file in the user's folder for such things (XDG_STATE_HOME, else ~/.local/state)."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "splatview" / "viewer.json"


class Memo:
    """Values that JSON knows, by name. Several viewers share the file: the last value that was put counts.

    Faults of the file are logged once and forgotten: then nothing is remembered beyond this viewer.
    """

    def __init__(self, file: Path | None = None) -> None:
        """`file`: None: nothing is kept beyond this object's life."""
        self._file = file
        self._held: dict[str, Any] = {}
        self._said = False
        self._read()

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of this name. The caller checks it: the file may hold anything."""
        return self._held.get(key, default)

    def put(self, key: str, value: Any) -> None:
        """Remember a value that JSON knows; None: forget it."""
        if self._held.get(key) == value:
            return
        self._read()
        self._held.pop(key, None)
        if value is not None:
            self._held[key] = value
        for old in list(self._held)[: max(len(self._held) - MOST_KEYS, 0)]:
            del self._held[old]
        self._write()

    def _read(self) -> None:
        if self._file is None:
            return
        try:
            with open_regular(self._file) as f:
                text = f.read(MOST_BYTES + 1)
            found = json.loads(text) if len(text) <= MOST_BYTES else None
        except FileNotFoundError:
            return
        except (OSError, ValueError, RecursionError) as e:
            self._trouble(e)
            return
        if isinstance(found, dict):
            self._held = found

    def _write(self) -> None:
        if self._file is None:
            return
        try:
            text = json.dumps(self._held, indent=1)
        except RecursionError as e:  # what the file held is nested more deeply than can be written
            self._trouble(e)
            return
        if len(text) > MOST_BYTES:
            self._trouble(ValueError("more than fits"))
            return
        try:
            make_private(self._file.parent)
            write_output(self._file, text.encode(), private=True)
        except OSError as e:
            self._trouble(e)

    def _trouble(self, e: Exception) -> None:
        if not self._said:
            self._said = True
            log.warning("%s cannot be used, so nothing is remembered for the next time: %s", self._file, e)
