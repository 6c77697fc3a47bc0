"""The picture of a scene that one user sees: where it lies, for how long, and how it is laid on the screen."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import moderngl

from splatview_ipc.control.errors import SharingError
from splatview_viewer.core.errors import RendererError
from splatview_viewer.core.view import Stopwatch
from splatview_viewer.kinds.gaussians.copy import PictureCopy
from splatview_viewer.kinds.gaussians.depth import DepthPicture
from splatview_viewer.kinds.gaussians.reprojection import Surface, Warp
from splatview_viewer.scene import color_maps

if TYPE_CHECKING:
    import torch

    from splatview_ipc.gl.base import PixelSource
    from splatview_viewer.core.settings import Color, GaussianSettings
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.kinds.gaussians.content import GaussianContent
    from splatview_viewer.render.base import RenderOptions
    from splatview_viewer.render.gsplat.moving import Kept

log = logging.getLogger("splatview")

_SHOW = {"color": 0, "depth": 1, "overdraw": 1, "alpha": 2}


class ScenePicture:
    """Lies where the renderer drew it, for as long as that lasts; a copy takes its place before the renderer draws for
    somebody else (`GaussianContent.render`)."""

    def __init__(self, ctx: moderngl.Context, content: GaussianContent, work: GpuWork) -> None:
        self.source: PixelSource | None = None
        """None while there is none."""
        self.of: tuple[object, ...] = ()
        """What is seen in it: the camera's key, how it was drawn, which scene (`GaussianContent.loads`)."""
        self.lent = False
        """Whether it lies where the renderer draws next."""
        self.seen: Camera | None = None
        """The camera that sees it."""
        self.known = False
        """Whether `surface`, or `kept`, says where the things in it are."""
        self.kept: Kept | None = None
        """It as CUDA can move it, where CUDA does so (`gsplat_moving`)."""
        self.landed = False
        """Whether it has come since somebody asked, without having been waited for."""
        self.surface = Surface(ctx)
        """Where the things in it are."""
        self.depth = DepthPicture(ctx)
        self.stopwatch = Stopwatch()
        self._ctx = ctx
        self._content = content
        self._work = work
        self._copy: PictureCopy | None = None
        self._warp = Warp(ctx)

    def render(self, camera: Camera, options: RenderOptions, wanted: tuple[object, ...]) -> float | None:
        """Become the picture that is `wanted`, which these make. Milliseconds that it took; None if nobody had to draw
        it, or if the scene was overwritten meanwhile: then it is what it was."""
        content = self._content
        several = len(content.views) > 1
        if several and (twin := content.lent(wanted)) is not None:
            assert twin.source is not None
            self.become(twin.source, camera, wanted, lent=True)
            self.kept, self.known = twin.kept, twin.kept is not None and twin.known
            return None
        cuda, watch = content.renderer.wants_gpu, self.stopwatch
        with watch("render"):
            picture = content.render(self, camera, options)
        with watch("wait"):
            if cuda:
                content.account()
            content.has_looked()  # only begins to look, while CUDA draws
            counts = options.paint == "overdraw"
            mapped = options.depth or counts
            source = self.depth.source(picture, wanted, counts=counts) if mapped else picture.source()
            if not content.is_read():
                if mapped:
                    self.depth.undo()
                return None
        self.become(source, camera, wanted, lent=not mapped)
        self.kept = None if mapped else getattr(picture, "kept", None)
        if not several and self._copy is not None:
            self._copy.close()
            self._copy = None
        return watch.ms["render"] + content.gpu_ms(camera)

    def become(self, source: PixelSource, camera: Camera, of: tuple[object, ...], *, lent: bool) -> None:
        """Be this picture from now on, of which nothing but the colours is known."""
        self.source, self.seen, self.of, self.lent, self.known = source, camera, of, lent, False
        self.kept = None

    def know(self, depth: PixelSource | Kept) -> None:
        """Its depth, or itself as CUDA can move it."""
        if getattr(depth, "mover", None) is not None:
            self.kept = depth  # type: ignore[assignment]
        else:
            self.surface.take(depth)  # type: ignore[arg-type]
        self.known = True

    def render_later(self, camera: Camera, options: RenderOptions, wanted: tuple[object, ...]) -> None:
        """As `render`, with depth as well, but the picture comes when it is done (`GaussianContent.land`): until then
        it is what it was. At once where the renderer draws with OpenGL, which waits for nothing either."""
        content = self._content
        with self.stopwatch("render"):
            picture = content.begin(self, camera, replace(options, depth=True), wanted)
        if picture is None or not content.is_read():
            return
        self.become(picture.source(), camera, wanted, lent=True)
        color, depth = getattr(picture, "color", None), getattr(picture, "depth", None)
        if color is not None and depth is not None:
            self.surface.take_textures(color, depth)
            self.known = True

    def tensor(self, camera: Camera, options: RenderOptions, background: Color) -> torch.Tensor | None:
        """What `draw` lays over the background, of colours, as uint8 (H, W, 3) on the GPU; None where it was not CUDA
        that drew. Only this: what was shown is there no more, and nothing is yet."""
        content = self._content
        self._be_none()
        picture = content.render(self, camera, options)
        content.account()
        content.has_looked()  # only begins to look, while CUDA draws
        over = getattr(picture, "over", None)
        drawn = None if over is None else over(background)
        content.is_read()
        return drawn

    def keep(self) -> None:
        """Be a copy from now on of what was lent."""
        assert self.source is not None
        if self._copy is None:
            self._copy = PictureCopy(self._ctx)
        array = self._content.vertex_array((*self.source.defines, "COPY"))
        with self._work("copy", *self.source.size):
            self.source = self._copy.take(self.source, array)
        self.lent = False
        if not self.known:  # then it was no copy
            self.kept = None

    def lose(self) -> None:
        """What was lent is there no more."""
        if self.kept is not None:
            self.kept, self.known = None, False
        if self.lent:
            self._be_none()

    def _be_none(self) -> None:
        self.source, self.seen, self.of, self.lent, self.known = None, None, (), False, False
        self.kept = None

    def drop(self) -> None:
        """Be none, until it is rendered again."""
        self._be_none()
        if self._copy is not None:
            self._copy.close()
            self._copy = None
        self.forget_motion()

    def forget_motion(self) -> None:
        """Give back what is needed to move it only. Idempotent."""
        self.known = False
        if self.kept is not None:
            self.kept.mover.drop()
            self.kept = None
        self.surface.close_grid()
        self._warp.drop()

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect, background: Color, settings: GaussianSettings,
             towards: tuple[Camera, float] | None = None) -> None:
        """Lay it over a background of RGB in [0, 1], as the settings say. `towards`: move it to this camera, of the
        size of `rect`; and how far away from the one that sees it the scene is on the whole."""
        viewport = rect.viewport(framebuffer.height)
        framebuffer.use()
        source = self.source
        if source is None:
            framebuffer.clear(*background, 1.0, viewport=viewport)
            return
        if towards is not None and self.seen is not None:
            source = self._moved(source, self.seen, *towards)
            framebuffer.use()
        # One that is smaller than its place on the screen is smoothed.
        smooth = ("SMOOTH",) if source.size != (rect.width, rect.height) else ()
        array = self._content.vertex_array((*source.defines, *smooth))
        program = array.program
        program["u_corner"] = rect.x, rect.y
        program["u_size"] = rect.width, rect.height
        program["u_height"] = float(framebuffer.height)
        program["u_background"] = background
        program["u_show"] = how = _SHOW.get(settings.show, 0)
        if how == 1:
            program["u_range"] = self.depth.shown_range(settings)
            program["u_map"].write(color_maps.table(settings.color_map).tobytes())  # type: ignore[union-attr]
        self._ctx.disable(moderngl.BLEND | moderngl.DEPTH_TEST | moderngl.CULL_FACE)
        source.bind(program)
        framebuffer.viewport = viewport
        with self._work("compose", rect.width, rect.height):
            array.render(moderngl.TRIANGLES, vertices=3)

    def _moved(self, source: PixelSource, seen: Camera, camera: Camera, middle: float) -> PixelSource:
        """It as another camera sees it: `Warp.take`, or what CUDA does instead."""
        work, by = self.warp_work((camera.width, camera.height))
        if self.kept is not None:
            try:
                self._work.governor.gives(work, by)
                return self.kept.mover.take(self.kept, seen, camera, middle)
            except (RendererError, SharingError, RuntimeError) as e:  # OpenGL does it from now on
                log.warning("smooth motion without CUDA: %s", e)
                self.kept.mover.failure, self.kept, self.known = str(e) or type(e).__name__, None, False
                work, _ = self.warp_work((camera.width, camera.height))
        with self._work(*work):
            return self._warp.take(source, self.surface if self.known else None, seen, camera, middle)

    def warp_work(self, size: tuple[int, int]) -> tuple[tuple[object, ...], str]:
        """The work (see `Governor`) of moving it, to be shown at this size, and by what it is done."""
        if self.kept is None:
            return ("warp", *size), "opengl"
        work = "warp", *size, "cuda"
        if (ms := self.kept.mover.clock.news) is not None:
            self._work.took(work, ms)
        return work, "cuda"

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self.drop()
        self.surface.close()
        self._warp.close()
        self.depth.close()
