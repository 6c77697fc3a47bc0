"""Tries of the viewer's parts on this machine.

A program of its own, so that a driver that crashes takes nothing along. `python -m
splatview_viewer.app.probe egl|window|gsplat|interop|web|sandbox` prints one JSON
object: {"ok": bool, "detail": str, "mend": str}.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import moderngl

    from splatview_viewer.formats.confinement import Examined

_EGL_ADVICE = "apt-get install libegl1 libgl1-mesa-dri"
_GL_ADVICE = "apt-get install libgl1 libglx-mesa0 libgl1-mesa-dri"
_NVIDIA_ADVICE = (
    "let the program see NVIDIA's OpenGL (in a container: "
    "NVIDIA_DRIVER_CAPABILITIES=all; on a laptop: __NV_PRIME_RENDER_OFFLOAD=1 "
    "__GLX_VENDOR_LIBRARY_NAME=nvidia)"
)
_KERNEL_ADVICE = (
    "a kernel of 5.13 or later with landlock among its security modules (lsm=); in a "
    "container, a seccomp profile that permits landlock_create_ruleset and seccomp"
)


class Broken(Exception):  # noqa: N818  (a finding)
    """A part does not work: the detail, and what to do about it."""

    def __init__(self, detail: object, advice: str = "") -> None:
        super().__init__(str(detail))
        self.advice = advice


def _context() -> moderngl.Context:
    """Make an offscreen context. Raises Broken."""
    from splatview_viewer.core.errors import GraphicsError
    from splatview_viewer.screens.egl import create_context

    try:
        return create_context()
    except GraphicsError as e:
        raise Broken(e, _EGL_ADVICE) from None


def probe_egl() -> str:
    """Make an offscreen context."""
    info = _context().info
    return f"{info['GL_RENDERER']}, OpenGL {info['GL_VERSION'].split()[0]}, by EGL"


def probe_window() -> str:
    """Open a window that is not visible."""
    display = os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY")
    if not display:
        raise Broken(
            "no display (DISPLAY and WAYLAND_DISPLAY are unset)",
            "not needed: splatview serve --web, or splatview shot OUT.png",
        )
    from splatview_viewer.core.errors import GraphicsError
    from splatview_viewer.screens.window import WindowScreen

    try:
        screen = WindowScreen(64, 64, visible=False)
    except GraphicsError as e:
        advice = f"check DISPLAY, xhost, ssh -X; {_GL_ADVICE}"
        raise Broken(f"display {display!r}: {e}", advice) from None
    renderer = screen.ctx.info["GL_RENDERER"]
    screen.close()
    return f"display {display}, {renderer}"


def probe_interop() -> str:
    """Try the bridges from CUDA tensors to OpenGL (`splatview_ipc.gl`) with pictures."""
    from splatview_ipc.control.errors import SharingError
    from splatview_ipc.gl.probe import BRIDGES, forced_bridge, probe

    try:
        forced_bridge()
    except SharingError as e:
        raise Broken(e) from None
    ctx = _context()
    gpu = _compare_gpus(ctx)
    reasons = {name: probe(ctx, name) for name in BRIDGES}
    working = [name for name, reason in reasons.items() if not reason]
    verb = "work" if len(working) > 1 else "works"
    findings = [gpu.detail, f"{', '.join(working)} {verb}"]
    findings += [f"{name} does not: {r}" for name, r in reasons.items() if r]
    detail = "; ".join(findings)
    if any(reasons.values()):
        raise Broken(detail, gpu.advice)
    return detail


@dataclass(slots=True)
class _GpuFinding:
    detail: str
    advice: str = ""


def _compare_gpus(ctx: moderngl.Context) -> _GpuFinding:
    """Return whether OpenGL draws on a GPU that CUDA sees."""
    from splatview_ipc.control.errors import SharingError
    from splatview_ipc.cuda import driver
    from splatview_ipc.gl.glapi import gl_device_uuid

    gl_gpu = gl_device_uuid(ctx)
    if gl_gpu is None:
        return _GpuFinding(
            "OpenGL does not say which GPU it draws on, so it is not NVIDIA's",
            _NVIDIA_ADVICE,
        )
    try:
        index = driver.find_device(gl_gpu)
    except SharingError as e:
        return _GpuFinding(f"CUDA cannot be asked ({e})")
    if index is None:
        return _GpuFinding(
            f"OpenGL draws on GPU {gl_gpu}, which CUDA does not see",
            "check CUDA_VISIBLE_DEVICES",
        )
    return _GpuFinding(f"OpenGL draws on CUDA's GPU {index}")


def probe_web() -> str:
    """Encode a picture for browsers with the encoder that is used here."""
    import aiohttp
    import numpy as np

    from splatview_viewer.core.errors import ViewerError
    from splatview_viewer.web.encoders import choose_encoder

    ctx = _context()
    pixels: Any = np.full((48, 64, 4), 255, np.uint8)
    advice = "pip install --force-reinstall simplejpeg"
    try:
        encoder = choose_encoder(ctx)
        if encoder.device is not None:
            import torch

            advice = (
                "update the graphics driver; until then CUDA_VISIBLE_DEVICES= "
                "splatview "
                "serve --web"
            )
            pixels = torch.from_numpy(pixels).cuda()
        encoder.encode(pixels, 90)
        encoder.close()
    except ViewerError as e:
        raise Broken(e, advice) from None
    detail = f"aiohttp {aiohttp.__version__}, pictures encoded by {encoder.name}"
    if encoder.reason:
        detail += f"; nvJPEG is not used: {encoder.reason}"
    return detail


def probe_sandbox() -> str:
    """Decode a file in the sandbox, and try there what decoders must not do."""
    examined = _examine_sandbox()
    means = []
    if examined.landlock:
        means.append(f"Landlock {examined.landlock}")
    if examined.seccomp:
        means.append("seccomp")
    if examined.permitted:
        raise Broken(
            f"the kernel does not refuse {', '.join(examined.permitted)} to decoders "
            "of "
            f"pages' files: {'; '.join((*means, *examined.reasons))}",
            _KERNEL_ADVICE,
        )
    return (
        "decoders of pages' files reach no network, program or other file: "
        f"{' and '.join(means)}"
    )


def _examine_sandbox() -> Examined:
    """Return what a program in the sandbox was permitted. Raises Broken."""
    import tempfile
    from pathlib import Path

    from splatview_ipc.system.files import output_file
    from splatview_viewer.core.errors import FileError
    from splatview_viewer.formats import confinement
    from splatview_viewer.formats.sandbox import limits_for, run

    with tempfile.TemporaryDirectory(prefix="sv-doctor-") as folder:
        secret = Path(folder, "secret")
        job = Path(folder, "job")
        for path, text in ((secret, "x"), (job, f"{folder}\n{secret}")):
            with output_file(path, private=True) as out:
                out.file.write(text.encode())
        try:
            examined, _ = run(
                confinement.examine, [job], limits_for(0), confinement.Examined
            )
        except FileError as e:
            raise Broken(e) from None
    return examined


def probe_gsplat() -> str:
    """Draw a Gaussian with CUDA. The first time this compiles the viewer's kernels."""
    from splatview_viewer.core.errors import RendererError
    from splatview_viewer.render.gsplat.gpus import obstacle

    reason = obstacle()
    if reason:
        raise Broken(f"{reason}; the OpenGL renderer is used")
    try:
        source = _draw_with_cuda()
    except RendererError as e:
        raise Broken(f"{e}; the OpenGL renderer is used") from None
    return f"CUDA draws by the rules of {source}"


