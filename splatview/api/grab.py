"""`grab`: what the viewer draws, back as a tensor."""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from splatview.adapters.metadata import check_tensor
from splatview.api import checks
from splatview.api import session as publishing
from splatview_ipc.system.terminal import check_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from splatview.api.grabber import Grabber
    from splatview_ipc import Publisher, Stream

__all__ = ["grab"]

_DRAWN = {"gaussians": 0, "image": 1}
"""Kinds of this process's own streams that are brought up to date, in the order in which they are taken."""
_lock = threading.RLock()
_grabber: Grabber | None = None
_forgotten: list[Any] = []
"""In a forked child: the parent's, which must not be torn down here."""


def grab(name: str | None = None, *, camera: Mapping[str, Any] | str | os.PathLike[str] | None = None,
         size: tuple[int, int] | None = None, background: tuple[float, float, float] | None = None,
         run: str | int | None = None, timeout: float = 10.0) -> torch.Tensor:
    """What the viewer draws of a stream, as a tensor of your own: any stream, any camera, any size. It needs no window,
    and those that are open do not notice.

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

    Drawing is done by a process of its own, which the first call starts and which ends with this one, at `close`, or in
    a forked child with that. It lets go of streams that were not asked for lately. A camera of your own costs less than
    none: to frame a scene it has to be looked at.

    Raises TypeError, ValueError for arguments that make no sense; LookupError, which lists what there is, when there
    is no such stream; TimeoutError when it brought nothing in time; RuntimeError when nothing can be drawn here, and
    while a CUDA graph is being captured.
    """
    asked = _Asked(name, _camera(camera), _size(size), _background(background), _run(run), _timeout(timeout))
    with _lock:
        return asked.answer()


class _Asked:
    """Arguments that were found to make sense."""

    def __init__(self, name: str | None, camera: dict[str, Any] | None, size: tuple[int, int] | None,
                 background: tuple[float, float, float] | None, run: str | None, timeout: float) -> None:
        if name is not None:
            checks.stream_name(name)
        if size is None and camera is not None and "width" in camera and "height" in camera:
            size = _size((camera["width"], camera["height"]))
        self.name, self.size, self.background, self.run, self.timeout = name, size, background, run, timeout
        self.camera = None if camera is None else json.dumps(camera)

    def answer(self) -> torch.Tensor:
        from splatview.api.grabber import GrabberEnded

        global _grabber
        device = _device()
        again = _grabber is not None  # one that was there may have died meanwhile
        while True:
            if _grabber is None or not _grabber.alive:
                _grabber = _start(device, self.timeout)
            try:
                return _grabber.ask(self._wish(device is not None), device or 0)
            except GrabberEnded as e:
                if not again:
                    raise RuntimeError(f"grab: {e}") from None
                again = False

    def _wish(self, gpu: bool) -> Any:
        """What makes a wish from its number. Brings our own stream up to date, once for each time that it is wished."""
        from functools import partial

        from splatview_ipc.control.render_requests import Wish
        from splatview_ipc.publisher.republish import renew

        run, name, after, streams = self.run, self.name, 0, 0
        own = _own(name, run)
        if own is not None:
            publisher, stream = own
            run, name = publisher.run_id, stream.name
            if stream.kind in _DRAWN:
                after = renew(stream)
            if gpu and stream.kind == "image":  # OpenGL, which may read it in place, does not wait for our streams
                sys.modules["torch"].cuda.current_stream().synchronize()
            if stream.kind != "overlay":  # which nobody draws by itself, and nobody waits for
                streams = sum(s.info is not None for s in list(publisher.streams.values()))
        return partial(Wish, timeout=self.timeout, run=run, stream=name, after=after, streams=streams,
                       camera=self.camera, size=self.size, background=self.background, gpu=gpu)


def _own(name: str | None, run: str | None) -> tuple[Publisher, Stream] | None:
    """This process's run, and the stream of it that is meant, if it has one."""
    publisher = publishing.begun()
    if publisher is None:
        return None
    if run is not None and not publisher.folder.description.is_called(run):
        return None
    streams = [s for s in list(publisher.streams.values()) if s.version]
    if name is None:
        drawn = [s for s in streams if s.kind in _DRAWN]
        found = min(drawn[::-1], key=lambda s: _DRAWN[s.kind], default=None)
    else:
        found = next((s for s in streams if s.name == name), None)
    return None if found is None else (publisher, found)


