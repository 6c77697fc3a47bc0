"""Time that CUDA work takes on the GPU, told without ever waiting for it."""

from __future__ import annotations

from collections import deque

import torch


class Clock:
    """How long the GPU takes for what lies between `begin` and `end` on a CUDA stream.

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
            if len(self._running) < self.MOST:  # nobody asks for them otherwise
                self._running.append(pair)

    def extend(self, stream: torch.cuda.Stream) -> None:
        """What the stream was given since `end` belongs to it as well. Before anybody asks for `ms`."""
        if self._running:
            self._running[-1][1].record(stream)

    @property
    def ms(self) -> float | None:
        """Of the last one that is finished; None before. Never waits."""
        while self._running and self._running[0][1].query():
            pair = self._running.popleft()
            self._ms = pair[0].elapsed_time(pair[1])
            self._idle.append(pair)
        return self._ms

    @property
    def news(self) -> float | None:
        """As `ms`, but None if nothing was finished since anybody asked."""
        before = len(self._running)
        ms = self.ms
        return ms if len(self._running) < before else None

    def clear(self) -> None:
        """Forget the events, which belong to one GPU."""
        self._running.clear()
        self._idle.clear()
        self._begun = None
