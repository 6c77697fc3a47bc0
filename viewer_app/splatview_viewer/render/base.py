"""The protocol that every Gaussian renderer fulfils.

All renderers follow the rules of gsplat's rasteriser, so that a picture does not depend on
which one drew it: of 1.5.3, or of the version that is installed (see `Rules`).
`tests/support/reference.py` spells the rules out, `tests/viewer/render/test_renderers.py`
is the conformance suite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from splatview_viewer.core.errors import RendererError
from splatview_viewer.scene import EVERYTHING, Selection

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import numpy as np
    import torch

    from splatview_ipc.gl.base import PixelSource
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.gpu.steps import Steps
    from splatview_viewer.render.gsplat.moving import MovablePicture
    from splatview_viewer.render.paints import Paint
    from splatview_viewer.scene.scene import GaussianScene

EPS_2D = 0.3
"""Blur added to both diagonal entries of a projected covariance, in square pixels."""
ALPHA_MIN = 1.0 / 255.0
"""A Gaussian contributes nothing to a pixel where its alpha is below this."""
ALPHA_MAX = 0.999
"""Alpha is clamped to this, but where a renderer's `Rules` say otherwise."""
TRANSMITTANCE_MIN = 1e-4
"""A pixel is finished before the Gaussian that would take its transmittance to this or
below."""
FAINT = 0.05
"""Alpha up to which a pixel has no depth."""
MARK_COLOR = (1.0, 0.25, 0.85)
"""RGB of Gaussians that a selection marks."""
BODY_SIGMAS = 2.0
"""Standard deviations at which the surface of a Gaussian drawn as a body lies."""
RING_PX = 1.5
"""Width of outlines in pixels."""
RING_INSIDE = 0.06
"""Alpha of the area that an outline encloses, so that Gaussians far behind are hidden."""
LIGHT = (-0.4, -0.6, -math.sqrt(0.48))
"""Unit vector towards the light, camera axes: from above and a little to the left."""
AMBIENT = 0.25
"""Share of a body's colour where no light falls."""
COVARIANCE_MAX = 1e19
"""Gaussians whose projected covariance has a larger trace (a radius of 10^9 pixels) are
left out: float32 determinants end there. gsplat has them cover everything; with
`SCALE_MAX` that takes a camera right in front."""
SCALE_MAX = 1e8
"""Gaussians with a larger standard deviation are left out: their projections are at the
end of float32."""
SH_MAX = 1e30
"""Coefficients count as no larger than this, and no less than minus this: sums of them
end where float32 does."""
COLOR_MAX = 16383.0
"""Colours count as no brighter than this: a blended colour stays finite, in half
precision as well."""
PAIRS_MAX = 1 << 27
"""Pairs of Gaussian and tile (16 pixels a side) that the CUDA renderer draws of one
picture: 1.2 GB, a fifth of a second.

A million Gaussians that each cover the picture are billions of pairs: minutes in which a
GPU answers no other program, until its driver ends this one. The nearest Gaussians are
drawn until such a bound is reached; scenes as they are trained stay far below."""
THINNED = "only the nearest are shown: all would take too long"
LISTED_MAX = 1 << 26
"""Pairs of Gaussian and tile (8 pixels a side) that a software rasteriser goes through,
of those that nothing finished hides: some seconds."""


