"""Being on a CUDA stream, at the least cost: torch's own contexts take as long as several launches."""

from __future__ import annotations

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
        """What to go back to, for each time that it was entered: gradients, and the stream or torch's contexts."""

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
