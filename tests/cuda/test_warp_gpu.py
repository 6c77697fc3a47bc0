"""Pictures moved by CUDA on a GPU: the same as by OpenGL, near to a true render, read by OpenGL where they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from support.renderer_cases import read_source
from test_smooth_motion_gpu import FRONT, H, W, ball, psnr, screen_fixture  # noqa: F401

from splatview.viewer_app.cameras import Camera, intrinsics, look_at
from splatview.viewer_app.renderers import gsplat_moving
from splatview.viewer_app.renderers.base import RenderOptions
from splatview.viewer_app.renderers.gsplat import GsplatRenderer
from splatview.viewer_app.views._gaussians.reprojection import Surface, Warp

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview.viewer_app.screens.offscreen import OffscreenScreen

pytestmark = pytest.mark.cuda


@pytest.fixture(autouse=True)
def with_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gsplat_moving, "WITH_CUDA", True)
    monkeypatch.setattr(gsplat_moving, "BRIDGES", ("import", "register", "host"))
    monkeypatch.setattr("splatview.viewer_app.views.gaussians._REST", 1e6)


def aside(x: float, y: float = 0.0) -> Camera:
    return Camera(look_at((x, y, -4), (0, 0, 0)), intrinsics(50, W, H), W, H)


def test_it_is_moved_as_opengl_does(screen: OffscreenScreen, monkeypatch: pytest.MonkeyPatch,
                                    wait_until: Callable[..., object]) -> None:
    renderer = GsplatRenderer(screen.ctx)
    surface, by_opengl = Surface(screen.ctx), Warp(screen.ctx)
    try:
        renderer.load(ball())
        brought = None
        for _ in range(2):  # the first may have too little room
            monkeypatch.setattr(gsplat_moving, "WITH_CUDA", False)
            renderer.render(aside(9.0), RenderOptions(depth=True)).pixels()
            picture = renderer.render(FRONT, RenderOptions(depth=True))
            picture.bring()
            wait_until(lambda picture=picture: picture.done)
            brought = picture.brought()
        assert brought is not None and not isinstance(brought[1], gsplat_moving.Kept)
        surface.take(brought[1])
        expected = [read_source(screen.ctx, by_opengl.take(brought[0], surface, FRONT, aside(x), 4.0))
                    for x in (0.0, 0.1, 0.4)]
        monkeypatch.setattr(gsplat_moving, "WITH_CUDA", True)
        renderer.render(aside(9.0), RenderOptions(depth=True)).pixels()
        picture = renderer.render(FRONT, RenderOptions(depth=True))
        picture.bring()
        brought = picture.brought()
        assert brought is not None
        kept = picture.kept
        assert kept is brought[1]
        assert kept is not None
        for i in range(4):  # many in a row, in the same few places
            renderer.render(aside(0.3 * i, 1.0), RenderOptions(depth=False))  # what is drawn meanwhile does not matter
            for x, other in zip((0.0, 0.1, 0.4), expected, strict=True):
                got = read_source(screen.ctx, kept.mover.take(kept, FRONT, aside(x), 4.0))
                assert psnr(255 * got, 255 * other) > 38
        assert not kept.mover.failure
        assert kept.mover.clock.ms is not None
    finally:
        by_opengl.close()
        surface.close()
        renderer.close()


def test_its_memory_goes_with_the_pictures(screen: OffscreenScreen) -> None:
    renderer = GsplatRenderer(screen.ctx)
    try:
        renderer.load(ball())
        held = []
        for i in range(30):
            picture = renderer.render(aside(0.02 * i), RenderOptions(depth=True))
            picture.bring()
            if (brought := picture.brought()) is not None:
                kept = picture.kept
                assert kept is not None
                read_source(screen.ctx, kept.mover.take(kept, aside(0.02 * i), aside(0.02 * i + 0.05), 4.0))
            del brought
            torch.cuda.synchronize()
            held.append(torch.cuda.memory_allocated())
        assert max(held[-5:]) <= max(held[5:15]) + 2 * W * H * 8
    finally:
        renderer.close()
