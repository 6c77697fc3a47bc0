"""`grab`: a picture that the viewer draws, returned as a tensor.

A program draws it, which is started once and ends with the run (`grab_client`).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from typing import TYPE_CHECKING, Any

from splatview.adapters import checks
from splatview.api.grab_client import GrabClient
from splatview.api.session import public, session, started_publisher
from splatview_ipc.control import render_requests
from splatview_ipc.control.render_requests import RenderRequest
from splatview_ipc.cuda import driver

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from splatview_ipc.publisher.publisher import Publisher
    from splatview_ipc.publisher.stream import Stream

_DRAWN_KINDS = ("gaussians", "image")
"""Kinds of this process's own streams that are brought up to date, the first first."""
_MAX_CAMERA_NUMBERS = 64
"""Numbers of a tensor within a camera: more than those of any matrix it takes."""
_MAX_BATCH_AXES = 8
"""Axes of length one before those of a matrix."""


@public(answers=True)
def grab(
    name: str | None = None,
    *,
    camera: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    size: tuple[int, int] | None = None,
    background: tuple[float, float, float] | None = None,
    run: str | int | None = None,
    timeout: float = 10.0,
) -> torch.Tensor:
    """Return what the viewer draws of a stream: any stream, any camera, any size.

    No window is needed or disturbed.

    A stream of this very process is drawn as it is at this call: Gaussians with the
    values that their tensors hold now, whether or not they were published since they
    changed; images as they were published. So call it where the tensors are not being
    changed, from the thread that does so. Of other processes' streams the newest version
    is drawn.

    Drawing is done by a process of its own, which the first call starts and which ends
    with this one or at `close`. It closes streams that were not asked for lately. A
    camera of your own costs less than none: framing a scene needs a pass over it.

    Args:
        name: of the stream. None: of this process's own streams the Gaussians, or else
            the newest image; where it publishes neither, what `splatview shot` takes of
            the runs of this machine.
        camera: of Gaussians: a mapping {"viewmat": (4, 4), "K": (3, 3)}, world to camera
            in OpenCV axes and pixels, of tensors, arrays or lists, or {"position": (3,),
            "look_at": (3,)} with optional "up" and "fov" in degrees; both take "model"
            ("pinhole", "ortho" or "fisheye"), "near" and "far", the first one "width"
            and "height" that K was made for, which are the picture's size if `size` says
            nothing else. Or the same as JSON, or a file that holds it, as `splatview
            shot --camera` takes. None: the whole scene.
        size: width and height in pixels, 16 to 16384 each. None: an image's own,
            1280x720 for Gaussians. Images are fitted.
        background: RGB in [0, 1] behind Gaussians, around images and below their alpha.
            None: what was published with the Gaussians, else black.
        run: the run that publishes it: its id, the beginning of it, its name or its
            process id. None: this process's own if it has such a stream, else any, the
            newest first.
        timeout: seconds within which the stream has to bring what is to be drawn. The
            first call may take longer by the time that starting the program takes: some
            seconds.

    Returns:
        uint8 (height, width, 3), the top row first: on the current GPU where CUDA is in
        use here and a GPU has drawn it, in the order of its current stream; else on the
        CPU.

    Raises:
        TypeError: an argument is of another type.
        ValueError: an argument makes no sense.
        LookupError: there is no such stream; the message lists those that there are.
        TimeoutError: the stream brought nothing in time.
        RuntimeError: nothing can be drawn here, or a CUDA graph is being captured.
    """
    if name is not None:
        checks.stream_name(name)
    camera_text: str | None = None
    if camera is not None:
        fields = _camera_fields(camera)
        camera_text = _camera_text(fields)
        if size is None and "width" in fields and "height" in fields:
            size = fields["width"], fields["height"]
    if size is not None:
        size = _checked_size(size)
    background = _checked_background(background)
    timeout = checks.real("timeout", timeout, 0.001, 86400)
    run = checks.run(run)
    device = _current_gpu()
    grabber = _running_grabber(device, timeout)
    with grabber.lock:
        if grabber.is_drawing:
            raise RuntimeError(
                "grab: a signal's handler has interrupted a grab; note the signal, and "
                "grab after the handler"
            )
        if not grabber.alive:
            # Another thread's call has closed it.
            raise grabber.ended()
        request = RenderRequest(
            timeout,
            camera=camera_text,
            size=size,
            background=background,
            **_stream_fields(name, run, device is not None),
        )
        return grabber.draw(request, device or 0)


def _current_gpu() -> int | None:
    """Return the ordinal of the current GPU; None where CUDA is not in use."""
    torch = driver.torch_with_cuda()
    if torch is None:
        return None
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "grab: a CUDA graph is being captured, and nothing that is queued runs yet; "
            "grab before or after it"
        )
    return torch.cuda.current_device()


def _running_grabber(device: int | None, timeout: float) -> GrabClient:
    """Return the program that draws for this process, started by the first call.

    Args:
        device: the ordinal of the GPU to draw on; None for any.
        timeout: as for `GrabClient`, which says what it raises.
    """
    current = session()
    grabber: GrabClient | None = current.features.get("grab")
    if grabber is not None and grabber.alive:
        return grabber
    with current.starting():
        # Another thread may have started it meanwhile.
        grabber = current.features.get("grab")
        if grabber is None or not grabber.alive:
            if grabber is not None:
                grabber.close()
            gpu_uuid = "" if device is None else driver.gpu_uuid(device)
            grabber = GrabClient(gpu_uuid, timeout)
            current.add("grab", grabber)
        return grabber


