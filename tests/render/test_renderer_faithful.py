"""Pixels against gsplat's own CUDA kernels, and the OpenGL renderer against the reference.

The stored pictures are float16: a value from 0.5 to 1 is rounded by up to 2^-12, so even a perfect renderer
reaches no more than 77 dB in alpha where the whole picture is opaque ("random"), 85 dB where a sixth of it is
("biker"). The reference stands at that limit, which is the evidence that it follows gsplat's rules.

The OpenGL renderer's tiles follow every rule, and differ by float32 rounding alone. Its quads depart from gsplat in
one: gsplat ends a pixel *before* the Gaussian that would take the transmittance to 1e-4 or below. Fixed blending
cannot know the transmittance, so that Gaussian and those behind it are drawn too. What it adds is at most the
transmittance before it: below 1e-2 behind an alpha of 0.99, 0.1 at worst, behind one of 0.999. Only scenes of nearly
opaque Gaussians show it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.renderer_cases import Chance, gsplat_picture, looking_at_origin, psnr, random_scene, real_scene

from splatview.viewer_app.renderers.base import Pixels, RenderOptions
from splatview.viewer_app.renderers.gl import GlRenderer
from splatview.viewer_app.renderers.reference import ReferenceRenderer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import moderngl

    from splatview.viewer_app.cameras import Camera
    from splatview.viewer_app.scene import GaussianScene

    Load = Callable[[str], GaussianScene]
    Compare = Callable[[GaussianScene, Camera, RenderOptions], tuple[float, float, float]]

# Decibels for colour, alpha, depth. Measured lowest: quads 81.0, 71.2, 73.2 on trained scenes and 70.5, 66.1, 64.1
# on random; tiles 77.8 (biker_1; 87.2 elsewhere), 80.6, 82.5 and 79.4, 76.7, 78.6; the reference 87.2, 80.6, 82.6 and
# 79.4, 76.7, 78.6. What tiles reach is thus about what the pictures, stored as float16, allow; on biker_1 the slow
# reference is not asked.
QUADS_GATES = {"biker": (75, 68, 68), "playbot": (75, 68, 68), "random": (65, 62, 60)}
TILES_GATES = {"biker": (76, 79, 79), "playbot": (85, 79, 79), "random": (77, 75, 75)}
REFERENCE_GATES = {"biker": (85, 79, 79), "playbot": (85, 79, 79), "random": (77, 75, 75)}


@pytest.fixture(scope="module", params=["quads", "tiles"])
def gl(request: pytest.FixtureRequest, ctx: moderngl.Context) -> Iterator[GlRenderer]:
    renderer = GlRenderer(ctx, compositor=request.param)
    yield renderer
    renderer.close()


@pytest.fixture(scope="module")
def load(data_dir: Path) -> Load:
    scenes: dict[str, GaussianScene] = {}

    def get(name: str) -> GaussianScene:
        if name not in scenes:
            scenes[name] = real_scene(data_dir, name)
        return scenes[name]

    return get


def decibels(a: Pixels, color: np.ndarray, alpha: np.ndarray, depth: np.ndarray) -> tuple[float, float, float]:
    """Colour and alpha against 1, depth against its largest value."""
    assert a.depth is not None
    return psnr(a.color, color), psnr(a.alpha, alpha), psnr(a.depth, depth, float(depth.max()))


@pytest.fixture(scope="module")
def drawn() -> dict[str, Pixels]:
    """Pictures of the reference by case: every compositor is compared with the same one."""
    return {}


@pytest.fixture
def both(gl: GlRenderer, drawn: dict[str, Pixels], request: pytest.FixtureRequest) -> Compare:
    """Return the decibels between `gl` and the reference. A test compares one picture."""
    case = request.node.name.replace(request.node.callspec.params["gl"], "")

    def compare(scene: GaussianScene, view: Camera, options: RenderOptions) -> tuple[float, float, float]:
        if case not in drawn:
            reference = ReferenceRenderer()
            reference.load(scene)
            drawn[case] = reference.render(view, options).pixels()
        gl.load(scene)
        expected = drawn[case]
        assert expected.depth is not None and expected.alpha.max() > 0.1, "the picture shows something"
        return decibels(gl.render(view, options).pixels(), expected.color, expected.alpha, expected.depth)

    return compare


@pytest.mark.parametrize("name", ["playbot_0_aa", "random_1"])
def test_gl_against_gsplat(gl: GlRenderer, load: Load, data_dir: Path, name: str,
                           request: pytest.FixtureRequest) -> None:
    d = gsplat_picture(data_dir, name)
    gl.load(load(d.scene))
    p = gl.render(d.camera, RenderOptions(d.mode, d.sh_degree)).pixels()
    got = decibels(p, d.color, d.alpha, d.depth)
    gates = TILES_GATES if request.node.callspec.params["gl"] == "tiles" else QUADS_GATES
    assert all(np.greater_equal(got, gates[d.scene])), got


@pytest.mark.parametrize("name", ["playbot_0_aa", "random_0"])
def test_reference_against_gsplat(load: Load, data_dir: Path, name: str) -> None:
    d = gsplat_picture(data_dir, name)
    reference = ReferenceRenderer()
    reference.load(load(d.scene))
    p = reference.render(d.camera, RenderOptions(d.mode, d.sh_degree)).pixels()
    got = decibels(p, d.color, d.alpha, d.depth)
    assert all(np.greater_equal(got, REFERENCE_GATES[d.scene])), got


@pytest.fixture
def least(request: pytest.FixtureRequest) -> float:
    """Decibels against the reference. Tiles reach 88 and more, quads 66 where Gaussians are nearly opaque."""
    return 80 if request.node.callspec.params["gl"] == "tiles" else 60


@pytest.mark.parametrize(("name", "size", "model"), [
    ("playbot_0_aa", (400, 300), "pinhole"), ("random_2", (321, 243), "ortho"),
    ("playbot_1", (321, 243), "fisheye"),
])
def test_gl_against_the_reference(both: Compare, load: Load, data_dir: Path, name: str, size, model,
                                  least: float) -> None:
    d = gsplat_picture(data_dir, name)
    view = d.camera.resized(*size)
    if model == "ortho":  # so large that an object at a distance of 4 looks as before
        K = view.K.copy()
        K[[0, 1], [0, 1]] /= 4
        view = replace(view, K=K, model="ortho")
    got = both(load(d.scene), view, RenderOptions(d.mode))
    assert min(got) >= least, got


SCENES = {
    "mixed": Chance(),
    "anisotropic": Chance(log_scale=(-3.5, 1.6)),
    "tiny": Chance(n=4000, log_scale=(-5.0, 0.5), logit=(3.0, 1.0)),
    "huge": Chance(n=200, log_scale=(0.5, 1.5), logit=(-2.0, 1.0)),
    "all around the camera": Chance(n=3000, spread=5.0),
}


@pytest.mark.parametrize(("kind", "model", "mode"), [
    ("mixed", "pinhole", "antialiased"), ("anisotropic", "ortho", "classic"), ("tiny", "fisheye", "antialiased"),
    ("huge", "pinhole", "classic"), ("all around the camera", "fisheye", "classic")])
def test_random_scenes(both: Compare, kind: str, model, mode, least: float) -> None:
    got = both(random_scene(21, SCENES[kind]), looking_at_origin(model=model), RenderOptions(mode))
    assert min(got) >= least, got


@pytest.mark.parametrize("degree", [0, 1, 2])  # 3 above
def test_every_sh_degree(both: Compare, degree: int, least: float) -> None:
    got = both(random_scene(22, Chance(sh_degree=degree)), looking_at_origin(), RenderOptions())
    assert min(got) >= least, got


def test_nearly_opaque(both: Compare, least: float) -> None:
    # Where the departure described at the top shows most; every other random scene stands above 70 with quads.
    got = both(random_scene(23, Chance(logit=(5.0, 1.0))), looking_at_origin(), RenderOptions())
    assert min(got) >= least, got
