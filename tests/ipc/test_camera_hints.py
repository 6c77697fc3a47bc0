"""Doubts about cameras: told for each convention of others, and never where cameras are right."""

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

WIDTH = 80
HEIGHT = 60
FLIP = np.diag([1.0, -1, -1, 1])
Scene = tuple[np.ndarray, np.ndarray]
"""Poses (N, 4, 4) and points (M, 3)."""


def look_at(position: np.ndarray, target: np.ndarray) -> np.ndarray:
    """World to camera, OpenCV axes, with -y up where that is not where it looks."""
    z = (target - position) / np.linalg.norm(target - position)
    x = np.cross([0.0, 1, 0], z)
    x = np.array([1.0, 0, 0]) if np.linalg.norm(x) < 1e-6 else x / np.linalg.norm(x)
    view = np.eye(4)
    view[:3, :3] = x, np.cross(z, x), z
    view[:3, 3] = -view[:3, :3] @ position
    return view


def around(count: int, radius: float, height: float) -> np.ndarray:
    angles = np.linspace(0, 2 * np.pi, count, endpoint=False)
    heights = np.full(count, height)
    return np.stack([radius * np.cos(angles), heights, radius * np.sin(angles)], 1)


def ring(random: np.random.Generator) -> Scene:
    points = random.uniform(-0.7, 0.7, (800, 3))
    places = around(24, 2.6, -0.8)
    return np.stack([look_at(place, np.zeros(3)) for place in places]), points


def sphere(random: np.random.Generator) -> Scene:
    places = random.normal(size=(40, 3))
    places *= 3 / np.linalg.norm(places, axis=1, keepdims=True)
    points = random.uniform(-0.6, 0.6, (800, 3))
    return np.stack([look_at(place, np.zeros(3)) for place in places]), points


def garden(random: np.random.Generator) -> Scene:
    """A table, and what stands around it and the cameras."""
    table = random.normal(0, 0.3, (1500, 3))
    away = random.normal(size=(1000, 3)) * (4, 1, 4)
    places = around(30, 1.4, -0.5)
    poses = np.stack([look_at(place, np.zeros(3)) for place in places])
    return poses, np.concatenate([table, away])


def forward(random: np.random.Generator) -> Scene:
    places = random.uniform(-0.4, 0.4, (20, 3)) * (1, 1, 0)
    ahead = np.array([0, 0, 4.0])
    points = random.uniform((-3, -2, 3), (3, 2, 7), (1500, 3))
    return np.stack([look_at(place, place + ahead) for place in places]), points


def room(random: np.random.Generator) -> Scene:
    """Looked at from its middle, outward."""
    walls = random.uniform(-3, 3, (1500, 3))
    axis = random.integers(0, 3, 1500)
    rows = np.arange(1500)
    walls[rows, axis] = 3 * np.sign(walls[rows, axis])
    places = around(24, 0.3, 0.0)
    return np.stack([look_at(place, 4 * place) for place in places]), walls


def nadir(random: np.random.Generator) -> Scene:
    points = random.uniform((-50, -2, -50), (50, 0, 50), (3000, 3))
    x, z = np.meshgrid(np.linspace(-40, 40, 7), np.linspace(-40, 40, 7))
    places = np.stack([x.ravel(), np.full(x.size, -12.0), z.ravel()], 1)
    down = np.array([0, 12.0, 0])
    return np.stack([look_at(place, place + down) for place in places]), points


def corridor(random: np.random.Generator) -> Scene:
    points = random.uniform((-1.5, -1.5, -5), (1.5, 1.5, 60), (3000, 3))
    places = np.stack([(0, 0, z) for z in np.linspace(0, 50, 40)]).astype(float)
    ahead = np.array([0, 0.1, 3.0])
    return np.stack([look_at(place, place + ahead) for place in places]), points


def random_points(random: np.random.Generator) -> Scene:
    """Before the training: random points between cameras that look ahead."""
    poses, _ = forward(random)
    return poses, random.uniform(-0.5, 0.5, (2000, 3))


def few(random: np.random.Generator) -> Scene:
    poses, points = ring(random)
    return poses[:1], points


RIGHT = (ring, sphere, garden, forward, room, nadir, corridor, random_points, few)


def moved(scene: Scene, random: np.random.Generator) -> Scene:
    """The same in another world: turned, and elsewhere."""
    poses, points = scene
    turn, _ = np.linalg.qr(random.normal(size=(3, 3)))
    turn *= np.sign(np.linalg.det(turn))
    world = np.eye(4)
    world[:3, :3] = turn
    world[:3, 3] = random.normal(0, 5, 3)
    return poses @ np.linalg.inv(world), points @ turn.T + world[:3, 3]


