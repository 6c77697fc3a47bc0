"""The cameras that a scene is trained with, and their photographs."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from splatview_viewer.core.events import (
    Key,
    Pinch,
    PointerLeave,
    PointerMove,
    PointerPress,
    PointerRelease,
    Wheel,
)
from splatview_viewer.core.view import KeyHelp, Section
from splatview_viewer.geometry.orbit import SECONDS
from splatview_viewer.render.cameras.drawing import (
    FrustumStyle,
    camera_at,
    draw_name_tag,
)
from splatview_viewer.scene_view.clicks import ClickGesture
from splatview_viewer.scene_view.frustums_panel import draw_bar, draw_panel, state_words
from splatview_viewer.scene_view.looking_through import LookingThrough
from splatview_viewer.scene_view.phone_visit import visit_of
from splatview_viewer.scene_view.photo_survey import PhotoSurvey
from splatview_viewer.scene_view.protocol import TrainedView
from splatview_viewer.scene_view.state import TrainingDisplay
from splatview_viewer.scene_view.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    import moderngl

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.view import Visit
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.geometry.training_cameras import CameraSet
    from splatview_viewer.render.cameras.content import CamerasContent
    from splatview_viewer.scene_view.looking_through import PhotoOnScreen

BAR_HEIGHT = 40.0
"""Points that the bar is high while the view looks through a camera."""
_HOVER_REACH = 8.0
"""Points around a camera's centre that count as the camera."""
_LINE_WIDTH = 1.5
"""Width of lines, in points."""
_FOLLOW_PERIOD = 0.75
"""Seconds between two cameras of a training that is followed: it may go through a
hundred in that time."""
_REDRAW_PERIOD = 0.1
"""Seconds within which the camera that is trained with is marked."""