@dataclass(frozen=True)
class RenderOptions:
    """Options of a picture, beside the camera. The background is composed later."""

    mode: Literal["classic", "antialiased"] = "classic"
    """antialiased: opacity is scaled by sqrt(det before blur / det after), as in
    Mip-Splatting."""
    sh_degree: int | None = None
    """Highest degree to evaluate, 0 to 4; None: the scene's own."""
    depth: bool = True
    """True if accumulated depth is wanted besides colour and alpha."""
    paint: Paint = "color"
    """Drawn part of each Gaussian.

    color: as it was trained.

    normals: the same with another colour, the direction of its shortest axis, towards the
    camera, in camera axes (x right, y down, z forward), as (n + 1) / 2.

    ellipsoids: a solid, shaded body that ends at `BODY_SIGMAS`; the nearest surface is
    seen, and its camera z is the depth. rings: the outline of that body's ellipse,
    `RING_PX` wide, nearest centre first. points: its centre, a disc of `point_px` with a
    smooth edge, if the centre lies in the picture. Of these three, whatever `mode` is,
    those are drawn whose opacity reaches `ALPHA_MIN`, and opacity counts no further; of
    rings and points a pixel is finished after the one that takes its transmittance to
    `TRANSMITTANCE_MIN`, not before, as these are all but opaque.

    overdraw: the colour is the number of Gaussians whose alpha reaches `ALPHA_MIN` in the
    pixel, whether or not others hide them, in all three channels, alpha is 1 where there
    are any, and depth is that of color.

    `tests/support/reference.py` has the formulas."""
    scale: float = 1.0
    """Multiplies the Gaussians' standard deviations."""
    point_px: float = 3.0
    """Diameter of points in pixels."""
    selection: Selection = EVERYTHING
    """The Gaussians that are drawn. Of those that are marked the colour is mixed half and
    half with `MARK_COLOR`."""
    is_draft: bool = False
    """The picture is about to be replaced, as the camera or the scene is changing: a
    renderer that `has_drafts` may draw it in a quicker way, within 50 dB (of 8 bits) of
    the picture without. Others make no difference."""

    @property
    def point_reach(self) -> float:
        """Pixels from a point's centre to where its edge has faded."""
        return self.point_px / 2 + 0.5


@dataclass(frozen=True)
class LeftOut:
    """Count of a scene's Gaussians that can never be drawn, by the first reason that holds."""

    not_finite: int = 0
    """A NaN in any field, or an infinity that exp or sigmoid does not make finite."""
    too_large: int = 0
    """A standard deviation over `SCALE_MAX`."""
    no_rotation: int = 0
    """A quaternion of length zero."""

    @property
    def total(self) -> int:
        """Count of all Gaussians that are left out."""
        return self.not_finite + self.too_large + self.no_rotation

    def summary(self, count: int) -> str:
        """Return a sentence about a scene of `count` Gaussians; "" if none is left out.

        For example "12 of 3,000 left out: 10 not finite, 2 zero quaternions".
        """
        if not self.total:
            return ""
        reasons = []
        if self.not_finite:
            reasons.append(f"{self.not_finite:,} not finite")
        if self.too_large:
            reasons.append(f"{self.too_large:,} too large")
        if self.no_rotation:
            plural = "s" if self.no_rotation > 1 else ""
            reasons.append(f"{self.no_rotation:,} zero quaternion{plural}")
        return f"{self.total:,} of {count:,} left out: {', '.join(reasons)}"


@dataclass(frozen=True)
class Pixels:
    """A rendered picture in memory, top row first."""

    color: np.ndarray
    """(H, W, 3) float32, premultiplied by alpha, over black; may exceed 1 where the scene
    does."""
    alpha: np.ndarray
    """(H, W) float32 in [0, 1]: 1 - transmittance."""
    depth: np.ndarray | None
    """(H, W) float32: sum of weight times camera z ("D" in gsplat); divide by alpha for
    the expected depth."""


