"""The program that draws for `splatview.grab`: `python -m splatview_viewer grab [GPU]`.

`splatview.grab` alone starts it. It reads requests on its standard input and answers on
its standard output (`render_requests`), one at a time, and ends with its input. It
sleeps in between, and releases streams that were not requested lately.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import sys
import traceback
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import moderngl
import numpy as np
import torch

from splatview_ipc.control import render_requests
from splatview_ipc.control.errors import IpcError
from splatview_ipc.control.render_requests import (
    GPU,
    HOST,
    PictureQueued,
    RenderError,
    RenderRequest,
    RenderResult,
)
from splatview_ipc.publisher.publisher import Publisher, RunRole
from splatview_ipc.system import entry
from splatview_viewer.app.still import Still, StillOptions
from splatview_viewer.app.stills import Stills
from splatview_viewer.core.errors import (
    CameraError,
    LateError,
    NotFoundError,
    ViewerError,
)
from splatview_viewer.core.screen import MAX_SIZE, MIN_SIZE
from splatview_viewer.screens.draw_target import DrawTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_ipc.control.frame import StreamFrame
    from splatview_viewer.core.view import Value

log = logging.getLogger("splatview")

_MAX_REASON = 4000
"""Characters of a reason; a renderer's may be long."""
_ErrorKind = Literal["lookup", "timeout", "value", "fault"]
_ERROR_KINDS: dict[type[Exception], _ErrorKind] = {
    NotFoundError: "lookup",
    LateError: "timeout",
    CameraError: "value",
    ValueError: "value",
}
"""Kinds of a `RenderError` by the class of the exception; of others it is "fault"."""
_REST_MS = 250
"""Milliseconds between two looks for runs and for streams that are not in use."""
_READ_BYTES = 1 << 20


