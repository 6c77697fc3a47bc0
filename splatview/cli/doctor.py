"""`splatview doctor`: tries for real what splatview needs, one line each, with the mend beside what fails."""

from __future__ import annotations

import json
import os
import platform
import re
import socket
import sys
import tempfile
import threading
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from splatview_ipc.system import entry
from splatview_ipc.system.child_program import ChildProgram
from splatview_ipc.system.optional_packages import EXTRAS, NAMES, install_line
from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

State = Literal["ok", "absent", "broken"]
_PORT = 7007
_MODULE = "splatview.cli.doctor"
"""This module runs its trials of sharing as programs."""
_COMPILING_TIMEOUT_S = 1800.0
_MARKS = {"ok": ("ok", "32"), "absent": ("--", "33"), "broken": ("BROKEN", "31")}


@dataclass(frozen=True)
class Finding:
    """Result of one check. absent: splatview works without it; broken: something that it needs does not work."""

    state: State
    detail: str
    mend: str = ""


@dataclass(frozen=True)
class Doctor:
    """Try everything splatview needs on this machine and say how to mend what is missing.

    Exit code 0: publishing and viewing work. 1: something needed is broken.
    """

    json: bool = False
    """Print JSON: [{"name", "state": "ok" | "absent" | "broken", "detail", "mend"}]."""


def main(args: list[str]) -> int:
    options: Doctor = entry.options(Doctor, "splatview doctor", args)
    findings = {}
    color = sys.stdout.isatty()
    for name, check in CHECKS.items():
        try:
            finding = check()
        except (
            Exception
        ) as e:  # a check that fails is a finding, not the end of the examination
            finding = Finding("broken", f"{type(e).__name__}: {e}")
        findings[name] = finding
        if not options.json:
            mark, code = _MARKS[finding.state]
            mark = f"\x1b[{code}m{mark:<6}\x1b[0m" if color else f"{mark:<6}"
            mend = f" -> {finding.mend}" if finding.mend else ""
            print(f"{mark} {name:<15} {printable(finding.detail + mend)}", flush=True)
    if options.json:
        print(
            json.dumps(
                [{"name": name, **vars(f)} for name, f in findings.items()], indent=2
            )
        )
    return int(any(f.state == "broken" for f in findings.values()))


def check_python() -> Finding:
    version = platform.python_version()
    if sys.platform != "linux":
        return Finding(
            "broken",
            f"{version} on {sys.platform}",
            "sharing needs Linux (memfd, /proc)",
        )
    return Finding("ok", f"{version} on {platform.platform(terse=True)}")


def check_torch() -> Finding:
    try:
        import torch
    except Exception as e:
        return Finding("broken", str(e).splitlines()[0], "pip install torch")
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    return Finding("ok", f"{torch.__version__}, {build}")


def check_cuda() -> Finding:
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
    return Finding(
        "ok",
        ", ".join(
            f"{torch.cuda.get_device_name(i)} ({gpu_uuid(i)})"
            for i in range(torch.cuda.device_count())
        ),
    )


def check_shared_memory() -> Finding:
    (why,) = _share(("ring", "cpu", ""))
    if why:
        return Finding(
            "broken",
            why,
            "allow /proc/PID/fd between processes of one user (container options, hidepid)",
        )
    return Finding("ok", "a segment written by one process was read in another")


_ON_GPU = {
    "cudaMalloc memory in place": ("in-place", "cuda", "expandable_segments:False"),
    "expandable segments in place": ("in-place", "cuda", "expandable_segments:True"),
    "ring in GPU memory": ("device-ring", "cuda", ""),
}


def check_cuda_sharing() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return Finding("absent", "no CUDA; tensors are shared through host memory")
    reasons = dict(zip(_ON_GPU, _share(*_ON_GPU.values()), strict=True))
    works = [name for name, why in reasons.items() if not why]
    words = [f"another process opened: {', '.join(works)}"] if works else []
    words += [f"{name} not: {why}" for name, why in reasons.items() if why]
    if len(works) == len(reasons):
        return Finding("ok", "; ".join(words))
    return Finding(
        "absent",
        "; ".join(words) + "; such tensors go through pinned host memory",
        "in containers, start both with --ipc=host --pid=host; MIG and WSL2 cannot share GPU memory",
    )


def _share(*cases: tuple[str, str, str]) -> list[str]:
    """Share an image between two processes for each (transport, device, settings of torch's allocator), all at once:
    each loads torch twice. Return the reasons why that fails, "" where it works.
    """
    with tempfile.TemporaryDirectory(
        prefix="sv-doctor-", ignore_cleanup_errors=True
    ) as folder:
        shared = {
            **os.environ,
            "SPLATVIEW_RUNTIME_DIR": folder,
            "SPLATVIEW_DISABLE": "0",
        }
        programs = [
            ChildProgram(
                _MODULE,
                "share",
                transport,
                device,
                env={**shared, "PYTORCH_CUDA_ALLOC_CONF": allocator}
                if allocator
                else shared,
            )
            for transport, device, allocator in cases
        ]
        return [_ended(program) for program in programs]


def check_cuda_to_opengl() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return Finding("absent", "no CUDA; pictures are uploaded from shared memory")
    return _probe("interop", "absent")


def check_memory() -> Finding:
    words, missing = _versions("memory")
    if missing:
        return Finding("absent", "; ".join([*missing, *words]), install_line("memory"))
    return Finding("ok", "; ".join(words))


def check_video() -> Finding:
    words, missing = _versions("video")
    if missing:
        return Finding(
            "absent", f"{missing[0]}; films are written as PNGs", install_line("video")
        )
    return Finding("ok", words[0])


