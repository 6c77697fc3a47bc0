"""The picture of a scene in one viewport, and its composition over the background."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

import moderngl
import numpy as np

from splatview_ipc.gl.base import fragment_head
from splatview_ipc.gl.host import HostBridge
from splatview_viewer.core.selection import EVERYTHING
from splatview_viewer.core.view import VERTEX
from splatview_viewer.kinds.gaussians.state import SHOWS
from splatview_viewer.render import number_range
from splatview_viewer.render.gl.passes import texture_source
from splatview_viewer.render.paints import PAINTS
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
    from splatview_viewer.render.base import RenderedPicture, RenderOptions
    from splatview_viewer.render.gsplat.moving import MovablePicture
    from splatview_viewer.render.paints import PaintFacts

_COPY_FORMATS = {"float16": "f2", "float32": "f4"}
_MIN_MEAN_ALPHA = 1e-6
"""Alpha from which on a pixel has a mean of what was blended."""


GpuTask = tuple[object, ...]
"""A piece of the GPU's work, as the governor knows it."""


class PictureKey(NamedTuple):
    """All that decides a picture: another key is another picture."""

    camera_key: tuple[object, ...]
    options: RenderOptions
    loads: int
    """The version of the scene (`SceneCache.loads`)."""


@dataclass
class Motion:
    """The movement of a viewport's camera, and of its picture along with it."""

    moved_at: float | None = -math.inf
    """Time of the turn in which the camera was moved; None: since the last turn."""
    towards: Camera | None = None
    """The camera to which the picture is moved, as it was rendered for another one;
    None: the picture is shown as it is."""
    has_landed: bool = False
    """A queued picture has arrived, and the viewport was not drawn since."""


class _PictureCopy(NamedTuple):
    """A texture for a copy of a picture."""

    framebuffer: moderngl.Framebuffer
    source: TextureSource


class DevicePicture(NamedTuple):
    """A picture that CUDA laid over a background."""

    pixels: torch.Tensor
    """uint8 (height, width, 3), top row first; never written again."""
    background: Color


class HandedRange(NamedTuple):
    """The range of numbers in a picture that a screen draws by itself."""

    show: Show
    ends: tuple[float, float]
    """As `NumberPicture.range`."""


class ViewportPicture:
    """The picture of one viewport. `SceneCache.update_picture` fills it.

    It is valid until the renderer draws again (`is_borrowed`); a copy takes its place
    before that if it is still shown.
    """

    def __init__(self, ctx: moderngl.Context) -> None:
        self.source: PixelSource | None = None
        """The picture for OpenGL; None while there is none."""
        self.on_device: DevicePicture | None = None
        """The picture, where CUDA alone has drawn it."""
        self.key: PictureKey | None = None
        """What it shows."""
        self.camera: Camera | None = None
        """The camera that it was rendered with."""
        self.is_borrowed = False
        """It lies where the renderer draws next."""
        self.movable: MovablePicture | None = None
        """The picture as CUDA can move it to another camera; None where it cannot be
        moved."""
        self.scale = 1.0
        """Its resolution: less than 1 while the camera moves, where all of it takes too
        long."""
        self.motion = Motion()
        self.handed_to: Camera | None = None
        """The camera of a screen that draws it by itself; None: it is drawn here."""
        self.handed_selection = EVERYTHING
        """The Gaussians that such a screen draws."""
        self.handed_range: HandedRange | None = None
        """The range of numbers that such a screen has measured last."""
        self.number_picture = NumberPicture(ctx)
        self._ctx = ctx
        self._copy: _PictureCopy | None = None

    @property
    def has_depth(self) -> bool:
        """True if the depth of its pixels is known.

        The picture is moved by depth then, as a plane otherwise.
        """
        return self.movable is not None and self.movable.grid is not None

    @property
    def is_empty(self) -> bool:
        """True while it shows nothing."""
        return self.source is None and self.on_device is None

    def serves(self, background: Color | None) -> bool:
        """Return True if it can be shown as it is.

        Args:
            background: a picture of CUDA's over this one will do; None: it is for
                OpenGL.
        """
        if self.source is not None:
            return True
        drawn = self.on_device
        return drawn is not None and drawn.background == background

    def become(
        self,
        source: PixelSource | None = None,
        camera: Camera | None = None,
        key: PictureKey | None = None,
        *,
        is_borrowed: bool = False,
        movable: MovablePicture | None = None,
    ) -> None:
        """Replace the picture before; without arguments, show none."""
        self.source = source
        self.on_device = None
        self.camera = camera
        self.key = key
        self.is_borrowed = is_borrowed
        self.movable = movable

    def become_device(
        self, drawn: DevicePicture, camera: Camera, key: PictureKey
    ) -> None:
        """Replace the picture before by one that CUDA alone has drawn."""
        self.become(None, camera, key)
        self.on_device = drawn

    def show_to_opengl(self) -> None:
        """Have OpenGL read a picture that CUDA alone has drawn, through the host.

        For a moment in which the scene cannot be drawn again.
        """
        if self.source is None and self.on_device is not None:
            self.source = self.number_picture.opaque_source(self.on_device.pixels)

    def keep(self, composer: Composer) -> None:
        """Replace a borrowed picture by a copy, before the renderer draws again."""
        assert self.source is not None
        copy = self._copy_like(self.source)
        composer.copy(self.source, copy.framebuffer)
        self.source = copy.source
        self.is_borrowed = False
        # What is moved as a plane lies where the renderer draws next.
        if not self.has_depth:
            self.movable = None

    def _copy_like(self, source: PixelSource) -> _PictureCopy:
        """Return a texture for a copy of a picture, the one before if it fits."""
        copy = self._copy
        if copy is not None:
            if (copy.source.size, copy.source.dtype) == (source.size, source.dtype):
                return copy
            self.drop_copy()
        texture = self._ctx.texture(
            source.size,
            source.channels,
            dtype=_COPY_FORMATS[source.dtype],
            alignment=1,
        )
        texture.filter = moderngl.NEAREST, moderngl.NEAREST
        framebuffer = self._ctx.framebuffer([texture])
        self._copy = _PictureCopy(framebuffer, texture_source(texture))
        return self._copy

    def drop_copy(self) -> None:
        """Release the memory of copies. Idempotent."""
        if self._copy is not None:
            self._copy.framebuffer.release()
            self._copy.source.texture.release()
            self._copy = None

    def lose(self) -> None:
        """Forget what was borrowed: the renderer is gone."""
        self.movable = None
        if self.is_borrowed:
            self.become()

    def drop(self) -> None:
        """Show none until it is rendered again."""
        if self.movable is not None:
            self.movable.mover.free_pictures()
        self.become()
        self.drop_copy()

    def close(self) -> None:
        """Release everything. Idempotent."""
        self.drop()
        self.number_picture.close()


