"""The module of compiled kernels: `kernels()`, which waits until it is loaded.

Loading stored kernels takes half a second. Compiling them takes ten, once for each user and version, and would hold up
drawing: so a child program compiles and stores them first:
`python -m splatview_viewer.kinds.snapshot.timeline.compiled`.
"""

from __future__ import annotations

import contextlib
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any

from splatview_ipc.system.child_program import ChildProgram, end_with_parent
from splatview_ipc.system.optional_packages import needed
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.kinds.snapshot import TIMELINE

if TYPE_CHECKING:
    from collections.abc import Callable

_lock = threading.Lock()
_importing = threading.Lock()
"""Held while kernels are imported, which the end of the program must not interrupt."""
_ended = False
_module: Any = None


def kernels() -> Any:
    """Return the module `kernels`, which is compiled first if it is not stored. Blocks; for worker threads.

    Raises ViewerError.
    """
    global _module
    with _lock:
        if _module is None:
            try:
                with needed(TIMELINE, "numba", error=ViewerError):
                    module = _unless_ended(lambda: import_module("splatview_viewer.kinds.snapshot.timeline.kernels"))
            except RuntimeError as e:
                raise ViewerError(f"{e}; set NUMBA_CACHE_DIR to a folder that can be written to") from None
            if not module.stored():
                with contextlib.suppress(OSError):  # `load` compiles then
                    program = ChildProgram(__name__)
                    try:
                        program.wait()
                    finally:
                        program.end()
            _unless_ended(module.load)
            _module = module
        return _module


def warm_up() -> None:
    """Load the kernels ahead of their use, which reports the error if they cannot be loaded. Blocks. Idempotent."""
    with contextlib.suppress(ViewerError):
        kernels()


def _unless_ended(load: Callable[[], Any]) -> Any:
    with _importing:
        if _ended:
            raise ViewerError("the program ends before its kernels are loaded")
        return load()


def end_loading() -> None:
    """Stop `kernels` from loading more, and wait for a load in progress. Call it at the end of the program.

    numba registers finalizers while it is imported. A thread that does so while Python runs the registered ones makes
    Python print a traceback.
    """
    global _ended
    with _importing:
        _ended = True


if __name__ == "__main__":
    end_with_parent()
    from splatview_viewer.kinds.snapshot.timeline import kernels as module

    module.load()
