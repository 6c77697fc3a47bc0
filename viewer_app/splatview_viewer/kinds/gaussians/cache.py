"""The scene of a stream on the GPU, with the pictures of all its viewports."""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from typing import TYPE_CHECKING

from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import StreamFrame
from splatview_viewer.blocks.unpacking import UnpackedScene
from splatview_viewer.core.errors import RendererError, ViewerError
from splatview_viewer.core.view import Stopwatch
from splatview_viewer.gpu.costs import scaled_size
from splatview_viewer.kinds.gaussians.arrivals import FrameReader, NewScene
from splatview_viewer.kinds.gaussians.device_pictures import DevicePictures
from splatview_viewer.kinds.gaussians.drafts import Drafts
from splatview_viewer.kinds.gaussians.form_hints import detect_form
from splatview_viewer.kinds.gaussians.handing import Handing
from splatview_viewer.kinds.gaussians.moving import MovedPictures
from splatview_viewer.kinds.gaussians.picture import (
    Composer,
    GpuTask,
    PictureKey,
    ViewportPicture,
)
from splatview_viewer.kinds.gaussians.stepped import SteppedPictures, is_outdated
from splatview_viewer.kinds.gaussians.summary import GaussianSummary, sample_scene
from splatview_viewer.render.choose import choose_renderer, fallback_renderer
from splatview_viewer.render.paints import PAINTS
from splatview_viewer.scene.scene import GaussianScene
from splatview_viewer.ui.hints import Hints

if TYPE_CHECKING:
    from collections.abc import Callable

    import moderngl

    from splatview_viewer.core.settings import Color
    from splatview_viewer.core.view import Value
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.recording.player import Player
    from splatview_viewer.render.base import RenderedPicture, Renderer, RenderOptions
    from splatview_viewer.scene_view.sample import SceneSample

log = logging.getLogger("splatview")

_MAX_REPLACEMENT_S = 1.0
"""Seconds within which a scene that was overwritten while it was read is replaced, if
its trainer lives."""


