"""CUDA streams, at the least cost: being on one, where torch's own contexts take as long as several launches, and what
the work on one takes."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from typing import Any

import torch


def raw_stream(index: int) -> int:
    """The handle of torch's current stream on a GPU, by the GPU's ordinal."""
    return torch._C._cuda_getCurrentRawStream(index)


class OnStream:
    """`with on:` work on one stream, on its GPU, without gradients. May be entered again inside, which is cheap.

    For one thread.
    """

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self._raw = stream.cuda_stream
        self._index = stream.device_index
        self._home: tuple[int, Any] = -1, None
        """The stream that was current before, by its handle: nearly always the same."""
        self._before: list[tuple[bool, Any]] = []
        """The state to go back to, for each time that it was entered: gradients, and the stream or torch's contexts."""

    def __enter__(self) -> None:
        before: Any = None
        if torch.cuda.current_device() != self._index:
            before = ExitStack()
            before.enter_context(torch.cuda.device(self._index))  # leaves without making a context on the other GPU
            before.enter_context(torch.cuda.stream(self._stream))
        elif (raw := raw_stream(self._index)) != self._raw:
            if raw != self._home[0]:
                self._home = raw, torch.cuda.current_stream(self._index)
            before = self._home[1]
            torch.cuda.set_stream(self._stream)
        grad = torch.is_grad_enabled()
        if grad:
            torch._C._set_grad_enabled(False)
        self._before.append((grad, before))

    def __exit__(self, *exc: object) -> None:
        grad, before = self._before.pop()
        if grad:
            torch._C._set_grad_enabled(True)
        if isinstance(before, ExitStack):
            before.close()
        elif before is not None:
            torch.cuda.set_stream(before)


class Clock:
    """Measures how long the GPU takes for what lies between `begin` and `end` on a CUDA stream.

    The stream is named each time: to ask torch for the current one takes longer than to record an event.
    """

    MOST = 64

    def __init__(self) -> None:
        self._running: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()
        self._idle: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._begun: tuple[torch.cuda.Event, torch.cuda.Event] | None = None
        self._ms: float | None = None

    def begin(self, stream: torch.cuda.Stream) -> None:
        pair = self._begun or (self._idle.pop() if self._idle else None)
        self._begun = pair or (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        self._begun[0].record(stream)

    def end(self, stream: torch.cuda.Stream) -> None:
        """Without a `begin`: nothing."""
        if self._begun is not None:
            pair, self._begun = self._begun, None
            pair[1].record(stream)
            if len(self._running) < self.MOST:  # otherwise they are not read
                self._running.append(pair)

    def extend(self, stream: torch.cuda.Stream) -> None:
        """Count in what the stream was given since `end`. Before `ms` is read."""
        if self._running:
            self._running[-1][1].record(stream)

    @property
    def ms(self) -> float | None:
        """Milliseconds of the last one that is finished; None before. Never waits."""
        while self._running and self._running[0][1].query():
            pair = self._running.popleft()
            self._ms = pair[0].elapsed_time(pair[1])
            self._idle.append(pair)
        return self._ms

    @property
    def news(self) -> float | None:
        """As `ms`, but None if nothing was finished since the last time."""
        before = len(self._running)
        ms = self.ms
        return ms if len(self._running) < before else None

    def clear(self) -> None:
        """Forget the events, which belong to one GPU."""
        self._running.clear()
        self._idle.clear()
        self._begun = None
