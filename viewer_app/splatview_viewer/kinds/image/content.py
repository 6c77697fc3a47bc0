"""Content of an image stream on the GPU, which all views of the image share.

It is the picture, wherever it lies, and the count of its values that are not finite.
"""

from __future__ import annotations

import math
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import moderngl
import numpy as np

from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl.base import fragment_head
from splatview_ipc.gl.host import HostBridge
from splatview_ipc.gl.probe import AutoBridge
from splatview_ipc.kinds.image import IMAGE_AXES
from splatview_viewer.core.arithmetic import ceil_div
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
_COUNT_PERIOD_S = 0.5
"""Seconds between counts of NaNs: one costs about as much as an upload."""
_MAX_SAMPLES = 1 << 14
"""Pixels whose values are looked at."""
_ARRIVAL_WAIT_S = 0.5
"""Seconds for which a frame in other memory than the one shown must have arrived; then
it is shown all the same."""

MemoryKey = tuple[object, ...]
"""Names a tensor's memory on a GPU and its layout there."""


class _UploadedPicture(NamedTuple):
    """A picture (H, W) or (H, W, C), as it is published."""

    tensor: RemoteTensor | DeviceTensor | np.ndarray
    dtype: str
    layout: str


class _ExpectedMemory(NamedTuple):
    """Memory that is not shown yet."""

    key: MemoryKey
    first_frame: StreamFrame
    since: float


class _RetiredFrame(NamedTuple):
    frame: StreamFrame
    last_drawing: int
    """The last drawing that may read the frame."""


class _RunningCount(NamedTuple):
    framebuffer: moderngl.Framebuffer
    drawing: int


class _ValueSummary(NamedTuple):
    hint: Hint | None
    range: tuple[float, float]
    """The 1st and 99th percentile."""


