"""The view of Gaussians.

The cache renders them, one pass lays the picture over the background, and tools do the
rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from splatview_viewer.core.errors import RendererError
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.settings import BACKDROP, BLACK
from splatview_viewer.core.view import (
    CANVAS_WORDS,
    DRAWN_THERE,
    WITHOUT_OPENGL,
    Info,
    Section,
    Wants,
)
from splatview_viewer.kinds.gaussians.cache import SceneCache
from splatview_viewer.kinds.gaussians.commands import commands_of, find_commands
from splatview_viewer.kinds.gaussians.filter import Filter
from splatview_viewer.kinds.gaussians.handing import obstacle_to_handing
from splatview_viewer.kinds.gaussians.history import HistoryTool
from splatview_viewer.kinds.gaussians.inspect import Inspect
from splatview_viewer.kinds.gaussians.look import LookTool
from splatview_viewer.kinds.gaussians.picture import HandedRange, ViewportPicture
from splatview_viewer.kinds.gaussians.region_tools import REGION_TOOLS
from splatview_viewer.kinds.gaussians.script_selection import SendSelection
from splatview_viewer.kinds.gaussians.select import Select
from splatview_viewer.kinds.gaussians.state import SHOWS, GaussianState, paint_of
from splatview_viewer.render.base import ALPHA_MIN, RenderOptions
from splatview_viewer.render.choose import renderer_note
from splatview_viewer.render.picking import pick_later
from splatview_viewer.scene import HIDDEN, flags
from splatview_viewer.scene.scene import SceneCopy
from splatview_viewer.scene_view.base import SceneViewBase
from splatview_viewer.scene_view.crop import Crop
from splatview_viewer.scene_view.frustums import Frustums
from splatview_viewer.scene_view.navigate import Navigate
from splatview_viewer.scene_view.tool import Tool, ToolSet
from splatview_viewer.scene_view.tool_strip import ToolStrip
from splatview_viewer.ui.legend import place_legend

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import moderngl
    import numpy as np
    import torch

    from splatview_ipc.gl.base import PixelSource
    from splatview_viewer.core.command import Command
    from splatview_viewer.core.handed import HandedOn
    from splatview_viewer.core.jobs import RunningJob
    from splatview_viewer.core.settings import Color
    from splatview_viewer.core.view import Value
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.kinds.gaussians.state import Show
    from splatview_viewer.kinds.gaussians.summary import GaussianSummary
    from splatview_viewer.recording.player import Player
    from splatview_viewer.render.picking import Hit

TOOLS: tuple[type[Tool[Any]], ...] = (
    ToolStrip,
    *REGION_TOOLS,
    Select,
    LookTool,
    Frustums,
    Crop,
    Inspect,
    Filter,
    SendSelection,
    HistoryTool,
)
"""The tools beside `PathTool` and `Navigate`, in the order in which events are offered
to them."""
_REST_S = 0.2
"""Seconds without input after which a coarse picture is drawn again in full."""


class GaussianView(SceneViewBase[SceneCache, GaussianState]):
    """One user's view of a scene: its camera, its picture, and its tools."""

    kind: ClassVar[str] = "gaussians"

    def __init__(self, data: SceneCache, state: GaussianState) -> None:
        super().__init__(data, state)
        self.picture = ViewportPicture(data.ctx)
        data.pictures.append(self.picture)
        self._drawn_loads = data.loads
        """The scene that was drawn last, or for which drawing was asked."""
        self._is_updated = False
        """`draw` shows the picture as `draw_on_device` has left it."""
        tools = [tool(self) for tool in TOOLS]
        self.tools = ToolSet(self, [*tools, self.path, Navigate(self)])

    def take(self, link: str, value: Value) -> bool:
        is_taken = self.data.put(value, in_steps=self._may_step)
        if is_taken:
            # The caller draws it.
            self._drawn_loads = self.data.loads
        return is_taken

    def await_value(self) -> None:
        self.data.stepped.await_version()

    # -- motion --------------------------------------------------------------------

    @property
    def is_moving(self) -> bool:
        """True if the camera was moved just now."""
        moved_at = self.picture.motion.moved_at
        return moved_at is None or self.data.now - moved_at < _REST_S

    def mark_moving(self) -> None:
        """Prefer a smooth picture to a sharp one for now."""
        self.picture.motion.moved_at = None

    # -- pictures ------------------------------------------------------------------

    @property
    def options(self) -> RenderOptions:
        """The renderer's options for the present state."""
        return self._options(is_draft=False)

    def _options(self, *, is_draft: bool) -> RenderOptions:
        state = self.state
        summary = self.data.summary
        mode = state.mode
        if mode == "scene":
            is_antialiased = summary is not None and summary.antialiased
            mode = "antialiased" if is_antialiased else "classic"
        selection = state.selection
        if self.host.exact:
            selection = selection.unmarked
        return RenderOptions(
            mode=mode,
            sh_degree=state.sh_degree,
            depth=state.show == "depth",
            paint=paint_of(state.show),
            scale=state.scale,
            point_px=state.point_px * self.host.scale,
            selection=selection,
            is_draft=is_draft,
        )

    @property
    def background(self) -> Color:
        """The colour behind the scene.

        Where none was chosen or published, it is that around pictures on the screen,
        and black, over which trainers draw, in a picture of the scene itself or one that
        is subtracted from another.
        """
        if self.host.exact == "scene" or self.host.is_subtracted:
            return self.exact_background
        return self._chosen_background or BACKDROP

    @property
    def exact_background(self) -> Color:
        """The colour behind a picture of the scene itself."""
        return self._chosen_background or BLACK

    @property
    def _chosen_background(self) -> Color | None:
        return self.state.background or self.data.background

    @property
    def seen_show(self) -> Show:
        """The `Show` of the picture on the screen.

        A `Show` that was just chosen counts once its first picture is done.
        """
        chosen = self.state.show
        key = self.picture.key
        if key is None:
            return chosen
        drawn = key.options
        if (drawn.paint, drawn.depth) == (paint_of(chosen), chosen == "depth"):
            return chosen
        if drawn.depth:
            return "depth"
        return drawn.paint

    @property
    def number_range(self) -> tuple[float, float]:
        """The numbers at both ends of the colour map."""
        by_hand = None
        show = self.seen_show
        if show == "depth":
            by_hand = self.state.depth_range
        elif show == "overdraw":
            by_hand = self.state.overdraw_range
        return by_hand or self.measured_range

    @property
    def measured_range(self) -> tuple[float, float]:
        """The range of the numbers in the picture; 0 to 0 while it is not known."""
        picture = self.picture
        if not self.is_handed:
            return picture.number_picture.range
        measured = picture.handed_range
        if measured is None or measured.show != self.state.show:
            return (0.0, 0.0)
        return measured.ends

    def take_range(self, show: str, ends: tuple[float, float], side: int = 0) -> bool:
        shown = self.state.show
        if show != shown or not SHOWS[shown].is_mapped:
            return False
        self.picture.handed_range = HandedRange(shown, ends)
        return True

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        data = self.data
        if not self._is_updated:
            self._update_picture(rect)
        self._is_updated = False
        self.picture.show_to_opengl()
        source = self.picture.source
        if self.picture.motion.towards is not None:
            source = data.moved.source(self.picture, self.rig.orbit.distance)
        with data.stopwatch("lay"):
            self._lay(source, framebuffer, rect)
        self.tools.draw(framebuffer, rect)

    def draw_on_device(self, rect: Rect, gpu: int | None) -> torch.Tensor | None:
        self._is_updated = False
        if not self._suits_device(gpu):
            return None
        background = self.background
        try:
            self._update_picture(rect, background)
        except RendererError:
            self.picture.lose()
            raise
        drawn = self.picture.on_device
        if drawn is None or drawn.background != background:
            # What was decided just now, and may have been drawn, is for `draw`.
            self._is_updated = True
            return None
        self.tools.note_picture()
        return drawn.pixels

    def hand_on(self, rect: Rect) -> HandedOn:
        handed = self.data.handing.hand_on(self, rect)
        if handed.drawing is not None:
            self._drawn_loads = self.data.loads
        return handed

    def handing_obstacle(self) -> str:
        return obstacle_to_handing(self)

    def draw_over_handed(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        self.tools.draw(framebuffer, rect)

    def _suits_device(self, gpu: int | None) -> bool:
        """Return whether CUDA alone may draw the next picture on a GPU; None: on any."""
        drawn_on = self.data.renderer.gpu
        if self.data.summary is None or drawn_on is None or gpu not in (None, drawn_on):
            return False
        show = self.state.show
        if show == "alpha" or SHOWS[show].is_mapped or self.host.exact:
            return False
        return not self.tools.paints

    def _update_picture(self, rect: Rect, background: Color | None = None) -> None:
        """Have the picture be that of the present camera.

        background: as for `SceneCache.update_picture`.
        """
        data = self.data
        is_exact = bool(self.host.exact)
        self.picture.handed_to = None
        self.rig.rect = rect
        # The orbit takes the place of a view that is followed, before anything else.
        _ = self.rig.orbit
        if data.summary is not None:
            can_move = self.state.smooth and SHOWS[self.state.show].can_be_moved
            is_draft = not is_exact and data.drafts.may_draw(self.picture)
            data.update_picture(
                self.picture,
                self.rig.camera_of_scene(rect),
                self._options(is_draft=is_draft),
                moving=self.is_moving and not is_exact,
                smooth=can_move and not is_exact,
                in_steps=self._may_step,
                background=background,
            )
        self._drawn_loads = data.loads
        self.drawn_camera = self.picture.motion.towards or self.picture.camera

    @property
    def _may_step(self) -> bool:
        """True if the last picture will do until the next one, which takes long, is done.

        Beside a photograph there is none of another camera.
        """
        if self.host.exact or not self.host.in_steps:
            return False
        return self.tools.of(Frustums).through.index is None

    @property
    def _is_pending(self) -> bool:
        """True while there is nothing new to show until a picture is done."""
        stepped = self.data.stepped
        if not stepped.is_drawing or not self._may_step:
            return False
        camera = self.rig.camera_of_scene(self.rig.rect)
        return stepped.awaits(self.picture, camera, self.options)

    @property
    def is_handed(self) -> bool:
        return self.picture.handed_to is not None

    def lay_picture(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        """Draw the picture that was drawn last once more, into another framebuffer."""
        self._lay(self.picture.source, framebuffer, rect)

    def _lay(
        self, source: PixelSource | None, framebuffer: moderngl.Framebuffer, rect: Rect
    ) -> None:
        """Draw pixels, or none, over the view's background."""
        try:
            self.data.composer.lay(
                source,
                framebuffer,
                rect,
                self.background,
                self.seen_show,
                (self.state.color_map, self.number_range),
            )
        except RendererError:
            # The renderer is awaited here, and has failed: it has to draw again.
            self.picture.lose()
            raise
        if self.data.renderer.reads_gpu:
            # The GPU turns from CUDA to OpenGL while the host goes on.
            self.data.work.flush()

    def tensor(self, width: int, height: int) -> torch.Tensor | None:
        """Return a queued picture in colours, in full resolution, without OpenGL.

        It is what `draw` would draw into a framebuffer of this size: uint8 (height,
        width, 3) on the GPU that draws, top row first, for what torch's current stream
        does next. None where CUDA does not draw.

        It counts once `finish_tensor` has returned True and the view is not stale.
        """
        data = self.data
        if data.summary is None or not data.renderer.reads_gpu:
            return None
        camera = self.rig.camera_of_scene(Rect(0, 0, width, height))
        return data.on_device.queue(self.picture, camera, self.options, self.background)

    def finish_tensor(self) -> bool:
        """Wait for the picture of `tensor`; return False if it has to be queued again.

        Afterwards the view is stale if the scene was overwritten meanwhile.
        """
        return self.data.on_device.finish()

    def pick_later(
        self, camera: Camera, x: float, y: float
    ) -> Callable[[], Hit | None]:
        """Start to find the Gaussian under a pixel, as `picking.pick_later`."""
        renderer = self.data.renderer
        scene = renderer.scene()
        return pick_later(scene, camera, x, y, self.options, renderer.rules)

    def seen_points(self) -> np.ndarray:
        """Return the centres (N, 3) of all that is drawn, were nothing cropped.

        Raises RendererError while the scene cannot be read.
        """
        scene = self.data.renderer.scene()
        selection = self.state.selection.cropped_by(None).unmarked

        def compute() -> list[torch.Tensor]:
            return [scene.means, scene.opacities, flags(scene, selection)]

        # The coefficients of a large scene are more than half of it, and stay there.
        means, opacities, bits = SceneCopy(scene, compute).arrays()
        return means[(bits & HIDDEN == 0) & (opacities >= ALPHA_MIN)]

    # -- the loop ------------------------------------------------------------------

    def tick(self, now: float) -> bool:
        """Advance to `now`; a coarse picture is drawn in full once the user rests."""
        data = self.data
        data.tick(now)
        needs_redraw = self._must_draw or self._drawn_loads != data.loads
        self._must_draw = False
        self._drawn_loads = data.loads
        needs_redraw |= self.tools.tick(now)
        needs_redraw |= data.moved.moves_on(self.picture, self.is_moving)
        needs_redraw |= data.drafts.must_replace(self.picture)
        is_coarse = self.picture.scale < 1.0 and not self._is_pending
        return needs_redraw or (is_coarse and not self.is_moving)

    def release(self, occasion: Literal["idle", "away", "closed", "last"]) -> None:
        if occasion == "idle":
            self.data.rest()
        elif occasion == "away":
            self.data.drop(self.picture)
        else:
            self.rig.motion.close()
            self.tools.close()
            self.data.release(self.picture)

    # -- tools ---------------------------------------------------------------------

    def legend_place(self, rect: Rect, scale: float) -> Rect | None:
        if self.tools.of(LookTool).has_legend:
            return place_legend(self.tools.above_bars(rect), scale)
        return self.tools.of(Frustums).through.legend_place(rect, scale)

    def ui(self, rect: Rect, scale: float) -> bool:
        # A picture to keep has nothing on it that only helps to look.
        if self.host.exact:
            return False
        self.has_lines = False
        needs_redraw = self.tools.draw_over(rect, scale)
        self._draw_hints(self.tools.above_bars(rect), scale)
        return needs_redraw

    def writes_about_picture(self) -> bool:
        return self.has_lines or self.tools.of(LookTool).has_legend

    def _draw_hints(self, rect: Rect, scale: float) -> None:
        """Draw what is odd about the scene; take it otherwise if the user says so."""
        hints = self.data.hints
        is_obeyed = hints.draw(rect, scale, self.host.name)
        if not is_obeyed or hints.hint is None:
            return
        self.data.choices.add(hints.hint.choice)
        self.data.frames.copier.give_up()
        # Hint and sample are of the scene as it was.
        hints.hint = None
        self.data.sample = None
        self.host.resend()

    def commands(self) -> Sequence[Command[Any]]:
        return commands_of(self)

    def find_commands(self, text: str) -> Sequence[Command[Any]]:
        return find_commands(self, text)

    def jobs(self) -> Sequence[RunningJob]:
        survey = self.tools.of(Frustums).survey
        own_jobs = [*self.path.film_maker.jobs(), *self.tools.of(Filter).jobs()]
        return [*own_jobs, *survey.jobs()]

    def panel(self) -> Sequence[Section]:
        return self.tools.sections()

    # -- beside other scenes -------------------------------------------------------

    def state_from(self, leader: Any) -> GaussianState:
        if leader.data is self.data:
            return leader.state
        return leader.state.for_another_scene(self.state)

    @property
    def playback(self) -> Player | None:
        return self.data.player

    # -- the caller's questions ----------------------------------------------------

    @property
    def wants(self) -> Wants:
        data = self.data
        return Wants(
            stale=data.stale,
            busy=data.busy,
            cuda=data.renderer.reads_gpu,
            moving=self.is_moving,
            pending=self._is_pending,
            copied_frame=data.frames.copier.frame,
        )

    def covered(self, rect: Rect) -> Sequence[Rect]:
        covered = self.tools.covered(rect)
        hints = self.data.hints
        if hints.hint is not None:
            covered += hints.covered(self.tools.above_bars(rect))
        return covered

    def info(self) -> Info:
        data = self.data
        summary = data.summary
        renderer = data.renderer
        if summary is None:
            return Info()
        transfer = "parameters uploaded"
        if data.on_gpu:
            transfer = "parameters read in place"
        way_to_screen = CANVAS_WORDS.get(renderer.bridge, "")
        if self.picture.on_device is not None:
            way_to_screen = WITHOUT_OPENGL
        elif self.picture.handed_to is not None:
            way_to_screen = DRAWN_THERE
        path = [
            transfer,
            f"{renderer.name} renderer",
            way_to_screen,
            renderer.draft_note,
        ]
        note = renderer_note(renderer)
        return Info(
            details=self._details(summary),
            extras=[note] if note else [],
            path=[phrase for phrase in path if phrase],
            facts=[f"{summary.count:,}"],
        )

    @property
    def timings(self) -> Mapping[str, float]:
        gpu_ms = self.data.renderer.gpu_ms
        if gpu_ms is None:
            return self.data.stopwatch.ms
        return {**self.data.stopwatch.ms, "GPU": gpu_ms}

    def _details(self, summary: GaussianSummary) -> list[str]:
        """Return short phrases about the scene and its picture."""
        renderer = self.data.renderer
        scale = self.picture.scale
        plural = "" if summary.count == 1 else "s"
        count = f"{summary.count:,} Gaussian{plural}"
        selection_filter = self.tools.get(Filter.name)
        if isinstance(selection_filter, Filter) and selection_filter.is_active:
            statistics = selection_filter.known_statistics
            if statistics is not None:
                count = f"{statistics.selected:,} of {count}"
        phrases = [
            count,
            renderer.left_out.summary(summary.count),
            renderer.thinned,
            *summary.phrases,
            *self.tools.details(),
            f"at {scale:.0%} for now" if scale < 1.0 else "",
            *summary.notes,
        ]
        return [phrase for phrase in phrases if phrase]
