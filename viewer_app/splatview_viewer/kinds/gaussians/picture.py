"""The picture of a scene that one viewport shows, and its composition over the background."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

import moderngl
import numpy as np

from splatview_ipc.gl.base import fragment_head
from splatview_ipc.gl.host import HostBridge
from splatview_viewer.core.view import VERTEX
from splatview_viewer.kinds.gaussians.state import SHOWS
from splatview_viewer.render.gl.passes import texture_source
from splatview_viewer.scene import color_maps

if TYPE_CHECKING:
    import torch

    from splatview_ipc.gl.base import Canvas, PixelSource
    from splatview_ipc.gl.sources import TextureSource
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.settings import Color
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.kinds.gaussians.state import Show
    from splatview_viewer.render.base import RenderedPicture as Rendered
    from splatview_viewer.render.gsplat.moving import Kept

_COPY_FORMATS = {"float16": "f2", "float32": "f4"}
_SEEN = 0.3
"""Alpha from which on a pixel counts for the range."""
_RANGE_PERIOD = 0.25
"""Seconds between looks at the range of a picture on a GPU, which wait for it."""
_SAMPLE = 1 << 17
"""Pixels that are looked at for that."""


@dataclass
class Motion:
    """The movement of a viewport's camera, and of its picture to a camera that it was not rendered for."""

    moved_at: float | None = -math.inf
    """Time of the turn in which the camera was last moved; None: since the last turn."""
    towards: Camera | None = None
    """None: the picture is shown as it is."""
    landed: bool = False
    """A picture arrived that was not waited for, and the viewport was not drawn since."""


class ViewportPicture:
    """The picture of one viewport. `SceneCache.picture` fills it.

    It is valid until the renderer draws again (`lent`); a copy takes its place before that if it is still shown.
    """

    def __init__(self, ctx: moderngl.Context) -> None:
        self.source: PixelSource | None = None
        """None while there is none."""
        self.of: tuple[object, ...] = ()
        """Key of what it shows: the camera's, the options, the version of the scene (`SceneCache.loads`)."""
        self.camera: Camera | None = None
        """The camera that it was rendered with."""
        self.lent = False
        """It lies where the renderer draws next."""
        self.kept: Kept | None = None
        """It as CUDA can move it to another camera; None where it cannot be moved."""
        self.scale = 1.0
        """Its resolution: less than 1 while the camera moves, where all of it takes too long."""
        self.motion = Motion()
        self.depth = DepthPicture(ctx)
        self._ctx = ctx
        self._copy: tuple[moderngl.Framebuffer, TextureSource] | None = None

    @property
    def known(self) -> bool:
        """True if the depth of its pixels is known: it is moved by depth then, as a plane otherwise."""
        return self.kept is not None and self.kept.grid is not None

    def become(
        self,
        source: PixelSource | None = None,
        camera: Camera | None = None,
        of: tuple[object, ...] = (),
        *,
        lent: bool = False,
        kept: Kept | None = None,
    ) -> None:
        """Take the place of the picture before; without arguments: show none."""
        self.source = source
        self.camera = camera
        self.of = of
        self.lent = lent
        self.kept = kept

    def keep(self, composer: Composer) -> None:
        """Replace what was lent by a copy, which the renderer's next picture leaves alone."""
        source = self.source
        copy = self._copy
        assert source is not None
        if copy is None or (copy[1].size, copy[1].dtype) != (source.size, source.dtype):
            self.drop_copy()
            texture = self._ctx.texture(
                source.size,
                source.channels,
                dtype=_COPY_FORMATS[source.dtype],
                alignment=1,
            )
            texture.filter = moderngl.NEAREST, moderngl.NEAREST
            copy = (
                self._ctx.framebuffer([texture]),
                texture_source(texture),
            )
            self._copy = copy
        composer.copy(source, copy[0])
        self.source = copy[1]
        self.lent = False
        if not self.known:  # then it was no copy
            self.kept = None

    def drop_copy(self) -> None:
        """Give back the memory of copies. Idempotent."""
        if self._copy is not None:
            self._copy[0].release()
            self._copy[1].texture.release()
            self._copy = None

    def lose(self) -> None:
        """Forget what was lent: the renderer is gone."""
        self.kept = None
        if self.lent:
            self.become()

    def drop(self) -> None:
        """Show none until it is rendered again."""
        if self.kept is not None:
            self.kept.mover.drop()
        self.become()
        self.drop_copy()

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self.drop()
        self.depth.close()


