"""Each way to see a scene, as the view lays it on the screen: colour maps, ranges, the
legend and the controls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.reference import ReferenceRenderer
from support.renderer_cases import Chance, looking_at_origin, random_scene
from support.view_cases import scene_view, view_pixels

from splatview_viewer.render.base import Pixels, RenderOptions
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
    made = scene_view(screen)
    made.update(SCENE)
    made.view.rig.use_camera(CAMERA)
    made.view.change(background=BACKGROUND)
    yield made
    made.close()


def reference(**options: Any) -> Pixels:
    made = ReferenceRenderer()
    made.load(SCENE)
    return made.render(CAMERA, RenderOptions(**options)).pixels()


def over_background(color: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    return np.clip(color + (1 - alpha[..., None]) * np.array(BACKGROUND), 0, 1) * 255


def alike(got: np.ndarray, wanted: np.ndarray, *, apart: float = 0.002) -> None:
    """To one step of 255, but for a few pixels at edges."""
    worst = np.abs(got - wanted).max(axis=-1)
    assert (worst > 1.01).mean() <= apart, (
        f"{(worst > 1.01).mean():.3%} are apart, by up to {worst.max():.0f}"
    )


def expected_depth(p: Pixels) -> np.ndarray:
    assert p.depth is not None
    return np.divide(p.depth, p.alpha, out=np.zeros_like(p.depth), where=p.alpha > 1e-6)


def test_paints_lie_over_the_background_and_alpha_is_grey(
    view: Any, screen: OffscreenScreen
) -> None:
    for show in ("color", "normals", "ellipsoids", "rings", "points"):
        view.view.change(show=show)
        p = reference(paint=show)
        alike(view_pixels(view, screen), over_background(p.color, p.alpha))
    view.view.change(show="alpha")
    alike(
        view_pixels(view, screen),
        np.repeat(reference().alpha[..., None] * 255, 3, axis=2),
    )


def test_depth_by_every_map_over_a_range_by_hand(
    view: Any, screen: OffscreenScreen
) -> None:
    p = reference()
    for name in color_maps.NAMES:
        view.view.change(show="depth", color_map=name, depth_range=(2.5, 5.5))
        wanted = (
            color_maps.colors(name, (expected_depth(p) - 2.5) / 3) * p.alpha[..., None]
        )
        alike(view_pixels(view, screen), over_background(wanted, p.alpha))


def test_the_range_of_depth_by_itself(view: Any, screen: OffscreenScreen) -> None:
    view.view.change(show="depth")
    automatic = view_pixels(view, screen)
    p = reference()
    low, high = np.percentile(expected_depth(p)[p.alpha > 0.3], (1, 99))
    assert view.view.picture.depth.range == pytest.approx((low, high), rel=0.02)
    view.view.change(depth_range=view.view.picture.depth.range)
    assert np.array_equal(view_pixels(view, screen), automatic)
    view.view.change(depth_range=(low, high / 2))
    assert not np.array_equal(view_pixels(view, screen), automatic)


def test_overdraw_by_a_map(view: Any, screen: OffscreenScreen) -> None:
    view.view.change(show="overdraw", color_map="magma")
    got = view_pixels(view, screen)
    p, (low, high) = reference(paint="overdraw"), view.view.picture.depth.range
    assert low == 0
    assert high == np.ceil(high)
    assert 0.9 * np.percentile(p.color[..., 0], 98) <= high <= p.color.max()
    wanted = color_maps.colors("magma", p.color[..., 0] / high) * p.alpha[..., None]
    alike(got, over_background(wanted, p.alpha), apart=0.01)


def test_size_and_selection_reach_the_picture(
    view: Any, screen: OffscreenScreen
) -> None:
    selection = Selection(opacity=(0.4, 1.0), marked=(7,))
    view.view.change(show="ellipsoids", scale=0.5, selection=selection)
    p = reference(paint="ellipsoids", scale=0.5, selection=selection)
    alike(view_pixels(view, screen), over_background(p.color, p.alpha))
    view.view.change(show="points", point_px=4.0)
    view.view.host.scale = 2.0  # diameters are in points of the screen
    p = reference(paint="points", point_px=8.0, selection=selection)
    alike(view_pixels(view, screen), over_background(p.color, p.alpha))


def test_colour_maps() -> None:
    for name in color_maps.NAMES:
        table = color_maps.table(name)
        assert np.array_equal(
            color_maps.colors(name, np.array([-1.0, 2.0])), table[[0, -1]]
        )
        assert (
            name == "turbo" or (np.diff(table @ [0.2126, 0.7152, 0.0722]) > 0).all()
        ), "from dark to bright"
