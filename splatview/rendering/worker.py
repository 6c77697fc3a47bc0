"""The render worker: draws a published scene with the user's function on request.

It is a program of the trainer's own environment, and a run of its own whose pictures
lie over the trainer's scene. It has no part in the training: whatever the function does,
nothing but this process ends by it. What never returns is ended by `faulthandler`, which
needs neither the GIL nor the main thread, and writes where the function was.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import threading
from typing import TYPE_CHECKING

import msgspec
import torch

from splatview.rendering.answers import PictureAnswers
from splatview.rendering.camera import RenderCamera
from splatview.rendering.draw_clock import DrawClock
from splatview.rendering.function import draw_picture
from splatview.rendering.requests import RequestQueue
from splatview.rendering.trouble import text_of_fault
from splatview.rendering.user_functions import UserFunctions
from splatview.rendering.worker_controls import PublishedControls
from splatview.rendering.worker_settings import WorkerReport, WorkerSettings
from splatview.rendering.worker_tensors import PublishedTensors
from splatview_ipc.publisher.publisher import Publisher, RunRole
from splatview_ipc.publisher.stream_channels import OverlaidStream
from splatview_ipc.system import entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from splatview_ipc.control import messages

_NICENESS = 5
"""The training comes first where processors are scarce."""
_WATCH_S = 0.25
"""Period of looking at the module's file and the run while no viewer asks."""
_ARRIVAL_S = 0.005
"""The same while tensors are awaited that a viewer wants to see."""
_PATIENCE_S = 2.0
"""Seconds that a picture may go on after the trainer has ended."""
_BROKEN = 3
"""Exit status of a worker whose GPU takes no more work after a fault."""


def main() -> int:
    """Draw until a signal, or until the trainer ends."""
    send_report = _take_stdout()
    settings = msgspec.json.decode(sys.stdin.readline(), type=WorkerSettings)
    os.nice(_NICENESS)
    # A file that is edited twice in a second is not taken for its bytecode.
    sys.dont_write_bytecode = True
    sys.path[:] = settings.path
    faulthandler.enable()
    worker = RenderWorkerProgram(settings, send_report)
    with contextlib.closing(worker), entry.handle_signals(worker.end):
        return worker.run()


def _take_stdout() -> Callable[[WorkerReport], None]:
    """Return a function that writes news for the trainer to what is stdout now.

    What the user's function prints goes to stderr from now on.
    """
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def send_report(report: WorkerReport) -> None:
        print(msgspec.json.encode(report).decode(), file=pipe, flush=True)

    return send_report


class RenderWorkerProgram:
    """Answers the requests of all viewers, one after the other."""

    def __init__(
        self, settings: WorkerSettings, send_report: Callable[[WorkerReport], None]
    ) -> None:
        """Follow the trainer's run and make one of our own.

        Args:
            settings: what to draw.
            send_report: tells the trainer.
        """
        self._settings = settings
        self._send_report = send_report
        self._ends = False
        self._wake = threading.Event()
        self._requests = RequestQueue()
        self._functions = UserFunctions(settings.function, settings.module)
        self._has_drawn = False
        """True once a picture was drawn: nothing compiles any more."""
        self._gpu_stream: torch.cuda.Stream | None = None
        self._tensors = PublishedTensors(settings.run, settings.scene)
        self._controls = PublishedControls(self._tensors.subscriber, settings.run)
        self._publisher = Publisher(
            settings.run_name, role=RunRole(parent_run=settings.run)
        )
        self._answers = PictureAnswers(
            self._publisher, OverlaidStream(settings.scene, settings.run)
        )
        key = ("Draw", self._answers.stream.name)
        self._publisher.on_request[key] = self._take_request

    def _take_request(self, message: messages.Draw) -> None:
        """Take a viewer's request. On the publisher's helper thread."""
        self._requests.put(message, self._publisher.now())
        self._wake.set()

    def end(self, *_: object) -> None:
        """End whatever the main thread does: handles signals."""
        self._ends = True
        sys.exit(0)

    def run(self) -> int:
        """Draw until a signal, or until the GPU takes no more; return the exit status."""
        while True:
            pause_s = self.turn()
            if pause_s is None:
                return _BROKEN
            if pause_s > 0:
                self._wake.wait(pause_s)
                self._wake.clear()

    def turn(self) -> float | None:
        """Import what has changed, and answer a request if there is one.

        Returns the seconds until the next turn, which a request begins at once; None if
        the GPU takes no more work.
        """
        functions = self._functions
        if functions.refresh(self._publisher.now(), self._limited):
            self._send_report(WorkerReport(functions.fault_text, is_changed=True))
        self._tensors.poll()
        self._controls.find_stream()
        request = None
        if self._tensors.read() and self._controls.read():
            request = self._requests.take()
        if request is not None:
            self._answer(request)
            return 0.0 if self._takes_work() else None
        is_arriving = bool(self._requests) or not self._tensors.values
        return _ARRIVAL_S if is_arriving else _WATCH_S

    @contextlib.contextmanager
    def _limited(self, is_first: bool = False) -> Iterator[None]:
        """End this process if the block takes too long, and write where it was.

        Args:
            is_first: what is called may compile.
        """
        settings = self._settings
        limit_s = settings.first_limit_s if is_first else settings.limit_s
        faulthandler.dump_traceback_later(limit_s, exit=True)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    # ---- pictures

    def _answer(self, request: messages.Draw) -> None:
        """Draw the picture of a request, or say why there is none."""
        device = self._tensors.device
        with self._on(device):
            if self._gpu_stream is not None:
                self._tensors.wait(self._gpu_stream.cuda_stream)
            clock = DrawClock(device)
            try:
                with self._limited(is_first=not self._has_drawn):
                    self._draw(request, device, clock)
                    self._answers.wait()
                self._functions.print_once(self._answers.last_fault_text)
            except (Exception, SystemExit) as error:
                if self._ends:
                    raise
                fault_text = text_of_fault(error)
                self._functions.print_once(fault_text)
                self._answers.put_fault(request, fault_text, DrawClock())
                self._answers.wait()
                return
        if not self._has_drawn:
            self._has_drawn = True
            self._send_report(WorkerReport(self._functions.fault_text, has_drawn=True))

    def _draw(
        self, request: messages.Draw, device: torch.device, clock: DrawClock
    ) -> None:
        """Call the function, and queue its picture."""
        call = self._functions.require_call()
        subject = self._functions.subject(self._tensors.values)
        arguments = subject, RenderCamera.of(request, device)
        picture = draw_picture(call, arguments, self._controls.values)
        step = self._tensors.meta.get("step")
        self._answers.put(request, picture, clock, step)

    @contextlib.contextmanager
    def _on(self, device: torch.device) -> Iterator[None]:
        """Work on a device, on a stream of our own that yields to others there."""
        if device.type != "cuda":
            yield
            return
        if self._gpu_stream is None or self._gpu_stream.device != device:
            self._gpu_stream = torch.cuda.Stream(device, priority=0)
        with torch.cuda.device(device), torch.cuda.stream(self._gpu_stream):
            yield

    def _takes_work(self) -> bool:
        """Return whether the GPU still takes work: after some faults it never does."""
        if self._gpu_stream is None:
            return True
        try:
            self._gpu_stream.synchronize()
        except RuntimeError as error:
            print(text_of_fault(error), file=sys.stderr, flush=True)
            return False
        return True

    def close(self) -> None:
        """End the run. Idempotent."""
        self._publisher.close()
        self._tensors.close()


if __name__ == "__main__":
    sys.exit(entry.run(main, _PATIENCE_S))
