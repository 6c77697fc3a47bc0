"""The text of a function's fault, for users."""

from __future__ import annotations

import os
import traceback

MAX_TROUBLE = 1000
"""Characters of the text of a fault."""
_MAX_CALLS = 6
_LEFT_OUT = (
    os.path.join(os.sep, "splatview", "rendering", ""),
    os.path.join(os.sep, "splatview", "api", ""),
    "<frozen importlib",
    os.path.join(os.sep, "importlib", "__init__.py"),
)
"""Parts of the names of files whose lines no user needs in a traceback."""


class DrawingError(Exception):
    """A function returned a value that cannot be shown; the text is for users."""


def text_of_fault(error: BaseException) -> str:
    """Return the end of an error's traceback, for users, without our own lines."""
    if isinstance(error, DrawingError):
        return last_lines(str(error))
    calls = [
        call
        for call in traceback.extract_tb(error.__traceback__)
        if not any(path_part in call.filename for path_part in _LEFT_OUT)
    ]
    lines = traceback.format_list(calls[-_MAX_CALLS:])
    lines += traceback.format_exception_only(type(error), error)
    return last_lines("".join(lines))


def last_lines(text: str) -> str:
    """Return the last lines of a text, as many as a viewer is sent."""
    text = text.strip()
    if len(text) <= MAX_TROUBLE:
        return text
    # From the start of a line, where there is one.
    _, _, lines = text[-MAX_TROUBLE:].partition("\n")
    return lines or text[-MAX_TROUBLE:]
