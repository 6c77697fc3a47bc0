"""Frames that seem to lie on a GPU, and a renderer that reads them there: their memory is a stand-in on the host.
tests/cuda has the real thing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_ipc.control.frame import DeviceTensor, Frame
from splatview_ipc.gl.host import HostBridge
from splatview_viewer.render.gl.renderer import GlRenderer

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.render.base import RenderOptions
    from splatview_viewer.scene.scene import GaussianScene


class Memory:
    """What stands in for GPU memory."""

    gpu = "0" * 32
    pieces = ()

    def __init__(self, tensor: torch.Tensor):
        self.values = tensor
        self.size = tensor.numel() * tensor.element_size()

    def pointer(self) -> int:
        return self.values.data_ptr()

    def tensor(self, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> torch.Tensor:
        return self.values

    def close(self) -> None:
        pass


class Shared:
    """A frame on a GPU and what became of it."""

    def __init__(self, kind: str, tensors: dict[str, torch.Tensor] | dict[str, Memory],
                 wait: Callable[[int], None] | None = None, **meta: Any):
        """`tensors`: values, or memory that other frames lie in as well. With `wait`, they have not arrived yet."""
        self.whole, self.arrived = True, wait is None
        self.released = False
        memories = {name: t if isinstance(t, Memory) else Memory(t) for name, t in tensors.items()}
        device = {name: DeviceTensor(str(m.values.dtype).removeprefix("torch."), tuple(m.values.shape),
                                     m.values.stride(), m, 0) for name, m in memories.items()}
        more: dict[str, Any] = {} if wait is None else {"wait": wait}
        self.frame = Frame(kind, 1, 1, meta, device, lambda: self.whole, self._release,  # type: ignore[arg-type]
                           arrived=lambda: self.arrived, **more)

    def _release(self) -> None:
        self.released = True

    def show(self, view: Any) -> bool:
        """As a source does."""
        with self.frame:
            return view.update(self.frame)


class Reader(GlRenderer):
    """Stands in for a renderer that reads scenes on a GPU with the next picture, and whose pictures last as long as a
    canvas's do: until the next but one is shown."""

    name = "gsplat"
    wants_gpu = True

    def __init__(self, ctx: Any) -> None:
        super().__init__(ctx)
        self.waiting: GaussianScene | None = None
        self.loads = self.drawings = 0
        self._canvas = HostBridge(ctx)

    @property
    def pending(self) -> bool:
        return self.waiting is not None

    @property
    def reading(self) -> bool:
        return self.pending

    def load(self, scene: GaussianScene, ready: Any = None) -> None:
        self.waiting = scene

    def read(self) -> None:
        if self.waiting is not None:
            scene, self.waiting, self.loads = self.waiting, None, self.loads + 1
            super().load(scene.to_host(), None)

    def render(self, camera: Camera, options: RenderOptions) -> Any:
        self.read()
        pixels = super().render(camera, options).pixels()
        self.drawings += 1
        source = self._canvas.put(np.dstack([pixels.color, pixels.alpha]), "HWC")
        return SimpleNamespace(source=lambda: source, pixels=lambda: pixels)

    def close(self) -> None:
        self._canvas.close()
        super().close()
