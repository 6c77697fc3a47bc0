"""gsplat's CUDA kernels: getting them without disturbing other processes.

gsplat is installed as source, and compiles its kernels in the process that first needs
them (1.5) or imports it (1.6), into a folder that all processes of a user share. It deletes
that folder's lock, and the folder, when it finds no finished build there: a viewer that
starts while a trainer compiles would destroy the trainer's build. So the viewer never lets
gsplat do that, and does not import it before there are kernels. It takes those inside the
installed package, or has another process compile them into a folder of the viewer's own,
one at a time. A build is loaded as `gsplat.csrc`, where gsplat looks first.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import threading
from importlib.machinery import PathFinder
from importlib.metadata import version
from typing import TYPE_CHECKING

from splatview_ipc.system import child_program
from splatview_ipc.system.files import (
    cache_folder,
    check_only_owner_writes,
    make_private,
)
from splatview_viewer.core.errors import RendererError

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from pathlib import Path
    from types import ModuleType

    import moderngl

log = logging.getLogger("splatview")

NAME = "gsplat_cuda"
"""gsplat's name for what it compiles: of the folder, the library and the module in it."""
BUILD = """
import fcntl, os, shutil, sys
built, library = sys.argv[1:]
with open(library + ".lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    if os.path.exists(library):
        sys.exit()
    folder = os.environ["TORCH_EXTENSIONS_DIR"]
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder, 0o700)
    try:
        from gsplat.cuda._backend import _C
        if _C is None:
            sys.exit(3)
        os.replace(built, library)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
"""
"""Compiles in a process of its own, which finishes the work should the viewer end before;
those of other viewers wait."""
NO_COMPILER = 3
"""Exit status of BUILD where there is no compiler."""


def obstacle() -> str:
    """Return the reason why gsplat can certainly not run here; "" where it may.

    Quick: loads neither torch nor gsplat.
    """
    if importlib.util.find_spec("gsplat") is None:
        return "gsplat is not installed (pip install gsplat)"
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "gsplat needs CUDA, and there is no NVIDIA driver here"
    count = ctypes.c_int()
    has_failed = cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0
    if has_failed or count.value == 0:
        return (
            "gsplat needs CUDA, and no GPU is visible (see nvidia-smi and "
            "CUDA_VISIBLE_DEVICES)"
        )
    return ""


def build_folder() -> Path:
    """Return the folder of the viewer's own build.

    There is one for each combination that cannot share kernels.
    """
    import torch

    major, minor = torch.cuda.get_device_capability()
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    name = f"{version('gsplat')}-torch{torch.__version__}-{python}-sm{major}{minor}"
    return cache_folder() / "gsplat" / name


class KernelBuild:
    """The kernels on their way, in a thread. Made once per process, by `kernels()`."""

    def __init__(self) -> None:
        self.reason = obstacle()
        """Reason why there are none, in one line; "" while there still may be."""
        self.ready = False
        """True if gsplat can draw now."""
        self._decided = threading.Event()
        """Set when the kernels are ready, or never will be."""
        self._decided_or_building = threading.Event()
        if self.reason:
            self._decided.set()
            self._decided_or_building.set()
        else:
            thread = threading.Thread(
                target=self._run, name="gsplat-kernels", daemon=True
            )
            thread.start()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is decided, or the time is over; return `ready`."""
        self._decided.wait(seconds)
        return self.ready

    def wait_unless_building(self, seconds: float) -> bool:
        """Wait as `wait` does, but not for a compiler."""
        self._decided_or_building.wait(seconds)
        return self.ready

    def _run(self) -> None:
        try:
            self._load()
            self.ready = True
        except RendererError as e:
            self.reason = str(e)
        except Exception as e:
            # A broken installation can fail anywhere.
            log.debug("gsplat cannot be used", exc_info=True)
            message = " ".join(str(e).split())[:200]
            self.reason = f"gsplat cannot be used: {type(e).__name__}: {message}"
        if self.reason:
            log.info("drawing with OpenGL: %s", self.reason)
        self._decided.set()
        self._decided_or_building.set()

    def _load(self) -> None:
        """Load the installed kernels, or the viewer's own, which are built if needed."""
        _check_torch()
        if _has_installed_kernels():
            return
        folder = build_folder()
        try:
            make_private(folder)
            check_only_owner_writes(folder)
        except OSError as e:
            raise RendererError(
                f"gsplat's kernels cannot be built: {folder}: {e.strerror}"
            ) from None
        # Should anything make gsplat compile here after all, let it not be in the
        # trainer's folder.
        if "gsplat.cuda._backend" not in sys.modules:
            os.environ["TORCH_EXTENSIONS_DIR"] = str(folder / "jit")
        library = folder / f"{NAME}.so"
        if not library.exists():
            # To wait takes a minute or more.
            self._decided_or_building.set()
            log.info(
                "building gsplat's kernels, about a minute; drawing with OpenGL meanwhile"
            )
            build(library)
        _load_library(library)


