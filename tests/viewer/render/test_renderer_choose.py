"""A renderer is chosen, and views change from one to the other while they show a scene."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import moderngl
import numpy as np
import pytest
from support.reference import ReferenceRenderer
from support.renderer_cases import Chance, random_scene
from support.view_cases import scene_view, view_pixels

from splatview_viewer.core.errors import RendererError
from splatview_viewer.render import choose as choosing
from splatview_viewer.render.choose import choose_renderer, renderer_note
from splatview_viewer.render.gl.renderer import GlRenderer
from splatview_viewer.render.gsplat import renderer as gsplat
from splatview_viewer.screens.offscreen import OffscreenScreen


class StandIn(ReferenceRenderer):
    """Draw the same picture in gsplat's place, without a GPU."""

    name = "gsplat"
    reads_gpu = True
    has_fallback = True
    fails: ClassVar[str] = ""

    def render(self, camera, options):
        if StandIn.fails:
            raise RendererError(StandIn.fails)
        return super().render(camera, options)


@pytest.fixture
def screen() -> Iterator[OffscreenScreen]:
    offscreen = OffscreenScreen(80, 60)
    yield offscreen
    offscreen.close()


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the reference draw in CUDA's place."""

    def obstacle() -> str:
        return ""

    monkeypatch.delenv("SPLATVIEW_RENDERER", raising=False)
    monkeypatch.setattr(gsplat, "GsplatRenderer", StandIn)
    monkeypatch.setattr(choosing, "obstacle", obstacle)


def view_of(screen: OffscreenScreen) -> Any:
    view = scene_view(screen)
    view.update(random_scene(1, Chance(n=200)))
    return view


def test_opengl_is_chosen_without_a_gpu(
    ctx: moderngl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPLATVIEW_RENDERER", raising=False)

    def obstacle() -> str:
        return "gsplat needs CUDA, and this is a test"

    monkeypatch.setattr(choosing, "obstacle", obstacle)
    renderer = choose_renderer(ctx)
    assert isinstance(renderer, GlRenderer)
    assert renderer_note(renderer) == "gl: gsplat needs CUDA, and this is a test"
    renderer.close()
    monkeypatch.setenv("SPLATVIEW_RENDERER", "gsplat")
    with pytest.raises(RendererError, match="is 'gsplat', but gsplat needs CUDA"):
        choose_renderer(ctx)
    monkeypatch.setenv("SPLATVIEW_RENDERER", "vulkan")
    with pytest.raises(RendererError, match="'vulkan'; expected gsplat, gl"):
        choose_renderer(ctx)
    monkeypatch.setenv("SPLATVIEW_RENDERER", "gl")
    renderer = choose_renderer(ctx)
    assert isinstance(renderer, GlRenderer)
    assert renderer_note(renderer) == "gl: SPLATVIEW_RENDERER says so"
    renderer.close()


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.usefixtures("cuda")
def test_opengl_takes_over_when_gsplat_fails(
    screen: OffscreenScreen,
    start: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not start:

        def fail(ctx: object) -> None:
            raise RendererError("the GPU is lost")

        monkeypatch.setattr(gsplat, "GsplatRenderer", fail)
    view = view_of(screen)
    previous = view_pixels(view, screen)
    first_renderer = "gsplat renderer" if start else "gl renderer"
    assert first_renderer in view.info.path
    monkeypatch.setattr(StandIn, "fails", "the GPU is lost")
    view.view.rig.orbit.orbit(0.5, 0.0)
    view.view.rig.apply_orbit()
    fallback = view_pixels(view, screen)
    assert "gl renderer" in view.info.path
    assert view.info.extras[-1] == "gl: the GPU is lost"
    assert fallback.any()
    assert not np.array_equal(previous, fallback)
    # gsplat is not tried a second time.
    view.tick(0.0)
    assert "gl renderer" in view.info.path
    view.close()
