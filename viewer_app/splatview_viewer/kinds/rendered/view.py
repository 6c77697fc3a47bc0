"""The view of a scene that a function draws, in another process.

It asks for the pictures that it needs, lays the newest one over the background, and tools
do the rest.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from splatview_viewer.core.errors import RendererError
from splatview_viewer.core.handed import HandedOn
from splatview_viewer.core.settings import BACKDROP, BLACK
from splatview_viewer.core.view import Info, Section, Wants
from splatview_viewer.gpu.costs import scale_within, scaled_size
from splatview_viewer.kinds.rendered.commands import commands_of, find_commands
from splatview_viewer.kinds.rendered.content import RenderedContent
from splatview_viewer.kinds.rendered.layer import PictureLayer, can_move
from splatview_viewer.kinds.rendered.picking import pick
from splatview_viewer.kinds.rendered.requests import PictureRequest
from splatview_viewer.kinds.rendered.state import RenderedState
from splatview_viewer.kinds.rendered.trouble import draw_trouble, draw_wait
from splatview_viewer.scene_view.base import SceneViewBase
from splatview_viewer.scene_view.frustums import Frustums
from splatview_viewer.scene_view.navigate import Navigate
from splatview_viewer.scene_view.tool import ToolSet
from splatview_viewer.scene_view.tool_strip import ToolStrip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import moderngl

    from splatview_viewer.core.command import Command
    from splatview_viewer.core.jobs import RunningJob
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.settings import Color
    from splatview_viewer.core.view import Release, Value
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.kinds.rendered.picking import ScenePoint
    from splatview_viewer.kinds.rendered.requests import FunctionPicture, PictureInbox

_REST_S = 0.2
"""Seconds without input after which a draft is replaced by a full picture."""
_DRAFT_S = 1 / 15
_MOVED_DRAFT_S = 1 / 6
"""Seconds that a picture may take while the camera moves; it has fewer pixels if it would
take longer. The latter where the last one is moved along meanwhile."""
_MIN_DRAFT_SCALE = 0.25
_FLUENT_S = 0.03
"""Seconds from a request to its picture up to which none is moved along meanwhile."""
_REFRESH_SHARE = 0.25
"""Share of the time that the function may draw for a camera that rests, as the training
goes on."""
_LATE_S = 2
"""Seconds without a picture after which the user is told that one is awaited."""
_SMOOTH_TIP = (
    "While a picture of where the camera is now is being drawn, move the last one there "
    "by its depth, if the function returns depth."
)
_PENDING_S = 1.0
"""Seconds for which nothing else is drawn either while a picture is awaited."""


class RenderedView(SceneViewBase[RenderedContent, RenderedState]):
    """One user's view of a scene: its camera, its picture, and its tools."""

    kind: ClassVar[str] = "rendered"

    def __init__(self, data: RenderedContent, state: RenderedState) -> None:
        super().__init__(data, state)
        self._inbox = data.requests.open()
        """The picture on the screen."""
        self._exact_inbox: PictureInbox | None = None
        """The picture that is drawn exactly; None before there was one."""
        self._layer = PictureLayer(data.ctx, data.work)
        self._moved_at = -math.inf
        self._drawn_words: tuple[str, int] = "", 0
        """Trouble, and the seconds of waiting, that the last picture tells."""
        tools = [ToolStrip(self), Frustums(self), self.path, Navigate(self)]
        self.tools = ToolSet(self, tools)

    def take(self, link: str, value: Value) -> bool:
        return self.data.take(value)

    # -- motion --------------------------------------------------------------------

    @property
    def is_moving(self) -> bool:
        """True if the camera was moved, or a control of the script set, just now."""
        moved_at = max(self._moved_at, self.data.controls.set_at)
        return self.data.now - moved_at < _REST_S

    def mark_moving(self) -> None:
        """Prefer a smooth picture to a sharp one for now."""
        self._moved_at = self.data.now

    # -- requests ------------------------------------------------------------------

    def _want_present(self, rect: Rect) -> None:
        """Have the picture of the present camera be drawn, in `rect`."""
        camera = self.rig.camera_of_scene(rect)
        picture = self._inbox.picture
        loads = self.data.loads
        request = PictureRequest(camera, loads)
        if picture is not None and self.is_moving:
            budget_scale = self.data.requests.budget.draft_scale(camera)
            is_moved = self.state.smooth and picture.pixels.depth is not None
            limit_s = _MOVED_DRAFT_S if is_moved else _DRAFT_S
            # A few sizes alone, so that the cost of each is measured often.
            scale = scale_within(
                min(_draft_scale(picture, camera, limit_s), budget_scale)
            )
            if scale < 1:
                request = PictureRequest(_scaled(camera, scale), loads, is_draft=True)
        elif picture is not None and _is_same_view(picture.camera, camera):
            pause = picture.seconds / _REFRESH_SHARE
            is_asked = picture.request.loads < self.data.controls.asked_loads
            if not is_asked and self.data.now < picture.received_at + pause:
                request = PictureRequest(picture.camera, picture.request.loads)
        if self._inbox.want(request, self.data.now):
            # The request is sent in the next turn.
            self.host.wake()

    def awaits_picture(self, rect: Rect) -> bool:
        if self.data.summary is None:
            return True
        if self._exact_inbox is None:
            self._exact_inbox = self.data.requests.open(is_exact=True)
        inbox = self._exact_inbox
        camera = self.rig.camera_of_scene(rect)
        request = inbox.request
        if request is None or request.camera != camera:
            inbox.fault_text = ""
            wanted = PictureRequest(camera, self.data.loads)
            inbox.want(wanted, self.data.now)
            seen = self._inbox.picture
            if seen is not None and seen.answers(wanted):
                # The function need not draw once more what is on the screen.
                inbox.put(seen)
            self.host.wake()
        if inbox.is_waiting:
            return True
        # The next exact picture of this camera is of the scene as it is then.
        inbox.request = None
        return False

    @property
    def fault_text(self) -> str:
        inbox = self._exact_inbox if self.host.exact else self._inbox
        if self.data.fault_text or inbox is None:
            return self.data.fault_text
        return inbox.fault_text

    @property
    def _late_s(self) -> int:
        """Whole seconds for which the function has been asked in vain; 0 below _LATE_S."""
        data = self.data
        is_asked = data.now < data.requests.sent_at + _LATE_S
        late_s = int(self._inbox.seconds_without(data.now))
        if not is_asked or late_s < _LATE_S:
            return 0
        return late_s

    # -- pictures ------------------------------------------------------------------

    @property
    def background(self) -> Color:
        """The colour behind what the function leaves transparent."""
        if self.state.background is not None:
            return self.state.background
        if self.host.exact == "scene" or self.host.is_subtracted:
            return BLACK
        return BACKDROP

    @property
    def picture(self) -> FunctionPicture | None:
        """The newest picture on the screen; None before the first one."""
        return self._inbox.picture

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        self.rig.rect = rect
        # The orbit takes the place of a view that is followed, before anything else.
        _ = self.rig.orbit
        camera = self.rig.camera_of_scene(rect)
        if self.host.exact:
            picture = self._exact_picture(camera)
        else:
            self._want_present(rect)
            picture = self._inbox.picture
            self._inbox.has_change = False
        self._layer.picture = picture
        self._layer.towards = camera if self._moves_along(camera) else None
        self.drawn_camera = self._layer.camera or camera
        self.lay_picture(framebuffer, rect)
        self.tools.draw(framebuffer, rect)

    def _exact_picture(self, camera: Camera) -> FunctionPicture:
        """Return the picture of exactly this camera. Raises RendererError without one."""
        inbox = self._exact_inbox
        picture = None if inbox is None else inbox.picture
        if picture is None or picture.camera != camera:
            if self.fault_text:
                raise RendererError(f"the picture cannot be drawn: {self.fault_text}")
            raise RendererError(
                "the function has not drawn the picture of this camera yet; try again"
            )
        return picture

    def lay_picture(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        """Draw the picture that was drawn last once more, into another framebuffer."""
        middle = self.rig.orbit.distance
        self._layer.draw(framebuffer, rect, self.background, middle)

    def _moves_along(self, camera: Camera) -> bool:
        """Return whether the last picture is moved to a camera until the next comes."""
        picture = self._inbox.picture
        if self.host.exact or picture is None or not self.state.smooth:
            return False
        is_held_back = self.data.requests.budget.is_limited
        is_slow = picture.seconds > _FLUENT_S or is_held_back
        return is_slow and can_move(picture, camera)

    def pick_later(
        self, camera: Camera, x: float, y: float
    ) -> Callable[[], ScenePoint | None]:
        """Start to find the point under a pixel, as `SceneView.pick_later`."""
        picture = self._inbox.picture
        sample = self.data.sample

        def find() -> ScenePoint | None:
            return pick(picture, sample, camera, x, y)

        return find

    # -- the loop ------------------------------------------------------------------

    def tick(self, now: float) -> bool:
        """Advance to `now`; a draft is followed by a full picture once the user rests."""
        data = self.data
        data.now = now
        needs_redraw = self._must_draw or self._inbox.has_change
        words = self.fault_text, self._late_s
        needs_redraw |= words != self._drawn_words
        self._must_draw = False
        self._inbox.has_change = False
        self._drawn_words = words
        needs_redraw |= self.tools.tick(now)
        if self._inbox.request is not None and self.state.place.framed:
            self._want_present(self.rig.rect)
        return needs_redraw

    def release(self, occasion: Release) -> None:
        if occasion == "idle":
            return
        # Nothing is drawn for a picture that is not seen.
        self._inbox.request = None
        self._layer.drop()
        if occasion == "away":
            return
        self.rig.motion.close()
        self.tools.close()
        self._layer.close()
        for inbox in (self._inbox, self._exact_inbox):
            if inbox is not None:
                self.data.requests.close(inbox)
        if occasion == "last":
            self.data.close()

    # -- tools ---------------------------------------------------------------------

    def ui(self, rect: Rect, scale: float) -> bool:
        # A picture to keep has nothing on it that only helps to look.
        if self.host.exact:
            return False
        self.has_lines = False
        needs_redraw = self.tools.draw_over(rect, scale)
        if self.fault_text:
            above_bars = self.tools.above_bars(rect)
            draw_trouble(self.data.function, self.fault_text, above_bars, scale)
        elif self._late_s:
            above_bars = self.tools.above_bars(rect)
            draw_wait(self.data.function, self._late_s, above_bars, scale)
        return needs_redraw

    def writes_about_picture(self) -> bool:
        return self.has_lines or bool(self.fault_text or self._late_s)

    def covered(self, rect: Rect) -> Sequence[Rect]:
        return self.tools.covered(rect)

    def legend_place(self, rect: Rect, scale: float) -> Rect | None:
        return self.tools.of(Frustums).through.legend_place(rect, scale)

    def hand_on(self, rect: Rect) -> HandedOn:
        return HandedOn(reason="A function of the script draws this scene.")

    def commands(self) -> Sequence[Command[Any]]:
        return commands_of(self)

    def find_commands(self, text: str) -> Sequence[Command[Any]]:
        return find_commands(self, text)

    def jobs(self) -> Sequence[RunningJob]:
        survey = self.tools.of(Frustums).survey
        return [*self.path.film_maker.jobs(), *survey.jobs()]

    def panel(self) -> Sequence[Section]:
        show = Section("Show", self._draw_controls, opened=True, reset=self._reset)
        return [show, *self.tools.sections()]

    def _draw_controls(self) -> None:
        from splatview_viewer.ui import theme
        from splatview_viewer.ui import widgets as ui
        from splatview_viewer.ui.color_field import draw_color

        for phrase in self._phrases():
            ui.wrapped(phrase, theme.DIM)
        background = draw_color(
            "Background",
            "Colour behind what the function leaves transparent",
            self.background,
        )
        if background != self.background:
            self.change(background=background)
        smooth = ui.check("Smooth motion", _SMOOTH_TIP, self.state.smooth)
        if smooth != self.state.smooth:
            self.change(smooth=smooth)

    def _reset(self) -> None:
        """Show the scene as at first, seen from where it is seen."""
        state = self.state
        self.state = RenderedState(place=state.place, training=state.training)

    # -- beside other scenes -------------------------------------------------------

    # -- the caller's questions ----------------------------------------------------

    @property
    def wants(self) -> Wants:
        return Wants(
            cuda=self.data.requests.budget.is_on_gpu,
            moving=self.is_moving,
            pending=self._is_pending,
        )

    @property
    def _is_pending(self) -> bool:
        """True while there is nothing new to show until a picture comes."""
        inbox = self._inbox
        if self.host.exact or inbox.picture is None or self.fault_text:
            return False
        if inbox.request is not None and self._moves_along(inbox.request.camera):
            return False
        is_late = self.data.now - inbox.waiting_since > _PENDING_S
        return inbox.is_waiting and not inbox.has_change and not is_late

    def info(self) -> Info:
        phrases = self._phrases()
        details = [*phrases, *self.tools.details()]
        picture = self.picture
        if picture is not None and picture.request.is_draft:
            scale = picture.camera.height / max(self.rig.rect.height, 1)
            details.append(f"at {scale:.0%} for now")
        if self._layer.towards is not None:
            details.append("moved along for now")
        if self.data.step is not None:
            details.append(f"step {self.data.step:,}")
        return Info(details=details, path=phrases, facts=phrases[1:])

    def _phrases(self) -> list[str]:
        """Return who draws the pictures, and how long one takes."""
        phrases = [f"drawn by {self.data.function or 'a function'}"]
        if self.picture is not None:
            phrases.append(f"{self.picture.ms:.3g} ms a picture")
        return phrases

    @property
    def timings(self) -> Mapping[str, float]:
        if self.picture is None:
            return {}
        return {"function": self.picture.ms}


def _draft_scale(picture: FunctionPicture, camera: Camera, limit_s: float) -> float:
    """Return the scale of the next picture's sides at which it comes in time.

    Args:
        picture: the last one, of any size.
        camera: the camera of a picture in full resolution.
        limit_s: seconds.
    """
    pixels = picture.camera.width * picture.camera.height
    full_s = picture.seconds * camera.width * camera.height / pixels
    if full_s <= limit_s:
        return 1.0
    return max(math.sqrt(limit_s / full_s), _MIN_DRAFT_SCALE)


def _scaled(camera: Camera, scale: float) -> Camera:
    """Return a camera that sees the same in fewer pixels."""
    return camera.resized(*scaled_size((camera.width, camera.height), scale))


def _is_same_view(first: Camera, second: Camera) -> bool:
    """Return whether two cameras see the same but for their limits of depth.

    The near one follows the points of the scene.
    """
    return replace(first, near=second.near, far=second.far) == second
