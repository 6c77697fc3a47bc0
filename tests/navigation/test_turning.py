"""Scenes that are moved, turned and scaled look the same to a camera that goes with them; several scenes as one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from splatview_viewer.geometry.cameras import Camera, intrinsics, look_at
from splatview_viewer.render.base import RenderOptions
from splatview_viewer.render.reference import ReferenceRenderer
from splatview_viewer.scene.merging import merged as merged_as
from splatview_viewer.scene.scene import GaussianScene
from splatview_viewer.scene.turning import Placement, basis, placed, turning_of_degree

TURNS = [(0, 180, 0), (10, -20, 30), (-123, 77, 15)]


def scene(n: int = 40, degree: int = 3, seed: int = 0, **more: Any) -> GaussianScene:
    rng = np.random.default_rng(seed)
    k = (degree + 1) ** 2 - 1

    def f(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    return GaussianScene(f(n, 3), f(n, 4), -1.5 + 0.4 * f(n, 3), 1 + f(n), f(n, 3), 0.3 * f(n, k, 3),
                         **{"sh_degree": degree, **more})


def merged(scenes: list[GaussianScene]) -> GaussianScene:
    """Each as it was trained."""
    return merged_as(scenes, [s.antialiased for s in scenes])


def picture(of: GaussianScene, camera: Camera, mode: Any = "classic") -> np.ndarray:
    renderer = ReferenceRenderer()
    renderer.load(of)
    return renderer.render(camera, RenderOptions(mode)).pixels().color


def camera(viewmat: np.ndarray | None = None) -> Camera:
    viewmat = look_at((0.5, -1.0, -6.0), (0, 0, 0)) if viewmat is None else viewmat
    return Camera(viewmat, intrinsics(50, 48, 36), 48, 36)


@pytest.mark.parametrize(("turn", "degree"), [*zip(TURNS, (1, 2, 3), strict=True)])
def test_turned_coefficients_are_the_function_along_the_direction_turned_back(turn: Any, degree: int) -> None:
    rng = np.random.default_rng(1)
    rotation = Placement(turn=turn).rotation
    before = rng.normal(size=2 * degree + 1)
    after = turning_of_degree(rotation, degree) @ before
    directions = rng.normal(size=(200, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    np.testing.assert_allclose(basis(directions, degree) @ after, basis(directions @ rotation, degree) @ before,
                               atol=1e-12)


def test_turns_go_around_x_then_y_then_z() -> None:
    np.testing.assert_allclose(Placement(turn=(90, 0, 0)).rotation @ [0, 1, 0], [0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(Placement(turn=(0, 90, 0)).rotation @ [0, 0, 1], [1, 0, 0], atol=1e-12)
    np.testing.assert_allclose(Placement(turn=(0, 0, 90)).rotation @ [1, 0, 0], [0, 1, 0], atol=1e-12)
    np.testing.assert_allclose(Placement(turn=(90, 0, 90)).rotation @ [0, 1, 0], [0, 0, 1], atol=1e-12)


@pytest.mark.parametrize(("degree", "activated"), [(0, False), (2, True), (3, False)])
def test_a_camera_that_goes_with_the_scene_sees_the_same(degree: int, activated: bool) -> None:
    before = scene(degree=degree)
    if activated:
        before = merged([before])
        assert before.activated
    placement, pivot = Placement((3, -2, 1), (30, -50, 110), 2.0), np.array([0.5, 1.0, -0.25])
    after = placed(before, placement, pivot)
    a, b = placement.matrix(pivot)
    np.testing.assert_allclose(a @ pivot + b, pivot + placement.move)
    # p' = s R p + b; a camera that sees p' at s times the distance sees what it saw: w p = (1/s) (w R^T)(p' - b) ...
    here = camera()
    viewmat = np.eye(4)
    viewmat[:3, :3] = here.viewmat[:3, :3] @ placement.rotation.T
    viewmat[:3, 3] = placement.scale * here.viewmat[:3, 3] - viewmat[:3, :3] @ b
    np.testing.assert_allclose(picture(after, camera(viewmat)), picture(before, here), atol=2e-5)


def test_degrees_and_activations_differ() -> None:
    low, high = scene(20, degree=1, seed=1), scene(20, degree=3, seed=2, sh_degree=2)
    together = merged([merged([low]), high])
    assert together.sh_degree == together.stored_sh_degree == 2
    far = np.array([100.0, 0, 0], np.float32)  # so that only one of them is seen
    for shown, other in ((low, high), (high, low)):
        apart = replace(other, means=other.means + far)
        np.testing.assert_allclose(picture(merged([shown, apart]), camera()), picture(shown, camera()), atol=1e-6)
