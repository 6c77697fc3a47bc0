"""CUDA's renderer on scenes that are odd or endless work, and where the GPU's memory is full."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.odd_cases import SCENES, everywhere
from support.renderer_cases import camera, draw, looking_at_origin, psnr

from splatview_viewer.render.base import COLOR_MAX
from splatview_viewer.render.gsplat.frame import Capacity
from splatview_viewer.render.gsplat.renderer import GsplatRenderer
from splatview_viewer.render.reference import ReferenceRenderer
from splatview_viewer.scene.scene import FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import moderngl
    from support.programs import Programs

    from splatview_viewer.scene.scene import GaussianScene

pytestmark = pytest.mark.cuda
VIEW = looking_at_origin(80, 60)


@pytest.fixture
def renderer(ctx: moderngl.Context) -> Iterator[GsplatRenderer]:
    made = GsplatRenderer(ctx)
    yield made
    made.close()


def on_gpu(s: GaussianScene) -> GaussianScene:
    return replace(s, **{name: getattr(s, name).cuda() for name in FIELDS})


def test_every_odd_scene_has_the_reference_s_picture(renderer: GsplatRenderer) -> None:
    for name, (make, left_out) in SCENES.items():
        odd = make()
        draw(renderer, on_gpu(odd), VIEW)  # roughly, where it lies far from the scene before
        expected, got = draw(ReferenceRenderer(), odd, VIEW), draw(renderer, on_gpu(odd), VIEW)
        assert renderer.left_out == left_out, name
        assert np.isfinite(got.color).all() and np.isfinite(got.alpha).all() and got.color.max() <= COLOR_MAX, name
        assert np.abs(got.alpha - expected.alpha).max() < 5e-3, name
        assert psnr(np.minimum(got.color, 1), np.minimum(expected.color, 1)) > 45, name


def test_more_pairs_than_may_be_are_not_drawn(renderer: GsplatRenderer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest are."""
    most, view, many = 62 * 20, camera(80, 64), everywhere(500)
    monkeypatch.setattr(Capacity, "FIRST", 64)
    renderer._frame._capacity = Capacity(most)
    nearest = replace(many, **{n: getattr(many, n)[:62] for n in FIELDS})
    got, expected = draw(renderer, many, view), draw(ReferenceRenderer(), nearest, view)
    assert psnr(got.color, expected.color) > 45
    assert re.fullmatch(r"only the nearest are shown: all would take 8\.\d times as long", renderer.thinned)
    draw(renderer, everywhere(20), view)
    assert renderer.thinned == ""


FULL = """
import torch
from support.renderer_cases import Chance, psnr, random_scene
from support.view_cases import scene_view, shown
from splatview_viewer.render.gl.renderer import GlRenderer
from splatview_viewer.render.gsplat.build import kernels
from splatview_viewer.screens.offscreen import OffscreenScreen

assert kernels().wait(), kernels().reason
screen = OffscreenScreen(160, 120)
view = scene_view(screen)
view.update(random_scene(1, Chance(n=3000)))
shown(view, screen)
assert "gsplat renderer" in view.path, view.extras
torch.cuda.synchronize()
torch.cuda.empty_cache()
total = torch.cuda.get_device_properties(0).total_memory
torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total)
big = random_scene(1, Chance(n=2_000_000, sh_degree=3))
view.update(big)
got = shown(view, screen)
assert "gl renderer" in view.path and "memory" in view.extras[-1], view.extras
other = scene_view(screen, GlRenderer(screen.ctx))
other.update(big)
other.like(view)
assert psnr(got / 255, shown(other, screen) / 255) > 40
print(view.extras[-1], flush=True)
"""


def test_full_memory_and_opengl_takes_over(programs: Programs) -> None:
    program = programs.code(FULL)
    out, err = program.end()
    assert program.returncode == 0, err
    assert re.search("gl: gsplat: the memory of cuda:0 is full", out)
