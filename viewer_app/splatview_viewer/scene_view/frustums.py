"""The cameras that the scene is trained with: where they stand, what each of them saw. The panel's part "Training
cameras".
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.events import (
    Key,
    Pinch,
    PointerLeave,
    PointerMove,
    PointerPress,
    PointerRelease,
)
from splatview_viewer.core.host import Host
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import KeyHelp, Section
from splatview_viewer.geometry.controls import SECONDS
from splatview_viewer.geometry.training_cameras import at_size
from splatview_viewer.kinds.gaussians.state import GaussianState
from splatview_viewer.render.cameras.content import PhotoTexture
from splatview_viewer.render.cameras.drawing import FrustumStyle, camera_at, named
from splatview_viewer.render.pair_compositor import PairCompositor
from splatview_viewer.scene_view.tool import Tool
from splatview_viewer.ui import theme
from splatview_viewer.ui import widgets as ui
from splatview_viewer.ui.divider import Divider
from splatview_viewer.ui.widgets import tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    import moderngl
    import numpy as np

    from splatview_viewer.core.events import Event
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.geometry.controls import Orbit
    from splatview_viewer.geometry.training_cameras import CameraSet
    from splatview_viewer.kinds.gaussians.state import TrainingDisplay
    from splatview_viewer.kinds.gaussians.view import GaussianView
    from splatview_viewer.render.cameras.content import CamerasContent
    from splatview_viewer.render.pair_compositor import How

BAR = 40.0
"""Points that the bar is high while one looks through a camera."""
HOWS = {
    "render": "Render",
    "photo": "Photo",
    "wipe": "Wipe",
    "side": "Side by side",
    "error": "Error",
}
_TIPS = {
    "render": "Only what is rendered",
    "photo": "The photograph over it",
    "wipe": "The photograph right of a line that you drag",
    "side": "Both, side by side",
    "error": "How far they are apart: black is equal",
}
_STILL = 4.0
"""Points that the pointer may move between press and release of a click."""
_REACH = 8.0
"""Points around a camera's centre that count as the camera."""
_FOLLOW = 0.75
"""Seconds between two cameras of a training that is followed: it may go through a hundred in that time."""
_LOOK = 0.1
"""Seconds within which it is seen which camera is trained with."""
_WIDE = 760.0
_MEDIUM = 430.0
"""Points of width from which the bar has room for long names, and for words at all."""
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
        self._told: tuple[int, float] = 0, -math.inf
        """The change of the content that was drawn last, and when."""
        self._told_cameras: object = None
        self._press: tuple[float, float, int] | None = None
        self._pressed = False
        """Some button is down: a drag is no hovering."""
        self._dirty = False
        self._followed_at = -math.inf

    @property
    def state(self) -> TrainingDisplay:
        return self.view.state.training

    def change(self, **fields: Any) -> None:
        """Change fields of the state."""
        self.view.change(training=replace(self.state, **fields))

    # -- the cameras -------------------------------------------------------------------------------------------

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
        return None if content is None else content.cameras

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
        self._content = content
        self.hovered = None
        self._dirty = True
        self._told_cameras = None

    @property
    def depth(self) -> float:
        """Depth of the frustums, world units."""
        if self.cameras is None:
            return 1.0
        return 0.5 * self.cameras.spacing * self.state.size

    def enter(self, index: int, seconds: float = SECONDS) -> None:
        """Look through a camera; one that there is not, or that is none, says so."""
        cameras = self.cameras
        if cameras is not None and self.view.data.facts is not None:
            if self.through.enter(cameras, index, seconds):
                self.last = index
            else:
                self.view.host.say(
                    f"Camera {index} is no camera: its matrix is no pose"
                )
        self.hovered = None
        self._dirty = True

    def step(self, by: int) -> None:
        """Look through the camera before or after."""
        cameras = self.cameras
        index = self.through.index
        if cameras is not None and index is not None:
            self.following = False
            around = [
                (index + by * i) % len(cameras) for i in range(1, len(cameras) + 1)
            ]
            self.enter(next((i for i in around if cameras.fine[i]), index))

    def leave(self) -> None:
        """Look from where one looked before."""
        self.following = False
        self.through.leave(back=True)
        self._dirty = True

    def follow(self, following: bool) -> None:
        """Look through the camera that is trained with from now on, or no longer."""
        self.following = following
        self._followed_at = -math.inf
        self._dirty = True

    # -- the protocol of tools ---------------------------------------------------------------------------------

    def handle(self, event: Event, rect: Rect) -> bool | None:
        if self.content is None:
            return None
        through = self.through
        if through.there and self.state.how == "wipe":
            through.divider.at = self.state.at
            taken = through.divider.handle(
                event, through.place(rect), self.view.host.scale
            )
            if taken is not None:
                self.change(at=through.divider.at)
                return taken
        match event:
            case Key(pressed=True) if through.index is not None and not event.mods:
                if event.name == "escape":
                    self.leave()
                elif event.name in ("page_up", "page_down"):
                    self.step(-1 if event.name == "page_up" else 1)
                else:
                    return None
                return True
            case PointerMove():
                if self._press is not None and max(
                    abs(event.x - self._press[0]), abs(event.y - self._press[1])
                ) > (_STILL * self.view.host.scale):
                    self._press = None
                if not self._pressed:
                    self._hover(event.x, event.y, rect)
            case PointerLeave():
                self._hover(math.nan, math.nan, rect)
            case PointerPress():
                self._pressed = True
                self._press = None
                if event.button == "left" and event.clicks == 1 and not event.mods:
                    self._hover(event.x, event.y, rect)  # a finger has not hovered
                    if self.hovered is not None:
                        self._press = event.x, event.y, self.hovered
            case PointerRelease():
                self._pressed = False
                pressed = self._press
                self._press = None
                if pressed is not None and event.button == "left":
                    self.following = False
                    self.view.orbit.let_go()
                    self.enter(pressed[2])
                    return True
            case Pinch():
                self._press = None
        return None  # the camera may move by it

    def _hover(self, x: float, y: float, rect: Rect) -> None:
        found = None
        cameras = self.cameras
        camera = self.view.camera(rect)
        if (
            cameras is not None
            and camera is not None
            and (
                self.state.shown and self.through.index is None and rect.contains(x, y)
            )
        ):
            found = camera_at(
                cameras,
                camera,
                self.depth,
                x - rect.x,
                y - rect.y,
                _REACH * self.view.host.scale,
            )
        if found != self.hovered:
            self.hovered = found
            self._dirty = True

    def tick(self, now: float) -> bool:
        again = self._dirty
        self._dirty = False
        content = self.content
        cameras = self.cameras
        if content is None or cameras is None:
            return again
        if cameras is not self._told_cameras:
            self._told_cameras = cameras
            if cameras.fine.any():
                self.view.navigate.cameras(cameras.viewmats[cameras.fine])
        content.small = self.state.shown and self.state.pictures
        content.tick(now)
        if content.changes != self._told[0] and now - self._told[1] >= _LOOK:
            self._told = content.changes, now
            again |= self.state.shown or self.through.index is not None
        sight = self.view.data.sight
        if sight is not None:
            again |= content.hints.compare(sight.means, self.view.data.loads, now)
        again |= self.through.tick(content, cameras, now)
        if (
            self.following
            and content.current is not None
            and self.view.data.facts is not None
            and (now - self._followed_at >= _FOLLOW)
        ):
            if self.through.index is None and self._followed_at > -math.inf:
                self.following = False  # the user has gone elsewhere
            elif content.current != self.through.index:
                self.enter(content.current, 0.0)
            self._followed_at = now
            again = True
        return again

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        content = self.content
        if (
            content is None
            or self.view.host.exact == "scene"
            or (camera := self.view.camera(rect)) is None
        ):
            return
        if self.through.there:
            self.through.draw(framebuffer, rect, content)
        elif self.state.shown:
            marked = self.hovered if self.hovered is not None else self.through.index
            look = FrustumStyle(
                self.depth,
                1.5 * self.view.host.scale,
                marked,
                content.current,
                self.state.pictures,
                background=self.view.background,
            )
            content.drawing.draw(framebuffer, rect, camera, look)

    def over(self, rect: Rect, scale: float) -> bool:
        content = self.content
        cameras = self.cameras
        if (
            content is None
            or cameras is None
            or (camera := self.view.camera(rect)) is None
        ):
            return False
        if self.through.there:
            self.through.over(rect, scale, content)
        elif (
            self.through.index is None
            and self.hovered is not None
            and self.hovered < len(cameras)
        ):
            named(cameras, self.hovered, camera, self.depth, rect)
        return False

    def bar_height(self) -> float:
        if self.through.index is not None and self.content is not None:
            return BAR
        return 0.0

    def bar(self, rect: Rect, scale: float) -> bool:
        cameras = self.cameras
        index = self.through.index
        how = self.state.how
        if cameras is None or index is None:
            return False
        with ui.board(
            f"cameras {id(self)}", rect, (10 * scale, 0), theme.BAR
        ) as opened:
            if not opened:
                return False
            gap = 6 * scale
            imgui.set_cursor_pos_y((rect.height - imgui.get_frame_height()) / 2)
            for label, by, tip in (
                ("<", -1, "The camera before (Page up)"),
                (">", 1, "The camera after (Page down)"),
            ):
                if imgui.button(label, ImVec2(26 * scale, 0)):
                    self.step(by)
                imgui.set_item_tooltip(tip)
                imgui.same_line(0, gap)
            if rect.width >= _MEDIUM * scale:
                imgui.align_text_to_frame_padding()
                imgui.text(
                    ui.fitted(
                        cameras.called(index),
                        (220 if rect.width >= _WIDE * scale else 110) * scale,
                    )
                )
                imgui.same_line(0, 2 * gap)
            imgui.set_next_item_width(112 * scale)
            keys = list(HOWS)
            _, chosen = imgui.combo("##how", keys.index(how), list(HOWS.values()))
            self.change(how=keys[chosen])
            imgui.set_item_tooltip(_TIPS[keys[chosen]])
            right = (
                rect.width
                - 10 * scale
                - imgui.calc_text_size("Leave").x
                - 2 * imgui.get_style().frame_padding.x
            )
            if rect.width >= _MEDIUM * scale and (words := self.through.words):
                imgui.same_line(right - imgui.calc_text_size(words).x - 3 * gap)
                imgui.align_text_to_frame_padding()
                imgui.text(words)
                imgui.set_item_tooltip(
                    "Peak signal-to-noise ratio of the whole photograph and what is rendered at "
                    "its size"
                )
            imgui.same_line(right)
            if imgui.button("Leave"):
                self.leave()
            imgui.set_item_tooltip("Back to where you were (Escape)")
        return False

    @property
    def at_hand(self) -> bool:
        return self.content is not None

    def sections(self) -> Sequence[Section]:
        content = self.content
        if content is None:
            return ()
        section = Section(
            "Training cameras",
            lambda: self._panel(content),
            tip="The cameras that the scene is trained with",
        )
        if not content.hints.texts:
            return [section]
        # Over the section, which may be closed.
        return [Section("", lambda: self._hints(content)), section]

    def _hints(self, content: CamerasContent) -> None:
        for text in content.hints.texts:
            ui.wrapped(text, theme.FAULT)

    def _panel(self, content: CamerasContent) -> None:
        through = self.through
        cameras = content.cameras
        s = self.state
        assert cameras is not None
        s = replace(
            s, shown=ui.check("Show", "The training's cameras in the scene", s.shown)
        )
        if s.shown:
            if cameras.photos or any(cameras.paths):
                s = replace(
                    s,
                    pictures=ui.check(
                        "Photos",
                        "The cameras' photographs in their frustums",
                        s.pictures,
                    ),
                )
            s = replace(
                s,
                size=ui.slider(
                    "Size",
                    "Size of the frustums",
                    s.size,
                    (0.1, 10.0),
                    "%.2f",
                    reset=1.0,
                ),
            )
        if through.index is not None:
            s = replace(
                s,
                how=ui.choice(
                    "Compare",
                    "The scene with the photograph of the camera that is looked through",
                    s.how,
                    HOWS,
                ),
            )
            if through.words:
                ui.row("PSNR")
                imgui.text(through.words.removeprefix("PSNR "))
            if s.how == "photo":
                s = replace(
                    s,
                    opacity=ui.slider(
                        "Opacity",
                        "Of the photograph over the scene",
                        s.opacity,
                        (0.0, 1.0),
                        "%.2f",
                        reset=1.0,
                    ),
                )
            elif s.how == "error":
                s = replace(
                    s,
                    gain=ui.slider(
                        "Amplify",
                        "Factor on the difference from the photograph",
                        s.gain,
                        (1.0, 32.0),
                        "%.1f \u00d7",
                        reset=4.0,
                    ),
                )
        self.view.change(training=s)
        if content.current is not None:
            tip = f"Look through the camera that is trained with, now {content.current}"
            following = ui.check("Follow", tip, self.following)
            if following != self.following:
                self.follow(following)
        ui.row("Look through")
        edited, value = imgui.input_int(
            "##camera", self.last, 1, 10, imgui.InputTextFlags_.enter_returns_true
        )
        imgui.set_item_tooltip(
            f"The number of a camera, 0 to {len(cameras) - 1}, and Enter"
        )
        if edited and value != through.index and 0 <= value < len(cameras):
            self.following = False
            self.enter(value)

    def details(self) -> Sequence[str]:
        cameras = self.cameras
        if cameras is None:
            return ()
        wrong = len(cameras) - int(cameras.fine.sum())
        return [
            f"{len(cameras):,} training cameras",
            *([f"{wrong:,} of them are none"] if wrong else []),
        ]

    def close(self) -> None:
        self.use(None)
        self.through.close()


