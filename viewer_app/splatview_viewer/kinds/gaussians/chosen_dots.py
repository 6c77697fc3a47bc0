"""Dots over the picture, in the middle of Gaussians that are chosen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import moderngl
import numpy as np

from splatview_viewer.geometry.cameras import project
from splatview_viewer.kinds.gaussians.scene_reader import SceneReader
from splatview_viewer.render.base import ALPHA_MIN
from splatview_viewer.scene import HIDDEN, flags
from splatview_viewer.scene.scene import SceneCopy
from splatview_viewer.scene.selecting import array_of
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.selection import Mask, Selection
    from splatview_viewer.kinds.gaussians.view import GaussianView
    from splatview_viewer.scene.scene import GaussianScene

MAX_DOTS = 1 << 14
"""Dots that are drawn at most; of more Gaussians some have none, always the same ones."""
_DIAMETER = 2.7
_SPACING = 5.0
"""Points along the side of the squares of which each has one dot, so that what is below
them is seen."""
_OPACITY = 0.9
_MIN_COMPARED = 8
"""Dots from which on two versions of a scene are compared."""
_SPREAD = np.uint32(2654435769)
"""Multiplied by it, indices are as good as in random order (Fibonacci hashing)."""
_VERTEX = """
#version 330
uniform vec2 u_size;
uniform float u_diameter;
in vec2 a_pixel;
void main() {
    vec2 place = a_pixel / u_size * 2.0 - 1.0;
    gl_Position = vec4(place.x, -place.y, 0.0, 1.0);
    gl_PointSize = u_diameter + 1.0;
}
"""
_FRAGMENT = """
#version 330
uniform float u_diameter;
uniform vec4 u_color;
out vec4 f_color;
void main() {
    float distance = length(gl_PointCoord - 0.5) * (u_diameter + 1.0);
    f_color = u_color * clamp(0.5 * u_diameter + 0.5 - distance, 0.0, 1.0);
}
"""


class _DotDrawing(NamedTuple):
    """OpenGL's objects."""

    program: moderngl.Program
    buffer: moderngl.Buffer
    array: moderngl.VertexArray


class ChosenDots:
    """Draws the dots of one view.

    The places of Gaussians are read in jobs, for each version of the scene that there is
    time for.
    """

    def __init__(self, view: GaussianView) -> None:
        self._view = view
        self._reader = SceneReader(view, "chosen")
        self._followed_mask: Mask | None = None
        """The Gaussians of which there are to be dots."""
        self._key: tuple[Mask, Selection] | None = None
        """What is chosen and what is drawn, as it was when `_places` were read."""
        self.has_other_order = False
        """The newest version of the scene has the Gaussians in another order, so that
        others have the indices of the chosen ones."""
        self._places: np.ndarray | None = None
        """(M, 3) float64: centres, in an order as good as random; None: no dots."""
        self._spaced: np.ndarray | None = None
        """Indices of the places that have dots; None: to be chosen for the next picture."""
        self._is_moving = False
        """The last picture was drawn while the camera moved, with the dots before."""
        self._drawing: _DotDrawing | None = None

    @property
    def mask(self) -> Mask | None:
        """The Gaussians of which there are dots."""
        if self._key is None:
            return None
        return self._key[0]

    def tick(self, now: float, mask: Mask | None) -> bool:
        """Follow what is chosen; return whether the picture has to be drawn again."""
        if mask is None:
            if self._followed_mask is None:
                return False
            self._forget()
            return True
        self._followed_mask = mask
        selection = self._view.state.selection.unmarked
        answer = self._reader.take()
        if answer is not None:
            key, places = answer
            if key == self._key and self._places is not None:
                self.has_other_order = is_other_order(self._places, places)
            self._key = key
            self._places = places
            self._spaced = None

        def start(scene: GaussianScene) -> Callable[[], np.ndarray] | None:
            if len(scene) != mask.total:
                return None
            hidden = selection.hidden
            return places_later(scene, mask, replace(selection, hidden=None), hidden)

        self._reader.read(now, (mask, selection), start)
        has_come_to_rest = self._is_moving and not self._view.is_moving
        return answer is not None or has_come_to_rest

    def _forget(self) -> None:
        """Have no dots."""
        self._followed_mask = None
        self._key = None
        self.has_other_order = False
        self._places = None
        self._reader.forget()

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        """Draw over the picture in `rect`."""
        places = self._places
        camera = self._view.rig.drawn_camera(rect)
        if places is None or camera is None:
            return
        scale = self._view.host.scale
        self._is_moving = self._view.is_moving
        if self._spaced is None or not self._is_moving:
            pixels = project(camera, places)
            size = (rect.width, rect.height)
            self._spaced = space_out(pixels, size, _SPACING * scale)
            pixels = pixels[self._spaced]
        else:
            pixels = project(camera, places[self._spaced])
        if not len(pixels):
            return
        self._render(framebuffer, rect, pixels.astype(np.float32), _DIAMETER * scale)

    def _render(
        self,
        framebuffer: moderngl.Framebuffer,
        rect: Rect,
        pixels: np.ndarray,
        diameter: float,
    ) -> None:
        """Draw dots at pixels of the picture, (M, 2)."""
        ctx = self._view.data.ctx
        if self._drawing is None:
            self._drawing = _make_drawing(ctx)
        program, buffer, array = self._drawing
        buffer.write(pixels.tobytes())
        color = theme.SELECTED
        program["u_size"] = rect.width, rect.height
        program["u_diameter"] = diameter
        # Premultiplied.
        premultiplied = [c * _OPACITY for c in (color.x, color.y, color.z)]
        program["u_color"] = (*premultiplied, _OPACITY)
        framebuffer.use()
        framebuffer.viewport = rect.viewport(framebuffer.height)
        ctx.disable(moderngl.DEPTH_TEST | moderngl.CULL_FACE)
        ctx.enable(moderngl.BLEND | moderngl.PROGRAM_POINT_SIZE)
        ctx.blend_func = moderngl.ONE, moderngl.ONE_MINUS_SRC_ALPHA
        try:
            with self._view.data.work("dots", rect.width, rect.height):
                array.render(moderngl.POINTS, vertices=len(pixels))
        finally:
            ctx.disable(moderngl.BLEND | moderngl.PROGRAM_POINT_SIZE)
            ctx.blend_func = moderngl.SRC_ALPHA, moderngl.ONE_MINUS_SRC_ALPHA

    def close(self) -> None:
        """Release everything. Idempotent."""
        self._forget()
        if self._drawing is not None:
            for resource in reversed(self._drawing):
                resource.release()
            self._drawing = None


