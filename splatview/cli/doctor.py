"""`splatview doctor`: tries for real what splatview needs, one line each, with the mend beside what fails."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from splatview_ipc.system import child_program, entry
from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable

State = Literal["ok", "absent", "broken"]
_PORT = 7007
_MARKS = {"ok": ("ok", "32"), "absent": ("--", "33"), "broken": ("BROKEN", "31")}


@dataclass(frozen=True)
class Finding:
    """What one check found. absent: splatview works without it; broken: something that it needs does not work."""

    name: str
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
    findings = []
    color = sys.stdout.isatty()
    for check in CHECKS:
        finding = _safely(check)
        findings.append(finding)
        if not options.json:
            mark, code = _MARKS[finding.state]
            mark = f"\x1b[{code}m{mark:<6}\x1b[0m" if color else f"{mark:<6}"
            mend = f" -> {finding.mend}" if finding.mend else ""
            print(f"{mark} {finding.name:<15} {printable(finding.detail + mend)}", flush=True)
    if options.json:
        print(json.dumps([vars(f) for f in findings], indent=2))
    return int(any(f.state == "broken" for f in findings))


def check_python() -> Finding:
    version = platform.python_version()
    if sys.platform != "linux":
        return Finding("python", "broken", f"{version} on {sys.platform}", "sharing needs Linux (memfd, /proc)")
    return Finding("python", "ok", f"{version} on {platform.platform(terse=True)}")


def check_torch() -> Finding:
    try:
        import torch
    except Exception as e:
        return Finding("torch", "broken", str(e).splitlines()[0], "pip install torch")
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    return Finding("torch", "ok", f"{torch.__version__}, {build}")


def check_cuda() -> Finding:
    import torch

    if torch.version.cuda is None:
        return Finding("cuda", "absent", "this torch has no CUDA; the CPU is used",
                       "on a machine with an NVIDIA GPU: pip install torch, from pytorch.org")
    if not torch.cuda.is_available():
        return Finding("cuda", "absent", "no GPU that torch can use", "check nvidia-smi and CUDA_VISIBLE_DEVICES")
    names = [f"{torch.cuda.get_device_name(i)} ({_uuid(i)})" for i in range(torch.cuda.device_count())]
    total = float(torch.ones(1000, device="cuda").sum())
    if total != 1000:
        return Finding("cuda", "broken", f"{names[0]} computes 1000 ones to {total}", "check the driver")
    return Finding("cuda", "ok", ", ".join(names))


def _uuid(index: int) -> str:
    from splatview_ipc.control.errors import SharingError
    from splatview_ipc.cuda.driver import gpu_uuid

    try:
        return gpu_uuid(index)
    except SharingError as e:
        return str(e)


def check_ipc() -> Finding:
    """A segment written here and read in another process, as a viewer would."""
    from splatview_ipc.shm.segment import Segment

    segment = Segment(4, "d")
    try:
        segment.map[:4] = b"pong"
        program = ("import sys, os; from splatview_ipc.control.messages import SegmentRef; "
                   "from splatview_ipc.shm.segment import open_segment; "
                   "fd = open_segment(SegmentRef(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]), int(sys.argv[1])); "
                   "print(os.pread(fd, 4, 0).decode())")
        ref = segment.ref
        done = subprocess.run(
            child_program.code_command(program, str(os.getpid()), str(ref.fd), str(ref.size), ref.token),
            env=child_program.environment(), capture_output=True, text=True, timeout=60, check=False)
    finally:
        segment.close()
    if done.stdout.strip() != "pong":
        return Finding("shared memory", "broken", (done.stderr.strip().splitlines() or ["no answer"])[-1],
                       "allow /proc/PID/fd between processes of one user (container options, hidepid)")
    return Finding("shared memory", "ok", "a segment written here was read in another process")


_PUBLISH = """
import sys, time, torch, splatview
image = torch.arange(64 * 64 * 4, device="cuda").remainder(251).to(torch.uint8).view(64, 64, 4)
end = time.monotonic() + 100
while time.monotonic() < end:
    splatview.publish(image, "probe", copy=sys.argv[1] == "device-ring")
    time.sleep(0.02)
"""
_READ = """
import sys, time, torch
from splatview_ipc import Subscriber
end = time.monotonic() + 50
expected = torch.arange(64 * 64 * 4).remainder(251).to(torch.uint8).view(64, 64, 4)
with Subscriber(client="doctor", ways=[sys.argv[1]]) as subscriber:
    while time.monotonic() < end:
        subscriber.poll()
        for stream in subscriber.streams:
            stream.open()
            if stream.fault:
                raise SystemExit(stream.fault)
            frame = stream.read()
            if frame is None:
                continue
            with frame:
                tensor = frame.tensors["image"].torch()
                frame.wait(torch.cuda.current_stream(tensor.device).cuda_stream)
                same = torch.equal(tensor.cpu(), expected)
                if frame.intact():
                    raise SystemExit(0 if same else "other bytes arrived than were published")
        time.sleep(0.01)
