"""Describe the machine and the software that figures are measured with."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import ROOT


@dataclass(frozen=True)
class Machine:
    """Processor, GPU and OpenGL of a machine; None where it has none or hides it."""

    cpu: str
    cores: int
    gpu: str | None = None
    driver: str | None = None
    """Version of the GPU's driver."""
    renderer: str | None = None
    """What draws, by OpenGL."""

    @property
    def key(self) -> str:
        """Return the part of file names that tells this machine from others."""
        name = self.gpu or f"{self.cpu} {self.cores} cores"
        return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")

    @property
    def name(self) -> str:
        """Return the name of what computes, such as "H200" or "EPYC"."""
        if self.gpu is not None:
            return self.gpu.removeprefix("NVIDIA ")
        return self.cpu.removeprefix("AMD ")

    @property
    def label(self) -> str:
        """Return the name with the number of cores, such as "EPYC, 2 cores"."""
        return f"{self.name}, {self.cores} cores"


def this_machine() -> Machine:
    """Describe this machine."""
    import torch

    gpu = None
    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_name()
    return Machine(
        cpu=_cpu_model(),
        cores=os.cpu_count() or 1,
        gpu=gpu,
        driver=_output(
            "nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"
        ),
        renderer=_opengl_renderer(),
    )


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that figures depend on."""
    installed = {"python": platform.python_version()}
    for package in ("torch", "gsplat"):
        with suppress(importlib.metadata.PackageNotFoundError):
            installed[package] = importlib.metadata.version(package)
    return installed


def commit() -> str | None:
    """Return the commit of this source tree, marked when files differ from it."""
    return _output(
        "git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"
    )


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _opengl_renderer() -> str | None:
    from splatview_viewer.core.errors import GraphicsError
    from splatview_viewer.screens.egl import create_context

    try:
        context = create_context()
    except GraphicsError:
        return None
    renderer = str(context.info["GL_RENDERER"])
    context.release()
    return renderer


def _output(*command: str) -> str | None:
    """Return the first line that a program prints, None where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    lines = done.stdout.splitlines()
    return next(iter(lines), None)
