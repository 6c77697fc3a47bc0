"""The viewer's CUDA kernels compiled for the CPU (`kernels_on_cpu.h`), to be launched as on a GPU."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HERE = Path(__file__).parent
SOURCE = """
#include "kernels_on_cpu.h"
#include "{file}"
#define ON(kernel, lockstep) if (!strcmp(name, #kernel)) return run(kernel, lockstep, grid, block, args);
extern "C" int launch(const char *name, int grid, int block, void **args) {{
    {kernels}
    return 1;
}}
"""
FAILURES = {1: "there is none of that name", 2: "some lanes of a warp wait more often than others"}


@functools.cache
def _library(file: str, kernels: tuple[tuple[str, bool], ...], defines: tuple[tuple[str, str], ...]) -> ctypes.CDLL:
    """Compile once for all test modules: the library stays loaded when its file is gone."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "kernels.cpp"), Path(folder, "kernels.so")
        source.write_text(SOURCE.format(file=file, kernels="\n    ".join(
            f"ON({name}, {str(step).lower()})" for name, step in kernels)))
        # Fortified longjmp does not know of stacks other than the thread's.
        built = subprocess.run(["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-U_FORTIFY_SOURCE", "-Wall", "-Werror",
                                "-Wno-unknown-pragmas", "-Wno-unused-function",
                                *(f"-D{name}={value}" for name, value in defines), f"-I{HERE}",
                                f"-I{HERE.parent / 'viewer_app/renderers/kernels'}", str(source), "-o", str(library)],
                               capture_output=True, text=True)
        assert built.returncode == 0, built.stderr
        return ctypes.CDLL(str(library))


class OnCpu:
    """`compiler.Kernels` for tensors in host memory. Skips the test where there is no compiler."""

    def __init__(self, file: str, kernels: Mapping[str, bool], defines: Mapping[str, str] | None = None) -> None:
        """`kernels` of `file`, and whether a warp of each goes in step because it uses shared memory."""
        if shutil.which("g++") is None:
            pytest.skip("needs g++")
        self.defines = dict(defines or {})
        self._library = _library(file, tuple(kernels.items()), tuple(self.defines.items()))

    def launch(self, name: str, grid: int, block: int, *args: Any) -> None:
        self.prepare(name, grid, block, *args)()

    def prepare(self, name: str, grid: int, block: int, *args: Any) -> Callable[[], None]:
        values = [ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else a for a in args]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))

        def launch() -> None:
            done = self._library.launch(name.encode(), grid, block, pointers)
            assert values and done == 0, f"kernel {name}: {FAILURES[done]}"

        return launch