def _draw_with_cuda() -> str:
    """Draw a Gaussian; return whose rules the picture follows. Raises RendererError."""
    import numpy as np
    import torch

    from splatview_viewer.geometry.cameras import Camera, centered_intrinsics
    from splatview_viewer.render.base import RenderOptions
    from splatview_viewer.render.gsplat.renderer import GsplatRenderer
    from splatview_viewer.render.gsplat.rules import followed_rules
    from splatview_viewer.scene.scene import GaussianScene

    gaussian = GaussianScene(
        means=torch.tensor([[0.0, 0.0, 1.0]]),
        quats=torch.tensor([[1.0, 0.0, 0.0, 0.0]]),
        scales=torch.full((1, 3), 0.1),
        opacities=torch.ones(1),
        sh0=torch.ones(1, 3),
        shN=torch.empty(1, 0, 3),
        activated=True,
    )
    side = 16
    camera = Camera(np.eye(4), centered_intrinsics(side, side, side), side, side)
    renderer = GsplatRenderer()
    renderer.load(gaussian)
    renderer.render(camera, RenderOptions()).pixels()
    source = followed_rules(renderer.device).source
    renderer.close()
    return source


PROBES = {
    "egl": probe_egl,
    "window": probe_window,
    "gsplat": probe_gsplat,
    "interop": probe_interop,
    "web": probe_web,
    "sandbox": probe_sandbox,
}

if __name__ == "__main__":
    finding: dict[str, Any]
    try:
        detail = PROBES[sys.argv[1]]()
        finding = {"ok": True, "detail": detail, "mend": ""}
    except Broken as e:
        finding = {"ok": False, "detail": str(e), "mend": e.advice}
    print(json.dumps(finding))