class Through:
    """The camera that a view looks through, its photograph over what is rendered, and how far they are apart."""

    def __init__(self, view: GaussianView) -> None:
        self.view = view
        self.index: int | None = None
        """The camera; None: the view looks from elsewhere."""
        self.divider = Divider()
        self.psnr: float | None = None
        """In dB, of the whole photograph and what is rendered at its size; None while it is not known."""
        self._camera: Camera | None = None
        self._size = (0, 0, 0)
        """As `_room`, when the view went there."""
        self._arrived = False
        self._before: tuple[Camera, Orbit] | None = None
        """From where one looked before."""
        self._pair, self._meter = (
            PairCompositor(view.data.ctx, view.data.work) for _ in range(2)
        )
        self._photo = PhotoTexture(view.data.ctx)
        self._measured: tuple[object, ...] = ()
        self._pending: tuple[object, ...] = ()
        self._next = 0.0

    @property
    def words(self) -> str:
        """The PSNR in words."""
        if self.psnr is None:
            return ""
        return "Equal" if math.isinf(self.psnr) else f"PSNR {self.psnr:.2f} dB"

    # -- going there and back ----------------------------------------------------------------------------------

    def enter(self, cameras: CameraSet, index: int, seconds: float = SECONDS) -> bool:
        """Look through this camera, after a flight of so many seconds. False if it is none."""
        camera = cameras.camera(index)
        here = self.view.camera()
        if camera is None or here is None:
            return False
        if self.index is None:
            self._before = here, self.view.orbit.copy()
        if index != self.index:
            self.psnr = None
            self._measured = ()
            self._pending = ()
        self._arrive(False)
        self.index = index
        self._camera = camera
        self._go(seconds)
        return True

    def _arrive(self, there: bool) -> None:
        """Have the state say that the view looks through the camera, or through none."""
        self._arrived = there
        self.view.change(
            training=replace(
                self.view.state.training, through=self.index if there else None
            )
        )

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
        before = self._before
        self._before = None
        self.index = None
        self._camera = None
        self.psnr = None
        self._arrive(False)
        self._measured = ()
        self._pending = ()
        self._pair.drop()
        self._meter.drop()
        if back and before is not None:
            camera, orbit = before
            self.view.fly_to(camera, pivot=orbit.target)

    @property
    def there(self) -> bool:
        """True if what is seen is what the camera sees."""
        return self._arrived and self.view.fixed and self._camera is not None

    def tick(self, content: CamerasContent, cameras: CameraSet, now: float) -> bool:
        """Advance to `now`. True when the picture has to be drawn again."""
        view = self.view
        state = self.view.state.training
        if state.through != (
            self.index if self._arrived else None
        ):  # another view, which is followed, left it there
            self._before = None
            self.index = state.through
            self._arrived = state.through is not None
            self._camera = None if self.index is None else cameras.camera(self.index)
            self._size = self._room(view.rect)
        seen = view.camera()
        if self.index is None or self._camera is None or seen is None:
            return False
        known = cameras.camera(self.index)
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
        if view.fixed and self._room(view.rect) != self._size:
            self._go(0.0)
            return True
        target = self._target().viewmat
        if not view.fixed or abs(seen.viewmat - target).max() > _SAME * max(
            1.0, abs(target).max()
        ):
            self.leave()  # the user went elsewhere
            return True
        if not self._arrived:
            self._arrive(True)
            return True
        return self._measure(content, now)

    # -- the photograph ----------------------------------------------------------------------------------------

    def photo(self, content: CamerasContent) -> np.ndarray | None:
        """Return the photograph of the camera one looks through, as `PhotoStore.whole`."""
        return None if self.index is None else content.photos.whole(self.index)

    def place(self, rect: Rect, across: int = 1) -> Rect:
        """Return the place of so many pictures of the photograph's shape side by side: all of it, as large as it fits
        in the view's rectangle.
        """
        assert self._camera is not None
        width = self._camera.width * across
        height = self._camera.height
        free = self._room(rect)[2]
        s = min(rect.width / width, free / height)
        left = rect.x + (rect.width - width * s) / 2
        top = rect.y + (free - height * s) / 2
        x = round(left)
        y = round(top)
        return Rect(
            x,
            y,
            max(round(left + width * s) - x, across),
            max(round(top + height * s) - y, 1),
        )

    def draw(
        self, framebuffer: moderngl.Framebuffer, rect: Rect, content: CamerasContent
    ) -> None:
        """Lay the photograph over what was rendered in `rect`."""
        view = self.view
        state = self.view.state.training
        if state.how == "render" or (photo := self.photo(content)) is None:
            return
        place = self.place(rect)
        self._photo.take(photo)
        rendered = self._pair.target(0, place.width, place.height, "f1")
        view.lay(
            view.picture.source,
            rendered,
            Rect(rect.x - place.x, rect.y - place.y, rect.width, rect.height),
        )
        self._photo.draw(
            self._pair.target(1, place.width, place.height, "f1"),
            Rect(0, 0, place.width, place.height),
            background=view.background,
        )
        if state.how == "side":
            framebuffer.use()
            framebuffer.clear(
                *view.background, 1.0, viewport=rect.viewport(framebuffer.height)
            )
            self._pair.draw(framebuffer, self.place(rect, 2), "side")
            return
        ways: dict[str, tuple[How, float]] = {
            "photo": ("blend", state.opacity),
            "wipe": ("split", state.at),
            "error": ("difference", 0.5),
        }
        how, at = ways[state.how]
        self._pair.draw(framebuffer, place, how, at, state.gain)

    def over(self, rect: Rect, scale: float, content: CamerasContent) -> None:
        """Write over the picture what is where."""
        how = self.view.state.training.how
        inset = 12 * scale
        if self.photo(content) is None:
            if how != "render":
                place = self.place(rect)
                text = content.photos.trouble(self.index or 0)
                tag(
                    text or "The photograph is on its way",
                    place.x + inset,
                    place.y + inset,
                    rect,
                )
        elif how == "wipe":
            self.divider.at = self.view.state.training.at
            self.divider.over(self.place(rect), scale, ("Render", "Photo"))
        elif how == "side":
            place = self.place(rect, 2)
            for text, x in (("Render", place.x), ("Photo", place.x + place.width / 2)):
                tag(text, x + inset, place.y + inset, rect)

    # -- the PSNR ----------------------------------------------------------------------------------------------

    def _measure(self, content: CamerasContent, now: float) -> bool:
        """Render at the photograph's own size once in a while, as the scene was trained, and compare. True when the
        PSNR is another one.
        """
        view = self.view
        photo = self.photo(content)
        if (
            photo is None
            or now < self._next
            or view.data.facts is None
            or view.data.stale
        ):
            return False
        if self._pending:
            before = self.psnr
            self.psnr = self._meter.psnr()
            self._measured = self._pending
            self._pending = ()
            self._next = now + _PERIOD
            return before != self.psnr
        wanted = self.index, id(photo), view.data.loads, view.background
        if wanted == self._measured or view.moving:
            return False
        assert self._camera is not None
        height, width = photo.shape[:2]
        rect = Rect(0, 0, width, height)
        bound = (
            content.ctx.fbo
        )  # ours must not stay so: it may be given back before anything else is drawn
        eye = type(view)(view.data, GaussianState(background=view.background))
        eye.host = Host(exact="scene")
        try:
            eye.use_camera(at_size(self._camera, width, height))
            eye.draw(self._meter.target(0, width, height, "f1"), rect)
        finally:
            eye.release("closed")
        self._photo.take(photo)
        photographed = self._meter.target(1, width, height, "f1")
        self._photo.draw(photographed, rect, background=view.background)
        self._meter.measure()
        bound.use()
        self._pending = wanted
        self._next = now + _LATER
        return False

    def close(self) -> None:
        """Give back everything. Idempotent."""
        for held in (self._pair, self._meter, self._photo):
            held.close()
