"""Shapes to crop by are drawn in pictures, and dragging changes them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.renderer_cases import looking_at_origin

from splatview_viewer.geometry.cameras import MODELS, project
from splatview_viewer.scene import Box, Cylinder, Sphere, shapes


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


# -- cylinders -----------------------------------------------------------------

TILTED = Cylinder((0.2, 0.1, -0.3), 0.4, 0.6, shapes.axes_of((20, 0, 40)))


def distances_from_axis(cylinder: Cylinder, points: np.ndarray) -> np.ndarray:
    offsets = points - np.array(cylinder.center)
    axis = np.array(cylinder.axes[cylinder.axis_index])
    return np.linalg.norm(offsets - (offsets @ axis)[:, None] * axis, axis=1)


@pytest.mark.parametrize(
    ("up", "index", "angles"),
    [
        ((0.0, -1.0, 0.0), 1, (0, 0, 0)),
        ((0.0, 0.0, 1.0), 2, (0, 0, 0)),
        ((-2.0, 0.0, 0.0), 0, (0, 0, 0)),
        ((0.0, 1.0, 1.0001), 2, (-45, 0, 0)),
        ((1.0, 2.0, 3.0), 2, None),
    ],
)
def test_fitted_cylinder_is_upright_and_holds_nearly_all(
    up: tuple[float, float, float], index: int, angles: tuple[float, ...] | None
) -> None:
    direction = np.array(up) / np.linalg.norm(up)
    random = np.random.default_rng(0)
    means = random.normal(size=(2000, 3)) + np.outer(3 * random.normal(size=2000), up)
    means += np.array([5.0, 6.0, 7.0])
    weights = np.ones(2000)
    means[0] = np.nan
    means[1] = 1e6
    means[2:100] = 50.0
    weights[2:100] = 0.0
    cylinder = shapes.fit(Cylinder, means, weights, up=np.array(up))
    assert isinstance(cylinder, Cylinder)
    assert cylinder.axis_index == index
    np.testing.assert_allclose(
        np.abs(np.array(cylinder.axes[index]) @ direction), 1, atol=1e-9
    )
    np.testing.assert_allclose(
        np.array(cylinder.axes) @ np.array(cylinder.axes).T, np.eye(3), atol=1e-9
    )
    if angles is not None:
        np.testing.assert_allclose(shapes.angles_of(cylinder), angles, atol=0.01)
    expected_means = means[100:]
    heights = (expected_means - np.array(cylinder.center)) @ direction
    is_inside = np.abs(heights) <= cylinder.half_height
    is_inside &= distances_from_axis(cylinder, expected_means) <= cylinder.radius
    assert 0.95 < is_inside.mean() < 1
    np.testing.assert_allclose(cylinder.center, (5, 6, 7), atol=1.5)


def test_cylinder_fitted_to_little_has_a_size() -> None:
    up = np.array([0.0, 0.0, 1.0])
    empty = shapes.fit(Cylinder, np.zeros((0, 3)), up=up)
    assert empty == shapes.upright_cylinder(up)
    for means in (np.ones((1, 3)), np.outer(np.arange(9.0), up)):
        cylinder = shapes.fit(Cylinder, means, up=up)
        assert isinstance(cylinder, Cylinder)
        assert min(cylinder.half) > 0


@pytest.mark.parametrize("model", MODELS)
def test_dragged_side_of_a_cylinder_moves_all_around(model: str) -> None:
    camera = looking_at_origin(model=model)
    for i, face in enumerate(shapes.FACES):
        axis = face[1] * np.array(TILTED.axes[face[0]])
        middle = shapes.face_centers(TILTED)[i]
        center = np.array(TILTED.center)
        start, end = (project(camera, p) for p in (middle, middle + 0.25 * axis))
        start_distance = shapes.axis_distance(camera, start, center, axis)
        end_distance = shapes.axis_distance(camera, end, center, axis)
        assert start_distance is not None
        assert end_distance is not None
        moved = shapes.with_face(TILTED, face, end_distance - start_distance)
        assert isinstance(moved, Cylinder)
        new_middle = shapes.face_centers(moved)[i]
        np.testing.assert_allclose(new_middle, middle + 0.25 * axis, atol=1e-6)
        if face[0] == TILTED.axis_index:
            assert moved.radius == TILTED.radius
            assert moved.half_height == pytest.approx(0.6 + 0.125)
        else:
            assert moved == replace(TILTED, radius=moved.radius)
    assert 0 < min(shapes.with_face(TILTED, (0, 1), -50.0).half) < 0.01
    assert 0 < min(shapes.with_face(TILTED, (1, 1), -50.0).half) < 0.01


@pytest.mark.parametrize("model", MODELS)
def test_edges_of_a_cylinder_are_its_rims_and_its_outline(model: str) -> None:
    camera = looking_at_origin(model=model)
    edges = shapes.edges(TILTED, camera)
    # The end that is seen has a whole rim, the other one a part before and one behind.
    *rims, first, second = edges
    assert sorted(rim.is_front for rim in rims) == [False, True, True]
    closed = [np.allclose(rim.line[0], rim.line[-1]) for rim in rims]
    assert sorted(closed) == [False, False, True]
    ends = []
    for sign in (-1, 1):
        axis = np.array(TILTED.axes[1])
        ends.append(np.array(TILTED.center) + sign * TILTED.half_height * axis)
    for rim in rims:
        # Each point is seen where a circle around one of the ends is.
        off_by_end = []
        for end in ends:
            points = []
            for x, y in rim.line:
                start, direction = shapes.ray(camera, x, y)
                share = (end - start) @ axis / (direction @ axis)
                points.append(start + share * direction)
            distances = np.linalg.norm(np.array(points) - end, axis=1)
            off_by_end.append(np.abs(distances - TILTED.radius).max())
        assert min(off_by_end) < 1e-6
    for edge in (first, second):
        assert edge.is_front
        for x, y in edge.line:
            start, direction = shapes.ray(camera, x, y)
            normal = np.cross(direction, axis)
            normal /= np.linalg.norm(normal)
            distance = abs((np.array(TILTED.center) - start) @ normal)
            assert distance == pytest.approx(TILTED.radius, rel=1e-6)


def test_cylinder_around_the_camera_has_no_outline_and_one_behind_it_no_edges() -> None:
    camera = looking_at_origin()
    large = replace(TILTED, radius=50.0, half_height=100.0)
    assert not any(edge.is_front for edge in shapes.edges(large, camera))
    x, y, z = (2 * camera.position - np.array(TILTED.center)).tolist()
    assert shapes.edges(replace(TILTED, center=(x, y, z)), camera) == []
    # Seen end on, its side is not seen.
    ortho = looking_at_origin(model="ortho")
    forward = ortho.viewmat[2, :3]
    upright = shapes.upright_cylinder(forward)
    rims = shapes.edges(upright, ortho)
    assert sorted(rim.is_front for rim in rims) == [False, True]
    for rim in rims:
        np.testing.assert_allclose(rim.line[0], rim.line[-1], atol=1e-9)