class Composer:
    """Lays pictures over backgrounds, with one pass of a shader."""

    def __init__(self, ctx: moderngl.Context, work: GpuWork) -> None:
        self._ctx = ctx
        self._work = work
        self._arrays: dict[tuple[str, ...], moderngl.VertexArray] = {}

    def lay(
        self,
        source: PixelSource | None,
        framebuffer: moderngl.Framebuffer,
        rect: Rect,
        background: Color,
        show: Show = "color",
        colors: tuple[str, tuple[float, float]] = ("", (0.0, 0.0)),
    ) -> None:
        """Draw a picture, or none, over a background of RGB in [0, 1].

        show: as `GaussianState.show`. colors: the name of the colour map of numbers, and the range that it spans.
        """
        viewport = rect.viewport(framebuffer.height)
        framebuffer.use()
        if source is None:
            framebuffer.clear(*background, 1.0, viewport=viewport)
            return
        # One that is smaller than its place on the screen is smoothed.
        smooth = ("SMOOTH",) if source.size != (rect.width, rect.height) else ()
        array = self._array((*source.defines, *smooth))
        program = array.program
        program["u_corner"] = rect.x, rect.y
        program["u_size"] = rect.width, rect.height
        program["u_height"] = float(framebuffer.height)
        program["u_background"] = background
        if SHOWS[show].is_mapped:
            program["u_show"] = 1
            program["u_range"] = colors[1]
            program["u_map"].write(color_maps.table(colors[0]).tobytes())  # type: ignore[union-attr]
        else:
            program["u_show"] = 2 if show == "alpha" else 0
        self._ctx.disable(moderngl.BLEND | moderngl.DEPTH_TEST | moderngl.CULL_FACE)
        source.bind(program)
        framebuffer.viewport = viewport
        with self._work("compose", rect.width, rect.height):
            array.render(moderngl.TRIANGLES, vertices=3)

    def copy(self, source: PixelSource, framebuffer: moderngl.Framebuffer) -> None:
        """Copy a picture's values, pixel by pixel. Leaves the bound framebuffer and the enable flags as they were."""
        array = self._array((*source.defines, "COPY"))
        with (
            self._work("copy", *source.size),
            self._ctx.scope(framebuffer, moderngl.NOTHING),
        ):
            source.bind(array.program, 0)
            array.render(moderngl.TRIANGLES, vertices=3)

    def _array(self, defines: tuple[str, ...]) -> moderngl.VertexArray:
        if defines not in self._arrays:
            text = (
                files("splatview_viewer.kinds.gaussians")
                .joinpath("compose.glsl")
                .read_text()
            )
            program = self._ctx.program(
                vertex_shader=VERTEX, fragment_shader=fragment_head(defines) + text
            )
            self._arrays[defines] = self._ctx.vertex_array(program, [])
        return self._arrays[defines]

    def close(self) -> None:
        """Give back everything. Idempotent."""
        for array in self._arrays.values():
            array.program.release()
            array.release()
        self._arrays.clear()


class DepthPicture:
    """Makes of a picture one of numbers: expected depth, or the number of Gaussians, and alpha.

    A picture that lies on a GPU (it has `gpu_tensors`, as gsplat's) stays there.
    """

    def __init__(self, ctx: moderngl.Context) -> None:
        self._ctx = ctx
        self._bridge = HostBridge(ctx)
        self._canvas: Canvas | None = None
        self._shown: HostBridge | Canvas = self._bridge
        self._ranged_at = -math.inf
        self._counts = False
        self._range_before = (0.0, 0.0)
        self.range = (0.0, 0.0)
        """The 1st and 99th percentile of depths, world units; 0 and the 99th of counts."""

    def source(
        self, picture: Rendered, now: float, *, counts: bool = False
    ) -> PixelSource:
        """Return four channels, float32: expected depth in world units or, if `counts`, the picture's first channel; 0,
        0, alpha.
        """
        import torch

        if counts != self._counts:
            self._counts = counts
            self._ranged_at = -math.inf
        self._range_before = self.range
        on_gpu = picture.gpu_tensors()
        if on_gpu is not None:
            with on_gpu as (rgba, depth):
                alpha = rgba[..., 3]
                if self._canvas is None:
                    from splatview_ipc.cuda.driver import gpu_uuid
                    from splatview_ipc.gl.probe import make_canvas

                    self._canvas = make_canvas(self._ctx, gpu_uuid(alpha.device.index))
                numbers = self._numbers(rgba[..., 0], depth, alpha, now)
                self._shown = self._canvas
                target = self._canvas.begin(
                    alpha.shape[0], alpha.shape[1], 4, "float32"
                )
                target[..., 0].copy_(numbers)
                target[..., 1:3] = 0
                target[..., 3].copy_(alpha)
                return self._canvas.show()
        pixels = picture.pixels()
        self._ranged_at = -math.inf
        alpha = torch.from_numpy(pixels.alpha)
        depth = None if pixels.depth is None else torch.from_numpy(pixels.depth)
        numbers = self._numbers(
            torch.from_numpy(pixels.color)[..., 0], depth, alpha, now
        )
        shown = np.zeros((*alpha.shape, 4), np.float32)
        self._shown = self._bridge
        shown[..., 0] = numbers
        shown[..., 3] = alpha
        return self._bridge.put(shown, "HWC")

    def undo(self) -> None:
        """Do not show the last one: the one before stays as it is."""
        self.range = self._range_before
        self._shown.undo()

    def _numbers(
        self,
        color: torch.Tensor,
        depth: torch.Tensor | None,
        alpha: torch.Tensor,
        now: float,
    ) -> torch.Tensor:
        """Return what is shown (H, W), and find its range: on a GPU now and then, as that is waited for."""
        import torch

        if self._counts:
            numbers = color
        else:
            assert depth is not None, "drawn without depth"
            numbers = torch.where(alpha > 1e-6, depth / alpha.clamp(min=1e-6), 0.0)
        if now - self._ranged_at >= _RANGE_PERIOD:
            self._ranged_at = now
            self.range = (0.0, 0.0)
            step = (
                max(alpha.numel() // _SAMPLE, 1) | 1
            )  # odd, so that it does not keep to some columns
            some = numbers.reshape(-1)[::step][alpha.reshape(-1)[::step] > _SEEN]
            if len(some):
                low, high = torch.quantile(some, some.new_tensor([0.01, 0.99])).tolist()
                if self._counts:
                    self.range = (0.0, max(math.ceil(high), 1.0))
                else:
                    self.range = (low, high)
        return numbers

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self._bridge.close()
        if self._canvas is not None:
            self._canvas.close()
            self._canvas = None
