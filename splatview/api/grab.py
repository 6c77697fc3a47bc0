"""`grab`: what the viewer draws, returned as a tensor."""

from __future__ import annotations

import json
import math
import os
import sys
from typing import TYPE_CHECKING, Any

from splatview.adapters import checks
from splatview.api.session import begun, public, session

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

__all__ = ["grab"]

_DRAWN = {"gaussians": 0, "image": 1}
"""Kinds of this process's own streams that are brought up to date, in the order in which they are taken."""


@public(answers=True)
def grab(name: str | None = None, *, camera: Mapping[str, Any] | str | os.PathLike[str] | None = None,
         size: tuple[int, int] | None = None, background: tuple[float, float, float] | None = None,
         run: str | int | None = None, timeout: float = 10.0) -> torch.Tensor:
    """Return what the viewer draws of a stream: any stream, any camera, any size. No window is needed or disturbed.

    name: of the stream. None: of what this process publishes, the Gaussians, or else the newest image; where it
        publishes neither, what `splatview shot` takes of the runs of this machine.
    camera: of Gaussians: a mapping {"viewmat": (4, 4), "K": (3, 3)}, world to camera in OpenCV axes and pixels, of
        tensors, arrays or lists, or {"position": (3,), "look_at": (3,)} with optional "up" and "fov" in degrees; both
        take "model" ("pinhole", "ortho" or "fisheye"), "near" and "far", the first one "width" and "height" that K was
        made for, which are the picture's size if `size` says nothing else. Or the same as JSON, or a file that holds
        it, as `splatview shot --camera` takes. None: the scene seen whole.
    size: width and height in pixels, 16 to 16384 each. None: an image's own, 1280x720 for Gaussians. Images are fitted.
    background: RGB in [0, 1] behind Gaussians, around images and below their alpha. None: what was published with the
        Gaussians, else black.
    run: the run that publishes it: its id, the beginning of it, its name or its process id. None: this process's own if
        it has such a stream, else any, the newest first.
    timeout: seconds within which the stream has to bring what is to be drawn. The first call may take longer by what
        it takes to start the program that draws: some seconds.

    Returns uint8 (height, width, 3), the top row first: on the current GPU where CUDA is in use here and a GPU has
    drawn it, in the order of its current stream; else on the CPU.

    A stream of this very process is drawn as it is at this call: Gaussians with the values that their tensors hold now,
    whether or not they were published since they changed; images as they were published. So call it where the tensors
    are not being changed, from the thread that does so. Of other processes' streams the newest version is drawn.

    Drawing is done by a process of its own, which the first call starts and which ends with this one or at `close`. It
    closes streams that were not asked for lately. A camera of your own costs less than none: to frame a scene it has to
    be looked at.

    Raises TypeError, ValueError for arguments that make no sense; LookupError, which lists what there is, when there
    is no such stream; TimeoutError when it brought nothing in time; RuntimeError when nothing can be drawn here, and
    while a CUDA graph is being captured.
    """
    from splatview_ipc.control.render_requests import RenderRequest

    if name is not None:
        checks.stream_name(name)
    view = None if camera is None else _camera(camera)
    if size is None and view is not None and "width" in view and "height" in view:
        size = view["width"], view["height"]
    scene = None if view is None else json.dumps(view)
    size = None if size is None else _size(size)
    background, timeout = _background(background), checks.number("timeout", timeout, 0.001, 86400)
    run = checks.run(run)
    device = _device()
    grabber = session().features.get("grab")
    if grabber is None or not grabber.alive:
        from splatview.api.grabber import Grabber
        from splatview_ipc.cuda import driver

        if grabber is not None:
            grabber.close()
        grabber = Grabber("" if device is None else driver.gpu_uuid(device), timeout)
        session().add("grab", grabber)
    with grabber.lock:
        request = RenderRequest(timeout, camera=scene, size=size, background=background,
                                **_newest(name, run, device is not None))
        return grabber.draw(request, device or 0)


