"""Shows Gaussians: a renderer draws them, one pass lays the result over the background."""

from __future__ import annotations

import math
import os
import time
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any, ClassVar

import moderngl
import numpy as np

from viewer_app.cameras import bounds
from viewer_app.controls import Orbit, Rect
from viewer_app.errors import RendererError, ViewerError
from viewer_app.events import Key, PointerPress
from viewer_app.renderers.base import RenderOptions
from viewer_app.scene import GaussianScene
from viewer_app.state import GaussianSettings
from viewer_app.views._gaussian_frames import background_of, first_sight, scene_of, visible_weights
from viewer_app.views.base import Stopwatch

if TYPE_CHECKING:
    from ipc import Frame
    from viewer_app.cameras import Camera
    from viewer_app.events import Event
    from viewer_app.renderers.base import Picture, Renderer
    from viewer_app.state import Color

_VERTEX = """
#version 330
void main() {  // one triangle over everything
    gl_Position = vec4(gl_VertexID == 1 ? 3.0 : -1.0, gl_VertexID == 2 ? 3.0 : -1.0, 0.0, 1.0);
}
"""
_SHOW = {"color": 0, "depth": 1, "alpha": 2}
_REST = 0.2
"""Seconds without input after which a coarse picture is drawn again in full."""
_LARGE = 400_000
"""Gaussians beyond which the first picture of a scene is coarse: something to see at once, wherever it is drawn."""
UPS: dict[str, tuple[float, float, float]] = {
    "-y": (0, -1, 0), "+y": (0, 1, 0), "+z": (0, 0, 1), "-z": (0, 0, -1), "+x": (1, 0, 0), "-x": (-1, 0, 0),
}


def make_renderer(ctx: moderngl.Context) -> Renderer:
    """The renderer that SPLATVIEW_RENDERER names, or the best there is."""
    wanted = os.environ.get("SPLATVIEW_RENDERER", "gl")
    if wanted != "gl":
        raise RendererError(f"SPLATVIEW_RENDERER is {wanted!r}; legal here: gl")
    from viewer_app.renderers.gl import GlRenderer

    return GlRenderer(ctx)