class ImageContent:
    """The picture of an image stream, for all its views.

    Frames in host memory are uploaded. Those on a GPU are read where they lie at every
    drawing, if OpenGL can (the bridge `direct`): such a frame is held until the next
    one has taken its place.
    """

    def __init__(self, ctx: moderngl.Context, work: GpuWork) -> None:
        self.now = 0.0
        """Time of the last `tick`."""
        self.source: PixelSource | None = None
        self.stale = False
        """The writer overwrote the shown frame: the newest one is wanted again."""
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
        self._frame_in_place: StreamFrame | None = None
        """The frame that drawings read where it lies."""
        self._checked_drawing = 0
        """The drawing after which that frame was last found to be whole."""
        self._retired: list[_RetiredFrame] = []
        self._memory_key: MemoryKey = ()
        """Memory of the frame in place."""
        self._expected: _ExpectedMemory | None = None
        self._is_arriving = False
        """The trainer's GPU has not written all of the frame in place: it is drawn once
        more when it has."""
        self._counted_at = -math.inf
        self._count_due = False
        self._running_count: _RunningCount | None = None

    def update(self, value: Value) -> bool:
        """Show a frame or a picture from now on.

        Returns:
            False if the frame was overwritten meanwhile, or has not arrived.

        Raises:
            ViewerError: the value has no image that can be shown.
        """
        picture = _picture_of(value)
        frame: StreamFrame | None = None
        if not isinstance(value, np.ndarray):
            frame = value  # type: ignore[assignment]
        on_gpu = frame is not None and frame.on_gpu
        if on_gpu and self.gpu is None:
            self.gpu = AutoBridge(self.ctx)
        if on_gpu and not self._may_draw(frame, picture.tensor):  # type: ignore[arg-type]
            return False
        bridge: Bridge = self.gpu if on_gpu else self.host  # type: ignore[assignment]
        if on_gpu:
            with self.stopwatch("take"):
                source = bridge.put(picture.tensor, IMAGE_AXES[picture.layout])
                in_place = bridge.name == "direct"
                if not in_place:
                    _wait_for_copy(picture.tensor)
        else:
            in_place = False
            source = self._upload(picture)
        if frame is not None and not frame.intact():
            bridge.undo()
            return False
        self._retire()
        self._memory_key = ()
        if in_place and frame is not None:
            frame.hold()
            self._frame_in_place = frame
            self._memory_key = _memory_key_of(picture.tensor)
        # A ring's frames are whole when they are handed out: there is nothing to wait
        # for.
        held = self._frame_in_place
        self._is_arriving = held is not None and not held.complete
        if self.on_gpu != on_gpu:
            self._close_bridge(on_gpu=self.on_gpu)
        self.on_gpu = on_gpu
        self._describe(source, picture, frame)
        self.changes += 1
        return True

    def _upload(self, picture: _UploadedPicture) -> PixelSource:
        """Upload a picture from host memory."""
        with self.stopwatch("upload"):
            try:
                return self.host.put(picture.tensor, IMAGE_AXES[picture.layout])
            except SharingError as e:
                raise ViewerError(f"image: {e}") from e

    def _close_bridge(self, *, on_gpu: bool) -> None:
        """Free what the bridge of frames on a GPU, or the one of others, holds."""
        bridge = self.gpu if on_gpu else self.host
        if bridge is not None:
            bridge.close()

    def _describe(
        self, source: PixelSource, picture: _UploadedPicture, frame: StreamFrame | None
    ) -> None:
        """Take over what is known about the new picture."""
        self.source = source
        self.layout = picture.layout
        self.stale = False
        self.notes = []
        if frame is not None:
            self.notes = meta_phrases(frame.meta, ("layout", *CAMERA_META))
        width, height = source.size
        size = (width * source.stride, height * source.stride)
        self.layers.set_image(frame, size)
        is_integer = picture.dtype in INTEGERS
        self._count_due = not is_integer
        if is_integer:
            self.broken_count = 0
            self.hints.hint = None

    def _may_draw(self, frame: StreamFrame, tensor: Any) -> bool:
        """Return True if a frame that is read in place may be drawn from now on.

        Otherwise it comes again later. Memory that nothing has been written into yet is
        not shown, and waiting for it here would hold up all else that is drawn.
        Afterwards it may be shown: another version in the same memory is seen in any
        case. So it is the first version there that must have arrived; a trainer that is
        always ahead of its GPU has none newer that has.
        """
        key = _memory_key_of(tensor)
        if frame.complete or key == self._memory_key:
            self._expected = None
            return True
        expected = self._expected
        if expected is None or expected.key != key:
            expected = _ExpectedMemory(key, frame, self.now)
            self._expected = expected
        has_waited = self.now - expected.since >= _ARRIVAL_WAIT_S
        if expected.first_frame.complete or has_waited:
            self._expected = None
            return True
        return False

    def _retire(self) -> None:
        """Draw the frame in place no more.

        It is not closed yet: drawings that were submitted may still read it.
        """
        frame = self._frame_in_place
        self._frame_in_place = None
        if frame is not None:
            self._retired.append(_RetiredFrame(frame, self.work.submitted))

    def vertex_array(self, defines: tuple[str, ...]) -> moderngl.VertexArray:
        """Return the program that draws a source with these defines."""
        if defines not in self._arrays:
            shader = files("splatview_viewer.kinds.image").joinpath("image.glsl")
            program = self.ctx.program(
                vertex_shader=VERTEX,
                fragment_shader=fragment_head(defines) + shader.read_text(),
            )
            self._arrays[defines] = self.ctx.vertex_array(program, [])
        return self._arrays[defines]

    def tick(self, now: float) -> None:
        """Do what could wait, once however many views ask for it.

        `changes` grows if anything else can be seen afterwards.
        """
        self.now = now
        self.layers.now = now
        self.work.collect()
        finished = self.work.finished
        while self._retired and self._retired[0].last_drawing <= finished:
            retired = self._retired.pop(0)
            retired.frame.close()
        self._check_frame_in_place(finished)
        self._advance_count(now)

    def _check_frame_in_place(self, finished: int) -> None:
        """Find out if the frame in place is still whole, and if it has arrived."""
        frame = self._frame_in_place
        if frame is None:
            return
        if self._checked_drawing < self.last_drawing <= finished:
            self._checked_drawing = self.last_drawing
            self.stale = self.stale or not frame.intact()
        if self._is_arriving and frame.complete:
            self._is_arriving = False
            self.changes += 1

    def _advance_count(self, now: float) -> None:
        """Count the NaNs of the newest frame by a shader, and sample its values."""
        source = self.source
        if source is None:
            return
        if self._running_count is not None:
            self._finish_count(self._running_count, source)
        elif self._count_due and now - self._counted_at >= _COUNT_PERIOD_S:
            self._count_due = False
            self._counted_at = now
            self._running_count = self._start_count(source)
            self._finish_count(self._running_count, source)

    def _start_count(self, source: PixelSource) -> _RunningCount:
        """Submit a drawing that reduces the picture to about `_MAX_SAMPLES` pixels."""
        width, height = source.size
        levels = math.ceil(math.log2(width * height / _MAX_SAMPLES) / 2)
        block = 1 << max(levels, 0)
        size = (ceil_div(width, block), ceil_div(height, block))
        framebuffer = self.ctx.framebuffer([self.ctx.texture(size, 4, dtype="f4")])
        array = self.vertex_array((*source.defines, f"COUNT {block}"))
        source.bind(array.program, 0)
        with (
            self.ctx.scope(framebuffer, moderngl.NOTHING),
            self.work("count", *source.size),
        ):
            array.render(moderngl.TRIANGLES, vertices=3)
        self.work.flush()
        return _RunningCount(framebuffer, self.work.submitted)

    def _finish_count(self, count: _RunningCount, source: PixelSource) -> None:
        """Read the result of a count, if the GPU has finished it."""
        if self.work.finished < count.drawing:
            return
        previous = (self.broken_count, self.hints.hint, self.range)
        data = count.framebuffer.read(components=4, dtype="f4")
        samples = np.frombuffer(data, np.float32).reshape(-1, 4)
        self._release_count()
        channels = 3 if source.channels > 2 else 1
        summary = _summarise(samples[:, :channels])
        self.broken_count = int(samples[:, 3].sum(dtype=np.float64))
        self.hints.hint = summary.hint
        self.range = summary.range
        if (self.broken_count, self.hints.hint, self.range) != previous:
            self.changes += 1

    def _release_count(self) -> None:
        if self._running_count is not None:
            framebuffer = self._running_count.framebuffer
            framebuffer.color_attachments[0].release()
            framebuffer.release()
            self._running_count = None

    def close(self) -> None:
        """Free everything on the GPU, and close all frames. Idempotent."""
        self._retire()
        if self._retired:
            # Nothing on the GPU reads the frames from here on.
            self.ctx.finish()
        for retired in self._retired:
            retired.frame.close()
        self._retired.clear()
        self.source = None
        self._expected = None
        self.layers.release()
        self.host.close()
        if self.gpu is not None:
            self.gpu.close()
        self._release_count()
        for array in self._arrays.values():
            array.program.release()
            array.release()
        self._arrays.clear()


