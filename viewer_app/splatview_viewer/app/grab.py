"""The program that draws for `splatview.grab`: `python -m splatview_viewer grab [GPU]`, started by it alone.

It reads requests on its standard input and answers on its standard output (`render_requests`), one at a time, and ends
with its input. It sleeps in between, and releases streams that were not requested lately.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import moderngl
import numpy as np
import torch

from splatview_ipc.control import render_requests
from splatview_ipc.control.errors import IpcError
from splatview_ipc.control.render_requests import (
    GPU,
    HOST,
    RenderError,
    RenderRequest,
    RenderResult,
)
from splatview_ipc.publisher.publisher import Publisher
from splatview_ipc.system import entry
from splatview_viewer.app.offscreen import Still, StillOptions, Stills
from splatview_viewer.core.errors import (
    CameraError,
    LateError,
    NotFoundError,
    ViewerError,
)
from splatview_viewer.core.screen import MAX_SIZE, MIN_SIZE
from splatview_viewer.screens.offscreen import DrawTarget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_ipc.control.frame import StreamFrame
    from splatview_viewer.core.view import Value

log = logging.getLogger("splatview")

_REASON = 4000
"""Characters of a reason, of which a renderer's may be long."""
_KINDS: dict[type[Exception], Literal["lookup", "timeout", "value", "fault"]] = {
    NotFoundError: "lookup",
    LateError: "timeout",
    CameraError: "value",
    ValueError: "value",
    Exception: "fault",
}
_REST_MS = 250
"""Between two looks for runs and for streams that are not in use."""


@dataclass
class _PictureLayout:
    """The layout of pictures of one size on one device (`splatview_ipc.kinds.ValueLayout`)."""

    shape: tuple[int, ...]
    device: str
    kind: str = "image"
    dtype: str = "uint8"

    def frame(self, tensors: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        return {"image": tensors[0]}


class Grabber:
    """Follows all runs, draws what is requested and publishes it in a hidden run of its own."""

    def __init__(self, gpu_uuid: str | None = None) -> None:
        """`gpu_uuid`: the GPU that is best drawn on, as `OffscreenScreen` takes it. Raises ViewerError, IpcError."""
        self._stills = Stills("grab", "camera", gpu_uuid=gpu_uuid)
        self._screen = self._stills.screen
        self._publisher = Publisher(
            "grab", lambda e: log.warning("grab: %s", e), hidden=True
        )
        self.run_id = self._publisher.run_id
        """The id of the hidden run."""
        self._layouts: dict[str, _PictureLayout] = {}
        self._pixels = np.empty(0, np.uint8)
        self._shares: bool | None = None

    def draw(self, request: RenderRequest) -> RenderResult:
        """Draw and publish. Raises ViewerError, of which NotFoundError, LateError and those for what makes no sense;
        SharingError.
        """
        size = request.size
        if size is not None and not all(MIN_SIZE <= n <= MAX_SIZE for n in size):
            raise ValueError(
                f"grab: a size of {size[0]} x {size[1]} is out of range; both sides must be {MIN_SIZE} to "
                f"{MAX_SIZE} pixels"
            )
        look = StillOptions(size, request.camera, request.background)
        screen = self._screen

        def publish(
            still: Still, value: Value | None, overlays: Sequence[StreamFrame]
        ) -> RenderResult | None:
            size = still.prepare(value, look)
            if size is None:
                return None
            picture = still.tensor(size)
            flipped = picture is None  # OpenGL has the lowest row first
            if picture is None:
                still.draw(size, overlays, shared=request.gpu and self._can_share())
                picture = screen.tensor()
                if picture is not None:  # on the GPU where CUDA can read it there
                    screen.ctx.finish()  # whether a frame stayed whole that OpenGL reads in place is asked next
                else:
                    width, height = screen.size
                    if self._pixels.shape != (height, width, 3):
                        self._pixels = np.empty((height, width, 3), np.uint8)
                    screen.framebuffer.read_into(
                        self._pixels, components=3, alignment=1
                    )
                    picture = torch.from_numpy(self._pixels)
            if not request.gpu and picture.is_cuda:
                picture = picture.cpu()
            if not still.whole():
                return None
            name = GPU if picture.is_cuda else HOST
            stream = self._publisher.stream(name, "image")
            layout = _PictureLayout((*picture.shape,), str(picture.device))
            if layout != self._layouts.get(name):
                self._layouts[name] = layout
                stream.describe(layout, copy=True if picture.is_cuda else None)
            stream.publish(((picture,), {"layout": "HWC"}))
            return RenderResult(name, stream.version, flipped)

        return self._stills.draw(request, publish)

    def _can_share(self) -> bool:
        """Return whether OpenGL's pictures come to CUDA without going through the host; tried once."""
        if self._shares is None:
            self._shares = torch.cuda.is_available()
            try:
                if self._shares:
                    DrawTarget(
                        self._screen.ctx, (MIN_SIZE, MIN_SIZE), shared=True
                    ).release()
            except (IpcError, moderngl.Error, RuntimeError) as e:
                self._shares = False
                log.warning("grab: what OpenGL draws goes through the host: %s", e)
        return self._shares

    def rest(self) -> None:
        """Do what is due between requests."""
        if self._stills.rest():
            self._screen.resize(MIN_SIZE, MIN_SIZE)
            self._pixels = np.empty(0, np.uint8)

    def close(self) -> None:
        self._publisher.close()
        self._stills.close()


# -- the program ------------------------------------------------------------------------------------------------------


def main(args: list[str]) -> int:
    """The exit status. `args`: the UUID of the GPU that is best drawn on, or nothing."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print must not be taken for an answer
    with entry.handle_signals(lambda *_: sys.exit(0)):
        try:
            grabber = Grabber(args[0] if args else None)
        except (ViewerError, IpcError) as e:
            _answer(answers, RenderError("fault", str(e)[:_REASON]))
            return 2
        try:
            _answer(answers, render_requests.Ready(grabber.run_id))
            _serve(grabber, 0, answers)
        except BrokenPipeError:
            pass  # the other program has ended
        finally:
            try:
                entry.ignore_signals()  # SIGTERM may follow the end of the input at once
            finally:
                grabber.close()
    return 0


def _serve(grabber: Grabber, requests: int, answers: int) -> None:
    poller = select.poll()
    poller.register(requests, select.POLLIN)
    read = b""
    while True:
        grabber.rest()
        if not poller.poll(_REST_MS):
            continue
        part = os.read(requests, 1 << 20)
        if not part or len(read) + len(part) > render_requests.MAX_LINE:
            return
        *lines, read = (read + part).split(b"\n")
        for line in lines:
            try:
                request = render_requests.decode_request(line)
            except (*render_requests.DecodeError, ValueError) as e:
                sys.exit(f"splatview grab: a request that makes no sense: {e}")
            answer: render_requests.Answer
            try:
                answer = grabber.draw(request)
            except (ViewerError, IpcError, ValueError) as e:
                answer = RenderError(
                    next(
                        kind for error, kind in _KINDS.items() if isinstance(e, error)
                    ),
                    str(e)[:_REASON],
                )
            except Exception as e:
                traceback.print_exc()
                answer = RenderError("fault", f"{type(e).__name__}: {e}"[:_REASON])
            _answer(answers, answer)


def _answer(answers: int, answer: render_requests.Answer) -> None:
    line = render_requests.encode(answer) + b"\n"
    while line:
        line = line[os.write(answers, line) :]
