"""Every renderer passes one conformance suite."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import moderngl
import numpy as np
import pytest
import torch
from support.leaks import living_pixels
from support.renderer_cases import (
    CENTER,
    CLASSIC,
    Chance,
    camera,
    draw,
    looking_at_origin,
    pick,
    psnr,
    random_scene,
    read_source,
    scene,
)

from splatview_viewer.core.errors import RendererError
from splatview_viewer.geometry.cameras import MODELS
from splatview_viewer.render.base import EPS_2D, Renderer, RenderOptions
from splatview_viewer.scene import Box, Selection
from splatview_viewer.scene.scene import FIELDS


@pytest.mark.parametrize(
    ("model", "mode"),
    [("pinhole", "classic"), ("ortho", "antialiased"), ("fisheye", "classic")],
)
def test_one_gaussian_has_the_computed_pixels(
    renderer: Renderer, request: pytest.FixtureRequest, model, mode
) -> None:
    rgb = np.array([0.9, 0.4, 0.1])
    opacity = 0.8
    z = 2.0
    s = 0.06
    focal = 50.0
    gaussian = scene((0, 0, z), rgb, s, opacity)
    view = camera(focal=focal, model=model)
    p = draw(renderer, gaussian, view, RenderOptions(mode))
    # On its axis a fisheye lens is a pinhole.
    distance = 1.0 if model == "ortho" else z
    sharp = (focal * s / distance) ** 2
    variance = sharp + EPS_2D
    if mode == "antialiased":
        # This is the square root of the ratio of determinants; both axes are alike.
        opacity *= sharp / variance
    # GLSL's exp is good to about 1e-5 here. A GPU also snaps a quad's corners to 1/256
    # of a pixel, which moves alpha by up to 4e-4 (on an H200): a tenth of one step of 8
    # bits. gsplat uses fast arithmetic, and drafts are packed in halves.
    name = request.node.callspec.params["renderer"]
    tolerances = {"gl-quads": 1e-3, "gsplat": 1e-4, "gsplat-drafts": 1e-3}
    tolerance = tolerances.get(name, 2e-5)
    for dy, dx in [(0, 0), (1, 0), (0, -2), (2, 1)]:
        alpha = opacity * np.exp(-0.5 * (dx * dx + dy * dy) / variance)
        pixel = CENTER[0] + dy, CENTER[1] + dx
        assert p.alpha[pixel] == pytest.approx(alpha, abs=tolerance)
        assert p.color[pixel] == pytest.approx(rgb * alpha, abs=tolerance)
        assert p.depth is not None
        assert p.depth[pixel] == pytest.approx(z * alpha, abs=2 * tolerance)


def test_pixels_start_at_the_top_left(renderer: Renderer) -> None:
    # x is right and y is down in camera space: red is to the right, green below, blue
    # left and above.
    p = draw(
        renderer,
        scene([(0.4, 0, 2), (0, 0.3, 2), (-0.4, -0.3, 2)], np.eye(3), 0.01, 0.9),
    )
    assert p.color[CENTER[0], CENTER[1] + 10, 0] > 0.5
    for row, column, channel in ((0, 10, 0), (7, 0, 1), (-8, -10, 2)):
        row = CENTER[0] + row
        column = CENTER[1] + column
        assert p.color[row, column].argmax() == channel
        assert p.color[row, column, channel] > 0.2
    assert p.alpha[:8].max() == 0
    assert p.alpha[:, :15].max() == 0


def test_gaussians_between_near_and_far_are_drawn(renderer: Renderer) -> None:
    for model in MODELS:
        view = camera(model=model, near=0.5, far=10.0)
        for z in (-2.0, 0.0, 0.4, 0.6, 8.0, 11.0):
            p = draw(renderer, scene((0, 0, z), scales=0.5), view)
            assert p.alpha.any() == (z in (0.6, 8.0)), (model, z)


def test_sh_degree_is_limited_by_the_scene_and_its_coefficients(
    renderer: Renderer,
) -> None:
    base = random_scene(3, Chance(n=200, sh_degree=4))
    view = looking_at_origin(80, 60)
    by_degree = [
        draw(renderer, base, view, RenderOptions(sh_degree=d)).color for d in range(5)
    ]
    for lower, higher in pairwise(by_degree):
        assert psnr(lower, higher) < 45, "every degree shows"
    trained_to_1 = replace(base, sh_degree=1)
    for requested, used in [(None, 1), (0, 0), (3, 1)]:
        p = draw(renderer, trained_to_1, view, RenderOptions(sh_degree=requested))
        assert psnr(p.color, by_degree[used]) > 100
    stores_2 = replace(base, shN=base.shN[:, :8], sh_degree=3)
    assert psnr(draw(renderer, stores_2, view).color, by_degree[2]) > 100


def test_empty_scenes_are_drawn_empty(renderer: Renderer) -> None:
    assert not renderer.render(camera(), CLASSIC).pixels().alpha.any(), (
        "before the first load"
    )
    draw(renderer, scene((0, 0, 2)))
    p = draw(renderer, scene(np.empty((0, 3))))
    assert renderer.left_out.total == 0
    assert not p.alpha.any()
    assert not p.color.any()


def test_georeferenced_positions_keep_their_detail(renderer: Renderer) -> None:
    s = random_scene(9, Chance(n=400))
    view = looking_at_origin()
    offset = np.array([4.21e6 + 0.3, -1.7e5, 4.78e6])
    rotation = view.viewmat[:3, :3]
    translation = view.viewmat[:3, 3]
    moved = replace(
        view,
        viewmat=np.block(
            [[rotation, (translation - rotation @ offset)[:, None]], [view.viewmat[3]]]
        ),
    )
    box = Box(half=(0.5, 2.0, 2.0))
    moved_box = Box(tuple(offset.tolist()), (0.5, 2.0, 2.0))
    in_box = RenderOptions(selection=Selection(box=box))
    in_moved_box = RenderOptions(selection=Selection(box=moved_box))
    near = [draw(renderer, s, view), renderer.render(view, in_box).pixels()]
    hit = pick(renderer.scene().to_host(), view, 40, 30, CLASSIC)
    moved_scene = replace(s, means=s.means + torch.from_numpy(offset))
    far = [
        draw(renderer, moved_scene, moved),
        renderer.render(moved, in_moved_box).pixels(),
    ]
    for a, b in zip(near, far, strict=True):
        assert psnr(a.color, b.color) > 60
    host_scene = renderer.scene().to_host()
    picked = pick(renderer.scene(), moved, 40, 30, CLASSIC)
    np.testing.assert_allclose(host_scene.means.numpy() - offset, s.means, atol=2e-6)
    assert hit is not None
    assert picked is not None
    assert picked.index == hit.index
    np.testing.assert_allclose(picked.point - offset, hit.point, atol=1e-4)


def test_arrays_may_change_after_loading(renderer: Renderer) -> None:
    s = random_scene(12, Chance(n=300))
    view = looking_at_origin(80, 60)
    original = draw(renderer, s, view)
    for name in FIELDS:
        getattr(s, name).fill_(np.nan)
    resized = renderer.render(view.resized(81, 60), CLASSIC).pixels()
    redrawn = renderer.render(view, CLASSIC).pixels()
    assert resized.alpha.any()
    assert np.array_equal(original.color, redrawn.color)


def test_impossible_sizes_and_calls_after_close_are_refused(renderer: Renderer) -> None:
    for width, height in ((0, 10), (10, -1)):
        with pytest.raises(RendererError, match=f"{width}x{height}"):
            renderer.render(replace(camera(), width=width, height=height), CLASSIC)
    draw(renderer, scene((0, 0, 2)))
    renderer.close()
    renderer.close()
    with pytest.raises(RendererError, match="closed"):
        renderer.render(camera(), CLASSIC)
    with pytest.raises(RendererError, match="closed"):
        renderer.load(scene((0, 0, 2)))


def test_renderer_returns_its_activated_scene(renderer: Renderer) -> None:
    assert len(renderer.scene()) == 0
    raw = random_scene(16, Chance(n=300))
    raw.quats[3] = 0
    raw.means[7, 1] = np.nan
    renderer.load(raw)
    active = renderer.scene()
    assert active.activated
    assert len(active) == 300
    assert active.sh_degree == 3
    got = active.to_host()
    assert not got.opacities[[3, 7]].any()
    valid = np.setdiff1d(np.arange(300), [3, 7])
    expected = {
        "means": raw.means,
        "scales": raw.scales.exp(),
        "opacities": raw.opacities.sigmoid(),
        "sh0": raw.sh0,
        "shN": raw.shN,
    }
    for name, values in expected.items():
        np.testing.assert_allclose(
            getattr(got, name)[valid], values[valid], rtol=1e-4, atol=1e-5, err_msg=name
        )
    unit = torch.nn.functional.normalize(got.quats[valid], dim=1)
    expected_unit = torch.nn.functional.normalize(raw.quats[valid], dim=1)
    np.testing.assert_allclose(unit, expected_unit, atol=1e-6)
    original = renderer.render(looking_at_origin(80, 60), CLASSIC).pixels()
    redrawn = draw(renderer, got, looking_at_origin(80, 60))
    assert psnr(original.color, redrawn.color) > 70
    renderer.load(random_scene(17, Chance(n=20, sh_degree=1)))
    assert len(renderer.scene()) == 20
    assert renderer.scene().shN.shape[1] == 3


def test_source_agrees_with_the_pixels(
    renderer: Renderer, ctx: moderngl.Context
) -> None:
    renderer.load(random_scene(16, Chance(n=300)))
    # Buffers are released and allocated again at each size.
    for size in [(80, 60), (131, 47), (80, 60), (1, 1)]:
        picture = renderer.render(looking_at_origin(*size), CLASSIC)
        values = read_source(ctx, picture.source())
        p = picture.pixels()
        expected = np.dstack([p.color, p.alpha])
        # gsplat's pictures pass through float16, 11 bits.
        tolerance = 2**-11 * expected.max() if renderer.name == "gsplat" else 0
        assert np.abs(values - expected).max() <= tolerance
        assert np.array_equal(read_source(ctx, picture.source()), values)


def test_renderer_that_rests_draws_the_same_afterwards(
    renderer: Renderer, ctx: moderngl.Context
) -> None:
    """Buffers of a picture are freed while none is needed, and made for the next."""
    renderer.free_pictures()
    renderer.load(random_scene(16, Chance(n=300)))
    options = replace(CLASSIC, depth=True)
    view = looking_at_origin(400, 300)
    original = renderer.render(view, options)
    pixels = original.pixels()
    original_source = read_source(ctx, original.source())
    pixel_count = living_pixels()
    renderer.free_pictures()
    renderer.free_pictures()
    if renderer.name == "gl":
        assert living_pixels() <= pixel_count - 400 * 300
    redrawn = renderer.render(view, options)
    redrawn_pixels = redrawn.pixels()
    np.testing.assert_array_equal(redrawn_pixels.color, pixels.color)
    np.testing.assert_array_equal(redrawn_pixels.depth, pixels.depth)
    np.testing.assert_array_equal(read_source(ctx, redrawn.source()), original_source)
    renderer.close()
    renderer.free_pictures()