class Frustums(Tool[TrainedView]):
    """Draws the cameras over the scene, and has the view look through them."""

    name: ClassVar[str] = "frustums"
    escape_layer: ClassVar[int] = 1
    keys: ClassVar[Sequence[KeyHelp]] = (
        KeyHelp("Training cameras", "Click a camera", "Look through it"),
        KeyHelp("Training cameras", "Page up, Page down", "The one before, after"),
        KeyHelp("Training cameras", "Escape", "Back to where you were"),
    )

    def __init__(self, view: TrainedView) -> None:
        super().__init__(view)
        self.hovered: int | None = None
        """The camera under the pointer."""
        self.last_index = 0
        """The camera that was looked through last."""
        self.is_following = False
        """The view looks through the camera that is trained with."""
        self.through = LookingThrough(view)
        self.survey = PhotoSurvey(view)
        self._content: CamerasContent | None = None
        self._drawn_changes = 0
        """The change of the content that was drawn last."""
        self._drawn_at = -math.inf
        self._up_cameras: CameraSet | None = None
        """The cameras that were asked what is up."""
        self._click = ClickGesture()
        self._clicked: int | None = None
        """The camera that was pressed."""
        self._panned_from: tuple[float, float] | None = None
        """Where a finger that pans the photograph was last."""
        self._is_pressed = False
        """Some button is down: a drag is no hovering."""
        self._needs_redraw = False
        self._followed_at = -math.inf

    @property
    def state(self) -> TrainingDisplay:
        return self.view.state.training

    def change(self, **fields: Any) -> None:
        """Change fields of the state."""
        self.view.change(training=replace(self.state, **fields))

    def reset(self) -> None:
        """Show the cameras as at first; who looks through one goes on with it."""
        self.view.change(training=TrainingDisplay(through=self.state.through))

    # -- the cameras ---------------------------------------------------------------

    @property
    def content(self) -> CamerasContent | None:
        """The cameras of the scene's run; None while none are published."""
        content = self._content
        if content is None or content.closed or content.cameras is None:
            return None
        return content

    @property
    def cameras(self) -> CameraSet | None:
        content = self.content
        if content is None:
            return None
        return content.cameras

    def wake(self) -> None:
        """Wake the loop: a photograph has arrived in another thread."""
        self.view.host.wake()

    def use(self, content: CamerasContent | None) -> None:
        """Show these cameras from now on; None: no cameras."""
        if content is self._content:
            return
        if self._content is not None:
            self._content.leave(self)
        if content is not None:
            content.join(self)
        if self.through.index is not None:
            self.through.leave()
        self.survey.forget()
        self._content = content
        self.hovered = None
        self._needs_redraw = True
        self._up_cameras = None

    @property
    def depth(self) -> float:
        """Depth of the frustums, world units."""
        if self.cameras is None:
            return 1.0
        return 0.5 * self.cameras.spacing * self.state.size

    def enter(self, index: int, seconds: float = SECONDS) -> None:
        """Look through a camera, or say that it is none.

        Args:
            seconds: duration of the flight to it.
        """
        cameras = self.cameras
        if cameras is not None and self.view.data.summary is not None:
            if self.through.enter(cameras, index, seconds):
                self.last_index = index
            else:
                self.view.host.notify(
                    f"Camera {index} is no camera: its matrix is no pose"
                )
        self.hovered = None
        self._needs_redraw = True

    def choose(self, index: int) -> None:
        """Look through the camera that the user chose, and follow no training."""
        self.is_following = False
        self.enter(index)

    def step(self, step: int) -> None:
        """Look through the next valid camera in the user's order; -1: the one before."""
        cameras = self.cameras
        index = self.through.index
        if cameras is None or index is None:
            return
        count = len(cameras)
        order = self.survey.order(cameras)
        rank = order.index(index)
        candidates = [order[(rank + step * i) % count] for i in range(1, count + 1)]
        self.choose(next((i for i in candidates if cameras.is_valid[i]), index))

    def order_by_psnr(self, is_by_psnr: bool) -> None:
        """Go through the cameras by PSNR from now on, measured now if it is not known."""
        cameras = self.cameras
        self.survey.is_by_psnr = is_by_psnr
        if not is_by_psnr:
            self.survey.cancel()
        elif cameras is not None and not self.survey.is_current:
            self.survey.start(cameras)
        self._needs_redraw = True

    def go_to_worst(self) -> None:
        """Look through the camera of the worst photograph, once all are measured."""
        self.is_following = False
        self.survey.seeks_worst = True
        if not self.survey.is_running:
            self.order_by_psnr(True)

    def reason_no_worst(self) -> str | None:
        """Return why no photograph is the worst one; None: one is, or will be."""
        cameras = self.cameras
        if cameras is None:
            return "there are no training cameras"
        if not cameras.has_photos:
            return "the cameras were published without photographs"
        return None

    def leave(self) -> None:
        """Look from where the view looked before."""
        self.is_following = False
        self.through.leave(back=True)
        self._needs_redraw = True

    def follow(self, is_following: bool) -> None:
        """Look through the camera that is trained with from now on, or no longer."""
        self.is_following = is_following
        self._followed_at = -math.inf
        self._needs_redraw = True

    # -- events --------------------------------------------------------------------

    @property
    def is_useful(self) -> bool:
        return self.content is not None

    @property
    def hides_axes(self) -> bool:
        # A photograph lies there, and its direction of view is known.
        return self.through.index is not None

    def handle(self, event: Event, rect: Rect) -> bool | None:
        if self.content is None:
            return None
        if self.view.host.is_subtracted:
            return self._handle_unseen(event, rect)
        if self.through.is_there and self.state.comparison == "wipe":
            needs_redraw = self._handle_divider(event, rect)
            if needs_redraw is not None:
                return needs_redraw
        if isinstance(event, Key):
            return self._handle_key(event)
        if self.through.index is not None and self.view.host.around == "phone":
            needs_redraw = self._handle_pan(event, rect)
            if needs_redraw is not None:
                return needs_redraw
        return self._handle_pointer(event, rect)

    def _handle_unseen(self, event: Event, rect: Rect) -> bool | None:
        """Take keys alone: nothing of the cameras is drawn that could be clicked."""
        if isinstance(event, Key):
            return self._handle_key(event)
        self._click.cancel()
        self._hover(math.nan, math.nan, rect)
        return None

    def _handle_pan(self, event: Event, rect: Rect) -> bool | None:
        """Pan and magnify the photograph: a finger never leaves its camera."""
        through = self.through
        match event:
            case PointerPress(button="left", clicks=2):
                through.magnify(0.0, (event.x, event.y), rect)
                return True
            case PointerPress(button="left"):
                self._panned_from = (event.x, event.y)
                return False
            case PointerMove() if self._panned_from is not None:
                x, y = self._panned_from
                self._panned_from = (event.x, event.y)
                through.pan(event.x - x, event.y - y, rect)
                return True
            case PointerRelease() if self._panned_from is not None:
                self._panned_from = None
                return False
            case Pinch():
                through.magnify(event.factor, (event.x, event.y), rect)
                through.pan(event.dx, event.dy, rect)
                return True
            case Wheel():
                through.magnify(1.15**event.dy, (event.x, event.y), rect)
                return True
        return None

    def _handle_divider(self, event: Event, rect: Rect) -> bool | None:
        divider = self.through.divider
        divider.position = self.state.divider_position
        photo_rect = self.through.photo_rect(rect)
        needs_redraw = divider.handle(event, photo_rect, self.view.host.scale)
        if needs_redraw is not None:
            self.change(divider_position=divider.position)
        return needs_redraw

    def _handle_key(self, event: Key) -> bool | None:
        is_escape = event.name == "escape" and event.pressed and not event.mods
        if not is_escape or self.through.index is None:
            return None
        self.leave()
        return True

    def _handle_pointer(self, event: Event, rect: Rect) -> bool | None:
        """Hover and click; drags are for the camera, which may move as well."""
        match event:
            case PointerMove():
                self._click.move(event.x, event.y, self.view.host.scale)
                if not self._is_pressed:
                    self._hover(event.x, event.y, rect)
            case PointerLeave():
                self._hover(math.nan, math.nan, rect)
            case PointerPress():
                self._is_pressed = True
                self._click.cancel()
                if event.button == "left" and event.clicks == 1 and not event.mods:
                    # A finger has not hovered before.
                    self._hover(event.x, event.y, rect)
                    self._clicked = self.hovered
                    if self._clicked is not None:
                        self._click.press(event.x, event.y)
            case PointerRelease():
                self._is_pressed = False
                is_click = self._click.release() and event.button == "left"
                if is_click and self._clicked is not None:
                    self.view.rig.orbit.let_go()
                    self.choose(self._clicked)
                    return True
            case Pinch():
                self._click.cancel()
        return None

    def _hover(self, x: float, y: float, rect: Rect) -> None:
        hovered = self._camera_under(x, y, rect)
        if hovered != self.hovered:
            self.hovered = hovered
            self._needs_redraw = True

    def _camera_under(self, x: float, y: float, rect: Rect) -> int | None:
        """Return the number of the camera under a pixel of the screen."""
        cameras = self.cameras
        is_open = self.state.shown and self.through.index is None
        if cameras is None or not is_open or not rect.contains(x, y):
            return None
        camera = self.view.rig.camera(rect)
        if camera is None:
            return None
        max_distance = _HOVER_REACH * self.view.host.scale
        return camera_at(
            cameras, camera, self.depth, x - rect.x, y - rect.y, max_distance
        )

    # -- time ----------------------------------------------------------------------

    def tick(self, now: float) -> bool:
        needs_redraw = self._needs_redraw
        self._needs_redraw = False
        content = self.content
        if content is None or content.cameras is None:
            return needs_redraw
        cameras = content.cameras
        if cameras is not self._up_cameras:
            self._up_cameras = cameras
            if cameras.is_valid.any():
                self.view.rig.up_axis.use_cameras(cameras.viewmats[cameras.is_valid])
        is_visit = self.view.host.around == "phone" and self.through.index is not None
        shows_pictures = self.state.shown and self.state.pictures
        content.wants_thumbnails = shows_pictures or is_visit
        content.tick(now)
        is_due = now - self._drawn_at >= _REDRAW_PERIOD
        if content.changes != self._drawn_changes and is_due:
            self._drawn_changes = content.changes
            self._drawn_at = now
            needs_redraw |= self.state.shown or self.through.index is not None
        data = self.view.data
        if data.sample is not None:
            needs_redraw |= content.hints.compare(data.sample.means, data.loads, now)
        needs_redraw |= self.through.tick(content, cameras, now)
        looked_at = self.through.index
        needs_redraw |= self.survey.tick(content, cameras, now, looked_at)
        worst = self.survey.take_worst()
        if worst is not None:
            self.enter(worst)
        needs_redraw |= self._follow_training(content, now)
        return needs_redraw

    def _follow_training(self, content: CamerasContent, now: float) -> bool:
        """Look through the camera that is trained with now, if that is followed."""
        is_due = now - self._followed_at >= _FOLLOW_PERIOD
        if not self.is_following or not is_due:
            return False
        if content.current is None or self.view.data.summary is None:
            return False
        if self.through.index is None and self._followed_at > -math.inf:
            # The user has gone elsewhere.
            self.is_following = False
        elif content.current != self.through.index:
            self.enter(content.current, 0.0)
        self._followed_at = now
        return True

    # -- pictures ------------------------------------------------------------------

    @property
    def paints(self) -> bool:
        if self._hidden_by_host or self.content is None:
            return False
        return self.shows_photo or (self.state.shown and not self.through.is_there)

    @property
    def shows_photo(self) -> bool:
        """True while a photograph is compared with the picture."""
        is_compared = self.state.comparison != "render"
        return self.content is not None and self.through.is_there and is_compared

    @property
    def shows_errors(self) -> bool:
        """True while the differences from a photograph are shown in its place."""
        return self.shows_photo and self.state.comparison == "error"

    # -- screens that draw the picture by themselves ---------------------------------

    def camera_on_screen(self, camera: Camera, rect: Rect) -> Camera:
        """Return the camera of such a screen, as `LookingThrough.camera_on_screen`."""
        content = self.content
        if content is None:
            return camera
        return self.through.camera_on_screen(camera, rect, content)

    def photo_on_screen(self, rect: Rect) -> PhotoOnScreen | None:
        """Return the photograph of such a screen, as `LookingThrough.photo_on_screen`."""
        content = self.content
        if content is None:
            return None
        return self.through.photo_on_screen(rect, content)

    @property
    def takes_drags(self) -> bool:
        """True while each drag over the picture is for a photograph."""
        is_phone = self.view.host.around == "phone"
        return is_phone and self.content is not None and self.through.index is not None

    def grips(self, rect: Rect) -> Sequence[Rect]:
        """Return where a drag over the picture in `rect` is for something on it."""
        if not self.shows_photo or self.state.comparison != "wipe":
            return []
        divider = self.through.divider
        divider.position = self.state.divider_position
        photo_rect = self.through.photo_rect(rect)
        return [divider.grip(photo_rect, self.view.host.scale)]

    @property
    def _hidden_by_host(self) -> bool:
        """True where only the scene is to be seen."""
        host = self.view.host
        return host.exact == "scene" or host.is_subtracted

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        content = self.content
        if content is None or self._hidden_by_host:
            return
        camera = self.view.rig.drawn_camera(rect)
        if camera is None:
            return
        if self.through.is_there:
            self.through.draw(framebuffer, rect, content)
        elif self.state.shown:
            if self.hovered is None:
                marked = self.through.index
            else:
                marked = self.hovered
            style = FrustumStyle(
                depth=self.depth,
                width=_LINE_WIDTH * self.view.host.scale,
                marked=marked,
                current=content.current,
                pictures=self.state.pictures,
                background=self.view.background,
            )
            content.drawing.draw(framebuffer, rect, camera, style)

    def draw_over(self, rect: Rect, scale: float) -> bool:
        content = self.content
        cameras = self.cameras
        is_drawn = not self.view.host.is_subtracted
        if content is None or cameras is None or not is_drawn:
            return False
        if self.through.is_there:
            if self.view.data.summary is not None:
                self.through.draw_over(rect, scale, content)
            return False
        hovered = self.hovered
        if hovered is None or self.through.index is not None:
            return False
        camera = self.view.rig.seen_camera(rect)
        if camera is not None and hovered < len(cameras):
            draw_name_tag(cameras, hovered, camera, self.depth, rect)
        return False

    def bar_height(self) -> float:
        # A phone has it in its sheet.
        if self.view.host.around == "phone":
            return 0.0
        if self.through.index is not None and self.content is not None:
            return BAR_HEIGHT
        return 0.0

    def visit(self) -> Visit | None:
        if self.content is None:
            return None
        return visit_of(self)

    def bar(self, rect: Rect, scale: float) -> bool:
        if self.cameras is not None and self.through.index is not None:
            draw_bar(self, self.cameras, self.through.index, rect, scale)
        return False

    def sections(self) -> Sequence[Section]:
        content = self.content
        if content is None:
            return ()
        section = Section(
            "Training cameras",
            partial(draw_panel, self, content),
            # Hints are in it.
            opened=bool(content.hints.texts),
            tip="The cameras that the scene is trained with",
            state=state_words(self, content),
            reset=self.reset,
        )
        return [section]

    def details(self) -> Sequence[str]:
        cameras = self.cameras
        if cameras is None:
            return ()
        invalid_count = len(cameras) - int(cameras.is_valid.sum())
        if not invalid_count:
            return ()
        return [f"{invalid_count:,} of {len(cameras):,} training cameras are none"]

    def close(self) -> None:
        self.use(None)
        self.survey.close()
        self.through.close()