def hint_of(poses: np.ndarray, points: np.ndarray, focal: float = 70.0) -> str:
    K = np.array([[focal, 0, WIDTH / 2], [0, focal, HEIGHT / 2], [0, 0, 1]])
    Ks = np.tile(K, (len(poses), 1, 1))
    sizes = np.tile([WIDTH, HEIGHT], (len(poses), 1))
    hint = pose_hint(poses, Ks, sizes, points)
    return "" if hint is None else hint.text


@pytest.mark.parametrize("make", RIGHT)
def test_right_cameras_are_never_doubted(
    make: Callable[[np.random.Generator], Scene],
) -> None:
    random = np.random.default_rng(3)
    scene = make(random)
    for focal in (45.0, 70.0, 140.0):
        assert not hint_of(*scene, focal)
        for _ in range(6):
            assert not hint_of(*moved(scene, random), focal)


@pytest.mark.parametrize("make", [ring, sphere, garden])
def test_each_other_convention_is_named(
    make: Callable[[np.random.Generator], Scene],
) -> None:
    poses, points = make(np.random.default_rng(3))
    inverse = np.linalg.inv(poses)
    assert "camera to world:" in hint_of(inverse, points)
    assert "OpenGL's axes (y up" in hint_of(FLIP @ poses, points)
    nerfstudio = hint_of(np.linalg.inv(FLIP @ poses), points)
    assert "camera to world in OpenGL's axes" in nerfstudio


def test_real_cameras_are_not_doubted(data_dir: object) -> None:
    garden = np.load(f"{data_dir}/test_garden.npz")
    poses = garden["viewmats"]
    sizes = np.tile([int(garden["width"]), int(garden["height"])], (len(poses), 1))
    assert not intrinsics_hints(garden["Ks"], sizes)
    assert pose_hint(poses, garden["Ks"], sizes, garden["means3d"]) is None
    opengl = FLIP @ poses
    assert pose_hint(opengl, garden["Ks"], sizes, garden["means3d"]) is not None


@pytest.mark.parametrize("points", [np.zeros((0, 3)), np.full((90, 3), np.nan)])
def test_a_scene_of_nothing_says_nothing(points: np.ndarray) -> None:
    poses, _ = ring(np.random.default_rng(0))
    with np.errstate(all="raise"):
        assert not hint_of(poses, points)
        assert not hint_of(poses, np.zeros((90, 3)))
        assert not hint_of(np.full((8, 4, 4), np.nan), np.ones((90, 3)))


@pytest.mark.parametrize(
    ("K", "size"),
    [
        ([[500, 0, 320], [0, 500, 240], [0, 0, 1]], (640, 480)),
        ([[500, 0, 240], [0, 500, 320], [0, 0, 1]], (480, 640)),
        ([[500, 0, 100], [0, 500, 400], [0, 0, 1]], (640, 480)),  # a part of a picture
        ([[500, 0, 0], [0, 500, 0], [0, 0, 1]], (640, 480)),
        ([[12, 0, 320], [0, 12, 240], [0, 0, 1]], (640, 480)),  # very wide
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
    ("K", "size", "told"),
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
def test_each_kind_of_intrinsics_is_named(
    K: list[list[float]], size: tuple[int, int], told: str
) -> None:
    hints = intrinsics_hints(np.array([K] * 4, np.float64), np.array([size] * 4))
    assert len(hints) == 1
    assert told in hints[0].text


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (np.linspace(0, 1, 500), ""),
        (np.linspace(0, 255, 500), "0 to 255"),
        (np.linspace(-1, 1, 500), "-1 to 1"),
        (np.linspace(0, 1, 500) ** 8 * 60, ""),  # bright lights on dark ground
        (np.zeros(500), ""),
        (np.full(500, np.nan), ""),
    ],
)
def test_photographs_are_doubted_by_their_range(values: np.ndarray, told: str) -> None:
    hint = photo_range_hint(values)
    assert (hint is not None) == bool(told)
    assert hint is None or told in hint.text


def test_photographs_held_upright_are_doubted_where_their_cameras_are_not() -> None:
    assert photo_sides_hint((600, 800), (800, 600), 0) is not None
    # Smaller ones, another ratio, squares.
    assert photo_sides_hint((400, 300), (800, 600), 0) is None
    assert photo_sides_hint((800, 500), (800, 600), 0) is None
    assert photo_sides_hint((800, 800), (800, 600), 0) is None
    assert photo_sides_hint((64, 64), (64, 64), 0) is None
