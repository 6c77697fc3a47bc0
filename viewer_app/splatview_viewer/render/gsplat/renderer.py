"""The CUDA renderer: gsplat's kernels, on Gaussians that lie on the GPU already or are brought there."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_ipc.control.errors import SharingError
from splatview_viewer.core.errors import RendererError
from splatview_viewer.render.base import LeftOut
from splatview_viewer.render.gsplat.build import home_gpu, kernels
from splatview_viewer.render.gsplat.picture import GsplatPicture

if TYPE_CHECKING:
    from collections.abc import Callable

    import moderngl
    import torch

    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.gpu.stream import OnStream
    from splatview_viewer.render.base import RenderOptions
    from splatview_viewer.render.gsplat.lending import Lending
    from splatview_viewer.render.gsplat.plain_frame import Frame
    from splatview_viewer.render.gsplat.reading import Reading
    from splatview_viewer.render.gsplat.scene import DeviceGaussians
    from splatview_viewer.render.kernels.activate import Active
    from splatview_viewer.scene.scene import GaussianScene

LIMIT = 16384
"""Pixels a side."""
PRECISIONS = {"f2": "float16", "f4": "float32"}


class GsplatRenderer:
    """Draws Gaussians with gsplat, on a CUDA stream of its own with high priority.

    Scenes on a GPU are read where they lie, once per `load`, with the next picture; others are uploaded. What is made
    of them stays, so that a moving camera costs nothing but the drawing.
    """

    name: str = "gsplat"

    def __init__(self, ctx: moderngl.Context | None = None, device: torch.device | None = None,
                 precision: str = "f2", plain: bool = False) -> None:
        """Waits for gsplat's kernels, which may have to be compiled first (`gsplat_kernels.kernels()`).

        `ctx`: only for `Picture.source`. `device`: for scenes from host memory; None: the GPU that OpenGL draws with,
        if it is a CUDA device, or the first. `precision` of what `source` gives, "f2" or "f4". `plain`: not the
        viewer's own kernels between gsplat's.

        Raises RendererError: gsplat cannot run here.
        """
        if not kernels().wait():
            raise RendererError(f"gsplat: {kernels().reason}")
        import torch

        self.dtype = PRECISIONS[precision]
        self._plainly = ""
        """Why gsplat draws by itself."""
        self._instead = ""
        """Why it is something else that was drawn."""
        self._torch = torch
        self._ctx = ctx
        self._plain = plain
        self._home = torch.device("cuda", home_gpu(ctx)) if device is None else device
        self._device: torch.device | None = None
        self._stream: torch.cuda.Stream
        self._work: _Work
        self._gaussians: DeviceGaussians
        self._lending: Lending
        self._frame: Frame
        self._framed: tuple[Frame, Active] | None = None
        """Which Gaussians which frame was given last: see `_show_frame`."""
        self._canvas_held: Any = None
        self._mover_held: Any = None
        self._depths_held: Any = None
        self._textures: list[moderngl.Texture] = []
        self._reading: Reading
        self._timings: dict[str, float] = {}
        from splatview_viewer.gpu.clock import Clock

        self._clocks = {"load": Clock(), "render": Clock()}
        self._camera: tuple[tuple[object, ...], Camera] | None = None
        """The last camera by its key: a copy, since its owner may move the arrays."""
        self._drawn: tuple | None = None
        self._picture: GsplatPicture | None = None
        self._closed = False
        self._move_to(self._home)

    @property
    def wants_gpu(self) -> bool:
        """True."""
        return True

    @property
    def device(self) -> torch.device:
        """The GPU that draws: where the scene lies."""
        assert self._device is not None
        return self._device

    @property
    def reading(self) -> bool:
        """Whether the scene's arrays may still be read, or are going to. Never waits."""
        return not self._closed and self._reading.going_on

    @property
    def pending(self) -> bool:
        """Whether the next picture begins to read the scene."""
        return not self._closed and self._reading.pending

    @property
    def skipped(self) -> int:
        """How many Gaussians can never be drawn, as far as the GPU has told by now."""
        return self.left_out.total

    @property
    def left_out(self) -> LeftOut:
        """The same by reasons."""
        return LeftOut() if self._closed else self._gaussians.left_out

    @property
    def thinned(self) -> str:
        """As `Renderer` says."""
        return "" if self._closed else self._frame.thinned

    @property
    def gpu_ms(self) -> float | None:
        """Of the last picture that is finished. Never waits."""
        return self._clocks["render"].ms

    @property
    def load_gpu_ms(self) -> float | None:
        """Of the last `load` that is finished, without the time that it waited for the trainer. Never waits."""
        return self._clocks["load"].ms

    @property
    def note(self) -> str:
        """Why drawing is slower than it could be; "" where it is not."""
        if self._plainly or self._closed:
            return self._instead or self._plainly
        return "; ".join(filter(None, (self._frame.failure, self._gaussians.note, self._instead)))

    @property
    def bridge(self) -> str:
        """How its pictures come to OpenGL: a name of `splatview_ipc.gl`'s; "" before the first one did."""
        return "" if self._canvas_held is None else self._canvas_held.name

    @property
    def timings(self) -> dict[str, float]:
        """Milliseconds: activate (last load) and draw (last render), on the processor, which waits for nothing;
        gpu, gpu load: what the last finished picture and load took there."""
        gpu = {"gpu": self.gpu_ms, "gpu load": self.load_gpu_ms}
        return {**self._timings, **{name: ms for name, ms in gpu.items() if ms is not None}}

    def tick(self) -> bool:
        """True when the scene turned out to lie far from the origin: pictures are exact from now on."""
        if self._closed or self._picture is None or not self._gaussians.rough:
            return False
        self._drawn = None  # `render` settles it
        return True

    def load(self, scene: GaussianScene, ready: Callable[[int], None] | None = None) -> None:
        self._check_open()
        self._drawn = None
        self._move_to(scene.gpu or self._home)
        self._reading.put(scene if scene.on_gpu else None, ready)
        if not scene.on_gpu:  # whose arrays may change
            with self._working(), self._reading:
                self._activate(scene)

    def read(self) -> None:
        if self.pending:
            with self._working(), self._reading:
                self._activate()

    def _activate(self, scene: GaussianScene | None = None) -> None:
        """Have the GPU read this scene, or the one that is pending, if any."""
        begin = time.perf_counter()
        scene = self._reading.begin() if scene is None else scene
        if scene is None:
            return
        self._lending.take_back()
        try:
            self._gaussians.load(scene, lambda: self._clocks["load"].begin(self._stream))
        except BaseException:
            self._reading.take_back()  # for whoever draws instead
            raise
        self._clocks["load"].end(self._stream)
        self._show_frame()
        self._timings["activate"] = (time.perf_counter() - begin) * 1e3

    def render(self, camera: Camera, options: RenderOptions) -> GsplatPicture:
        self._check_open()
        if not (0 < camera.width <= LIMIT and 0 < camera.height <= LIMIT):
            raise RendererError(f"gsplat: a picture of {camera.width}x{camera.height} pixels cannot be drawn; "
                                f"sides from 1 to {LIMIT} are possible")
        key = camera.key
        wanted = key, options
        if self._picture is not None and wanted == self._drawn:
            return self._picture
        self._drawn = self._picture = None
        begin = time.perf_counter()
        if self._camera is None or self._camera[0] != key:
            self._camera = key, replace(camera, viewmat=camera.viewmat.copy(), K=camera.K.copy())
        with self._working():
            picture = GsplatPicture(self, self._camera[1], options)
        self._timings["draw"] = (time.perf_counter() - begin) * 1e3
        self._picture, self._drawn = picture, wanted
        return picture

    def scene(self) -> GaussianScene:
        self._check_open()
        reader = self._torch.cuda.current_stream(self.device)
        with self._working(), self._reading:
            self._activate()
            self._gaussians.settle()
            return self._lending.scene(reader)

    def host_scene(self) -> GaussianScene:
        """What is loaded, activated if it has been read, as host arrays: for another renderer."""
        with self._working():
            pending = self._reading.to_host()
            return self._lending.to_host() if pending is None else pending

    def close(self) -> None:
        """Give back everything. Idempotent. The OpenGL context, if any, must be current."""
        if self._closed:
            return
        self._closed = True
        self._leave()
        self._picture = None
        for texture in self._textures:
            texture.release()
        self._textures.clear()

    def _working(self) -> _Work:
        """A context: on the renderer's stream, with errors of CUDA as RendererError. Within another one it is cheap."""
        self._check_open()
        return self._work

    def _failed(self, e: BaseException) -> None:
        """Raise what says the same in the renderer's words, if it is for the renderer to say."""
        torch = self._torch
        if isinstance(e, torch.cuda.OutOfMemoryError):
            self._drawn = self._picture = None
            torch.cuda.empty_cache()
            raise RendererError(f"gsplat: the memory of {self._device} is full; a smaller picture needs less "
                                f"({str(e).splitlines()[0][:120]})") from None
        if isinstance(e, SharingError):
            raise RendererError(f"gsplat: no way from CUDA to OpenGL: {e}") from None
        if isinstance(e, RuntimeError):
            self._drawn = self._picture = None
            raise RendererError(f"gsplat: {str(e).splitlines()[0][:200] if str(e) else type(e).__name__}") from e

    def _draw(self, camera: Camera, options: RenderOptions,
              target: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """In `target` or new float32 tensors."""
        origin = self._gaussians.origin
        if origin.any():
            viewmat = camera.viewmat.copy()
            viewmat[:3, 3] += viewmat[:3, :3] @ origin
            camera = replace(camera, viewmat=viewmat)
        flags = self._lending.flags(options.selection)
        try:
            return self._draw_with(self._frame, flags, camera, options, target)
        except (RendererError, RuntimeError, ValueError) as e:
            if isinstance(self._frame, self._plain_kind) or isinstance(e, self._torch.cuda.OutOfMemoryError):
                raise
            self._plainly = f"plain gsplat: {' '.join(str(e).split())[:160]}"
            self._frame.close()
            self._frame = self._plain_kind(self.device)
            self._show_frame()
            return self._draw_with(self._frame, flags, camera, options, target)

    def _draw_with(self, frame: Frame, flags: torch.Tensor | None, camera: Camera, options: RenderOptions,
                   target: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        frame.select(flags)
        options, self._instead = self._possible(frame, options)
        return frame.render(camera, options, target)

    def _overflowed(self) -> bool:
        self._reading.wait()
        return self._frame.overflowed()

    def _target(self, camera: Camera) -> torch.Tensor | None:
        """Where OpenGL will read a picture; None without an OpenGL context."""
        return None if self._ctx is None else self._canvas().begin(camera.height, camera.width, 4, self.dtype)

    def _canvas(self) -> Any:
        self._canvas_held = self._canvas_held or self._make_canvas()
        return self._canvas_held

    def _depths(self) -> Any:
        """The canvas for what `GsplatPicture.bring` makes of depth."""
        self._depths_held = self._depths_held or self._make_canvas()
        return self._depths_held

    def _make_canvas(self) -> Any:
        assert self._ctx is not None
        from splatview_ipc.cuda.driver import gpu_uuid
        from splatview_ipc.gl.probe import make_canvas

        return make_canvas(self._ctx, gpu_uuid(self.device.index))

    def _texture_for(self, ctx: moderngl.Context, rgba: np.ndarray) -> moderngl.Texture:
        """A texture with these values, which lives until the renderer is closed or one of another size is needed."""
        height, width = rgba.shape[:2]
        texture = next((t for t in self._textures if t.ctx is ctx), None)
        if texture is not None and texture.size != (width, height):
            self._textures.remove(texture)
            texture.release()
            texture = None
        if texture is None:
            texture = ctx.texture((width, height), 4, dtype="f4")
            self._textures.append(texture)
        texture.write(np.ascontiguousarray(rgba))
        return texture

    def _move_to(self, device: torch.device) -> None:
        """Draw on this GPU from now on."""
        if device == self._device:
            return
        from splatview_viewer.gpu.stream import OnStream
        from splatview_viewer.render.gsplat.lending import Lending
        from splatview_viewer.render.gsplat.plain_frame import PlainFrame, make_frame, possible
        from splatview_viewer.render.gsplat.reading import Reading
        from splatview_viewer.render.gsplat.scene import DeviceGaussians

        if self._device is not None:
            self._leave()
        torch = self._torch
        self._device = device
        with torch.cuda.device(device):
            self._stream = torch.cuda.Stream(device, priority=-1)
        self._picture = self._drawn = None
        self._work = _Work(self, OnStream(self._stream))
        self._reading = Reading(self._stream)
        with self._working():
            self._gaussians = DeviceGaussians(device, plain=self._plain)
            self._lending = Lending(self._gaussians, self._stream)
            self._frame, self._plainly = (PlainFrame(device), "") if self._plain else make_frame(device)
            self._plain_kind, self._possible = PlainFrame, possible
            self._show_frame()

    def _show_frame(self) -> None:
        """Tell the frame where the Gaussians lie, unless it was told that before."""
        frame, active = self._frame, self._gaussians.active
        if self._framed is None or self._framed[0] is not frame or self._framed[1] is not active:
            self._framed = None
            frame.load(active.means, active.quats, active.scales, active.opacities, active.colors[:, 0],
                       active.colors[:, 1:])
            self._framed = frame, active

    def _leave(self) -> None:
        """Give back what is on the present GPU."""
        for clock in self._clocks.values():
            clock.clear()
        for held in (self._canvas_held, self._depths_held, self._mover_held):
            if held is not None:
                held.close()
        self._canvas_held = self._depths_held = self._mover_held = None
        try:
            self._stream.synchronize()
            self._frame.close()
        except RuntimeError:  # after a fault on the GPU every call fails
            pass
        self._framed = None
        del self._frame, self._gaussians, self._lending, self._reading

    def _check_open(self) -> None:
        if self._closed:
            raise RendererError("gsplat: this renderer is closed; make a new one")


class _Work:
    """See `GsplatRenderer._working`."""

    def __init__(self, renderer: GsplatRenderer, on: OnStream) -> None:
        self._renderer = renderer
        self._on = on

    def __enter__(self) -> None:
        self._on.__enter__()

    def __exit__(self, kind: object, e: BaseException | None, trace: object) -> None:
        self._on.__exit__(kind, e, trace)
        if e is not None:
            self._renderer._failed(e)
