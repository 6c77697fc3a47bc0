"""`grab`: what the viewer draws, returned as a tensor. The program that draws is started once and ends with the run."""

from __future__ import annotations

import json
import math
import os
import select
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from splatview.adapters import checks
from splatview.api.session import begun, public, session
from splatview_ipc.control import render_requests
from splatview_ipc.control.render_requests import (
    RenderError,
    RenderRequest,
    RenderResult,
)
from splatview_ipc.cuda import driver
from splatview_ipc.subscriber.subscriber import Subscriber
from splatview_ipc.system.child_program import ChildProgram

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from splatview_ipc.control.frame import StreamFrame
    from splatview_ipc.control.render_requests import Answer

_DRAWN = {"gaussians": 0, "image": 1}
"""Kinds of this process's own streams that are brought up to date, in the order in which they are taken."""
_START_TIMEOUT_S = 60.0
"""The program loads torch."""
_LOOK_S = 2e-4
LATE_S = 5.0
"""Time beyond a request's own timeout until the program counts as hanging."""
_LARGE_BYTES = 1 << 26
"""Pictures of more bytes: the memory in which they came is released at once."""
_END_PATIENCE_S = 3.0
_ERRORS = {
    "value": ValueError,
    "lookup": LookupError,
    "timeout": TimeoutError,
    "fault": RuntimeError,
}


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
    if name is not None:
        checks.stream_name(name)
    view = None if camera is None else _camera(camera)
    if size is None and view is not None and "width" in view and "height" in view:
        size = view["width"], view["height"]
    scene = None if view is None else json.dumps(view)
    if size is not None:
        try:
            width, height = size
        except (TypeError, ValueError):
            raise ValueError(
                f"size {size!r} is not (width, height) in whole pixels, such as (1280, 720)"
            ) from None
        size = (
            checks.integer("width", width, 1, 2**31 - 1),
            checks.integer("height", height, 1, 2**31 - 1),
        )
    background = _background(background)
    timeout = checks.real("timeout", timeout, 0.001, 86400)
    run = checks.run(run)
    device = None
    torch = driver.torch_with_cuda()
    if torch is not None:
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                "grab: a CUDA graph is being captured, and nothing that is queued runs yet; grab before "
                "or after it"
            )
        device = torch.cuda.current_device()
    grabber = _running_grabber(device, timeout)
    with grabber.lock:
        if grabber.is_drawing:
            raise RuntimeError(
                "grab: a signal's handler has interrupted a grab; note the signal, and grab after the handler"
            )
        if not grabber.alive:  # closed while another thread drew
            raise grabber.ended()
        request = RenderRequest(
            timeout,
            camera=scene,
            size=size,
            background=background,
            **_newest(name, run, device is not None),
        )
        return grabber.draw(request, device or 0)


def _running_grabber(device: int | None, timeout: float) -> GrabClient:
    """Return the program that draws for this process, which the first of all threads starts.

    `device`: the ordinal of the GPU to draw on, None for any; `timeout` as for `Grabber`, which says what it raises.
    """
    current = session()
    with current.starting():
        grabber: GrabClient | None = current.features.get("grab")
        if grabber is None or not grabber.alive:
            if grabber is not None:
                grabber.close()
            gpu_uuid = "" if device is None else driver.gpu_uuid(device)
            grabber = GrabClient(gpu_uuid, timeout)
            current.add("grab", grabber)
        return grabber


def _newest(name: str | None, run: str | None, gpu: bool) -> dict[str, Any]:
    """Bring a stream of this process up to date; return the fields of a RenderRequest that name it and its version."""
    publisher = begun()
    stream = None
    after = 0
    streams = 0
    if publisher is not None and (
        run is None or publisher.folder.description.is_called(run)
    ):
        published = [
            s
            for s in list(publisher.streams.values())
            if s.version and name in (None, s.name)
        ]
        if name is None:
            published = sorted(
                (s for s in published[::-1] if s.kind in _DRAWN),
                key=lambda s: _DRAWN[s.kind],
            )
        stream = next(iter(published), None)
    if publisher is not None and stream is not None:
        run = publisher.run_id
        name = stream.name
        if stream.kind in _DRAWN:
            after = stream.republish()
        if (
            gpu and stream.kind == "image"
        ):  # OpenGL, which may read it in place, does not wait for our streams
            sys.modules["torch"].cuda.current_stream().synchronize()
        if stream.kind != "overlay":  # which is not drawn by itself
            streams = sum(s.info is not None for s in list(publisher.streams.values()))
    return {"run": run, "stream": name, "after": after, "streams": streams, "gpu": gpu}