@dataclass
class _PictureLayout:
    """The layout of pictures of one size on one device (`kinds.ValueLayout`)."""

    shape: tuple[int, ...]
    device: str
    kind: str = "image"
    dtype: str = "uint8"

    def frame(self, tensors: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        return {"image": tensors[0]}


def _ignore(_: PictureQueued) -> None:
    pass


class Grabber:
    """Follows all runs, draws requested pictures and publishes them in a hidden run."""

    def __init__(self, gpu_uuid: str | None = None) -> None:
        """Start to draw. Raises ViewerError, IpcError.

        Args:
            gpu_uuid: the GPU that is best drawn on, as `OffscreenScreen` takes it.
        """
        self._stills = Stills("grab", "camera", gpu_uuid=gpu_uuid)
        self._screen = self._stills.screen
        self._publisher = Publisher(
            "grab", lambda e: log.warning("grab: %s", e), role=RunRole(hidden=True)
        )
        self.run_id = self._publisher.run_id
        """The id of the hidden run."""
        self._layouts: dict[str, _PictureLayout] = {}
        """The layout of the last picture, by the name of its stream."""
        self._pixels = np.empty(0, np.uint8)
        self._shares: bool | None = None
        """CUDA can read OpenGL's pictures; None: not known yet."""

    def draw(
        self,
        request: RenderRequest,
        announce: Callable[[PictureQueued], object] = _ignore,
    ) -> RenderResult:
        """Draw a picture and publish it.

        Args:
            request: the picture.
            announce: called with each picture that a GPU is about to finish in its own
                memory.

        Raises:
            ViewerError: among them NotFoundError, LateError and CameraError.
            ValueError: the size is out of range.
            SharingError: a frame cannot be read here.
        """
        size = request.size
        if size is not None and not all(MIN_SIZE <= n <= MAX_SIZE for n in size):
            width, height = size
            raise ValueError(
                f"grab: a size of {width} x {height} is out of range; both sides must "
                "be "
                f"{MIN_SIZE} to {MAX_SIZE} pixels"
            )
        options = StillOptions(
            size, request.camera, request.background, picture_s=request.timeout
        )

        def draw(
            still: Still, value: Value | None, overlays: Sequence[StreamFrame]
        ) -> RenderResult | None:
            size = still.prepare(value, options)
            if size is None:
                return None
            result = self._draw_with_cuda(still, size, request.gpu, announce)
            if result is None:
                result = self._draw_with_opengl(still, size, overlays, request.gpu)
            if not still.is_intact():
                return None
            return result

        return self._stills.draw(request, draw)

    def _draw_with_cuda(
        self,
        still: Still,
        size: tuple[int, int],
        on_gpu: bool,
        announce: Callable[[PictureQueued], object],
    ) -> RenderResult | None:
        """Draw and publish a picture; None where CUDA does not draw.

        It is published while the GPU draws. A version that lacks Gaussians is followed
        by another one, and no answer names it.

        Args:
            on_gpu: publish it in GPU memory.
            announce: as for `draw`.
        """
        tensor = still.tensor(size)
        while tensor is not None:
            result = self._publish(tensor if on_gpu else tensor.cpu(), flipped=False)
            if on_gpu:
                announce(PictureQueued(result))
            if still.finish_tensor():
                return result
            tensor = still.tensor(size)
        return None

    def _draw_with_opengl(
        self,
        still: Still,
        size: tuple[int, int],
        overlays: Sequence[StreamFrame],
        on_gpu: bool,
    ) -> RenderResult:
        """Draw and publish a picture.

        Args:
            on_gpu: it is best in GPU memory.
        """
        screen = self._screen
        still.draw(size, overlays, shared=on_gpu and self._can_share())
        tensor = screen.tensor()
        if tensor is not None:
            # Whether a frame stayed whole that OpenGL reads in place is asked next.
            screen.ctx.finish()
            return self._publish(tensor, flipped=True)
        width, height = screen.size
        if self._pixels.shape != (height, width, 3):
            self._pixels = np.empty((height, width, 3), np.uint8)
        screen.framebuffer.read_into(self._pixels, components=3, alignment=1)
        return self._publish(torch.from_numpy(self._pixels), flipped=True)

    def _publish(self, tensor: torch.Tensor, flipped: bool) -> RenderResult:
        """Publish a picture in the stream for GPU memory or that for host memory.

        Args:
            tensor: (H, W, 3 or 4) uint8.
            flipped: the lowest row comes first, as OpenGL has them.
        """
        name = HOST
        if tensor.is_cuda:
            name = GPU
        stream = self._publisher.stream(name, "image")
        layout = _PictureLayout((*tensor.shape,), str(tensor.device))
        if layout != self._layouts.get(name):
            self._layouts[name] = layout
            stream.describe(layout, copy=True if tensor.is_cuda else None)
        version = stream.publish_awaited(((tensor,), {"layout": "HWC"}))
        return RenderResult(name, version, flipped)

    def _can_share(self) -> bool:
        """Return whether OpenGL's pictures come to CUDA without the host; tried once."""
        if self._shares is None:
            self._shares = torch.cuda.is_available() and self._share_target()
        return self._shares

    def _share_target(self) -> bool:
        """Try to share a small picture with CUDA; return whether that works."""
        try:
            target = DrawTarget(self._screen.ctx, (MIN_SIZE, MIN_SIZE), shared=True)
            target.release()
        except (IpcError, moderngl.Error, RuntimeError) as e:
            log.warning("grab: what OpenGL draws goes through the host: %s", e)
            return False
        return True

    def release_idle(self) -> None:
        """Do what is due between requests."""
        if self._stills.release_idle():
            self._screen.resize(MIN_SIZE, MIN_SIZE)
            self._pixels = np.empty(0, np.uint8)

    def close(self) -> None:
        self._publisher.close()
        self._stills.close()


# -- the program -----------------------------------------------------------------------


def main(args: list[str]) -> int:
    """Run the program, and return its exit status.

    Args:
        args: the UUID of the GPU that is best drawn on, or nothing.
    """
    answers = os.dup(1)
    # What libraries print must not be taken for an answer.
    os.dup2(2, 1)
    with entry.handle_signals(lambda *_: sys.exit(0)):
        try:
            path = args[0] if args else None
            grabber = Grabber(path)
        except (ViewerError, IpcError) as e:
            _answer(answers, _render_error("fault", str(e)))
            return 2
        try:
            _answer(answers, render_requests.Ready(grabber.run_id))
            _serve(grabber, 0, answers)
        except BrokenPipeError:
            # The other program has ended.
            pass
        finally:
            try:
                # SIGTERM may follow the end of the input at once.
                entry.ignore_signals()
            finally:
                grabber.close()
    return 0


def _serve(grabber: Grabber, requests: int, answers: int) -> None:
    """Answer requests until their end. Both are file descriptors."""
    poller = select.poll()
    poller.register(requests, select.POLLIN)
    buffer = b""
    has_answered = False
    while True:
        grabber.release_idle()
        if not poller.poll(_REST_MS):
            continue
        chunk = os.read(requests, _READ_BYTES)
        if not chunk or len(buffer) + len(chunk) > render_requests.MAX_LINE:
            return
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in lines:
            try:
                request = render_requests.decode_request(line)
            except (*render_requests.DecodeError, ValueError) as e:
                sys.exit(f"splatview grab: a request that makes no sense: {e}")
            _answer(answers, _answer_to(grabber, request, partial(_answer, answers)))
            if not has_answered:
                # What was imported by now lives to the end: looking through it takes
                # 20 ms.
                gc.freeze()
                has_answered = True


def _answer_to(
    grabber: Grabber,
    request: RenderRequest,
    announce: Callable[[PictureQueued], object],
) -> render_requests.Answer:
    """Return the picture that was requested, or the reason why there is none.

    Args:
        announce: as for `Grabber.draw`.
    """
    try:
        return grabber.draw(request, announce)
    except (ViewerError, IpcError, ValueError) as e:
        return _render_error(_kind_of(e), str(e))
    except Exception as e:
        traceback.print_exc()
        return _render_error("fault", f"{type(e).__name__}: {e}")


def _kind_of(e: Exception) -> _ErrorKind:
    """Return the kind of a `RenderError` for an exception."""
    for error, kind in _ERROR_KINDS.items():
        if isinstance(e, error):
            return kind
    return "fault"


def _render_error(kind: _ErrorKind, reason: str) -> RenderError:
    return RenderError(kind, reason[:_MAX_REASON])


def _answer(answers: int, answer: render_requests.Answer) -> None:
    """Write an answer as a line to a file descriptor."""
    line = render_requests.encode(answer) + b"\n"
    while line:
        line = line[os.write(answers, line) :]
