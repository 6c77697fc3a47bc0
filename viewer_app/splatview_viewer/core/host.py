"""The requests of a view to the program around it, and the memory between sessions."""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from splatview_ipc.system.files import make_private, state_folder, write_output
from splatview_ipc.system.terminal import printable
from splatview_viewer.core.regular import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = logging.getLogger("splatview")

MOST_BYTES = 1 << 20
"""Size of the memo's file; a larger one is not ours."""
MOST_VALUE_BYTES = MOST_BYTES // 2
"""Size of one value, as JSON; a camera path with the most keyframes takes less."""
MOST_KEYS = 1000
"""Values of a memo; the oldest is forgotten first."""


def memo_file() -> Path:
    """Return the file in the user's folder for such things."""
    return state_folder() / "viewer.json"


class Memo:
    """Bookmarks, viewports, light or dark: JSON values by name, in one small file.

    Several viewers share the file: the last value that was put counts. Faults of the
    file are logged once: then nothing is remembered beyond this viewer.
    """

    def __init__(self, file: Path | None = None) -> None:
        """Read the file; without one, values last as long as this object."""
        self._file = file
        self._values: dict[str, Any] = {}
        self._has_logged_fault = False
        self._has_logged_size = False
        """True once a value was too large, which is logged."""
        self._read()

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a name.

        The caller checks it: the file may hold anything.
        """
        return self._values.get(key, default)

    def put(self, key: str, value: Any) -> None:
        """Keep a JSON value; None: forget it. One that is too large is left out."""
        if self._values.get(key) == value:
            return
        self._read()
        self._values.pop(key, None)
        if value is not None and self._fits(key, value):
            self._values[key] = value
        excess = max(len(self._values) - MOST_KEYS, 0)
        for oldest in list(self._values)[:excess]:
            del self._values[oldest]
        try:
            text = self._shortened()
            if self._file is not None:
                make_private(self._file.parent)
                write_output(self._file, text.encode(), private=True)
        except (OSError, ValueError, RecursionError) as e:
            # A file may hold more levels than can be written.
            self._log_fault(e)

    def _fits(self, key: str, value: Any) -> bool:
        """Return whether a value is small enough; log the first that is not."""
        try:
            size = len(json.dumps(value))
        except (TypeError, ValueError, RecursionError) as e:
            reason = str(e)
        else:
            if size <= MOST_VALUE_BYTES:
                return True
            reason = f"it takes {size:,} bytes of JSON, and {MOST_VALUE_BYTES:,} are the most"
        if not self._has_logged_size:
            self._has_logged_size = True
            log.warning("%s is not remembered: %s", printable(key), reason)
        return False

    def _shortened(self) -> str:
        """Return the file's text, after forgetting the oldest values that exceed it."""
        text = json.dumps(self._values)
        if len(text) <= MOST_BYTES:
            return text
        sizes = {k: len(json.dumps({k: v})) for k, v in self._values.items()}
        total = sum(sizes.values())
        for key, size in sizes.items():
            if total <= MOST_BYTES:
                break
            del self._values[key]
            total -= size
        return json.dumps(self._values)

    def _read(self) -> None:
        """Replace the values by those of the file, if there is one."""
        if self._file is None:
            return
        try:
            with open_regular(self._file) as file:
                values = json.loads(file.read(MOST_BYTES))
            if isinstance(values, dict):
                self._values = values
        except FileNotFoundError:
            pass
        except (OSError, ValueError, RecursionError) as e:
            self._log_fault(e)

    def _log_fault(self, e: Exception) -> None:
        if not self._has_logged_fault:
            self._has_logged_fault = True
            log.warning(
                "%s cannot be used, so nothing is remembered for the next time: %s",
                self._file,
                e,
            )


def _ignore(*_: object) -> None:
    """Take a call that has no effect."""


@dataclass
class Host:
    """The user and the loop around a view. The default calls have no effect."""

    notify: Callable[[str], None] = _ignore
    """Show a line to the user for a few seconds: that a file was written, and where."""
    open: Callable[[Path], None] = _ignore
    """Show a file in the place of the entry that is shown."""
    pasted: Callable[[], str] = str
    """Return the text on the user's clipboard. (What imgui copies gets there by
    itself.)"""
    wake: Callable[[], None] = _ignore
    """Have the loop turn soon. From any thread."""
    memo: Memo = field(default_factory=Memo)
    """Settings that are remembered for the next time."""
    scale: float = 1.0
    """Pixels per point."""
    around: Literal["desktop", "phone", "none"] = "desktop"
    """What is around the picture: the zones of a desktop or a phone, or nothing, when
    nothing to press is over it either."""
    in_active_pane: bool = True
    """The picture is all of the active pane, where boards about what is chosen lie."""
    exact: Literal["", "picture", "scene"] = ""
    """The picture, or the scene alone, is drawn to be kept, and nothing may stand in
    for it; "": it is drawn for the screen."""
    is_subtracted: bool = False
    """The picture is subtracted from another one: what stands in front of both scenes
    would hide how far they are apart."""
    in_steps: bool = False
    """Pictures that take long may be drawn in steps, in the turns that follow, while the
    last one is shown."""
    hand_over: Callable[[Path], None] = _ignore
    """Give the user a file that was written: a browser downloads it. Elsewhere it has
    no effect: `notify` the user where the file is."""
    open_pair: Callable[[Path, Path], None] = _ignore
    """Show two files of one kind, compared with each other."""
    keep_picture: Callable[[], None] = _ignore
    """Give the user what is shown as a picture."""
    offer_undo: Callable[[str], None] = _ignore
    """Show a line with a button that takes back what the user did just now."""
    resend: Callable[[], None] = _ignore
    """Hand out the newest value of the entry once more."""
    name: str = ""
    """The name of the entry: part of the names of files."""
    identity: str = ""
    """Tells the entry from others of the same name, such as a file's path; "" where the
    name does."""

    def recall(self, topic: str) -> Any:
        """Return what is remembered of the entry, such as "bookmarks"; None for nothing."""
        by_name = f"{topic}/{self.name}"
        if not self.identity:
            return self.memo.get(by_name)
        value = self.memo.get(f"{topic}/{self.identity}")
        is_file_name = bool(Path(self.name).suffix)
        if value is not None or not is_file_name:
            return value
        # Earlier versions remembered files by their names: the first one that is opened
        # has it from now on.
        value = self.memo.get(by_name)
        if value is not None:
            self.memo.put(by_name, None)
            self.remember(topic, value)
        return value

    def remember(self, topic: str, value: Any) -> None:
        """Keep a JSON value of the entry; None: forget it.

        Bookmarks and camera paths outlive the viewer so. Nothing else of a view does: its
        state, a crop for example, ends with it.
        """
        self.memo.put(f"{topic}/{self.identity or self.name}", value)

    @contextmanager
    def drawing_exactly(self, subject: Literal["picture", "scene"]) -> Iterator[None]:
        """Set `exact` for what is drawn inside, and restore it afterwards."""
        previous = self.exact
        self.exact = subject
        try:
            yield
        finally:
            self.exact = previous
