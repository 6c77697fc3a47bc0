"""The viewer's CUDA kernels compiled for the CPU (`kernels_on_cpu.h`), to be launched as on a GPU."""

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

from support.programs import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = Path(__file__).parent
SOURCE = """
#include "kernels_on_cpu.h"
#include "common.cuh"
#include "{file}"
#define ON(kernel, lockstep) if (!strcmp(name, #kernel)) return run(kernel, lockstep, grid, block, args);
extern "C" int launch(const char *name, int grid, int block, void **args) {{
    {kernels}
    return 1;
}}
"""
FAILURES = {
    1: "there is none of that name",
    2: "some lanes of a warp wait more often than others",
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
    kernels: tuple[tuple[str, bool], ...],
    defines: tuple[tuple[str, str], ...],
) -> ctypes.CDLL:
    """Compile what is not there from an earlier run: compilers take seconds."""
    text = SOURCE.format(
        file=file,
        kernels="\n    ".join(
            f"ON({name}, {str(step).lower()})" for name, step in kernels
        ),
    )
    command = [*COMPILER, *(f"-D{name}={value}" for name, value in defines)]
    included = [
        path.read_text()
        for path in (FOLDER / "kernels_on_cpu.h", *sorted(KERNELS.glob("*.cu*")))
    ]
    version = subprocess.run(
        [COMPILER[0], "--version"], capture_output=True, text=True, check=True
    ).stdout
    key = hashlib.sha256(
        repr((text, command, included, version, platform.machine())).encode()
    ).hexdigest()[:32]
    name = "-".join([Path(file).stem, *(value for _, value in defines)])
    library = BUILT / f"{name}-{key}.so"
    BUILT.mkdir(parents=True, exist_ok=True)
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=BUILT) as folder:
            source = Path(folder, "kernels.cpp")
            made = Path(folder, "kernels.so")
            source.write_text(text)
            built = subprocess.run(
                [*command, str(source), "-o", str(made)], capture_output=True, text=True
            )
            assert built.returncode == 0, built.stderr
            made.replace(library)
    return ctypes.CDLL(str(library))


class OnCpu:
    """`cuda.Kernels` for tensors in host memory. Skips the test where there is no compiler."""

    def __init__(
        self,
        file: str,
        kernels: Mapping[str, bool],
        defines: Mapping[str, str] | None = None,
    ) -> None:
        """`kernels` of `file`, and whether a warp of each goes in step because it uses shared memory."""
        if shutil.which("g++") is None:
            pytest.skip("needs g++")
        self.defines = dict(defines or {})
        self._library = _library(
            file, tuple(kernels.items()), tuple(self.defines.items())
        )

    def launch(self, name: str, grid: int, block: int, *args: Any) -> None:
        values = [
            ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else a
            for a in args
        ]
        pointers = (ctypes.c_void_p * len(values))(
            *(ctypes.addressof(v) for v in values)
        )
        done = self._library.launch(name.encode(), grid, block, pointers)
        assert done == 0, f"kernel {name}: {FAILURES[done]}"
