"""The command `splatview doctor`: try everything that splatview needs, one line each.

Beside what fails stands how to repair it.
"""

from __future__ import annotations

import json
import os
import platform
import re
import socket
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import tyro

from splatview.cli import sharing_trial
from splatview_ipc.control import limits
from splatview_ipc.system import entry
from splatview_ipc.system.child_program import ChildProgram
from splatview_ipc.system.optional_packages import (
    DISPLAY_NAMES,
    EXTRAS,
    install_line,
    missing_viewer_packages,
)
from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable

State = Literal["ok", "absent", "broken"]
_PORT = 7007
_TIMEOUT_S = 120.0
_MARKS = {"ok": ("ok", "32"), "absent": ("--", "33"), "broken": ("BROKEN", "31")}
"""Text and terminal's colour of each state."""


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    "absent": splatview works without it. "broken": something that it needs does not
    work.
    """

    state: State
    detail: str
    advice: str = ""
    """How to repair it."""


@dataclass(frozen=True)
class Doctor:
    """Try all that splatview needs on this machine, and say how to mend what is missing.

    Exit code 0: publishing and viewing work. 1: something needed is broken.

    Examples:

        splatview doctor                       # one line for each part
        splatview doctor --json                # for programs and reports of faults
    """

    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON: [{"name", "state": "ok" | "absent" | "broken", "detail", "mend"}]."""


def main(args: list[str]) -> int:
    """Run `splatview doctor` with these arguments.

    Returns:
        The exit status: 1 if something that splatview needs is broken.
    """
    options: Doctor = entry.parse_options(Doctor, "splatview doctor", args)
    findings: dict[str, Finding] = {}
    for name, check in CHECKS.items():
        try:
            findings[name] = check()
        except Exception as error:
            # A check that fails is a finding, not the end of the examination.
            findings[name] = Finding("broken", f"{type(error).__name__}: {error}")
        if not options.json:
            _print_finding(name, findings[name])
    if options.json:
        print(json.dumps(_as_json(findings), indent=2))
    return int(any(finding.state == "broken" for finding in findings.values()))


def _print_finding(name: str, finding: Finding) -> None:
    """Print the line of a check."""
    mark, color = _MARKS[finding.state]
    mark = f"{mark:<6}"
    if sys.stdout.isatty():
        mark = f"\x1b[{color}m{mark}\x1b[0m"
    text = finding.detail
    if finding.advice:
        text += f" -> {finding.advice}"
    print(f"{mark} {name:<15} {printable(text)}", flush=True)


def _as_json(findings: dict[str, Finding]) -> list[dict[str, str]]:
    """Return findings as they are printed in JSON."""
    return [
        {
            "name": name,
            "state": finding.state,
            "detail": finding.detail,
            "mend": finding.advice,
        }
        for name, finding in findings.items()
    ]


def check_splatview() -> Finding:
    """Name this version, and the protocol that a run's viewer must speak as well."""
    return Finding("ok", f"{limits.VERSION}, protocol {limits.PROTOCOL}")


def check_python() -> Finding:
    """Check the system on which Python runs."""
    version = platform.python_version()
    if sys.platform != "linux":
        return Finding(
            "broken",
            f"{version} on {sys.platform}",
            "sharing needs Linux (memfd, /proc)",
        )
    return Finding("ok", f"{version} on {platform.platform(terse=True)}")


def check_torch() -> Finding:
    """Check that torch can be imported."""
    try:
        import torch
    except Exception as error:
        return Finding("broken", str(error).splitlines()[0], "pip install torch")
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    return Finding("ok", f"{torch.__version__}, {build}")


def check_cuda() -> Finding:
    """Check that torch computes on a GPU."""
    import torch

    from splatview_ipc.cuda.driver import gpu_uuid

    if torch.version.cuda is None:
        return Finding(
            "absent",
            "this torch has no CUDA; the CPU is used",
            "on a machine with an NVIDIA GPU: pip install torch, from pytorch.org",
        )
    if not torch.cuda.is_available():
        return Finding(
            "absent",
            "no GPU that torch can use",
            "check nvidia-smi and CUDA_VISIBLE_DEVICES",
        )
    torch.ones(1000, device="cuda").sum().item()
    indices = range(torch.cuda.device_count())
    gpus = [f"{torch.cuda.get_device_name(i)} ({gpu_uuid(i)})" for i in indices]
    return Finding("ok", ", ".join(gpus))


