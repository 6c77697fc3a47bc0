"""The picture of a scene that one user sees: where it lies, for how long, and how it is laid on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import moderngl

from viewer_app.views._gaussians.copy import PictureCopy
from viewer_app.views._gaussians.depth import DepthPicture
from viewer_app.views.base import Stopwatch

if TYPE_CHECKING:
    import torch

    from ipc.interop.base import PixelSource
    from viewer_app.cameras import Camera
    from viewer_app.controls import Rect
    from viewer_app.gpu_work import GpuWork
    from viewer_app.renderers.base import RenderOptions
    from viewer_app.state import Color
    from viewer_app.views._gaussians.content import GaussianContent

_SHOW = {"color": 0, "depth": 1, "alpha": 2}


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
        self.depth = DepthPicture(ctx)
        self.stopwatch = Stopwatch()
        self._ctx = ctx
        self._content = content
        self._work = work
        self._copy: PictureCopy | None = None

    def render(self, camera: Camera, options: RenderOptions, wanted: tuple[object, ...]) -> float | None:
        """Become the picture that is `wanted`, which these make. Milliseconds that it took; None if nobody had to draw
        it, or if the scene was overwritten meanwhile: then it is what it was."""
        content = self._content
        several = len(content.views) > 1
        if several and (twin := content.lent(wanted)) is not None:
            self.source, self.of, self.lent = twin.source, wanted, True
            return None
        cuda, watch = content.renderer.wants_gpu, self.stopwatch
        with watch("render"):
            picture = content.render(self, camera, options)
        with watch("wait"):
            if cuda:
                content.account()
            content.has_looked()  # only begins to look, while CUDA draws
            source = self.depth.source(picture, wanted) if options.depth else picture.source()
            if not content.is_read():
                if options.depth:
                    self.depth.undo()
                return None
        self.source, self.of, self.lent = source, wanted, not options.depth
        if not several and self._copy is not None:
            self._copy.close()
            self._copy = None
        return watch.ms["render"] + content.gpu_ms(camera)

    def tensor(self, camera: Camera, options: RenderOptions, background: Color) -> torch.Tensor | None:
        """What `draw` lays over the background, of colours, as uint8 (H, W, 3) on the GPU; None where it was not CUDA
        that drew. Only this: what was shown is there no more, and nothing is yet."""
        content = self._content
        self.source, self.of, self.lent = None, (), False
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

    def lose(self) -> None:
        """What was lent is there no more."""
        if self.lent:
            self.source, self.of, self.lent = None, (), False

    def drop(self) -> None:
        """Be none, until it is rendered again."""
        self.source, self.of, self.lent = None, (), False
        if self._copy is not None:
            self._copy.close()
            self._copy = None

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect, background: Color, show: str) -> None:
        """Lay it over a background of RGB in [0, 1]. `show`: as `GaussianSettings.show`."""
        viewport = rect.viewport(framebuffer.height)
        framebuffer.use()
        source = self.source
        if source is None:
            framebuffer.clear(*background, 1.0, viewport=viewport)
            return
        # One that is smaller than its place on the screen is smoothed.
        smooth = ("SMOOTH",) if source.size != (rect.width, rect.height) else ()
        array = self._content.vertex_array((*source.defines, *smooth))
        program = array.program
        program["u_corner"] = rect.x, rect.y
        program["u_size"] = rect.width, rect.height
        program["u_height"] = float(framebuffer.height)
        program["u_background"] = background
        program["u_show"] = _SHOW.get(show, 0)
        self._ctx.disable(moderngl.BLEND | moderngl.DEPTH_TEST | moderngl.CULL_FACE)
        source.bind(program)
        framebuffer.viewport = viewport
        with self._work("compose", rect.width, rect.height):
            array.render(moderngl.TRIANGLES, vertices=3)

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self.drop()
        self.depth.close()
