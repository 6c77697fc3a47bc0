"""The cameras that the scene is trained with: where they stand, what each of them saw. The panel's part "Training
cameras"."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.events import Key, Pinch, PointerLeave, PointerMove, PointerPress, PointerRelease
from splatview_viewer.core.host import Host
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import KeyHelp, Section
from splatview_viewer.geometry.cameras import project
from splatview_viewer.geometry.orbit import SECONDS
from splatview_viewer.geometry.training_cameras import at_size
from splatview_viewer.kinds.gaussians.state import GaussianState
from splatview_viewer.kinds.gaussians.tool import Tool
from splatview_viewer.render.cameras.drawing import Look, Outlines
from splatview_viewer.render.cameras.photos import PhotoTexture
from splatview_viewer.render.pair_compositor import PairCompositor
from splatview_viewer.ui import theme
from splatview_viewer.ui import widgets as ui
from splatview_viewer.ui.divider import Divider
from splatview_viewer.ui.widgets import tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    import moderngl

    from splatview_viewer.core.events import Event
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.geometry.orbit import Orbit
    from splatview_viewer.kinds.gaussians.state import Training
    from splatview_viewer.kinds.gaussians.view import GaussianView
    from splatview_viewer.render.cameras.content import CamerasContent
    from splatview_viewer.render.pair_compositor import How

LINES = 0.87, 0.88, 0.90, 0.8
"""The colour of frustums. It lies on pictures, so it is the same in light and dark."""
BAR = 40.0
"""Points that the bar is high while one looks through a camera."""
_STILL = 4.0
"""Points that the pointer may move between press and release of a click."""
_REACH = 8.0
"""Points around a camera's centre that count as the camera."""
_FOLLOW = 0.75
"""Seconds between two cameras of a training that is followed: it may go through a hundred in that time."""
_LOOK = 0.1
"""Seconds within which it is seen which camera is trained with."""
_TIPS = {"render": "Only what is rendered", "photo": "The photograph over it",
         "wipe": "The photograph right of a line that you drag", "side": "Both, side by side",
         "error": "How far they are apart: black is equal"}
_WIDE, _MEDIUM = 760.0, 430.0
"""Points of width from which all is in the bar, and from which all but words is."""
HOWS = {"render": "Render", "photo": "Photo", "wipe": "Wipe", "side": "Side by side", "error": "Error"}
_LATER = 0.05
"""Seconds until the GPU is asked what the PSNR came to."""
_PERIOD = 0.5
"""Seconds between two measurements of a scene that changes."""
_SAME = 1e-6


