"""The picture of a scene that one user sees: where it lies, for how long, and how it is laid on the screen."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import moderngl

from splatview_ipc.control.errors import SharingError
from splatview_viewer.core.errors import RendererError
from splatview_viewer.core.view import Stopwatch
from splatview_viewer.kinds.gaussians.depth import DepthPicture
from splatview_viewer.render.gl.passes import texture_source
from splatview_viewer.scene import color_maps

if TYPE_CHECKING:
    import torch

    from splatview_ipc.gl.base import PixelSource
    from splatview_ipc.gl.sources import TextureSource
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.settings import Color, GaussianSettings
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.kinds.gaussians.content import GaussianContent
    from splatview_viewer.render.base import RenderOptions
    from splatview_viewer.render.gsplat.moving import Kept

log = logging.getLogger("splatview")

_COPY_FORMATS = {"float16": "f2", "float32": "f4"}
_SHOW = {"color": 0, "depth": 1, "overdraw": 1, "alpha": 2}


class ScenePicture:
    """Lies where the renderer drew it, for as long as that lasts; a copy takes its place before the renderer draws for
    another view (`GaussianContent.render`)."""

    def __init__(self, ctx: moderngl.Context, content: GaussianContent, work: GpuWork) -> None:
        self.source: PixelSource | None = None
        """None while there is none."""
        self.of: tuple[object, ...] = ()
        """What is seen in it: the camera's key, how it was drawn, which scene (`GaussianContent.loads`)."""
        self.lent = False
        """Whether it lies where the renderer draws next."""
        self.seen: Camera | None = None
        """The camera that sees it."""
        self.kept: Kept | None = None
        """It as CUDA can move it to another camera; None where it cannot be moved."""
        self.landed = False
        """Set once it has come without having been waited for, until a tick takes note."""
        self.depth = DepthPicture(ctx)
        self.stopwatch = Stopwatch()
        self._ctx = ctx
        self._content = content
        self._work = work
        self._copy = PictureCopy(ctx)

    @property
    def known(self) -> bool:
        """Whether it is known where the things in it are: it is moved by their depth then, as a plane otherwise."""
        return self.kept is not None and self.kept.grid is not None

    def render(self, camera: Camera, options: RenderOptions, wanted: tuple[object, ...]) -> float | None:
        """Become the picture that is `wanted`, which these make. Milliseconds that it took; None if nobody had to draw
        it, or if the scene was overwritten meanwhile: then it is what it was."""
        content = self._content
        several = len(content.views) > 1
        if several and (twin := content.lent(wanted)) is not None:
            assert twin.source is not None
            self.become(twin.source, camera, wanted, lent=True, kept=twin.kept)
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
            source = self.depth.source(picture, wanted, content.now, counts=counts) if mapped else picture.source()
            if not content.is_read():
                if mapped:
                    self.depth.undo()
                return None
        self.become(source, camera, wanted, lent=not mapped, kept=None if mapped else getattr(picture, "kept", None))
        if not several:
            self._copy.close()
        return watch.ms["render"] + content.gpu_ms(camera)

    def become(self, source: PixelSource | None = None, camera: Camera | None = None, of: tuple[object, ...] = (), *,
               lent: bool = False, kept: Kept | None = None) -> None:
        """Be this picture from now on, or none. `kept`: what moves it."""
        self.source, self.seen, self.of, self.lent, self.kept = source, camera, of, lent, kept

    def render_later(self, camera: Camera, options: RenderOptions, wanted: tuple[object, ...]) -> None:
        """As `render`, with depth as well, but the picture comes when it is done (`GaussianContent.land`): until then
        it is what it was. At once where it cannot be moved along."""
        content = self._content
        with self.stopwatch("render"):
            picture = content.begin(self, camera, replace(options, depth=True), wanted)
        if picture is None or not content.is_read():
            return
        self.become(picture.source(), camera, wanted, lent=True)

    def tensor(self, camera: Camera, options: RenderOptions, background: Color) -> torch.Tensor | None:
        """What `draw` lays over the background, of colours, as uint8 (H, W, 3) on the GPU; None where it was not CUDA
        that drew. Only this: what was shown is there no more, and nothing is yet."""
        content = self._content
        self.become()
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
        array = self._content.vertex_array((*self.source.defines, "COPY"))
        with self._work("copy", *self.source.size):
            self.source = self._copy.take(self.source, array)
        self.lent = False
        if not self.known:  # then it was no copy
            self.kept = None

    def lose(self) -> None:
        """What was lent is there no more."""
        self.kept = None
        if self.lent:
            self.become()

    def drop(self) -> None:
        """Be none, until it is rendered again."""
        self.forget_motion()
        self.become()
        self._copy.close()

    def forget_motion(self) -> None:
        """Give back what is needed to move it only. Idempotent."""
        if self.kept is not None:
            self.kept.mover.drop()
            self.kept = None

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
        if towards is not None and self.seen is not None and self.kept is not None:
            source = self._moved(self.kept, source, self.seen, *towards)
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

    def _moved(self, kept: Kept, source: PixelSource, seen: Camera, camera: Camera, middle: float) -> PixelSource:
        """It as another camera sees it; as it is once moving has failed."""
        self._work.governor.gives(self.warp_work((camera.width, camera.height)), "cuda")
        try:
            return kept.mover.take(kept, seen, camera, middle)
        except (RendererError, SharingError, RuntimeError) as e:
            log.warning("pictures are moved along no more: %s", e)
            kept.mover.failure, self.kept = str(e) or type(e).__name__, None
            return source

    def warp_work(self, size: tuple[int, int]) -> tuple[object, ...]:
        """The work (see `Governor`) of moving it, to be shown at this size."""
        work = "warp", *size
        if self.kept is not None and (ms := self.kept.mover.clock.news) is not None:
            self._work.took(work, ms)
        return work

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self.drop()
        self.depth.close()


class PictureCopy:
    """A copy of a picture, which the renderer's next one leaves alone: one at a time, bit by bit as it was."""

    def __init__(self, ctx: moderngl.Context) -> None:
        self._ctx = ctx
        self._framebuffer: moderngl.Framebuffer | None = None
        self._source: TextureSource | None = None

    def take(self, source: PixelSource, array: moderngl.VertexArray) -> TextureSource:
        """The same picture, valid until the next `take`. `source`: four channels of float16 or float32; `array`: what
        draws its values (compose.glsl with COPY). Leaves the bound framebuffer and the enable flags as they were."""
        before = self._source
        if self._framebuffer is None or before is None or (before.size, before.dtype) != (source.size, source.dtype):
            self.close()
            texture = self._ctx.texture(source.size, source.channels, dtype=_COPY_FORMATS[source.dtype], alignment=1)
            texture.filter = moderngl.NEAREST, moderngl.NEAREST
            self._framebuffer = self._ctx.framebuffer([texture])
            self._source = before = texture_source(texture)
        with self._ctx.scope(self._framebuffer, moderngl.NOTHING):
            source.bind(array.program, 0)
            array.render(moderngl.TRIANGLES, vertices=3)
        return before

    def close(self) -> None:
        """Give back everything. Idempotent."""
        if self._framebuffer is not None and self._source is not None:
            self._framebuffer.release()
            self._source.texture.release()
        self._framebuffer = self._source = None
