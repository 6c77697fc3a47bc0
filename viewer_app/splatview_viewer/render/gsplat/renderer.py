"""The CUDA renderer: gsplat's pictures of Gaussians that lie on the GPU or are brought there."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from splatview_ipc.control.errors import SharingError
from splatview_viewer.core.errors import RendererError
from splatview_viewer.render.base import LeftOut, Pixels, RenderedPicture, Renderer
from splatview_viewer.render.gsplat import cuda, moving
from splatview_viewer.render.gsplat.cuda import GpuClock, OnStream
from splatview_viewer.render.gsplat.device_gaussians import DeviceGaussians
from splatview_viewer.render.gsplat.drawing import RecordDrawing
from splatview_viewer.render.gsplat.frame import FrameGraph
from splatview_viewer.render.gsplat.gpus import home_gpu, obstacle
from splatview_viewer.render.gsplat.lease import ArrayLease
from splatview_viewer.render.gsplat.moving import MovablePicture, Mover
from splatview_viewer.render.gsplat.packed_frames import (
    NO_MEMORY,
    TOO_MANY,
    PackedFrames,
)
from splatview_viewer.render.gsplat.to_bytes import over_background
from splatview_viewer.render.paints import PAINTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import moderngl

    from splatview_ipc.gl.base import PixelSource
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.render.base import RenderOptions
    from splatview_viewer.render.gsplat.float_scene import FloatScene
    from splatview_viewer.scene.scene import GaussianScene

LIMIT = 16384
"""Pixels a side."""


class _Clocks(NamedTuple):
    """Clocks of the renderer's work."""

    load: GpuClock
    render: GpuClock