raise SystemExit("nothing arrived within 50 s")
"""
_SHARED = {
    "cudaMalloc memory in place": ("in-place", "expandable_segments:False"),
    "expandable segments in place": ("in-place", "expandable_segments:True"),
    "ring in GPU memory": ("device-ring", ""),
}
"""What is shared between two processes: the way, and how torch's allocator is set."""


def check_cuda_ipc() -> Finding:
    """GPU memory published by one process and opened in another, as a viewer would, in each way that there is."""
    import tempfile

    import torch

    if not torch.cuda.is_available():
        return Finding("cuda sharing", "absent", "no CUDA; tensors are shared through host memory")
    with tempfile.TemporaryDirectory(prefix="sv-doctor-") as folder:
        results = _share(folder)
    works = [name for name, why in results.items() if not why]
    words = [f"another process opened: {', '.join(works)}"] if works else []
    words += [f"{name} not: {why}" for name, why in results.items() if why]
    if len(works) == len(results):
        return Finding("cuda sharing", "ok", "; ".join(words))
    return Finding("cuda sharing", "absent", "; ".join(words) + "; such tensors go through pinned host memory",
                   "in containers, start both with --ipc=host --pid=host; MIG and WSL2 cannot share GPU memory")


def _share(folder: str) -> dict[str, str]:
    """Why each of _SHARED does not work; "" where it does. All at a time: each loads torch and CUDA twice."""
    pairs: dict[str, tuple[subprocess.Popen[str], subprocess.Popen[str]]] = {}
    results = {}
    try:
        for i, (name, (way, allocator)) in enumerate(_SHARED.items()):
            env = {**os.environ, "SPLATVIEW_RUNTIME_DIR": os.path.join(folder, str(i)), "SPLATVIEW_STRICT": "1"}
            env.pop("SPLATVIEW_DISABLE", None)
            if allocator:
                env["PYTORCH_CUDA_ALLOC_CONF"] = allocator
            pairs[name] = (_start(_PUBLISH, way, env), _start(_READ, way, env))
        for name, (writer, reader) in pairs.items():
            try:
                _, err = reader.communicate(timeout=100)
            except subprocess.TimeoutExpired:
                err = "no answer within 100 s"
            if reader.returncode == 0:
                results[name] = ""
            elif writer.poll() is not None and writer.stderr is not None:
                results[name] = _last(writer.stderr.read(), writer)
            else:
                results[name] = _last(err, reader)
    finally:
        for process in (p for pair in pairs.values() for p in pair):
            process.kill()
            process.wait()
            if process.stderr is not None:
                process.stderr.close()
    return results


