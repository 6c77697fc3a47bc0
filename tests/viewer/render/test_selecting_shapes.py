"""Boxes and spheres in a picture, and what dragging makes of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.renderer_cases import looking_at_origin

from splatview_viewer.geometry.cameras import MODELS, project
from splatview_viewer.scene import Box, Sphere, shapes


def test_angles_and_axes() -> None:
    for angles in (
        (0, 0, 0),
        (30, 0, 0),
        (0, 45, 0),
        (0, 0, -120),
        (20, -35, 130),
        (170, 80, -10),
    ):
        np.testing.assert_allclose(
            shapes.angles_of(Box(axes=shapes.axes_of(angles))), angles, atol=1e-6
        )


@pytest.mark.parametrize("model", MODELS)
def test_what_is_seen_at_a_pixel_is_seen_there(model: str) -> None:
    camera = looking_at_origin(model=model)
    for point in ([0, 0, 0], [0.5, -0.3, 0.2], [-0.7, 0.4, -0.5]):
        at = project(camera, np.array(point))
        begin, direction = shapes.ray(camera, *at)
        off = np.array(point) - begin
        np.testing.assert_allclose(off - (off @ direction) * direction, 0, atol=1e-6)
        found = shapes.point_at_depth(camera, at, np.array(point, float))
        assert found is not None
        np.testing.assert_allclose(found, point, atol=1e-6)


@pytest.mark.parametrize("model", MODELS)
def test_a_face_follows_the_pointer(model: str) -> None:
    """Dragged from where it is to where another point of its axis is seen, it goes through that, and the opposite one
    stays.
    """
    camera = looking_at_origin(model=model)
    box = Box((0.1, -0.1, 0.2), (0.5, 0.3, 0.4), shapes.axes_of((20, 30, 40)))
    for i, face in enumerate(shapes.FACES):
        axis = face[1] * np.array(box.axes[face[0]])
        middle = shapes.face_centers(box)[i]
        before, now = (
            shapes.axis_distance(camera, project(camera, p), np.array(box.center), axis)
            for p in (middle, middle + 0.25 * axis)
        )
        assert before is not None
        assert now is not None
        moved = shapes.with_face(box, face, now - before)
        np.testing.assert_allclose(
            shapes.face_centers(moved)[i], middle + 0.25 * axis, atol=1e-6
        )
        opposite = shapes.FACES.index((face[0], -face[1]))
        np.testing.assert_allclose(
            shapes.face_centers(moved)[opposite],
            shapes.face_centers(box)[opposite],
            atol=1e-9,
        )


def test_a_box_is_not_dragged_inside_out_or_along_an_axis_seen_end_on() -> None:
    assert 0 < shapes.with_face(Box(), (0, 1), -50.0).half[0] < 0.01
    camera = looking_at_origin()
    sight = -camera.position / np.linalg.norm(camera.position)
    assert (
        shapes.axis_distance(camera, project(camera, np.zeros(3)), np.zeros(3), sight)
        is None
    )


@pytest.mark.parametrize("model", MODELS)
def test_a_silhouette_is_the_edge_of_a_sphere(model: str) -> None:
    """Lines of sight through its points touch the sphere."""
    camera = looking_at_origin(model=model)
    sphere = Sphere((0.2, 0.1, -0.3), 0.6)
    rim = shapes.silhouette(sphere, camera)
    assert rim is not None
    for x, y in rim:
        begin, direction = shapes.ray(camera, x, y)
        off = np.array(sphere.center) - begin
        assert np.linalg.norm(off - (off @ direction) * direction) == pytest.approx(
            0.6, rel=1e-6
        )
    if model != "ortho":
        assert shapes.silhouette(replace(sphere, radius=50.0), camera) is None