class Composer:
    """Lays pictures over backgrounds, with one pass of a shader."""

    def __init__(self, ctx: moderngl.Context, gpu_work: GpuWork) -> None:
        self._ctx = ctx
        self._gpu_work = gpu_work
        self._arrays: dict[tuple[str, ...], moderngl.VertexArray] = {}
        """By the names that are defined in the shader."""

    def lay(
        self,
        source: PixelSource | None,
        framebuffer: moderngl.Framebuffer,
        rect: Rect,
        background: Color,
        show: Show = "color",
        colors: tuple[str, tuple[float, float]] = ("", (0.0, 0.0)),
    ) -> None:
        """Draw a picture, or none, over a background.

        Args:
            source: the picture; None: only the background is drawn.
            framebuffer: the target.
            rect: the part of it that is drawn.
            background: RGB in [0, 1].
            show: as `GaussianState.show`.
            colors: the name of the colour map of numbers, and the range that it spans.
        """
        viewport = rect.viewport(framebuffer.height)
        framebuffer.use()
        if source is None:
            framebuffer.clear(*background, 1.0, viewport=viewport)
            return
        defines = source.defines
        # A picture that is smaller than its place on the screen is smoothed.
        if source.size != (rect.width, rect.height):
            defines = (*defines, "SMOOTH")
        is_mapped = SHOWS[show].is_mapped
        if is_mapped:
            defines = (*defines, "NUMBERS")
        array = self._array(defines)
        program = array.program
        program["u_corner"] = rect.x, rect.y
        program["u_size"] = rect.width, rect.height
        program["u_height"] = float(framebuffer.height)
        program["u_background"] = background
        if is_mapped:
            map_name, value_range = colors
            table = color_maps.table(map_name)
            program["u_range"] = value_range
            program["u_map"].write(table.tobytes())  # type: ignore[union-attr]
        else:
            program["u_shows_alpha"] = show == "alpha"
        self._ctx.disable(moderngl.BLEND | moderngl.DEPTH_TEST | moderngl.CULL_FACE)
        framebuffer.viewport = viewport
        composing = self._gpu_work("compose", rect.width, rect.height)
        # Last of all: it waits for CUDA.
        source.bind(program)
        with composing:
            array.render(moderngl.TRIANGLES, vertices=3)

    def copy(self, source: PixelSource, framebuffer: moderngl.Framebuffer) -> None:
        """Copy a picture's values, pixel by pixel.

        Leaves the bound framebuffer and the enable flags as they were.
        """
        array = self._array((*source.defines, "COPY"))
        with (
            self._gpu_work("copy", *source.size),
            self._ctx.scope(framebuffer, moderngl.NOTHING),
        ):
            source.bind(array.program, 0)
            array.render(moderngl.TRIANGLES, vertices=3)

    def _array(self, defines: tuple[str, ...]) -> moderngl.VertexArray:
        """Return the compiled pass with these names defined."""
        if defines not in self._arrays:
            folder = files("splatview_viewer.kinds.gaussians")
            text = folder.joinpath("compose.glsl").read_text()
            head = fragment_head(defines) + color_maps.SHADER
            program = self._ctx.program(
                vertex_shader=VERTEX, fragment_shader=head + text
            )
            self._arrays[defines] = self._ctx.vertex_array(program, [])
        return self._arrays[defines]

    def close(self) -> None:
        """Release everything. Idempotent."""
        for array in self._arrays.values():
            array.program.release()
            array.release()
        self._arrays.clear()