class RenderedPicture:
    """A rendered picture. Valid until the renderer draws again or is closed.

    To fill: `pixels`, `source`. The rest is what a picture that lies on a GPU of CUDA's
    can do besides; by default a picture can do none of it.
    """

    movable: MovablePicture | None = None
    """The picture as CUDA can move it to another camera; None where it cannot be moved.
    Set by `source` and `queue_source`."""

    def pixels(self) -> Pixels:
        """Return the picture as arrays. Waits for the drawing to finish."""
        raise NotImplementedError

    def source(self) -> PixelSource:
        """Return the picture for a fragment shader, in the renderer's own OpenGL context.

        With `splatview_ipc.gl`'s `SHADER`, `stored(p)` gives colour (premultiplied, over
        black) and alpha at column, row. A picture drawn in CUDA need not pass through a
        texture. Row 0 is the top row, as in tensors.
        """
        raise NotImplementedError

    def gpu_tensors(
        self,
    ) -> AbstractContextManager[tuple[torch.Tensor, torch.Tensor | None]] | None:
        """Return a context that gives the picture as tensors; None if CUDA did not draw.

        They are colour and alpha (H, W, 4), and depth (H, W) or None: float32, on the
        GPU, to be used inside the context, where the renderer's stream is current.
        """
        return None

    def over_background(
        self, background: tuple[float, float, float]
    ) -> torch.Tensor | None:
        """Queue the picture over RGB in [0, 1]; None if CUDA did not draw.

        The result is uint8 (H, W, 3), as OpenGL rounds it, for what torch's current
        stream does next. Nothing is waited for: ask `lacks_gaussians` afterwards.
        """
        return None

    def lacks_gaussians(self) -> bool:
        """Wait for the picture; return whether it has to be rendered again.

        Gaussians are missing then, for which there is room the next time.
        """
        return False

    def queue_source(self) -> bool:
        """Queue after the drawing all that `queued_source` returns, without waiting.

        For a picture with depth, once, before anything else is asked of it. Returns False
        if it cannot be moved here; nothing is done then.
        """
        return False

    @property
    def is_done(self) -> bool:
        """True if the GPU has finished with the picture. Never waits."""
        return True

    def queued_source(self) -> PixelSource | None:
        """Return colour and alpha as `source` does, after `queue_source`; `movable` moves it.

        None if the picture turns out to lack Gaussians, or the renderer has gone to
        another GPU: it has to be rendered again. Waits until it `is_done`.
        """
        return None


class Rules(NamedTuple):
    """The rules in which versions of gsplat differ; by default those of 1.5.3."""

    alpha_max: float = ALPHA_MAX
    """Alpha is clamped to this."""
    least_compensation: float = 0.0
    """The factor that makes up for the blur in an antialiased picture is no smaller."""


