"""Each way to see a scene, as the view draws it: colour maps, ranges and paints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.reference import ReferenceRenderer
from support.renderer_cases import Chance, looking_at_origin, random_scene
from support.view_cases import scene_view, view_pixels

from splatview_viewer.render.base import Pixels, RenderOptions
from splatview_viewer.render.paints import PAINTS
from splatview_viewer.scene import Selection, color_maps
from splatview_viewer.screens.offscreen import OffscreenScreen

W = 200
H = 150
CAMERA = looking_at_origin(W, H)
SCENE = random_scene(41, Chance(n=500, log_scale=(-2.4, 0.7)))
BACKGROUND = 0.1, 0.2, 0.3


@pytest.fixture
def view(screen: OffscreenScreen) -> Iterator[Any]:
    screen.resize(W, H)
    new_view = scene_view(screen)
    new_view.update(SCENE)
    new_view.view.rig.use_camera(CAMERA)
    new_view.view.change(background=BACKGROUND)
    yield new_view
    new_view.close()


def reference(**options: Any) -> Pixels:
    renderer = ReferenceRenderer()
    renderer.load(SCENE)
    return renderer.render(CAMERA, RenderOptions(**options)).pixels()


def over_background(color: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    return np.clip(color + (1 - alpha[..., None]) * np.array(BACKGROUND), 0, 1) * 255


def assert_alike(
    pixels: np.ndarray, expected: np.ndarray, *, max_share: float = 0.002
) -> None:
    """Compare pictures to one step of 255, but for a share of pixels at edges."""
    difference = np.abs(pixels - expected).max(axis=-1)
    share = (difference > 1.01).mean()
    assert share <= max_share, f"{share:.3%} differ, by up to {difference.max():.0f}"


def expected_depth(pixels: Pixels) -> np.ndarray:
    assert pixels.depth is not None
    depth = np.zeros_like(pixels.depth)
    is_covered = pixels.alpha > 1e-6
    return np.divide(pixels.depth, pixels.alpha, out=depth, where=is_covered)


def test_paints_lie_over_the_background_and_alpha_is_grey(
    view: Any, screen: OffscreenScreen
) -> None:
    for show in [name for name, paint in PAINTS.items() if not paint.is_mapped]:
        view.view.change(show=show)
        pixels = reference(paint=show)
        assert_alike(
            view_pixels(view, screen), over_background(pixels.color, pixels.alpha)
        )
    view.view.change(show="alpha")
    grey = np.repeat(reference().alpha[..., None] * 255, 3, axis=2)
    assert_alike(view_pixels(view, screen), grey)


def test_depth_has_the_colors_of_every_map_over_a_set_range(
    view: Any, screen: OffscreenScreen
) -> None:
    pixels = reference()
    shares = (expected_depth(pixels) - 2.5) / 3
    for name in color_maps.NAMES:
        view.view.change(show="depth", color_map=name, depth_range=(2.5, 5.5))
        colors = color_maps.colors(name, shares) * pixels.alpha[..., None]
        expected = over_background(colors, pixels.alpha)
        assert_alike(view_pixels(view, screen), expected)


def test_range_of_depth_covers_the_visible_scene(
    view: Any, screen: OffscreenScreen
) -> None:
    view.view.change(show="depth")
    automatic = view_pixels(view, screen)
    pixels = reference()
    low, high = np.percentile(expected_depth(pixels)[pixels.alpha > 0.3], (1, 99))
    assert view.view.picture.number_picture.range == pytest.approx(
        (low, high), rel=0.02
    )
    view.view.change(depth_range=view.view.picture.number_picture.range)
    assert np.array_equal(view_pixels(view, screen), automatic)
    view.view.change(depth_range=(low, high / 2))
    assert not np.array_equal(view_pixels(view, screen), automatic)


def test_overdraw_has_the_colors_of_its_map(view: Any, screen: OffscreenScreen) -> None:
    view.view.change(show="overdraw", color_map="magma")
    drawn = view_pixels(view, screen)
    pixels = reference(paint="overdraw")
    counts = pixels.color[..., 0]
    low, high = view.view.picture.number_picture.range
    assert low == 0
    assert high == np.ceil(high)
    assert 0.9 * np.percentile(counts, 98) <= high <= pixels.color.max()
    colors = color_maps.colors("magma", counts / high) * pixels.alpha[..., None]
    assert_alike(drawn, over_background(colors, pixels.alpha), max_share=0.01)
    view.view.change(overdraw_range=(1.0, 5.0))
    colors = color_maps.colors("magma", (counts - 1) / 4) * pixels.alpha[..., None]
    expected = over_background(colors, pixels.alpha)
    assert_alike(view_pixels(view, screen), expected, max_share=0.01)


def test_size_and_selection_reach_the_picture(
    view: Any, screen: OffscreenScreen
) -> None:
    selection = Selection(opacity=(0.4, 1.0), marked=(7,))
    view.view.change(show="ellipsoids", scale=0.5, selection=selection)
    pixels = reference(paint="ellipsoids", scale=0.5, selection=selection)
    assert_alike(view_pixels(view, screen), over_background(pixels.color, pixels.alpha))
    view.view.change(show="points", point_px=4.0)
    # Diameters are in points of the screen.
    view.view.host.scale = 2.0
    pixels = reference(paint="points", point_px=8.0, selection=selection)
    assert_alike(view_pixels(view, screen), over_background(pixels.color, pixels.alpha))


@pytest.mark.parametrize("name", color_maps.NAMES)
def test_color_maps_end_at_their_limits_and_grow_brighter(name: str) -> None:
    table = color_maps.table(name)
    limits = color_maps.colors(name, np.array([-1.0, 2.0]))
    assert np.array_equal(limits, table[[0, -1]])
    brightness = table @ [0.2126, 0.7152, 0.0722]
    if name != "turbo":
        assert (np.diff(brightness) > 0).all()
