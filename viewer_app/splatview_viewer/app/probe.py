"""Tries the viewer's parts on this machine: run as a program, so that a driver that crashes takes nothing along.

`python -m splatview_viewer.app.probe egl|window|gsplat|interop|web|sandbox` prints one JSON object:
{"ok": bool, "detail": str, "mend": str}.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import moderngl

EGL_MEND = "apt-get install libegl1 libgl1-mesa-dri"
GL_MEND = "apt-get install libgl1 libglx-mesa0 libgl1-mesa-dri"


class Broken(Exception):  # noqa: N818  (a finding)
    """Something does not work: the detail, and how to mend it."""

    def __init__(self, detail: object, mend: str = "") -> None:
        super().__init__(str(detail))
        self.mend = mend


def _context() -> moderngl.Context:
    from splatview_viewer.core.errors import GraphicsError
    from splatview_viewer.screens.offscreen import create_context

    try:
        return create_context()
    except GraphicsError as e:
        raise Broken(e, EGL_MEND) from None


def probe_egl() -> str:
    """Make an offscreen context."""
    info = _context().info
    return f"{info['GL_RENDERER']}, OpenGL {info['GL_VERSION'].split()[0]}, by EGL"


def probe_window() -> str:
    """Open a window that is not seen."""
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
        raise Broken(
            f"display {display!r}: {e}", f"check DISPLAY, xhost, ssh -X; {GL_MEND}"
        ) from None
    renderer = screen.ctx.info["GL_RENDERER"]
    screen.close()
    return f"display {display}, {renderer}"


def probe_interop() -> str:
    """Try the bridges that bring CUDA tensors to OpenGL (`splatview_ipc.gl`) with real pictures."""
    from splatview_ipc.control.errors import SharingError
    from splatview_ipc.cuda import driver
    from splatview_ipc.gl.glapi import gl_device_uuid
    from splatview_ipc.gl.probe import BRIDGES, forced_bridge, probe

    try:
        forced_bridge()
    except SharingError as e:
        raise Broken(e) from None
    ctx = _context()
    mend = ""
    drawn_on = gl_device_uuid(ctx)
    if drawn_on is None:
        same = "OpenGL does not say which GPU it draws on, so it is not NVIDIA's"
        mend = (
            "let the program see NVIDIA's OpenGL (in a container: NVIDIA_DRIVER_CAPABILITIES=all; on a laptop: "
            "__NV_PRIME_RENDER_OFFLOAD=1 __GLX_VENDOR_LIBRARY_NAME=nvidia)"
        )
    else:
        try:
            index = driver.find_device(drawn_on)
            same = f"OpenGL draws on CUDA's GPU {index}"
            if index is None:
                same = f"OpenGL draws on GPU {drawn_on}, which CUDA does not see"
                mend = "check CUDA_VISIBLE_DEVICES"
        except SharingError as e:
            same = f"CUDA cannot be asked ({e})"
    reasons = {name: probe(ctx, name) for name in BRIDGES}
    works = [name for name, why in reasons.items() if not why]
    words = [same, f"{', '.join(works)} {'work' if len(works) > 1 else 'works'}"]
    words += [f"{name} does not: {why}" for name, why in reasons.items() if why]
    if any(reasons.values()):
        raise Broken("; ".join(words), mend)
    return "; ".join(words)


def probe_web() -> str:
    """Encode a picture for browsers with the encoder that is used here."""
    import aiohttp
    import numpy as np

    from splatview_viewer.core.errors import ViewerError
    from splatview_viewer.web.encoders import choose

    ctx = _context()
    pixels: Any = np.full((48, 64, 4), 255, np.uint8)
    mend = "pip install --force-reinstall simplejpeg"
    try:
        encoder = choose(ctx)
        if encoder.device is not None:
            import torch

            mend = "update the graphics driver; until then CUDA_VISIBLE_DEVICES= splatview serve --web"
            pixels = torch.from_numpy(pixels).cuda()
        encoder.encode(pixels, 90)
        encoder.close()
    except ViewerError as e:
        raise Broken(e, mend) from None
    detail = f"aiohttp {aiohttp.__version__}, pictures encoded by {encoder.name}"
    return detail + (
        f"; nvJPEG is not used: {encoder.reason}" if encoder.reason else ""
    )


def probe_sandbox() -> str:
    """Decode a file in the sandbox, and try there what decoders must not do."""
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
            found, _ = run(
                confinement.examine, [job], limits_for(0), confinement.Examined
            )
        except FileError as e:
            raise Broken(e) from None
    means = [f"Landlock {found.landlock}"] if found.landlock else []
    means += ["seccomp"] if found.seccomp else []
    if found.permitted:
        raise Broken(
            f"the kernel does not refuse {', '.join(found.permitted)} to decoders of pages' files: "
            f"{'; '.join((*means, *found.reasons))}",
            "a kernel of 5.13 or later with landlock among its security modules (lsm=); in a container, a seccomp "
            "profile that permits landlock_create_ruleset and seccomp",
        )
    return f"decoders of pages' files reach no network, program or other file: {' and '.join(means)}"


def probe_gsplat() -> str:
    """Get gsplat's kernels as the viewer does, which may compile them, and draw with them."""
    from importlib.metadata import version

    from splatview_viewer.render.gsplat.build import kernels

    found = kernels()
    if not found.wait():
        raise Broken(f"{found.reason}; the OpenGL renderer is used")
    return f"{version('gsplat')} draws"


if __name__ == "__main__":
    try:
        finding = {
            "ok": True,
            "detail": globals()[f"probe_{sys.argv[1]}"](),
            "mend": "",
        }
    except Broken as e:
        finding = {"ok": False, "detail": str(e), "mend": e.mend}
    print(json.dumps(finding))
