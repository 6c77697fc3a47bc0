"""What this machine can draw with: run as a program, so that a driver that crashes takes nobody along.

`python -m splatview_viewer.app.probe egl|window|gsplat|interop|web|memory|video` prints one JSON object:
{"ok": bool, "detail": str, "mend": str}.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

    import moderngl
    import numpy as np

    from splatview_viewer.web.encoders import Encoder

EGL_MEND = "apt-get install libegl1 libgl1-mesa-dri"
GL_MEND = "apt-get install libgl1 libglx-mesa0 libgl1-mesa-dri"


def probe_egl() -> dict[str, object]:
    """Make an offscreen context, draw a known colour into a float framebuffer, read it back."""
    import moderngl

    try:
        ctx = moderngl.create_context(standalone=True, backend="egl", require=330)  # type: ignore[call-arg]
    except Exception as e:
        return {"ok": False, "detail": f"no offscreen OpenGL 3.3 context ({e})", "mend": EGL_MEND}
    framebuffer = ctx.framebuffer([ctx.texture((4, 4), 4, dtype="f4")])
    framebuffer.clear(0.25, 0.5, 0.75, 1.0)
    data = framebuffer.read(components=4, dtype="f4")
    import struct

    drawn = [round(v, 3) for v in struct.unpack("4f", data[:16])]
    ok = drawn == [0.25, 0.5, 0.75, 1.0]
    detail = f"{ctx.info['GL_RENDERER']}, OpenGL {ctx.info['GL_VERSION'].split()[0]}, by EGL"
    return {"ok": ok, "detail": detail if ok else f"{detail}; draws wrong colours: {drawn}",
            "mend": "" if ok else "update the graphics driver"}


def probe_window() -> dict[str, object]:
    """Whether GLFW can open a window."""
    display = os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY")
    if not display:
        return {"ok": False, "detail": "no display (DISPLAY and WAYLAND_DISPLAY are unset)",
                "mend": "not needed: splatview serve --web, or splatview shot OUT.png"}
    import warnings

    warnings.simplefilter("ignore")
    from splatview_viewer.screens.display import glfw

    if not glfw.init():
        return {"ok": False, "detail": f"GLFW cannot use display {display!r}", "mend": "check DISPLAY, xhost, ssh -X"}
    glfw.window_hint(glfw.VISIBLE, False)
    glfw.window_hint(glfw.CONTEXT_VERSION_MAJOR, 3)
    glfw.window_hint(glfw.CONTEXT_VERSION_MINOR, 3)
    glfw.window_hint(glfw.OPENGL_PROFILE, glfw.OPENGL_CORE_PROFILE)
    window = glfw.create_window(64, 64, "splatview", None, None)
    if not window:
        glfw.terminate()
        return {"ok": False, "detail": f"display {display!r} has no OpenGL 3.3", "mend": GL_MEND}
    glfw.make_context_current(window)
    import moderngl

    renderer = moderngl.create_context(require=330).info["GL_RENDERER"]
    glfw.terminate()
    return {"ok": True, "detail": f"display {display}, {renderer}", "mend": ""}


def probe_interop() -> dict[str, object]:
    """The bridges that bring CUDA tensors to OpenGL here (`splatview_ipc.gl`), tried with real pictures."""
    from splatview_ipc.control.errors import SharingError
    from splatview_ipc.gl.glapi import gl_device_uuid
    from splatview_ipc.gl.probe import BRIDGES, forced_bridge, probe
    from splatview_viewer.core.errors import GraphicsError
    from splatview_viewer.screens.offscreen import create_context

    try:
        forced_bridge()
        ctx = create_context()
    except (GraphicsError, SharingError) as e:
        return {"ok": False, "detail": str(e), "mend": ""}
    same, mend = _same_gpu(gl_device_uuid(ctx))
    reasons = {name: probe(ctx, name) for name in BRIDGES}
    if not reasons["direct"]:
        reasons["direct"] = _draw_anothers_memory(ctx)
    works = [name for name, why in reasons.items() if not why]
    words = [same, f"{', '.join(works)} {'work' if len(works) > 1 else 'works'}"]
    words += [f"{name} does not: {why}" for name, why in reasons.items() if why]
    return {"ok": not any(reasons.values()), "detail": "; ".join(words), "mend": mend}


def _same_gpu(drawn_on: str | None) -> tuple[str, str]:
    """Whether OpenGL draws on a GPU that CUDA sees, and what to do if not."""
    from splatview_ipc.control.errors import SharingError
    from splatview_ipc.cuda import driver

    mend = ("let the program see NVIDIA's OpenGL (in a container: NVIDIA_DRIVER_CAPABILITIES=all; on a laptop: "
            "__NV_PRIME_RENDER_OFFLOAD=1 __GLX_VENDOR_LIBRARY_NAME=nvidia)")
    if drawn_on is None:
        return "OpenGL does not say which GPU it draws on, so it is not NVIDIA's", mend
    try:
        index = driver.device_of(drawn_on)
    except SharingError as e:
        return f"CUDA cannot be asked ({e})", ""
    if index is None:
        return f"OpenGL draws on GPU {drawn_on}, which CUDA does not see", "check CUDA_VISIBLE_DEVICES"
    return f"OpenGL draws on CUDA's GPU {index}", ""


def probe_web() -> dict[str, object]:
    """Encode a picture for browsers with the encoder that is used here, and read it back."""
    try:
        import aiohttp
        import moderngl
        import numpy as np

        from splatview_viewer.core.errors import ViewerError
        from splatview_viewer.web.encoders import choose
    except ImportError as e:
        return {"ok": False, "detail": f"{e.name} cannot be imported ({e})", "mend": f"pip install {e.name}"}
    try:
        ctx = moderngl.create_context(standalone=True, backend="egl", require=330)  # type: ignore[call-arg]
    except Exception as e:
        return {"ok": False, "detail": f"no offscreen OpenGL 3.3 context ({e})", "mend": EGL_MEND}
    picture = np.full((48, 64, 4), 255, np.uint8)
    picture[..., :3] = np.stack(np.broadcast_arrays(np.linspace(0, 255, 48)[:, None], np.linspace(255, 0, 64), 90), -1)
    mend = "pip install --force-reinstall simplejpeg"
    try:
        encoder = choose(ctx)
        if encoder.device is not None:
            mend = "set SPLATVIEW_ENCODER=turbo, and update the graphics driver"
        off = _way_there_and_back(encoder, picture)
        encoder.close()
    except ViewerError as e:
        return {"ok": False, "detail": str(e), "mend": mend}
    detail = f"aiohttp {aiohttp.__version__}, pictures encoded by {encoder.name}"
    if off > 8:
        return {"ok": False, "detail": f"{detail}, which come back {off:.0f} of 255 off", "mend": mend}
    why = f"; nvJPEG is not used: {encoder.reason}" if encoder.reason else ""
    return {"ok": True, "detail": detail + why, "mend": ""}


def _way_there_and_back(encoder: Encoder, picture: np.ndarray) -> float:
    """The mean difference between (H, W, 4) uint8 and what becomes of it, in the same steps."""
    import io

    import numpy as np
    from PIL import Image

    pixels = picture
    if encoder.device is not None:
        import torch

        pixels = torch.from_numpy(picture).cuda()
    seen = np.asarray(Image.open(io.BytesIO(encoder.encode(pixels, 90))).convert("RGB"), np.float32)
    return float(np.abs(seen - picture[..., :3]).mean()) if seen.shape[:2] == picture.shape[:2] else float("inf")


_OTHER = """
import socket, sys
from splatview_ipc.cuda.driver import here
from splatview_ipc.cuda.memory import Allocation
import torch
end = socket.socket(fileno=int(sys.argv[1]))
memory = Allocation(1 << 21, here(sys.argv[2]))
picture = memory.tensor("uint8", (24, 32, 4), 0)
picture.copy_(torch.arange(24 * 32 * 4).remainder(251).to(torch.uint8).view(24, 32, 4))
torch.cuda.synchronize()
socket.send_fds(end, [str(memory.size).encode()], [memory.fd()])
end.recv(1)
"""


def _draw_anothers_memory(ctx: moderngl.Context) -> str:
    """Have another process fill GPU memory and draw that in place: "" when it is right, or what went wrong."""
    import socket
    import subprocess

    import numpy as np

    from splatview_ipc.control.errors import SharingError
    from splatview_ipc.control.frame import DeviceTensor
    from splatview_ipc.control.messages import FdMemory
    from splatview_ipc.cuda.memory import open_memory
    from splatview_ipc.gl.direct import DirectBridge
    from splatview_ipc.gl.glapi import gl_device_uuid
    from splatview_ipc.gl.sources import read_source
    from splatview_ipc.system import child_program

    uuid = gl_device_uuid(ctx) or ""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ours.settimeout(50)
        other = subprocess.Popen([sys.executable, "-P", "-c", _OTHER, str(theirs.fileno()), uuid],
                                 env=child_program.environment(), pass_fds=[theirs.fileno()], stderr=subprocess.PIPE,
                                 text=True)
        theirs.close()
        memory = bridge = None
        try:
            size, fds, _, _ = socket.recv_fds(ours, 64, 1)
            if not fds:
                return "another process could not make memory to share: " + _last_line(other)
            memory = open_memory(FdMemory("probe", (int(size),), uuid), fds)
            bridge = DirectBridge(ctx)
            tensor = DeviceTensor("uint8", (24, 32, 4), (128, 4, 1), memory, 0)
            seen = np.rint(read_source(ctx, bridge.put(tensor, "HWC")) * 255).astype(int)
            expected = (np.arange(24 * 32 * 4) % 251).reshape(24, 32, 4)
            return "" if np.array_equal(seen, expected) else "another process's picture came out different"
        except (SharingError, OSError) as e:
            return str(e)
        finally:
            other.kill()
            other.wait()
            if other.stderr is not None:
                other.stderr.close()
            if bridge is not None:
                bridge.close()
            if memory is not None:
                memory.close()


def probe_memory() -> dict[str, object]:
    """Read a small memory snapshot, lay it out and ask it something in SQL."""
    import pickle
    import tempfile
    from pathlib import Path

    events = [{"action": action, "addr": 1 << 20, "size": 1000, "stream": 0, "time_us": t, "frames": []}
              for t, action in enumerate(("segment_alloc", "alloc", "free_requested", "free_completed"))]
    from splatview_ipc.system.optional_packages import install_line, installed
    from splatview_viewer.core.errors import ViewerError
    from splatview_viewer.kinds.snapshot.loading import load_snapshot
    from splatview_viewer.kinds.snapshot.loading.store import folder
    from splatview_viewer.kinds.snapshot.query import Database
    from splatview_viewer.kinds.snapshot.timeline.bands import Bands

    found = None  # without DuckDB
    with tempfile.TemporaryDirectory() as there:
        file = Path(there) / "probe.pickle"
        file.write_bytes(pickle.dumps({"segments": [], "device_traces": [events]}, 4))
        snapshot = load_snapshot(file, cache=False)
    try:
        live = Bands(snapshot.traces[0]).live.tolist()
        if installed("duckdb"):
            rows = Database(snapshot).run("select size, start_event, end_event from allocations").rows
            found = [tuple(row) for row in rows]
    except ViewerError as e:  # a package of the extra that cannot be imported here
        return {"ok": False, "detail": str(e), "mend": install_line("memory")}
    ok = live == [0, 0, 1000, 0, 0] and found in (None, [(1000, 1, 2)])
    kept = f"kept in {where}" if (where := folder()) is not None else "not kept: the cache folder cannot be used"
    return {"ok": ok, "detail": f"snapshots are read, laid out{' and queried' if found else ''}; {kept}" if ok else
            f"a snapshot is read wrongly: live bytes {live}, SQL finds {found}", "mend": ""}


def probe_video() -> dict[str, object]:
    """Write a small film and read it back."""
    import tempfile
    from pathlib import Path

    import numpy as np

    from splatview_ipc.system.optional_packages import install_line
    from splatview_viewer.core.errors import ViewerError
    from splatview_viewer.formats.camera_paths import Mp4

    with tempfile.TemporaryDirectory() as there:
        out = Path(there) / "probe.mp4"
        try:
            writer = Mp4(out, 64, 48, 30.0)
            for _ in range(3):
                writer.add(np.full((48, 64, 3), 100, np.uint8))
            writer.close()
        except ViewerError as e:
            return {"ok": False, "detail": str(e), "mend": install_line("video")}
        from av import __version__
        from av import open as av_open

        with av_open(out) as film:
            codec = film.streams.video[0].codec_context.name
            count = sum(1 for _ in film.decode(video=0))
    return {"ok": count == 3, "detail": f"a film was written as {codec} by PyAV {__version__}" if count == 3 else
            f"{count} of 3 pictures of a film were read back", "mend": "" if count == 3 else install_line("video")}


def probe_gsplat() -> dict[str, object]:
    """Get gsplat's kernels as the viewer does, which may compile them, and draw with them."""
    from importlib.metadata import version

    from splatview_viewer.render.gsplat.build import kernels

    found = kernels()
    ok = found.wait()
    return {"ok": ok, "detail": f"{version('gsplat')} draws" if ok else f"{found.reason}; the OpenGL renderer is used",
            "mend": ""}


def _last_line(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    lines = process.stderr.read().strip().splitlines()
    return lines[-1] if lines else f"exit code {process.wait()}"


if __name__ == "__main__":
    print(json.dumps({"egl": probe_egl, "window": probe_window, "gsplat": probe_gsplat, "interop": probe_interop,
                      "web": probe_web, "memory": probe_memory, "video": probe_video}[sys.argv[1]]()))