class NumberPicture:
    """Makes a picture of numbers and alpha.

    They are the expected depth, or what a paint shows by a colour map.
    A picture that lies on a GPU (it has `gpu_tensors`, as gsplat's) stays there.
    """

    def __init__(self, ctx: moderngl.Context) -> None:
        self._ctx = ctx
        self._bridge = HostBridge(ctx)
        self._canvas: Canvas | None = None
        self._last_target: HostBridge | Canvas = self._bridge
        self._ranged_at = -math.inf
        self._paint = PAINTS["color"]
        """The paint of the last picture."""
        self._range_before = (0.0, 0.0)
        self.range = (0.0, 0.0)
        """The 1st and 99th percentile of the numbers, depths in world units; 0 and the
        99th of counts."""

    def source(
        self, picture: RenderedPicture, now: float, paint: PaintFacts
    ) -> PixelSource:
        """Return a picture of four channels, float32: a number, 0, 0, alpha.

        Args:
            picture: the rendered picture.
            now: time of the loop, in seconds.
            paint: of the picture; where it is not mapped, the number is the expected
                depth in world units.
        """
        if paint != self._paint:
            self._paint = paint
            self._ranged_at = -math.inf
        self._range_before = self.range
        on_gpu = picture.gpu_tensors()
        if on_gpu is not None:
            with on_gpu as (rgba, depth):
                return self._show_on_gpu(rgba, depth, now)
        return self._show_on_host(picture, now)

    def _show_on_gpu(
        self, rgba: torch.Tensor, depth: torch.Tensor | None, now: float
    ) -> PixelSource:
        """Return the numbers of a picture on a GPU, (H, W, 4) and (H, W)."""
        alpha = rgba[..., 3]
        if self._canvas is None:
            from splatview_ipc.cuda.driver import gpu_uuid
            from splatview_ipc.gl.probe import make_canvas

            self._canvas = make_canvas(self._ctx, gpu_uuid(alpha.device.index))
        values = self._pixel_values(rgba[..., 0], depth, alpha, now)
        self._last_target = self._canvas
        height, width = alpha.shape
        target = self._canvas.begin(height, width, 4, "float32")
        target[..., 0].copy_(values)
        target[..., 1:3] = 0
        target[..., 3].copy_(alpha)
        return self._canvas.show()

    def _show_on_host(self, picture: RenderedPicture, now: float) -> PixelSource:
        """Return the numbers of a picture that is read to host memory."""
        import torch

        pixels = picture.pixels()
        # Here the range costs no waiting, so each picture has its own.
        self._ranged_at = -math.inf
        color = torch.from_numpy(pixels.color)
        alpha = torch.from_numpy(pixels.alpha)
        if pixels.depth is None:
            depth = None
        else:
            depth = torch.from_numpy(pixels.depth)
        channels = np.zeros((*alpha.shape, 4), np.float32)
        channels[..., 0] = self._pixel_values(color[..., 0], depth, alpha, now)
        channels[..., 3] = alpha
        self._last_target = self._bridge
        return self._bridge.put(channels, "HWC")

    def opaque_source(self, pixels: torch.Tensor) -> PixelSource:
        """Return colours, uint8 (H, W, 3), as a picture of alpha 1."""
        import torch

        opaque = torch.nn.functional.pad(pixels, (0, 1), value=255)
        return self._bridge.put(opaque.cpu(), "HWC")

    def undo(self) -> None:
        """Do not show the last picture: the one before stays as it is."""
        self.range = self._range_before
        self._last_target.undo()

    def _pixel_values(
        self,
        color: torch.Tensor,
        depth: torch.Tensor | None,
        alpha: torch.Tensor,
        now: float,
    ) -> torch.Tensor:
        """Return what is shown (H, W), and update its range from time to time."""
        import torch

        if self._paint.is_counted:
            values = color
        else:
            sums = color if self._paint.is_mapped else depth
            assert sums is not None, "drawn without depth"
            means = sums / alpha.clamp(min=_MIN_MEAN_ALPHA)
            values = torch.where(alpha > _MIN_MEAN_ALPHA, means, 0.0)
        if now - self._ranged_at >= number_range.PERIOD_S:
            self._ranged_at = now
            self.range = self._find_range(values, alpha)
        return values

    def _find_range(
        self, values: torch.Tensor, alpha: torch.Tensor
    ) -> tuple[float, float]:
        """Return the range of the numbers (H, W) of what is seen; waits for a GPU."""
        import torch

        step = number_range.sample_step(alpha.numel())
        is_seen = alpha.reshape(-1)[::step] > number_range.SEEN_ALPHA
        sample = values.reshape(-1)[::step][is_seen]
        if not len(sample):
            return (0.0, 0.0)
        shares = sample.new_tensor(number_range.SHARES)
        low, high = torch.quantile(sample, shares).tolist()
        if self._paint.is_counted:
            return number_range.range_of_counts(high)
        return (low, high)

    def close(self) -> None:
        """Release everything. Idempotent."""
        self._bridge.close()
        if self._canvas is not None:
            self._canvas.close()
            self._canvas = None
