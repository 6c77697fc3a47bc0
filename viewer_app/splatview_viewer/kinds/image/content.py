"""Content of an image stream on the GPU, which all views of the image share.

It is the picture, wherever it lies, and what is known of its values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from splatview_ipc.control.dtypes import DTYPES
from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl.host import HostBridge
from splatview_ipc.gl.probe import AutoBridge
from splatview_ipc.kinds.image import IMAGE_AXES
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.view import Stopwatch, meta_phrases
from splatview_viewer.kinds.image.layers import CAMERA_META, ImageLayers
from splatview_viewer.kinds.image.measurement import (
    MEASUREMENT_META,
    measurement_of,
)
from splatview_viewer.kinds.image.passes import ImagePasses
from splatview_viewer.kinds.image.sampling import ValueSampler

if TYPE_CHECKING:
    import moderngl

    from splatview_ipc.control.frame import DeviceTensor, RemoteTensor, StreamFrame
    from splatview_ipc.gl.base import Bridge, PixelSource
    from splatview_viewer.core.view import Value
    from splatview_viewer.gpu.work import GpuWork

INTEGERS = {name: d.one for name, d in DTYPES.items() if not d.is_float}
"""Integer dtypes and what a shader sees as 1."""
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


class ImageContent:
    """The picture of an image stream, for all its views.

    Frames in host memory are uploaded. Those on a GPU are read where they lie at every
    drawing, if OpenGL can (the bridge `direct`): such a frame is held until the next
    one has taken its place.
    """

    def __init__(self, ctx: moderngl.Context, gpu_work: GpuWork) -> None:
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
        self.passes = ImagePasses(ctx)
        self.values = ValueSampler(ctx, gpu_work, self.passes)
        self.hints = self.values.hints
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
        self.work = gpu_work
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
        shown_frame = self._frame_in_place
        self._is_arriving = shown_frame is not None and not shown_frame.complete
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
        measurement = measurement_of(frame)
        if frame is not None:
            shown_meta = ["layout", *CAMERA_META]
            if measurement is not None:
                shown_meta += MEASUREMENT_META
            self.notes = meta_phrases(frame.meta, shown_meta)
        width, height = source.size
        size = (width * source.stride, height * source.stride)
        self.layers.set_image(frame, size)
        is_integer = picture.dtype in INTEGERS
        self.values.take(source, measurement, may_be_broken=not is_integer)

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
        self.changes += self.values.advance(now)

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
        self.values.close()
        self.passes.release()


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