class Frustums(Tool):
    """Draws the cameras over the scene, and has one look through them."""

    name: ClassVar[str] = "frustums"
    keys: ClassVar[Sequence[KeyHelp]] = (
        KeyHelp("Training cameras", "Click a camera", "Look through it"),
        KeyHelp("Training cameras", "Page up, Page down", "The one before, after"),
        KeyHelp("Training cameras", "Escape", "Back to where you were"),
    )

    def __init__(self, view: GaussianView) -> None:
        super().__init__(view)
        self.hovered: int | None = None
        """The camera under the pointer."""
        self.last = 0
        """The camera that was looked through last."""
        self.following = False
        """The view looks through the camera that is trained with."""
        self.through = Through(view)
        self._content: CamerasContent | None = None
        self._outlines = Outlines()
        self._told = 0
        """The change of the content that was drawn last."""
        self._told_at = -math.inf
        self._told_cameras: object = None
        self._press: tuple[float, float, int] | None = None
        self._pressed = False
        """Some button is down: a drag is no hovering."""
        self._dirty = False
        self._followed_at = -math.inf

    @property
    def state(self) -> Training:
        return self.view.state.training

    def change(self, **fields: Any) -> None:
        """Change fields of the state."""
        self.view.change(training=replace(self.state, **fields))

    # -- the cameras -------------------------------------------------------------------------------------------

    @property
    def content(self) -> CamerasContent | None:
        """The cameras of the scene's run; None while none are published."""
        content = self._content
        return None if content is None or content.closed or content.cameras is None else content

    def wake(self) -> None:
        """Something came, in another thread."""
        self.view.host.wake()

    def use(self, content: CamerasContent | None) -> None:
        """These are the scene's cameras from now on."""
        if content is self._content:
            return
        if self._content is not None:
            self._content.leave(self)
        if content is not None:
            content.join(self)
        if self.through.index is not None:
            self.through.leave()
        self._content, self.hovered, self._dirty = content, None, True
        self._told_cameras = None

    @property
    def depth(self) -> float:
        """Depth of the frustums, world units."""
        content = self.content
        return 1.0 if content is None or content.cameras is None else 0.5 * content.cameras.spacing * self.state.size

    def enter(self, index: int, seconds: float = SECONDS) -> None:
        """Look through a camera; one that there is not, or that is none, says so."""
        content = self.content
        if content is not None and self.through.enter(content, index, seconds):
            self.last = index
        elif content is not None and self.view.data.facts is not None:
            self.view.host.say(f"Camera {index} is no camera: its matrix is no pose")
        self.hovered, self._dirty = None, True

    def step(self, by: int) -> None:
        """Look through the camera before or after."""
        content, index = self.content, self.through.index
        if content is None or content.cameras is None or index is None:
            return
        fine = content.cameras.fine
        for _ in range(len(fine)):
            index = (index + by) % len(fine)
            if fine[index]:
                break
        self.following = False
        self.enter(index)

    def leave(self) -> None:
        """Look from where one looked before."""
        self.following = False
        self.through.leave(back=True)
        self._dirty = True

    # -- the protocol of tools ---------------------------------------------------------------------------------

    def handle(self, event: Event, rect: Rect) -> bool | None:
        content = self.content
        if content is None:
            return None
        inside = self.through.index is not None
        if isinstance(event, Key):
            return self._key(event, inside)
        if inside and self.through.there and self.state.how == "wipe":
            divider = self.through.divider
            divider.at = self.state.at
            taken = divider.handle(event, self.through.place(rect), self.view.host.scale)
            if taken is not None:
                self.change(at=divider.at)
                return taken
        match event:
            case PointerMove():
                if self._press is not None and max(abs(event.x - self._press[0]), abs(event.y - self._press[1])) > (
                        _STILL * self.view.host.scale):
                    self._press = None
                if not self._pressed:
                    self._hover(event.x, event.y, rect)
            case PointerLeave():
                self._hover(math.nan, math.nan, rect)
            case PointerPress():
                self._pressed, self._press = True, None
                if event.button == "left" and event.clicks == 1 and not event.mods:
                    self._hover(event.x, event.y, rect)  # a finger has not hovered
                    if self.hovered is not None:
                        self._press = event.x, event.y, self.hovered
            case PointerRelease():
                self._pressed, pressed, self._press = False, self._press, None
                if pressed is not None and event.button == "left":
                    self.following = False
                    self.view.orbit.let_go()
                    self.enter(pressed[2])
                    return True
            case Pinch():
                self._press = None
        return None  # the camera may move by it

    def _key(self, event: Key, inside: bool) -> bool | None:
        if not inside or not event.pressed or event.mods:
            return None
        match event.name:
            case "page_up":
                self.step(-1)
            case "page_down":
                self.step(1)
            case "escape":
                self.leave()
            case _:
                return None
        return True

    def _hover(self, x: float, y: float, rect: Rect) -> None:
        found, content = None, self.content
        camera = self.view.camera(rect)
        if content is not None and content.cameras is not None and camera is not None and (
                self.state.shown and self.through.index is None and rect.contains(x, y)):
            found = self._outlines.at(content.cameras, camera, self.depth, x - rect.x, y - rect.y,
                                      _REACH * self.view.host.scale)
        if found != self.hovered:
            self.hovered, self._dirty = found, True

    def tick(self, now: float) -> bool:
        again, self._dirty = self._dirty, False
        content = self.content
        if content is None:
            return again
        if content.cameras is not self._told_cameras:
            self._told_cameras = content.cameras
            if content.cameras is not None and content.cameras.fine.any():
                self.view.navigate.cameras(content.cameras.viewmats[content.cameras.fine])
        content.small = self.state.shown and self.state.pictures
        content.tick(now)
        if content.changes != self._told and now - self._told_at >= _LOOK:
            self._told, self._told_at = content.changes, now
            again |= self.state.shown or self.through.index is not None
        again |= self.through.tick(content, now)
        if self.following and content.current is not None and self.view.data.facts is not None and (
                now - self._followed_at >= _FOLLOW):
            left = self.through.index is None and self._followed_at > -math.inf
            self._followed_at = now
            if left:
                self.following = False  # the user has gone elsewhere
            elif content.current != self.through.index:
                self.enter(content.current, 0.0)
            again = True
        return again

    def follow(self, following: bool) -> None:
        """Look through the camera that is trained with from now on, or no longer."""
        self.following, self._followed_at, self._dirty = following, -math.inf, True

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        content, camera = self.content, self.view.camera(rect)
        if content is None or camera is None or self.view.host.exact == "scene":
            return
        if self.through.index is not None:
            if self.through.there:
                self.through.draw(framebuffer, rect, content)
                return
        if self.state.shown and content.cameras is not None:
            content.drawing.draw(framebuffer, rect, camera, self._look(content))

    def _look(self, content: CamerasContent) -> Look:
        def color(of: object) -> tuple[float, float, float, float]:
            return of.x, of.y, of.z, 1.0  # type: ignore[attr-defined]

        marked = self.hovered if self.hovered is not None else self.through.index
        return Look(LINES, color(theme.MARK), color(theme.NOW), self.depth, 1.5 * self.view.host.scale,
                    -1 if marked is None else marked, -1 if content.current is None else content.current,
                    self.state.pictures)

    def over(self, rect: Rect, scale: float) -> bool:
        content = self.content
        if content is None or content.cameras is None:
            return False
        through = self.through
        if through.there:
            label_photo(self, content, rect, scale)
        elif through.index is None and self.hovered is not None and self.hovered < len(content.cameras):
            name_camera(self, content, self.hovered, rect, scale)
        return False

    def bar_height(self) -> float:
        return BAR if self.through.index is not None and self.content is not None else 0.0

    def bar(self, rect: Rect, scale: float) -> bool:
        content = self.content
        if content is not None and self.through.index is not None:
            with ui.board(f"cameras {id(self)}", rect, (10 * scale, 0), theme.BAR) as opened:
                if opened:
                    draw_bar(self, content, rect, scale)
        return False

    @property
    def at_hand(self) -> bool:
        return self.content is not None

    def sections(self) -> Sequence[Section]:
        if (content := self.content) is None:
            return ()
        return [Section("Training cameras", lambda: panel(self, content),
                        tip="The cameras that the scene is trained with")]

    def details(self) -> Sequence[str]:
        content = self.content
        if content is None or content.cameras is None:
            return ()
        wrong = len(content.cameras) - int(content.cameras.fine.sum())
        return [f"{len(content.cameras):,} training cameras", *([f"{wrong:,} of them are none"] if wrong else [])]

    def close(self) -> None:
        self.use(None)
        self.through.close()


