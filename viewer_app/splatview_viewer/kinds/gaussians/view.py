"""Shows Gaussians: a renderer draws them, one pass lays the result over the background, tools do the rest."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.host import Host
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.settings import GaussianSettings
from splatview_viewer.core.view import CANVAS_WORDS
from splatview_viewer.geometry.controls import Orbit
from splatview_viewer.geometry.orbit import SECONDS
from splatview_viewer.gpu.work import GpuWork
from splatview_viewer.kinds.gaussians.cache import Pace, SceneCache
from splatview_viewer.kinds.gaussians.picture import Picture
from splatview_viewer.kinds.gaussians.tool import in_order, make_tools
from splatview_viewer.render.base import RenderOptions
from splatview_viewer.render.choose import renderer_note

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import moderngl
    import torch

    from splatview_ipc.gl.base import PixelSource
    from splatview_viewer.core.events import Event
    from splatview_viewer.core.old_view import View
    from splatview_viewer.core.settings import Color
    from splatview_viewer.core.view import KeyHelp, Section, Value
    from splatview_viewer.formats.nerfstudio import Film
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.kinds.gaussians.look import Look
    from splatview_viewer.kinds.gaussians.navigate import Navigate
    from splatview_viewer.kinds.gaussians.tool import Tool
    from splatview_viewer.render.base import Renderer

_SOLID = "color", "alpha", "normals", "ellipsoids", "rings", "points"
"""Pictures of things that are somewhere: they can be moved along with the camera."""
_REST = 0.2
"""Seconds without input after which a coarse picture is drawn again in full."""


class GaussianView:
    """One user's look at a scene: the camera, what is drawn of it, and the picture that came of it."""

    kind: ClassVar[str] = "gaussians"

    def __init__(self, ctx: moderngl.Context, settings: GaussianSettings | None = None, *,
                 renderer: Renderer | None = None, orbit: Orbit | None = None, work: GpuWork | None = None,
                 beside: GaussianView | None = None) -> None:
        """`beside`: a view of the same scene, whose context, `renderer` and `work` this one takes."""
        self.settings = settings or GaussianSettings()
        self.orbit = orbit or Orbit()
        self.framed = orbit is not None
        """Whether it has its camera; it is chosen with the next picture otherwise."""
        self.ctx = ctx
        self.work = beside.work if beside is not None else work or GpuWork(ctx)
        self.content = beside.content if beside is not None else SceneCache(ctx, self.work, renderer)
        """What it may share with other views."""
        self.picture = Picture(ctx)
        self._told = self.content.loads
        """The scene that was drawn last, or for which drawing was asked."""
        self._camera: Camera | None = None
        self._seen_in: tuple[int, int] | None = None
        """The size of somebody else's picture, all of which is to be seen."""
        self.rect = Rect(0, 0, 1, 1)
        """Where it was drawn last."""
        self.moved_at: float | None = -math.inf
        """Time of the turn in which the camera was last moved; None: since the last turn."""
        self.host = Host()
        """What it may ask of whoever shows it."""
        self.tools = make_tools(self)
        self.navigate: Navigate = self.tools["navigate"]  # type: ignore[assignment]
        self.content.pictures.append(self.picture)

    def beside(self, settings: GaussianSettings) -> GaussianView:
        return GaussianView(self.ctx, settings, beside=self)

    def like(self, other: View) -> None:
        if not isinstance(other, GaussianView):
            raise ViewerError(f"gaussians: a view of {other.kind} cannot be followed")
        self.orbit.look_like(other.orbit)
        self.framed, self._camera, self.moved_at = other.framed, other._camera, other.moved_at
        self._seen_in = other._seen_in or (other.rect.width, other.rect.height)
        self.settings.take(other.settings)
        for name, tool in self.tools.items():
            tool.like(other.tools[name])

    def update(self, value: Value) -> bool:
        taken = self.content.put(value)
        if taken:
            self._told = self.content.loads  # whoever calls knows
        return taken

    def use_camera(self, camera: Camera, pivot: np.ndarray | None = None) -> None:
        """Draw with exactly this camera until the user moves it. `pivot`: (3,) what to orbit around then, as far as
        that lies on its line of sight; None: the middle of the scene."""
        if pivot is None:
            sight = self.content.sight
            pivot = sight.center if sight is not None else np.zeros(3)
        if self.content.sight is not None:
            camera = self.content.sight.near_of(camera)
        self.orbit.take(camera, pivot)
        self._camera, self._seen_in, self.framed = camera, None, True

    def fly_to(self, camera: Camera, seconds: float = SECONDS, pivot: np.ndarray | None = None) -> None:
        """Go to exactly this camera on a way that the eye can follow, as the loop goes on; the user may interrupt that.
        0 seconds: at once. `pivot`: as in `use_camera`, None: what is orbited around now."""
        self.navigate.fly_to(camera, seconds, pivot)

    def look_with(self, camera: Camera | None) -> None:
        """Draw with exactly this camera, which nobody moves; None: look at the whole scene, as at first sight of it."""
        up, self.orbit = self.orbit.up, Orbit()
        self.orbit.up = up  # found at first sight alone
        self._camera, self._seen_in, self.framed = camera, None, camera is not None

    def frame(self) -> None:
        """Look at the whole scene, as at first sight."""
        self.framed, self._camera, self._seen_in = False, None, None

    @property
    def stale(self) -> bool:
        return self.content.stale

    @property
    def busy(self) -> bool:
        return self.content.busy

    @property
    def cuda(self) -> bool:
        return self.content.renderer.wants_gpu

    @property
    def moving(self) -> bool:
        """Whether somebody moved the camera just now."""
        return self.moved_at is None or self.content.now - self.moved_at < _REST

    def camera(self, rect: Rect | None = None) -> Camera | None:
        """The camera with which it is drawn in a rectangle, the last one by default; None while there is no scene."""
        return None if self.content.facts is None else self._current_camera(rect or self.rect)

    @property
    def fixed(self) -> bool:
        """Whether it is seen with exactly a camera that was given, which nobody has moved yet."""
        return self._camera is not None

    def in_motion(self) -> None:
        """The camera moves, though nobody's hand does: for now, smooth goes before sharp."""
        self.moved_at = None

    def moved(self) -> None:
        """The user has moved `orbit`: look from there."""
        self._camera = self._seen_in = None
        self.framed = self.content.facts is not None
        self.moved_at = None

    def _current_camera(self, rect: Rect) -> Camera:
        camera, sight = self._chosen_camera(rect), self.content.sight
        return camera if sight is None else sight.near_of(camera)

    def _chosen_camera(self, rect: Rect) -> Camera:
        content, size = self.content, (rect.width, rect.height)
        assert content.facts is not None
        if not self.framed and content.facts.count and (sight := content.newest_sight()) is not None:
            camera = sight.camera(*size, self.navigate.first_up())
            model = self.orbit.model
            self.orbit.take(camera, sight.middle)
            self.orbit.model = model
            self.framed = True
        if self._seen_in is not None and self._seen_in != size:
            camera = self._camera.resized(*self._seen_in) if self._camera is not None else (
                self.orbit.camera(*self._seen_in))
            return camera.fitted(*size)
        if self._camera is not None:
            if (self._camera.width, self._camera.height) == size:
                return self._camera
            return self._camera.resized(*size)
        return self.orbit.camera(*size)

    @property
    def options(self) -> RenderOptions:
        """How its picture is drawn."""
        s, facts = self.settings, self.content.facts
        trained = "antialiased" if facts is not None and facts.antialiased else "classic"
        mode = trained if s.mode == "scene" else s.mode
        paint = "color" if s.show in ("color", "depth", "alpha") else s.show
        selection = replace(s.selection, marked=()) if self.host.exact else s.selection
        return RenderOptions(mode, s.sh_degree, s.show == "depth", paint, s.scale, s.point_px * self.host.scale,
                             selection)

    def tensor(self, width: int, height: int) -> torch.Tensor | None:
        """What `draw` would draw into a framebuffer of this size, of colours in full resolution, without OpenGL: uint8
        (height, width, 3) on the GPU that draws, top row first, for what torch's current stream does next.

        None where CUDA does not draw. Afterwards the view is `stale` if the scene was overwritten meanwhile: that is no
        picture then.
        """
        content = self.content
        if content.facts is None or not self.cuda:
            return None
        camera = self._current_camera(Rect(0, 0, width, height))
        return content.tensor(self.picture, camera, self.options, self.background)

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        content, s, exact = self.content, self.settings, bool(self.host.exact)
        self.rect = rect
        if content.facts is not None:
            pace = Pace(self.moving and not exact, s.reproject and s.show in _SOLID and not exact,
                        math.inf if exact else s.coarse_ms)
            content.picture(self.picture, self._current_camera(rect), self.options, pace)
        self._told = content.loads
        self.lay(content.source(self.picture, self.orbit.distance), framebuffer, rect)
        for tool in self.tools.values():
            tool.draw(framebuffer, rect)

    def lay(self, source: PixelSource | None, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        """Draw what its picture consists of, or nothing, over its background."""
        s = self.settings
        colors = s.color_map, self.picture.depth.shown_range(s)
        self.content.composer.lay(source, framebuffer, rect, self.background, s.show, colors)

    def over(self, rect: Rect, scale: float) -> bool:
        if self.host.exact:  # a picture to keep has nothing on it that only helps to look
            return False
        again = False
        for tool, place in self._bars(rect, scale):
            again |= tool.bar(place, scale)
        for tool in self.tools.values():
            again |= tool.over(rect, scale)
        hints = self.content.hints
        if hints.draw(self._above_bars(rect), scale, self.host.name) and hints.hint is not None:
            self.content.choices.add(hints.hint.choice)
            hints.hint = self.content.sight = None  # both are of the scene as it was
            self.host.again()
        return again

    def _above_bars(self, rect: Rect) -> Rect:
        return replace(rect, height=max(rect.height - round(self.bars_height), 1))

    def _bars(self, rect: Rect, scale: float) -> list[tuple[Tool, Rect]]:
        """Those that take a strip at the lower edge, one above the other, and where."""
        out, bottom = [], rect.y + rect.height
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

    def boards(self, rect: Rect) -> Sequence[Rect]:
        return [place for _, place in self._bars(rect, self.host.scale)] + [
            board for tool in self.tools.values() for board in tool.boards(rect)] + (
                self.content.hints.boards(self._above_bars(rect)))

    def handle(self, event: Event, rect: Rect) -> bool:
        self.rect = rect
        for tool in self.tools.values():
            if (again := tool.handle(event, rect)) is not None:
                return again
        return False

    takes_films = True

    def dropped(self, file: Path, film: Film | None = None) -> bool:
        return any(tool.dropped(file, film) for tool in self.tools.values())

    def go_on_from_here(self) -> None:
        """Before the camera of somebody who was followed until now is moved: begin where that is."""
        if self._seen_in is None:
            return
        if self.content.facts is not None:
            self.orbit.take(self._current_camera(self.rect), self.orbit.target)
        self._camera = self._seen_in = None

    def tick(self, now: float) -> bool:
        """Draws in full what was drawn coarsely, once the user rests."""
        content = self.content
        content.tick(now)
        again, self._told = self._told != content.loads, content.loads
        for tool in self.tools.values():
            again |= tool.tick(now)
        if self.moved_at is None:
            self.moved_at = now
        again |= content.moves_on(self.picture, self.moving)
        return again or (self.picture.scale < 1.0 and not self.moving)

    def leave(self) -> None:
        self.content.rest()

    def drop(self) -> None:
        self.picture.drop()

    def panel(self) -> bool:
        look: Look = self.tools["look"]  # type: ignore[assignment]
        return look.panel()

    @property
    def sections(self) -> Sequence[Section]:
        return in_order([section for tool in self.tools.values() for section in tool.sections()])

    @property
    def keys(self) -> Sequence[KeyHelp]:
        return [line for tool in self.tools.values() if tool.at_hand for line in tool.keys]

    @property
    def background(self) -> Color:
        return self.settings.background or self.content.background or (0.0, 0.0, 0.0)

    @property
    def empty(self) -> bool:
        return self.content.facts is None

    @property
    def details(self) -> list[str]:
        scene = self.content.facts
        if scene is None:
            return []
        out = [f"{scene.count:,} Gaussian{'s' * (scene.count != 1)}"]
        renderer = self.content.renderer
        out += [words for words in (renderer.left_out.words(scene.count), renderer.thinned) if words]
        out += scene.phrases
        for tool in self.tools.values():
            out += tool.details()
        scale = self.picture.scale
        coarse = [f"at {scale:.0%} for now"] if scale < 1.0 else []
        return [*out, *coarse, *scene.notes]

    @property
    def extras(self) -> list[str]:
        renderer = self.content.renderer
        stages = ", ".join(f"{name} {ms:.1f}" for name, ms in renderer.timings.items())
        note = renderer_note(renderer)
        return [*([f"renderer: {stages} ms"] if stages else []), *([note] if note else [])]

    @property
    def readout(self) -> str:
        return ""

    @property
    def path(self) -> list[str]:
        how = "parameters read in place" if self.content.on_gpu else "parameters uploaded"
        renderer = self.content.renderer
        canvas = CANVAS_WORDS.get(getattr(renderer, "bridge", ""), "")
        return [how, f"{renderer.name} renderer", *([canvas] if canvas else [])]

    @property
    def timings(self) -> dict[str, float]:
        gpu = self.content.renderer.gpu_ms
        return self.content.stopwatch.ms | ({} if gpu is None else {"GPU": gpu})

    def close(self) -> None:
        for tool in self.tools.values():
            tool.close()
        self.content.release(self.picture)