def _camera(camera: Any) -> dict[str, Any]:
    """Return a camera as JSON has it. The program that draws checks its values."""
    if isinstance(camera, (str, os.PathLike)):
        text = os.fspath(camera)
        try:
            if os.path.isfile(text):  # not a FIFO, whose opening would wait without end
                with open(text, encoding="utf-8") as f:
                    text = f.read(render_requests.MAX_CAMERA)
            camera = json.loads(text)
        except (OSError, ValueError, RecursionError) as e:
            raise ValueError(
                f"camera: {os.fspath(camera)[:80]!r} is neither a JSON object nor a readable file ({e})"
            ) from None
    if not hasattr(camera, "items"):
        raise TypeError(
            f'camera is a {type(camera).__name__}, not a mapping such as {{"viewmat": ..., "K": ...}}, '
            "JSON or the name of a file"
        )
    text = json.dumps(
        {str(key): value for key, value in camera.items() if value is not None},
        default=_plain,
    )
    if len(text) > render_requests.MAX_CAMERA:
        raise ValueError(
            f"camera: more than {render_requests.MAX_CAMERA:,} characters as JSON; it takes two matrices"
        )
    made = json.loads(text)
    for key in made.keys() & {
        "viewmat",
        "K",
    }:  # of matrices in a batch of one, that one
        while isinstance(made[key], list) and len(made[key]) == 1:
            made[key] = made[key][0]
    return made


def _plain(value: Any) -> Any:
    """Return a tensor or an array as lists of numbers."""
    checks.check_tensor(value, "camera")
    if not hasattr(value, "tolist"):
        raise TypeError(
            f"camera: a {type(value).__name__}; numbers, lists of them, tensors and arrays can be taken"
        )
    if math.prod(shape := tuple(value.shape)) > 64:
        raise ValueError(
            f"camera: a tensor of shape {shape}; it takes one matrix, vector or number"
        )
    return value.tolist()


def _background(color: Any) -> tuple[float, float, float] | None:
    if color is None:
        return None
    try:
        r, g, b = (float(c) for c in color)
    except (TypeError, ValueError):
        r = -1.0
        g = r
        b = r
    if not all(0 <= c <= 1 for c in (r, g, b)):
        raise ValueError(f"background {color!r} is not (R, G, B), each from 0 to 1")
    return r, g, b


