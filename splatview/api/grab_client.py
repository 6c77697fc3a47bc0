"""The program that draws for `grab`, from the caller's side."""

from __future__ import annotations

import math
import os
import select
import signal
import threading
import time
from typing import TYPE_CHECKING

from splatview.api.grab_pictures import PictureReader
from splatview.api.waiting import DRAW_PERIOD_S, draw_while_waiting, draws_here
from splatview_ipc.control import render_requests
from splatview_ipc.control.render_requests import (
    PictureQueued,
    RenderError,
    RenderResult,
)
from splatview_ipc.system.child_program import ChildProgram

if TYPE_CHECKING:
    import torch

    from splatview_ipc.control.render_requests import Answer, RenderRequest

_START_TIMEOUT_S = 60.0
"""The program loads torch."""
_POLL_PERIOD_S = 2e-4
_SPIN_S = 2e-3
"""Seconds in which a picture that a GPU is about to finish is looked for without a
pause."""
LATE_S = 5.0
"""Time beyond a request's own timeout until the program counts as hanging."""
_END_TIMEOUT_S = 3.0
_ERRORS = {
    "value": ValueError,
    "lookup": LookupError,
    "timeout": TimeoutError,
    "fault": RuntimeError,
}
"""The class of the error that an answer of the program stands for."""


