"""The viewer's CUDA kernels compiled for the CPU (`kernels_on_cpu.h`), to be launched as on a GPU."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
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
#define ON(kernel, lockstep) if (!strcmp(name, #kernel)) return run(kernel, lockstep, grid, block, args), 0;
extern "C" int launch(const char *name, int grid, int block, void **args) {{
    {kernels}
    return 1;
}}
"""


class OnCpu:
    """`compiler.Kernels` for tensors in host memory. Skips the test where there is no compiler."""

    def __init__(self, folder: Path, file: str, kernels: Mapping[str, bool],
                 defines: Mapping[str, str] | None = None) -> None:
        """`kernels` of `file`, and whether a warp of each goes in step because it uses shared memory."""
        if shutil.which("g++") is None:
            pytest.skip("needs g++")
        self.defines = dict(defines or {})
        source, library = folder / "kernels.cpp", folder / "kernels.so"
        source.write_text(SOURCE.format(file=file, kernels="\n    ".join(
            f"ON({name}, {str(step).lower()})" for name, step in kernels.items())))
        built = subprocess.run(["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-pthread", "-Wall", "-Werror",
                                "-Wno-unknown-pragmas", "-Wno-unused-function",
                                *(f"-D{name}={value}" for name, value in self.defines.items()), f"-I{HERE}",
                                f"-I{HERE.parent / 'viewer_app/renderers/kernels'}", str(source), "-o", str(library)],
                               capture_output=True, text=True)
        assert built.returncode == 0, built.stderr
        self._library = ctypes.CDLL(str(library))

    def launch(self, name: str, grid: int, block: int, *args: Any) -> None:
        self.prepare(name, grid, block, *args)()

    def prepare(self, name: str, grid: int, block: int, *args: Any) -> Callable[[], None]:
        values = [ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else a for a in args]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))

        def launch() -> None:
            assert values and self._library.launch(name.encode(), grid, block, pointers) == 0, f"no kernel {name}"

        return launch
