"""Share the renderers, small scenes made by hand or by chance, and measures."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest

# The tests of the sources import this from here.
from splatview_ipc.gl.sources import read_source as read_source
from splatview_viewer.geometry.cameras import Camera, intrinsics, look_at
from splatview_viewer.render.activation import activate
from splatview_viewer.render.base import Pixels, RenderOptions, Rules
from splatview_viewer.render.gl import renderer as gl_renderer
from splatview_viewer.render.gl.renderer import GlRenderer
from splatview_viewer.render.gsplat.renderer import GsplatPicture, GsplatRenderer
from splatview_viewer.render.picking import pick_later
from splatview_viewer.scene.scene import SH_C0, GaussianScene
from support.reference import ReferenceRenderer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import moderngl

    from splatview_viewer.render.base import Renderer
    from splatview_viewer.render.picking import Hit


def gl(method: str, ctx: moderngl.Context) -> GlRenderer:
    """Make the OpenGL renderer as on a certain machine.

    Args:
        method: "quads", as on a graphics card, or "tiles", as on a software rasteriser.
        ctx: The context.
    """

    def is_software(ctx: moderngl.Context) -> bool:
        return method == "tiles"

    with mock.patch.object(gl_renderer, "is_software", is_software):
        return GlRenderer(ctx)


class GsplatDrafts(GsplatRenderer):
    """Draws every picture as a draft: packed, where it can."""

    def render(self, camera: Camera, options: RenderOptions) -> GsplatPicture:
        return super().render(camera, replace(options, is_draft=True))


def marked(name: str) -> Any:
    """Return a renderer's name as a parameter of tests; one of a GPU is marked so."""
    if name.startswith("gsplat"):
        return pytest.param(name, marks=pytest.mark.cuda)
    return name


MAKERS: dict[str, Callable[[moderngl.Context], Renderer]] = {
    "reference": ReferenceRenderer,
    "gl-quads": partial(gl, "quads"),
    "gl-tiles": partial(gl, "tiles"),
    "gsplat": GsplatRenderer,
    "gsplat-drafts": GsplatDrafts,
}
"""Every implementation by its name; after a hyphen, its method."""
MARKED = [marked(name) for name in sorted(MAKERS)]
"""Names of the renderers, for tests; those that need a GPU are marked."""
CLASSIC = RenderOptions()
GSPLAT_1_5 = Rules()
GSPLAT_1_6 = Rules(alpha_max=0.99, least_compensation=0.005)
CENTER = 24, 32
"""Row and column of the pixel that `camera()` looks along."""


def draw(
    renderer: Renderer,
    gaussians: GaussianScene,
    view: Camera | None = None,
    options: RenderOptions = CLASSIC,
) -> Pixels:
    renderer.load(gaussians)
    return renderer.render(view or camera(), options).pixels()


def pick(
    gaussians: GaussianScene,
    view: Camera,
    x: float,
    y: float,
    options: RenderOptions,
    rules: Rules = GSPLAT_1_5,
) -> Hit | None:
    return pick_later(gaussians, view, x, y, options, rules)()


def camera(
    width: int = 64, height: int = 48, focal: float = 50.0, **kwargs: Any
) -> Camera:
    """Make a camera at the origin that looks along +z.

    The optical axis goes through the centre of pixel (width / 2, height / 2).
    """
    K = np.array([[focal, 0, width / 2 + 0.5], [0, focal, height / 2 + 0.5], [0, 0, 1]])
    return Camera(np.eye(4), K, width, height, **kwargs)


def scene(
    means: Any,
    rgb: Any = (1.0, 1.0, 1.0),
    scales: Any = 0.1,
    opacities: Any = 0.5,
    **kwargs: Any,
) -> GaussianScene:
    """Make activated Gaussians of constant colour, broadcast to the number of means."""
    means = np.atleast_2d(np.asarray(means, np.float32))
    n = len(means)
    sh0 = (np.asarray(rgb, np.float64) - 0.5) / SH_C0
    fields: dict[str, Any] = {
        "quats": np.tile(np.array([1, 0, 0, 0], np.float32), (n, 1)),
        "scales": np.array(np.broadcast_to(scales, (n, 3)), np.float32),
        "opacities": np.array(np.broadcast_to(opacities, (n,)), np.float32),
        "sh0": np.array(np.broadcast_to(sh0, (n, 3)), np.float32),
        "shN": np.zeros((n, 0, 3), np.float32),
        "activated": True,
        "sh_degree": 0,
    }
    return GaussianScene.of_arrays(means, **{**fields, **kwargs})


