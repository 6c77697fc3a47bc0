"""The program that draws for `grab`: started once, asked again and again, ended with the run."""

from __future__ import annotations

import os
import select
import threading
import time
from typing import TYPE_CHECKING

from splatview_ipc.control import render_requests
from splatview_ipc.control.render_requests import RenderError, RenderResult
from splatview_ipc.subscriber.subscriber import Subscriber
from splatview_ipc.system.child_program import ChildProgram

if TYPE_CHECKING:
    import torch

    from splatview_ipc.control.frame import Frame
    from splatview_ipc.control.render_requests import Answer, RenderRequest

_START_TIMEOUT_S = 60.0
"""The program loads torch."""
_LOOK_S = 2e-4
LATE_S = 5.0
"""Time beyond a request's own timeout until the program counts as hanging."""
_LARGE_BYTES = 1 << 26
"""Pictures of more bytes: the memory in which they came is released at once."""
_END_PATIENCE_S = 3.0
_ERRORS = {"value": ValueError, "lookup": LookupError, "timeout": TimeoutError, "fault": RuntimeError}


class Grabber:
    """The program that draws, from the caller's side. `lock` is to be held around `draw`."""

    def __init__(self, gpu_uuid: str, timeout: float) -> None:
        """`gpu_uuid`: the GPU to draw on, "" for any; `timeout`: seconds for the start, 60 at least.

        Raises RuntimeError or TimeoutError, with the program's last words, when it does not start.
        """
        self.lock = threading.Lock()
        self._program = ChildProgram("splatview_viewer", "grab", *([gpu_uuid] if gpu_uuid else []), pipes=True)
        self._subscriber: Subscriber | None = None
        self._timeout = self._deadline = 0.0
        ready = self._ask(b"", max(timeout, _START_TIMEOUT_S))
        if not isinstance(ready, render_requests.Ready):
            self.close()
            raise RuntimeError(f"grab: nothing can be drawn here: {getattr(ready, 'reason', ready)}")
        self._run = ready.run

    @property
    def alive(self) -> bool:
        return self._program.running()

    def draw(self, request: RenderRequest, gpu: int) -> torch.Tensor:
        """Return the picture for a request: (H, W, 3) uint8, the caller's own.

        `gpu`: the ordinal of the GPU on which to return a picture that comes in GPU memory.
        Raises what the answer says: ValueError, LookupError, TimeoutError, RuntimeError.
        """
        answer = self._ask(render_requests.encode(request) + b"\n", request.timeout + LATE_S)
        if isinstance(answer, RenderResult):
            return self._picture(answer, gpu)
        assert isinstance(answer, RenderError)
        raise _ERRORS[answer.kind](answer.reason)

    def _ask(self, line: bytes, timeout: float) -> Answer:
        """Send a request, and return the answer. Until the picture is there, the program may take `timeout` seconds."""
        self._timeout, self._deadline = timeout, time.monotonic() + timeout
        assert self._program.stdin is not None and self._program.stdout is not None
        requests, answers = self._program.stdin.fileno(), self._program.stdout.fileno()
        os.set_blocking(requests, False)  # a stopped program does not read, and a camera may be longer than a pipe
        read = b""
        try:
            while line:
                self._wait_for(requests, select.POLLOUT)
                line = line[os.write(requests, line):]
            while not read.endswith(b"\n"):
                self._wait_for(answers, select.POLLIN)
                part = os.read(answers, 1 << 16)
                if not part or len(read) > render_requests.MAX_LINE:
                    raise BrokenPipeError
                read += part
            return render_requests.decode_answer(read)
        except BrokenPipeError:
            raise self._ended() from None
        except (*render_requests.DecodeError, ValueError) as e:
            self.close()
            raise RuntimeError(f"grab: the program that draws sent what makes no sense: {e}") from None
        except BaseException:  # such as Ctrl-C: the answer to come would be taken for the next one
            self.close()
            raise

    def _wait_for(self, fd: int, event: int) -> None:
        poller = select.poll()
        poller.register(fd, event)
        if not poller.poll(max(0.0, self._deadline - time.monotonic()) * 1000):
            raise self._hangs()

    def _hangs(self) -> TimeoutError:
        self.close()
        return TimeoutError(f"grab: the program that draws did not answer within {self._timeout:g} s: "
                            f"{self._program.last_words()}")

    def _ended(self) -> RuntimeError:
        self.close()
        return RuntimeError(f"grab: the program that draws ended with code {self._program.exit_code}: "
                            f"{self._program.last_words()}")

    def _picture(self, drawn: RenderResult, gpu: int) -> torch.Tensor:
        if self._subscriber is None:
            self._subscriber = Subscriber(self._run, client="grab")
        while True:
            stream = next((s for s in self._subscriber.streams if s.name == drawn.stream), None)
            if stream is not None:
                stream.open()
                frame = stream.read(after=drawn.version - 1)
                picture = None if frame is None else _copied(frame, drawn.flipped, gpu)
                if picture is not None:
                    if picture.numel() > _LARGE_BYTES:
                        stream.release()
                    return picture
                if stream.fault:
                    raise RuntimeError(f"grab: the picture cannot be read: {stream.fault}")
            if not self._program.running():
                raise self._ended()
            if time.monotonic() > self._deadline:
                raise self._hangs()
            time.sleep(_LOOK_S)
            self._subscriber.poll()

    def close(self) -> None:
        """End the program. Idempotent."""
        if self._subscriber is not None:
            self._subscriber.close()
        self._program.end(_END_PATIENCE_S)


def _copied(frame: Frame, flipped: bool, gpu: int) -> torch.Tensor | None:
    """Return a copy of a picture; None if it was overwritten meanwhile."""
    import torch

    tensor = frame.tensors["image"]
    with frame:
        if not frame.on_gpu:
            array = tensor.array  # type: ignore[union-attr]
            picture = torch.from_numpy((array[::-1] if flipped else array)[..., :3].copy())
            return picture if frame.intact() else None
        with torch.no_grad(), torch.cuda.device(tensor.torch().device):  # type: ignore[union-attr]
            source = tensor.torch()[..., :3]  # type: ignore[union-attr]
            stream = torch.cuda.current_stream()
            frame.wait(stream.cuda_stream)
            picture = source.flip(0) if flipped else source.clone(memory_format=torch.contiguous_format)
            stream.synchronize()  # the frame is released
        return picture.to(torch.device("cuda", gpu))
