"""The scene of a stream on the GPU, for all its viewports: what is loaded, which frame is read, and their pictures."""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import StreamFrame
from splatview_viewer.core.errors import RendererError, ViewerError
from splatview_viewer.core.view import Stopwatch
from splatview_viewer.gpu.governor import BROUGHT, scaled
from splatview_viewer.kinds.gaussians.picture import Composer, ViewportPicture
from splatview_viewer.render.base import PAINTS, RenderOptions
from splatview_viewer.render.choose import better, choose, instead
from splatview_viewer.scene.frames import background_of, scene_of
from splatview_viewer.scene.scene import GaussianScene, HostCopy
from splatview_viewer.scene_view.sight import Sight
from splatview_viewer.ui.widgets import Hint, Hints

if TYPE_CHECKING:
    from collections.abc import Callable

    import moderngl
    import torch

    from splatview_ipc.gl.base import PixelSource
    from splatview_viewer.core.settings import Color
    from splatview_viewer.core.view import Value
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.recording.recording import Player
    from splatview_viewer.render.base import RenderedPicture as Rendered
    from splatview_viewer.render.base import Renderer

log = logging.getLogger("splatview")

_REPLACED = 1.0
"""Seconds within which a scene that was overwritten while it was read is replaced, if its trainer lives."""
_PATIENCE = 0.5
"""Seconds for which a frame that is read in place must have arrived; then it is waited for."""
_BACKGROUND_PERIOD = 1.0
"""Seconds between looks at a background colour that lies on a GPU, which wait for it."""
_AT_ONCE = 10.0
"""Milliseconds up to which a scene is drawn for each picture where no other process needs the GPU."""
_FAR = 0.7
"""Cosine of the turn from which on a picture shows too little of what is seen now."""
_VISIBLE = 0.05
"""Gaussians of at most this opacity do not count when a scene is framed."""
_SAMPLE = 200_000
"""Gaussians that are looked at to frame a scene."""


