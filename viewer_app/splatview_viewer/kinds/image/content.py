"""Content of an image stream on the GPU, shared by its views: its picture, wherever it
lies, and its broken values.
"""

from __future__ import annotations

import math
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import moderngl
import numpy as np

from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl.base import fragment_head
from splatview_ipc.gl.host import HostBridge
from splatview_ipc.gl.probe import AutoBridge
from splatview_ipc.kinds.image import IMAGE_AXES
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.view import VERTEX, Stopwatch, meta_phrases
from splatview_viewer.kinds.image.layers import CAMERA_META, ImageLayers
from splatview_viewer.ui.widgets import Hint, Hints

if TYPE_CHECKING:
    from splatview_ipc.control.frame import DeviceTensor, RemoteTensor, StreamFrame
    from splatview_ipc.gl.base import Bridge, PixelSource
    from splatview_viewer.core.view import Value
    from splatview_viewer.gpu.work import GpuWork

INTEGERS = {"uint8": 255.0, "uint16": 65535.0}
"""Integer dtypes and what a shader sees as 1."""
_COUNT_PERIOD = 0.5
"""Seconds between counts of NaNs: one costs about as much as an upload."""
_SAMPLE = 1 << 14
"""Most pixels whose values are looked at."""
_PATIENCE = 0.5
"""Seconds for which a frame in other memory than the one shown must have arrived; then
it is shown all the same."""


