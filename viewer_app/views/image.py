"""Shows an image: one pass of a shader from the bytes as they lie to the screen."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any, ClassVar

import moderngl
import numpy as np

from ipc.errors import SharingError
from ipc.interop.base import fragment_head
from ipc.interop.host import HostBridge
from ipc.interop.probe import AutoBridge, suitable
from ipc.interop.readback import read_source
from viewer_app.controls import PanZoom, Rect
from viewer_app.errors import ViewerError
from viewer_app.events import PointerLeave, PointerMove
from viewer_app.gpu_work import GpuWork
from viewer_app.state import ImageSettings
from viewer_app.views._image_values import INTEGERS, count_broken, picture_of
from viewer_app.views.base import BRIDGE_WORDS, VERTEX, Stopwatch, bridge_phrases, meta_phrases

if TYPE_CHECKING:
    from ipc import Frame
    from ipc.interop.base import Bridge, PixelSource
    from viewer_app.events import Event
    from viewer_app.scene import GaussianScene

_COUNT_PERIOD = 0.5
"""Seconds between counts of NaNs: one costs about as much as an upload."""
_COUNT_BLOCK = 8
_READOUT_PERIOD = 0.05
"""Seconds between looks at a value on a GPU that changes, which wait for it."""
_LATER = 0.02, 0.1, 0.5
"""Seconds after which a frame that is read in place is drawn again as long as it is not known to have arrived: the
trainer's GPU may write its data later than the frame was announced."""
_PATIENCE = 0.5
"""Seconds for which a frame in other memory than the one shown must have arrived; then it is shown all the same."""
_ALPHA = {"checkerboard": 0, "background": 1, "ignore": 2}


