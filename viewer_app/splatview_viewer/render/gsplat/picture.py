"""What the CUDA renderer draws: begun at once, awaited when it is asked for."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.core.errors import RendererError
from splatview_viewer.render.base import FAINT, Pixels

if TYPE_CHECKING:
    from collections.abc import Iterator

    import moderngl
    import torch

    from splatview_ipc.gl.base import PixelSource
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.render.base import RenderOptions
    from splatview_viewer.render.gsplat.moving import Kept, Mover
    from splatview_viewer.render.gsplat.renderer import GsplatRenderer


class GsplatPicture:
    """What `GsplatRenderer.render` returns. Valid until it draws again or is closed."""

    def __init__(self, renderer: GsplatRenderer, camera: Camera, options: RenderOptions) -> None:
        """Drawn straight into what OpenGL reads, float16; as float32 tensors where there is no OpenGL context, or
        depth, which is divided by alpha, is wanted too, or numbers that are no colours."""
        self._renderer, self._camera, self._options = renderer, camera, options
        self._shown = None if options.depth or options.paint == "overdraw" else renderer._target(camera)
        clock = renderer._clocks["render"]
        stream = renderer._stream
        with renderer._reading:  # only now: getting the target may have waited for OpenGL
            renderer._activate()
            renderer._gaussians.settle()
            clock.begin(stream)
            self._rgba, self._depth = renderer._draw(camera, options, self._shown)
            clock.end(stream)
        self._whole = False
        self._canvases: tuple[Any, Any] | None = None
        """Where it is being brought, and its depth, or what is going to move it."""
        self.kept: Kept | None = None
        """What CUDA needs to move it, if that does so; since `source` or `brought`."""
        self._source: PixelSource | None = None
        self._texture: moderngl.Texture | None = None

    def pixels(self) -> Pixels:
        """float32, drawn anew if the picture has another dtype."""
        with self._renderer._working():
            self._make_exact()
            rgba = self._rgba.cpu().numpy()
            depth = None if self._depth is None else self._depth.cpu().numpy()
        return Pixels(np.ascontiguousarray(rgba[..., :3]), np.ascontiguousarray(rgba[..., 3]), depth)

    def texture(self, ctx: moderngl.Context) -> moderngl.Texture:
        """A float32 texture, through host memory: `source` is the quick way."""
        if self._texture is None or self._texture.ctx is not ctx:
            p = self.pixels()
            rgba = np.dstack([p.color, p.alpha])
            self._texture = self._renderer._texture_for(ctx, rgba)
        return self._texture

    def source(self) -> PixelSource:
        """In memory that OpenGL reads, where that is possible: see `splatview_ipc.gl`."""
        if self._source is None:
            with self._renderer._working():
                target = self._shown
                if target is None:
                    target = self._renderer._target(self._camera)
                    if target is None:
                        raise RendererError("gsplat: made without an OpenGL context; only pixels() and texture() work")
                    self._make_whole()
                    target.copy_(self._rgba)
                else:
                    self._make_whole()
                self._source = self._renderer._canvas().show(finished=self._shown is not None)
                if self._shown is not None and (mover := self._mover()) is not None:
                    self.kept = mover.borrow(target, self._renderer._stream)
                self._shown = None  # from now on it belongs to the canvas
        assert self._source is not None
        return self._source

    def bring(self) -> None:
        """Have all that `brought` gives made behind the drawing, so that nobody has to wait: ask `done`. For a picture
        with depth, once, before anything else is asked of it."""
        renderer, torch = self._renderer, self._renderer._torch
        with renderer._working(), renderer._reading:
            target = renderer._target(self._camera)
            if target is None or self._depth is None:
                raise RendererError("gsplat: made without depth or an OpenGL context; it cannot be brought there")
            target.copy_(self._rgba)
            mover = self._mover()
            if mover is not None:
                self.kept = mover.keep(target, self._rgba, self._depth, renderer._stream)
            else:
                depths = renderer._depths().begin(*self._depth.shape, 1, "float32")
                alpha = self._rgba[..., 3]
                depths[..., 0].copy_(torch.where(alpha > FAINT, self._depth / alpha.clamp(min=FAINT), 0.0))
            renderer._clocks["render"].extend(renderer._stream)
        self._canvases = renderer._canvas(), mover or renderer._depths()

    def _mover(self) -> Mover | None:
        from splatview_viewer.render.gsplat.moving import mover_of  # torch is loaded by now

        return mover_of(self._renderer)

    @property
    def done(self) -> bool:
        """Whether the GPU is through with it. Never waits."""
        return self._renderer._reading.done

    def brought(self) -> tuple[PixelSource, PixelSource | Kept] | None:
        """Colour and alpha, as from `source`, and `kept`, or expected depth, one channel, 0 where nothing is. None if
        it turns out to lack Gaussians, or the renderer has gone to another GPU: it has to be rendered again. Waits
        until it is `done`."""
        renderer, canvases = self._renderer, self._canvases
        there = renderer._mover_held if self.kept is not None else renderer._depths_held
        if canvases is None or canvases != (renderer._canvas_held, there):
            return None
        with renderer._working():
            if renderer._overflowed():
                return None
            self._whole, self._canvases = True, None
            self._source = canvases[0].show(finished=True)
            assert self._source is not None
            return self._source, self.kept or canvases[1].show(finished=True)

    def over(self, background: tuple[float, float, float]) -> torch.Tensor:
        """The picture over a background, RGB in [0, 1]: uint8 (H, W, 3), as OpenGL rounds it, for what torch's current
        stream does next. Of what was drawn for OpenGL, without asking it for anything."""
        torch = self._renderer._torch
        device = self._renderer.device
        wanted = torch.cuda.current_stream(device)
        with self._renderer._working():
            self._make_whole()
            picture = self._rgba.float()
            color = picture[..., :3]
            if any(background):
                behind = torch.tensor(background, device=device)
                color = torch.addcmul(color, 1 - picture[..., 3:].clamp(0, 1), behind)
            made = color.clamp(0, 1).mul_(255).add_(0.5).to(torch.uint8)
            done = torch.cuda.current_stream(device).record_event()
        wanted.wait_event(done)
        made.record_stream(wanted)
        return made

    @contextmanager
    def on_gpu(self) -> Iterator[tuple[torch.Tensor, torch.Tensor | None]]:
        """Colour and alpha (H, W, 4) and depth (H, W), float32 tensors on the GPU, to be used inside, where the
        renderer's stream is current."""
        with self._renderer._working():
            self._make_exact()
            yield self._rgba, self._depth

    def _make_whole(self) -> None:
        """Wait for it, and draw again what turns out to have had too little room."""
        while not self._whole:
            self._whole = not self._renderer._overflowed()
            if not self._whole:
                with self._renderer._reading:
                    self._rgba, self._depth = self._renderer._draw(self._camera, self._options, self._shown)

    def _make_exact(self) -> None:
        """Have float32 tensors. What is in OpenGL's memory stays there."""
        self._make_whole()
        while self._rgba.element_size() < 4 or not self._whole:
            with self._renderer._reading:
                self._rgba, self._depth = self._renderer._draw(self._camera, self._options)
            self._whole = not self._renderer._overflowed()
