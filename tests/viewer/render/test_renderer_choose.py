"""Which renderer is chosen, and going over from one to the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.renderer_cases import CLASSIC, Chance, looking_at_origin, psnr, random_scene

from splatview_viewer.core.errors import RendererError
from splatview_viewer.render.choose import ChosenRenderer, make_renderer, renderer_note
from splatview_viewer.render.gl.renderer import GlRenderer
from splatview_viewer.render.gsplat import build as gsplat_kernels
from splatview_viewer.render.gsplat import renderer as gsplat
from splatview_viewer.render.gsplat.build import Kernels
from splatview_viewer.render.reference import ReferenceRenderer

if TYPE_CHECKING:
    import moderngl

VIEW = looking_at_origin(80, 60)


class Promised(Kernels):
    """Kernels that come, or do not, when the test says so."""

    def __init__(self) -> None:
        self.reason, self.ready, self.building = "", False, True

    def wait_unless_building(self, seconds: float) -> bool:
        return self.ready


class Slow(ReferenceRenderer):
    """In gsplat's place, where there is no GPU: draws the same picture."""

    name = "gsplat"
    fails = ""

    def render(self, camera, options):
        if self.fails:
            raise RendererError(self.fails)
        return super().render(camera, options)

    def host_scene(self):
        return self.kept

    def load(self, scene, ready=None):
        self.kept = scene
        super().load(scene, ready)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPLATVIEW_RENDERER", raising=False)
    monkeypatch.setattr(gsplat_kernels, "obstacle", lambda: "gsplat needs CUDA, and this is a test")
    monkeypatch.setattr(gsplat_kernels, "_kernels", None)


def test_without_a_gpu(ctx: moderngl.Context, no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    renderer = make_renderer(ctx)
    assert isinstance(renderer, GlRenderer)
    assert renderer_note(renderer) == "gl: gsplat needs CUDA, and this is a test"
    renderer.close()
    monkeypatch.setenv("SPLATVIEW_RENDERER", "gsplat")
    with pytest.raises(RendererError, match="is 'gsplat', but gsplat needs CUDA"):
        make_renderer(ctx)
    monkeypatch.setenv("SPLATVIEW_RENDERER", "vulkan")
    with pytest.raises(RendererError, match="'vulkan'; legal are gsplat, gl"):
        make_renderer(ctx)
    monkeypatch.setenv("SPLATVIEW_RENDERER", "gl")
    renderer = make_renderer(ctx)
    assert isinstance(renderer, GlRenderer) and renderer_note(renderer) == "gl: SPLATVIEW_RENDERER says so"
    renderer.close()


def test_opengl_draws_until_gsplat_is_ready(ctx: moderngl.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gsplat, "GsplatRenderer", Slow)
    kernels = Promised()
    renderer = ChosenRenderer(ctx, kernels)
    renderer.load(random_scene(1, Chance(n=200)))
    before = renderer.render(VIEW, CLASSIC).pixels().color
    assert renderer.name == "gl" and "building" in renderer_note(renderer) and not renderer.tick()
    kernels.ready, kernels.building = True, False
    assert renderer.tick() and not renderer.tick()
    assert renderer.name == "gsplat" and renderer_note(renderer) == ""
    after = renderer.render(VIEW, CLASSIC).pixels().color
    assert psnr(before, after) > 60 and not np.array_equal(before, after)
    renderer.close()
    renderer.close()


@pytest.mark.parametrize("start", [True, False])
def test_opengl_takes_over_when_gsplat_fails(ctx: moderngl.Context, monkeypatch: pytest.MonkeyPatch,
                                             start: bool) -> None:
    made: list[Slow] = []

    def make(ctx: moderngl.Context) -> Slow:
        if not start:
            raise RendererError("the GPU is lost")
        made.append(Slow(ctx))
        return made[-1]

    monkeypatch.setattr(gsplat, "GsplatRenderer", make)
    kernels = Promised()
    kernels.ready = True
    renderer = ChosenRenderer(ctx, kernels)
    renderer.load(random_scene(1, Chance(n=200)))
    before = renderer.render(VIEW, CLASSIC).pixels().color
    assert renderer.name == ("gsplat" if start else "gl")
    for slow in made:
        slow.fails = "the GPU is lost"
    after = renderer.render(VIEW, CLASSIC).pixels().color
    assert renderer.name == "gl" and renderer_note(renderer) == "gl: the GPU is lost" and psnr(before, after) > 60
    assert not renderer.tick(), "it is not tried again"
    renderer.close()
