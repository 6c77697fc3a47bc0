"""The viewer's CUDA kernels compiled for the CPU, to be launched as on a GPU.

`kernels_on_cpu.h` stands in for CUDA.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from splatview_viewer.render.gsplat.cuda import HEADERS
from support.programs import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FOLDER = Path(__file__).parent
SOURCE = """
#include "kernels_on_cpu.h"
#include "common.cuh"
{includes}
#define ON(kernel) if (!strcmp(name, #kernel)) return run(kernel, grid, block, args);
extern "C" int launch(const char *name, int grid, int block, void **args) {{
    {kernels}
    return 1;
}}
"""
FAILURES = {
    1: "there is none of that name",
    2: "the lanes of a warp do not wait for the same",
    3: "the warps of a block do not wait for the same",
    4: "a block has 32 to 256 threads, in warps of 32",
}
KERNELS = ROOT / "viewer_app/splatview_viewer/render/gsplat"
# Fortified longjmp does not know of stacks other than the thread's.
COMPILER = (
    "g++",
    "-std=c++17",
    "-O1",
    "-shared",
    "-fPIC",
    "-U_FORTIFY_SOURCE",
    "-Wall",
    "-Werror",
    "-Wno-unknown-pragmas",
    "-Wno-unused-function",
    f"-I{FOLDER}",
    f"-I{KERNELS}",
)
BUILT = ROOT / ".pytest_cache" / "kernels_on_cpu"


@functools.cache
def _library(
    file: str,
    kernels: tuple[str, ...],
    defines: tuple[tuple[str, str], ...],
) -> ctypes.CDLL:
    """Load the library of a file, compiled unless an earlier run has done so.

    Compilers take seconds.
    """
    cases = [f"ON({name})" for name in kernels]
    included = [f'#include "{name}"' for name in (*HEADERS.get(file, ()), file)]
    text = SOURCE.format(includes="\n".join(included), kernels="\n    ".join(cases))
    command = [*COMPILER, *(f"-D{name}={value}" for name, value in defines)]
    paths = (FOLDER / "kernels_on_cpu.h", *sorted(KERNELS.glob("*.cu*")))
    sources = [path.read_text() for path in paths]
    version = subprocess.run(
        [COMPILER[0], "--version"], capture_output=True, text=True, check=True
    ).stdout
    inputs = repr((text, command, sources, version, platform.machine()))
    key = hashlib.sha256(inputs.encode()).hexdigest()[:32]
    name = "-".join([Path(file).stem, *(value for _, value in defines)])
    library = BUILT / f"{name}-{key}.so"
    BUILT.mkdir(parents=True, exist_ok=True)
    if not library.exists():
        _compile(text, command, library)
    return ctypes.CDLL(str(library))


def _compile(text: str, command: list[str], library: Path) -> None:
    with tempfile.TemporaryDirectory(dir=BUILT) as folder:
        source = Path(folder, "kernels.cpp")
        compiled = Path(folder, "kernels.so")
        source.write_text(text)
        command = [*command, str(source), "-o", str(compiled)]
        built = subprocess.run(command, capture_output=True, text=True)
        assert built.returncode == 0, built.stderr
        compiled.replace(library)


def _c_argument(value: Any) -> Any:
    """Return a kernel's argument as C has it: of a tensor, the address of its data."""
    if isinstance(value, torch.Tensor):
        return ctypes.c_void_p(value.data_ptr())
    return value


class OnCpu:
    """`cuda.Kernels` for tensors in host memory."""

    def __init__(
        self,
        file: str,
        kernels: Sequence[str],
        defines: Mapping[str, str] | None = None,
    ) -> None:
        """Compile kernels of a file; skip the test where there is no compiler.

        Args:
            file: The file.
            kernels: The names of the kernels.
            defines: Macros.
        """
        if shutil.which("g++") is None:
            pytest.skip("needs g++")
        self.defines = dict(defines or {})
        self._library = _library(file, tuple(kernels), tuple(self.defines.items()))

    def launch(self, name: str, grid: int, block: int, *args: Any) -> None:
        values = [_c_argument(arg) for arg in args]
        addresses = [ctypes.addressof(value) for value in values]
        pointers = (ctypes.c_void_p * len(values))(*addresses)
        status = self._library.launch(name.encode(), grid, block, pointers)
        assert status == 0, f"kernel {name}: {FAILURES[status]}"
