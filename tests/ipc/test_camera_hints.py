"""Doubts about cameras: one for each other convention, none where cameras are right."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from splatview_ipc.kinds.camera_hints import (
    intrinsics_hints,
    photo_range_hint,
    photo_sides_hint,
    pose_hint,
)

_WIDTH = 80
_HEIGHT = 60
_FLIP = np.diag([1.0, -1, -1, 1])
_Scene = tuple[np.ndarray, np.ndarray]
"""Poses (N, 4, 4) and points (M, 3)."""


def _facing_pose(position: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return world to camera, OpenCV axes.

    -y is up, unless the camera looks along it.
    """
    z = (target - position) / np.linalg.norm(target - position)
    x = np.cross([0.0, 1, 0], z)
    length = np.linalg.norm(x)
    x = np.array([1.0, 0, 0]) if length < 1e-6 else x / length
    view = np.eye(4)
    view[:3, :3] = [x, np.cross(z, x), z]
    view[:3, 3] = -view[:3, :3] @ position
    return view


def _facing_poses(positions: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return (N, 4, 4) from positions (N, 3) to targets (3,) or (N, 3)."""
    targets = np.broadcast_to(targets, positions.shape)
    pairs = zip(positions, targets, strict=True)
    return np.stack([_facing_pose(position, target) for position, target in pairs])


def _circle(count: int, radius: float, height: float) -> np.ndarray:
    angles = np.linspace(0, 2 * np.pi, count, endpoint=False)
    heights = np.full(count, height)
    return np.stack([radius * np.cos(angles), heights, radius * np.sin(angles)], 1)


def _ring(random: np.random.Generator) -> _Scene:
    points = random.uniform(-0.7, 0.7, (800, 3))
    positions = _circle(24, 2.6, -0.8)
    return _facing_poses(positions, np.zeros(3)), points


def _sphere(random: np.random.Generator) -> _Scene:
    positions = random.normal(size=(40, 3))
    positions *= 3 / np.linalg.norm(positions, axis=1, keepdims=True)
    points = random.uniform(-0.6, 0.6, (800, 3))
    return _facing_poses(positions, np.zeros(3)), points


def _garden(random: np.random.Generator) -> _Scene:
    """Return a table in a garden, which is around it and the cameras."""
    table = random.normal(0, 0.3, (1500, 3))
    surroundings = random.normal(size=(1000, 3)) * (4, 1, 4)
    positions = _circle(30, 1.4, -0.5)
    poses = _facing_poses(positions, np.zeros(3))
    return poses, np.concatenate([table, surroundings])


def _forward(random: np.random.Generator) -> _Scene:
    positions = random.uniform(-0.4, 0.4, (20, 3)) * (1, 1, 0)
    ahead = np.array([0, 0, 4.0])
    points = random.uniform((-3, -2, 3), (3, 2, 7), (1500, 3))
    return _facing_poses(positions, positions + ahead), points


def _room_scene(random: np.random.Generator) -> _Scene:
    """Return a room with cameras in its middle that look outward."""
    walls = random.uniform(-3, 3, (1500, 3))
    axis = random.integers(0, 3, 1500)
    rows = np.arange(1500)
    walls[rows, axis] = 3 * np.sign(walls[rows, axis])
    positions = _circle(24, 0.3, 0.0)
    return _facing_poses(positions, 4 * positions), walls


def _nadir(random: np.random.Generator) -> _Scene:
    points = random.uniform((-50, -2, -50), (50, 0, 50), (3000, 3))
    x, z = np.meshgrid(np.linspace(-40, 40, 7), np.linspace(-40, 40, 7))
    positions = np.stack([x.ravel(), np.full(x.size, -12.0), z.ravel()], 1)
    down = np.array([0, 12.0, 0])
    return _facing_poses(positions, positions + down), points


def _corridor(random: np.random.Generator) -> _Scene:
    points = random.uniform((-1.5, -1.5, -5), (1.5, 1.5, 60), (3000, 3))
    positions = np.stack([(0, 0, z) for z in np.linspace(0, 50, 40)]).astype(float)
    ahead = np.array([0, 0.1, 3.0])
    return _facing_poses(positions, positions + ahead), points


def _random_points(random: np.random.Generator) -> _Scene:
    """Return a scene before its training: random points, cameras that look ahead."""
    poses, _ = _forward(random)
    return poses, random.uniform(-0.5, 0.5, (2000, 3))


def _few_cameras(random: np.random.Generator) -> _Scene:
    poses, points = _ring(random)
    return poses[:1], points


_RIGHT_SCENES = (
    _ring,
    _sphere,
    _garden,
    _forward,
    _room_scene,
    _nadir,
    _corridor,
    _random_points,
    _few_cameras,
)


def _transform(scene: _Scene, random: np.random.Generator) -> _Scene:
    """Return the scene rotated and moved by random."""
    poses, points = scene
    rotation, _ = np.linalg.qr(random.normal(size=(3, 3)))
    rotation *= np.sign(np.linalg.det(rotation))
    world = np.eye(4)
    world[:3, :3] = rotation
    world[:3, 3] = random.normal(0, 5, 3)
    return poses @ np.linalg.inv(world), points @ rotation.T + world[:3, 3]


def _hint_of(poses: np.ndarray, points: np.ndarray, focal: float = 70.0) -> str:
    K = np.array([[focal, 0, _WIDTH / 2], [0, focal, _HEIGHT / 2], [0, 0, 1]])
    Ks = np.tile(K, (len(poses), 1, 1))
    sizes = np.tile([_WIDTH, _HEIGHT], (len(poses), 1))
    hint = pose_hint(poses, Ks, sizes, points)
    return "" if hint is None else hint.text


@pytest.mark.parametrize("make_scene", _RIGHT_SCENES)
def test_right_cameras_are_never_doubted(
    make_scene: Callable[[np.random.Generator], _Scene],
) -> None:
    random = np.random.default_rng(3)
    scene = make_scene(random)
    for focal in (45.0, 70.0, 140.0):
        assert not _hint_of(*scene, focal)
        for _ in range(6):
            assert not _hint_of(*_transform(scene, random), focal)


@pytest.mark.parametrize("make_scene", [_ring, _sphere, _garden])
def test_cameras_in_another_convention_get_its_hint(
    make_scene: Callable[[np.random.Generator], _Scene],
) -> None:
    poses, points = make_scene(np.random.default_rng(3))
    inverse = np.linalg.inv(poses)
    assert "camera to world:" in _hint_of(inverse, points)
    assert "OpenGL's axes (y up" in _hint_of(_FLIP @ poses, points)
    nerfstudio = _hint_of(np.linalg.inv(_FLIP @ poses), points)
    assert "camera to world in OpenGL's axes" in nerfstudio


def test_real_cameras_are_not_doubted(data_dir: object) -> None:
    garden = np.load(f"{data_dir}/test_garden.npz")
    poses = garden["viewmats"]
    Ks = garden["Ks"]
    points = garden["means3d"]
    size = [int(garden["width"]), int(garden["height"])]
    sizes = np.tile(size, (len(poses), 1))
    assert not intrinsics_hints(Ks, sizes)
    assert pose_hint(poses, Ks, sizes, points) is None
    assert pose_hint(_FLIP @ poses, Ks, sizes, points) is not None


@pytest.mark.parametrize("points", [np.zeros((0, 3)), np.full((90, 3), np.nan)])
def test_scene_without_finite_points_or_poses_gets_no_hint(points: np.ndarray) -> None:
    poses, _ = _ring(np.random.default_rng(0))
    with np.errstate(all="raise"):
        assert not _hint_of(poses, points)
        assert not _hint_of(poses, np.zeros((90, 3)))
        assert not _hint_of(np.full((8, 4, 4), np.nan), np.ones((90, 3)))


@pytest.mark.parametrize(
    ("K", "size"),
    [
        ([[500, 0, 320], [0, 500, 240], [0, 0, 1]], (640, 480)),
        ([[500, 0, 240], [0, 500, 320], [0, 0, 1]], (480, 640)),
        # A cropped picture.
        ([[500, 0, 100], [0, 500, 400], [0, 0, 1]], (640, 480)),
        ([[500, 0, 0], [0, 500, 0], [0, 0, 1]], (640, 480)),
        # A very wide one.
        ([[12, 0, 320], [0, 12, 240], [0, 0, 1]], (640, 480)),
        ([[500, 1e-7, 320], [0, 500, 240], [0, 0, 1]], (640, 480)),
        ([[9000, 0, 320], [0, 9000, 240], [0, 0, 1]], (640, 480)),
        ([[5, 0, 4], [0, 5, 3], [0, 0, 1]], (8, 6)),
        ([[500, 0, 320], [0, 500, 320], [0, 0, 1]], (640, 640)),
        ([[np.nan, 0, 0], [0, 1, 0], [0, 0, 1]], (640, 480)),
    ],
)
def test_right_intrinsics_are_never_doubted(
    K: list[list[float]], size: tuple[int, int]
) -> None:
    assert not intrinsics_hints(np.array([K] * 4, np.float64), np.array([size] * 4))


@pytest.mark.parametrize(
    ("K", "size", "expected"),
    [
        ([[0.8, 0, 0.5], [0, 1.1, 0.5], [0, 0, 1]], (640, 480), "normalised"),
        ([[1.6, 0, 0.0], [0, 2.1, 0.0], [0, 0, 1]], (640, 480), "normalised"),
        ([[500, 0, 0], [0, 500, 0], [320, 240, 1]], (640, 480), "transposed"),
        ([[500, 0, 240], [0, 500, 320], [0, 0, 1]], (640, 480), "swapped"),
        ([[500, 2, 320], [0, 500, 240], [0, 0, 1]], (640, 480), "skew, 2 pixels"),
        ([[2000, 0, 1284], [0, 2000, 955], [0, 0, 1]], (640, 480), "4 times larger"),
        ([[250, 0, 160], [0, 250, 120], [0, 0, 1]], (640, 480), "2 times smaller"),
    ],
)
def test_wrong_intrinsics_get_one_hint_that_names_the_mistake(
    K: list[list[float]], size: tuple[int, int], expected: str
) -> None:
    hints = intrinsics_hints(np.array([K] * 4, np.float64), np.array([size] * 4))
    assert len(hints) == 1
    assert expected in hints[0].text


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.linspace(0, 1, 500), ""),
        (np.linspace(0, 255, 500), "0 to 255"),
        (np.linspace(-1, 1, 500), "-1 to 1"),
        # Bright lights on dark ground.
        (np.linspace(0, 1, 500) ** 8 * 60, ""),
        (np.zeros(500), ""),
        (np.full(500, np.nan), ""),
    ],
)
def test_photographs_outside_0_to_1_get_a_hint_about_their_range(
    values: np.ndarray, expected: str
) -> None:
    hint = photo_range_hint(values)
    text = "" if hint is None else hint.text
    assert bool(text) == bool(expected)
    assert expected in text


def test_photograph_whose_sides_are_swapped_gets_a_hint() -> None:
    assert photo_sides_hint((600, 800), (800, 600), 0) is not None


@pytest.mark.parametrize(
    ("photo", "camera"),
    [
        ((400, 300), (800, 600)),
        ((800, 500), (800, 600)),
        ((800, 800), (800, 600)),
        ((64, 64), (64, 64)),
    ],
    ids=["smaller", "another ratio", "square photograph", "square"],
)
def test_photograph_that_may_be_right_gets_no_hint(
    photo: tuple[int, int], camera: tuple[int, int]
) -> None:
    assert photo_sides_hint(photo, camera, 0) is None