def _start(program: str, way: str, env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(child_program.code_command(program, way), stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True, env=child_program.environment(env))


def _last(err: str, process: subprocess.Popen[str]) -> str:
    return (err.strip().splitlines() or [f"exit code {process.returncode}"])[-1]


def check_gsplat() -> Finding:
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("gsplat")
    except PackageNotFoundError:
        return Finding("gsplat", "absent", "not installed; the OpenGL renderer is used", "pip install gsplat")
    import torch

    if not torch.cuda.is_available():
        return Finding("gsplat", "absent", f"{found}, which needs CUDA; the OpenGL renderer is used")
    program = ("import torch; from gsplat import rasterization as r; o = torch.ones(1, 3, device='cuda'); "
               "m = torch.tensor([[0., 0, 2]], device='cuda'); q = torch.tensor([[1., 0, 0, 0]], device='cuda'); "
               "K = torch.tensor([[[9., 0, 4], [0, 9, 4], [0, 0, 1]]], device='cuda'); "
               "print(float(r(m, q, o * 0.3, o[:, 0] * 0.9, o, torch.eye(4, device='cuda')[None], K, 8, 8)[1].max()))")
    done = subprocess.run(child_program.code_command(program), env=child_program.environment(), capture_output=True,
                          text=True, timeout=600, check=False)
    lines = done.stdout.split()
    if done.returncode or not lines or not 0.5 < float(lines[-1]) < 1:
        why = (done.stderr.strip().splitlines() or ["it draws nothing"])[-1]
        mend = "" if shutil.which("nvcc") else "install the CUDA toolkit (nvcc), which builds its kernels at first use"
        return Finding("gsplat", "absent", f"{found} does not draw: {why}; the OpenGL renderer is used", mend)
    return Finding("gsplat", "ok", f"{found} draws")


def check_gl() -> Finding:
    ok, detail, mend = _probe("egl")
    return Finding("opengl", "ok" if ok else "broken", detail, mend)


def check_interop() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return Finding("cuda to opengl", "absent", "no CUDA; pictures are uploaded from shared memory")
    ok, detail, mend = _probe("interop")
    return Finding("cuda to opengl", "ok" if ok else "absent", detail, mend)


def check_display() -> Finding:
    ok, detail, mend = _probe("window")
    return Finding("display", "ok" if ok else "absent", detail, mend)


def check_browser() -> Finding:
    ok, detail, mend = _probe("web")
    return Finding("browser", "ok" if ok else "broken", detail, mend)


def check_memory() -> Finding:
    from splatview_ipc.system.optional_packages import install_line, installed, missing

    if not installed("numba"):
        return Finding("memory", "absent", "not installed", install_line("memory"))
    ok, detail, mend = _probe("memory")
    if ok and missing("memory"):
        return Finding("memory", "absent", f"{detail}; SQL needs {' and '.join(missing('memory'))}",
                       install_line("memory"))
    return Finding("memory", "ok" if ok else "broken", detail, mend)


def check_video() -> Finding:
    from splatview_ipc.system.optional_packages import install_line, missing

    if missing("video"):
        return Finding("video", "absent", "not installed; films are written as PNGs", install_line("video"))
    ok, detail, mend = _probe("video")
    return Finding("video", "ok" if ok else "broken", detail, mend)


def check_camera() -> Finding:
    """What `splatview camera` needs beyond the rest: libraries that read pictures, and one that runs networks."""
    from splatview.camera.opencv import has_gstreamer
    from splatview.camera.sources import cameras
    from splatview_ipc.system.optional_packages import EXTRAS, install_line, installed, name_of

    modules = (*EXTRAS["camera"], *EXTRAS["video"])
    if not any(map(installed, modules)):
        return Finding("camera", "absent", "not installed", install_line("camera"))
    words, missing = [], []
    for module in modules:
        name = name_of(module)
        try:
            words.append(f"{name} {import_module(module).__version__}")
            if module == "cv2":
                words[-1] += " with GStreamer" if has_gstreamer() else " without GStreamer"
        except ImportError as e:
            missing.append(f"no {name} ({e})")
    words.append(", ".join(cameras()) or "no camera")
    if missing:
        return Finding("camera", "absent", "; ".join([*missing, *words]), install_line("camera"))
    return Finding("camera", "ok", "; ".join(words))


def check_port() -> Finding:
    """Whether the port at which viewers serve browsers is free."""
    import socket

    from splatview_ipc.control.errors import IpcError
    from splatview_ipc.control.registry import viewers

    name = f"port {_PORT}"
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the viewer does
        try:
            s.bind(("127.0.0.1", _PORT))
            return Finding(name, "ok", "free")
        except OSError as e:
            why = e.strerror
    try:
        own = [v for v in viewers() if v.port == _PORT]
    except IpcError:
        own = []  # said by another check
    if own:
        address = own[0].url.partition("/?")[0]  # without the token: this is copied into bug reports
        return Finding(name, "ok", f"your viewer serves there, process {own[0].pid}: {address}")
    return Finding(name, "absent", f"{why}, not by a viewer of yours; splatview serve --web takes the next free one",
                   "choose another with --port")


def check_runtime_folder() -> Finding:
    import tempfile

    from splatview_ipc.control.errors import RuntimeFolderError
    from splatview_ipc.control.run_folder import list_runs, remove_stale, runtime_folder

    try:
        folder = runtime_folder()
    except RuntimeFolderError as e:
        return Finding("runtime folder", "broken", str(e))
    try:
        with tempfile.TemporaryFile(dir=folder) as f:  # a run needs small files there, which a full disk refuses
            f.write(bytes(4096))
    except OSError as e:
        return Finding("runtime folder", "broken", f"{folder}: no run can begin there: {e.strerror}",
                       "make room there, or set SPLATVIEW_RUNTIME_DIR to another folder")
    remove_stale(folder)
    n = len(list_runs(folder))
    return Finding("runtime folder", "ok", f"{folder}, {n} run{'s' * (n != 1)}")


CHECKS: tuple[Callable[[], Finding], ...] = (
    check_python, check_torch, check_cuda, check_ipc, check_cuda_ipc, check_gsplat, check_gl, check_interop,
    check_display, check_browser, check_memory, check_video, check_camera, check_port, check_runtime_folder)


def _safely(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as e:  # a check that fails is a finding, not the end of the examination
        return Finding(check.__name__.removeprefix("check_").replace("_", " "), "broken", f"{type(e).__name__}: {e}")


def _probe(what: str) -> tuple[bool, str, str]:
    """Ask the viewer program, in a process of its own."""
    done = subprocess.run(child_program.command("splatview_viewer.probe", what), env=child_program.environment(),
                          capture_output=True, text=True, timeout=120, check=False)
    try:
        d = json.loads(done.stdout.strip().splitlines()[-1])
        return bool(d["ok"]), str(d["detail"]), str(d["mend"])
    except (IndexError, ValueError, KeyError):
        return False, (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1], ""
