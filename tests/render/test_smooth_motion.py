"""What a view of Gaussians shows while the camera moves and the GPU has no time: the last picture, moved. With OpenGL's
renderer, whose costs are told to a governor with a clock that the test turns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
from support.frames import gaussian_frame
from support.renderer_cases import psnr
from support.view_cases import RECT, H, W, shown

from splatview.viewer_app.cameras import Camera, intrinsics, look_at
from splatview.viewer_app.events import PointerMove, PointerPress
from splatview.viewer_app.governor import BROUGHT, Governor
from splatview.viewer_app.gpu_work import GpuWork
from splatview.viewer_app.renderers.gl import GlRenderer
from splatview.viewer_app.scene import SH_C0
from splatview.viewer_app.screens.offscreen import OffscreenScreen
from splatview.viewer_app.state import GaussianSettings
from splatview.viewer_app.views.gaussians import GaussianView

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

FRONT = Camera(look_at((0, 0, -4), (0, 0, 0)), intrinsics(50, W, H), W, H)


def ball() -> dict[str, torch.Tensor]:
    """Raw tensors of small Gaussians on a ball, which hide what lies behind them; each side has its own colours."""
    means = torch.nn.functional.normalize(torch.randn(600, 3, generator=torch.Generator().manual_seed(0)), dim=-1)
    rgb = 0.5 + 0.45 * torch.sin(4 * means + torch.arange(3))
    return {"means": means, "quats": torch.tensor([[1.0, 0, 0, 0]]).repeat(600, 1),
            "scales": torch.full((600, 3), math.log(0.1)), "opacities": torch.full((600,), 4.0),
            "sh0": (rgb - 0.5) / SH_C0}


class Rig:
    """A view whose GPU another process needs."""

    def __init__(self, *, software: bool = False) -> None:
        self.screen = OffscreenScreen(W, H)
        self.now, self._x = 100.0, 20.0
        self.governor = Governor(0.05, clock=lambda: self.now)
        self.governor.shared = True
        self.work = GpuWork(self.screen.ctx, self.governor)
        if not software:
            self.governor.took(("scene", W, H), 1.5)  # 60 of them in a second would take all of the share
            self.governor.took(("scene", W, H, BROUGHT), 1.2)  # of which there is time for 15 a second
            self.governor.took(("warp", W, H), 0.02)
            self.work.software, self.work._gl = True, None  # what drawing costs is said here, whatever draws
        self.view = GaussianView(self.screen.ctx, GaussianSettings(coarse_ms=math.inf),
                                 renderer=GlRenderer(self.screen.ctx), work=self.work)
        self.view.update(gaussian_frame(ball()))
        self.view.use_camera(FRONT)
        self.shown()
        self.view.handle(PointerPress(self._x, 20, "right"), RECT)

    def shown(self) -> np.ndarray:
        self.governor.begin_picture()
        return shown(self.view, self.screen)

    def move(self, by: float = 1.0) -> None:
        """Aside, by pixels at the scene's middle."""
        self._x += by
        self.view.handle(PointerMove(self._x, 20), RECT)

    def true(self) -> np.ndarray:
        """The scene drawn from where the camera is."""
        camera = self.view.camera()
        assert camera is not None
        settings = GaussianSettings()
        settings.take(self.view.settings)
        settings.reproject = False
        other = GaussianView(self.screen.ctx, settings, renderer=GlRenderer(self.screen.ctx))
        other.update(gaussian_frame(ball()))
        other.use_camera(camera)
        pixels = shown(other, self.screen)
        other.close()
        return pixels

    def close(self) -> None:
        self.view.close()
        self.work.close()
        assert self.screen.ctx.error == "GL_NO_ERROR"
        self.screen.close()


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """A drag has begun, a picture is there to be moved, and there is no time to draw."""
    monkeypatch.setattr("splatview.viewer_app.views.gaussians._REST", 1e6)  # the camera rests when the test says so
    made = Rig()
    made.move()
    made.shown()
    assert made.view.picture.known
    for _ in range(3):
        made.governor.gives(("scene", W, H), "opengl")
    yield made
    made.close()


def test_the_last_picture_is_moved_where_time_is_short(rig: Rig) -> None:
    before = rig.shown()
    rig.move(3)
    moved = rig.shown()
    assert rig.view.light
    assert psnr(moved, rig.true(), 255) > max(psnr(before, rig.true(), 255) + 3, 28)
    rig.view._moved_at = -math.inf  # the camera rests
    assert psnr(rig.shown(), rig.true(), 255) > 60


@pytest.mark.parametrize("how", ["off", "screenshot", "depth", "overdraw", "far away", "other projection",
                                 "affordable"])
def test_then_the_scene_itself_is_drawn(rig: Rig, how: str) -> None:
    match how:
        case "off":
            rig.view.settings.reproject = False
        case "screenshot":
            rig.view.desk.exact = True
        case "depth" | "overdraw":
            rig.view.settings.show = how
        case "far away":
            rig.view.orbit.orbit(2.0, 0.0)
        case "other projection":
            rig.view.orbit.model = "ortho"
        case "affordable":
            rig.governor.shared = False
    rig.move(4)
    rig.governor.scale = lambda *_: 1.0  # type: ignore[method-assign]  # nor is it drawn at a lower resolution then
    if how not in ("affordable", "off"):
        rig.governor.affords = lambda name, size: False  # type: ignore[method-assign]
    pixels = rig.shown()
    assert not rig.view.light
    assert psnr(pixels, rig.true(), 255) > 60


def test_a_software_rasteriser_draws_as_ever() -> None:
    """Its drawing costs the GPU nothing, and moving a picture is drawing as well."""
    rig = Rig(software=True)
    try:
        for _ in range(3):
            rig.move(2)
            assert psnr(rig.shown(), rig.true(), 255) > 60
        assert not rig.view.picture.known
    finally:
        rig.close()
