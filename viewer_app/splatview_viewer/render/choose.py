"""Which renderer draws: gsplat where it can, OpenGL elsewhere, until gsplat is ready, and when it fails."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from splatview_viewer.core.errors import RendererError
from splatview_viewer.render.base import LeftOut
from splatview_viewer.render.gsplat.build import Kernels, kernels

if TYPE_CHECKING:
    from collections.abc import Callable

    import moderngl

    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.render.base import Picture, Renderer, RenderOptions
    from splatview_viewer.scene.scene import GaussianScene

log = logging.getLogger("splatview")

VARIABLE = "SPLATVIEW_RENDERER"
"""Environment variable that forces one of NAMES."""
NAMES = "gsplat", "gl"
PATIENCE = 30.0
"""Seconds to wait for torch and gsplat, which load in some two, before OpenGL begins."""


def make_renderer(ctx: moderngl.Context) -> Renderer:
    """The renderer that SPLATVIEW_RENDERER names, or the best there is: gsplat wherever CUDA and gsplat work.

    Where gsplat's kernels have to be compiled first, OpenGL draws meanwhile. Raises RendererError when the one that
    is named cannot run here.
    """
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", *NAMES):
        raise RendererError(f"{VARIABLE} is {wanted!r}; legal are {', '.join(NAMES)}, or unset it")
    if wanted == "gl" or (not wanted and kernels().reason):
        return _gl(ctx)
    if wanted == "gsplat":
        if kernels().reason:
            raise RendererError(f"{VARIABLE} is 'gsplat', but {kernels().reason}")
        from splatview_viewer.render.gsplat.renderer import GsplatRenderer

        return GsplatRenderer(ctx)
    return ChosenRenderer(ctx, kernels())


def renderer_note(renderer: Renderer) -> str:
    """What there is to say about the choice, in one line, as "gl: gsplat needs CUDA, and there is no NVIDIA driver
    here"; "" for nothing."""
    note = getattr(renderer, "note", "")
    if not note and renderer.name == "gl":
        note = f"{VARIABLE} says so" if os.environ.get(VARIABLE) else kernels().reason
    return f"{renderer.name}: {note}" if note else ""


def _gl(ctx: moderngl.Context) -> Renderer:
    from splatview_viewer.render.gl.renderer import GlRenderer

    return GlRenderer(ctx)


class ChosenRenderer:
    """gsplat as soon as it is ready, OpenGL until then; OpenGL for good once gsplat failed.

    Until gsplat is ready it keeps the last scene that lay in host memory, whose arrays must not change.
    """

    def __init__(self, ctx: moderngl.Context, kernels: Kernels) -> None:
        self._ctx = ctx
        self._kernels = kernels
        self._held: Renderer | None = None
        self._scene: GaussianScene | None = None
        self._failure = ""
        self._closed = False

    @property
    def note(self) -> str:
        """Why it is not gsplat that draws, or not at its best."""
        if self._failure or self._kernels.reason:
            return self._failure or self._kernels.reason
        if self._kernels.building:
            return "building gsplat's kernels, about a minute; drawing with OpenGL meanwhile"
        return getattr(self._held, "note", "")

    @property
    def name(self) -> str:
        return self._renderer.name

    @property
    def wants_gpu(self) -> bool:
        return self._renderer.wants_gpu

    @property
    def pending(self) -> bool:
        return self._held is not None and self._held.pending

    @property
    def reading(self) -> bool:
        return self._held is not None and self._held.reading

    @property
    def skipped(self) -> int:
        return 0 if self._held is None else self._held.skipped

    @property
    def left_out(self) -> LeftOut:
        return LeftOut() if self._held is None else self._held.left_out

    @property
    def thinned(self) -> str:
        return "" if self._held is None else self._held.thinned

    @property
    def gpu_ms(self) -> float | None:
        return None if self._held is None else self._held.gpu_ms

    @property
    def load_gpu_ms(self) -> float | None:
        return None if self._held is None else self._held.load_gpu_ms

    @property
    def bridge(self) -> str:
        """How its pictures come to OpenGL: a name of `splatview_ipc.gl`'s, or "" for OpenGL's own."""
        return getattr(self._held, "bridge", "")

    @property
    def timings(self) -> dict[str, float]:
        return {} if self._held is None else self._held.timings

    def load(self, scene: GaussianScene, ready: Callable[[int], None] | None = None) -> None:
        renderer = self._renderer
        self._scene = None if scene.on_gpu else scene
        try:
            renderer.load(scene, ready)
        except RendererError as e:
            if renderer.name == "gl":
                raise
            self._fall_back(e)
            self._renderer.load(scene, ready)

    def render(self, camera: Camera, options: RenderOptions) -> Picture:
        renderer = self._renderer
        try:
            return renderer.render(camera, options)
        except RendererError as e:
            if renderer.name == "gl" or camera.width <= 0 or camera.height <= 0 or self._closed:
                raise
            self._fall_back(e)
            return self._renderer.render(camera, options)

    def scene(self) -> GaussianScene:
        return self._renderer.scene()

    def read(self) -> None:
        if self._held is not None:
            self._held.read()

    def tick(self) -> bool:
        """Goes over to gsplat once that is ready. True: draw again."""
        if self._held is None or self._closed or self._failure or self._held.name != "gl" or not self._kernels.ready:
            return False
        gl, scene = self._held, self._scene
        self._held = None
        gl.close()
        if self._renderer.name == "gsplat":
            log.info("drawing with gsplat")
        if scene is not None:
            self.load(scene)
        return True

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self._closed = True
        self._scene = None
        if self._held is not None:
            self._held.close()

    @property
    def _renderer(self) -> Renderer:
        """The one that draws now."""
        if self._closed and self._held is None:
            raise RendererError("this renderer is closed; make a new one")
        if self._held is None:
            if not self._failure and self._kernels.wait_unless_building(PATIENCE):
                from splatview_viewer.render.gsplat.renderer import GsplatRenderer

                try:
                    self._held = GsplatRenderer(self._ctx)
                except RendererError as e:
                    self._fail(e)
            if self._held is None:
                self._held = _gl(self._ctx)
        return self._held

    def _fail(self, error: RendererError) -> None:
        self._failure = str(error)
        log.warning("drawing with OpenGL: %s", error)

    def _fall_back(self, error: RendererError) -> None:
        """From gsplat to OpenGL, with the scene as it is there if that can still be had."""
        self._fail(error)
        gsplat, scene = self._held, self._scene
        assert gsplat is not None
        if scene is None:
            with suppress(RendererError):
                scene = gsplat.host_scene()  # type: ignore[attr-defined]
        with suppress(RendererError):
            gsplat.close()
        self._held = None
        if scene is not None:
            self._renderer.load(scene)
