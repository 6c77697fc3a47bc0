"""Where this process's own CUDA kernels draw a picture that OpenGL then shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl.base import Form
from splatview_ipc.gl.glapi import gl_device_uuid
from splatview_ipc.gl.host import HostBridge
from splatview_ipc.gl.probe import bridge_class, forced_bridge, probe

if TYPE_CHECKING:
    import moderngl
    import torch

    from splatview_ipc.gl.base import PixelSource


class Canvas(Protocol):
    """Pictures drawn on a GPU by CUDA, one after the other. Every call comes from the thread of the OpenGL context.

        target = canvas.begin(height, width)     # draw into it, on torch's current stream
        source = canvas.show()                   # and let a shader read it

    A source stays valid until the next `show` but one.
    """

    @property
    def name(self) -> str:
        """The bridge behind it: import, register or host."""
        ...

    device: int
    """The ordinal of the GPU on which to draw."""
    timings: dict[str, float]
    """Milliseconds that this thread waited for the last picture, by what for."""

    def begin(self, height: int, width: int, channels: int = 4, dtype: str = "float16") -> torch.Tensor:
        """The next picture: a tensor (height, width, channels) with any content, to be written.

        Its pixels may lie further apart than `channels` values. Waits until OpenGL no longer draws from the memory
        behind it. Raises SharingError when there is no memory for it.
        """
        ...

    def show(self, layout: str = "HWC", *, finished: bool = False) -> PixelSource:
        """The picture that `begin` gave, to be read once the current stream has come this far; nothing is awaited
        before it is bound. Without a new `begin` this raises SharingError.

        `finished`: whoever calls has waited for it already. Where there is nothing to copy, CUDA is given nothing then,
        and does not have to be waited for again.
        """
        ...

    def undo(self) -> None:
        """Go back to the picture shown before: `begin` leaves that one alone. (A picture that is not to be shown.)"""
        ...

    def close(self) -> None:
        """Give back everything. Idempotent."""
        ...


class HostCanvas:
    """A canvas for CUDA on one GPU and OpenGL on another device: each picture goes through host memory."""

    name: ClassVar[str] = "host"

    def __init__(self, ctx: moderngl.Context, gpu_uuid: str | None = None) -> None:
        """`gpu_uuid`: where CUDA will draw; by default the current device."""
        import torch

        from splatview_ipc.cuda.driver import here

        if not torch.cuda.is_available():
            raise SharingError("torch sees no GPU to draw on")
        self.device = torch.cuda.current_device() if gpu_uuid is None else here(gpu_uuid)
        self.timings: dict[str, float] = {}
        self._bridge = HostBridge(ctx)
        self._drawn: torch.Tensor | None = None
        self._form: Form | None = None

    def begin(self, height: int, width: int, channels: int = 4, dtype: str = "float16") -> torch.Tensor:
        import torch

        self._form = Form.of((height, width, channels), dtype, "HWC")
        kind = getattr(torch, dtype)
        if self._drawn is None or self._drawn.shape != (height, width, channels) or self._drawn.dtype != kind:
            self._drawn = torch.empty((height, width, channels), dtype=kind, device=torch.device("cuda", self.device))
        return self._drawn

    def show(self, layout: str = "HWC", *, finished: bool = False) -> PixelSource:
        if self._drawn is None or self._form is None:
            raise SharingError("show() without begin()")
        self._form = None
        source = self._bridge.put(self._drawn, "HWC")
        source.layout = layout
        return source

    def undo(self) -> None:
        self._bridge.undo()

    def close(self) -> None:
        self._bridge.close()
        self._drawn = None


class PeerCanvas:
    """A canvas for CUDA on another GPU than OpenGL's: each picture is copied from the one to the other."""

    def __init__(self, inner: Canvas, device: int) -> None:
        """`inner`: the canvas on OpenGL's GPU; `device`: the ordinal of the GPU on which to draw."""
        self.name = inner.name
        self.device = device
        self.timings = inner.timings
        self._inner = inner
        self._drawn: dict[Form, torch.Tensor] = {}
        self._form: Form | None = None

    def begin(self, height: int, width: int, channels: int = 4, dtype: str = "float16") -> torch.Tensor:
        import torch

        self._form = form = Form.of((height, width, channels), dtype, "HWC")
        if form not in self._drawn:
            self._drawn = {form: torch.empty((height, width, channels), dtype=getattr(torch, dtype),
                                             device=torch.device("cuda", self.device))}
        return self._drawn[form]

    def show(self, layout: str = "HWC", *, finished: bool = False) -> PixelSource:
        form, self._form = self._form, None
        if form is None:
            raise SharingError("show() without begin()")
        target = self._inner.begin(form.height, form.width, form.channels, form.dtype)
        # torch orders this after the current stream of the one GPU and before that of the other. Not into the target
        # at once: the other GPU cannot write into it.
        target.copy_(self._drawn[form].to(target.device, non_blocking=True))
        return self._inner.show(layout)

    def undo(self) -> None:
        self._inner.undo()

    def close(self) -> None:
        self._inner.close()
        self._drawn.clear()


CANVASES = {"import": "imported:ImportedCanvas", "register": "registered:RegisteredCanvas",
            "host": "canvas:HostCanvas"}
"""Every canvas by name, best first, and where its class is."""


def make_canvas(ctx: moderngl.Context, gpu_uuid: str | None = None, forced: str | None = None) -> Canvas:
    """The best canvas for drawing on a GPU (by default OpenGL's own, where it is visible).

    `forced` (or else SPLATVIEW_INTEROP) names the only one to try; `direct`, which is for other processes' memory,
    leaves the choice free. Raises SharingError, with every reason, for none.
    """
    forced = forced or forced_bridge()
    if forced is not None and forced not in CANVASES:
        bridge_class(forced)  # raises for an unknown name
        forced = None
    failed: dict[str, str] = {}
    for name in CANVASES if forced is None else (forced,):
        failed[name] = probe(ctx, name)[name]
        if not failed[name]:
            try:
                return _canvas(name, ctx, gpu_uuid)
            except SharingError as e:
                failed[name] = str(e)
    raise SharingError("; ".join(f"{n}: {why}" for n, why in failed.items()))


def _canvas(name: str, ctx: moderngl.Context, gpu_uuid: str | None) -> Canvas:
    made = bridge_class(name, CANVASES)
    if name == "host" or gpu_uuid in (None, gl_device_uuid(ctx)):
        return made(ctx, gpu_uuid)
    from splatview_ipc.cuda.driver import here

    device = here(str(gpu_uuid))
    return PeerCanvas(made(ctx), device)