class GrabClient:
    """The program that draws, from the caller's side. `lock` is to be held around `draw`."""

    def __init__(self, gpu_uuid: str, timeout: float) -> None:
        """`gpu_uuid`: the GPU to draw on, "" for any; `timeout`: seconds for the start, 60 at least.

        Raises RuntimeError or TimeoutError, with the program's last words, when it does not start.
        """
        self.lock = threading.RLock()
        self.is_drawing = False
        """True amid `draw`, under the lock."""
        self._program = ChildProgram(
            "splatview_viewer", "grab", *([gpu_uuid] if gpu_uuid else []), pipes=True
        )
        self._subscriber: Subscriber | None = None
        self._timeout = 0.0
        self._deadline = 0.0
        ready = self._ask(b"", max(timeout, _START_TIMEOUT_S))
        if not isinstance(ready, render_requests.Ready):
            self.close()
            raise RuntimeError(
                f"grab: nothing can be drawn here: {getattr(ready, 'reason', ready)}"
            )
        self._run = ready.run

    @property
    def alive(self) -> bool:
        return self._program.running()

    def draw(self, request: RenderRequest, gpu: int) -> torch.Tensor:
        """Return the picture for a request: (H, W, 3) uint8, the caller's own.

        `gpu`: the ordinal of the GPU on which to return a picture that comes in GPU memory.
        Raises what the answer says: ValueError, LookupError, TimeoutError, RuntimeError.
        """
        self.is_drawing = True
        try:
            return self._drawn(request, gpu)
        finally:
            self.is_drawing = False

    def _drawn(self, request: RenderRequest, gpu: int) -> torch.Tensor:
        answer = self._ask(
            render_requests.encode(request) + b"\n", request.timeout + LATE_S
        )
        if isinstance(answer, RenderError):
            raise _ERRORS[answer.kind](answer.reason)
        assert isinstance(answer, RenderResult)
        if self._subscriber is None:
            self._subscriber = Subscriber(self._run, client="grab")
        while True:
            stream = next(
                (s for s in self._subscriber.streams if s.name == answer.stream), None
            )
            if stream is not None:
                stream.open()
                frame = stream.read(after=answer.version - 1)
                picture = None if frame is None else _copied(frame, answer.flipped, gpu)
                if picture is not None:
                    if picture.numel() > _LARGE_BYTES:
                        stream.release()
                    return picture
                if stream.fault:
                    raise RuntimeError(
                        f"grab: the picture cannot be read: {stream.fault}"
                    )
            if not self._program.running():
                raise self.ended()
            if time.monotonic() > self._deadline:
                raise self._hangs()
            time.sleep(_LOOK_S)
            self._subscriber.poll()

    def _ask(self, line: bytes, timeout: float) -> Answer:
        """Send a request, and return the answer. Until the picture is there, the program may take `timeout` seconds."""
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        if self._program.stdin.closed:
            raise self.ended()
        requests = self._program.stdin.fileno()
        answers = self._program.stdout.fileno()
        os.set_blocking(
            requests, False
        )  # a stopped program does not read, and a camera may be longer than a pipe
        read = b""
        try:
            while line:
                self._wait_for(requests, select.POLLOUT)
                line = line[os.write(requests, line) :]
            while not read.endswith(b"\n"):
                self._wait_for(answers, select.POLLIN)
                part = os.read(answers, 1 << 16)
                if not part or len(read) > render_requests.MAX_LINE:
                    raise BrokenPipeError
                read += part
            return render_requests.decode_answer(read)
        except BrokenPipeError:
            raise self.ended() from None
        except (*render_requests.DecodeError, ValueError) as e:
            self.close()
            raise RuntimeError(
                f"grab: the program that draws sent what makes no sense: {e}"
            ) from None
        except (
            BaseException
        ):  # such as Ctrl-C: the answer to come would be taken for the next one
            self.close()
            raise

    def _wait_for(self, fd: int, event: int) -> None:
        poller = select.poll()
        poller.register(fd, event)
        if not poller.poll(max(0.0, self._deadline - time.monotonic()) * 1000):
            raise self._hangs()

    def _hangs(self) -> TimeoutError:
        self.close()
        return TimeoutError(
            f"grab: the program that draws did not answer within {self._timeout:g} s: "
            f"{self._program.last_words()}"
        )

    def ended(self) -> RuntimeError:
        """Return the error of a program that has ended."""
        self.close()
        return RuntimeError(
            f"grab: the program that draws ended with code {self._program.exit_code}: "
            f"{self._program.last_words()}"
        )

    def close(self) -> None:
        """End the program, and with it what another thread waits for. Idempotent."""
        if not self.lock.acquire(blocking=False):
            self._program.send_signal(signal.SIGTERM)
            if not self.lock.acquire(timeout=_END_PATIENCE_S):
                self._program.send_signal(signal.SIGKILL)
                self.lock.acquire()
        try:
            if self._subscriber is not None:
                self._subscriber.close()
            self._program.end(_END_PATIENCE_S)
        finally:
            self.lock.release()


def _copied(frame: StreamFrame, flipped: bool, gpu: int) -> torch.Tensor | None:
    """Return a copy of a picture; None if it was overwritten meanwhile."""
    import torch

    tensor = frame.tensors["image"]
    with frame:
        if not frame.on_gpu:
            array = tensor.array  # type: ignore[union-attr]
            picture = torch.from_numpy(
                (array[::-1] if flipped else array)[..., :3].copy()
            )
            return picture if frame.intact() else None
        with torch.no_grad(), torch.cuda.device(tensor.torch().device):  # type: ignore[union-attr]
            source = tensor.torch()[..., :3]  # type: ignore[union-attr]
            stream = torch.cuda.current_stream()
            frame.wait(stream.cuda_stream)
            if flipped:
                picture = source.flip(0)
            else:
                picture = source.clone(memory_format=torch.contiguous_format)
            stream.synchronize()  # the frame is released
        return picture.to(torch.device("cuda", gpu))
