"""Up in a scene: by its cameras, its file's custom, its ground, or the user."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from support.view_cases import scene_view, view_pixels

from splatview_viewer.core.host import Host, Memo
from splatview_viewer.core.screen import Rect
from splatview_viewer.geometry.cameras import look_at
from splatview_viewer.scene.scene import GaussianScene
from splatview_viewer.screens.offscreen import OffscreenScreen

RECT = Rect(0, 0, 320, 240)
ROTATIONS = {
    "+z": np.eye(3),
    "+y": np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]]),
    "-y": np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]]),
}
"""Rotations (3, 3) that turn +z, which is up as scenes are made, to an axis."""
SIZES = {"room": (5.0, 4.0, 2.6), "corridor": (14.0, 1.8, 2.6)}
"""Length, width and height."""


def sheet(
    rng: np.random.Generator, middle: list[float], a: list[float], b: list[float]
) -> np.ndarray:
    """Return points (N, 3) of a parallelogram around its middle, with half edges."""
    area = 4 * np.linalg.norm(np.cross(a, b))
    weights = rng.uniform(-1, 1, (int(250 * area), 2))
    return np.array(middle) + weights @ np.array([a, b]) + rng.normal(0, 0.01, 3)


def figure(rng: np.random.Generator) -> np.ndarray:
    """Return points (N, 3) of something like a person."""
    ball = rng.normal(size=(6000, 3))
    ball /= np.linalg.norm(ball, axis=1, keepdims=True)
    return np.concatenate(
        [ball * [0.3, 0.25, 0.6] + [0, 0, 0.6], ball[:2000] * 0.2 + [0, 0, 1.35]]
    )


def shell(rng: np.random.Generator, name: str) -> np.ndarray:
    """Return points (N, 3) of a room with some things in it, +z up."""
    x, y, z = (size / 2 for size in SIZES[name])
    surfaces = [
        sheet(rng, [0, 0, 0], [x, 0, 0], [0, y, 0]),
        sheet(rng, [0, 0, 2 * z], [x, 0, 0], [0, y, 0]),
        sheet(rng, [0, y, z], [x, 0, 0], [0, 0, z]),
        sheet(rng, [0, -y, z], [x, 0, 0], [0, 0, z]),
        sheet(rng, [x, 0, z], [0, y, 0], [0, 0, z]),
        sheet(rng, [-x, 0, z], [0, y, 0], [0, 0, z]),
    ]
    for i in range(5):
        objects = rng.uniform(-0.5, 0.5, (700, 3)) * [0.6, 0.4, 0.8]
        position = np.array([(i - 2) * 0.35 * x, (-1) ** i * 0.5 * y, 0.4])
        surfaces.append(objects + position)
    return np.concatenate(surfaces)


def points_of(name: str, up: str) -> np.ndarray:
    rng = np.random.default_rng(2)
    points = figure(rng) if name == "object" else shell(rng, name)
    return points @ ROTATIONS[up].T


def cameras_of(name: str, up: str) -> np.ndarray:
    """Return matrices (N, 4, 4) of cameras that are held level, some looking down."""
    matrices = []
    for i in range(24):
        angle = 2 * np.pi * i / 24
        ahead = np.array([np.cos(angle), np.sin(angle), -0.15])
        position = np.array([0.0, 0.0, 1.5])
        if name == "object":
            position = -3 * ahead + [0, 0, 0.7]
        elif name == "corridor":
            position = np.array([-6 + i / 2, 0.1, 1.5])
            ahead = np.array([1.0, 0.1 * np.sin(angle), -0.05])
        rotation = ROTATIONS[up]
        target = rotation @ (position + ahead)
        matrices.append(look_at(rotation @ position, target, rotation @ [0, 0, 1]))
    return np.stack(matrices)


def scene_of(points: np.ndarray, *customary_ups: tuple[int, int, int]) -> GaussianScene:
    count = len(points)
    return GaussianScene(
        torch.tensor(points, dtype=torch.float32),
        torch.tensor([[1.0, 0, 0, 0]]).repeat(count, 1),
        torch.full((count, 3), -3.5),
        torch.full((count,), 3.0),
        torch.zeros(count, 3),
        torch.zeros(count, 0, 3),
        customary_ups=customary_ups,
    )


@pytest.fixture
def view(screen: OffscreenScreen) -> Iterator[Any]:
    screen.resize(RECT.width, RECT.height)
    new_view = scene_view(screen)
    yield new_view
    new_view.close()


@pytest.mark.parametrize("up", ROTATIONS)
@pytest.mark.parametrize("name", ["object", "room", "corridor"])
def test_published_cameras_say_what_is_up(
    name: str, up: str, view: Any, screen: OffscreenScreen
) -> None:
    view.update(scene_of(points_of(name, up), (0, -1, 0)))
    view_pixels(view, screen, RECT)
    view.view.rig.up_axis.use_cameras(cameras_of(name, up))
    view_pixels(view, screen, RECT)
    assert view.view.rig.up_axis.axis_name == up
    assert "cameras" in view.view.rig.up_axis.words


@pytest.mark.parametrize("name", ["object", "room", "corridor"])
def test_files_of_a_kind_stand_upright_without_cameras(
    name: str, view: Any, screen: OffscreenScreen
) -> None:
    view.update(scene_of(points_of(name, "-y"), (0, -1, 0)))
    view_pixels(view, screen, RECT)
    assert view.view.rig.up_axis.axis_name == "-y"
    if name == "object":
        assert view.view.rig.up_axis.words == "\u2212y, usual in such files"


@pytest.mark.parametrize("up", ROTATIONS)
@pytest.mark.parametrize("name", ["room", "corridor"])
def test_floor_says_what_is_up_in_a_stream_without_cameras(
    name: str, up: str, view: Any, screen: OffscreenScreen
) -> None:
    view.update(scene_of(points_of(name, up)))
    view_pixels(view, screen, RECT)
    assert view.view.rig.up_axis.axis_name == up
    assert "ground" in view.view.rig.up_axis.words


def test_choice_of_the_user_is_remembered_until_it_is_detected_again(
    view: Any, screen: OffscreenScreen
) -> None:
    memo = Memo()
    view.view.host = Host(memo=memo, name="scene.ply")
    view.update(scene_of(points_of("object", "-y"), (0, -1, 0)))
    view_pixels(view, screen, RECT)
    view.view.rig.up_axis.choose("+z")
    assert view.view.rig.up_axis.words == "+z, set by hand"
    for expected in ("+z", "-y"):
        later = scene_view(screen)
        later.view.host = Host(memo=memo, name="scene.ply")
        later.update(scene_of(points_of("object", "-y"), (0, -1, 0)))
        view_pixels(later, screen, RECT)
        assert later.view.rig.up_axis.axis_name == expected
        later.view.rig.up_axis.detect_again()
        assert later.view.rig.up_axis.axis_name == "-y"
        later.close()
