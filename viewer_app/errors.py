"""What can go wrong in the viewer, as one small tree.

ViewerError
├── FileError       a scene or picture file is missing, damaged or of no known format
├── CameraError     a camera given as JSON does not describe a camera
├── GraphicsError   no OpenGL context, or too old a one
│   └── GpuLostError    OpenGL or CUDA has failed for good in this process
├── NotFoundError   no such run, or none that publishes such a stream
├── LateError       a stream brought nothing in time
└── RendererError   a renderer cannot run here, or failed
"""

from __future__ import annotations

_MOST = 3000
"""Characters of a message: it may repeat what a damaged file says, and stands in a panel."""


class ViewerError(Exception):
    """Base of everything the viewer reports. The message says what to do next; no traceback is needed. It can be shown:
    what is no text in it (half a surrogate) is replaced, and the middle of a very long one left out."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(_showable(a) if isinstance(a, str) else a for a in args))


def _showable(text: str) -> str:
    if len(text) > _MOST:
        text = f"{text[:_MOST * 2 // 3]} ... {text[-_MOST // 4:]}"
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


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
