"""`numba`, imported so that it reads no settings from the current folder, and how kernels are declared.

numba takes settings from a file `.numba_config.yaml` in the current folder if PyYAML is installed, at its import and
whenever it compiles. One of them names the folder of its cache, and what lies in the cache is unpickled: where others
may write, the file would run their code. There is no way to switch that off but to hide PyYAML while numba is imported.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splatview_ipc.system.optional_packages import needed
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.kinds.snapshot import TIMELINE

if sys.modules.get("numba") is None and not TYPE_CHECKING:
    warnings.filterwarnings("ignore", message="A Numba config file is found")  # it is, and stays unread
    present = {name: module for name, module in sys.modules.items() if name == "yaml"}
    sys.modules["yaml"] = None  # an import of it fails
    try:
        with needed(TIMELINE, "numba", error=ViewerError):
            import numba
    finally:
        del sys.modules["yaml"]
        sys.modules.update(present)
else:
    import numba

from numba import types

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["R32", "R64", "f64", "i32", "i64", "inline", "kernel", "load", "needs_compiling", "numba", "read", "types",
           "void", "write"]

i32, i64, f64, void = types.int32, types.int64, types.float64, types.void
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_kernels: list[tuple[Any, Any]] = []
"""Each kernel and its signature."""


def read(dtype: Any) -> Any:
    """A vector that a kernel only reads; arrays in a mapped file are read-only."""
    return types.Array(dtype, 1, "C", readonly=True)


def write(dtype: Any, ndim: int = 1) -> Any:
    """An array that a kernel writes."""
    return types.Array(dtype, ndim, "C")


R32, R64 = read(i32), read(i64)


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Declare a kernel of one signature, which `load` compiles, without the GIL."""
    def wrap(function: Callable[..., Any]) -> Any:
        try:
            made = numba.njit(function, cache=True, **_OPTIONS)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            made = numba.njit(function, **_OPTIONS)  # no folder can be written to: compiled in each process
        _kernels.append((made, signature))
        return made
    return wrap


def inline(function: Callable[..., Any]) -> Any:
    """Declare a part of kernels, compiled with each that uses it."""
    return numba.njit(function, **_OPTIONS)


def load() -> None:
    """Load all kernels, and compile those that are not stored."""
    for made, signature in _kernels:
        made.compile(signature)
        made.disable_compile()


def needs_compiling() -> bool:
    """Return whether a kernel that can be stored is not, or its file has changed since."""
    for made, _ in _kernels:
        source = Path(made.py_func.__code__.co_filename)
        if folder := made.stats.cache_path:
            stored = Path(folder).glob(f"{source.stem}.{made.__name__}-*.nbi")  # numba's names
            if not any(path.stat().st_mtime >= source.stat().st_mtime for path in stored):
                return True
    return False
