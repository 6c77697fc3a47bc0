"""The data of a stream of Gaussians on the GPU, for all its views: a renderer with the scene, and what is known of
it."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import Frame
from splatview_ipc.gl.base import fragment_head
from splatview_viewer.core.errors import RendererError, ViewerError
from splatview_viewer.core.view import VERTEX, Stopwatch
from splatview_viewer.gpu.governor import BROUGHT
from splatview_viewer.kinds.gaussians.frames import Facts, Sight, SightLater, hint_of
from splatview_viewer.render.choose import better, choose, instead
from splatview_viewer.scene.frames import background_of, scene_of
from splatview_viewer.scene.scene import GaussianScene
from splatview_viewer.ui.widgets import Hints

if TYPE_CHECKING:
    import moderngl

    from splatview_viewer.core.settings import Color
    from splatview_viewer.core.view import Value
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.kinds.gaussians.picture import ScenePicture
    from splatview_viewer.kinds.gaussians.view import GaussianView
    from splatview_viewer.recording.player import Player
    from splatview_viewer.render.base import Picture, Renderer, RenderOptions

_LARGE = 400_000
"""Gaussians beyond which the first picture of a scene is coarse: something to see at once, wherever it is drawn."""
_REPLACED = 1.0
"""Seconds within which a scene that was overwritten while it was read is replaced, if its trainer lives."""
_LOOK_PERIOD = 5.0
"""Seconds between looks at where the Gaussians of a scene on a GPU are."""
_PATIENCE = 0.5
"""Seconds for which a frame that is read in place must have arrived; then it is waited for."""
_BACKGROUND_PERIOD = 1.0
"""Seconds between looks at a background colour that lies on a GPU, which wait for it."""


@dataclass
class Begun:
    """A picture that the GPU is drawing, and that is not waited for."""

    picture: Any
    """It has `done` and `brought` (`GsplatPicture`)."""
    place: ScenePicture
    """Where it is going to be shown."""
    camera: Camera
    of: tuple[object, ...]
    """As `ScenePicture.of`."""
    reads: bool
    """Whether the scene is read in one go with it."""


class GaussianContent:
    """Scenes on a GPU are read where they lie if the renderer can, in one go with the picture that shows them first:
    such a frame is held until that picture is done. If it was overwritten meanwhile, the picture is never shown.

    The renderer's picture is lent to the view that it was drawn for. Before it draws another one, whoever would still
    show the one before keeps a copy. Lives until the last of its views is closed.
    """

    def __init__(self, ctx: moderngl.Context, work: GpuWork, renderer: Renderer | None = None) -> None:
        self.views: list[GaussianView] = []
        """Everybody who looks at it."""
        self.renderer = renderer or choose(ctx)
        self.facts: Facts | None = None
        """Of the scene; None while there is none."""
        self.sight: Sight | None = None
        self.looked_at = -math.inf
        self.now = 0.0
        """Time of the last turn of the loop."""
        self.hints = Hints()
        self.choices: set[str] = set()
        """Of hints that were obeyed."""
        self.background: Color | None = None
        """That travels with the stream."""
        self.stale = False
        """As `View.stale`."""
        self.loads = 0
        """How many scenes came, and renderers that draw better: pictures of an earlier number are old."""
        self.player: Player | None = None
        """What was recorded of it, and whether something of that is shown."""
        self.on_gpu = False
        self.begun: Begun | None = None
        """What is being drawn for later, one picture at a time."""
        self.stopwatch = Stopwatch()
        self._ctx = ctx
        self._work = work
        self._stale_at = self._background_at = -math.inf
        self._loading: Frame | None = None
        """What the renderer reads when it draws next, or is reading."""
        self._expected: tuple[Frame, float] | None = None
        """The first frame that had not arrived when it came, and when that was."""
        self._look: SightLater | None = None
        self._torn = False
        """Whether the last scene that came turned out to be overwritten."""
        self._timed: tuple[object, ...] = ()
        self._timed_before: tuple[object, ...] = ()
        self._arrays: dict[tuple[str, ...], moderngl.VertexArray] = {}

    def update(self, value: Value) -> bool:
        """As `View.update`."""
        if not isinstance(value, (GaussianScene, Frame)):
            raise ViewerError(f"gaussians: a {type(value).__name__} is no scene")
        if self.busy:
            return False
        frame, background, ready = None, None, None
        if isinstance(value, GaussianScene):
            scene, self.on_gpu, background = value, False, value.background or self.background
        else:
            frame = value
            if not self._has_arrived(frame):
                return False
            with self.stopwatch("copy"):
                self.on_gpu = value.on_gpu and self.renderer.wants_gpu
                scene, ready = scene_of(value, self.choices, in_place=self.on_gpu)
                background = self._background_of(value)
            if not value.intact():
                return False
        sight = self.sight
        if sight is None or not scene.on_gpu or self._is_to_be_framed():
            sight, self.looked_at = Sight.of(scene, ready), self.now
            self.hints.hint = None if frame is None else hint_of(scene, ready)
        elif ready is not None and self.now - self.looked_at > _LOOK_PERIOD:
            self._look, self.looked_at = SightLater(scene, ready), self.now
        with self.stopwatch("load"):
            try:
                self.renderer.load(scene, ready)
            except RendererError as e:
                self._draw_with(instead(self.renderer, self._ctx, e))
                self.renderer.load(scene, ready)
        before, self._loading = self._loading, None
        if before is not None:  # it was never drawn
            self.has_looked(wait=True)
            before.close()
        if frame is not None and self.renderer.reading:
            frame.hold()
            self._loading = frame
        first, self.facts = self.facts is None, Facts.of(scene)
        self.sight, self.background, self.stale = sight, background, False
        self.loads += 1
        if first:
            for view in self.views:
                view.begin()
        return True

    def _has_arrived(self, frame: Frame) -> bool:
        """Return whether a frame may be read now; otherwise the caller brings it again. Waiting here for a trainer's
        GPU would delay everything else that is drawn. The newest frame of a trainer that is always ahead of its GPU has
        never arrived; the first one that was refused decides then."""
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

    def _is_to_be_framed(self) -> bool:
        """Whether a view is about to choose its camera by where the Gaussians are."""
        framed = False
        for view in self.views:
            if view.framed:
                framed = True
            elif view.in_use:
                return True
        return not framed  # the first one there is

    def _background_of(self, frame: Frame) -> Color | None:
        if frame.on_gpu and self.now - self._background_at < _BACKGROUND_PERIOD:
            return self.background
        self._background_at = self.now
        return background_of(frame)

    @property
    def busy(self) -> bool:
        """As `View.busy`."""
        return self._loading is not None and not self.renderer.pending

    @property
    def first_scale(self) -> float:
        """The resolution, up to 1, of the first picture of the scene."""
        count = 0 if self.facts is None else self.facts.count
        slow = count > _LARGE and not self.renderer.wants_gpu
        return max(math.sqrt(_LARGE / count), 0.25) if slow else 1.0

    # -- pictures ------------------------------------------------------------------------------------------

    @property
    def awaited(self) -> bool:
        """Whether the scene was overwritten, and a whole one is to come, so that nothing is to be drawn now."""
        # After that what there is has to do: its trainer has died.
        return self.stale and self.now - self._stale_at <= _REPLACED

    def lent(self, wanted: tuple[object, ...]) -> ScenePicture | None:
        """Somebody's picture that lies where the renderer drew it last, if it is this one (`ScenePicture.of`)."""
        return next((view.picture for view in self.views if view.picture.lent and view.picture.of == wanted), None)

    def render(self, place: ScenePicture, camera: Camera, options: RenderOptions, *words: str) -> Picture:
        """Draw the scene, to be shown in `place` only if `is_read` says so, asked when it is done.

        What everybody shows stays, in `place` as well as long as it does not become the new picture. `words`: more of
        them for the governor, of a picture that costs more than others.
        """
        self.land(wait=True)
        renderer, work = self.renderer, ("scene", camera.width, camera.height, *words)
        if len(self.views) > 1 or self._torn:
            self._make_room(place)
        if renderer.wants_gpu:  # it works with CUDA, which OpenGL's clock does not see
            if self._loading is not None:
                self._work.governor.gives(("load",), "cuda")
            self._work.governor.gives(work, "cuda")
            try:
                picture = renderer.render(camera, options)
            except RendererError as e:
                self._draw_with(instead(renderer, self._ctx, e))
                picture = self.renderer.render(camera, options)
        else:
            with self._work(*work):
                picture = renderer.render(camera, options)
        self._timed_before, self._timed = self._timed, work
        return picture

    def begin(self, place: ScenePicture, camera: Camera, options: RenderOptions,
              wanted: tuple[object, ...]) -> Picture | None:
        """As `render`, with depth, for `place` to become what is `wanted` when it is done; nothing is awaited. Returns
        a picture that cannot be moved along, to be shown as ever."""
        self.land(wait=True)
        reads = self._loading is not None
        picture = self.render(place, camera, options, BROUGHT)
        bring = getattr(picture, "bring", None)
        if bring is None or not bring():
            return picture
        self.begun = Begun(picture, place, camera, wanted, reads)
        self._work.flush()
        self.account()
        self.has_looked()  # only begins to look
        return None

    def land(self, *, wait: bool = False) -> None:
        """Have the picture that was begun shown in its place from now on, if it is done."""
        begun = self.begun
        if begun is None or not (wait or begun.picture.done):
            return
        self.begun = None
        whole = not begun.reads or self.is_read()
        source = begun.picture.brought() if whole else None
        if source is None:
            return
        begun.place.become(source, begun.camera, begun.of, lent=True, kept=begun.picture.kept)
        begun.place.landed = True

    def _make_room(self, place: ScenePicture) -> None:
        """The renderer is about to draw: have copied what lies in its memory and must not be lost.

        A picture of an earlier scene is about to be drawn anew itself, unless what is read now turns out to be
        overwritten.
        """
        for picture in [view.picture for view in self.views if view.picture.lent]:
            if self._loading is not None or (picture is not place and picture.of[-1] == self.loads):
                picture.keep()

    def gpu_ms(self, camera: Camera) -> float:
        """What OpenGL's GPU takes for such a picture, as far as that is known; 0 for a software rasteriser."""
        if self._work.software:
            return 0.0
        if len(self.views) > 1:  # the last one may have been of another size
            return self._work.governor.cost(("scene", camera.width, camera.height)) or 0.0
        return self._work.ms.get("scene", 0.0)

    def account(self) -> None:
        """Tell what CUDA took for what it did last. Takes a while, so when it is at work again."""
        if (ms := self.renderer.load_gpu_ms) is not None:
            self._work.took(("load",), ms)
        ms = self.renderer.gpu_ms
        if ms is not None and self._timed_before == self._timed:  # it is of one of the two, so only if they are alike
            self._work.took(self._timed, ms)

    def is_read(self) -> bool:
        """Let go of the frame whose picture is done. False for one that was overwritten meanwhile: the views are stale
        then, and show what they showed before until a whole one comes."""
        frame = self._loading
        if frame is None:
            return True
        self.renderer.wait()
        self.has_looked(wait=True)
        self._loading = None
        self.stale, self._stale_at = not frame.intact(), self.now
        self._torn = self.stale
        frame.close()
        return not self.stale

    def has_looked(self, *, wait: bool = False) -> bool:
        """Go on with reading where the Gaussians are, to its end if `wait`. Return whether nothing is left to read."""
        if self._look is not None and (sight := self._look.get(wait=wait)) is not None:
            self.sight, self._look = sight, None
        return self._look is None

    def vertex_array(self, defines: tuple[str, ...]) -> moderngl.VertexArray:
        """What lays a picture with these defines over the background."""
        if defines not in self._arrays:
            text = files("splatview_viewer.kinds.gaussians").joinpath("compose.glsl").read_text()
            program = self._ctx.program(vertex_shader=VERTEX, fragment_shader=fragment_head(defines) + text)
            self._arrays[defines] = self._ctx.vertex_array(program, [])
        return self._arrays[defines]

    # -- the loop ------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what could wait, once however many views ask for it; `loads` says whether anything is to be seen."""
        self.now = now
        self._work.collect()
        self.land()
        if (renderer := better(self.renderer, self._ctx)) is not None:
            self._draw_with(renderer)
            self.loads += 1
        elif self.renderer.tick():
            self.loads += 1
        if self.busy and not self.renderer.reading:  # a fault came between
            self.is_read()
        _ = self.renderer.pending or self.has_looked()  # the picture comes first

    def _draw_with(self, renderer: Renderer) -> None:
        """Have another renderer draw from now on, which has the scene; the one before has taken its pictures along."""
        self.renderer, self.begun = renderer, None
        for view in self.views:
            view.picture.lose()

    def leave(self) -> None:
        """As `View.leave`."""
        for view in self.views:
            view.in_use = False
        self.land(wait=True)
        if self.renderer.pending:
            self.renderer.read()
        self.is_read()

    def release(self, view: GaussianView) -> None:
        """A view is closed; with the last one everything is given back. Idempotent."""
        if view not in self.views:
            return
        self.views.remove(view)
        if self.begun is not None and self.begun.place is view.picture:
            with suppress(RendererError, SharingError):  # of a GPU that has failed: there is nothing to be shown
                self.land(wait=True)
        if self.views:
            return
        frame, self._loading = self._loading, None
        self.renderer.close()
        if frame is not None:
            frame.close()
        self.facts = None
        for array in self._arrays.values():
            array.program.release()
            array.release()
        self._arrays.clear()
