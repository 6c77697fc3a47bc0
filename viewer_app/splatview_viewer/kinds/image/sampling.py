"""Samples of an image's values: how many are not finite, their range, and a hint."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import moderngl
import numpy as np

from splatview_viewer.core.arithmetic import ceil_div
from splatview_viewer.kinds.image.measurement import (
    MAX_VALUE,
    Measurement,
    automatic_range,
)
from splatview_viewer.ui.hints import Hint, Hints

if TYPE_CHECKING:
    from splatview_ipc.gl.base import PixelSource
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.kinds.image.passes import ImagePasses

_COUNT_PERIOD_S = 0.5
"""Seconds between counts of NaNs: one costs about as much as an upload."""
_MAX_SAMPLES = 1 << 14
"""Pixels whose values are looked at."""


class _RunningCount(NamedTuple):
    framebuffer: moderngl.Framebuffer
    drawing: int


class _ValueSummary(NamedTuple):
    hint: Hint | None
    range: tuple[float, float]
    """The 1st and 99th percentile."""


class ValueSampler:
    """Counts the NaNs of the newest picture by a shader, and samples its values."""

    def __init__(
        self,
        ctx: moderngl.Context,
        gpu_work: GpuWork,
        passes: ImagePasses,
    ) -> None:
        """Start without a picture.

        Args:
            ctx: the OpenGL context.
            gpu_work: times the drawings.
            passes: the shaders of the image.
        """
        self.broken_count = 0
        """NaN and infinite values, as far as they were counted."""
        self.hints = Hints()
        self.range = (0.0, 1.0)
        """The 1st and 99th percentile of the values; of measurements, as stored."""
        self.measurement: Measurement | None = None
        """What the values stand for; None: for brightness."""
        self._ctx = ctx
        self._gpu_work = gpu_work
        self._passes = passes
        self._source: PixelSource | None = None
        self._has_measured_range = False
        """True once `range` is one of measurements."""
        self._counted_at = -math.inf
        self._count_due = False
        self._running_count: _RunningCount | None = None

    def take(
        self,
        source: PixelSource,
        measurement: Measurement | None,
        *,
        may_be_broken: bool,
    ) -> None:
        """Look at the values of a new picture from now on.

        Args:
            source: the picture.
            measurement: what its values stand for.
            may_be_broken: its values may be NaN, infinite or out of range.
        """
        is_other_kind = (measurement is None) != (self.measurement is None)
        if is_other_kind:
            self._has_measured_range = False
            self._release_count()
        self._source = source
        self.measurement = measurement
        self._count_due = may_be_broken or measurement is not None
        if not may_be_broken:
            self.broken_count = 0
            self.hints.hint = None

    def find_range(self) -> None:
        """Find the range of measurements if it is not known yet. Waits for the GPU.

        From then on `advance` follows the values.
        """
        source = self._source
        if source is None or self.measurement is None or self._has_measured_range:
            return
        self._count_due = False
        self._running_count = self._running_count or self._start_count(source)
        self._read_count(self._running_count, source)

    def advance(self, now: float) -> bool:
        """Go on with what is counted now and then; return whether anything changed."""
        source = self._source
        if source is None:
            return False
        if self._running_count is not None:
            return self._finish_count(self._running_count, source)
        if not self._count_due or now - self._counted_at < _COUNT_PERIOD_S:
            return False
        self._count_due = False
        self._counted_at = now
        self._running_count = self._start_count(source)
        return self._finish_count(self._running_count, source)

    def _start_count(self, source: PixelSource) -> _RunningCount:
        """Submit a drawing that reduces the picture to about `_MAX_SAMPLES` pixels."""
        width, height = source.size
        levels = math.ceil(math.log2(width * height / _MAX_SAMPLES) / 2)
        block = 1 << max(levels, 0)
        size = (ceil_div(width, block), ceil_div(height, block))
        framebuffer = self._ctx.framebuffer([self._ctx.texture(size, 4, dtype="f4")])
        counting = self._passes.by_pixels((*source.defines, f"COUNT {block}"))
        source.bind(counting.program, 0)
        with (
            self._ctx.scope(framebuffer, moderngl.NOTHING),
            self._gpu_work("count", *source.size),
        ):
            counting.draw(framebuffer.viewport)
        self._gpu_work.flush()
        return _RunningCount(framebuffer, self._gpu_work.submitted)

    def _finish_count(self, count: _RunningCount, source: PixelSource) -> bool:
        """Read the result of a count, if the GPU has finished it."""
        if self._gpu_work.finished < count.drawing:
            return False
        return self._read_count(count, source)

    def _read_count(self, count: _RunningCount, source: PixelSource) -> bool:
        """Read the result of a count; return whether anything changed.

        Waits for the GPU.
        """
        previous = (self.broken_count, self.hints.hint, self.range)
        data = count.framebuffer.read(components=4, dtype="f4")
        samples = np.frombuffer(data, np.float32).reshape(-1, 4)
        self._release_count()
        if self.measurement is not None:
            self.range = automatic_range(np.rint(samples[:, 0] * MAX_VALUE))
            self._has_measured_range = True
        else:
            channels = 3 if source.channels > 2 else 1
            summary = _summarise(samples[:, :channels])
            self.broken_count = int(samples[:, 3].sum(dtype=np.float64))
            self.hints.hint = summary.hint
            self.range = summary.range
        return (self.broken_count, self.hints.hint, self.range) != previous

    def _release_count(self) -> None:
        if self._running_count is not None:
            framebuffer = self._running_count.framebuffer
            framebuffer.color_attachments[0].release()
            framebuffer.release()
            self._running_count = None

    def close(self) -> None:
        """Free everything on the GPU. Idempotent."""
        self._source = None
        self._release_count()


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
