"""Shows Gaussians: the cache renders them, one pass lays the result over the background, tools do the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import CANVAS_WORDS, Info, Section, View, Wants
from splatview_viewer.geometry.controls import SECONDS, Orbit
from splatview_viewer.kinds.gaussians.cache import SceneCache
from splatview_viewer.kinds.gaussians.filter import Filter
from splatview_viewer.kinds.gaussians.history import HistoryTool
from splatview_viewer.kinds.gaussians.inspect import Inspect
from splatview_viewer.kinds.gaussians.look import LookTool
from splatview_viewer.kinds.gaussians.picture import ViewportPicture
from splatview_viewer.kinds.gaussians.state import SHOWS, GaussianState, paint_of
from splatview_viewer.render.base import RenderOptions
from splatview_viewer.render.choose import renderer_note
from splatview_viewer.scene_view.crop import Crop
from splatview_viewer.scene_view.frustums import Frustums
from splatview_viewer.scene_view.navigate import Navigate
from splatview_viewer.scene_view.path import PathTool
from splatview_viewer.scene_view.tool import in_order

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import moderngl
    import torch

    from splatview_ipc.gl.base import PixelSource
    from splatview_viewer.core.events import Event
    from splatview_viewer.core.settings import Color
    from splatview_viewer.core.view import KeyHelp, Value
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.scene_view.tool import Tool

TOOLS = LookTool, Frustums, Crop, Inspect, Filter, HistoryTool
_REST = 0.2
"""Seconds without input after which a coarse picture is drawn again in full."""


class GaussianView(View[SceneCache, GaussianState]):
    """One user's view of a scene: its camera, what is drawn of the scene, and the picture that came of it."""

    kind: ClassVar[str] = "gaussians"

    def __init__(self, data: SceneCache, state: GaussianState) -> None:
        super().__init__(data, state)
        self.picture = ViewportPicture(data.ctx)
        data.pictures.append(self.picture)
        self.rect = Rect(0, 0, 1, 1)
        """The rectangle in which it was drawn last."""
        self._told = data.loads
        """The scene that was drawn last, or for which drawing was asked."""
        self._hand = Orbit()
        self._hand.place = self._hand_at = state.place.orbit
        """The place of `_hand`, unless a tool moves it just now."""
        self.path, self.navigate = PathTool(self), Navigate(self)
        made = *(tool(self) for tool in TOOLS), self.path, self.navigate
        self.tools: dict[str, Tool] = {tool.name: tool for tool in made}
        """By name, in the order in which events are offered to them."""

    def take(self, link: str, value: Value) -> bool:
        taken = self.data.put(value)
        if taken:
            self._told = self.data.loads  # the caller draws it
        return taken

    def change(self, **fields: Any) -> None:
        """Change fields of the state."""
        self.state = replace(self.state, **fields)

    # -- the camera --------------------------------------------------------------------------------------------

    @property
    def orbit(self) -> Orbit:
        """The camera of the state, to be moved; `moved` puts it back."""
        if self._hand_at != (
            place := self.state.place.orbit
        ):  # another view was followed
            self._hand.place = place
            self._hand_at = place
            self.in_motion()
        return self._hand

    def moved(self, **fields: Any) -> None:
        """Look from where `orbit` is now; `fields` of the place change as well."""
        self.place(
            given=None, seen_in=None, framed=self.data.facts is not None, **fields
        )
        self.in_motion()

    def place(self, **fields: Any) -> None:
        """Change the place of the camera to that of `orbit`, and other fields of it."""
        self._hand_at = self.orbit.place
        self.change(place=replace(self.state.place, orbit=self._hand_at, **fields))

    def use_camera(self, camera: Camera, pivot: np.ndarray | None = None) -> None:
        """Draw with exactly this camera until the user moves it. `pivot`: (3,) what to orbit around then, as far as
        that lies on its line of sight; None: the middle of the scene.
        """
        sight = self.data.sight
        if pivot is None:
            pivot = sight.center if sight is not None else np.zeros(3)
        if sight is not None:
            camera = sight.near_of(camera)
        self.orbit.take(camera, pivot)
        self.place(given=camera, seen_in=None, framed=True)

    def fly_to(
        self, camera: Camera, seconds: float = SECONDS, pivot: np.ndarray | None = None
    ) -> None:
        """Go to exactly this camera on a way that the eye can follow, as the loop goes on; the user may interrupt that.
        0 seconds: at once. `pivot`: as in `use_camera`, None: what is orbited around now.
        """
        self.navigate.fly_to(camera, seconds, pivot)

    def look_with(self, camera: Camera | None) -> None:
        """Draw with exactly this camera; None: look at the whole scene, as at first sight of it."""
        up = self.orbit.up  # found at first sight alone
        self.orbit.place = Orbit(up=up).place
        self.place(given=camera, seen_in=None, framed=camera is not None)

    def frame(self) -> None:
        """Look at the whole scene, as at first sight."""
        self.place(framed=False, given=None, seen_in=None)

    @property
    def framed(self) -> bool:
        """False while the next picture chooses the camera."""
        return self.state.place.framed

    @property
    def fixed(self) -> bool:
        """True while it is seen with exactly a camera that was given and has not been moved yet."""
        return self.state.place.given is not None

    @property
    def moving(self) -> bool:
        """True if the camera was moved just now."""
        moved_at = self.picture.motion.moved_at
        return moved_at is None or self.data.now - moved_at < _REST

    def in_motion(self) -> None:
        """Put smooth before sharp for now: the picture changes, though no hand moves the camera."""
        self.picture.motion.moved_at = None

    def go_on_from_here(self) -> None:
        """Before the camera of a view that was followed until now is moved: begin where that is."""
        if self.state.place.seen_in is None:
            return
        if self.data.facts is not None:
            self.orbit.take(self._current_camera(self.rect), self.orbit.target)
        self.place(given=None, seen_in=None)

    def camera(self, rect: Rect | None = None) -> Camera | None:
        """The camera with which it is drawn in a rectangle, the last one by default; None while there is no scene."""
        if self.data.facts is None:
            return None
        return self._current_camera(rect or self.rect)

    def _current_camera(self, rect: Rect) -> Camera:
        size = (rect.width, rect.height)
        facts = self.data.facts
        assert facts is not None
        if not self.framed and facts.count and (sight := self.data.look()) is not None:
            camera = sight.camera(*size, self.navigate.first_up())
            model = self.orbit.model
            self.orbit.take(camera, sight.middle)
            self.orbit.model = model
            self.place(framed=True)
        given = self.state.place.given
        seen_in = self.state.place.seen_in or size
        camera = (
            given.resized(*seen_in)
            if given is not None
            else self.orbit.camera(*seen_in)
        ).fitted(*size)
        return camera if self.data.sight is None else self.data.sight.near_of(camera)

    # -- pictures ----------------------------------------------------------------------------------------------

    @property
    def options(self) -> RenderOptions:
        """Options of its picture."""
        s = self.state
        facts = self.data.facts
        if facts is not None and facts.antialiased:
            trained = "antialiased"
        else:
            trained = "classic"
        mode = trained if s.mode == "scene" else s.mode
        selection = replace(s.selection, marked=()) if self.host.exact else s.selection
        return RenderOptions(
            mode,
            s.sh_degree,
            s.show == "depth",
            paint_of(s.show),
            s.scale,
            s.point_px * self.host.scale,
            selection,
        )

    @property
    def background(self) -> Color:
        return self.state.background or self.data.background or (0.0, 0.0, 0.0)

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        data = self.data
        s = self.state
        exact = bool(self.host.exact)
        self.rect = rect
        orbit = self.orbit
        if data.facts is not None:
            data.picture(
                self.picture,
                self._current_camera(rect),
                self.options,
                self.moving and not exact,
                s.smooth and SHOWS[s.show].is_solid and not exact,
            )
        self._told = data.loads
        self.lay(data.source(self.picture, orbit.distance), framebuffer, rect)
        for tool in self.tools.values():
            tool.draw(framebuffer, rect)

    def lay(
        self, source: PixelSource | None, framebuffer: moderngl.Framebuffer, rect: Rect
    ) -> None:
        """Draw what its picture consists of, or nothing, over its background."""
        s = self.state
        self.data.composer.lay(
            source,
            framebuffer,
            rect,
            self.background,
            s.show,
            (s.color_map, self.depth_range),
        )

    @property
    def depth_range(self) -> tuple[float, float]:
        """The numbers at both ends of the colour map."""
        chosen = self.state.depth_range if self.state.show == "depth" else None
        return chosen or self.picture.depth.range

    def tensor(self, width: int, height: int) -> torch.Tensor | None:
        """Return what `draw` would draw into a framebuffer of this size, of colours in full resolution, without OpenGL:
        uint8 (height, width, 3) on the GPU that draws, top row first, for what torch's current stream does next.

        None where CUDA does not draw. Afterwards the view is stale if the scene was overwritten meanwhile: that is no
        picture then.
        """
        data = self.data
        if data.facts is None or not data.renderer.wants_gpu:
            return None
        return data.tensor(
            self.picture,
            self._current_camera(Rect(0, 0, width, height)),
            self.options,
            self.background,
        )

    def tick(self, now: float) -> bool:
        """Draws in full what was drawn coarsely, once the user rests."""
        data = self.data
        data.tick(now)
        again = self._told != data.loads
        self._told = data.loads
        for tool in self.tools.values():
            again |= tool.tick(now)
        again |= data.moves_on(self.picture, self.moving)
        return again or (self.picture.scale < 1.0 and not self.moving)

    def work(self) -> bool:
        return self.path.work()

    def release(self, how: Literal["idle", "away", "closed", "last"]) -> None:
        if how == "idle":
            self.data.rest()
        elif how == "away":
            self.data.drop(self.picture)
        else:
            for tool in self.tools.values():
                tool.close()
            self.data.release(self.picture)

    # -- tools -------------------------------------------------------------------------------------------------

    def handle(self, event: Event, rect: Rect) -> bool:
        self.rect = rect
        for tool in self.tools.values():
            again = tool.handle(event, rect)
            if again is not None:
                return again
        return False

    def dropped(self, file: Path) -> bool:
        return self.path.dropped(file)

    def ui(self, rect: Rect, scale: float) -> bool:
        if (
            self.host.exact
        ):  # a picture to keep has nothing on it that only helps to look
            return False
        again = False
        for tool, place in self._bars(rect, scale):
            again |= tool.bar(place, scale)
        for tool in self.tools.values():
            again |= tool.over(rect, scale)
        hints = self.data.hints
        if (
            hints.draw(self.above_bars(rect), scale, self.host.name)
            and hints.hint is not None
        ):
            self.data.choices.add(hints.hint.choice)
            # both are of the scene as it was
            hints.hint = None
            self.data.sight = None
            self.host.again()
        return again

    def above_bars(self, rect: Rect) -> Rect:
        """Return the part of a picture in `rect` that the strips at its lower edge leave."""
        return replace(rect, height=max(rect.height - round(self.bars_height), 1))

    def _bars(self, rect: Rect, scale: float) -> list[tuple[Tool, Rect]]:
        """The tools that take a strip at the lower edge, one above the other, and their places."""
        out = []
        bottom = rect.y + rect.height
        for tool in self.tools.values():
            height = min(round(tool.bar_height() * scale), bottom - rect.y)
            if height > 0:
                bottom -= height
                out.append((tool, Rect(rect.x, bottom, rect.width, height)))
        return out

    @property
    def bars_height(self) -> float:
        """Pixels that the strips at the lower edge take."""
        return sum(tool.bar_height() for tool in self.tools.values()) * self.host.scale

    def panel(self) -> Sequence[Section]:
        return in_order(
            [section for tool in self.tools.values() for section in tool.sections()]
        )

    @property
    def keys(self) -> Sequence[KeyHelp]:  # type: ignore[override]
        return [
            line for tool in self.tools.values() if tool.at_hand for line in tool.keys
        ]

    # -- words -------------------------------------------------------------------------------------------------

    @property
    def wants(self) -> Wants:
        data = self.data
        return Wants(
            stale=data.stale,
            busy=data.busy,
            cuda=data.renderer.wants_gpu,
            moving=self.moving,
        )

    def covered(self, rect: Rect) -> Sequence[Rect]:
        bars = [bar for _, bar in self._bars(rect, self.host.scale)]
        tools = [
            window for tool in self.tools.values() for window in tool.covered(rect)
        ]
        return [*bars, *tools, *self.data.hints.covered(self.above_bars(rect))]

    def info(self) -> Info:
        data = self.data
        scene = self.data.facts
        renderer = self.data.renderer
        scale = self.picture.scale
        if scene is None:
            return Info()
        left_out = [
            words
            for words in (renderer.left_out.words(scene.count), renderer.thinned)
            if words
        ]
        told = [phrase for tool in self.tools.values() for phrase in tool.details()]
        canvas = CANVAS_WORDS.get(renderer.bridge, "")
        note = renderer_note(renderer)
        return Info(
            [
                f"{scene.count:,} Gaussian{'s' * (scene.count != 1)}",
                *left_out,
                *scene.phrases,
                *told,
                *([f"at {scale:.0%} for now"] if scale < 1.0 else []),
                *scene.notes,
            ],
            [note] if note else [],
            path=[
                "parameters read in place" if data.on_gpu else "parameters uploaded",
                f"{renderer.name} renderer",
                *([canvas] if canvas else []),
            ],
            timings=data.stopwatch.ms
            | ({} if renderer.gpu_ms is None else {"GPU": renderer.gpu_ms}),
        )