class Through:
    """The camera that a view looks through, and its photograph. The loop's thread."""

    def __init__(self, view: GaussianView) -> None:
        self.view = view
        self.index: int | None = None
        """The camera; None: the view looks from elsewhere."""
        self.divider = Divider()
        self.psnr: float | None = None
        """In dB, of the whole photograph and what is rendered at its size; None while it is not known."""
        self._camera: Camera | None = None
        self._size = (0, 0, 0)
        self._arrived = False
        self._before: tuple[Camera, Orbit] | None = None
        """From where one looked before."""
        self._pair, self._meter = (PairCompositor(view.data.ctx, view.data.work) for _ in range(2))
        self._photo = PhotoTexture(view.data.ctx)
        self._measured: tuple[object, ...] = ()
        self._pending: tuple[object, ...] = ()
        self._next = 0.0

    @property
    def state(self) -> Training:
        return self.view.state.training

    # -- going there and back ------------------------------------------------------------------------------------

    def enter(self, content: CamerasContent, index: int, seconds: float = SECONDS) -> bool:
        """Look through this camera, after a flight of so many seconds. False if it is none."""
        cameras, view = content.cameras, self.view
        camera = None if cameras is None else cameras.camera(index)
        here = view.camera()
        if camera is None or here is None:
            return False
        if self.index is None:
            self._before = here, view.orbit.copy()
        if index != self.index:
            self.psnr, self._measured, self._pending = None, (), ()
        self._there(False)
        self.index, self._camera = index, camera
        self._go(seconds)
        return True

    def _there(self, there: bool) -> None:
        """Have the state say that the view looks through the camera, or through none."""
        self._arrived = there
        self.view.change(training=replace(self.state, through=self.index if there else None))

    def _follow(self, content: CamerasContent) -> None:
        """Look through the camera of the state, which another view left there."""
        self._before, self.index, self._arrived = None, self.state.through, self.state.through is not None
        self._camera = None
        if content.cameras is not None and self.index is not None:
            self._camera = content.cameras.camera(self.index)
        self._size = self._room(self.view.rect)

    def _go(self, seconds: float) -> None:
        self._size = self._room(self.view.rect)
        self.view.fly_to(self._target(), seconds)

    def _room(self, rect: Rect) -> tuple[int, int, int]:
        """Width and height of the picture, and how much of that the bars at its lower edge leave to the photograph."""
        bars = round(self.view.bars_height)
        return rect.width, rect.height, max(rect.height - bars, rect.height // 2, 1)

    def _target(self) -> Camera:
        """The camera, for the whole picture: the photograph lies above the bars."""
        assert self._camera is not None
        width, height, free = self._size
        return replace(self._camera.fitted(width, free), height=height)

    def leave(self, back: bool = False) -> None:
        """Look through none. `back`: from where one looked before."""
        before, self._before = self._before, None
        self.index = self._camera = self.psnr = None
        self._there(False)
        self._measured, self._pending = (), ()
        self._pair.drop()
        self._meter.drop()
        if back and before is not None:
            camera, orbit = before
            self.view.fly_to(camera, pivot=orbit.target)

    @property
    def there(self) -> bool:
        """True if what is seen is what the camera sees."""
        return self._arrived and self.view.fixed and self._camera is not None

    def tick(self, content: CamerasContent, now: float) -> bool:
        """Advance to `now`. True when the picture has to be drawn again."""
        if self.state.through != (self.index if self._arrived else None):
            self._follow(content)
        if self.index is None or self._camera is None:
            return False
        view = self.view
        rect = view.rect
        camera = view.camera()
        if camera is None:
            return False
        known = content.cameras.camera(self.index) if content.cameras is not None else None
        if known is None:
            self.leave()
            return True
        if known.key != self._camera.key:  # its pose is being optimised
            self._camera = known
            if self._arrived:
                self._go(0.0)
            return True
        if view.navigate.under_way and not self._arrived:
            return False
        if view.fixed and self._room(rect) != self._size:
            self._go(0.0)
            return True
        target = self._target()
        apart = abs(camera.viewmat - target.viewmat).max() > _SAME * max(1.0, abs(target.viewmat).max())
        if not view.fixed or apart:  # the user went elsewhere
            self.leave()
            return True
        if not self._arrived:
            self._there(True)
            return True
        return self._measure(content, now)

    # -- the photograph ------------------------------------------------------------------------------------------

    def photo(self, content: CamerasContent) -> np.ndarray | None:
        """(H, W, 3) uint8 of the camera one looks through, once it is here."""
        return None if self.index is None else content.photos.whole(self.index)

    def place(self, rect: Rect, across: int = 1) -> Rect:
        """Return the place of so many pictures of the photograph's shape side by side: all of it, as large as it fits
        in the view's rectangle."""
        assert self._camera is not None
        width, height, free = self._camera.width * across, self._camera.height, self._room(rect)[2]
        s = min(rect.width / width, free / height)
        left, top = rect.x + (rect.width - width * s) / 2, rect.y + (free - height * s) / 2
        x, y = round(left), round(top)
        return Rect(x, y, max(round(left + width * s) - x, across), max(round(top + height * s) - y, 1))

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect, content: CamerasContent) -> None:
        """Lay the photograph over what was rendered in `rect`."""
        if not self.there or self.state.how == "render" or (photo := self.photo(content)) is None:
            return
        view, place = self.view, self.place(rect)
        self._photo.take(photo)
        rendered = self._pair.target(0, place.width, place.height, "f1")
        whole = Rect(rect.x - place.x, rect.y - place.y, rect.width, rect.height)
        view.lay(view.picture.source, rendered, whole)
        self._photo.draw(self._pair.target(1, place.width, place.height, "f1"), Rect(0, 0, place.width, place.height))
        if self.state.how == "side":
            framebuffer.use()
            framebuffer.clear(*view.background, 1.0, viewport=rect.viewport(framebuffer.height))
            self._pair.draw(framebuffer, self.place(rect, 2), "side")
            return
        ways: dict[str, tuple[How, float]] = {
            "photo": ("blend", self.state.opacity), "wipe": ("split", self.state.at), "error": ("difference", 0.5)}
        how, at = ways[self.state.how]
        self._pair.draw(framebuffer, place, how, at, self.state.gain)

    # -- the PSNR ------------------------------------------------------------------------------------------------

    def _measure(self, content: CamerasContent, now: float) -> bool:
        """Render at the photograph's own size once in a while, as the scene was trained, and compare. True when the
        PSNR is another one."""
        view, photo = self.view, self.photo(content)
        if photo is None or now < self._next or view.data.facts is None or view.data.stale:
            return False
        wanted = self.index, id(photo), view.data.loads, view.background
        if self._pending:
            before, self.psnr = self.psnr, self._meter.psnr()
            self._measured, self._pending, self._next = self._pending, (), now + _PERIOD
            return before != self.psnr
        if wanted == self._measured or view.moving:
            return False
        self._render(content, photo)
        self._pending, self._next = wanted, now + _LATER
        return False

    def _render(self, content: CamerasContent, photo: np.ndarray) -> None:
        assert self._camera is not None
        height, width = photo.shape[:2]
        rect = Rect(0, 0, width, height)
        bound = content.ctx.fbo  # ours must not stay so: it may be given back before anything else is drawn
        eye = type(self.view)(self.view.data, GaussianState(background=self.view.background))
        eye.host = Host(exact="scene")
        try:
            eye.use_camera(at_size(self._camera, width, height))
            eye.draw(self._meter.target(0, width, height, "f1"), rect)
        finally:
            eye.release("closed")
        self._photo.take(photo)
        self._photo.draw(self._meter.target(1, width, height, "f1"), rect)
        self._meter.measure()
        bound.use()

    def close(self) -> None:
        """Give back everything. Idempotent."""
        for held in (self._pair, self._meter, self._photo):
            held.close()