class GaussianView:
    kind: ClassVar[str] = "gaussians"

    def __init__(self, ctx: moderngl.Context, settings: GaussianSettings | None = None, *,
                 renderer: Renderer | None = None, orbit: Orbit | None = None) -> None:
        self.settings = settings or GaussianSettings()
        self.orbit = orbit or Orbit()
        self._ctx = ctx
        self._renderer = renderer or make_renderer(ctx)
        self._scene: GaussianScene | None = None
        self._background: Color | None = None
        self._loads = 0
        self._framed = orbit is not None
        self._camera: Camera | None = None
        self._picture: Picture | None = None
        self._drawn: tuple[Any, ...] = ()
        self._depth: moderngl.Texture | None = None
        self._depth_of: tuple[Any, ...] = ()
        self._range = (0.0, 0.0)
        self._rect = Rect(0, 0, 1, 1)
        self._scale = 1.0
        self._coarse = 1.0
        self._moved_at = -math.inf
        self._stopwatch = Stopwatch()
        fragment = files("viewer_app.views").joinpath("shaders/compose.glsl").read_text()
        self._program = ctx.program(vertex_shader=_VERTEX, fragment_shader="#version 330\n" + fragment)
        self._array = ctx.vertex_array(self._program, [])

    def update(self, value: Frame | GaussianScene | np.ndarray) -> bool:
        background = None
        if isinstance(value, np.ndarray):
            raise ViewerError(f"gaussians: an array of shape {value.shape} is no scene")
        if isinstance(value, GaussianScene):
            scene = value
        else:
            with self._stopwatch("copy"):
                scene = scene_of(value)
                background = background_of(value)
            if not value.intact():
                return False
        with self._stopwatch("load"):
            self._renderer.load(scene)
        if self._scene is None and len(scene) > _LARGE and self.settings.coarse_ms < math.inf:
            self._coarse = max(math.sqrt(_LARGE / len(scene)), 0.25)
            self._moved_at = time.monotonic()
        self._scene, self._background = scene, background
        self._loads += 1
        return True

    def use_camera(self, camera: Camera) -> None:
        """Draw with exactly this camera until the user moves it."""
        target = bounds(self._scene.means)[0] if self._scene is not None else np.zeros(3)
        self.orbit.take(camera, target)
        self._camera, self._framed = camera, True

    def frame(self) -> None:
        """Look at the whole scene, as at first sight."""
        self._framed, self._camera = False, None

    def _current_camera(self, rect: Rect) -> Camera:
        scene = self._scene
        assert scene is not None
        if not self._framed and len(scene):
            camera = first_sight(scene, rect.width, rect.height, self.orbit.up)
            model = self.orbit.model
            self.orbit.take(camera, bounds(scene.means, visible_weights(scene))[0])
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
        self._scale = self._coarse if time.monotonic() - self._moved_at < _REST else 1.0
        camera = self._current_camera(rect)
        if self._scale < 1.0:
            size = max(int(rect.width * self._scale), 16), max(int(rect.height * self._scale), 16)
            camera = camera.resized(*size)
        mode = ("antialiased" if scene.antialiased else "classic") if s.mode == "scene" else s.mode
        options = RenderOptions(mode, s.sh_degree, depth=s.show == "depth")
        wanted = (camera.viewmat.tobytes(), camera.K.tobytes(), camera.width, camera.height, camera.model, options,
                  self._loads)
        if self._picture is not None and wanted == self._drawn:
            return
        with self._stopwatch("render"):
            self._picture = self._renderer.render(camera, options)
            self._ctx.finish()  # so that the time below is that of the work
        self._drawn = wanted
        self._adapt(self._stopwatch.ms["render"])

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
        self._rect = rect
        viewport = rect.viewport(framebuffer.height)
        if self._scene is None:
            framebuffer.clear(*self.background, 1.0, viewport=viewport)
            return
        self._render(rect)
        assert self._picture is not None
        texture = self._depth_texture() if self.settings.show == "depth" else self._picture.texture(self._ctx)
        smooth = moderngl.LINEAR if self._scale < 1.0 else moderngl.NEAREST
        texture.filter = smooth, smooth
        texture.repeat_x = texture.repeat_y = False
        self._program["u_corner"] = rect.x, rect.y
        self._program["u_size"] = rect.width, rect.height
        self._program["u_height"] = float(framebuffer.height)
        self._program["u_background"] = self.background
        self._program["u_show"] = _SHOW[self.settings.show]
        self._ctx.disable(moderngl.BLEND | moderngl.DEPTH_TEST | moderngl.CULL_FACE)
        texture.use(0)
        framebuffer.use()
        framebuffer.viewport = viewport
        self._array.render(moderngl.TRIANGLES, vertices=3)

    def _depth_texture(self) -> moderngl.Texture:
        """Expected depth stretched over [0, 1] with alpha, as RGBA float."""
        assert self._picture is not None
        if self._depth is not None and self._depth_of == self._drawn:
            return self._depth
        pixels = self._picture.pixels()
        assert pixels.depth is not None
        seen = pixels.alpha > 0.3
        depth = np.divide(pixels.depth, pixels.alpha, out=np.zeros_like(pixels.depth), where=pixels.alpha > 1e-6)
        self._range = (0.0, 0.0)
        if seen.any():
            low, high = np.percentile(depth[seen], (1, 99))
            self._range = float(low), float(high)
            depth = (depth - low) / max(high - low, 1e-12)
        height, width = depth.shape
        rgba = np.zeros((height, width, 4), np.float32)
        rgba[..., 0], rgba[..., 3] = depth, pixels.alpha
        if self._depth is None or self._depth.size != (width, height):
            if self._depth is not None:
                self._depth.release()
            self._depth = self._ctx.texture((width, height), 4, dtype="f4")
        self._depth.write(rgba)
        self._depth_of = self._drawn
        return self._depth

    def handle(self, event: Event, rect: Rect) -> bool:
        self._rect = rect
        if isinstance(event, Key):
            if event.name == "f" and event.pressed:
                self.frame()
                return True
            return False
        if isinstance(event, PointerPress) and event.clicks == 2:
            return False
        if not self.orbit.handle(event, rect):
            return False
        self._camera, self._framed = None, self._scene is not None
        self._moved_at = time.monotonic()
        return True

    def tick(self, now: float) -> bool:
        """Draws in full what was drawn coarsely, once the user rests."""
        return self._scale < 1.0 and now - self._moved_at >= _REST

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
        orbit.model = ui.choice("Projection", orbit.model, {"pinhole": "Perspective", "ortho": "Orthographic"})
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
        changed = before != (s, orbit.model, orbit.fov) or chosen != up
        if changed and (chosen != up or before[1:] != (orbit.model, orbit.fov)):
            self._camera = None
        return changed or pressed == 0

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
        out = [f"{len(scene):,} Gaussians"]
        if self._renderer.skipped:
            out.append(f"{self._renderer.skipped:,} skipped (NaN or inf)")
        if scene.stored_sh_degree:
            out.append(f"SH {min(scene.sh_degree, scene.stored_sh_degree)} of {scene.stored_sh_degree}")
        if scene.antialiased:
            out.append("antialiased")
        if self.settings.show == "depth" and self._range[1] > 0:
            out.append(f"depth {self._range[0]:.3g} to {self._range[1]:.3g}")
        if self._scale < 1.0:
            out.append(f"at {self._scale:.0%} for now")
        return [*out, *scene.notes]

    @property
    def extras(self) -> list[str]:
        stages = ", ".join(f"{name} {ms:.1f}" for name, ms in self._renderer.timings.items())
        return [f"renderer: {stages} ms"] if stages else []

    @property
    def readout(self) -> str:
        return ""

    @property
    def path(self) -> list[str]:
        return ["texture upload", f"{self._renderer.name} renderer"]

    @property
    def timings(self) -> dict[str, float]:
        return dict(self._stopwatch.ms)

    def close(self) -> None:
        self._renderer.close()
        if self._depth is not None:
            self._depth.release()
            self._depth = None
        self._scene = self._picture = None
        self._array.release()
        self._program.release()