class Renderer:
    """Draws one scene at a time. Every call comes from the thread that made it.

    To fill: `name`, `load`, `render`, `scene`, `close`. The rest says what a renderer can
    do and has done, by default for one that reads a scene within `load`, from host
    memory, and measures nothing.
    """

    name: ClassVar[str]
    """As in SPLATVIEW_RENDERER."""
    reads_gpu: ClassVar[bool] = False
    """True: CUDA tensors are read where they lie. Every renderer takes both sorts of
    scenes; the others copy CUDA tensors to the host first."""
    gpu: int | None = None
    """CUDA's ordinal of the GPU that draws; None where CUDA does not draw."""
    has_fallback: ClassVar[bool] = False
    """True: OpenGL draws the scene where this renderer fails."""
    rules = Rules()
    has_drafts: ClassVar[bool] = False
    """True: `RenderOptions.is_draft` makes a difference."""
    draft_note = ""
    """The way of the last draft, in a few words; "" where there was none."""
    expects_drafts = False
    """Set by who loads: of what is loaded next no picture is expected to stay. A scene
    that is read with a draft may be kept with less detail then."""
    is_coarse = False
    """The scene was read so: another `load` of it makes better pictures."""
    left_out = LeftOut()
    """Count of the loaded scene's Gaussians that can never be drawn (see `load`)."""
    thinned = ""
    """`THINNED` where the last picture shows only the Gaussians that are nearest to the
    camera, as all would have been too much work; else ""."""
    note = ""
    """Reason why drawing is slower than it could be, in one line; "" where it is not."""
    bridge = ""
    """The way of its pictures to OpenGL: a name of `splatview_ipc.gl`'s, or "" for
    OpenGL's own."""
    gpu_ms: float | None = None
    """Milliseconds that the GPU took for the last picture it has finished; None where
    that is not measured. Never waits."""
    load_gpu_ms: float | None = None
    """The same of the last `load` it has finished."""
    pending = False
    """True while the arrays of the last `load` are still to be read: in one go with the
    next picture, so that the GPU turns to this process once."""
    reading = False
    """True while a GPU may still read the arrays of the last `load`, or is going to.
    Never waits."""
    unread_scene: GaussianScene | None = None
    """The scene of the last `load_kept`, in host memory, until a picture reads it."""
    draws_in_steps = False
    """True if a picture of the loaded scene takes long, and `steps` can draw it."""
    _closed = False

    def load(
        self, scene: GaussianScene, ready: Callable[[int], None] | None = None
    ) -> None:
        """Take over a scene or a new version of it.

        Arrays in host memory may change after this returns; those on a GPU, which the
        next `render` begins to read, asynchronously, once `reading` is False. The next
        `load` forgets a scene that was not begun with. Before the first `load` the
        picture is empty.

        Gaussians with a NaN or an infinity in any field, a scale over `SCALE_MAX` or a
        quaternion of length zero are left out and counted in `left_out`. Opacities count
        as no more than 1 and no less than 0, coefficients and colours as no more than
        `SH_MAX` and `COLOR_MAX`.

        Args:
            scene: its tensors are in host memory or on a GPU.
            ready: called with the raw handle of a CUDA stream when a scene on a GPU is
                read; what that stream is given afterwards finds the data there
                (`StreamFrame.wait`). Without it they are there once torch's current stream has
                come as far as now.
        """
        raise NotImplementedError

    def load_kept(
        self, scene: GaussianScene, ready: Callable[[int], None] | None = None
    ) -> None:
        """Take over a scene as `load` does, whose arrays stay as they are afterwards.

        They may be read with the next picture.
        """
        self.load(scene, ready)

    def render(self, camera: Camera, options: RenderOptions) -> RenderedPicture:
        """Draw the loaded scene.

        Raises:
            RendererError: a picture of this size cannot be drawn, or the renderer is
                closed.
        """
        raise NotImplementedError

    def steps(self, camera: Camera, options: RenderOptions) -> Steps[RenderedPicture]:
        """Return the steps that do what `render` does, where it `draws_in_steps`.

        Until they have ended or were closed nothing else may be drawn or loaded.
        """
        raise NotImplementedError

    def scene(self) -> GaussianScene:
        """Return the loaded scene, activated, where the renderer has it.

        Its tensors are float32 in host memory, or CUDA tensors for what torch's current
        stream does next. There are no Gaussians before the first `load`.

        All N, so that an index is the same as in the scene that `load` was given: those
        that can never be drawn have opacity 0, and may have a NaN or anything else in
        other fields. Coefficients only up to the degree in use, maybe. Of the last
        `load`, also if it is pending: then it is read now. Not to be changed; stays as it
        is until the next `load`. May take as long as a `load`, the first time.
        """
        raise NotImplementedError

    def host_scene(self) -> GaussianScene:
        """Return the loaded scene in host memory, for another renderer to load."""
        return self.scene().to_host()

    def close(self) -> None:
        """Release everything. Idempotent."""
        raise NotImplementedError

    def free_pictures(self) -> None:
        """Release the memory that a picture's size takes: no view shows the scene.

        The next picture makes it again; those that were made are not valid any more.
        """

    def read(self) -> None:
        """Begin to read the pending scene, without a picture."""

    def wait(self) -> None:
        """Wait until no GPU reads the arrays of the last `load` any more."""

    def _check_open(self) -> None:
        if self._closed:
            raise RendererError(f"{self.name}: this renderer is closed; make a new one")

    def _check(self, camera: Camera, limit: int) -> None:
        """Raise RendererError if closed, or a side of the picture is over `limit` pixels."""
        self._check_open()
        if not (0 < camera.width <= limit and 0 < camera.height <= limit):
            raise RendererError(
                f"{self.name}: a picture of {camera.width}x{camera.height} pixels cannot "
                f"be drawn; sides from 1 to {limit} are possible here"
            )