class ImageView:
    """Frames in host memory are uploaded; those on a GPU are read where they lie if OpenGL can (the bridge `direct`),
    at every drawing: such a frame is held until the next one has taken its place."""

    kind: ClassVar[str] = "image"

    def __init__(self, ctx: moderngl.Context, settings: ImageSettings | None = None, *, scale: float = 1.0,
                 work: GpuWork | None = None) -> None:
        self.settings = settings or ImageSettings()
        self.pan_zoom = PanZoom()
        self.scale = scale
        self.stale = False
        self._ctx = ctx
        self._work = work or GpuWork(ctx)
        self._limit = int(ctx.info["GL_MAX_TEXTURE_SIZE"])
        self._arrays: dict[tuple[str, ...], moderngl.VertexArray] = {}
        self._host = HostBridge(ctx)
        self._gpu: AutoBridge | None = None
        self._source: PixelSource | None = None
        self._on_gpu = False
        self._held: Frame | None = None
        self._checked = 0
        """The drawing after which the held frame was last found to be whole."""
        self._drawn = 0
        self._retired: list[tuple[Frame, int]] = []
        """Frames that drawings up to a number may still read."""
        self._again_at: list[float] = []
        self._place: tuple[object, ...] = ()
        """Where the held frame lies."""
        self._expected: tuple[tuple[object, ...], Frame, float] | None = None
        """A place that is not shown yet, the first frame there, and when it came."""
        self._arriving = False
        self._notes: list[str] = []
        self._pointer: tuple[float, float] | None = None
        self._readout: tuple[tuple[object, ...], str, float] = ((), "", 0.0)
        self._rect = Rect(0, 0, 1, 1)
        self._uploads = 0
        self._broken = 0
        self._counted_at = -math.inf
        self._count_due = False
        self._counting: tuple[moderngl.Framebuffer, int] | None = None
        self._stopwatch = Stopwatch()
        self._closed = False

    def update(self, value: Frame | GaussianScene | np.ndarray) -> bool:
        tensor, dtype, layout = picture_of(value)
        frame: Frame | None = None if isinstance(value, np.ndarray) else value  # type: ignore[assignment]
        on_gpu = frame is not None and frame.on_gpu
        if on_gpu and self._gpu is None:
            self._gpu = AutoBridge(self._ctx)
        if on_gpu and not self._may_draw(frame, tensor):  # type: ignore[arg-type]
            return False
        bridge: Bridge = self._gpu if on_gpu else self._host  # type: ignore[assignment]
        with self._stopwatch("take" if on_gpu else "upload"):
            try:
                source = bridge.put(tensor, layout)
            except SharingError as e:
                if on_gpu:
                    raise
                raise ViewerError(f"image: {e}") from e
            in_place = on_gpu and bridge.name == "direct"
            if on_gpu and not in_place:
                _finish_copy(tensor)
        counted = None
        now = time.monotonic()
        if dtype not in INTEGERS and not on_gpu and now - self._counted_at >= _COUNT_PERIOD:
            with self._stopwatch("count"):
                counted = count_broken(getattr(tensor, "array", tensor), dtype)  # type: ignore[arg-type]
        if frame is not None and not frame.intact():
            bridge.undo()
            return False
        self._retire()
        if in_place and frame is not None:
            frame.hold()
            self._held = frame
        self._place = _place(tensor) if in_place else ()
        # A ring's frames are whole when they are handed out: there is nothing to wait for.
        self._arriving = self._held is not None and not self._held.complete
        self._again_at = [now + s for s in _LATER] if self._arriving else []
        if self._on_gpu != on_gpu:
            other = self._host if on_gpu else self._gpu
            if other is not None:
                other.close()
        self._source, self._on_gpu, self.stale = source, on_gpu, False
        self._notes = [] if frame is None else meta_phrases(frame.meta, ("layout",))
        self._uploads += 1
        self._count_due = dtype not in INTEGERS and counted is None
        if dtype in INTEGERS:
            self._broken = 0
        elif counted is not None:
            self._broken, self._counted_at = counted, now
        self.pan_zoom.resize_picture(*source.size)
        return True

    def _may_draw(self, frame: Frame, tensor: Any) -> bool:
        """Whether a frame that is read in place may be drawn from now on, or comes again later.

        Memory that nothing has been written into yet is not shown. Afterwards it may be: another version in the same
        memory is seen in any case. So it is the first version there that must have arrived; a trainer that is always
        ahead of its GPU has none newer that has.
        """
        in_place = self._gpu is not None and self._gpu.name in ("", "direct") and "direct" in suitable(tensor)
        place = _place(tensor)
        if frame.complete or not in_place or place == self._place:
            self._expected = None
            return True
        now = time.monotonic()
        if self._expected is None or self._expected[0] != place:
            self._expected = place, frame, now
        _, first, since = self._expected
        if first.complete or now - since >= _PATIENCE:
            self._expected = None
            return True
        return False

    def _retire(self) -> None:
        """The held frame is not drawn any more; drawings that were submitted may still read it."""
        held, self._held = self._held, None
        if held is not None:
            self._retired.append((held, self._work.submitted))

    def _vertex_array(self, defines: tuple[str, ...]) -> moderngl.VertexArray:
        if defines not in self._arrays:
            source = files("viewer_app.views").joinpath("shaders/image.glsl").read_text()
            program = self._ctx.program(vertex_shader=VERTEX, fragment_shader=fragment_head(defines) + source)
            self._arrays[defines] = self._ctx.vertex_array(program, [])
        return self._arrays[defines]

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        self._rect = rect
        self._ctx.disable(moderngl.BLEND | moderngl.DEPTH_TEST | moderngl.CULL_FACE)
        viewport = rect.viewport(framebuffer.height)
        framebuffer.use()
        if self._source is None:
            framebuffer.clear(*self.settings.background, 1.0, viewport=viewport)
            return
        s, source = self.settings, self._source
        array = self._vertex_array(source.defines)
        x, y, zoom = self.pan_zoom.placed(rect)
        uniforms: dict[str, Any] = {
            "u_origin": (x, y), "u_zoom": zoom, "u_height": float(framebuffer.height),
            "u_background": s.background, "u_alpha": _ALPHA[s.alpha] if self.has_alpha else 2,
            "u_checker": 8.0 * self.scale,
            "u_gain": 2.0**s.exposure if self.is_float else 1.0,
            "u_inv_gamma": 1.0 / s.gamma if self.is_float else 1.0,
        }
        for name, value in uniforms.items():
            array.program[name] = value
        source.bind(array.program, 0)
        framebuffer.viewport = viewport
        with self._work("image", rect.width, rect.height, *source.size, round(math.log2(zoom))):
            array.render(moderngl.TRIANGLES, vertices=3)
        self._drawn = self._work.submitted

    @property
    def is_float(self) -> bool:
        return self._source is not None and self._source.dtype not in INTEGERS

    def handle(self, event: Event, rect: Rect) -> bool:
        self._rect = rect
        before = self._pixel()
        if isinstance(event, PointerMove):
            self._pointer = event.x, event.y
        elif isinstance(event, PointerLeave):
            self._pointer = None
        return self.pan_zoom.handle(event, rect) or self._pixel() != before

    def tick(self, now: float) -> bool:
        self._work.collect()
        finished = self._work.finished
        while self._retired and self._retired[0][1] <= finished:
            self._retired.pop(0)[0].close()
        if self._held is not None and self._checked < self._drawn <= finished:
            self._checked = self._drawn
            self.stale = self.stale or not self._held.intact()
        again = bool(self._again_at) and now >= self._again_at[0]
        if again:
            self._again_at.pop(0)
        if self._arriving and self._held is not None and self._held.complete:  # and this drawing is the last it needs
            self._arriving, self._again_at, again = False, [], True
        return self._count(now) or again

    def _count(self, now: float) -> bool:
        """Counts NaNs of a frame that was not counted when it came. True when the number changed."""
        source = self._source
        if self._counting is not None:
            framebuffer, number = self._counting
            if self._work.finished < number:
                return False
            self._counting = None
            counts = np.frombuffer(framebuffer.read(components=1, dtype="f4"), np.float32)
            framebuffer.color_attachments[0].release()
            framebuffer.release()
            before, self._broken = self._broken, int(counts.sum(dtype=np.float64))
            return self._broken != before
        if not self._count_due or source is None or now - self._counted_at < _COUNT_PERIOD:
            return False
        self._count_due, self._counted_at = False, now
        size = -(-source.size[0] // _COUNT_BLOCK), -(-source.size[1] // _COUNT_BLOCK)
        framebuffer = self._ctx.framebuffer([self._ctx.texture(size, 1, dtype="f4")])
        array = self._vertex_array((*source.defines, f"COUNT {_COUNT_BLOCK}"))
        source.bind(array.program, 0)
        with self._ctx.scope(framebuffer, moderngl.NOTHING), self._work("count", *source.size):
            array.render(moderngl.TRIANGLES, vertices=3)
        self._work.flush()
        self._counting = framebuffer, self._work.submitted
        return self._count(now)

    def _pixel(self) -> tuple[int, int] | None:
        """The picture's pixel (column, row) under the pointer."""
        if self._pointer is None or self._source is None or not self._rect.contains(*self._pointer):
            return None
        x, y = self.pan_zoom.to_picture(*self._pointer, self._rect)
        w, h = self._source.size
        return (math.floor(x), math.floor(y)) if 0 <= x < w and 0 <= y < h else None

    def value_at(self, x: int, y: int) -> tuple[float, ...]:
        """The stored values at a pixel: integers as such, floats before any tone mapping. Waits for the GPU."""
        source = self._source
        assert source is not None
        values = read_source(self._ctx, source, (x, y, 1, 1))[0, 0, : source.channels]
        top = INTEGERS.get(source.dtype)
        return tuple(float(v) if top is None else round(float(v) * top) for v in values)

    @property
    def readout(self) -> str:
        pixel, source = self._pixel(), self._source
        if pixel is None or source is None:
            return ""
        key, now = (pixel, self._uploads), time.monotonic()
        before, text, at = self._readout
        if before == key:
            return text
        if self._on_gpu and before and before[0] == pixel and now - at < _READOUT_PERIOD:
            self._again_at = sorted({*self._again_at, at + _READOUT_PERIOD})  # the last one must not stay away
            return text
        values = "  ".join(f"{v}" if isinstance(v, int) else f"{v:.4g}" for v in self.value_at(*pixel))
        text = f"({pixel[0] * source.stride}, {pixel[1] * source.stride})   {values}"
        self._readout = key, text, now
        return text

    def leave(self) -> None: ...

    def panel(self) -> bool:
        from viewer_app import widgets as ui

        s, before = self.settings, replace(self.settings)
        moved = False
        zooms = [("Fit", 0.0), ("1:1", 1.0), ("2x", 2.0), ("4x", 4.0)]
        chosen = ui.buttons("Zoom", [label for label, _ in zooms])
        if chosen is not None:
            moved = True
            zoom = zooms[chosen][1]
            self.pan_zoom.set_zoom(zoom, self._rect) if zoom else self.pan_zoom.fit()
        if self.is_float:
            s.exposure = ui.slider("Exposure", s.exposure, (-10.0, 10.0), "%+.1f EV", reset=0.0)
            s.gamma = ui.slider("Gamma", s.gamma, (0.2, 4.0), "%.2f", reset=1.0)
        if self.has_alpha:
            s.alpha = ui.choice("Alpha", s.alpha, {"checkerboard": "Checkerboard", "background": "Background",
                                                   "ignore": "Ignored"})
        s.background = ui.color("Backdrop", s.background)
        return moved or s != before

    @property
    def busy(self) -> bool:
        return False

    @property
    def cuda(self) -> bool:
        return False

    @property
    def moving(self) -> bool:
        return False

    @property
    def empty(self) -> bool:
        return self._source is None

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the picture shown."""
        return self._source.size if self._source is not None else (0, 0)

    @property
    def has_alpha(self) -> bool:
        return self._source is not None and self._source.channels in (2, 4)

    @property
    def zoom(self) -> float:
        return self.pan_zoom.placed(self._rect)[2]

    @property
    def details(self) -> list[str]:
        source = self._source
        if source is None:
            return []
        w, h = source.size
        out = [f"{w} x {h}", source.dtype, source.layout, f"{self.zoom:.0%}"]
        if source.stride > 1:
            out.append(f"1 pixel in {source.stride} per axis: larger than this GPU's {self._limit}")
        if self._broken:
            out.append(f"{self._broken:,} NaN or inf (magenta)")
        return [*out, *self._notes]

    @property
    def extras(self) -> list[str]:
        return bridge_phrases(self._gpu.reasons) if self._on_gpu and self._gpu is not None else []

    @property
    def path(self) -> list[str]:
        bridge = self._gpu.name if self._on_gpu and self._gpu is not None else "host"
        return [BRIDGE_WORDS.get(bridge, bridge)]

    @property
    def timings(self) -> dict[str, float]:
        return {**self._stopwatch.ms, "draw": self._work.ms.get("image", 0.0)}

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._retire()
        if self._retired:
            self._ctx.finish()  # nothing on the GPU reads them from here on
        for frame, _ in self._retired:
            frame.close()
        self._retired.clear()
        self._source = None
        self._host.close()
        if self._gpu is not None:
            self._gpu.close()
        if self._counting is not None:
            self._counting[0].color_attachments[0].release()
            self._counting[0].release()
            self._counting = None
        for array in self._arrays.values():
            array.program.release()
            array.release()
        self._arrays.clear()


def _place(tensor: Any) -> tuple[object, ...]:
    """Where a tensor on a GPU lies and how; nothing is kept by it."""
    return id(tensor.memory), tensor.offset, tensor.shape, tensor.strides


def _finish_copy(tensor: Any) -> None:
    """Wait until the CUDA copy of a tensor of this device has ended: only then it can be told whether it was whole."""
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.current_stream(tensor.torch().device).synchronize()