class _SharingTrial(NamedTuple):
    """A way to share an image between two processes."""

    transport: str
    device: str
    allocator: str = ""
    """Settings of torch's allocator; "" for its own."""


_ON_GPU = {
    "cudaMalloc memory in place": _SharingTrial(
        "in-place", "cuda", "expandable_segments:False"
    ),
    "expandable segments in place": _SharingTrial(
        "in-place", "cuda", "expandable_segments:True"
    ),
    "ring in GPU memory": _SharingTrial("device-ring", "cuda"),
}


def check_shared_memory() -> Finding:
    """Check that two processes share memory of the CPU."""
    (reason,) = _share(_SharingTrial("ring", "cpu"))
    if reason:
        return Finding(
            "broken",
            reason,
            "permit memfd_create, and descriptors over Unix sockets, in the container's "
            "security profile",
        )
    return Finding("ok", "a segment written by one process was read in another")


def check_cuda_sharing() -> Finding:
    """Check that two processes share memory of the GPU."""
    import torch

    if not torch.cuda.is_available():
        return Finding("absent", "no CUDA; tensors are shared through host memory")
    reasons = dict(zip(_ON_GPU, _share(*_ON_GPU.values()), strict=True))
    working = [name for name, reason in reasons.items() if not reason]
    details = []
    if working:
        details.append(f"another process opened: {', '.join(working)}")
    details += [f"{name} not: {reason}" for name, reason in reasons.items() if reason]
    if len(working) == len(reasons):
        return Finding("ok", "; ".join(details))
    return Finding(
        "absent",
        "; ".join(details) + "; such tensors go through pinned host memory",
        "in containers, start both with --ipc=host --pid=host; MIG and WSL2 cannot share "
        "GPU memory",
    )


def _share(*trials: _SharingTrial) -> list[str]:
    """Share an image between two processes in several ways, all at once.

    At once, because each process loads torch.

    Returns:
        The reasons why that fails, "" where it works.
    """
    with tempfile.TemporaryDirectory(
        prefix="sv-doctor-", ignore_cleanup_errors=True
    ) as folder:
        programs = [_start_trial(trial, folder) for trial in trials]
        return [_failure_of(program) for program in programs]


def _start_trial(trial: _SharingTrial, folder: str) -> ChildProgram:
    """Start the program that reads what it has published; its runs are in a folder."""
    env = {**os.environ, "SPLATVIEW_RUNTIME_DIR": folder, "SPLATVIEW_DISABLE": "0"}
    if trial.allocator:
        env["PYTORCH_CUDA_ALLOC_CONF"] = trial.allocator
    return ChildProgram(
        sharing_trial.MODULE, "read", trial.transport, trial.device, env=env
    )


def check_cuda_to_opengl() -> Finding:
    """Check that OpenGL reads memory of CUDA."""
    import torch

    if not torch.cuda.is_available():
        return Finding("absent", "no CUDA; pictures are uploaded from shared memory")
    return _probe("interop", "absent")


def check_viewer() -> Finding:
    """Check that the viewer's packages are installed."""
    missing = missing_viewer_packages()
    if missing:
        return Finding("broken", f"it needs {', '.join(missing)}", install_line())
    return Finding("ok", "its packages are installed")


def check_memory() -> Finding:
    """Check the libraries that memory snapshots need."""
    versions, missing = _versions("memory")
    if missing:
        return Finding(
            "absent", "; ".join([*missing, *versions]), install_line("memory")
        )
    return Finding("ok", "; ".join(versions))


def check_video() -> Finding:
    """Check the library that films need."""
    versions, missing = _versions("video")
    if missing:
        return Finding(
            "absent", f"{missing[0]}; films are written as PNGs", install_line("video")
        )
    return Finding("ok", versions[0])


