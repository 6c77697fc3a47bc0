"""Stand-ins for frames on a GPU, and for renderers that read them there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from splatview_ipc.control.frame import DeviceTensor, StreamFrame
from splatview_ipc.gl.base import PixelSource
from splatview_ipc.gl.host import HostBridge
from splatview_viewer.core.errors import RendererError
from splatview_viewer.geometry.cameras import Camera
from splatview_viewer.render.base import Pixels, RenderedPicture, RenderOptions
from splatview_viewer.render.gl.renderer import GlRenderer
from splatview_viewer.scene.scene import GaussianScene
from support.frames import cloud


def stand_in_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have views take frames on a GPU that is not there, whose trainers live on."""

    def synchronize() -> None:
        pass

    def current_stream(*_: Any) -> SimpleNamespace:
        return SimpleNamespace(cuda_stream=0, synchronize=synchronize)

    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    # However slow the machine is, a trainer lives.
    for name in ("cache._MAX_REPLACEMENT_S", "arrivals._MAX_ARRIVAL_S"):
        monkeypatch.setattr(f"splatview_viewer.kinds.gaussians.{name}", 1e6)


def scene_on_gpu(seed: int = 0) -> Shared:
    """Return a frame of a scene."""
    return Shared(
        "gaussians",
        cloud(seed=seed),
        color="sh",
        activated=False,
        sh_degree=0,
        antialiased=False,
    )


class Memory:
    """Stand-in for GPU memory."""

    gpu = "0" * 32
    pieces = ()

    def __init__(self, tensor: torch.Tensor):
        self.values = tensor
        self.size = tensor.numel() * tensor.element_size()

    def pointer(self) -> int:
        return self.values.data_ptr()

    def tensor(
        self, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
    ) -> torch.Tensor:
        return self.values

    def close(self) -> None:
        pass

    def as_device_tensor(self) -> DeviceTensor:
        return DeviceTensor(
            str(self.values.dtype).removeprefix("torch."),
            tuple(self.values.shape),
            self.values.stride(),
            self,
            0,
        )


def _do_not_wait(_: Any) -> None:
    pass


class Shared:
    """Frame on a GPU and its fate."""

    def __init__(
        self,
        kind: str,
        tensors: dict[str, torch.Tensor] | dict[str, Memory],
        *,
        arrived: bool = True,
        **meta: Any,
    ):
        """Make a frame of values, or of memory that other frames lie in as well."""
        self.is_intact = True
        self.has_arrived = arrived
        self.released = False
        device = {}
        for name, tensor in tensors.items():
            memory = tensor if isinstance(tensor, Memory) else Memory(tensor)
            device[name] = memory.as_device_tensor()
        options: dict[str, Any] = {}
        if not arrived:
            options["wait"] = _do_not_wait
        self.frame = StreamFrame(
            kind,
            1,
            1,
            meta,
            device,  # type: ignore[arg-type]
            self._read_intact,
            self._release,
            arrived=self._read_arrived,
            **options,
        )

    def _read_intact(self) -> bool:
        return self.is_intact

    def _read_arrived(self) -> bool:
        return self.has_arrived

    def _release(self) -> None:
        self.released = True

    def show(self, view: Any) -> bool:
        """Show the frame in a view and release it, as a source does."""
        with self.frame:
            return view.update(self.frame)


class Canvased(RenderedPicture):
    """Picture of `Reader`."""

    def __init__(self, source: PixelSource, pixels: Pixels) -> None:
        self._source = source
        self._pixels = pixels
        self.lacks_some = False

    def source(self) -> PixelSource:
        return self._source

    def pixels(self) -> Pixels:
        return self._pixels

    def over_background(self, background: tuple[float, float, float]) -> torch.Tensor:
        light = (1 - self._pixels.alpha[..., None]) * np.array(background)
        colors = (self._pixels.color + light).clip(0, 1)
        return torch.from_numpy((255 * colors + 0.5).astype(np.uint8))

    def lacks_gaussians(self) -> bool:
        return self.lacks_some


class FailingSource(PixelSource):
    """Source of a picture that its renderer could not draw."""

    def __init__(self, source: PixelSource) -> None:
        self.size = source.size
        self.defines = source.defines

    def bind(self, program: Any, unit: int = 0) -> None:
        raise RendererError("gsplat: the memory is full")


class Reader(GlRenderer):
    """Stand-in for a renderer that reads scenes on a GPU with the next picture.

    Its pictures last as long as a canvas's do: until the next but one is shown.
    """

    name = "gsplat"
    reads_gpu = True
    gpu = 0
    has_fallback = True

    def __init__(self, ctx: Any) -> None:
        super().__init__(ctx)
        self.waiting: GaussianScene | None = None
        self.loads = 0
        self.drawings = 0
        self.fails_next = False
        """The next picture turns out to have failed when it is awaited."""
        self.lacks_next = False
        """The next picture turns out to lack Gaussians."""
        self._canvas = HostBridge(ctx)

    @property
    def pending(self) -> bool:
        return self.waiting is not None

    reading = pending

    def load(self, scene: GaussianScene, ready: Any = None) -> None:
        self.waiting = scene

    def read(self) -> None:
        if self.waiting is not None:
            scene = self.waiting
            self.waiting = None
            self.loads = self.loads + 1
            super().load(scene.to_host(), None)

    def scene(self) -> GaussianScene:
        self.read()
        return super().scene()

    def render(self, camera: Camera, options: RenderOptions) -> Any:
        self.read()
        pixels = super().render(camera, options).pixels()
        self.drawings += 1
        source = self._canvas.put(np.dstack([pixels.color, pixels.alpha]), "HWC")
        if self.fails_next:
            self.fails_next = False
            return Canvased(FailingSource(source), pixels)
        picture = Canvased(source, pixels)
        picture.lacks_some = self.lacks_next
        self.lacks_next = False
        return picture

    def close(self) -> None:
        self._canvas.close()
        super().close()


class Drafter(Reader):
    """Stand-in for a renderer that draws drafts, of scenes with less detail."""

    has_drafts = True
    was_coarse = False

    @property
    def is_coarse(self) -> bool:  # type: ignore[override]
        return self.was_coarse and not self.pending

    def render(self, camera: Camera, options: RenderOptions) -> Any:
        if self.pending:
            self.was_coarse = options.is_draft and self.expects_drafts
        return super().render(camera, options)