def check_camera() -> Finding:
    """Libraries that `splatview camera` needs besides: for pictures, and for networks."""
    from splatview.camera.sources import cameras

    words, missing = _versions("camera", "video")
    cv2 = sys.modules.get("cv2")
    if cv2 is not None:
        there = re.search(r"GStreamer:\s+YES", cv2.getBuildInformation())
        words.append(f"{'with' if there else 'without'} GStreamer")
    words.append(
        ", ".join(f"{node} ({name})" for node, name in cameras().items()) or "no camera"
    )
    if missing:
        return Finding("absent", "; ".join([*missing, *words]), install_line("camera"))
    return Finding("ok", "; ".join(words))


def _versions(*extras: str) -> tuple[list[str], list[str]]:
    """Import the packages of extras; return those that work with their versions, and words about the others."""
    words = []
    missing = []
    for module in (module for extra in extras for module in EXTRAS[extra]):
        try:
            words.append(f"{NAMES[module]} {import_module(module).__version__}")
        except ImportError as e:
            missing.append(f"no {NAMES[module]} ({e})")
    return words, missing


def check_port() -> Finding:
    """The port at which viewers serve browsers."""
    from splatview_ipc.control.registry import viewers

    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the viewer does
        try:
            s.bind(("127.0.0.1", _PORT))
            return Finding("ok", "free")
        except OSError as e:
            why = e.strerror
    own = [v for v in viewers() if v.port == _PORT]
    if own:
        address = own[0].url.partition("/?")[
            0
        ]  # without the token: this is copied into bug reports
        return Finding(
            "ok", f"your viewer serves there, process {own[0].pid}: {address}"
        )
    return Finding(
        "absent",
        f"{why}, not by a viewer of yours; splatview serve --web takes the next free one",
        "choose another with --port",
    )


def check_runtime_folder() -> Finding:
    from splatview_ipc.control.errors import RuntimeFolderError
    from splatview_ipc.control.run_folder import list_runs, remove_stale, runtime_folder

    try:
        folder = runtime_folder()
        with tempfile.TemporaryFile(
            dir=folder
        ) as f:  # a run needs small files there, which a full disk refuses
            f.write(bytes(4096))
    except (OSError, RuntimeFolderError) as e:
        return Finding(
            "broken",
            str(e),
            "make room there, or set SPLATVIEW_RUNTIME_DIR to another folder",
        )
    remove_stale(folder)
    n = len(list_runs(folder))
    return Finding("ok", f"{folder}, {n} run{'s' * (n != 1)}")


def _probe(what: str, otherwise: State, timeout_s: float = 120.0) -> Finding:
    """Try something in the viewer's program; it is `otherwise` where that does not work."""
    lines: list[str] = []
    why = _ended(
        ChildProgram("splatview_viewer.app.probe", what, on_output=lines.append),
        timeout_s,
    )
    if why:
        return Finding(otherwise, why)
    found = json.loads(lines[-1])
    return Finding("ok" if found["ok"] else otherwise, found["detail"], found["mend"])


def _ended(program: ChildProgram, timeout_s: float = 120.0) -> str:
    """Wait for the end of a program; return the reason if it failed."""
    code = program.wait(timeout_s)
    program.end()
    if code == 0:
        return ""
    if code is None:
        return f"no answer within {timeout_s:g} s"
    return f"{program.last_words().splitlines()[-1]} (code {code})"


CHECKS: dict[str, Callable[[], Finding]] = {
    "python": check_python,
    "torch": check_torch,
    "cuda": check_cuda,
    "shared memory": check_shared_memory,
    "cuda sharing": check_cuda_sharing,
    "gsplat": partial(_probe, "gsplat", "absent", _COMPILING_TIMEOUT_S),
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


def _image(device: str) -> torch.Tensor:
    import torch

    return (
        torch.arange(64 * 64 * 4, device=device)
        .remainder(251)
        .to(torch.uint8)
        .view(64, 64, 4)
    )


def publish(transport: str, device: str) -> None:
    """Publish an image until this process is ended."""
    import splatview

    splatview.publish(_image(device), "probe", copy=transport != "in-place")
    threading.Event().wait()


def share(transport: str, device: str) -> None:
    """Read what `publish` publishes in another process, by one transport alone, as a viewer would."""
    import torch

    from splatview_ipc.subscriber.subscriber import Subscriber

    writer = ChildProgram(_MODULE, "publish", transport, device)
    with Subscriber(
        str(writer.pid), client="doctor", transports=[transport]
    ) as subscriber:
        while writer.running():
            subscriber.poll()
            for stream in subscriber.streams:
                stream.open()
                if stream.fault:
                    sys.exit(stream.fault)
                frame = stream.read()
                if frame is None:
                    continue
                with frame:
                    image: Any = frame.tensors["image"]
                    if frame.on_gpu:
                        tensor = image.torch()
                    else:
                        tensor = torch.from_numpy(image.array)
                    if frame.on_gpu:
                        frame.wait(torch.cuda.current_stream(tensor.device).cuda_stream)
                    same = torch.equal(tensor.cpu(), _image("cpu"))
                    if frame.intact():
                        sys.exit(
                            0 if same else "other bytes arrived than were published"
                        )
            threading.Event().wait(0.01)
    sys.exit(writer.last_words())


if __name__ == "__main__":
    sys.exit(
        entry.run(
            lambda: {"publish": publish, "share": share}[sys.argv[1]](*sys.argv[2:])
        )
    )