def hint_of(scene: GaussianScene, ready: Callable[[int], None] | None) -> Hint | None:
    """Return the form that a scene's numbers seem to have, unless their publisher says so. `ready`: as for
    `GaussianScene.to_host`; waits for the GPU.
    """
    step = max(len(scene) // 10_000, 1)
    some = replace(scene, shN=scene.shN[:, :0])[::step].to_host(
        ready
    )  # without harmonics, most of what there is
    scales, opacities, quats = (
        t.double().numpy() for t in (some.scales, some.opacities, some.quats)
    )
    if len(some) < 10:
        return None
    if some.activation.scales and (scales < 0).mean() > 0.1:
        return Hint("activated", "scales look like logarithms", "Show as logarithms")
    sizes = scales[~np.isneginf(scales)]  # without the third ones of flat Gaussians
    shares = (sizes > 0).mean(), ((opacities >= 0) & (opacities <= 1)).mean()
    is_raw = not any(some.activation)
    if is_raw and min(shares) > 0.99 and (opacities > 0.02).any():
        return Hint(
            "activated", "scales and opacities look activated", "Show as activated"
        )
    # Logits of a trained scene are of both signs and beyond 1; of a new one they are all the same.
    is_spread = np.ptp(opacities) > 0.05
    if not some.activation.opacities and shares[1] > 0.999 and is_spread:
        return Hint("opacities", "opacities look activated", "Show as opacities")
    quats = np.abs(quats[np.isfinite(quats).all(1) & quats.any(1)])
    w, *_, z = (quats / np.linalg.norm(quats, axis=1, keepdims=True)).sum(0) / max(
        len(quats), 1
    )
    if z > max(0.6, 2 * w):
        return Hint("quats", "quaternions look like x y z w", "Show as x y z w")
    return None


@dataclass(frozen=True)
class GaussianFacts:
    """Facts about the scene that is shown; its arrays may be gone by now."""

    count: int
    sh_degree: int
    stored_sh_degree: int
    antialiased: bool
    notes: tuple[str, ...]
    up: tuple[float, float, float] | None = None

    @classmethod
    def of(cls, scene: GaussianScene) -> GaussianFacts:
        return cls(
            len(scene),
            scene.sh_degree,
            scene.stored_sh_degree,
            scene.antialiased,
            scene.notes,
            scene.up,
        )

    @property
    def phrases(self) -> list[str]:
        degrees = f"SH {min(self.sh_degree, self.stored_sh_degree)} of {self.stored_sh_degree}"
        return [
            *([degrees] if self.stored_sh_degree else []),
            *(["antialiased"] if self.antialiased else []),
        ]


def sample_scene(
    scene: GaussianScene, ready: Callable[[int], None] | None = None
) -> Sight:
    """Return some of a scene's Gaussians; waits for the GPU where they lie on one.

    ready: as for `GaussianScene.to_host`.
    """
    scene.wait(ready)
    arrays = HostCopy(scene, lambda: scene.sample(_SAMPLE)).arrays()
    means, opacities = map(np.copy, arrays)
    return Sight(means, opacities)


@dataclass
class Begun:
    """A picture that the GPU is drawing and that is not waited for."""

    rendered: Rendered
    place: ViewportPicture
    """The viewport's picture that it will be."""
    camera: Camera
    of: tuple[object, ...]
    """As `Picture.of`."""
    reads: bool
    """The scene is read in one go with it."""


class SceneCache:
    """The one owner of a scene's data on the GPU. Lives until the last of its pictures is released.

    Scenes on a GPU are read where they lie if the renderer can, in one go with the picture that shows them first: such
    a frame is held until that picture is done. If it was overwritten meanwhile, the picture is never shown.

    The renderer's picture is lent to the viewport that it was rendered for. Before the renderer draws another one, the
    pictures that are still shown are copied.
    """

    def __init__(
        self, ctx: moderngl.Context, work: GpuWork, renderer: Renderer | None = None
    ) -> None:
        self.ctx = ctx
        self.work = work
        self.renderer = renderer or choose(ctx)
        self.facts: GaussianFacts | None = None
        """Facts of the scene; None while there is none."""
        self.sight: Sight | None = None
        """Of the first version, or of the one at the last `look`, of a scene on a GPU; otherwise of the newest."""
        self.now = 0.0
        """Time of the last turn of the loop."""
        self.hints = Hints()
        self.choices: set[str] = set()
        """The hints that the user obeyed."""
        self.background: Color | None = None
        """The stream's own."""
        self.stale = False
        """As `Wants.stale`."""
        self.loads = 0
        """Number of scenes taken, and of renderers that draw better: pictures of an earlier number are old."""
        self.player: Player | None = None
        """Playback of what was recorded of the scene."""
        self.on_gpu = False
        self.stopwatch = Stopwatch()
        self.composer = Composer(ctx, work)
        self.begun: Begun | None = None
        """The picture that is being drawn for later."""
        self.pictures: list[ViewportPicture] = []
        """The pictures of all viewports."""
        self._stale_at = self._background_at = -math.inf
        self._frame: StreamFrame | None = None
        """Held: the renderer reads it when it draws next, or is reading it."""
        self._expected: tuple[StreamFrame, float] | None = None
        """The first frame that had not arrived when it came, and when that was."""
        self._sight_of = 0
        """The scene (`loads`) of `sight`."""
        self._torn = False
        """The last scene turned out to be overwritten."""
        self._timed: tuple[tuple[object, ...], ...] = (), ()
        """The works of the last two pictures."""

    # -- scenes ------------------------------------------------------------------------------------------------

    def put(self, value: Value) -> bool:
        """Take a scene, or a frame of one, as `View.take`."""
        if not isinstance(value, (GaussianScene, StreamFrame)):
            raise ViewerError(f"gaussians: a {type(value).__name__} is no scene")
        if self.busy:
            return False
        frame = None
        background = None
        ready = None
        if isinstance(value, GaussianScene):
            scene = value
            self.on_gpu = False
            background = value.background or self.background
        else:
            frame = value
            if not self._has_arrived(frame):
                return False
            with self.stopwatch("copy"):
                self.on_gpu = value.on_gpu and self.renderer.wants_gpu
                scene, ready = scene_of(value, self.choices, in_place=self.on_gpu)
                background = self.background
                if (
                    not frame.on_gpu
                    or self.now - self._background_at >= _BACKGROUND_PERIOD
                ):
                    background = background_of(frame)
                    self._background_at = self.now
            if not value.intact():
                return False
        sight = self.sight
        if sight is None or not scene.on_gpu:
            sight = sample_scene(scene, ready)
            self._sight_of = self.loads + 1
            self.hints.hint = None if frame is None else hint_of(scene, ready)
        with self.stopwatch("load"):
            try:
                self.renderer.load(scene, ready)
            except RendererError as e:
                self._draw_with(instead(self.renderer, self.ctx, e))
                self.renderer.load(scene, ready)
        before = self._frame
        self._frame = None
        if before is not None:  # it was never drawn
            before.close()
        if frame is not None and self.renderer.reading:
            frame.hold()
            self._frame = frame
        self.facts = GaussianFacts.of(scene)
        self.sight = sight
        self.background = background
        self.stale = False
        self.loads += 1
        return True

    def _has_arrived(self, frame: StreamFrame) -> bool:
        """Return True if a frame may be read now; otherwise the caller brings it again. Waiting here for a trainer's
        GPU would delay everything else that is drawn. The newest frame of a trainer that is always ahead of its GPU has
        never arrived; the first one that was refused decides then.
        """
        if not frame.on_gpu or frame.complete:
            self._expected = None
            return True
        if self._expected is None:
            self._expected = frame, self.now
        first, since = self._expected
        if not first.complete and self.now - since < _PATIENCE:
            return False
        self._expected = None
        return True

    @property
    def busy(self) -> bool:
        """As `Wants.busy`."""
        return self._frame is not None and not self.renderer.pending

    def look(self) -> Sight | None:
        """Return where the Gaussians of the loaded version are. Waits for the GPU if that was not read yet."""
        if self._sight_of != self.loads and self.renderer.wants_gpu:
            with suppress(RendererError):  # the picture says so
                self.sight = sample_scene(self.renderer.scene())
                self._sight_of = self.loads
        return self.sight

    def _let_go(self) -> bool:
        """Release the frame that was read with a picture, once that is done. False if it was overwritten meanwhile: the
        views are stale then, and show what they showed before until a whole one comes.
        """
        frame = self._frame
        if frame is None:
            return True
        self.renderer.wait()
        self._frame = None
        self.stale = not frame.intact()
        self._stale_at = self.now
        self._torn = self.stale
        frame.close()
        return not self.stale

    @property
    def _awaited(self) -> bool:
        """True while a scene that was overwritten is about to be replaced: nothing is to be drawn now."""
        # After that what there is has to do: its trainer has died.
        return self.stale and self.now - self._stale_at <= _REPLACED

    # -- pictures ----------------------------------------------------------------------------------------------

    def picture(
        self,
        place: ViewportPicture,
        camera: Camera,
        options: RenderOptions,
        moving: bool,
        smooth: bool,
    ) -> None:
        """Have a viewport's picture be what `camera` sees, as it is, moved there, or rendered anew. moving: one of
        lower resolution will do. smooth: the one before, moved to the camera, will do.
        """
        size = (camera.width, camera.height)
        wanted = (camera.key, options, self.loads)
        place.motion.towards = None
        if (
            smooth
            and (moving or self._awaited)
            and self._can_move(place, camera, options)
        ):
            self._move_along(place, camera, options)
            if place.source is not None:
                return
        elif self.begun is not None and self.begun.of == wanted:
            self.land(wait=True)
        if self._awaited:
            return
        place.scale = self.work.governor.scale("scene", size) if moving else 1.0
        if place.scale < 1.0:
            camera = camera.resized(*scaled(size, place.scale))
            wanted = camera.key, *wanted[1:]
        if place.source is None or wanted != place.of:
            self._render_into(place, camera, options, wanted)

    def _render_into(
        self,
        place: ViewportPicture,
        camera: Camera,
        options: RenderOptions,
        wanted: tuple[object, ...],
    ) -> None:
        """Have a picture be what is `wanted`, which the others describe; it stays as it is if the scene was
        overwritten.
        """
        several = len(self.pictures) > 1
        if (
            several
            and (
                twin := next(
                    (p for p in self.pictures if p.lent and p.of == wanted), None
                )
            )
            is not None
        ):
            place.become(twin.source, camera, wanted, lent=True, kept=twin.kept)
            return
        with self.stopwatch("render"):
            rendered = self._render(place, camera, options)
        with self.stopwatch("wait"):
            if self.renderer.wants_gpu:
                self._account()
            counts = PAINTS[options.paint].is_mapped
            mapped = options.depth or counts
            if mapped:
                source = place.depth.source(rendered, self.now, counts=counts)
            else:
                source = rendered.source()
            if not self._let_go():
                if mapped:
                    place.depth.undo()
                return
        place.become(
            source,
            camera,
            wanted,
            lent=not mapped,
            kept=None if mapped else rendered.kept,
        )
        if not several:
            place.drop_copy()

    def _render(
        self,
        place: ViewportPicture,
        camera: Camera,
        options: RenderOptions,
        *words: str,
    ) -> Rendered:
        """Render the scene, to be shown in `place` only if `_let_go` returns True when it is done.

        All pictures stay, that of `place` as well until it becomes the new one. `words`: more of them for the governor,
        of a picture that costs more than others.
        """
        self.land(wait=True)
        renderer = self.renderer
        work = ("scene", camera.width, camera.height, *words)
        if len(self.pictures) > 1 or self._torn:
            for picture in [picture for picture in self.pictures if picture.lent]:
                # One of an earlier scene is about to be drawn anew itself, unless what is read now is overwritten.
                if self._frame is not None or (
                    picture is not place and picture.of[-1] == self.loads
                ):
                    picture.keep(self.composer)
        if renderer.wants_gpu:  # it works with CUDA, which OpenGL's clock does not see
            if self._frame is not None:
                self.work.governor.gives(("load",), "cuda")
            self.work.governor.gives(work, "cuda")
            try:
                rendered = renderer.render(camera, options)
            except RendererError as e:
                self._draw_with(instead(renderer, self.ctx, e))
                rendered = self.renderer.render(camera, options)
        else:
            with self.work(*work):
                rendered = renderer.render(camera, options)
        self._timed = work, self._timed[0]
        return rendered

    def _account(self) -> None:
        """Tell the governor what CUDA took for what it did last. Takes a while, so when it is at work again."""
        ms = self.renderer.load_gpu_ms
        if ms is not None:
            self.work.took(("load",), ms)
        ms = self.renderer.gpu_ms
        if (
            ms is not None and self._timed[0] == self._timed[1]
        ):  # it is of one of the two, so only if they are alike
            self.work.took(self._timed[0], ms)

    def tensor(
        self,
        place: ViewportPicture,
        camera: Camera,
        options: RenderOptions,
        background: Color,
    ) -> torch.Tensor | None:
        """Return what `Composer.lay` draws of colours as uint8 (H, W, 3) on the GPU; None where CUDA did not draw.
        `place` shows nothing afterwards.
        """
        place.become()
        rendered = self._render(place, camera, options)
        self._account()
        drawn = rendered.over_background(background)
        self._let_go()
        return drawn

    # -- pictures that are moved along -------------------------------------------------------------------------

    def _can_move(
        self, place: ViewportPicture, camera: Camera, options: RenderOptions
    ) -> bool:
        """Return True if the picture, moved to `camera`, is to be shown until a new one is done."""
        if place.kept is None or place.camera is None:
            return False
        before = place.of[1]
        seen = place.camera
        if not isinstance(before, RenderOptions) or (before.paint, before.depth) != (
            options.paint,
            options.depth,
        ):
            return False  # it shows another sort of thing
        turn = float(np.trace(seen.viewmat[:3, :3].T @ camera.viewmat[:3, :3]))
        if seen.model != camera.model or turn < 1 + 2 * _FAR:
            return False
        size = camera.width, camera.height
        governor = self.work.governor
        warp = self._warp_work(place, size)
        if governor.limited:
            return governor.moves_along("scene", size, warp)
        return (governor.cost(("scene", *size)) or 0.0) > max(
            _AT_ONCE, 2 * (governor.cost(warp) or 0.0)
        )

    def _move_along(
        self, place: ViewportPicture, camera: Camera, options: RenderOptions
    ) -> None:
        """Begin a new picture if that may be, without waiting for it, and have the one before be moved until then."""
        self.land()
        size = (camera.width, camera.height)
        wanted = (camera.key, options, self.loads)
        if (
            place.of != wanted
            and not self._awaited
            and (scale := self._next_scale(size)) is not None
        ):
            place.scale = scale
            drawn = camera if scale == 1.0 else camera.resized(*scaled(size, scale))
            self.begin(place, drawn, options, (drawn.key, *wanted[1:]))
        if place.of != wanted:
            place.motion.towards = camera
        else:
            place.scale = 1.0

    def _next_scale(self, size: tuple[int, int]) -> float | None:
        """Return the resolution of the next picture of the scene, to be shown at this size; None while it may not
        begin, as another one is being drawn, or its cost is being saved up.
        """
        governor = self.work.governor
        scale, ms = governor.scale_later("scene", size)
        if self.renderer.pending:  # it is read in one go with the picture
            ms += governor.cost(("load",)) or 0.0
        return scale if governor.has_saved(ms) and self.begun is None else None

    def begin(
        self,
        place: ViewportPicture,
        camera: Camera,
        options: RenderOptions,
        wanted: tuple[object, ...],
    ) -> None:
        """Render, with depth, what `place` becomes when it is done (`land`); at once where it cannot be moved along."""
        with self.stopwatch("render"):
            self.land(wait=True)
            reads = self._frame is not None
            rendered = self._render(
                place, camera, replace(options, depth=True), BROUGHT
            )
            if rendered.queue_source():
                self.begun = Begun(rendered, place, camera, wanted, reads)
                self.work.flush()
                self._account()
                return
        if self._let_go():
            place.become(rendered.source(), camera, wanted, lent=True)

    def land(self, *, wait: bool = False) -> None:
        """Have the picture that was begun take its place, if it is done. wait: once it is."""
        begun = self.begun
        if begun is None or not (wait or begun.rendered.done):
            return
        self.begun = None
        whole = not begun.reads or self._let_go()
        source = begun.rendered.queued_source() if whole else None
        if source is None:
            return
        begun.place.become(
            source, begun.camera, begun.of, lent=True, kept=begun.rendered.kept
        )
        begun.place.motion.landed = True

    def moves_on(self, place: ViewportPicture, moving: bool) -> bool:
        """Return True if a picture that is moved along has to be drawn again. moving: the camera still moves."""
        motion = place.motion
        landed = motion.landed
        motion.landed = False
        if motion.towards is None:
            return landed
        size = motion.towards.width, motion.towards.height
        return landed or not moving or self._next_scale(size) is not None

    def source(self, place: ViewportPicture, middle: float) -> PixelSource | None:
        """Return the pixels of a viewport's picture, moved if that is due. middle: distance of the scene's middle."""
        kept = place.kept
        seen = place.camera
        towards = place.motion.towards
        if towards is None or seen is None or kept is None:
            return place.source
        self.work.governor.gives(
            self._warp_work(place, (towards.width, towards.height)), "cuda"
        )
        try:
            return kept.mover.take(kept, seen, towards, middle)
        except (RendererError, SharingError, RuntimeError) as e:
            log.warning("pictures are moved along no more: %s", e)
            kept.mover.failure = str(e) or type(e).__name__
            place.kept = None
            return place.source

    def _warp_work(
        self, place: ViewportPicture, size: tuple[int, int]
    ) -> tuple[object, ...]:
        """Return the work (see `Governor`) of moving a picture, to be shown at this size."""
        work = "warp", *size
        if place.kept is not None and (ms := place.kept.mover.clock.news) is not None:
            self.work.took(work, ms)
        return work

    # -- the loop ----------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what could wait, once however many views ask for it; `loads` changes if the scene is to be drawn again."""
        self.now = now
        for picture in self.pictures:  # also of viewports that were hidden in this turn
            if picture.motion.moved_at is None:
                picture.motion.moved_at = now
        self.work.collect()
        self.land()
        renderer = better(self.renderer, self.ctx)
        if renderer is not None:
            self._draw_with(renderer)
            self.loads += 1
        if self.busy and not self.renderer.reading:  # a fault came between
            self._let_go()

    def _draw_with(self, renderer: Renderer) -> None:
        """Have another renderer draw, which has the scene; the one before has taken its pictures along."""
        self.renderer = renderer
        self.begun = None
        for picture in self.pictures:
            picture.lose()

    def rest(self) -> None:
        """Give back what is held only to be drawn next: no viewport shows the scene."""
        self.land(wait=True)
        if self.renderer.pending:
            self.renderer.read()
        self._let_go()
        self.drop(*self.pictures)

    def drop(self, *pictures: ViewportPicture) -> None:
        """Give back pictures that are not seen; without any that is, also what the renderer draws into."""
        # A GPU that has failed brings nothing: the next picture tells.
        with suppress(RendererError, SharingError):
            self.land(wait=True)
        for picture in pictures:
            picture.drop()
        if any(picture.source is not None for picture in self.pictures):
            return
        with suppress(RendererError):
            self.renderer.rest()

    def release(self, picture: ViewportPicture) -> None:
        """Close a viewport's picture; with the last one everything is given back. Idempotent."""
        if picture not in self.pictures:
            return
        self.pictures.remove(picture)
        if self.begun is not None and self.begun.place is picture:
            with suppress(
                RendererError, SharingError
            ):  # of a GPU that has failed: there is nothing to be shown
                self.land(wait=True)
        picture.close()
        if self.pictures:
            return
        frame = self._frame
        self._frame = None
        self.renderer.close()
        if frame is not None:
            frame.close()
        self.facts = None
        self.composer.close()