def name_camera(tool: Frustums, content: CamerasContent, number: int, rect: Rect, scale: float) -> None:
    """Write the name of the camera under the pointer beside it."""
    camera, cameras = tool.view.camera(rect), content.cameras
    assert cameras is not None
    if camera is None:
        return
    points = project(camera, cameras.outline(number, tool.depth))
    if np.isfinite(points).all():
        (x, _), (_, y) = points.min(0), points.max(0)
        tag(cameras.called(number), rect.x + x, rect.y + y + 6 * scale, rect)


def label_photo(tool: Frustums, content: CamerasContent, rect: Rect, scale: float) -> None:
    """Write over the picture while the view looks through a camera."""
    through = tool.through
    how = through.state.how
    if through.photo(content) is None:
        if how != "render":
            text = content.photos.trouble(through.index or 0) or "The photograph is on its way"
            place = through.place(rect)
            tag(text, place.x + 12 * scale, place.y + 12 * scale, rect)
        return
    if how == "wipe":
        through.divider.at = through.state.at
        through.divider.over(through.place(rect), scale, ("Render", "Photo"))
    elif how == "side":
        place = through.place(rect, 2)
        for text, x in (("Render", place.x), ("Photo", place.x + place.width / 2)):
            tag(text, x + 12 * scale, place.y + 12 * scale, rect)


