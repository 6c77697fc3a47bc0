"""Shows Gaussians: a renderer draws them, one pass lays the result over the background."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any, ClassVar

import moderngl
import numpy as np

from ipc.interop.base import fragment_head
from viewer_app.cameras import bounds
from viewer_app.controls import Orbit, Rect
from viewer_app.errors import ViewerError
from viewer_app.events import Key, PointerPress
from viewer_app.governor import scaled
from viewer_app.gpu_work import GpuWork
from viewer_app.renderers.base import RenderOptions
from viewer_app.renderers.choose import make_renderer, renderer_note
from viewer_app.scene import GaussianScene
from viewer_app.state import GaussianSettings
from viewer_app.views._depth import DepthPicture
from viewer_app.views._gaussian_frames import Facts, Sight, background_of, device_scene_of, scene_of
from viewer_app.views.base import CANVAS_WORDS, VERTEX, Stopwatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipc import Frame
    from ipc.interop.base import PixelSource
    from viewer_app.cameras import Camera
    from viewer_app.events import Event
    from viewer_app.renderers.base import Picture, Renderer
    from viewer_app.state import Color

_SHOW = {"color": 0, "depth": 1, "alpha": 2}
_REST = 0.2
"""Seconds without input after which a coarse picture is drawn again in full."""
_LARGE = 400_000
"""Gaussians beyond which the first picture of a scene is coarse: something to see at once, wherever it is drawn."""
_REPLACED = 1.0
"""Seconds within which a scene that was overwritten while it was read is replaced, if its trainer lives."""
_LOOK_PERIOD = 5.0
"""Seconds between looks at where the Gaussians of a scene on a GPU are."""
_BACKGROUND_PERIOD = 1.0
"""Seconds between looks at a background colour that lies on a GPU, which wait for it."""
UPS: dict[str, tuple[float, float, float]] = {
    "-y": (0, -1, 0), "+y": (0, 1, 0), "+z": (0, 0, 1), "-z": (0, 0, -1), "+x": (1, 0, 0), "-x": (-1, 0, 0),
}


class GaussianView:
    """Scenes on a GPU are read where they lie if the renderer can, in one go with the picture that shows them first:
    such a frame is held until that picture is done. If it was overwritten meanwhile, the picture is never shown."""

    kind: ClassVar[str] = "gaussians"

    def __init__(self, ctx: moderngl.Context, settings: GaussianSettings | None = None, *,
                 renderer: Renderer | None = None, orbit: Orbit | None = None, work: GpuWork | None = None) -> None:
        self.settings = settings or GaussianSettings()
        self.orbit = orbit or Orbit()
        self.stale = False
        self._ctx = ctx
        self._work = work or GpuWork(ctx)
        self._renderer = renderer or make_renderer(ctx)
        self._scene: Facts | None = None
        self._sight: Sight | None = None
        self._looked_at = self._stale_at = -math.inf
        self._background: Color | None = None
        self._background_at = -math.inf
        self._loading: Frame | None = None
        """What the renderer reads when it draws next, or is reading."""
        self._look: Callable[[], Sight | None] | None = None
        self._loads = 0
        self._on_gpu = False
        self._framed = orbit is not None
        self._camera: Camera | None = None
        self._picture: Picture | None = None
        self._source: PixelSource | None = None
        self._drawn: tuple[Any, ...] = ()
        self._depth = DepthPicture(ctx)
        self._rect = Rect(0, 0, 1, 1)
        self._scale = 1.0
        self._coarse = 1.0
        self._moved_at = -math.inf
        self._timed: tuple[object, ...] = ()
        self._stopwatch = Stopwatch()
        self._arrays: dict[tuple[str, ...], moderngl.VertexArray] = {}

    def update(self, value: Frame | GaussianScene | np.ndarray) -> bool:
        if isinstance(value, np.ndarray):
            raise ViewerError(f"gaussians: an array of shape {value.shape} is no scene")
        if self.busy:
            return False
        frame, background, ready = None, None, None
        if isinstance(value, GaussianScene):
            scene = value
        else:
            frame = value
            with self._stopwatch("copy"):
                self._on_gpu = value.on_gpu and self._renderer.wants_gpu
                scene, ready = device_scene_of(value) if self._on_gpu else (scene_of(value), None)
                background = self._background_of(value)
            if not value.intact():
                return False
        now = time.monotonic()
        sight = self._sight
        if sight is None or not self._framed or not scene.on_gpu:
            sight, self._looked_at = Sight.of(scene, ready), now
        elif ready is not None and now - self._looked_at > _LOOK_PERIOD:
            self._look, self._looked_at = Sight.later(scene, ready), now
        with self._stopwatch("load"):
            self._renderer.load(scene, ready)
        before, self._loading = self._loading, None
        if before is not None:  # it was never drawn
            while not self._has_looked():
                time.sleep(0.0001)
            before.close()
        if frame is not None and self._renderer.reading:
            frame.hold()
            self._loading = frame
        slow = not self._renderer.wants_gpu and len(scene) > _LARGE and self.settings.coarse_ms < math.inf
        if self._scene is None and slow:
            self._coarse = max(math.sqrt(_LARGE / len(scene)), 0.25)
            self._moved_at = now
        self._scene, self._sight, self._background = Facts.of(scene), sight, background
        self.stale = False
        self._loads += 1
        return True

    def _background_of(self, frame: Frame) -> Color | None:
        now = time.monotonic()
        if frame.on_gpu and now - self._background_at < _BACKGROUND_PERIOD:
            return self._background
        self._background_at = now
        return background_of(frame)

    def _is_read(self) -> bool:
        """Let go of the frame whose picture is done. False for one that was overwritten meanwhile: the view is stale
        then, and shows what it showed before until a whole one comes."""
        frame = self._loading
        if frame is None:
            return True
        while self._renderer.reading or not self._has_looked():
            time.sleep(0.0001)
        self._loading = None
        self.stale, self._stale_at = not frame.intact(), time.monotonic()
        frame.close()
        return not self.stale

    def _has_looked(self) -> bool:
        """Whether nothing reads where the Gaussians are."""
        if self._look is not None and (sight := self._look()) is not None:
            self._sight, self._look = sight, None
        return self._look is None

    def use_camera(self, camera: Camera) -> None:
        """Draw with exactly this camera until the user moves it."""
        target = bounds(self._sight.means)[0] if self._sight is not None else np.zeros(3)
        self.orbit.take(camera, target)
        self._camera, self._framed = camera, True

    def frame(self) -> None:
        """Look at the whole scene, as at first sight."""
        self._framed, self._camera = False, None

    @property
    def busy(self) -> bool:
        return self._loading is not None and not self._renderer.pending

    @property
    def cuda(self) -> bool:
        return self._renderer.wants_gpu

    @property
    def moving(self) -> bool:
        """Whether somebody moved the camera just now."""
        return time.monotonic() - self._moved_at < _REST

    def _current_camera(self, rect: Rect) -> Camera:
        assert self._scene is not None
        if not self._framed and self._scene.count and self._sight is not None:
            camera = self._sight.camera(rect.width, rect.height, self.orbit.up)
            model = self.orbit.model
            self.orbit.take(camera, self._sight.middle)
            self.orbit.model = model
            self._framed = True
        if self._camera is not None:
            if (self._camera.width, self._camera.height) == (rect.width, rect.height):
                return self._camera
            return self._camera.resized(rect.width, rect.height)
        return self.orbit.camera(rect.width, rect.height)

    def _render(self, rect: Rect) -> None:
        """Draw the scene, unless the picture that is there shows just this."""
        s, scene = self.settings, self._scene
        assert scene is not None
        if self.stale and time.monotonic() - self._stale_at <= _REPLACED:
            return  # after that what there is has to do: its trainer has died
        size = rect.width, rect.height
        scale = min(self._coarse, self._work.governor.scale("scene", size)) if self.moving else 1.0
        camera = self._current_camera(rect)
        if scale < 1.0:
            camera = camera.resized(*scaled(size, scale))
        mode = ("antialiased" if scene.antialiased else "classic") if s.mode == "scene" else s.mode
        options = RenderOptions(mode, s.sh_degree, depth=s.show == "depth")
        wanted = camera.key, options, self._loads
        if self._source is not None and wanted == self._drawn:
            return
        self._scale = scale
        work = "scene", camera.width, camera.height
        cuda = self._renderer.wants_gpu
        with self._stopwatch("render"):
            if cuda:  # it works with CUDA, which OpenGL's clock does not see
                if self._loading is not None:
                    self._work.governor.gives(("load",), "cuda")
                self._work.governor.gives(work, "cuda")
                picture = self._renderer.render(camera, options)
            else:
                with self._work(*work):
                    picture = self._renderer.render(camera, options)
        before, self._timed = self._timed, work
        with self._stopwatch("wait"):
            if cuda:  # now that it is at work again: asking takes a while
                self._account(before)
            self._has_looked()  # only begins to look, while CUDA draws
            source = self._depth.source(picture, wanted) if options.depth else picture.source()
            if not self._is_read():
                return
        self._picture, self._source, self._drawn = picture, source, wanted
        self._adapt(self._stopwatch.ms["render"] + (0.0 if self._work.software else self._work.ms.get("scene", 0.0)))

    def _account(self, before: tuple[object, ...]) -> None:
        """Tell what CUDA took for what it did last; `before`: the work that the picture before this one was."""
        if (ms := self._renderer.load_gpu_ms) is not None:
            self._work.took(("load",), ms)
        ms = self._renderer.gpu_ms
        if ms is not None and before == self._timed:  # it is of one of the two, so only if they are alike
            self._work.took(before, ms)

    def _adapt(self, ms: float) -> None:
        """Choose the resolution of pictures during a drag from what the last one took."""
        budget = self.settings.coarse_ms
        if ms > budget:
            self._coarse = max(self._scale * max(math.sqrt(budget / ms), 0.5), 0.2)
        elif self._scale < 1.0 and ms < budget / 2:
            self._coarse = min(self._scale * 1.25, 1.0)
        elif self._scale == 1.0:
            self._coarse = 1.0

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        self._rect, viewport = rect, rect.viewport(framebuffer.height)
        if self._scene is not None:
            self._render(rect)
        framebuffer.use()
        source = self._source
        if source is None:
            framebuffer.clear(*self.background, 1.0, viewport=viewport)
            return
        array = self._vertex_array(source)
        program = array.program
        program["u_corner"] = rect.x, rect.y
        program["u_size"] = rect.width, rect.height
        program["u_height"] = float(framebuffer.height)
        program["u_background"] = self.background
        program["u_show"] = _SHOW[self.settings.show]
        self._ctx.disable(moderngl.BLEND | moderngl.DEPTH_TEST | moderngl.CULL_FACE)
        source.bind(program)
        framebuffer.viewport = viewport
        with self._work("compose", rect.width, rect.height):
            array.render(moderngl.TRIANGLES, vertices=3)

    def _vertex_array(self, source: PixelSource) -> moderngl.VertexArray:
        """What draws a picture; one that is smaller than its place on the screen is smoothed."""
        defines = (*source.defines, *(("SMOOTH",) if source.size != (self._rect.width, self._rect.height) else ()))
        if defines not in self._arrays:
            text = files("viewer_app.views").joinpath("shaders/compose.glsl").read_text()
            program = self._ctx.program(vertex_shader=VERTEX, fragment_shader=fragment_head(defines) + text)
            self._arrays[defines] = self._ctx.vertex_array(program, [])
        return self._arrays[defines]

    def handle(self, event: Event, rect: Rect) -> bool:
        self._rect = rect
        if isinstance(event, Key):
            if event.name == "f" and event.pressed:
                self.frame()
                return True
            return False
        if (isinstance(event, PointerPress) and event.clicks == 2) or not self.orbit.handle(event, rect):
            return False
        self._camera, self._framed = None, self._scene is not None
        self._moved_at = time.monotonic()
        return True

    def tick(self, now: float) -> bool:
        """Draws in full what was drawn coarsely, once the user rests."""
        self._work.collect()
        again = self._renderer.tick()
        self._loads += again
        if self.busy and not self._renderer.reading:  # a fault came between
            self._is_read()
        _ = self._renderer.pending or self._has_looked()  # the picture comes first
        return again or (self._scale < 1.0 and now - self._moved_at >= _REST)

    def leave(self) -> None:
        if self._renderer.pending:
            self._renderer.read()
        self._is_read()

    def panel(self) -> bool:
        from viewer_app import widgets as ui

        s, orbit, before = self.settings, self.orbit, (replace(self.settings), self.orbit.model, self.orbit.fov)
        pressed = ui.buttons("Camera", ["Frame", "Print"], [
            "Look at the whole scene (F)",
            "Write the camera to the terminal, for splatview shot --camera",
        ])
        if pressed == 0:
            self.frame()
        elif pressed == 1 and self._scene is not None:
            print(self._current_camera(self._rect).to_json(), flush=True)
        orbit.model = ui.choice("Projection", orbit.model, {"pinhole": "Perspective", "ortho": "Orthographic",
                                                            "fisheye": "Fisheye"})
        orbit.fov = ui.slider("Field of view", orbit.fov, (5.0, 120.0), "%.0f deg", reset=50.0)
        up = min(UPS, key=lambda name: -float(np.dot(UPS[name], orbit.up)))
        chosen = ui.choice("Up", up, {name: name for name in UPS})
        if chosen != up:
            orbit.set_up(np.array(UPS[chosen]))
        s.show = ui.choice("Show", s.show, {"color": "Colour", "depth": "Depth", "alpha": "Alpha"})
        s.mode = ui.choice("Mode", s.mode, {"scene": "As trained", "classic": "Classic",
                                            "antialiased": "Antialiased"})
        stored = self._scene.stored_sh_degree if self._scene is not None else 0
        if stored:
            degrees: dict[int | None, str] = {None: "As trained"}
            s.sh_degree = ui.choice("SH degree", s.sh_degree, degrees | {d: f"Up to {d}" for d in range(stored + 1)})
        color = ui.color("Background", self.background)
        if max(abs(a - b) for a, b in zip(color, self.background, strict=True)) > 1e-4:
            s.background = color
        moved = chosen != up or before[1:] != (orbit.model, orbit.fov)
        if moved:
            self._camera = None
        return moved or before[0] != s or pressed == 0

    @property
    def background(self) -> Color:
        return self.settings.background or self._background or (0.0, 0.0, 0.0)

    @property
    def empty(self) -> bool:
        return self._scene is None

    @property
    def details(self) -> list[str]:
        scene = self._scene
        if scene is None:
            return []
        out = [f"{scene.count:,} Gaussians"]
        if self._renderer.skipped:
            out.append(f"{self._renderer.skipped:,} skipped (NaN or inf)")
        out += scene.phrases
        if self.settings.show == "depth" and self._depth.range[1] > 0:
            out.append(f"depth {self._depth.range[0]:.3g} to {self._depth.range[1]:.3g}")
        coarse = [f"at {self._scale:.0%} for now"] if self._scale < 1.0 else []
        return [*out, *coarse, *scene.notes]

    @property
    def extras(self) -> list[str]:
        stages = ", ".join(f"{name} {ms:.1f}" for name, ms in self._renderer.timings.items())
        note = renderer_note(self._renderer)
        return [*([f"renderer: {stages} ms"] if stages else []), *([note] if note else [])]

    @property
    def readout(self) -> str:
        return ""

    @property
    def path(self) -> list[str]:
        how = "parameters read in place" if self._on_gpu else "parameters uploaded"
        canvas = CANVAS_WORDS.get(getattr(self._renderer, "bridge", ""), "")
        return [how, f"{self._renderer.name} renderer", *([canvas] if canvas else [])]

    @property
    def timings(self) -> dict[str, float]:
        gpu = self._renderer.gpu_ms
        return dict(self._stopwatch.ms) | ({} if gpu is None else {"GPU": gpu})

    def close(self) -> None:
        frame, self._loading = self._loading, None
        self._renderer.close()
        if frame is not None:
            frame.close()
        self._depth.close()
        self._scene = self._picture = self._source = None
        for array in self._arrays.values():
            array.program.release()
            array.release()
        self._arrays.clear()
