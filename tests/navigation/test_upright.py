"""What is up: found in cameras, in the ground of real scenes, and in nothing that has none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from splatview.viewer_app.cameras import look_at
from splatview.viewer_app.files import load_scene
from splatview.viewer_app.navigation.upright import snapped, up_of_cameras, up_of_scene
from splatview.viewer_app.views._gaussians.frames import Sight

if TYPE_CHECKING:
    from pathlib import Path

UP = np.array([0.48, -0.6, 0.64])
UP /= np.linalg.norm(UP)


def ring(count: int, height: float, *, roll: float = 0.0, arc: float = 2 * np.pi) -> np.ndarray:
    """(N, 4, 4) cameras on a circle around the origin, `height` above it, that look at it; rolled at random."""
    random = np.random.default_rng(0)
    side = np.cross(UP, [1.0, 0, 0])
    side /= np.linalg.norm(side)
    ahead = np.cross(side, UP)
    out = []
    for angle in np.linspace(0, arc, count, endpoint=False):
        position = 3 * (np.cos(angle) * side + np.sin(angle) * ahead) + height * UP
        viewmat, turn = look_at(position, (0, 0, 0), UP), random.normal() * roll
        c, s = np.cos(turn), np.sin(turn)
        spin = np.eye(4)
        spin[:2, :2] = [[c, -s], [s, c]]
        out.append(spin @ viewmat)
    return np.stack(out)


def known_up(viewmats: np.ndarray) -> np.ndarray:
    """`up_of_cameras`, where there is one."""
    found = up_of_cameras(viewmats)
    assert found is not None
    return found


@pytest.mark.parametrize("height", [0.0, 1.0, 3.0, 8.0])
def test_cameras_around_something_say_what_is_up_however_much_they_look_down(height: float) -> None:
    np.testing.assert_allclose(known_up(ring(30, height)), UP, atol=1e-6)
    found = up_of_cameras(ring(30, height, roll=0.03))
    assert found is not None
    assert found @ UP > np.cos(np.radians(3))


def test_cameras_that_look_one_way_say_it_by_their_pictures() -> None:
    one = ring(1, 0.0)
    np.testing.assert_allclose(known_up(np.repeat(one, 20, axis=0)), UP, atol=1e-6)
    np.testing.assert_allclose(known_up(one[0]), UP, atol=1e-6)
    found = up_of_cameras(ring(20, 0.3, arc=0.2))
    assert found is not None
    assert found @ UP > np.cos(np.radians(8))


def test_cameras_that_say_nothing() -> None:
    assert up_of_cameras(np.empty((0, 4, 4))) is None
    assert up_of_cameras(np.full((3, 4, 4), np.nan)) is None
    upside_down = np.diag([-1.0, -1, 1, 1])
    assert up_of_cameras(np.stack([np.eye(4), upside_down])) is None
    broken = ring(10, 1.0)
    broken[3] = np.inf
    np.testing.assert_allclose(known_up(broken), UP, atol=1e-6)


def test_real_cameras_and_their_scene_agree(data_dir: Path) -> None:
    with np.load(data_dir / "test_garden.npz") as garden:
        by_cameras, by_ground = up_of_cameras(garden["viewmats"]), up_of_scene(garden["means3d"])
    assert by_cameras is not None
    assert by_ground is not None
    for found in (by_cameras, by_ground):
        assert found @ (0, 0, 1) > np.cos(np.radians(3))
        np.testing.assert_array_equal(snapped(found), (0, 0, 1))


@pytest.mark.parametrize(("name", "up"), [("playbot", (0, -1, 0)), ("biker.compressed.ply", None)])
def test_real_scenes(data_dir: Path, name: str, up: tuple[int, int, int] | None) -> None:
    """One stands on the ground, the other in the air."""
    sight = Sight.of(load_scene(data_dir / name))
    found = up_of_scene(sight.means, sight.weights)
    if up is None:
        assert found is None
    else:
        assert found is not None
        np.testing.assert_array_equal(snapped(found), up)


def standing(share: float, seed: int = 0) -> np.ndarray:
    """(6000, 3) a ball on a ground of which UP is the normal, with this share of the points."""
    random = np.random.default_rng(seed)
    count = round(6000 * share)
    side = np.cross(UP, [1.0, 0, 0])
    side /= np.linalg.norm(side)
    flat = random.uniform(-2, 2, (count, 2)) @ np.stack([side, np.cross(UP, side)])
    flat += random.normal(0, 0.004, (count, 1)) * UP
    ball = random.normal(size=(6000 - count, 3))
    ball *= 0.8 * random.uniform(0, 1, (len(ball), 1)) ** (1 / 3) / np.linalg.norm(ball, axis=1, keepdims=True)
    return np.concatenate([flat, ball + 0.85 * UP]) * 7 + [100, -50, 3]


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_ground_in_any_direction_is_found(share: float) -> None:
    found = up_of_scene(standing(share))
    assert found is not None
    assert found @ UP > np.cos(np.radians(1))


def test_what_cannot_be_seen_does_not_count() -> None:
    points = standing(0.5)
    weights = np.ones(len(points))
    weights[:3000] = 0.0  # the ground
    assert up_of_scene(points, weights) is None
    points[3000:3100] = np.nan
    points[3100:3200] = 1e30
    assert up_of_scene(points) is not None


@pytest.mark.parametrize("shape", ["ball", "cube", "few", "none", "one place", "line"])
def test_nothing_stands_on_these(shape: str) -> None:
    random = np.random.default_rng(3)
    points = {
        "ball": random.normal(size=(5000, 3)), "cube": random.uniform(-1, 1, (5000, 3)),
        "few": standing(0.5)[::100], "none": np.empty((0, 3)), "one place": np.ones((5000, 3)),
        "line": np.linspace(0, 1, 5000)[:, None] * [[1.0, 2, 3]],
    }[shape]
    assert up_of_scene(points) is None


def test_snapping_is_to_near_axes_only() -> None:
    np.testing.assert_array_equal(snapped(np.array([0.02, -0.9998, 0.0])), (0, -1, 0))
    np.testing.assert_array_equal(snapped(UP), UP)
