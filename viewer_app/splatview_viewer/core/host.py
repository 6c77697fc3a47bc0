"""The requests of a view to the program that shows it, and the viewer's memory between sessions."""

from __future__ import annotations

import json
import logging
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from splatview_ipc.system.files import make_private, write_output
from splatview_ipc.system.terminal import printable
from splatview_viewer.core.regular import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = logging.getLogger("splatview")

MOST_BYTES = 1 << 20
"""Size of the memo's file; a larger one is not ours."""
MOST_VALUE_BYTES = MOST_BYTES // 2
"""Size of one value, as JSON; a camera path of as many keyframes as there may be takes less."""
MOST_KEYS = 1000
"""Values of a memo; the oldest is forgotten first."""


def memo_file() -> Path:
    """Return the file in the user's folder for such things (XDG_STATE_HOME, else ~/.local/state)."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "splatview" / "viewer.json"


class Memo:
    """Bookmarks, viewports, light or dark: values that JSON knows, by name, in one small file.

    Several viewers share the file: the last value that was put counts. Faults of the file are logged once: then nothing
    is remembered beyond this viewer.
    """

    def __init__(self, file: Path | None = None) -> None:
        """`file`: None: nothing is kept beyond this object's life."""
        self._file = file
        self._held: dict[str, Any] = {}
        self._said = False
        self._told_size = False
        """It was told that a value is too large."""
        self._read()

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of this name. The caller checks it: the file may hold anything."""
        return self._held.get(key, default)

    def put(self, key: str, value: Any) -> None:
        """Remember a value that JSON knows; None: forget it. One of more than MOST_VALUE_BYTES is not remembered."""
        if self._held.get(key) == value:
            return
        self._read()
        self._held.pop(key, None)
        if value is not None and self._fits(key, value):
            self._held[key] = value
        for old in list(self._held)[: max(len(self._held) - MOST_KEYS, 0)]:
            del self._held[old]
        try:
            text = self._shortened()
            if self._file is not None:
                make_private(self._file.parent)
                write_output(self._file, text.encode(), private=True)
        except (
            OSError,
            ValueError,
            RecursionError,
        ) as e:  # a file may hold more levels than can be written
            self._trouble(e)

    def _fits(self, key: str, value: Any) -> bool:
        """Return whether a value is small enough; tell of the first that is not."""
        try:
            size = len(json.dumps(value))
        except (TypeError, ValueError, RecursionError) as e:
            size = MOST_VALUE_BYTES + 1
            reason = str(e)
        else:
            reason = f"it takes {size:,} bytes of JSON, and {MOST_VALUE_BYTES:,} are the most"
        if size <= MOST_VALUE_BYTES:
            return True
        if not self._told_size:
            self._told_size = True
            log.warning("%s is not remembered: %s", printable(key), reason)
        return False

    def _shortened(self) -> str:
        """Return the file's text, after forgetting the oldest values that are too much for it."""
        text = json.dumps(self._held)
        sizes = {}
        if len(text) > MOST_BYTES:
            sizes = {k: len(json.dumps({k: v})) for k, v in self._held.items()}
        total = sum(sizes.values())
        for key, size in sizes.items():
            if total <= MOST_BYTES:
                break
            del self._held[key]
            total -= size
        return json.dumps(self._held) if sizes else text

    def _read(self) -> None:
        if self._file is None:
            return
        try:
            with open_regular(self._file) as f:
                found = json.loads(f.read(MOST_BYTES))
            if isinstance(found, dict):
                self._held = found
        except FileNotFoundError:
            pass
        except (OSError, ValueError, RecursionError) as e:
            self._trouble(e)

    def _trouble(self, e: Exception) -> None:
        if not self._said:
            self._said = True
            log.warning(
                "%s cannot be used, so nothing is remembered for the next time: %s",
                self._file,
                e,
            )


@dataclass
class Host:
    """The user and the loop around a view. Defaults are no-ops."""

    say: Callable[[str], None] = lambda _: None
    """Tell the user something in one line, for a few seconds: that a file was written, and where."""
    open: Callable[[Path], None] = lambda _: None
    """Show a file in the place of what is shown."""
    pasted: Callable[[], str] = str
    """The text on the user's clipboard. (What imgui copies gets there by itself.)"""
    wake: Callable[[], None] = lambda: None
    """Have the loop turn soon. From any thread."""
    memo: Memo = field(default_factory=Memo)
    """Settings that are remembered for the next time."""
    scale: float = 1.0
    """Pixels per point."""
    exact: Literal["", "picture", "scene"] = ""
    """Something to keep is drawn: the picture, or the scene alone. Nothing may stand in for it. "": for the screen."""
    hand_over: Callable[[Path], None] = lambda _: None
    """Give the user a file that was written: a browser downloads it. Elsewhere it has no effect: say where it is."""
    again: Callable[[], None] = lambda: None
    """Send the newest value of what is shown once more."""
    name: str = ""
    """The name of what is shown: part of the names of files."""
    identity: str = ""
    """Tells it from others of the same name, such as a file's path; "" where the name does."""

    def recall(self, what: str) -> Any:
        """Return what is remembered of what is shown, such as its "bookmarks"; None: nothing."""
        if not self.identity:
            return self.memo.get(f"{what}/{self.name}")
        value = self.memo.get(f"{what}/{self.identity}")
        # Earlier versions remembered files by their names: the first one that is opened has it from now on.
        is_file_name = bool(Path(self.name).suffix)
        if value is None and is_file_name:
            value = self.memo.get(f"{what}/{self.name}")
            if value is not None:
                self.memo.put(f"{what}/{self.name}", None)
                self.remember(what, value)
        return value

    def remember(self, what: str, value: Any) -> None:
        """Remember a value that JSON knows; None: forget it."""
        self.memo.put(f"{what}/{self.identity or self.name}", value)

    @contextmanager
    def drawing_exactly(self, what: Literal["picture", "scene"]) -> Iterator[None]:
        """Set `exact` for what is drawn inside; afterwards it is as before, whatever happened."""
        before = self.exact
        self.exact = what
        try:
            yield
        finally:
            self.exact = before
