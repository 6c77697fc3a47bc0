"""What this machine can draw with: run as a program, so that a driver that crashes takes nobody along.

`python -m viewer_app.probe egl|window` prints one JSON object: {"ok": bool, "detail": str, "mend": str}.
"""

from __future__ import annotations

import json
import os
import sys

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
                "mend": "not needed: splatview serve --offscreen, or splatview shot OUT.png"}
    import warnings

    warnings.simplefilter("ignore")
    import glfw

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


if __name__ == "__main__":
    print(json.dumps({"egl": probe_egl, "window": probe_window}[sys.argv[1]]()))
