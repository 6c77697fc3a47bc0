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

from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.reference import ReferenceRenderer
from support.renderer_cases import (
    MAKERS,
    Chance,
    draw,
    gsplat_picture,
    looking_at_origin,
    psnr,
    random_scene,
    real_scene,
)

from splatview_viewer.render.base import RenderOptions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import moderngl

    from splatview_viewer.render.base import Pixels, Renderer

# Decibels for colour, alpha, depth. Measured lowest: quads 81.0, 71.2, 73.2 on trained scenes and 70.5, 66.1, 64.1
# on random; tiles 77.8 (biker_1; 87.2 elsewhere), 80.6, 82.5 and 79.4, 76.7, 78.6; the reference 87.2, 80.6, 82.6 and
# 79.4, 76.7, 78.6. What tiles reach is thus about what the pictures, stored as float16, allow; on biker_1 the slow
# reference is not asked.
GATES = {"quads": {"playbot": (75, 68, 68), "random": (65, 62, 60)},
         "tiles": {"playbot": (85, 79, 79), "random": (77, 75, 75)}, "reference": {"playbot": (85, 79, 79)}}
LEAST = {"quads": 60, "tiles": 80}
"""Decibels against the reference. Tiles reach 88 and more, quads 66 where Gaussians are nearly opaque."""


@pytest.fixture(scope="module")
def compositors(ctx: moderngl.Context) -> Iterator[dict[str, Renderer]]:
    made = {way: MAKERS[f"gl-{way}"](ctx) for way in ("quads", "tiles")}
    yield made
    for renderer in made.values():
        renderer.close()


def decibels(a: Pixels, color: np.ndarray, alpha: np.ndarray, depth: np.ndarray | None) -> tuple[float, float, float]:
    """Colour and alpha against 1, depth against its largest value."""
    assert a.depth is not None and depth is not None
    return psnr(a.color, color), psnr(a.alpha, alpha), psnr(a.depth, depth, float(depth.max()))


@pytest.mark.parametrize("case", ["playbot_0_aa", "random_1"])
def test_against_gsplat(compositors: dict[str, Renderer], data_dir: Path, case: str) -> None:
    d = gsplat_picture(data_dir, case)
    given = real_scene(data_dir, d.scene)
    for name, gates in GATES.items():
        if d.scene in gates:
            renderer = compositors.get(name) or ReferenceRenderer()
            p = draw(renderer, given, d.camera, RenderOptions(d.mode, d.sh_degree))
            got = decibels(p, d.color, d.alpha, d.depth)
            assert all(np.greater_equal(got, gates[d.scene])), (name, got)


SCENES = {
    "mixed": Chance(),
    "anisotropic": Chance(log_scale=(-3.5, 1.6)),
    "tiny": Chance(n=4000, log_scale=(-5.0, 0.5), logit=(3.0, 1.0)),
    "huge": Chance(n=200, log_scale=(0.5, 1.5), logit=(-2.0, 1.0)),
    "nearly opaque": Chance(logit=(5.0, 1.0)),  # shows most the departure described at the top
    "all around the camera": Chance(n=3000, spread=5.0),
}


@pytest.mark.parametrize(("kind", "model", "mode"), [
    ("mixed", "pinhole", "antialiased"), ("anisotropic", "ortho", "classic"), ("tiny", "fisheye", "antialiased"),
    ("huge", "pinhole", "classic"), ("nearly opaque", "pinhole", "classic"),
    ("all around the camera", "fisheye", "classic")])
def test_random_scenes(compositors: dict[str, Renderer], kind: str, model, mode) -> None:
    given, view, options = random_scene(21, SCENES[kind]), looking_at_origin(model=model), RenderOptions(mode)
    expected = draw(ReferenceRenderer(), given, view, options)
    assert expected.alpha.max() > 0.1, "the picture shows something"
    for name, renderer in compositors.items():
        got = decibels(draw(renderer, given, view, options), expected.color, expected.alpha, expected.depth)
        assert min(got) >= LEAST[name], (name, got)
