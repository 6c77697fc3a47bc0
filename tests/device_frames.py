"""Frames that seem to lie on a GPU: their memory is a stand-in on the host. tests/cuda has the real thing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipc.frames import DeviceTensor, Frame

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


class Memory:
    """What stands in for GPU memory."""

    gpu = "0" * 32
    pieces = ()

    def __init__(self, tensor: torch.Tensor):
        self.values = tensor
        self.size = tensor.numel() * tensor.element_size()

    def pointer(self) -> int:
        return self.values.data_ptr()

    def tensor(self, *_: Any) -> torch.Tensor:
        return self.values

    def close(self) -> None:
        pass


class Shared:
    """A frame on a GPU and what became of it."""

    def __init__(self, kind: str, tensors: dict[str, torch.Tensor], wait: Callable[[int], None] | None = None,
                 **meta: Any):
        self.whole = True
        self.released = False
        device = {name: DeviceTensor(str(t.dtype).removeprefix("torch."), tuple(t.shape), t.stride(), Memory(t), 0)
                  for name, t in tensors.items()}
        more = {} if wait is None else {"wait": wait}
        self.frame = Frame(kind, 1, 1, meta, device, lambda: self.whole, self._release, **more)  # type: ignore[arg-type]

    def _release(self) -> None:
        self.released = True

    def show(self, view: Any) -> bool:
        """As a source does."""
        with self.frame:
            return view.update(self.frame)
