"""The module of compiled kernels: `kernels()`, which waits until it is loaded.

Loading stored kernels takes half a second. Compiling them takes ten, once for each user and version, and would hold up
drawing: so a child program compiles and stores them first:
`python -m splatview_viewer.kinds.snapshot.timeline.compiled`.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from splatview_ipc.system.child_program import ChildProgram, end_with_parent
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.kinds.snapshot import check_timeline

_lock = threading.Lock()
_importing = threading.Lock()
"""Held while kernels are imported, which the end of the program must not interrupt."""
_ended = False
_module: Any = None


def warm_up() -> None:
    """Load the kernels, which are compiled first if they are not stored. Blocks; for worker threads. Idempotent.

    Raises ViewerError.
    """
    global _module
    with _lock:
        if _module is not None:
            return
        check_timeline()
        with _importing:
            if _ended:
                return
            from splatview_viewer.kinds.snapshot import _numba
            from splatview_viewer.kinds.snapshot.timeline import _kernels
        if _numba.needs_compiling():
            with contextlib.suppress(OSError):  # `load` compiles then
                program = ChildProgram(__name__)
                try:
                    program.wait()
                finally:
                    program.end()
        with _importing:
            if not _ended:
                _numba.load()
                _module = _kernels


def end_loading() -> None:
    """Stop `warm_up` from loading more, and wait for a load in progress. Call it at the end of the program.

    numba registers finalizers while it is imported. A thread that does so while Python runs the registered ones makes
    Python print a traceback.
    """
    global _ended
    with _importing:
        _ended = True


def kernels() -> Any:
    """Return the module `_kernels`. Blocks as `warm_up`. Raises ViewerError."""
    if _module is None:
        warm_up()
    if _module is None:
        raise ViewerError("the program ends before its kernels are loaded")
    return _module


if __name__ == "__main__":
    end_with_parent()
    from splatview_viewer.kinds.snapshot import _numba
    from splatview_viewer.kinds.snapshot.timeline import _kernels  # noqa: F401  which declares them

    _numba.load()