def _stream_fields(name: str | None, run: str | None, on_gpu: bool) -> dict[str, Any]:
    """Return the fields of a RenderRequest that name a stream and its version.

    A stream of this process is brought up to date before.
    """
    publisher = started_publisher()
    stream = None
    version = 0
    stream_count = 0
    if publisher is not None:
        is_meant = run is None or publisher.folder.description.is_called(run)
        stream = _own_stream(publisher, name) if is_meant else None
    if publisher is not None and stream is not None:
        run = publisher.run_id
        name = stream.name
        if stream.kind in _DRAWN_KINDS:
            version = stream.republish()
        publisher.hasten(stream)
        if on_gpu and stream.kind == "image":
            # OpenGL, which may read it in place, does not wait for our CUDA streams.
            sys.modules["torch"].cuda.current_stream().synchronize()
        if stream.kind != "overlay":
            # An overlay is not drawn by itself.
            streams = list(publisher.streams.values())
            stream_count = sum(s.info is not None for s in streams)
    return {
        "run": run,
        "stream": name,
        "after": version,
        "streams": stream_count,
        "gpu": on_gpu,
    }


def _own_stream(publisher: Publisher, name: str | None) -> Stream | None:
    """Return this process's stream of a name, or of none the one to be drawn."""
    published = [s for s in list(publisher.streams.values()) if s.version]
    if name is not None:
        return next((s for s in published if s.name == name), None)
    for kind in _DRAWN_KINDS:
        for stream in reversed(published):
            if stream.kind == kind:
                return stream
    return None


# ---- arguments


def _checked_size(size: Any) -> tuple[int, int]:
    """Return (width, height) in whole pixels. Raises TypeError, ValueError."""
    try:
        width, height = size
    except (TypeError, ValueError):
        raise ValueError(
            f"size {checks.short_repr(size)} is not (width, height) in whole pixels, such "
            "as (1280, 720)"
        ) from None
    return (
        checks.integer("width", width, 1, 2**31 - 1),
        checks.integer("height", height, 1, 2**31 - 1),
    )


def _camera_fields(camera: Any) -> dict[str, Any]:
    """Return the fields of a camera as the caller gave them, without those of None."""
    if isinstance(camera, (str, os.PathLike)):
        camera = _read_camera(os.fspath(camera))
    if not hasattr(camera, "items"):
        raise TypeError(
            f"camera is {checks.type_text(camera)}, not a mapping such as "
            '{"viewmat": ..., "K": ...}, JSON or the name of a file'
        )
    fields = {str(key): value for key, value in camera.items() if value is not None}
    for key in ("viewmat", "K"):
        if key in fields:
            fields[key] = _without_batch(fields[key])
    return fields


def _without_batch(matrices: Any) -> Any:
    """Return the matrix of a batch of one; anything else as it is."""
    for _ in range(_MAX_BATCH_AXES):
        is_list = isinstance(matrices, (list, tuple))
        has_axes = is_list or getattr(matrices, "ndim", 0) > 0
        if not has_axes or len(matrices) != 1:
            break
        matrices = matrices[0]
    return matrices


def _camera_text(fields: dict[str, Any]) -> str:
    """Return a camera as JSON. The program that draws checks its values."""
    text = _CAMERA_ENCODER.encode(fields)
    if len(text) > render_requests.MAX_CAMERA:
        raise ValueError(
            f"camera: more than {render_requests.MAX_CAMERA:,} characters as JSON; it "
            "takes two matrices"
        )
    return text


def _read_camera(text: str) -> Any:
    """Return the JSON of a text, or of the file that it names."""
    content = text
    try:
        # Opening a FIFO would wait without end.
        if os.path.isfile(text):
            with open(text, encoding="utf-8") as file:
                content = file.read(render_requests.MAX_CAMERA)
        return json.loads(content)
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(
            f"camera: {content[:80]!r} is neither a JSON object nor a readable file "
            f"({error})"
        ) from None


def _as_lists(value: Any) -> Any:
    """Return a tensor or an array as lists of numbers."""
    checks.check_tensor(value, "camera")
    if not hasattr(value, "tolist"):
        raise TypeError(
            f"camera: {checks.type_text(value)}; numbers, lists of them, tensors and "
            "arrays can be taken"
        )
    shape = tuple(value.shape)
    if math.prod(shape) > _MAX_CAMERA_NUMBERS:
        raise ValueError(
            f"camera: a tensor of shape {shape}; it takes one matrix, vector or number"
        )
    return value.tolist()


_CAMERA_ENCODER = json.JSONEncoder(default=_as_lists)


def _checked_background(color: Any) -> tuple[float, float, float] | None:
    """Return RGB in [0, 1]. Raises ValueError."""
    if color is None:
        return None
    channels: tuple[float, ...] = ()
    with contextlib.suppress(TypeError, ValueError):
        channels = tuple(float(channel) for channel in color)
    if len(channels) != 3 or not all(0 <= channel <= 1 for channel in channels):
        raise ValueError(
            f"background {checks.short_repr(color)} is not (R, G, B), each from 0 to 1"
        )
    red, green, blue = channels
    return red, green, blue
