"""The errors that a script may catch from splatview.

For example::

    try:
        splatview.show()
    except splatview.errors.NoViewerError:
        ...

Mistakes of the caller are Python's own TypeError and ValueError, in every function.
`publish`, `log`, `annotate`, `publish_cameras`, `publish_memory`, `splatview.controls`
and the methods of `Window` that set something raise nothing else: faults of the
surroundings are logged there and counted, and raised only with SPLATVIEW_STRICT=1.
Functions whose caller waits for a result raise those faults:

- `show`: NoViewerError, RuntimeFolderError
- `frames`: TimeoutError when no frame comes in time
- `grab`: LookupError for no such stream, TimeoutError, RuntimeError, SharingError
- `Window.start`: RuntimeError, RuntimeFolderError, SharingError
- `splatview.gl`: SharingError
- `paused`, `wait_while_paused`: nothing
"""

from __future__ import annotations

from splatview_ipc.control.errors import (
    IpcError,
    NoViewerError,
    RuntimeFolderError,
    SharingError,
)

__all__ = ["IpcError", "NoViewerError", "RuntimeFolderError", "SharingError"]
