"""Boxes and spheres are drawn in pictures, and dragging changes them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.renderer_cases import looking_at_origin

from splatview_viewer.geometry.cameras import MODELS, project
from splatview_viewer.scene import Box, Sphere, shapes


def test_angles_and_axes_convert_both_ways() -> None:
    for angles in (
        (0, 0, 0),
        (30, 0, 0),
        (0, 45, 0),
        (0, 0, -120),
        (20, -35, 130),
        (170, 80, -10),
    ):
        box = Box(axes=shapes.axes_of(angles))
        np.testing.assert_allclose(shapes.angles_of(box), angles, atol=1e-6)


@pytest.mark.parametrize("model", MODELS)
def test_ray_of_a_pixel_goes_through_its_point(model: str) -> None:
    camera = looking_at_origin(model=model)
    for point in ([0, 0, 0], [0.5, -0.3, 0.2], [-0.7, 0.4, -0.5]):
        pixel = project(camera, np.array(point))
        start, direction = shapes.ray(camera, *pixel)
        off = np.array(point) - start
        np.testing.assert_allclose(off - (off @ direction) * direction, 0, atol=1e-6)
        same_point = shapes.point_at_depth(camera, pixel, np.array(point, float))
        assert same_point is not None
        np.testing.assert_allclose(same_point, point, atol=1e-6)


@pytest.mark.parametrize("model", MODELS)
def test_dragged_face_follows_the_pointer(model: str) -> None:
    """A face is dragged to another point of its axis, and the opposite face stays."""
    camera = looking_at_origin(model=model)
    box = Box((0.1, -0.1, 0.2), (0.5, 0.3, 0.4), shapes.axes_of((20, 30, 40)))
    for i, face in enumerate(shapes.FACES):
        axis = face[1] * np.array(box.axes[face[0]])
        middle = shapes.face_centers(box)[i]
        center = np.array(box.center)
        start, end = (project(camera, p) for p in (middle, middle + 0.25 * axis))
        start_distance = shapes.axis_distance(camera, start, center, axis)
        end_distance = shapes.axis_distance(camera, end, center, axis)
        assert start_distance is not None
        assert end_distance is not None
        moved = shapes.with_face(box, face, end_distance - start_distance)
        centers = shapes.face_centers(moved)
        np.testing.assert_allclose(centers[i], middle + 0.25 * axis, atol=1e-6)
        opposite = shapes.FACES.index((face[0], -face[1]))
        unmoved = shapes.face_centers(box)[opposite]
        np.testing.assert_allclose(centers[opposite], unmoved, atol=1e-9)


def test_box_is_not_dragged_inside_out_or_along_the_line_of_sight() -> None:
    assert 0 < shapes.with_face(Box(), (0, 1), -50.0).half[0] < 0.01
    camera = looking_at_origin()
    origin = np.zeros(3)
    axis = -camera.position / np.linalg.norm(camera.position)
    pixel = project(camera, origin)
    assert shapes.axis_distance(camera, pixel, origin, axis) is None


@pytest.mark.parametrize("model", MODELS)
def test_silhouette_is_the_edge_of_a_sphere(model: str) -> None:
    """Lines of sight through its points touch the sphere."""
    camera = looking_at_origin(model=model)
    sphere = Sphere((0.2, 0.1, -0.3), 0.6)
    rim = shapes.silhouette(sphere, camera)
    assert rim is not None
    for x, y in rim:
        start, direction = shapes.ray(camera, x, y)
        off = np.array(sphere.center) - start
        distance = np.linalg.norm(off - (off @ direction) * direction)
        assert distance == pytest.approx(0.6, rel=1e-6)
    if model != "ortho":
        assert shapes.silhouette(replace(sphere, radius=50.0), camera) is None