def _make_drawing(ctx: moderngl.Context) -> _DotDrawing:
    program = ctx.program(
        vertex_shader=_VERTEX.lstrip(), fragment_shader=_FRAGMENT.lstrip()
    )
    buffer = ctx.buffer(reserve=8 * MAX_DOTS, dynamic=True)
    array = ctx.vertex_array(program, [(buffer, "2f", "a_pixel")])
    return _DotDrawing(program, buffer, array)


def thinned(mask: Mask, limit: int) -> np.ndarray:
    """Return the indices of some of a mask's Gaussians, in an order as good as random.

    Those of a mask that has more Gaussians besides are mostly the same.

    Args:
        mask: the Gaussians.
        limit: how many indices there are at most.
    """
    indices = np.flatnonzero(array_of(mask)).astype(np.uint32)
    ranks = indices * _SPREAD
    if len(indices) > limit:
        # Ranks are spread evenly: about as many as the limit are below this one.
        is_first = ranks < np.uint32(limit / len(indices) * 2**32)
        indices = indices[is_first]
        ranks = ranks[is_first]
    return indices[np.argsort(ranks)[:limit]].astype(np.int64)


def places_later(
    scene: GaussianScene, mask: Mask, selection: Selection, hidden: Mask | None
) -> Callable[[], np.ndarray]:
    """Begin to read the centres of chosen Gaussians that are drawn.

    The returned function waits for the result, (M, 3) float64, in the order of `thinned`.
    The scene is read as `SceneCopy` says.

    Args:
        scene: activated.
        mask: the chosen ones.
        selection: what is drawn, but for `hidden`.
        hidden: what is not drawn.
    """
    import torch

    indices = thinned(mask, MAX_DOTS)
    if hidden is not None:
        indices = indices[~array_of(hidden)[indices]]
    rows = torch.from_numpy(indices).to(scene.means.device)

    def compute() -> list[torch.Tensor]:
        chosen = scene[rows]
        is_drawn = (flags(chosen, selection) & HIDDEN) == 0
        return [chosen.means, is_drawn & (chosen.opacities >= ALPHA_MIN)]

    copy = SceneCopy(scene, compute)

    def read() -> np.ndarray:
        means, is_drawn = copy.arrays()
        return means[is_drawn].astype(np.float64)

    return read


def is_other_order(previous: np.ndarray, places: np.ndarray) -> bool:
    """Return whether Gaussians have changed places with others, by most of them.

    A training moves its Gaussians by far less than they are apart.

    Args:
        previous: their centres in one version of a scene, (M, 3), in random order.
        places: the same in another version; of another length, they are not compared.
    """
    if len(previous) != len(places) or len(places) < _MIN_COMPARED:
        return False
    moved = np.linalg.norm(places - previous, axis=1)
    apart = np.linalg.norm(previous - np.roll(previous, 1, axis=0), axis=1)
    return bool(np.median(moved) > 0.5 * np.median(apart))


def space_out(pixels: np.ndarray, size: tuple[int, int], spacing: float) -> np.ndarray:
    """Return the indices of pixels so that each square of the picture has one at most.

    Args:
        pixels: (M, 2); NaN for what is not seen. The first of a square stays.
        size: the picture's width and height.
        spacing: pixels along the side of squares.
    """
    with np.errstate(invalid="ignore"):
        is_inside = ((pixels >= 0) & (pixels < size)).all(1)
    indices = np.flatnonzero(is_inside)
    cells = (pixels[indices] / spacing).astype(np.int64)
    columns = int(size[0] / spacing) + 1
    _, first = np.unique(cells[:, 1] * columns + cells[:, 0], return_index=True)
    return indices[first]