class ImageContent:
    """Frames in host memory are uploaded; those on a GPU are read where they lie if
    OpenGL can (the bridge `direct`), at every drawing: such a frame is held until the
    next one has taken its place.

    Shared by all views of the image.
    """

    def __init__(self, ctx: moderngl.Context, work: GpuWork) -> None:
        self.now = 0.0
        """Time of the last `tick`."""
        self.source: PixelSource | None = None
        self.stale = False
        """As `View.stale`."""
        self.changes = 0
        """Count of visible changes: a view that drew an earlier state has to be drawn
        again."""
        self.last_drawing = 0
        """The last drawing that any view submitted."""
        self.broken_count = 0
        """NaN and infinite values, as far as they were counted."""
        self.hints = Hints()
        self.range = (0.0, 1.0)
        """The 1st and 99th percentile of the values."""
        self.layout = ""
        """As it was published."""
        self.notes: list[str] = []
        self.on_gpu = False
        self.host = HostBridge(ctx)
        self.gpu: AutoBridge | None = None
        self.layers = ImageLayers(ctx)
        """Overlays."""
        self.stopwatch = Stopwatch()
        self.ctx = ctx
        self.work = work
        self._arrays: dict[tuple[str, ...], moderngl.VertexArray] = {}
        self._held: StreamFrame | None = None
        self._checked = 0
        """The drawing after which the held frame was last found to be whole."""
        self._retired: list[tuple[StreamFrame, int]] = []
        """Frames that drawings up to a number may still read."""
        self._place: tuple[object, ...] = ()
        """Place of the held frame."""
        self._expected: tuple[tuple[object, ...], StreamFrame, float] | None = None
        """A place that is not shown yet, the first frame there, and when it came."""
        self._arriving = False
        """The trainer's GPU has not written all of the held frame: it is drawn once
        more when it has."""
        self._counted_at = -math.inf
        self._count_due = False
        self._counting: tuple[moderngl.Framebuffer, int] | None = None

    def update(self, value: Value) -> bool:
        """As `View.update`."""
        tensor, dtype, layout = _picture_of(value)
        frame: StreamFrame | None = None if isinstance(value, np.ndarray) else value  # type: ignore[assignment]
        on_gpu = frame is not None and frame.on_gpu
        if on_gpu and self.gpu is None:
            self.gpu = AutoBridge(self.ctx)
        if on_gpu and not self._may_draw(frame, tensor):  # type: ignore[arg-type]
            return False
        bridge: Bridge = self.gpu if on_gpu else self.host  # type: ignore[assignment]
        with self.stopwatch("take" if on_gpu else "upload"):
            try:
                source = bridge.put(tensor, IMAGE_AXES[layout])
            except SharingError as e:
                if on_gpu:
                    raise
                raise ViewerError(f"image: {e}") from e
            in_place = on_gpu and bridge.name == "direct"
            if on_gpu and not in_place:
                import torch

                if (
                    torch.cuda.is_initialized()
                ):  # only once its copy has ended it can be told if it was whole
                    torch.cuda.current_stream(tensor.torch().device).synchronize()  # type: ignore[union-attr]
        if frame is not None and not frame.intact():
            bridge.undo()
            return False
        self._retire()
        if in_place and frame is not None:
            frame.hold()
            self._held = frame
        self._place = _place(tensor) if in_place else ()
        # A ring's frames are whole when they are handed out: there is nothing to wait
        # for.
        self._arriving = self._held is not None and not self._held.complete
        if self.on_gpu != on_gpu:
            other = self.host if on_gpu else self.gpu
            if other is not None:
                other.close()
        self.source = source
        self.layout = layout
        self.on_gpu = on_gpu
        self.stale = False
        if frame is None:
            self.notes = []
        else:
            self.notes = meta_phrases(frame.meta, ("layout", *CAMERA_META))
        self.layers.set_image(
            frame, (source.size[0] * source.stride, source.size[1] * source.stride)
        )
        self._count_due = dtype not in INTEGERS
        if dtype in INTEGERS:
            self.broken_count = 0
            self.hints.hint = None
        self.changes += 1
        return True

    def _may_draw(self, frame: StreamFrame, tensor: Any) -> bool:
        """Return whether a frame that is read in place may be drawn from now on, or
        comes again later.

        Memory that nothing has been written into yet is not shown, and waiting for it
        here would hold up all else that is drawn. Afterwards it may be shown: another
        version in the same memory is seen in any case. So it is the first version there
        that must have arrived; a trainer that is always ahead of its GPU has none newer
        that has.
        """
        place = _place(tensor)
        if frame.complete or place == self._place:
            self._expected = None
            return True
        if self._expected is None or self._expected[0] != place:
            self._expected = place, frame, self.now
        _, first, since = self._expected
        if first.complete or self.now - since >= _PATIENCE:
            self._expected = None
            return True
        return False

    def _retire(self) -> None:
        """The held frame is not drawn any more; drawings that were submitted may still
        read it.
        """
        held = self._held
        self._held = None
        if held is not None:
            self._retired.append((held, self.work.submitted))

    def vertex_array(self, defines: tuple[str, ...]) -> moderngl.VertexArray:
        """Program that draws a source with these defines."""
        if defines not in self._arrays:
            source = (
                files("splatview_viewer.kinds.image").joinpath("image.glsl").read_text()
            )
            program = self.ctx.program(
                vertex_shader=VERTEX, fragment_shader=fragment_head(defines) + source
            )
            self._arrays[defines] = self.ctx.vertex_array(program, [])
        return self._arrays[defines]

    def tick(self, now: float) -> None:
        """Do what could wait, once however many views ask for it; `changes` says
        whether anything is to be seen.
        """
        self.now = now
        self.layers.now = now
        self.work.collect()
        finished = self.work.finished
        while self._retired and self._retired[0][1] <= finished:
            self._retired.pop(0)[0].close()
        if self._held is not None and self._checked < self.last_drawing <= finished:
            self._checked = self.last_drawing
            self.stale = self.stale or not self._held.intact()
        if self._arriving and self._held is not None and self._held.complete:
            self._arriving = False
            self.changes += 1
        self._count(now)

    def _count(self, now: float) -> None:
        """Count the NaNs of the newest frame, by a shader, and look at its values."""
        source = self.source
        if self._counting is not None and source is not None:
            framebuffer, number = self._counting
            if self.work.finished < number:
                return
            before = self.broken_count, self.hints.hint, self.range
            read = np.frombuffer(
                framebuffer.read(components=4, dtype="f4"), np.float32
            ).reshape(-1, 4)
            self._end_count()
            self.broken_count = int(read[:, 3].sum(dtype=np.float64))
            self.hints.hint, self.range = _look_at(
                read[:, : 3 if source.channels > 2 else 1]
            )
            self.changes += (self.broken_count, self.hints.hint, self.range) != before
            return
        if (
            not self._count_due
            or source is None
            or now - self._counted_at < _COUNT_PERIOD
        ):
            return
        self._count_due = False
        self._counted_at = now
        width, height = source.size
        block = 1 << max(math.ceil(math.log2(width * height / _SAMPLE) / 2), 0)
        size = -(-width // block), -(-height // block)
        framebuffer = self.ctx.framebuffer([self.ctx.texture(size, 4, dtype="f4")])
        array = self.vertex_array((*source.defines, f"COUNT {block}"))
        source.bind(array.program, 0)
        with (
            self.ctx.scope(framebuffer, moderngl.NOTHING),
            self.work("count", *source.size),
        ):
            array.render(moderngl.TRIANGLES, vertices=3)
        self.work.flush()
        self._counting = framebuffer, self.work.submitted
        self._count(now)

    def _end_count(self) -> None:
        if self._counting is not None:
            self._counting[0].color_attachments[0].release()
            self._counting[0].release()
            self._counting = None

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self._retire()
        if self._retired:
            self.ctx.finish()  # nothing on the GPU reads them from here on
        for frame, _ in self._retired:
            frame.close()
        self._retired.clear()
        self.source = None
        self._expected = None
        self.layers.release()
        self.host.close()
        if self.gpu is not None:
            self.gpu.close()
        self._end_count()
        for array in self._arrays.values():
            array.program.release()
            array.release()
        self._arrays.clear()


def _place(tensor: Any) -> tuple[object, ...]:
    """Key of a tensor's place and layout on a GPU; it keeps nothing alive."""
    return id(tensor.memory), tensor.offset, tensor.shape, tensor.strides


def _picture_of(
    value: Value,
) -> tuple[RemoteTensor | DeviceTensor | np.ndarray, str, str]:
    """(tensor, dtype, layout) of a frame or a picture (H, W) or (H, W, C); a bridge
    says whether they make a picture. Raises ViewerError for what has no image.
    """
    if isinstance(value, np.ndarray):
        return value, value.dtype.name, "HW" if value.ndim == 2 else "HWC"
    if "image" not in getattr(value, "tensors", ()):
        raise ViewerError(
            f"image: a {type(value).__name__} without an image cannot be shown"
        )
    tensor = value.tensors["image"]  # type: ignore[union-attr]
    return tensor, tensor.dtype, str(value.meta["layout"])  # type: ignore[union-attr]


def _look_at(colors: np.ndarray) -> tuple[Hint | None, tuple[float, float]]:
    """Describe colours (M, 1 or 3): if most do not lie in [0, 1], and the range of
    those that are finite without the outer hundredths; 0 counts for nothing. One
    channel is a depth unless its values are whole.
    """
    finite = colors[np.isfinite(colors) & (colors != 0)]
    low, high = np.percentile(finite, (1, 99)).tolist() if len(finite) else (0.0, 1.0)
    single = colors.shape[1] == 1
    infinite = np.isinf(colors).mean()
    over = (finite > 1).sum() / max(len(finite), 1)
    shown: tuple[float, float] | None = None
    if -1.3 <= low < -0.1 and high <= 1.3 and (finite < 0).mean() > 0.1:
        shown = -1.0, 1.0
    elif (
        low > -26
        and 16 < high < 282
        and over > 0.5
        and not (single and (finite % 1).any())
    ):
        shown = 0.0, 255.0
    elif not single or (over < 0.1 and not infinite):
        return None, (low, high)
    words = "{:.3g} to {:.3g}".format(*shown or (low, high))
    apart = f", {infinite:.1%} infinite" if infinite else ""
    return Hint(shown, f"floats from {words}{apart}", f"Show as {words}"), (low, high)
