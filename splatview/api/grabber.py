"""The program that draws for `grab`: started once, asked again and again, ended with this process."""

from __future__ import annotations

import fcntl
import itertools
import os
import select
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, Any

from splatview_ipc import Subscriber
from splatview_ipc.control import render_requests as grabs
from splatview_ipc.system import programs

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO

    import torch

    from splatview_ipc import Frame

_START = 60.0
"""Seconds that the program may take to start, at least: it loads torch."""
_SOON, _LATELY, _GLANCE = 2e-5, 0.005, 1e-3
"""Seconds between two looks for a picture that is on its way, for how long so, and afterwards: a GPU that still draws
is done soon; memory that has to be opened first takes its time."""
_LATE = 5.0
"""Seconds after the time that it was given within which it must have answered."""
_LARGE = 1 << 26
"""Bytes of a picture after which the memory that it came in is given back."""
_END = 3.0
"""Seconds for the program to end by itself; then it is killed, and what it leaves is removed by the next program."""
_LAST_WORDS = 2000
_SAID = 1 << 20
"""Bytes of what it says that are kept."""


class GrabberEnded(Exception):  # noqa: N818  (it is started again)
    """The program is there no more."""


class Grabber:
    """The program, from this side. For one thread at a time."""

    def __init__(self, gpu_uuid: str, timeout: float) -> None:
        """`gpu_uuid`: where it is best drawn, "" where that does not matter; `timeout`: seconds for its start.

        Raises RuntimeError, with its last words, when it does not come up.
        """
        self.alive = True
        self._said: IO[bytes] = tempfile.TemporaryFile(prefix="splatview-")  # a pipe would have to be read all the time
        fcntl.fcntl(self._said, fcntl.F_SETFL, os.O_APPEND)
        self._words = ""
        self._lines = b""
        self._numbers = itertools.count(1)
        self._subscriber: Subscriber | None = None
        self._lent: tuple[Frame, Any] | None = None
        """A frame that the GPU may still read, and its event behind that."""
        try:
            self._process = programs.start("splatview_viewer", "grab", *([gpu_uuid] if gpu_uuid else []),
                                           bufsize=0,
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said)
        except BaseException:
            self._said.close()
            raise
        try:
            self._run = self._begin(max(timeout, _START))
        except BaseException:
            self.close()
            raise

    def _begin(self, timeout: float) -> str:
        try:
            answer = self._answer(0, time.monotonic() + timeout)
        except GrabberEnded as e:
            raise RuntimeError(f"grab: {e}") from None
        except TimeoutError:
            raise RuntimeError(f"grab: the program that draws did not start within {timeout:g} s: "
                               f"{self._last_words()}") from None
        if not isinstance(answer, grabs.Ready):
            raise RuntimeError(f"grab: nothing can be drawn here: {getattr(answer, 'reason', answer)}")
        return answer.run

    def ask(self, make: Callable[[int], grabs.Wish], gpu: int) -> torch.Tensor:
        """The picture that a wish, made with this number, is answered with: (H, W, 3) uint8, the caller's own.

        `gpu`: the ordinal of the GPU on which to return it if it comes in GPU memory.
        Raises what the answer says: ValueError, LookupError, TimeoutError, RuntimeError; GrabberEnded.
        """
        self._give_back()
        wish = make(next(self._numbers))
        deadline = time.monotonic() + wish.timeout + _LATE
        self._trim()
        try:
            self._write(grabs.encode(wish) + b"\n", deadline)
            answer = self._answer(wish.number, deadline)
            if isinstance(answer, grabs.Drawn):
                return self._picture(answer, deadline, gpu)
        except TimeoutError:
            self.close()  # whatever keeps it busy
            raise TimeoutError(f"grab: the program that draws did not answer within {wish.timeout + _LATE:g} s: "
                               f"{self._last_words()}") from None
        assert isinstance(answer, grabs.Failed)
        raise {"value": ValueError, "lookup": LookupError, "timeout": TimeoutError,
               "fault": RuntimeError}[answer.kind](answer.reason)

    # -- messages ------------------------------------------------------------------------------------------------

    def _write(self, line: bytes, deadline: float) -> None:
        assert self._process.stdin is not None
        fd = self._process.stdin.fileno()
        os.set_blocking(fd, False)  # a stopped program does not read, and a camera may be longer than a pipe
        rest = memoryview(line)
        while rest:
            try:
                rest = rest[os.write(fd, rest) :]
            except BlockingIOError:
                _wait_for(fd, select.POLLOUT, deadline)
            except BrokenPipeError:
                raise self._ended() from None

    def _answer(self, number: int, deadline: float) -> grabs.Answer:
        """The answer with this number, or, with 0, the first that comes. Answers to wishes that nobody waits for any
        more are passed over."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        while True:
            line, newline, rest = self._lines.partition(b"\n")
            if not newline:
                _wait_for(fd, select.POLLIN, deadline)
                part = os.read(fd, 1 << 16)
                if not part or len(self._lines) > grabs.MAX_LINE:
                    raise self._ended()
                self._lines += part
                continue
            self._lines = rest
            try:
                answer = grabs.decode_answer(line)
            except (*grabs.DecodeError, ValueError) as e:
                self.close()
                raise RuntimeError(f"grab: the program that draws said what makes no sense: {e}") from None
            if number == 0 or getattr(answer, "number", 0) == number:
                return answer

    def _ended(self) -> GrabberEnded:
        self.close()
        return GrabberEnded(f"the program that draws ended with code {self._process.returncode}: "
                            f"{self._last_words()}")

    def _last_words(self) -> str:
        if not self._said.closed:
            fd = self._said.fileno()
            words = os.pread(fd, _LAST_WORDS, max(0, os.fstat(fd).st_size - _LAST_WORDS))
            self._words = words.decode(errors="replace").strip() or "it said nothing"
        return self._words

    def _trim(self) -> None:
        """Keep what it says from growing without end. It writes at the end, wherever that is."""
        if os.fstat(self._said.fileno()).st_size > _SAID:
            os.ftruncate(self._said.fileno(), 0)

    # -- pictures ------------------------------------------------------------------------------------------------

    def _picture(self, drawn: grabs.Drawn, deadline: float, gpu: int) -> torch.Tensor:
        if self._subscriber is None:
            self._subscriber = Subscriber(self._run, client="grab")
        since = time.monotonic()
        while True:
            stream = next((s for s in self._subscriber.streams if s.name == drawn.stream), None)
            if stream is not None:
                stream.open()
                frame = stream.read(after=drawn.version - 1)
                picture = None if frame is None else self._copied(frame, drawn.flipped, gpu)
                if picture is not None:
                    if picture.numel() > _LARGE:
                        self._give_back()
                        stream.release()
                    return picture
                if stream.fault:
                    raise RuntimeError(f"grab: the picture cannot be read: {stream.fault}")
            now = time.monotonic()
            if self._process.poll() is not None:
                raise self._ended()
            if now > deadline:
                raise TimeoutError
            time.sleep(_SOON if now - since < _LATELY else _GLANCE)
            self._subscriber.poll()

    def _copied(self, frame: Frame, flipped: bool, gpu: int) -> torch.Tensor | None:
        """A copy of our own; None when it was overwritten meanwhile."""
        import torch

        tensor = frame.tensors["image"]
        if not frame.on_gpu:
            with frame:
                array = tensor.array  # type: ignore[union-attr]
                picture = torch.from_numpy((array[::-1] if flipped else array)[..., :3].copy())
                return picture if frame.intact() else None
        with torch.no_grad():
            source = tensor.torch()[..., :3]  # type: ignore[union-attr]
            with torch.cuda.device(source.device):
                frame.wait(torch.cuda.current_stream().cuda_stream)
                picture = source.flip(0) if flipped else source.clone(memory_format=torch.contiguous_format)
                self._lent = frame, torch.cuda.current_stream().record_event()
            return picture.to(torch.device("cuda", gpu))

    def _give_back(self) -> None:
        """The frame of the last picture, once the GPU has copied it, which it has long since."""
        if self._lent is not None:
            (frame, copied), self._lent = self._lent, None
            copied.synchronize()
            frame.close()

    # -- the end -------------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """In a forked child: let go of what would keep the parent's program from hearing of its end."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def close(self) -> None:
        """End it and give everything back. Idempotent."""
        if not self.alive:
            return
        self.alive = False
        self._give_back()
        if self._subscriber is not None:
            self._subscriber.close()
        programs.end(self._process, _END)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._last_words()
        self._said.close()


def _wait_for(fd: int, event: int, deadline: float) -> None:
    """Until a pipe can be used. Raises TimeoutError."""
    poller = select.poll()
    poller.register(fd, event)
    left = deadline - time.monotonic()
    if left <= 0 or not poller.poll(left * 1000):
        raise TimeoutError