class GrabClient:
    """The program that draws. `lock` is to be held around `draw`."""

    def __init__(self, gpu_uuid: str, timeout: float) -> None:
        """Start the program and wait until it can draw.

        Args:
            gpu_uuid: the GPU to draw on, "" for any.
            timeout: seconds for the start, 60 at least.

        Raises:
            RuntimeError: it does not start; with the last lines that it wrote.
            TimeoutError: it did not start in time.
        """
        self.lock = threading.RLock()
        self.is_drawing = False
        """True amid `draw`, under the lock."""
        arguments = [gpu_uuid] if gpu_uuid else []
        self._program = ChildProgram("splatview_viewer", "grab", *arguments, pipes=True)
        self._pictures: PictureReader | None = None
        self._timeout = 0.0
        self._deadline = 0.0
        self._received = b""
        """Bytes of answers that were not taken yet."""
        ready = self._exchange(b"", max(timeout, _START_TIMEOUT_S))
        if not isinstance(ready, render_requests.Ready):
            self.close()
            reason = getattr(ready, "reason", ready)
            raise RuntimeError(f"grab: nothing can be drawn here: {reason}")
        self._pictures = PictureReader(ready.run)

    @property
    def alive(self) -> bool:
        """True while the program runs."""
        return self._program.is_running()

    def draw(self, request: RenderRequest, gpu: int) -> torch.Tensor:
        """Return the picture for a request: (H, W, 3) uint8, the caller's own.

        Raises what the answer says: ValueError, LookupError, TimeoutError,
        RuntimeError.

        Args:
            gpu: the ordinal of the GPU on which to return a picture that comes in GPU
                memory.
        """
        self.is_drawing = True
        try:
            return self._request_picture(request, gpu)
        finally:
            self.is_drawing = False

    def _request_picture(self, request: RenderRequest, gpu: int) -> torch.Tensor:
        """Send a request, and wait for the picture."""
        assert self._pictures is not None
        self._pictures.finish_copy()
        line = render_requests.encode(request) + b"\n"
        answer = self._exchange(line, request.timeout + LATE_S)
        queued: RenderResult | None = None
        picture: torch.Tensor | None = None
        while isinstance(answer, PictureQueued):
            queued = answer.picture
            picture = self._read_early(queued, gpu)
            answer = self._next_answer()
        if isinstance(answer, RenderError):
            raise _ERRORS[answer.kind](answer.reason)
        assert isinstance(answer, RenderResult)
        if picture is None or answer != queued:
            picture = self._wait_for_picture(answer, gpu)
        assert picture is not None
        return picture

    def _read_early(self, queued: RenderResult, gpu: int) -> torch.Tensor | None:
        """Return a copy of a picture if it is there before the next answer."""
        try:
            return self._wait_for_picture(queued, gpu, is_early=True)
        except BaseException:
            # The answer to come would be taken for the next one.
            self.close()
            raise

    def _wait_for_picture(
        self, result: RenderResult, gpu: int, *, is_early: bool = False
    ) -> torch.Tensor | None:
        """Return a copy of a picture once it is there.

        Args:
            result: the picture.
            gpu: as for `draw`.
            is_early: no longer than until the next answer, and a little while at most;
                None is returned then.
        """
        pictures = self._pictures
        assert pictures is not None
        pauses_from = time.monotonic() + _SPIN_S
        while True:
            picture = pictures.read(result, gpu)
            if picture is not None:
                return picture
            now = time.monotonic()
            if is_early and (now > pauses_from or self._has_answer()):
                return None
            if not self._program.is_running():
                raise self.ended()
            if now > self._deadline:
                raise self._timed_out()
            # Other threads get the interpreter in any case.
            time.sleep(0.0 if now < pauses_from else _POLL_PERIOD_S)
            pictures.poll()

    def _exchange(self, line: bytes, timeout: float) -> Answer:
        """Send a request, and return the first answer.

        Args:
            line: the request, or nothing.
            timeout: seconds that the program may take until the picture can be read.
        """
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        return self._next_answer(line)

    def _next_answer(self, line: bytes = b"") -> Answer:
        """Send a request, if any, and return the next answer."""
        assert self._program.stdin is not None
        if self._program.stdin.closed:
            raise self.ended()
        try:
            self._send(line)
            return render_requests.decode_answer(self._receive())
        except BrokenPipeError:
            raise self.ended() from None
        except (*render_requests.DecodeError, ValueError) as error:
            self.close()
            raise RuntimeError(
                f"grab: the program that draws sent what makes no sense: {error}"
            ) from None
        except BaseException:
            # After Ctrl-C the answer to come would be taken for the next one.
            self.close()
            raise

    def _send(self, line: bytes) -> None:
        """Write a request to the program."""
        assert self._program.stdin is not None
        requests = self._program.stdin.fileno()
        # A stopped program does not read, and a camera may be longer than a pipe.
        os.set_blocking(requests, False)
        while line:
            self._wait_for(requests, select.POLLOUT)
            line = line[os.write(requests, line) :]

    def _receive(self) -> bytes:
        """Read the program's next answer, one line."""
        assert self._program.stdout is not None
        answers = self._program.stdout.fileno()
        while b"\n" not in self._received:
            self._wait_for(answers, select.POLLIN)
            chunk = os.read(answers, 1 << 16)
            if not chunk or len(self._received) > render_requests.MAX_LINE:
                raise BrokenPipeError
            self._received += chunk
        line, self._received = self._received.split(b"\n", 1)
        return line

    def _has_answer(self) -> bool:
        """Return whether an answer, or the end of the program, can be read."""
        if self._received:
            return True
        assert self._program.stdout is not None
        poller = select.poll()
        poller.register(self._program.stdout.fileno(), select.POLLIN)
        return bool(poller.poll(0))

    def _wait_for(self, descriptor: int, event: int) -> None:
        """Wait until a pipe is ready, at most until the deadline."""
        poller = select.poll()
        poller.register(descriptor, event)
        # The picture may be of a scene that a function of this script draws.
        period_s = math.inf
        if draws_here():
            period_s = DRAW_PERIOD_S
        seconds_left = max(0.0, self._deadline - time.monotonic())
        while not poller.poll(min(seconds_left, period_s) * 1e3):
            seconds_left = self._deadline - time.monotonic()
            if seconds_left <= 0:
                raise self._timed_out()
            if math.isfinite(period_s):
                draw_while_waiting()

    def _timed_out(self) -> TimeoutError:
        """Return the error of a program that does not answer."""
        self.close()
        return TimeoutError(
            f"grab: the program that draws did not answer within {self._timeout:g} s: "
            f"{self._program.last_error_lines()}"
        )

    def ended(self) -> RuntimeError:
        """Return the error of a program that has ended."""
        self.close()
        return RuntimeError(
            f"grab: the program that draws ended with code {self._program.exit_code}: "
            f"{self._program.last_error_lines()}"
        )

    def close(self) -> None:
        """End the program, also while another thread waits for it. Idempotent."""
        if not self.lock.acquire(blocking=False):
            self._program.send_signal(signal.SIGTERM)
            if not self.lock.acquire(timeout=_END_TIMEOUT_S):
                self._program.send_signal(signal.SIGKILL)
                self.lock.acquire()
        try:
            if self._pictures is not None:
                self._pictures.close()
            self._program.end(_END_TIMEOUT_S)
        finally:
            self.lock.release()
