"""gsplat's CUDA kernels: whether they can run here, and getting them without disturbing other processes.

gsplat is installed as source, and compiles its kernels in the process that first needs them, into a folder that all
processes of a user share. It deletes that folder's lock, and the folder, when it finds no finished build there: a
viewer that starts while a trainer compiles would destroy the trainer's build. So the viewer never lets gsplat do
that. It takes the kernels inside the installed package, or has another process compile them into a folder of the
viewer's own, one at a time. A build is loaded as `gsplat.csrc`, where gsplat looks first.
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
from typing import TYPE_CHECKING

from splatview_ipc.system import child_program
from splatview_ipc.system.files import (
    cache_folder,
    check_only_owner_writes,
    make_private,
)
from splatview_viewer.core.errors import RendererError

if TYPE_CHECKING:
    from pathlib import Path

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
"""Compiles in a process of its own, which finishes the work should the viewer end before; those of other viewers wait.
3: there is no compiler."""


def obstacle() -> str:
    """Why gsplat can certainly not run here; "" where it may. Quick: loads neither torch nor gsplat."""
    if importlib.util.find_spec("gsplat") is None:
        return "gsplat is not installed (pip install gsplat)"
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "gsplat needs CUDA, and there is no NVIDIA driver here"
    count = ctypes.c_int()
    if (
        cuda.cuInit(0) != 0
        or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0
        or count.value == 0
    ):
        return "gsplat needs CUDA, and no GPU is visible (see nvidia-smi and CUDA_VISIBLE_DEVICES)"
    return ""


def build_folder() -> Path:
    """Folder of the viewer's own build: one folder for each combination that cannot share kernels."""
    import torch
    from gsplat import __version__ as version

    major, minor = torch.cuda.get_device_capability()
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    return (
        cache_folder()
        / "gsplat"
        / f"{version}-torch{torch.__version__}-{python}-sm{major}{minor}"
    )


class KernelBuild:
    """The kernels on their way, in a thread. Made once per process, by `kernels()`."""

    def __init__(self) -> None:
        self.reason = obstacle()
        """Why there are none, in one line; "" while there still may be."""
        self.ready = False
        """True if gsplat can draw now."""
        self._decided = threading.Event()
        self._moved = threading.Event()
        if self.reason:
            self._decided.set()
            self._moved.set()
        else:
            threading.Thread(
                target=self._run, name="gsplat-kernels", daemon=True
            ).start()

    def wait(self, seconds: float | None = None) -> bool:
        """Until it is decided, one way or the other, or the time is over. Returns `ready`."""
        self._decided.wait(seconds)
        return self.ready

    def wait_unless_building(self, seconds: float) -> bool:
        """Like `wait`, but not for a compiler."""
        self._moved.wait(seconds)
        return self.ready

    def _run(self) -> None:
        try:
            self._get()
            self.ready = True
        except RendererError as e:
            self.reason = str(e)
        except Exception as e:  # a broken installation can fail anywhere
            log.debug("gsplat cannot be used", exc_info=True)
            self.reason = f"gsplat cannot be used: {type(e).__name__}: {' '.join(str(e).split())[:200]}"
        if self.reason:
            log.info("drawing with OpenGL: %s", self.reason)
        self._decided.set()
        self._moved.set()

    def _get(self) -> None:
        import torch

        if not torch.cuda.is_available():
            built = torch.version.cuda is not None
            raise RendererError(
                "gsplat needs CUDA, and "
                + (
                    "torch finds no usable GPU"
                    if built
                    else "this torch is built without it"
                )
            )
        try:
            importlib.import_module("gsplat.csrc")
        except ImportError as e:
            if e.name != "gsplat.csrc":
                log.info(
                    "the kernels that gsplat was installed with do not load: %s", e
                )
        else:
            return
        folder = build_folder()
        try:
            make_private(folder)
            check_only_owner_writes(folder)
        except OSError as e:
            raise RendererError(
                f"gsplat's kernels cannot be built: {folder}: {e.strerror}"
            ) from None
        # Should anything make gsplat compile here after all, let it not be in the trainer's folder.
        if "gsplat.cuda._backend" not in sys.modules:
            os.environ["TORCH_EXTENSIONS_DIR"] = str(folder / "jit")
        library = folder / f"{NAME}.so"
        if not library.exists():
            self._moved.set()  # to wait takes a minute or more
            log.info(
                "building gsplat's kernels, about a minute; drawing with OpenGL meanwhile"
            )
            build(library)
        spec = importlib.util.spec_from_file_location(NAME, library)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        import gsplat

        sys.modules["gsplat.csrc"] = gsplat.csrc = module  # type: ignore[attr-defined]  (where gsplat looks first)


def build(library: Path) -> None:
    """Compile in another process and put the finished library in its place. Raises RendererError."""
    folder = library.parent / "build"
    report = library.parent / "build.log"
    jobs = os.environ.get("MAX_JOBS") or str(
        max(min((os.cpu_count() or 2) // 2, 10), 1)
    )
    nice = ["nice", "-n", "10"] if shutil.which("nice") else []
    env = child_program.environment(
        {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "MAX_JOBS": jobs,
            "TORCH_EXTENSIONS_DIR": str(folder),
            "VERBOSE": "1",
        }
    )
    try:
        done = subprocess.run(
            [
                *nice,
                sys.executable,
                "-P",
                "-c",
                BUILD,
                str(folder / NAME / library.name),
                str(library),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            env=env,
        )
        report.write_text(done.stdout)
    except OSError as e:
        raise RendererError(f"gsplat's kernels cannot be built: {e}") from None
    if done.returncode == 3:
        raise RendererError(
            "gsplat's kernels are not compiled, and there is no nvcc here; install the CUDA toolkit, "
            "or a gsplat wheel with kernels"
        )
    if done.returncode != 0 or not library.exists():
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()] or [
            "no output"
        ]
        said = next((line for line in lines if "error" in line.lower()), lines[-1])[
            :200
        ]
        raise RendererError(f"building gsplat's kernels failed: {said} (see {report})")


@functools.cache
def kernels() -> KernelBuild:
    """This process's; the first call begins to get them."""
    return KernelBuild()


def home_gpu(ctx: moderngl.Context | None) -> int:
    """The ordinal of the GPU that OpenGL draws with, if CUDA knows it; otherwise 0."""
    from splatview_ipc.control.errors import SharingError
    from splatview_ipc.cuda.driver import find_device
    from splatview_ipc.gl.glapi import gl_device_uuid

    try:
        uuid = None if ctx is None else gl_device_uuid(ctx)
        return (None if uuid is None else find_device(uuid)) or 0
    except SharingError:
        return 0