def _device() -> int | None:
    """The GPU that is in use here; None while none is. Raises RuntimeError while a CUDA graph is captured."""
    from splatview_ipc.cuda.driver import torch_with_cuda

    torch = torch_with_cuda()
    if torch is None:
        return None
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("grab: a CUDA graph is being captured, and nothing that is queued runs yet; grab before or "
                           "after it")
    return torch.cuda.current_device()


def _start(device: int | None, timeout: float) -> Grabber:
    from splatview.api.grabber import Grabber
    from splatview_ipc.control.errors import IpcError

    uuid = ""
    if device is not None:
        from splatview_ipc.cuda import driver

        try:
            uuid = driver.gpu_uuid(device)
        except IpcError:
            pass  # any GPU will do then
    return Grabber(uuid, timeout)


# -- arguments -----------------------------------------------------------------------------------------------------


def _camera(camera: Any) -> dict[str, Any] | None:
    """A camera as JSON has it. What it says is looked at where it is drawn."""
    from splatview_ipc.control.render_requests import MAX_CAMERA

    if camera is None:
        return None
    if isinstance(camera, (str, os.PathLike)):
        text = os.fspath(camera)
        if not text.lstrip().startswith("{"):
            try:
                if os.path.exists(text) and not os.path.isfile(text):  # opening a FIFO would wait without end
                    raise ValueError("not a regular file")
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
    made = {str(key): _plain(str(key), value) for key, value in camera.items() if value is not None}
    if len(json.dumps(made)) > MAX_CAMERA:
        raise ValueError(f"camera: more than {MAX_CAMERA:,} characters as JSON; it takes two matrices")
    return made


def _plain(key: str, value: Any) -> Any:
    """Numbers and lists of numbers, from tensors and arrays too; of matrices in a batch of one, that one."""
    check_tensor(value, f"camera: {key or 'an entry'}")
    if hasattr(value, "tolist"):
        shape = tuple(value.shape)
        if len(shape) > 4 or any(n > 64 for n in shape):
            raise ValueError(f"camera: {key} has shape {shape}; it takes one matrix, vector or number")
        value = value.tolist()
    if key in ("viewmat", "K"):
        while isinstance(value, list) and len(value) == 1:
            value = value[0]
    if isinstance(value, (list, tuple)):
        return [_plain("", v) for v in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"camera: {key or 'an entry'} is a {type(value).__name__}; numbers, lists of them, tensors and "
                    "arrays can be taken")


def _size(size: Any) -> tuple[int, int] | None:
    if size is None:
        return None
    try:
        width, height = size
        if not all(hasattr(n, "__index__") and not isinstance(n, bool) and 1 <= n < 2**31 for n in (width, height)):
            raise ValueError
        return int(width), int(height)
    except (TypeError, ValueError):
        raise ValueError(f"size {size!r} is not (width, height) in whole pixels, such as (1280, 720)") from None


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


def _run(run: Any) -> str | None:
    if run is None:
        return None
    if isinstance(run, bool) or not isinstance(run, (str, int)) or not 1 <= len(str(run)) <= 200:
        raise ValueError(f"run {run!r} is not a run's id, name or process id; `splatview status` lists them")
    check_text(str(run), "run")
    return str(run)


def _timeout(timeout: Any) -> float:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout <= 86400:
        raise ValueError(f"timeout {timeout!r} is not a number of seconds over 0 up to 86400")
    return float(timeout)


# -- the end -------------------------------------------------------------------------------------------------------


@atexit.register
def end() -> None:
    """End the program that draws; the next `grab` starts another one."""
    global _grabber
    with _lock:
        grabber, _grabber = _grabber, None
        if grabber is not None:
            grabber.close()


def _after_fork_in_child() -> None:
    """The program is the parent's. A child that grabs starts its own."""
    global _grabber, _lock
    _lock = threading.RLock()
    if _grabber is not None:
        _grabber.abandon()
        _forgotten.append(_grabber)
        _grabber = None


os.register_at_fork(after_in_child=_after_fork_in_child)
