"""The errors of the viewer: those of `ViewerError` need no traceback."""

from __future__ import annotations

import logging
import sys

from splatview_ipc.system.terminal import printable_lines

_MAX_MESSAGE = 3000
"""Characters of a message: it may repeat what a damaged file says, and stands in a
panel."""
_MAX_ANSWER = 160
"""Characters of a compiler's answer that are repeated."""


class ViewerError(Exception):
    """Base of everything the viewer reports.

    The message says what to do next; no traceback is needed. It can be shown: what a
    terminal would obey in it is escaped, and the middle of a very long one left out.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(_showable(a) if isinstance(a, str) else a for a in args))


def _showable(message: str) -> str:
    """Return a message that a terminal and a panel can show."""
    if len(message) > _MAX_MESSAGE:
        head = message[: _MAX_MESSAGE * 2 // 3]
        tail = message[-_MAX_MESSAGE // 4 :]
        message = f"{head} ... {tail}"
    return printable_lines(message)


class PrintableFormatter(logging.Formatter):
    """Lines of a log with nothing that a terminal obeys."""

    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(super().format(record))


class FileError(ViewerError):
    """A file is missing, damaged or of no known format."""


class CameraError(ViewerError):
    """A camera description does not describe a camera."""


class GraphicsError(ViewerError):
    """No OpenGL context could be made."""


class GpuLostError(GraphicsError):
    """OpenGL or CUDA takes no more work in this process: only another process helps."""


class NotFoundError(ViewerError):
    """There is no such run, or none that publishes such a stream."""


class LateError(ViewerError):
    """A stream brought nothing in time."""


class RendererError(ViewerError):
    """A renderer cannot run on this machine, or failed while drawing."""


def of_opengl(e: BaseException) -> bool:
    """Return whether OpenGL raised an error.

    It refuses a shader, or the memory of a picture.
    """
    moderngl = sys.modules.get("moderngl")
    return moderngl is not None and isinstance(e, moderngl.Error)


def error_text(e: BaseException) -> str:
    """Return an error in words, in one line where a driver's answer is a page."""
    if of_opengl(e):
        return f"OpenGL failed: {telling(str(e))}"
    return printable_lines(str(e)) or type(e).__name__


def telling(answer: str) -> str:
    """Return the line of a compiler's answer that says what is wrong."""
    lines = [
        " ".join(line.split()) for line in answer.splitlines() if line.strip(" =-\t")
    ]
    if not lines:
        return "no reason given"
    errors = [line for line in lines if "error:" in line.lower()]
    # Without such a line the last one says most.
    if not errors:
        return lines[-1][:_MAX_ANSWER]
    return errors[0][:_MAX_ANSWER]
