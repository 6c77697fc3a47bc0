"""Smooth motion on a GPU.

Pictures come with their depth while none is awaited, and are moved to the camera.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from support.renderer_cases import psnr
from support.view_cases import scene_view, view_pixels
from support.wait import polls

from splatview_viewer.core.events import PointerMove, PointerPress
from splatview_viewer.core.screen import Rect
from splatview_viewer.geometry.cameras import Camera, intrinsics, look_at
from splatview_viewer.gpu.governor import Governor
from splatview_viewer.gpu.work import GpuWork
from splatview_viewer.render.gsplat import moving as gsplat_moving
from splatview_viewer.render.gsplat.renderer import GsplatRenderer
from splatview_viewer.scene.scene import GaussianScene
from splatview_viewer.screens.offscreen import OffscreenScreen

pytestmark = pytest.mark.cuda
W = 640
H = 480
RECT = Rect(0, 0, W, H)
FRONT = Camera(look_at((0, 0, -4), (0, 0, 0)), intrinsics(50, W, H), W, H)


@pytest.fixture(name="screen")
def screen_fixture() -> Iterator[OffscreenScreen]:
    screen = OffscreenScreen(W, H)
    yield screen
    error = screen.ctx.error
    screen.close()
    assert error == "GL_NO_ERROR"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a moved camera rest when the test says so."""
    monkeypatch.setattr("splatview_viewer.kinds.gaussians.view._REST_S", 1e6)
    monkeypatch.setattr("splatview_viewer.gpu.governor.ALONE", math.inf)


def ball(n: int = 20_000) -> GaussianScene:
    """Small Gaussians on a ball, which hide what lies behind them."""
    g = torch.Generator().manual_seed(0)
    means = torch.nn.functional.normalize(torch.randn(n, 3, generator=g), dim=-1)
    rgb = 0.5 + 0.45 * torch.sin(6 * means + torch.arange(3))
    scene = GaussianScene(
        means.cuda(),
        torch.tensor([[1.0, 0, 0, 0]]).repeat(n, 1).cuda(),
        torch.full((n, 3), 0.02).cuda(),
        torch.full((n,), 0.95).cuda(),
        ((rgb - 0.5) / 0.28209479).cuda(),
        torch.empty(n, 0, 3).cuda(),
        activated=True,
        sh_degree=0,
    )
    torch.cuda.synchronize()
    return scene


def test_the_last_picture_is_moved_while_the_next_is_awaited(
    screen: OffscreenScreen, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0

    def clock() -> float:
        return now

    def moves_along(*_: object) -> bool:
        return True

    governor = Governor(0.02, clock=clock)
    governor.account.shared = True
    # Pictures are moved however quick this GPU is.
    governor.moves_along = moves_along  # type: ignore[method-assign]
    monkeypatch.setattr(gsplat_moving, "BRIDGES", ("import", "host"))
    gpu_work = GpuWork(screen.ctx, governor)
    view = scene_view(screen, GsplatRenderer(screen.ctx), gpu_work)
    exact_view = scene_view(screen, GsplatRenderer(screen.ctx), smooth=False)
    try:
        for v in (view, exact_view):
            v.update(ball())
            v.view.rig.use_camera(FRONT)
            view_pixels(v, screen)
        governor.record(("scene", W, H), 5.0)
        view.handle(PointerPress(300, 200, "right"), RECT)
        x = 300.0
        for _ in polls("the first picture with depth"):
            now += 1.0
            x += 0.5
            view.handle(PointerMove(x, 200), RECT)
            view_pixels(view, screen)
            view.tick(now)
            if view.view.picture.has_depth:
                break
        for _ in range(40):
            # Nothing is drawn for some time.
            governor.charge(("scene", W, H), "cuda")
        view.content.moved.land(wait=True)
        unmoved = view_pixels(view, screen)
        key = view.view.picture.key
        view.handle(PointerMove(x + 12, 200), RECT)
        moved = view_pixels(view, screen)
        assert view.view.picture.key == key
        camera = view.view.rig.camera()
        assert camera is not None
        exact_view.view.rig.use_camera(camera)
        true = view_pixels(exact_view, screen)
        assert psnr(moved, true, 255) > 33
        assert psnr(moved, true, 255) > psnr(unmoved, true, 255) + 8
        view.view.picture.motion.moved_at = -math.inf
        assert view.tick(now)
        assert psnr(view_pixels(view, screen), true, 255) > 50
    finally:
        view.close()
        exact_view.close()
        gpu_work.close()
