"""What other libraries' arrays in GPU memory need after they were published, since torch's streams are not theirs.

A copy is queued on torch's current stream. Meanwhile the library may go on with its memory:

- CuPy and Numba write into it, or use it again, in the order of a stream of their own. They name that stream
  (`__cuda_array_interface__`), and it is made to wait for the copy. Nothing waits on the host.
- JAX made a copy for us (`splatview.adapters.tensors`), whose memory it uses again as soon as nobody refers to it. The
  reference is kept until the GPU is through with what was queued.

Whoever hands over arrays by DLPack alone, writes into them, and does so on a stream other than torch's current one has
to order that stream himself: DLPack does not name it.
"""

from __future__ import annotations

import threading
from collections import deque
from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splatview.adapters.tensors import as_tensor, is_copied, named_stream, wait

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Foreign:
    """Tensors over the arrays of one stream, some of which are another library's."""

    def __init__(self, arrays: Iterable[Any]) -> None:
        """`arrays`: of the first value."""
        self.copied = any(map(is_copied, arrays))
        """Whether some are copied to be tensors, which only a viewer makes them worth."""
        self._streams: dict[int, set[int | None]] = {}
        """By thread (the helper's beside the trainer's): the libraries' streams of the newest arrays in GPU memory."""
        self._held: deque[tuple[torch.cuda.Event, tuple[torch.Tensor, ...]]] = deque()
        self._last: tuple[tuple[Any, ...], tuple[torch.Tensor, ...]] = (), ()
        """Arrays whose memory theirs is, of no library that says when to look, and their tensors."""

    def tensors(self, arrays: Sequence[Any], names: Sequence[str]) -> tuple[torch.Tensor, ...]:
        """Tensors over these arrays. Raises as `as_tensor`."""
        before, made = self._last
        if before and all(map(is_, arrays, before)) and [a.shape for a in arrays] == [t.shape for t in made]:
            return made  # the very arrays of the last time, as those of a program in NumPy are
        made = tuple(map(as_tensor, arrays, names))
        self.copied = any(map(is_copied, arrays))
        lasts = not self.copied and all(isinstance(a, (np.ndarray, torch.Tensor)) for a in arrays)
        self._last = (tuple(arrays), made) if lasts else ((), ())
        if any(t.is_cuda for t in made):
            self._streams[threading.get_ident()] = {
                named_stream(a) for a in arrays if not isinstance(a, torch.Tensor)}
        return made

    def published(self, tensors: tuple[torch.Tensor, ...], again: bool = False) -> None:
        """These, the last that this thread asked for, have been published, and copies of them are queued; `again`: of
        tensors that may have been published before. Who waits for the copies may leave it."""
        streams = self._streams.pop(threading.get_ident(), {None} if again and tensors[0].is_cuda else None)
        if (streams is None and not self._held) or torch.cuda.is_current_stream_capturing():
            return  # (even to ask for an event would spoil a capture)
        while self._held and self._held[0][0].query():
            self._held.popleft()
        if streams is None:
            return
        device = tensors[0].device
        for stream in streams:
            wait(device, stream, behind=False)
        if None in streams:
            event = torch.cuda.Event()
            event.record(torch.cuda.current_stream(device))
            self._held.append((event, tensors))

    def forget(self) -> None:
        """Let go of what is asked for, but for what the GPU still reads."""
        self._last = (), ()