class SceneCache:
    """The one owner of a scene's data on the GPU.

    Lives until the last of its pictures is released.

    Scenes on a GPU are read where they lie if the renderer can, in one go with the
    picture that shows them first: such a frame is held until that picture is done. If
    it was overwritten meanwhile, the picture is never shown.

    A viewport borrows the picture that the renderer made for it. Before the
    renderer draws another one, the pictures that are still shown are copied.
    """

    def __init__(
        self, ctx: moderngl.Context, gpu_work: GpuWork, renderer: Renderer | None = None
    ) -> None:
        self.ctx = ctx
        self.work = gpu_work
        self.renderer = renderer or choose_renderer(ctx)
        self.summary: GaussianSummary | None = None
        """Facts about the scene; None while there is none."""
        self.sample: SceneSample | None = None
        """A sample of the newest version. Of a scene on a GPU: of the first version, or
        of the one at the last `current_sample`."""
        self.now = 0.0
        """Time of the last turn of the loop."""
        self.hints = Hints()
        self.choices: set[str] = set()
        """The hints that the user obeyed."""
        self.background: Color | None = None
        """The stream's own."""
        self.stale = False
        """The writer overwrote the shown frame: the newest one is wanted again."""
        self.loads = 0
        """Number of scenes taken, and of renderers that draw better: pictures of an
        earlier number are old."""
        self.player: Player | None = None
        """Playback of what was recorded of the scene."""
        self.send_selection: Callable[[int, bytes, bool], None] | None = None
        """Sends the script a mask, as `SelectionSender.send`.

        The workspace sets it. None while the script reads none.
        """
        self.selecting: object = None
        """The tool of the view whose selection the script was sent last."""
        self.on_gpu = False
        """The scene is read where it lies."""
        self.stopwatch = Stopwatch()
        self.composer = Composer(ctx, gpu_work)
        self.moved = MovedPictures(self)
        """Moves the pictures while the camera moves."""
        self.stepped = SteppedPictures(self)
        """Draws pictures that take long."""
        self.drafts = Drafts(self)
        self.on_device = DevicePictures(self)
        """Draws pictures without OpenGL."""
        self.handing = Handing(self)
        """Hands the scene on to screens that draw it by themselves."""
        self.pictures: list[ViewportPicture] = []
        """The pictures of all viewports."""
        self._stale_at = -math.inf
        self._frame: StreamFrame | None = None
        """Held: the renderer reads it when it draws next, or is reading it."""
        self.frames = FrameReader(self)
        self._is_at_rest = False
        """No viewport shows the scene: what comes now is taken at once."""
        self._sample_loads = 0
        """The scene (`loads`) of `sample`."""
        self._was_torn = False
        """The last scene turned out to be overwritten."""
        self._last_tasks: tuple[GpuTask, GpuTask] = ((), ())

    # -- scenes --------------------------------------------------------------------

    def put(self, value: Value, in_steps: bool = False) -> bool:
        """Take a scene, or a frame of one, as `View.take`.

        Args:
            value: the scene, alone or unpacked from blocks, or the frame.
            in_steps: a large frame may be copied in another thread. It is not taken
                yet then, and to be put again: see `Wants.copied_frame`.
        """
        blocks = None
        if isinstance(value, UnpackedScene):
            blocks = value.blocks
            value = value.scene
        if not isinstance(value, (GaussianScene, StreamFrame)):
            raise ViewerError(f"gaussians: a {type(value).__name__} is no scene")
        if self.busy:
            return False
        if isinstance(value, GaussianScene):
            self.frames.copier.give_up()
            self.on_gpu = False
            background = value.background or self.background
            new = NewScene(value, None, None, background, blocks)
        else:
            scene = self.frames.read(value, in_steps and not self._is_at_rest)
            if scene is None:
                return False
            new = scene
        self._take_scene(new)
        return True

    def _take_scene(self, new: NewScene) -> None:
        """Have a scene be drawn from now on."""
        sample = self.sample
        if sample is None or not new.scene.on_gpu:
            sample = sample_scene(new.scene, new.ready)
            self._sample_loads = self.loads + 1
            self.hints.hint = None
            if new.frame is not None:
                self.hints.hint = detect_form(new.scene, new.ready)
        self.drafts.expect_version()
        # A trainer may change what is read in place.
        load = self.renderer.load if self.on_gpu else self.renderer.load_kept
        with self.stopwatch("load"):
            try:
                load(new.scene, new.ready)
            except RendererError as error:
                self._draw_with(fallback_renderer(self.renderer, self.ctx, error))
                self.renderer.load(new.scene, new.ready)
        self._hold(new.frame)
        self.summary = GaussianSummary.of_scene(new.scene)
        self.sample = sample
        self.background = new.background
        self.stale = False
        self.loads += 1
        self.handing.take(new.scene, new.blocks)

    def _hold(self, frame: StreamFrame | None) -> None:
        """Hold the frame of the loaded scene as long as the renderer reads it."""
        previous = self._frame
        self._frame = None
        # The frame before was never drawn.
        if previous is not None:
            previous.close()
        if frame is not None and self.renderer.reading:
            frame.hold()
            self._frame = frame

    def read_ahead(self) -> None:
        """Have the GPU read the scene while its picture is being prepared.

        For a caller that draws the picture at once: the trainer loses the GPU until
        then.
        """
        if self._frame is None:
            return
        # The picture shows what is wrong with the renderer.
        with suppress(RendererError):
            self.renderer.read()

    @property
    def busy(self) -> bool:
        """True while the last value is being read or drawn: no other can be taken."""
        is_reading = self._frame is not None and not self.renderer.pending
        is_working = self.stepped.is_drawing or self.handing.is_reading
        return is_reading or is_working

    @property
    def reads_scene(self) -> bool:
        """True if the next picture is read in one go with the scene, or is just now."""
        return self._frame is not None

    def current_sample(self) -> SceneSample | None:
        """Return a sample of the loaded version.

        Waits for the GPU if the version was not read yet.
        """
        if self._sample_loads != self.loads and self.renderer.reads_gpu:
            # The picture shows what is wrong with the renderer.
            with suppress(RendererError):
                self.sample = sample_scene(self.renderer.scene())
                self._sample_loads = self.loads
        return self.sample

    def finish_reading(self) -> bool:
        """Release the frame that was read with a picture, once that is done.

        Returns False if the frame was overwritten meanwhile: the views are stale then,
        and show what they showed before until a whole one comes.
        """
        frame = self._frame
        if frame is None:
            return True
        self.renderer.wait()
        self._frame = None
        self.stale = not frame.intact()
        self._stale_at = self.now
        self._was_torn = self.stale
        frame.close()
        return not self.stale

    @property
    def is_being_replaced(self) -> bool:
        """True while an overwritten scene is about to be replaced: nothing is drawn.

        After that the present one has to do: its trainer has died.
        """
        return self.stale and self.now - self._stale_at <= _MAX_REPLACEMENT_S

    # -- pictures ------------------------------------------------------------------

    def update_picture(
        self,
        picture: ViewportPicture,
        camera: Camera,
        options: RenderOptions,
        moving: bool,
        smooth: bool,
        in_steps: bool = False,
        background: Color | None = None,
    ) -> None:
        """Have a viewport's picture be what `camera` sees.

        The picture stays as it is, is moved to the camera, or is rendered again, or
        begun with.

        Args:
            picture: the viewport's picture.
            camera: the camera, in the viewport's size.
            options: the renderer's options.
            moving: a picture of lower resolution will do.
            smooth: the picture before, moved to the camera, will do.
            in_steps: the picture before will do until a new one, which takes long, is
                done.
            background: a picture that is rendered is best laid over this by CUDA
                (`ViewportPicture.on_device`); None: it is for OpenGL.
        """
        in_steps = in_steps and self.renderer.draws_in_steps
        if in_steps and self.stepped.awaits(picture, camera, options):
            return
        size = (camera.width, camera.height)
        key = PictureKey(camera.key, options, self.loads)
        picture.motion.towards = None
        may_move = smooth and (moving or self.is_being_replaced)
        if may_move and self.moved.can_move(picture, camera, options):
            self.moved.move_along(picture, camera, options)
            if picture.source is not None:
                return
        elif self.moved.queued is not None and self.moved.queued.key == key:
            self.moved.land(wait=True)
        if self.drafts.needs_scene(picture, options):
            self.stale = True
            self._stale_at = self.now
        if self.is_being_replaced:
            return
        # One that takes long is coarse first, so that it soon shows what was done.
        is_passing = moving or (in_steps and is_outdated(picture, camera, options))
        picture.scale = 1.0
        if is_passing:
            picture.scale = self.work.governor.scale("scene", size)
        if picture.scale < 1.0:
            camera = camera.resized(*scaled_size(size, picture.scale))
            key = key._replace(camera_key=camera.key)
        if key == picture.key and picture.serves(background):
            self.stepped.give_up(picture)
            return
        twin = self._find_twin(key)
        if twin is not None:
            self.stepped.give_up(picture)
            picture.become(
                twin.source, camera, key, is_borrowed=True, movable=twin.movable
            )
        elif in_steps:
            self.stepped.start(picture, camera, key, size, is_passing=is_passing)
        elif background is not None and self._suits_device(picture, size, may_move):
            self.on_device.draw(picture, camera, key, background)
        else:
            self._draw_for_opengl(picture, camera, key)

    def _suits_device(
        self, picture: ViewportPicture, size: tuple[int, int], may_move: bool
    ) -> bool:
        """Return whether a picture that is rendered can do without OpenGL.

        may_move: the next ones may be this one, moved along.
        """
        if picture.scale < 1.0:
            return False
        if not may_move or picture.movable is not None:
            return True
        return not self.moved.is_wanted(picture, size)

    def _draw_for_opengl(
        self, picture: ViewportPicture, camera: Camera, key: PictureKey
    ) -> None:
        """Render a picture at once."""
        with self.stopwatch("render"):
            rendered = self.render(picture, camera, key.options)
        self.take_rendered(picture, camera, key, rendered)

    def take_rendered(
        self,
        picture: ViewportPicture,
        camera: Camera,
        key: PictureKey,
        rendered: RenderedPicture,
    ) -> None:
        """Have a picture become what was rendered, unless the scene was overwritten."""
        options = key.options
        paint = PAINTS[options.paint]
        is_mapped = options.depth or paint.is_mapped
        with self.stopwatch("wait"):
            self.report_gpu_times()
            if is_mapped:
                source = picture.number_picture.source(rendered, self.now, paint)
            else:
                source = rendered.source()
            if self._frame is not None and not self.finish_reading():
                if is_mapped:
                    picture.number_picture.undo()
                return
        if is_mapped:
            picture.become(source, camera, key)
        else:
            picture.become(
                source, camera, key, is_borrowed=True, movable=rendered.movable
            )
        # The picture before one that is drawn in steps is copied each time.
        if len(self.pictures) == 1 and not self.renderer.draws_in_steps:
            picture.drop_copy()

    def _find_twin(self, key: PictureKey) -> ViewportPicture | None:
        """Return another viewport's picture that shows the same, where it was drawn."""
        for picture in self.pictures:
            if picture.is_borrowed and picture.key == key:
                return picture
        return None

    def render(
        self,
        picture: ViewportPicture,
        camera: Camera,
        options: RenderOptions,
        *extra_words: str,
    ) -> RenderedPicture:
        """Render the scene, to be shown only if `finish_reading` returns True then.

        All pictures stay, that of `picture` as well until it becomes the new one.

        extra_words: more words for the governor, of a picture that costs more than
            others.
        """
        if self.moved.queued is not None:
            self.moved.land(wait=True)
        self.stepped.land(wait=True)
        renderer = self.renderer
        draft_words = self.drafts.begin_picture(options)
        size = (camera.width, camera.height)
        task: GpuTask = ("scene", *size, *extra_words, *draft_words)
        if len(self.pictures) > 1 or self._was_torn:
            self._copy_borrowed_pictures(picture)
        if renderer.reads_gpu:
            try:
                rendered = renderer.render(camera, options)
            except RendererError as error:
                self._draw_with(fallback_renderer(renderer, self.ctx, error))
                rendered = self.renderer.render(camera, options)
            # It works with CUDA, which OpenGL's clock does not see.
            if self._frame is not None:
                self.work.governor.charge(("load",), "cuda")
            self.work.governor.charge(task, "cuda")
        else:
            with self.work(*task):
                rendered = renderer.render(camera, options)
        self._last_tasks = (self._last_tasks[1], task)
        return rendered

    def _copy_borrowed_pictures(self, drawn: ViewportPicture) -> None:
        """Copy the pictures that lie where `drawn` is about to be drawn."""
        for picture in [picture for picture in self.pictures if picture.is_borrowed]:
            # A picture of an earlier scene is about to be drawn again itself, unless
            # what is read now is overwritten. Drawn in steps, it is seen until then.
            is_current = picture.key is not None and picture.key.loads == self.loads
            stays = is_current or self.renderer.draws_in_steps
            if self._frame is not None or (picture is not drawn and stays):
                picture.keep(self.composer)

    def report_gpu_times(self) -> None:
        """Tell the governor what the renderer's own clocks say of what it did last.

        Reading them takes a while: call this when the GPU is at work again. The times of
        works on OpenGL are collected by the loop.
        """
        load_ms = self.renderer.load_gpu_ms
        if load_ms is not None:
            self.work.record(("load",), load_ms)
        picture_ms = self.renderer.gpu_ms
        # The time is of one of the last two works, so it counts only if they are alike.
        previous_task, last_task = self._last_tasks
        if picture_ms is not None and last_task == previous_task:
            self.work.record(last_task, picture_ms)

    # -- the loop ------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what could wait, once however many views ask for it."""
        self.now = now
        self._is_at_rest = False
        # Pictures of viewports that were hidden in this turn come to rest as well.
        for picture in self.pictures:
            if picture.motion.moved_at is None:
                picture.motion.moved_at = now
        if self.moved.queued is not None:
            self.moved.land()
        self.stepped.land()
        self.handing.tick()
        # A fault came between reading and drawing.
        if self.busy and not self.renderer.reading:
            self.finish_reading()

    def _draw_with(self, renderer: Renderer) -> None:
        """Have another renderer draw, which has the scene.

        The renderer before has taken its pictures along.
        """
        self.stepped.give_up()
        self.renderer = renderer
        self.moved.queued = None
        for picture in self.pictures:
            picture.lose()

    def rest(self) -> None:
        """Release what is held only to be drawn next: no viewport shows the scene."""
        self._is_at_rest = True
        self.frames.copier.give_up()
        self.moved.land(wait=True)
        if self.renderer.pending:
            self.renderer.read()
        self.finish_reading()
        self.handing.close()
        self.drop(*self.pictures)

    def drop(self, *pictures: ViewportPicture) -> None:
        """Release pictures that are not seen.

        Without any that is, what the renderer draws into is released as well.
        """
        # A GPU that has failed brings nothing: the next picture tells.
        with suppress(RendererError, SharingError):
            self.moved.land(wait=True)
        self.stepped.give_up(*pictures)
        for picture in pictures:
            picture.drop()
            picture.handed_to = None
        is_shown = any(not picture.is_empty for picture in self.pictures)
        # The first picture of another viewport may be in steps.
        if is_shown or self.stepped.is_drawing:
            return
        with suppress(RendererError):
            self.renderer.free_pictures()

    def release(self, picture: ViewportPicture) -> None:
        """Close a viewport's picture; with the last one, everything. Idempotent."""
        if picture not in self.pictures:
            return
        self.pictures.remove(picture)
        self.stepped.give_up(picture)
        if self.moved.queued is not None and self.moved.queued.picture is picture:
            # A GPU that has failed brings nothing, and nothing is to be shown.
            with suppress(RendererError, SharingError):
                self.moved.land(wait=True)
        picture.close()
        if self.pictures:
            return
        self.frames.copier.give_up()
        self.handing.close()
        frame = self._frame
        self._frame = None
        self.renderer.close()
        if frame is not None:
            frame.close()
        self.summary = None
        self.composer.close()
