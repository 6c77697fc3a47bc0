"""What the tests of smooth motion share: a view whose GPU another process needs, by a clock that the test turns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splatview.ipc.interop.host import HostBridge
from splatview.viewer_app.cameras import Camera, intrinsics, look_at
from splatview.viewer_app.events import PointerMove, PointerPress
from splatview.viewer_app.governor import BROUGHT, Governor
from splatview.viewer_app.gpu_work import GpuWork
from splatview.viewer_app.renderers.gl import GlRenderer
from splatview.viewer_app.state import GaussianSettings
from splatview.viewer_app.views.gaussians import GaussianView
from support.frames import gaussian_frame
from support.view_cases import RECT, H, W, shown

if TYPE_CHECKING:
    import moderngl

    from splatview.viewer_app.screens.offscreen import OffscreenScreen

FRONT = Camera(look_at((0, 0, -4), (0, 0, 0)), intrinsics(50, W, H), W, H)
LATE = 0.25
"""Seconds of the governor's clock after which a picture is paid for."""


def ball(seed: int = 0) -> dict[str, torch.Tensor]:
    """Raw tensors of small Gaussians on a ball, which hide what lies behind them; each side has its own colours."""
    g = torch.Generator().manual_seed(seed)
    means = torch.nn.functional.normalize(torch.randn(600, 3, generator=g), dim=-1)
    rgb = 0.5 + 0.45 * torch.sin(4 * means + torch.arange(3) + seed)
    return {"means": means, "quats": torch.tensor([[1.0, 0, 0, 0]]).repeat(600, 1),
            "scales": torch.full((600, 3), math.log(0.1)), "opacities": torch.full((600,), 4.0),
            "sh0": (rgb - 0.5) / 0.28209479}


class Canvas:
    """`splatview.ipc.interop.canvas.Canvas` through the host, for tensors that lie there."""

    name = "host"

    def __init__(self, ctx: moderngl.Context) -> None:
        self._bridge = HostBridge(ctx)
        self._drawn = torch.empty(0)

    def begin(self, height: int, width: int, channels: int = 4, dtype: str = "float16") -> torch.Tensor:
        self._drawn = torch.empty((height, width, channels), dtype=getattr(torch, dtype))
        return self._drawn

    def show(self, *, finished: bool = False) -> Any:
        return self._bridge.put(self._drawn, "HWC")

    def close(self) -> None:
        self._bridge.close()


class Rig:
    """A view whose GPU another process needs, by clocks that the test turns."""

    def __init__(self, screen: OffscreenScreen, renderer: Any) -> None:
        self.screen, self.renderer = screen, renderer
        self.now = 100.0
        self.governor = Governor(0.05, clock=lambda: self.now)
        self.governor.shared = True
        self.governor.took(("scene", W, H), 1.5)  # 60 of them in a second would take all of the share
        self.governor.took(("scene", W, H, BROUGHT), 1.2)  # of which there is time for 15 a second
        for work in (("warp", W, H), ("warp", W, H, "cuda")):
            self.governor.took(work, 0.02)
        self.work = GpuWork(screen.ctx, self.governor)
        self.work.software, self.work._gl = True, None  # what drawing costs is said here, whatever draws
        self.view = GaussianView(screen.ctx, GaussianSettings(coarse_ms=math.inf), renderer=renderer, work=self.work)
        self.drawings = 0
        render = renderer.render

        def counted(*args: Any) -> Any:
            self.drawings += 1
            return render(*args)

        renderer.render = counted
        self._x = 20.0

    def begin(self, **more: Any) -> np.ndarray:
        """Show a scene at rest."""
        self.view.update(gaussian_frame(ball(), **more))
        self.view.use_camera(FRONT)
        return self.shown()

    def shown(self, view: GaussianView | None = None) -> np.ndarray:
        self.governor.begin_picture()
        return shown(view or self.view, self.screen)

    def press(self) -> None:
        self.view.handle(PointerPress(self._x, 20, "right"), RECT)

    def move(self, by: float = 1.0) -> None:
        """Aside, by pixels at the scene's middle."""
        self._x += by
        self.view.handle(PointerMove(self._x, 20), RECT)

    def later(self) -> None:
        """The GPU's time is paid for."""
        self.now += LATE

    def true(self) -> np.ndarray:
        """The scene drawn from where the camera is."""
        camera = self.view.camera()
        assert camera is not None
        settings = GaussianSettings()
        settings.take(self.view.settings)
        settings.reproject = False
        gl = GlRenderer(self.screen.ctx)
        other = GaussianView(self.screen.ctx, settings, renderer=gl)
        other.update(gaussian_frame(ball()))
        other.use_camera(camera)
        pixels = shown(other, self.screen)
        other.close()
        return pixels

    def close(self) -> None:
        self.view.close()
        self.work.close()


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    return 20 * math.log10(255 / max(float(np.sqrt(np.mean((a - b) ** 2.0))), 1e-9))
