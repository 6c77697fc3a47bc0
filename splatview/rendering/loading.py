"""Load the functions that draw scenes by their names, and again when their files change.

function = LoadedFunction("package.module:function")
function.refresh(now)     # imports it, or imports it anew; raises LoadingError
function.call             # the newest one that could be imported
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splatview.rendering.trouble import text_of_fault

if TYPE_CHECKING:
    from collections.abc import Callable

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
MAX_NAME = 200
"""Characters of a function's name with its module's."""
_RETRY_S = 0.5
"""Seconds until a module is looked for again that was not found."""


class LoadingError(Exception):
    """A function that cannot be imported; the text is for users."""


def check_name(option: str, name: Any) -> None:
    """Raise TypeError or ValueError unless a value names a function of a module.

    Nothing is imported.

    Args:
        option: the option of `publish`, for the message.
        name: "package.module:function".
    """
    if not isinstance(name, str):
        raise TypeError(
            f"{option} is of type {type(name).__name__}; expected the name of a "
            f'function that another process can import: {option}="package.module:function"'
        )
    if len(name) > MAX_NAME or not name.isascii() or not _NAME.fullmatch(name):
        raise ValueError(
            f"{option} is {name[:80]!r}; expected "
            f'"package.module:function", at most {MAX_NAME} letters, digits and "_"'
        )
    module, _, function = name.partition(":")
    if module == "__main__" or _is_unguarded_script(module):
        raise ValueError(
            f"{option} is {name!r}: to import {module} would start this script again; "
            f"move {function} into a file beside the script, such as drawing.py, and "
            f'give {option}="drawing:{function}"'
        )


def _is_unguarded_script(module: str) -> bool:
    """Return whether a module is the script of this process, and runs when imported."""
    script = sys.modules.get("__main__")
    file = getattr(script, "__file__", None)
    if not file:
        return False
    spec = getattr(script, "__spec__", None)
    script_name = Path(file).stem
    if spec is not None:
        script_name = spec.name
    if module != script_name:
        return False
    try:
        text = Path(file).read_text(errors="replace")
    except OSError:
        return False
    return "__name__" not in text


class LoadedFunction:
    """A function of a module, which is imported anew when its file changes."""

    def __init__(self, name: str) -> None:
        """Note the name; nothing is imported before `refresh`."""
        self.name = name
        self.call: Callable[..., Any] | None = None
        """The newest function that could be imported."""
        self._module_name, _, self._path = name.partition(":")
        self._file = ""
        """The module's file; "" while it is not known."""
        self._stamp: tuple[int, int] | None = None
        """What the file looked like when it was imported, or could not be."""
        self._retry_at = 0.0

    def is_due(self, now: float) -> bool:
        """Return whether to load it: for the first time, or as its file has changed.

        Once for each state of the file, and costs one look at that.

        Args:
            now: the clock's seconds.
        """
        if not self._file:
            is_due = now >= self._retry_at
            self._retry_at = max(self._retry_at, now + _RETRY_S if is_due else 0.0)
            return is_due
        stamp = _stamp_of(self._file)
        if stamp is None or stamp == self._stamp:
            return False
        self._stamp = stamp
        return True

    def load(self) -> None:
        """Import the module as its file is now. The last function stays if that fails.

        Raises LoadingError.
        """
        try:
            self.call = self._import()
        except (Exception, SystemExit) as error:
            raise LoadingError(
                f"{self._module_name} cannot be imported:\n{text_of_fault(error)}"
            ) from None

    def _import(self) -> Callable[..., Any]:
        """Return the function of the module as its file is now."""
        importlib.invalidate_caches()
        # Found first: the file of a module that fails is watched as well.
        self._watch(importlib.util.find_spec(self._module_name))
        # In a new module: `importlib.reload` keeps names that are gone from the file,
        # and changes those that the last function uses, even where it fails.
        previous = sys.modules.pop(self._module_name, None)
        try:
            value: Any = importlib.import_module(self._module_name)
            for name_part in self._path.split("."):
                value = getattr(value, name_part)
            if not callable(value):
                raise TypeError(f"{self.name} is {value!r}, not a function")
        except BaseException:
            if previous is not None:
                sys.modules[self._module_name] = previous
            raise
        return value

    def _watch(self, spec: Any) -> None:
        """Note the file of a module, if it has one."""
        origin = getattr(spec, "origin", None)
        if origin and not self._file and os.path.isfile(origin):
            self._file = origin
            self._stamp = _stamp_of(origin)


def _stamp_of(path: str) -> tuple[int, int] | None:
    """Return the time of the last change and the size of a file.

    None where there is none, or nothing in it: an editor is about to write it.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    if not status.st_size:
        return None
    return status.st_mtime_ns, status.st_size
