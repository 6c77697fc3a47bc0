"""The compiled kernels: `kernel(module, name)`, which waits until they are loaded, or compiled.

numba keeps compiled kernels on disk. Loading them takes half a second. Compiling them takes ten, once on a machine, in
which drawing would stand still again and again: so another program compiles, and `compiling()` says how far it is.
"""

from __future__ import annotations

import contextlib
import importlib
import subprocess
import threading
import time
from typing import Any

from splatview_ipc.system import child_program
from splatview_viewer.memory._kept import kept
from splatview_viewer.memory._programs import environment
from splatview_viewer.memory.needs import check_timeline

MODULES = ("_index_kernels", "_bands_kernel", "_addresses_kernels", "_canvas_kernels")
COMPILE_SECONDS = 15.0
"""Expected time of compiling MODULES, where nothing else runs."""
_lock = threading.Lock()
_importing = threading.Lock()
"""Held while kernels are imported, which the end of the program must not interrupt."""
_ended = False
_loaded = False
_compiler: Compiler | None = None


class Compiler:
    """A program that compiles what is not kept on disk yet, and the thread that listens to it.

    The thread lives as long as the program, which the kernel ends with the thread that started it.
    """

    def __init__(self, modules: list[str]) -> None:
        self.done = 0
        """Modules of MODULES that are compiled."""
        self.finished = threading.Event()
        """Set when MODULES are compiled, or never will be by this program."""
        self._begun = self._last = time.monotonic()
        self._modules = modules
        self._count = sum(name in MODULES for name in modules)
        if not self._count:
            self.finished.set()
        threading.Thread(target=self._listen, name="kernel compiler", daemon=True).start()

    def _listen(self) -> None:
        try:
            with contextlib.suppress(OSError), subprocess.Popen(  # without it they are compiled here
                    child_program.command(f"{__package__}._compiler", *self._modules), stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/",
                    start_new_session=True,  # Ctrl-C is for the viewer
                    env=environment()) as process:
                assert process.stdout is not None
                for _ in process.stdout:
                    self.done += 1
                    self._last = time.monotonic()
                    if self.done == self._count:
                        self.finished.set()
        finally:
            self.finished.set()

    def estimate(self) -> tuple[float, float]:
        """Return the seconds left, at least 1, and how much is done, 0 to 1; estimated from the modules done."""
        past, done = time.monotonic() - self._begun, min(self.done, self._count)
        total = (self._last - self._begun) / done * self._count if done else COMPILE_SECONDS
        return max(total - past, 1.0), min(past / total, (done + 1) / self._count)


def warm_up() -> None:
    """Load the kernels, or have them compiled. Waits; for worker threads. Idempotent.

    What is not loaded when it is needed is loaded then, so this need not be called. Raises ViewerError.
    """
    global _loaded, _compiler
    with _lock:
        if _loaded:
            return
        check_timeline()
        modules = [name for name in MODULES if not kept(__file__, name)]
        if modules:
            _compiler = Compiler(modules)
            _compiler.finished.wait()
        with _importing:
            if _ended:
                return
            for name in MODULES:
                importlib.import_module(f"{__package__}.{name}")
            _loaded = True


def end_loading() -> None:
    """Let `warm_up` load nothing more, and wait until a load in progress has ended. Call it at the end of the program.

    numba registers finalizers while it is imported. A thread that does so while Python runs the registered ones makes
    Python print a traceback.
    """
    global _ended
    with _importing:
        _ended = True


def compiling() -> tuple[str, float] | None:
    """Return what to show while kernels are being compiled, and how much is done, 0 to 1; None at other times."""
    compiler = _compiler
    if _loaded or compiler is None or compiler.finished.is_set():
        return None
    left, fraction = compiler.estimate()
    return f"Compiling kernels, once on this machine: about {left:.0f} s", fraction


def kernel(module: str, name: str) -> Any:
    """Return a kernel of one of MODULES. Waits as `warm_up`."""
    if not _loaded:
        warm_up()
    return getattr(importlib.import_module(f"{__package__}.{module}"), name)