def draw_bar(tool: Frustums, content: CamerasContent, rect: Rect, scale: float) -> None:
    """Draw what the strip below the picture holds while the view looks through a camera."""
    through, how = tool.through, tool.state.how
    wide, medium = rect.width >= _WIDE * scale, rect.width >= _MEDIUM * scale
    gap = 6 * scale
    imgui.set_cursor_pos_y((rect.height - imgui.get_frame_height()) / 2)
    for label, by, tip in (("<", -1, "The camera before (Page up)"), (">", 1, "The camera after (Page down)")):
        if imgui.button(label, ImVec2(26 * scale, 0)):
            tool.step(by)
        imgui.set_item_tooltip(tip)
        imgui.same_line(0, gap)
    slides = how in ("photo", "error")
    if (wide or (medium and not slides)) and content.cameras is not None and through.index is not None:
        imgui.align_text_to_frame_padding()
        imgui.text(ui.fitted(content.cameras.called(through.index), (220 if wide else 110) * scale))
        imgui.same_line(0, 2 * gap)
    imgui.set_next_item_width(112 * scale)
    keys = list(HOWS)
    _, index = imgui.combo("##how", keys.index(how), list(HOWS.values()))
    tool.change(how=keys[index])
    imgui.set_item_tooltip(_TIPS[keys[index]])
    words = _psnr(through.psnr)
    leave = imgui.calc_text_size("Leave").x + 2 * imgui.get_style().frame_padding.x
    right = rect.width - 10 * scale - leave
    words_at = right - imgui.calc_text_size(words).x - 3 * gap
    if medium and slides:
        imgui.same_line(0, gap)
        imgui.set_next_item_width(110 * scale)
        if how == "photo":
            edited, value = imgui.slider_float("##opacity", tool.state.opacity * 100, 0.0, 100.0, "Opacity %.0f%%")
            if edited:
                tool.change(opacity=value / 100)
        else:
            _, gain = imgui.slider_float("##gain", tool.state.gain, 1.0, 32.0, "Error %.1f \u00d7",
                                         imgui.SliderFlags_.logarithmic)
            tool.change(gain=gain)
        words = words if imgui.get_item_rect_max().x - rect.x + gap < words_at else ""  # nothing over the slider
    if words and medium:
        imgui.same_line(words_at)
        imgui.align_text_to_frame_padding()
        imgui.text(words)
        imgui.set_item_tooltip("Peak signal-to-noise ratio of the whole photograph and what is rendered at its size")
    imgui.same_line(right)
    if imgui.button("Leave"):
        tool.leave()
    imgui.set_item_tooltip("Back to where you were (Escape)")


