"""A renderer is chosen, and views change from one to the other while they show a scene."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import moderngl
import numpy as np
import pytest
import torch
from support.reference import ReferenceRenderer
from support.renderer_cases import Chance, psnr, random_scene
from support.view_cases import scene_view, view_pixels

from splatview_viewer.core.errors import RendererError
from splatview_viewer.render import choose as choosing
from splatview_viewer.render.choose import choose_renderer, renderer_note
from splatview_viewer.render.gl.renderer import GlRenderer
from splatview_viewer.render.gsplat import build as gsplat_kernels
from splatview_viewer.render.gsplat import renderer as gsplat
from splatview_viewer.render.gsplat.build import KernelBuild
from splatview_viewer.screens.offscreen import OffscreenScreen


class Promised(KernelBuild):
    """Kernels that are ready when the test says so."""

    def __init__(self) -> None:
        self.reason = ""
        self.ready = False

    def wait_unless_building(self, seconds: float) -> bool:
        return self.ready


class Slow(ReferenceRenderer):
    """Draw the same picture in gsplat's place, without a GPU."""

    name = "gsplat"
    reads_gpu = True
    has_fallback = True
    fails: ClassVar[str] = ""

    def render(self, camera, options):
        if Slow.fails:
            raise RendererError(Slow.fails)
        return super().render(camera, options)


@pytest.fixture
def screen() -> Iterator[OffscreenScreen]:
    offscreen = OffscreenScreen(80, 60)
    yield offscreen
    offscreen.close()


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Promised:
    monkeypatch.delenv("SPLATVIEW_RENDERER", raising=False)
    monkeypatch.setattr(gsplat, "GsplatRenderer", Slow)
    promised = Promised()

    def get_kernels() -> Promised:
        return promised

    monkeypatch.setattr(choosing, "kernels", get_kernels)
    return promised


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

    monkeypatch.setattr(gsplat_kernels, "obstacle", obstacle)
    monkeypatch.setattr(choosing, "kernels", KernelBuild)
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


def test_opengl_is_chosen_where_gsplat_raises_at_its_import(
    ctx: moderngl.Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "gsplat"
    package.mkdir()
    (package / "csrc.py").touch()
    (package / "__init__.py").write_text("raise IndexError('list index out of range')")
    monkeypatch.delenv("SPLATVIEW_RENDERER", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("gsplat", "gsplat.csrc"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    del sys.modules["gsplat"]

    def obstacle() -> str:
        return ""

    def is_available() -> bool:
        return True

    monkeypatch.setattr(gsplat_kernels, "obstacle", obstacle)
    monkeypatch.setattr(torch.cuda, "is_available", is_available)
    build = KernelBuild()

    def get_kernels() -> KernelBuild:
        return build

    monkeypatch.setattr(choosing, "kernels", get_kernels)
    renderer = choose_renderer(ctx)
    assert isinstance(renderer, GlRenderer)
    note = "gl: gsplat cannot be used: IndexError: list index out of range"
    assert renderer_note(renderer) == note
    renderer.close()


def test_opengl_draws_until_gsplat_is_ready(
    screen: OffscreenScreen, kernels: Promised
) -> None:
    view = view_of(screen)
    previous = view_pixels(view, screen)
    assert "gl renderer" in view.info.path
    assert "building" in view.info.extras[-1]
    assert not view.tick(0.0)
    kernels.ready = True
    assert view.tick(0.0)
    assert not view.tick(0.0)
    assert "gsplat renderer" in view.info.path
    assert renderer_note(view.content.renderer) == ""
    assert psnr(view_pixels(view, screen) / 255, previous / 255) > 40
    view.close()


@pytest.mark.parametrize("start", [True, False])
def test_opengl_takes_over_when_gsplat_fails(
    screen: OffscreenScreen,
    kernels: Promised,
    start: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not start:

        def fail(ctx: object) -> None:
            raise RendererError("the GPU is lost")

        monkeypatch.setattr(gsplat, "GsplatRenderer", fail)
    kernels.ready = True
    view = view_of(screen)
    previous = view_pixels(view, screen)
    first_renderer = "gsplat renderer" if start else "gl renderer"
    assert first_renderer in view.info.path
    monkeypatch.setattr(Slow, "fails", "the GPU is lost")
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
