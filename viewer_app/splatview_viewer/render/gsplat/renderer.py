"""The CUDA renderer: gsplat's kernels, on Gaussians that lie on the GPU already or are brought there."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splatview_ipc.control.errors import SharingError
from splatview_viewer.core.errors import RendererError
from splatview_viewer.render.base import (
    PAINTS,
    LeftOut,
    Pixels,
    RenderedPicture,
    Renderer,
)
from splatview_viewer.render.gsplat import moving
from splatview_viewer.render.gsplat.build import home_gpu, kernels
from splatview_viewer.render.gsplat.cuda import Clock, on_stream
from splatview_viewer.render.gsplat.frame import FrameGraph
from splatview_viewer.render.gsplat.moving import Kept, Mover
from splatview_viewer.render.gsplat.scene import ArrayLease, DeviceGaussians

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import moderngl

    from splatview_ipc.gl.base import PixelSource
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.render.base import RenderOptions
    from splatview_viewer.scene.scene import GaussianScene

LIMIT = 16384
"""Pixels a side."""


class GsplatRenderer(Renderer):
    """Draws Gaussians with gsplat, on a CUDA stream of its own with high priority.

    Scenes on a GPU are read where they lie, once per `load`, with the next picture; others are uploaded. What is made
    of them stays, so that a moving camera costs nothing but the drawing.
    """

    name = "gsplat"
    wants_gpu = True
    has_fallback = True

    def __init__(
        self, ctx: moderngl.Context | None = None, device: torch.device | None = None
    ) -> None:
        """Waits for gsplat's kernels, which may have to be compiled first (`build.kernels()`).

        `ctx`: only for `Picture.source`. `device`: for scenes from host memory; None: the GPU that OpenGL draws with,
        if it is a CUDA device, or the first.

        Raises RendererError: gsplat cannot run here, or the viewer's own kernels do not compile.
        """
        if not kernels().wait():
            raise RendererError(f"gsplat: {kernels().reason}")
        self._ctx = ctx
        self._home = torch.device("cuda", home_gpu(ctx)) if device is None else device
        self._device: torch.device | None = None
        self._stream: torch.cuda.Stream
        self._gaussians: DeviceGaussians
        self._frame: FrameGraph
        self._canvas_held: Any = None
        self._mover_held: Mover | None = None
        self._reading: ArrayLease
        self._clocks = {"load": Clock(), "render": Clock()}
        self._move_to(self._home)

    @property
    def device(self) -> torch.device:
        """The GPU that draws: where the scene lies."""
        assert self._device is not None
        return self._device

    @property
    def reading(self) -> bool:  # type: ignore[override]
        return not self._closed and self._reading.going_on

    @property
    def pending(self) -> bool:  # type: ignore[override]
        return not self._closed and self._reading.pending

    @property
    def left_out(self) -> LeftOut:  # type: ignore[override]
        """As far as the GPU has told by now."""
        return LeftOut() if self._closed else self._gaussians.left_out

    @property
    def thinned(self) -> str:  # type: ignore[override]
        return "" if self._closed else self._frame.thinned

    @property
    def gpu_ms(self) -> float | None:  # type: ignore[override]
        return self._clocks["render"].ms

    @property
    def load_gpu_ms(self) -> float | None:  # type: ignore[override]
        """Without the time that it waited for the trainer."""
        return self._clocks["load"].ms

    @property
    def note(self) -> str:  # type: ignore[override]
        return "" if self._closed else self._frame.failure

    @property
    def bridge(self) -> str:  # type: ignore[override]
        return "" if self._canvas_held is None else self._canvas_held.name

    def load(
        self, scene: GaussianScene, ready: Callable[[int], None] | None = None
    ) -> None:
        self._check_open()
        self._move_to(scene.gpu or self._home)
        self._reading.put(scene if scene.on_gpu else None, ready)
        if not scene.on_gpu:  # whose arrays may change
            with self._working(), self._reading:
                self._activate(scene)

    def read(self) -> None:
        if self.pending:
            with self._working(), self._reading:
                self._activate()

    def wait(self) -> None:
        if not self._closed:
            self._reading.wait()

    def _activate(self, scene: GaussianScene | None = None) -> None:
        """Have the GPU read this scene, or the one that is pending, if any."""
        scene = self._reading.begin() if scene is None else scene
        if scene is None:
            return
        try:
            self._gaussians.load(
                scene, lambda: self._clocks["load"].begin(self._stream)
            )
        except BaseException:
            self._reading.take_back()  # for the renderer that draws instead
            raise
        self._clocks["load"].end(self._stream)
        self._show_frame()

    def render(self, camera: Camera, options: RenderOptions) -> GsplatPicture:
        self._check(camera, LIMIT)
        with self._working():
            return GsplatPicture(self, camera, options)

    def scene(self) -> GaussianScene:
        self._check_open()
        reader = torch.cuda.current_stream(self.device)
        with self._working(), self._reading:
            self._activate()
            return self._gaussians.scene(reader)

    def host_scene(self) -> GaussianScene:
        """Return the loaded scene, activated if it has been read, as host arrays: for another renderer."""
        with self._working():
            pending = self._reading.to_host()
            return self._gaussians.to_host() if pending is None else pending

    def rest(self) -> None:
        if self._closed or self._device is None:
            return
        with self._working():
            self._stream.synchronize()  # a picture may be on its way to OpenGL
            self._frame.rest()
        self._close_canvases()

    def close(self) -> None:
        """Give back everything. Idempotent. The OpenGL context, if any, must be current."""
        if self._closed:
            return
        self._closed = True
        self._leave()

    @contextmanager
    def _working(self, stream: torch.cuda.Stream | None = None) -> Iterator[None]:
        """On the renderer's stream, or another one, with errors of CUDA as RendererError."""
        self._check_open()
        try:
            with on_stream(stream or self._stream):
                yield
        except torch.cuda.OutOfMemoryError as e:
            torch.cuda.empty_cache()
            raise RendererError(
                f"gsplat: the memory of {self._device or self._home} is full; a smaller picture needs "
                f"less ({str(e).splitlines()[0][:120]})"
            ) from None
        except SharingError as e:
            raise RendererError(f"gsplat: no way from CUDA to OpenGL: {e}") from None
        except RuntimeError as e:
            raise RendererError(
                f"gsplat: {str(e).splitlines()[0][:200] if str(e) else type(e).__name__}"
            ) from e

    def _draw(
        self, camera: Camera, options: RenderOptions, target: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """In `target` or new float32 tensors."""
        origin = self._gaussians.origin
        if origin.any():
            viewmat = camera.viewmat.copy()
            viewmat[:3, 3] += viewmat[:3, :3] @ origin
            camera = replace(camera, viewmat=viewmat)
        self._frame.select(self._gaussians.flags(options.selection))
        return self._frame.render(camera, options, target)

    def _overflowed(self) -> bool:
        self._reading.wait()
        return self._frame.overflowed()

    def _target(self, camera: Camera) -> torch.Tensor | None:
        """Canvas that OpenGL will read a picture from; None without an OpenGL context."""
        if self._ctx is None:
            return None
        return self._canvas().begin(camera.height, camera.width, 4, "float16")

    def _canvas(self) -> Any:
        self._canvas_held = self._canvas_held or self._make_canvas()
        return self._canvas_held

    def _mover(self) -> Mover | None:
        """Mover of pictures to other cameras; None where that is not possible."""
        if self._ctx is None or self._canvas().name not in moving.BRIDGES:
            return None
        self._mover_held = self._mover_held or Mover(self.device, self._make_canvas)
        return None if self._mover_held.failure else self._mover_held

    def _make_canvas(self) -> Any:
        assert self._ctx is not None
        from splatview_ipc.cuda.driver import gpu_uuid
        from splatview_ipc.gl.probe import make_canvas

        return make_canvas(self._ctx, gpu_uuid(self.device.index))

    def _move_to(self, device: torch.device) -> None:
        """Draw on this GPU from now on."""
        if device == self._device:
            return
        with torch.cuda.device(device):
            stream = torch.cuda.Stream(device, priority=-1)
        with self._working(stream):  # should that fail, everything stays as it is
            gaussians = DeviceGaussians(device)
            frame = FrameGraph(device)
        if self._device is not None:
            self._leave()
        self._device = device
        self._stream = stream
        self._gaussians, self._frame, self._reading = (
            gaussians,
            frame,
            ArrayLease(stream),
        )
        self._show_frame()

    def _show_frame(self) -> None:
        """Tell the frame where the Gaussians lie."""
        a = self._gaussians.active
        self._frame.load(
            a.means, a.quats, a.scales, a.opacities, a.colors[:, 0], a.colors[:, 1:]
        )

    def _close_canvases(self) -> None:
        for held in (self._canvas_held, self._mover_held):
            if held is not None:
                held.close()
        self._canvas_held = None
        self._mover_held = None

    def _leave(self) -> None:
        """Give back what is on the present GPU."""
        for clock in self._clocks.values():
            clock.clear()
        self._close_canvases()
        try:
            self._stream.synchronize()
            self._frame.close()
        except RuntimeError:  # after a fault on the GPU every call fails
            pass
        del self._frame, self._gaussians, self._reading


class GsplatPicture(RenderedPicture):
    """Picture of `GsplatRenderer`. Valid until it draws again or is closed."""

    def __init__(
        self, renderer: GsplatRenderer, camera: Camera, options: RenderOptions
    ) -> None:
        """Drawn straight into what OpenGL reads, float16; as float32 tensors where there is no OpenGL context, or
        depth, which is divided by alpha, is wanted too, or numbers that are no colours.
        """
        self._renderer = renderer
        self._camera = camera
        self._options = options
        if options.depth or PAINTS[options.paint].is_mapped:
            self._shown = None
        else:
            self._shown = renderer._target(camera)
        clock = renderer._clocks["render"]
        stream = renderer._stream
        with (
            renderer._reading
        ):  # only now: getting the target may have waited for OpenGL
            renderer._activate()
            clock.begin(stream)
            self._rgba, self._depth = renderer._draw(camera, options, self._shown)
            clock.end(stream)
        self._whole = False
        self._canvas: Any = None
        """Destination of the picture."""
        self.kept: Kept | None = None
        """Arrays that CUDA needs to move it, if it can; since `source` or `queue_source`."""
        self._source: PixelSource | None = None

    def pixels(self) -> Pixels:
        """float32, drawn anew if the picture has another dtype."""
        with self.gpu_tensors() as (picture, distance):
            rgba = picture.cpu().numpy()
            depth = None if distance is None else distance.cpu().numpy()
        return Pixels(
            np.ascontiguousarray(rgba[..., :3]),
            np.ascontiguousarray(rgba[..., 3]),
            depth,
        )

    def source(self) -> PixelSource:
        """In memory that OpenGL reads, where that is possible: see `splatview_ipc.gl`."""
        if self._source is None:
            with self._renderer._working():
                if self._shown is None:
                    target = self._renderer._target(self._camera)
                else:
                    target = self._shown
                if target is None:
                    raise RendererError(
                        "gsplat: made without an OpenGL context; only pixels() works"
                    )
                self._make_whole()
                if self._shown is None:
                    target.copy_(self._rgba)
                self._source = self._renderer._canvas().show(
                    finished=self._shown is not None
                )
                if (
                    self._shown is not None
                    and (mover := self._renderer._mover()) is not None
                ):
                    self.kept = mover.borrow(target, self._renderer._stream)
                self._shown = None  # from now on it belongs to the canvas
        assert self._source is not None
        return self._source

    def queue_source(self) -> bool:
        """Have all that `queued_source` gives made behind the drawing, without waiting: ask `done`. For a picture with
        depth, once, before anything else is asked of it. False: it cannot be moved here, and nothing was done.
        """
        renderer = self._renderer
        with renderer._working(), renderer._reading:
            mover = renderer._mover()
            if mover is None or self._depth is None:
                return False
            self._canvas = renderer._canvas()
            target = self._canvas.begin(
                self._camera.height, self._camera.width, 4, "float16"
            )
            target.copy_(self._rgba)
            self.kept = mover.keep(target, self._rgba, self._depth, renderer._stream)
            renderer._clocks["render"].extend(renderer._stream)
        return True

    @property
    def done(self) -> bool:
        """True if the GPU has finished with it. Never waits."""
        return self._renderer._reading.done

    def queued_source(self) -> PixelSource | None:
        """Colour and alpha, as from `source`; `kept` moves it. None if it turns out to lack Gaussians, or the renderer
        has gone to another GPU: it has to be rendered again. Waits until it is `done`.
        """
        renderer = self._renderer
        canvas = self._canvas
        if canvas is None or canvas is not renderer._canvas_held:
            return None
        with renderer._working():
            if renderer._overflowed():
                return None
            self._whole = True
            self._canvas = None
            self._source = canvas.show(finished=True)
            return self._source

    def over_background(self, background: tuple[float, float, float]) -> torch.Tensor:
        """The picture over a background, RGB in [0, 1]: uint8 (H, W, 3), as OpenGL rounds it, for what torch's current
        stream does next. Of what was drawn for OpenGL, without asking it for anything.
        """
        device = self._renderer.device
        wanted = torch.cuda.current_stream(device)
        with self._renderer._working():
            self._make_whole()
            picture = self._rgba.float()
            color = picture[..., :3]
            if any(background):
                behind = torch.tensor(background, device=device)
                color = torch.addcmul(color, 1 - picture[..., 3:].clamp(0, 1), behind)
            made = color.clamp(0, 1).mul_(255).add_(0.5).to(torch.uint8)
            done = torch.cuda.current_stream(device).record_event()
        wanted.wait_event(done)
        made.record_stream(wanted)
        return made

    @contextmanager
    def gpu_tensors(self) -> Iterator[tuple[torch.Tensor, torch.Tensor | None]]:
        """Colour and alpha (H, W, 4) and depth (H, W), float32 tensors on the GPU, to be used inside, where the
        renderer's stream is current.
        """
        with self._renderer._working():
            self._make_whole()
            while (
                self._rgba.element_size() < 4 or not self._whole
            ):  # what is in OpenGL's memory stays there
                with self._renderer._reading:
                    self._rgba, self._depth = self._renderer._draw(
                        self._camera, self._options
                    )
                self._whole = not self._renderer._overflowed()
            yield self._rgba, self._depth

    def _make_whole(self) -> None:
        """Wait for it, and draw again what turns out to have had too little room."""
        while not self._whole:
            self._whole = not self._renderer._overflowed()
            if not self._whole:
                with self._renderer._reading:
                    self._rgba, self._depth = self._renderer._draw(
                        self._camera, self._options, self._shown
                    )