def _psnr(value: float | None) -> str:
    if value is None:
        return ""
    return "Equal" if math.isinf(value) else f"PSNR {value:.2f} dB"


def panel(tool: Frustums, content: CamerasContent) -> None:
    """Draw the panel's part."""
    through, cameras, s = tool.through, content.cameras, tool.state
    assert cameras is not None
    s = replace(s, shown=ui.check("Show", s.shown))
    if s.shown:
        if cameras.photos or any(cameras.paths):
            s = replace(s, pictures=ui.check("Photos", s.pictures))
        s = replace(s, size=ui.slider("Size", s.size, (0.1, 10.0), "%.2f", reset=1.0))
    tool.view.change(training=s)
    if content.current is not None:
        following = ui.check("Follow", tool.following)
        imgui.set_item_tooltip(f"Look through the camera that is trained with, now {content.current}")
        if following != tool.following:
            tool.follow(following)
    ui.row("Look through")
    edited, value = imgui.input_int("##camera", tool.last, 1, 10, imgui.InputTextFlags_.enter_returns_true)
    imgui.set_item_tooltip(f"The number of a camera, 0 to {len(cameras) - 1}, and Enter")
    if edited and value != through.index and 0 <= value < len(cameras):
        tool.following = False
        tool.enter(value)
    if through.index is None or tool.view.rect.width >= _MEDIUM * tool.view.host.scale:
        return
    # The bar has no room for these.
    tool.change(how=ui.choice("Compare", tool.state.how, HOWS))
    if tool.state.how == "photo":
        tool.change(opacity=ui.slider("Opacity", tool.state.opacity, (0.0, 1.0), "%.2f", reset=1.0))
    elif tool.state.how == "error":
        tool.change(gain=ui.slider("Error", tool.state.gain, (1.0, 32.0), "%.1f \u00d7", reset=4.0))
    if words := _psnr(through.psnr):
        ui.row("PSNR")
        imgui.text(words.removeprefix("PSNR "))
