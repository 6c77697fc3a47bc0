"""The values of a script's controls in a file, for the next run of the same name."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from splatview_ipc.kinds.controls import MAX_CONTROLS, Value
from splatview_ipc.system.files import make_private, state_folder, write_output
from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    from pathlib import Path

    from splatview.api.script_controls import ScriptControl

_log = logging.getLogger("splatview")

_MAX_BYTES = 16 << 20
"""Size of a file; a larger one is not ours."""
_MAX_FILE_NAME = 200
_decode = msgspec.json.Decoder(dict[str, Value]).decode


def file_of_run(run_name: str) -> Path:
    """Return the file of the runs of one name, in the user's state folder."""
    # Names of files are shorter than those of runs can be, in bytes.
    file_name = quote(run_name, safe=" ")[:_MAX_FILE_NAME]
    return state_folder() / "controls" / f"{file_name}.json"


class RememberedValues:
    """The values of controls, which one run writes and the next one reads.

    Where several runs of one name go at a time, the last one that writes counts.
    """

    def __init__(self, path: Path) -> None:
        """Read a file. One that cannot be read is logged, and holds nothing."""
        self._path = path
        self._values: dict[str, Value] = {}
        self.has_changed = False
        """True if the file does not hold the values as they are now."""
        try:
            self._values = _decode(_content(path))
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            _log.warning(
                "splatview: the controls' values of the last run are not found again: %s "
                "cannot be read: %s",
                printable(str(path)),
                printable(str(error)),
            )

    def restore(self, control: ScriptControl[object]) -> None:
        """Set a control to its value of the last run, if it can be set to that now."""
        value = self._values.get(control.name)
        if value is None:
            return
        try:
            control.restore(value)
        except ValueError as error:
            _log.warning(
                "splatview: control %r begins with %r, and not as the last run had it: %s",
                control.name,
                control.value,
                printable(str(error)),
            )

    def put(self, control: ScriptControl[object]) -> None:
        """Take in the value of a control."""
        name = control.name
        value = control.current().value
        if self._values.get(name) == value:
            return
        self._values[name] = value
        self.has_changed = True
        if len(self._values) > MAX_CONTROLS:
            del self._values[next(iter(self._values))]

    def write(self) -> None:
        """Write the file. Raises OSError."""
        self.has_changed = False
        make_private(self._path.parent)
        write_output(self._path, msgspec.json.encode(self._values), private=True)


def _content(path: Path) -> bytes:
    """Return what a file holds. Raises OSError, ValueError."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size > _MAX_BYTES:
            raise ValueError(f"it is larger than {_MAX_BYTES:,} bytes; remove it")
        return file.read()
