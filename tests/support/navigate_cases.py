"""What the tests of the tool that moves a scene's camera share: a view of two balls, and time that passes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from splatview.viewer_app.cameras import Camera, intrinsics, look_at
from splatview.viewer_app.controls import Rect
from splatview.viewer_app.desk import Desk
from splatview.viewer_app.views.gaussians import GaussianView
from support.frames import gaussian_frame
from support.view_cases import module_screen, screen_fixture, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview.viewer_app.screens.offscreen import OffscreenScreen
    from splatview.viewer_app.views._gaussians.navigate import Navigate

__all__ = ["CENTERS", "CTRL", "FRONT", "RECT", "SHIFT", "SIDE", "arrive", "balls", "module_screen", "navigate_fixture",
           "said", "screen_fixture", "view_fixture", "viewmat"]

RECT = Rect(20, 10, 400, 300)
FRONT = Camera(look_at((0.0, 0.0, -5.0), (0, 0, 0)), intrinsics(50, 400, 300), 400, 300)
SIDE = Camera(look_at((5.0, -1.0, 0.0), (0, 0, 0)), intrinsics(30, 400, 300), 400, 300)
SHIFT, CTRL = frozenset({"shift"}), frozenset({"ctrl"})
CENTERS = [(0.0, 0.0, 0.0), (1.0, 0.5, 2.0)]


def balls(centers: np.ndarray) -> dict[str, torch.Tensor]:
    """Red, round, nearly opaque Gaussians (N, 3)."""
    n = len(centers)
    return {"means": torch.tensor(centers, dtype=torch.float32), "quats": torch.tensor([[1.0, 0, 0, 0]]).repeat(n, 1),
            "scales": torch.full((n, 3), math.log(0.2)), "opacities": torch.full((n,), 8.0),
            "rgb": torch.tensor([[1.0, 0, 0]]).repeat(n, 1)}


@pytest.fixture(name="view")
def view_fixture(screen: OffscreenScreen) -> Iterator[GaussianView]:
    """Two balls, seen from the front."""
    screen.resize(440, 330, 1.0)
    made = GaussianView(screen.ctx)
    made.said = []  # type: ignore[attr-defined]
    made.desk = Desk(made.said.append, name="scene")  # type: ignore[attr-defined]
    made.update(gaussian_frame(balls(np.array(CENTERS)), color="rgb"))
    shown(made, screen, RECT)
    made.use_camera(FRONT)
    shown(made, screen, RECT)
    yield made
    made.close()


@pytest.fixture(name="navigate")
def navigate_fixture(view: GaussianView) -> Navigate:
    return view.tools["navigate"]  # type: ignore[return-value]


def viewmat(view: GaussianView) -> np.ndarray:
    camera = view.camera(RECT)
    assert camera is not None
    return camera.viewmat


def arrive(view: GaussianView, start: float = 50.0) -> int:
    """Let time pass until the camera rests; how many pictures were due on the way."""
    pictures = 0
    for i in range(200):
        if not view.tick(start + i / 60):
            return pictures
        pictures += 1
    raise AssertionError("it never rests")


def said(view: GaussianView) -> str:
    return " | ".join(view.said)  # type: ignore[attr-defined]