def _newest(name: str | None, run: str | None, gpu: bool) -> dict[str, Any]:
    """Bring a stream of this process up to date; return the fields of a RenderRequest that name it and its version."""
    publisher, stream, after, streams = begun(), None, 0, 0
    if publisher is not None and (run is None or publisher.folder.description.is_called(run)):
        published = [s for s in list(publisher.streams.values()) if s.version and name in (None, s.name)]
        if name is None:
            published = sorted((s for s in published[::-1] if s.kind in _DRAWN), key=lambda s: _DRAWN[s.kind])
        stream = next(iter(published), None)
    if publisher is not None and stream is not None:
        run, name = publisher.run_id, stream.name
        if stream.kind in _DRAWN:
            after = stream.republish()
        if gpu and stream.kind == "image":  # OpenGL, which may read it in place, does not wait for our streams
            sys.modules["torch"].cuda.current_stream().synchronize()
        if stream.kind != "overlay":  # which is not drawn by itself
            streams = sum(s.info is not None for s in list(publisher.streams.values()))
    return {"run": run, "stream": name, "after": after, "streams": streams, "gpu": gpu}


def _device() -> int | None:
    """Return the GPU in use here, None if none is. Raises RuntimeError while a CUDA graph is captured."""
    from splatview_ipc.cuda.driver import torch_with_cuda

    torch = torch_with_cuda()
    if torch is None:
        return None
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("grab: a CUDA graph is being captured, and nothing that is queued runs yet; grab before or "
                           "after it")
    return torch.cuda.current_device()


def _camera(camera: Any) -> dict[str, Any]:
    """Return a camera as JSON has it. The program that draws checks its values."""
    from splatview_ipc.control.render_requests import MAX_CAMERA

    if isinstance(camera, (str, os.PathLike)):
        text = os.fspath(camera)
        if not text.lstrip().startswith("{"):
            try:
                if not os.path.isfile(text):  # opening a FIFO would wait without end
                    raise ValueError("no such file")
                with open(text, encoding="utf-8") as f:
                    text = f.read(MAX_CAMERA)
            except (OSError, ValueError) as e:
                raise ValueError(f"camera: {text[:80]!r} is neither a JSON object nor a readable file "
                                 f"({getattr(e, 'strerror', None) or e})") from None
        try:
            camera = json.loads(text)
        except (ValueError, RecursionError) as e:
            raise ValueError(f"camera: not JSON: {e}") from None
    if not hasattr(camera, "items"):
        raise TypeError(f"camera is a {type(camera).__name__}, not a mapping such as {{\"viewmat\": ..., \"K\": ...}}, "
                        "JSON or the name of a file")
    text = json.dumps({str(key): value for key, value in camera.items() if value is not None}, default=_plain)
    if len(text) > MAX_CAMERA:
        raise ValueError(f"camera: more than {MAX_CAMERA:,} characters as JSON; it takes two matrices")
    made = json.loads(text)
    for key in made.keys() & {"viewmat", "K"}:  # of matrices in a batch of one, that one
        while isinstance(made[key], list) and len(made[key]) == 1:
            made[key] = made[key][0]
    return made


def _plain(value: Any) -> Any:
    """Return a tensor or an array as lists of numbers."""
    checks.check_tensor(value, "camera")
    if not hasattr(value, "tolist"):
        raise TypeError(f"camera: a {type(value).__name__}; numbers, lists of them, tensors and arrays can be taken")
    if math.prod(shape := tuple(value.shape)) > 64:
        raise ValueError(f"camera: a tensor of shape {shape}; it takes one matrix, vector or number")
    return value.tolist()


def _size(size: Any) -> tuple[int, int]:
    try:
        width, height = size
    except (TypeError, ValueError):
        raise ValueError(f"size {size!r} is not (width, height) in whole pixels, such as (1280, 720)") from None
    return checks.whole("width", width, 1, 2**31 - 1), checks.whole("height", height, 1, 2**31 - 1)


def _background(color: Any) -> tuple[float, float, float] | None:
    if color is None:
        return None
    try:
        r, g, b = (float(c) for c in color)
    except (TypeError, ValueError):
        r = g = b = -1.0
    if not all(0 <= c <= 1 for c in (r, g, b)):
        raise ValueError(f"background {color!r} is not (R, G, B), each from 0 to 1")
    return r, g, b