class GsplatRenderer(Renderer):
    """Draws Gaussians by gsplat's rules, on a CUDA stream of its own with high priority.

    Scenes on a GPU are read where they lie, once per `load`, with the next picture; others
    are uploaded. What is made of them stays, so that a moving camera costs nothing but the
    drawing.
    """

    name = "gsplat"
    reads_gpu = True
    has_fallback = True
    has_drafts = True

    def __init__(
        self, ctx: moderngl.Context | None = None, device: torch.device | None = None
    ) -> None:
        """Load the viewer's kernels; compiling them, once, takes some seconds.

        Args:
            ctx: only for `RenderedPicture.source`.
            device: for scenes from host memory; None: the GPU that OpenGL draws with, if
                it is a CUDA device, or the first.

        Raises:
            RendererError: there is no CUDA here, or the kernels do not compile.
        """
        reason = obstacle()
        if reason:
            raise RendererError(reason)
        self._ctx = ctx
        if device is None:
            self._home = torch.device("cuda", home_gpu(ctx))
        else:
            self._home = device
        self._device: torch.device | None = None
        self._stream: torch.cuda.Stream
        self._gaussians: DeviceGaussians
        self._frame: FrameGraph[FloatScene]
        self._packed: PackedFrames
        self._last_was_packed = False
        self._lease: ArrayLease
        self._canvas_held: Any = None
        self._mover_held: Mover | None = None
        self._clocks = _Clocks(GpuClock(), GpuClock())
        self._move_to(self._home)

    @property
    def device(self) -> torch.device:
        """The GPU that draws: where the scene lies."""
        assert self._device is not None
        return self._device

    @property
    def gpu(self) -> int:  # type: ignore[override]
        return self.device.index

    @property
    def reading(self) -> bool:  # type: ignore[override]
        return not self._closed and self._lease.in_use

    @property
    def pending(self) -> bool:  # type: ignore[override]
        return not self._closed and self._lease.pending

    @property
    def left_out(self) -> LeftOut:  # type: ignore[override]
        """As far as the GPU has told by now."""
        if self._closed:
            return LeftOut()
        return self._gaussians.left_out

    @property
    def thinned(self) -> str:  # type: ignore[override]
        if self._closed:
            return ""
        return self._last_frame.thinned

    @property
    def gpu_ms(self) -> float | None:  # type: ignore[override]
        return self._clocks.render.ms

    @property
    def load_gpu_ms(self) -> float | None:  # type: ignore[override]
        """Without the time that it waited for the trainer."""
        return self._clocks.load.ms

    @property
    def note(self) -> str:  # type: ignore[override]
        if self._closed:
            return ""
        return self._frame.failure

    @property
    def is_coarse(self) -> bool:  # type: ignore[override]
        if self._closed or self.pending:
            return False
        return self._gaussians.is_packed_only

    @property
    def draft_note(self) -> str:  # type: ignore[override]
        if self._closed:
            return ""
        return self._packed.note

    @property
    def bridge(self) -> str:  # type: ignore[override]
        if self._canvas_held is None:
            return ""
        return self._canvas_held.name

    # -- scenes ---------------------------------------------------------------------------

    def load(
        self, scene: GaussianScene, ready: Callable[[int], None] | None = None
    ) -> None:
        self._check_open()
        self._move_to(scene.gpu or self._home)
        if scene.on_gpu:
            self._lease.put(scene, ready)
        else:
            self._lease.put(None, ready)
            # Arrays in host memory may change after this returns.
            with self._working(), self._lease:
                self._activate(scene)

    def read(self) -> None:
        if self.pending:
            with self._working(), self._lease:
                self._activate_pending()

    def wait(self) -> None:
        if not self._closed:
            self._lease.wait()

    def scene(self) -> GaussianScene:
        self._check_open()
        reader = torch.cuda.current_stream(self.device)
        with self._working(), self._lease:
            self._activate_pending()
            return self._gaussians.scene(reader)

    def host_scene(self) -> GaussianScene:
        """Return the loaded scene, activated if it has been read, in host memory."""
        with self._working():
            pending = self._lease.to_host()
            if pending is None:
                return self._gaussians.to_host()
            return pending

    def _activate_pending(self, *, packed_only: bool = False) -> None:
        """Have the GPU read the scene that is pending, if any."""
        scene = self._lease.begin()
        if scene is not None:
            self._activate(scene, packed_only=packed_only)

    def _activate(self, scene: GaussianScene, *, packed_only: bool = False) -> None:
        """Have the GPU read a scene."""
        clock = self._clocks.load
        # A version of another size needs the memory of the one before.
        self._frame.unload()
        self._packed.frame.unload()
        try:
            self._load(scene, packed_only=packed_only)
        except BaseException:
            # The renderer that draws instead reads it.
            self._lease.restore()
            raise
        clock.end(self._stream)

    def _load(self, scene: GaussianScene, *, packed_only: bool) -> None:
        clock = self._clocks.load

        def begin_clock() -> None:
            clock.begin(self._stream)

        if packed_only:
            try:
                self._gaussians.load(scene, begin_clock, packed_only=True)
                return
            except torch.cuda.OutOfMemoryError:
                self._packed.give_up(NO_MEMORY)
                torch.cuda.empty_cache()
        self._gaussians.load(scene, begin_clock)

    # -- pictures -------------------------------------------------------------------------

    def render(self, camera: Camera, options: RenderOptions) -> GsplatPicture:
        self._check(camera, LIMIT)
        with self._working():
            return GsplatPicture(self, camera, options)

    def free_pictures(self) -> None:
        if self._closed or self._device is None:
            return
        with self._working():
            # A picture may be on its way to OpenGL.
            self._stream.synchronize()
            self._packed.free()
            self._frame.free_graphs()
        self._close_canvases()

    def close(self) -> None:
        """Release everything. Idempotent. The OpenGL context, if any, must be current."""
        if self._closed:
            return
        self._closed = True
        self._leave()

    @contextmanager
    def _working(self, stream: torch.cuda.Stream | None = None) -> Iterator[None]:
        """Work on the renderer's stream, or another one; raise CUDA's errors as RendererError."""
        self._check_open()
        try:
            with OnStream(stream or self._stream):
                yield
        except (RuntimeError, SharingError) as e:
            raise self._renamed(e) from e

    def _renamed(self, error: RuntimeError | SharingError) -> RendererError:
        """Return an error of CUDA's as the renderer's."""
        if isinstance(error, SharingError):
            return RendererError(f"gsplat: no way from CUDA to OpenGL: {error}")
        first_line = type(error).__name__
        if str(error):
            first_line = str(error).splitlines()[0]
        if isinstance(error, torch.cuda.OutOfMemoryError):
            torch.cuda.empty_cache()
            return RendererError(
                f"gsplat: the memory of {self._device or self._home} is full; a smaller "
                f"picture needs less ({first_line[:120]})"
            )
        return RendererError(f"gsplat: {first_line[:200]}")

    def _draw(
        self, camera: Camera, options: RenderOptions, target: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Draw a picture and its depth into `target` or new float32 tensors."""
        if self._gaussians.is_shifted:
            viewmat = camera.viewmat.copy()
            viewmat[:3, 3] += viewmat[:3, :3] @ self._gaussians.origin
            camera = replace(camera, viewmat=viewmat)
        if options.is_draft:
            drawn = self._packed.render(camera, options, target)
            if drawn is not None:
                self._last_was_packed = True
                return drawn
        self._last_was_packed = False
        gaussians = self._gaussians
        self._frame.load(gaussians.float_scene, gaussians.flags(options.selection))
        return self._frame.render(camera, options, target)

    @property
    def _last_frame(self) -> FrameGraph[Any]:
        """Return the frames that the last picture is one of."""
        if self._last_was_packed:
            return self._packed.frame
        return self._frame

    def _overflowed(self) -> bool:
        """Wait for the last picture; return True if it has to be drawn again."""
        self._lease.wait()
        if self._last_frame.overflowed():
            return True
        if self._last_was_packed and self._packed.frame.thinned:
            self._packed.give_up(TOO_MANY)
            return True
        return False

    # -- ways to OpenGL -------------------------------------------------------------------

    def _target(self, camera: Camera) -> torch.Tensor | None:
        """Return memory that OpenGL will read a picture from; None without a context."""
        if self._ctx is None:
            return None
        return self._canvas().begin(camera.height, camera.width, 4, "float16")

    def _canvas(self) -> Any:
        """Return the canvas of the renderer's pictures."""
        self._canvas_held = self._canvas_held or self._make_canvas()
        return self._canvas_held

    def _mover(self) -> Mover | None:
        """Return the mover of pictures to other cameras; None where it is impossible."""
        if self._ctx is None or self._canvas().name not in moving.BRIDGES:
            return None
        self._mover_held = self._mover_held or Mover(self.device, self._make_canvas)
        if self._mover_held.failure:
            return None
        return self._mover_held

    def _make_canvas(self) -> Any:
        assert self._ctx is not None
        from splatview_ipc.cuda.driver import gpu_uuid
        from splatview_ipc.gl.probe import make_canvas

        return make_canvas(self._ctx, gpu_uuid(self.device.index))

    def _close_canvases(self) -> None:
        if self._canvas_held is not None:
            self._canvas_held.close()
        if self._mover_held is not None:
            self._mover_held.close()
        self._canvas_held = None
        self._mover_held = None

    # -- GPUs -----------------------------------------------------------------------------

    def _move_to(self, device: torch.device) -> None:
        """Draw on this GPU from now on; should that fail, everything stays as it is."""
        if device == self._device:
            return
        with torch.cuda.device(device):
            stream = torch.cuda.Stream(device, priority=-1)
        with self._working(stream):
            gaussians = DeviceGaussians(device)
            record = RecordDrawing(device)
            frame = FrameGraph(device, record)
            packed = PackedFrames(device, gaussians)
        if self._device is not None:
            self._leave()
        self._device = device
        self._stream = stream
        self._gaussians = gaussians
        self._frame = frame
        self.rules = record.rules
        self._packed = packed
        self._last_was_packed = False
        self._lease = ArrayLease(stream)

    def _leave(self) -> None:
        """Release what is on the present GPU."""
        for clock in self._clocks:
            clock.clear()
        self._close_canvases()
        try:
            self._stream.synchronize()
            self._frame.close()
            self._packed.close()
        except RuntimeError:
            # After a fault on the GPU every call fails.
            pass
        del self._frame, self._packed, self._gaussians, self._lease


class GsplatPicture(RenderedPicture):
    """Picture of `GsplatRenderer`. Valid until it draws again or is closed."""

    def __init__(
        self, renderer: GsplatRenderer, camera: Camera, options: RenderOptions
    ) -> None:
        """Draw straight into the memory that OpenGL reads, float16.

        As float32 tensors where there is no OpenGL context, or depth, which is divided by
        alpha, is wanted too, or numbers that are no colours.
        """
        self._renderer = renderer
        self._camera = camera
        self._options = options
        self._target: torch.Tensor | None = None
        """The canvas's memory, if the picture is drawn there and it was not shown yet."""
        if not options.depth and not PAINTS[options.paint].is_mapped:
            self._target = renderer._target(camera)
        clock = renderer._clocks.render
        stream = renderer._stream
        # Only now: getting the target may have waited for OpenGL.
        with renderer._lease:
            if renderer._lease.pending:
                renderer._activate_pending(
                    packed_only=renderer.expects_drafts
                    and renderer._packed.draws_all(camera, options)
                )
            clock.begin(stream)
            self._rgba, self._depth = renderer._draw(camera, options, self._target)
            clock.end(stream)
        self._is_complete = False
        """True once it is known that no Gaussians are missing."""
        self._queued_canvas: Any = None
        """Canvas of `queue_source`."""
        self.movable: MovablePicture | None = None
        self._source: PixelSource | None = None

    def pixels(self) -> Pixels:
        """Return float32 arrays, drawn again if the picture has another dtype."""
        with self.gpu_tensors() as (picture, distance):
            rgba = picture.cpu().numpy()
            if distance is None:
                depth = None
            else:
                depth = distance.cpu().numpy()
        color = np.ascontiguousarray(rgba[..., :3])
        alpha = np.ascontiguousarray(rgba[..., 3])
        return Pixels(color, alpha, depth)

    def source(self) -> PixelSource:
        """Return memory that OpenGL reads, where that is possible: see `splatview_ipc.gl`."""
        if self._source is None:
            with self._renderer._working():
                self._source = self._show()
        return self._source

    def _show(self) -> PixelSource:
        """Have the canvas show the picture."""
        renderer = self._renderer
        is_drawn_there = self._target is not None
        target = self._target
        if target is None:
            target = renderer._target(self._camera)
        if target is None:
            raise RendererError(
                "gsplat: made without an OpenGL context; only pixels() works"
            )
        if not is_drawn_there:
            self._complete()
            target.copy_(self._rgba)
            return renderer._canvas().show()
        # All that can be done while the GPU draws is done before the wait for it.
        source = renderer._canvas().show(finish=self._finish)
        mover = renderer._mover()
        if mover is not None:
            self.movable = mover.borrow(target, renderer._stream)
        return source

    def _finish(self) -> None:
        """Wait until OpenGL can read the picture."""
        try:
            self._complete()
        except RuntimeError as e:
            raise self._renderer._renamed(e) from e
        # From now on it belongs to the canvas.
        self._target = None

    def queue_source(self) -> bool:
        renderer = self._renderer
        with renderer._working(), renderer._lease:
            mover = renderer._mover()
            if mover is None or self._depth is None:
                return False
            self._queued_canvas = renderer._canvas()
            target = self._queued_canvas.begin(
                self._camera.height, self._camera.width, 4, "float16"
            )
            target.copy_(self._rgba)
            self.movable = mover.copy(target, self._rgba, self._depth, renderer._stream)
            renderer._clocks.render.extend(renderer._stream)
        return True

    @property
    def is_done(self) -> bool:
        """True if the GPU has finished with the picture. Never waits."""
        return self._renderer._lease.done

    def queued_source(self) -> PixelSource | None:
        renderer = self._renderer
        canvas = self._queued_canvas
        if canvas is None or canvas is not renderer._canvas_held:
            return None
        with renderer._working():
            if renderer._overflowed():
                return None
            self._is_complete = True
            self._queued_canvas = None
            self._source = canvas.show(finish=self._finish)
            return self._source

    def over_background(self, background: tuple[float, float, float]) -> torch.Tensor:
        """Return the queued picture over RGB in [0, 1], as `RenderedPicture.over_background`.

        Of what was drawn for OpenGL, without asking it for anything.
        """
        renderer = self._renderer
        device = renderer.device
        reader = torch.cuda.current_stream(device)
        launcher = cuda.kernels("bytes.cu", device=device.index)
        with renderer._working():
            rgb = over_background(self._rgba, background, launcher)
            renderer._clocks.render.extend(renderer._stream)
            done = renderer._stream.record_event()
        reader.wait_event(done)
        rgb.record_stream(reader)
        return rgb

    def lacks_gaussians(self) -> bool:
        with self._renderer._working():
            self._is_complete = not self._renderer._overflowed()
        return not self._is_complete

    @contextmanager
    def gpu_tensors(self) -> Iterator[tuple[torch.Tensor, torch.Tensor | None]]:
        """Give the picture as tensors, as `RenderedPicture.gpu_tensors`."""
        renderer = self._renderer
        with renderer._working():
            self._complete()
            # Pixels in OpenGL's memory stay there: the picture is drawn again.
            while self._rgba.element_size() < 4 or not self._is_complete:
                self._draw_again(None)
            yield self._rgba, self._depth

    def _complete(self) -> None:
        """Wait for the picture, and draw again one that had too few slots."""
        if self._is_complete:
            return
        self._is_complete = not self._renderer._overflowed()
        while not self._is_complete:
            self._draw_again(self._target)

    def _draw_again(self, target: torch.Tensor | None) -> None:
        """Draw again into `target` or new float32 tensors, and wait for it."""
        renderer = self._renderer
        with renderer._working(), renderer._lease:
            self._rgba, self._depth = renderer._draw(
                self._camera, self._options, target
            )
        self._is_complete = not renderer._overflowed()