@dataclass(frozen=True)
class Chance:
    """Distributions of a random scene."""

    n: int = 1500
    log_scale: tuple[float, float] = (-3.5, 0.8)
    """Mean and deviation."""
    logit: tuple[float, float] = (0.0, 2.0)
    """Mean and deviation."""
    spread: float = 1.5
    """Standard deviation of the means around the origin."""
    sh_degree: int = 3


def random_scene(seed: int, chance: Chance) -> GaussianScene:
    g = np.random.default_rng(seed)
    k = (chance.sh_degree + 1) ** 2 - 1

    def normal(mean: float, deviation: float, *shape: int) -> np.ndarray:
        return (mean + deviation * g.standard_normal(shape)).astype(np.float32)

    n = chance.n
    return GaussianScene.of_arrays(
        normal(0, chance.spread, n, 3),
        normal(0, 1, n, 4),
        normal(*chance.log_scale, n, 3),
        normal(*chance.logit, n),
        normal(0, 1, n, 3),
        normal(0, 0.3, n, k, 3),
        sh_degree=chance.sh_degree,
    )


def activated(gaussians: GaussianScene) -> GaussianScene:
    """Return a scene as `Renderer.scene` does."""
    return activate(gaussians)[0]


def looking_at_origin(
    width: int = 200, height: int = 150, distance: float = 4.0, **kwargs: Any
) -> Camera:
    """Make a camera that looks at the origin obliquely.

    Its principal point is off the middle, and its pixels are not quite square.
    """
    K = intrinsics(55.0, width, height)
    K[0, 0] *= 1.1
    K[:2, 2] += 7.3, -4.1
    if kwargs.get("model") == "ortho":
        K[0, 0] = 44.0
        K[1, 1] = 40.0
    position = distance * np.array([0.5, -0.35, -0.79])
    return Camera(look_at(position, (0, 0, 0)), K, width, height, **kwargs)


def psnr(a: np.ndarray, b: np.ndarray, peak: float = 1.0) -> float:
    """Compute the likeness of pictures in decibels, against `peak`."""
    error = float(np.mean((a.astype(np.float64) - b.astype(np.float64)) ** 2))
    if error == 0:
        return float("inf")
    return 10 * np.log10(peak * peak / error)


def close(got: Pixels, expected: Pixels, decibels: float = 50.0) -> None:
    """Check colour, alpha and depth to this many decibels of each one's largest value.

    Where the edge of a body lies on a pixel's centre, it may fall to either side.
    """
    edge = np.abs(got.alpha - expected.alpha) == 1
    assert edge.mean() < 2e-3
    names = ["color", "alpha"]
    if got.depth is not None:
        names.append("depth")
    for name in names:
        a = getattr(got, name)[~edge]
        b = getattr(expected, name)[~edge]
        assert b.max() > 0, f"{name}: nothing is seen"
        likeness = psnr(a, b, float(b.max()))
        assert likeness >= decibels, f"{name}: {likeness:.1f} dB"


@dataclass(frozen=True)
class Drawn:
    """A picture that gsplat drew."""

    scene: str
    camera: Camera
    mode: Any
    sh_degree: int
    color: np.ndarray
    alpha: np.ndarray
    depth: np.ndarray


def gsplat_picture(data_dir: Path, name: str) -> Drawn:
    folder = data_dir / "gsplat_reference"
    case = json.loads((folder / "cameras.json").read_text())[name]
    with np.load(folder / "renders.npz") as renders:
        picture = renders[name].astype(np.float32)
    viewmat = np.array(case["viewmat"])
    K = np.array(case["K"])
    return Drawn(
        scene=case["scene"],
        camera=Camera(viewmat, K, case["width"], case["height"]),
        mode=case["mode"],
        sh_degree=case["sh_degree"],
        color=picture[..., :3],
        alpha=picture[..., 3],
        depth=picture[..., 4],
    )


def real_scene(data_dir: Path, name: str) -> GaussianScene:
    """Read the scene biker, playbot or random."""
    if name != "random":
        from splatview_viewer.formats import open_file

        files = {"biker": "biker.compressed.ply", "playbot": "playbot"}
        return open_file(data_dir / files[name])
    with np.load(data_dir / "gsplat_reference" / "random_scene.npz") as z:
        return GaussianScene.of_arrays(
            z["means"],
            z["quats"],
            z["scales"],
            z["opacities"],
            z["sh0"],
            z["shN"].astype(np.float32),
        )