def _check_torch() -> None:
    """Raise RendererError unless torch can use a GPU."""
    import torch

    if torch.cuda.is_available():
        return
    if torch.version.cuda is None:
        raise RendererError("gsplat needs CUDA, and this torch is built without it")
    raise RendererError("gsplat needs CUDA, and torch finds no usable GPU")


def _has_installed_kernels() -> bool:
    """Return True if gsplat was installed with kernels, and they load; then load gsplat."""
    package = importlib.util.find_spec("gsplat")
    assert package is not None
    spec = PathFinder.find_spec("gsplat.csrc", package.submodule_search_locations)
    if spec is None:
        return False
    # A second load would register its types again, which fails.
    kernels = sys.modules.get("gsplat.csrc")
    if kernels is None:
        try:
            kernels = _load_module(spec)
        except ImportError as e:
            log.info("the kernels that gsplat was installed with do not load: %s", e)
            return False
    _load_gsplat(kernels)
    return True


def _load_library(library: Path) -> None:
    """Load gsplat with the viewer's own build."""
    spec = importlib.util.spec_from_file_location(NAME, library)
    assert spec is not None
    _load_gsplat(_load_module(spec))


def _load_module(spec: ModuleSpec) -> ModuleType:
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _load_gsplat(kernels: ModuleType) -> None:
    """Import gsplat with kernels in the place where it looks first."""
    sys.modules["gsplat.csrc"] = kernels
    gsplat = importlib.import_module("gsplat")
    gsplat.csrc = kernels  # type: ignore[attr-defined]


def build(library: Path) -> None:
    """Compile in another process and put the finished library in its place.

    Raises:
        RendererError: there is no compiler, or it failed.
    """
    report = library.parent / "build.log"
    try:
        process = _run_build(library)
        report.write_text(process.stdout)
    except OSError as e:
        raise RendererError(f"gsplat's kernels cannot be built: {e}") from None
    if process.returncode == NO_COMPILER:
        raise RendererError(
            "gsplat's kernels are not compiled, and there is no nvcc here; install the "
            "CUDA toolkit, or a gsplat wheel with kernels"
        )
    if process.returncode != 0 or not library.exists():
        error = _error_line(process.stdout)
        raise RendererError(f"building gsplat's kernels failed: {error} (see {report})")


def _run_build(library: Path) -> subprocess.CompletedProcess[str]:
    """Run BUILD at a low priority, with at most half of the processors."""
    folder = library.parent / "build"
    half = max(min((os.cpu_count() or 2) // 2, 10), 1)
    nice = ["nice", "-n", "10"] if shutil.which("nice") else []
    environment = child_program.environment(
        {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "MAX_JOBS": os.environ.get("MAX_JOBS") or str(half),
            "TORCH_EXTENSIONS_DIR": str(folder),
            "VERBOSE": "1",
        }
    )
    built = folder / NAME / library.name
    return subprocess.run(
        [*nice, sys.executable, "-P", "-c", BUILD, str(built), str(library)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        env=environment,
    )


def _error_line(output: str) -> str:
    """Return the line of a compiler's output that tells most."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for line in lines:
        if "error" in line.lower():
            return line[:200]
    if lines:
        return lines[-1][:200]
    return "no output"


@functools.cache
def kernels() -> KernelBuild:
    """Return this process's kernels; the first call begins to get them."""
    return KernelBuild()


def home_gpu(ctx: moderngl.Context | None) -> int:
    """Return the ordinal of the GPU that OpenGL draws with, if CUDA knows it; otherwise 0."""
    from splatview_ipc.control.errors import SharingError
    from splatview_ipc.cuda.driver import find_device
    from splatview_ipc.gl.glapi import gl_device_uuid

    if ctx is None:
        return 0
    try:
        uuid = gl_device_uuid(ctx)
        if uuid is None:
            return 0
        return find_device(uuid) or 0
    except SharingError:
        return 0