def _wait_for_copy(tensor: Any) -> None:
    """Wait until the copy of a tensor on a GPU has ended.

    Only then can it be told if what was copied was whole.
    """
    import torch

    if torch.cuda.is_initialized():
        device = tensor.torch().device
        torch.cuda.current_stream(device).synchronize()


def _memory_key_of(tensor: Any) -> MemoryKey:
    """Return the key of a tensor's memory; it keeps nothing alive."""
    return id(tensor.memory), tensor.offset, tensor.shape, tensor.strides


def _picture_of(value: Value) -> _UploadedPicture:
    """Return the picture of a frame, or of an array (H, W) or (H, W, C).

    A bridge finds out later if that makes a picture.

    Raises:
        ViewerError: the value has no image.
    """
    if isinstance(value, np.ndarray):
        layout = "HW" if value.ndim == 2 else "HWC"
        return _UploadedPicture(value, value.dtype.name, layout)
    if "image" not in getattr(value, "tensors", ()):
        raise ViewerError(
            f"image: a {type(value).__name__} without an image cannot be shown"
        )
    tensor = value.tensors["image"]  # type: ignore[union-attr]
    layout = str(value.meta["layout"])  # type: ignore[union-attr]
    return _UploadedPicture(tensor, tensor.dtype, layout)


def _summarise(colors: np.ndarray) -> _ValueSummary:
    """Summarise colours (M, 1 or 3): if most do not lie in [0, 1], and their range.

    The range is that of finite values without the outer hundredths; 0 counts for
    nothing. One channel is a depth unless its values are whole.
    """
    finite = colors[np.isfinite(colors) & (colors != 0)]
    low = 0.0
    high = 1.0
    if len(finite):
        low, high = np.percentile(finite, (1, 99)).tolist()
    is_single = colors.shape[1] == 1
    infinite_share = np.isinf(colors).mean()
    over_share = (finite > 1).sum() / max(len(finite), 1)
    is_near_unit = -1.3 <= low < -0.1 and high <= 1.3
    is_signed = is_near_unit and (finite < 0).mean() > 0.1
    is_byte_range = low > -26 and 16 < high < 282 and over_share > 0.5
    is_whole = not (is_single and (finite % 1).any())
    named_range: tuple[float, float] | None = None
    if is_signed:
        named_range = (-1.0, 1.0)
    elif is_byte_range and is_whole:
        named_range = (0.0, 255.0)
    elif not is_single or (over_share < 0.1 and not infinite_share):
        return _ValueSummary(None, (low, high))
    bottom, top = named_range or (low, high)
    range_text = f"{bottom:.3g} to {top:.3g}"
    text = f"floats from {range_text}"
    if infinite_share:
        text += f", {infinite_share:.1%} infinite"
    return _ValueSummary(Hint(named_range, text, f"Show as {range_text}"), (low, high))