def check_camera() -> Finding:
    """Check the libraries of `splatview camera`, for pictures and for networks."""
    from splatview.camera.sources import cameras

    details, missing = _versions("camera", "video")
    cv2 = sys.modules.get("cv2")
    if cv2 is not None:
        has_gstreamer = re.search(r"GStreamer:\s+YES", cv2.getBuildInformation())
        details.append("with GStreamer" if has_gstreamer else "without GStreamer")
    nodes = [f"{node} ({name})" for node, name in cameras().items()]
    details.append(", ".join(nodes) or "no camera")
    if missing:
        return Finding(
            "absent", "; ".join([*missing, *details]), install_line("camera")
        )
    return Finding("ok", "; ".join(details))


def _versions(*extras: str) -> tuple[list[str], list[str]]:
    """Import the packages of extras.

    Returns:
        The packages that work with their versions, and a text about each other one.
    """
    versions = []
    missing = []
    for extra in extras:
        for module in EXTRAS[extra]:
            try:
                versions.append(
                    f"{DISPLAY_NAMES[module]} {import_module(module).__version__}"
                )
            except ImportError as error:
                missing.append(f"no {DISPLAY_NAMES[module]} ({error})")
    return versions, missing


def check_port() -> Finding:
    """Check the port at which viewers serve browsers."""
    from splatview_ipc.control.registry import list_viewers

    with socket.socket() as listener:
        # As the viewer does.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", _PORT))
            return Finding("ok", "free")
        except OSError as error:
            reason = error.strerror
    for viewer in list_viewers():
        if viewer.port == _PORT:
            # Without the token: this is copied into bug reports.
            address = viewer.url.partition("/?")[0]
            return Finding(
                "ok", f"your viewer serves there, process {viewer.pid}: {address}"
            )
    return Finding(
        "absent",
        f"{reason}, not by a viewer of yours; splatview serve --web takes the next free "
        "one",
        "choose another with --port",
    )


def check_runtime_folder() -> Finding:
    """Check that runs can be written and found."""
    from splatview_ipc.control.errors import RuntimeFolderError
    from splatview_ipc.control.missing_runs import other_places
    from splatview_ipc.control.run_folder import list_runs, remove_stale, runtime_folder

    try:
        folder = runtime_folder()
        # A run needs small files there, which a full disk refuses.
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(4096))
    except (OSError, RuntimeFolderError) as error:
        return Finding(
            "broken",
            str(error),
            "make room there, or set SPLATVIEW_RUNTIME_DIR to another folder",
        )
    remove_stale(folder)
    count = len(list_runs(folder))
    detail = f"{folder}, {count} run{'s' * (count != 1)}"
    places = other_places(folder)
    if places and count == 0:
        detail += f"; {places}"
    return Finding("ok", detail)


def _probe(subject: str, otherwise: State) -> Finding:
    """Try something in the viewer's program.

    Args:
        subject: as `splatview_viewer.app.probe` names it.
        otherwise: state where that does not work.
    """
    if missing_viewer_packages():
        return Finding("absent", "not tried without the viewer's packages")
    lines: list[str] = []
    program = ChildProgram(
        "splatview_viewer.app.probe", subject, on_output=lines.append
    )
    failure = _failure_of(program)
    if failure:
        return Finding(otherwise, failure)
    report = json.loads(lines[-1])
    state = "ok" if report["ok"] else otherwise
    return Finding(state, report["detail"], report["mend"])


def _failure_of(program: ChildProgram) -> str:
    """Wait for the end of a program; return the reason if it failed."""
    code = program.wait(_TIMEOUT_S)
    program.end()
    if code == 0:
        return ""
    if code is None:
        return f"no answer within {_TIMEOUT_S:g} s"
    return f"{program.last_error_lines().splitlines()[-1]} (code {code})"


CHECKS: dict[str, Callable[[], Finding]] = {
    "splatview": check_splatview,
    "python": check_python,
    "torch": check_torch,
    "cuda": check_cuda,
    "shared memory": check_shared_memory,
    "cuda sharing": check_cuda_sharing,
    "viewer": check_viewer,
    "gsplat": partial(_probe, "gsplat", "absent"),
    "opengl": partial(_probe, "egl", "broken"),
    "cuda to opengl": check_cuda_to_opengl,
    "display": partial(_probe, "window", "absent"),
    "browser": partial(_probe, "web", "broken"),
    "sandbox": partial(_probe, "sandbox", "absent"),
    "memory": check_memory,
    "video": check_video,
    "camera": check_camera,
    f"port {_PORT}": check_port,
    "runtime folder": check_runtime_folder,
}
