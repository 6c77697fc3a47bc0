"""One conformance suite over every renderer."""

from __future__ import annotations

import ast
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.renderer_cases import (
    CLASSIC,
    MAKERS,
    MARKED,
    Chance,
    camera,
    draw,
    looking_at_origin,
    psnr,
    random_scene,
    scene,
)

import splatview.viewer_app.renderers
from splatview.viewer_app.cameras import MODELS
from splatview.viewer_app.errors import RendererError
from splatview.viewer_app.renderers.base import ALPHA_MIN, EPS_2D, LeftOut, RenderOptions
from splatview.viewer_app.scene import SH_C0

if TYPE_CHECKING:
    from collections.abc import Iterator

    import moderngl

    from splatview.viewer_app.renderers.base import Renderer

CENTER = 24, 32  # row and column of the pixel that `camera()` looks along


@pytest.fixture(params=MARKED)
def renderer(request: pytest.FixtureRequest, ctx: moderngl.Context) -> Iterator[Renderer]:
    made = MAKERS[request.param](ctx)
    yield made
    made.close()


def test_every_renderer_is_in_the_list() -> None:
    found = set()
    for path in Path(splatview.viewer_app.renderers.__file__).parent.glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.ClassDef):
                continue
            if not any(isinstance(f, ast.FunctionDef) and f.name == "render" for f in node.body):
                continue
            for statement in node.body:
                if (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
                        and statement.target.id == "name" and isinstance(statement.value, ast.Constant)):
                    found.add(statement.value.value)
    assert found == {name.partition("-")[0] for name in MAKERS}


def test_name(renderer: Renderer, request: pytest.FixtureRequest) -> None:
    assert renderer.name == request.node.callspec.params["renderer"].partition("-")[0]


def test_empty_before_the_first_load(renderer: Renderer) -> None:
    p = renderer.render(camera(), CLASSIC).pixels()
    assert not p.color.any() and not p.alpha.any() and p.depth is not None and not p.depth.any()


@pytest.mark.parametrize("depth", [True, False])
def test_shapes_and_types(renderer: Renderer, depth: bool) -> None:
    p = draw(renderer, scene((0, 0, 2)), camera(70, 41), RenderOptions(depth=depth))
    assert p.color.shape == (41, 70, 3) and p.color.dtype == np.float32 and p.color.flags.c_contiguous
    assert p.alpha.shape == (41, 70) and p.alpha.dtype == np.float32 and p.alpha.flags.c_contiguous
    if depth:
        assert p.depth is not None and p.depth.shape == (41, 70) and p.depth.dtype == np.float32
    else:
        assert p.depth is None


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("mode", ["classic", "antialiased"])
def test_one_gaussian_by_hand(renderer: Renderer, request: pytest.FixtureRequest, model, mode) -> None:
    rgb, opacity, z, s, focal = np.array([0.9, 0.4, 0.1]), 0.8, 2.0, 0.06, 50.0
    p = draw(renderer, scene((0, 0, z), rgb, s, opacity), camera(focal=focal, model=model), RenderOptions(mode))
    sharp = (focal * s / (1.0 if model == "ortho" else z)) ** 2  # on the axis a fisheye lens is a pinhole
    variance = sharp + EPS_2D
    if mode == "antialiased":
        opacity *= sharp / variance  # sqrt of the ratio of determinants, both axes alike
    # GLSL's exp is good to about 1e-5 here. A GPU also snaps a quad's corners to 1/256 of a pixel, which moves alpha by
    # up to 4e-4 (on an H200): a tenth of one step of 8 bits.
    name = request.node.callspec.params["renderer"]
    tolerance = {"gl-quads": 1e-3, "gsplat": 1e-4, "gsplat-plain": 1e-4}.get(name, 2e-5)  # gsplat uses fast arithmetic
    for dy, dx in [(0, 0), (1, 0), (0, -2), (2, 1)]:
        alpha = opacity * np.exp(-0.5 * (dx * dx + dy * dy) / variance)
        at = CENTER[0] + dy, CENTER[1] + dx
        assert p.alpha[at] == pytest.approx(alpha, abs=tolerance)
        assert p.color[at] == pytest.approx(rgb * alpha, abs=tolerance)
        assert p.depth is not None and p.depth[at] == pytest.approx(z * alpha, abs=2 * tolerance)


def test_footprint_ends_where_alpha_is_below_one_in_255(renderer: Renderer) -> None:
    opacity, s = 0.7, 0.2
    p = draw(renderer, scene((0, 0, 2), scales=s, opacities=opacity))
    y, x = np.mgrid[:48, :64]
    square = (y - CENTER[0]) ** 2 + (x - CENTER[1]) ** 2
    alpha = opacity * np.exp(-0.5 * square / ((50 * s / 2) ** 2 + EPS_2D))
    assert np.abs(alpha / ALPHA_MIN - 1).min() > 1e-3, "no pixel may lie on the edge, or the test is a coin toss"
    assert np.array_equal(p.alpha > 0, alpha >= ALPHA_MIN)


def test_alpha_is_clamped(renderer: Renderer) -> None:
    p = draw(renderer, scene((0, 0, 2), opacities=1.0))
    assert p.alpha[CENTER] == pytest.approx(0.999, abs=1e-6)


def test_top_row_first_and_left_column_first(renderer: Renderer) -> None:
    # x is right and y is down in camera space: red to the right, green below, blue left and above.
    p = draw(renderer, scene([(0.4, 0, 2), (0, 0.3, 2), (-0.4, -0.3, 2)], np.eye(3), 0.01, 0.9))
    at = {(CENTER[0], CENTER[1] + 10): 0, (CENTER[0] + 7, CENTER[1]): 1}
    at[CENTER[0] - 8, CENTER[1] - 10] = 2
    assert p.color[CENTER[0], CENTER[1] + 10].argmax() == 0 and p.color[CENTER[0], CENTER[1] + 10, 0] > 0.5
    for (row, column), channel in at.items():
        assert p.color[row, column].argmax() == channel and p.color[row, column, channel] > 0.2
    assert p.alpha[:8].max() == 0 and p.alpha[:, :15].max() == 0


def test_rotation_turns_x_towards_y(renderer: Renderer) -> None:
    half = np.radians(30) / 2
    quat = np.array([[np.cos(half), 0, 0, np.sin(half)]], np.float32)
    p = draw(renderer, scene((0, 0, 2), scales=(0.3, 0.02, 0.02), quats=quat))
    along = CENTER[0] + round(10 * np.sin(2 * half)), CENTER[1] + round(10 * np.cos(2 * half))
    mirrored = CENTER[0] - round(10 * np.sin(2 * half)), along[1]
    assert p.alpha[along] > 0.1 and p.alpha[mirrored] == 0


def test_quaternions_need_no_normalisation(renderer: Renderer) -> None:
    quat = np.array([[0.9, 0.1, -0.3, 0.2]], np.float32)
    a = draw(renderer, scene((0, 0, 2), scales=(0.3, 0.1, 0.02), quats=quat))
    for factor in (37.0, -1.0, 1e-20):  # the square of the last is 0 in float32
        b = draw(renderer, scene((0, 0, 2), scales=(0.3, 0.1, 0.02), quats=quat * np.float32(factor)))
        assert psnr(a.color, b.color) > 100


def test_nearer_ones_cover_farther_ones(renderer: Renderer) -> None:
    means, rgb = [(0, 0, 3), (0, 0, 2), (0, 0, 4)], np.eye(3)
    p = draw(renderer, scene(means, rgb, 0.5, [0.5, 0.6, 0.7]))
    expected = [0.4 * 0.5, 0.6, 0.4 * 0.5 * 0.7]
    assert p.color[CENTER] == pytest.approx(expected, abs=1e-5)
    assert p.alpha[CENTER] == pytest.approx(1 - 0.4 * 0.5 * 0.3, abs=1e-5)
    assert p.depth is not None and p.depth[CENTER] == pytest.approx(np.dot(expected, [3, 2, 4]), abs=3e-5)


def test_order_is_by_camera_z_not_by_distance(renderer: Renderer) -> None:
    # The red one is farther away but has the smaller z.
    p = draw(renderer, scene([(1.0, 0, 2.0), (0.0, 0, 2.1)], [(1, 0, 0), (0, 1, 0)], 2.0, 0.9))
    assert p.color[CENTER[0], CENTER[1] + 12].argmax() == 0


def test_of_two_at_one_depth_the_first_is_nearer(renderer: Renderer) -> None:
    p = draw(renderer, scene([(0, 0, 2), (0, 0, 2)], [(1, 0, 0), (0, 1, 0)], 0.2, 0.9))
    assert p.color[CENTER][0] > 5 * p.color[CENTER][1]


@pytest.mark.parametrize(("z", "seen"), [(-2.0, False), (0.0, False), (0.4, False), (0.6, True), (8.0, True),
                                         (11.0, False)])
@pytest.mark.parametrize("model", MODELS)
def test_near_and_far(renderer: Renderer, model, z: float, seen: bool) -> None:
    p = draw(renderer, scene((0, 0, z), scales=0.5), camera(model=model, near=0.5, far=10.0))
    assert bool(p.alpha.max() > 0) is seen


def test_fisheye_places_by_angle(renderer: Renderer) -> None:
    # 70 degrees to the right and 20 down of the line of sight, where a pinhole's picture would be six times as wide.
    for towards, angle in [((1.0, 0.0), 70), ((0.0, 1.0), 20), ((-0.6, -0.8), 45)]:
        a, lens = np.radians(angle), camera(160, 120, 60.0, model="fisheye")
        at = np.array([*(np.sin(a) * np.array(towards)), np.cos(a)]) * 3
        p = draw(renderer, scene(at, scales=0.01, opacities=0.9), lens)
        y, x = np.mgrid[:120, :160]
        center = np.array([(p.alpha * (x + 0.5)).sum(), (p.alpha * (y + 0.5)).sum()]) / p.alpha.sum()
        assert center == pytest.approx(lens.K[:2, 2] + 60 * a * np.array(towards), abs=0.05)


def test_fisheye_draws_a_ball_as_the_angles_it_covers(renderer: Renderer) -> None:
    # Along the radius a sphere spans s / distance radians; across it is stretched by angle / sin(angle).
    a, s, distance, focal = np.radians(60), 0.1, 2.0, 100.0
    lens = camera(400, 300, focal, model="fisheye")
    p = draw(renderer, scene((np.sin(a) * distance, 0, np.cos(a) * distance), scales=s, opacities=0.6), lens)
    y, x = np.mgrid[:300, :400]
    dx, dy = x + 0.5 - lens.K[0, 2] - focal * a, y + 0.5 - lens.K[1, 2]
    along, across = (focal * s / distance) ** 2 + EPS_2D, (focal * s / distance * a / np.sin(a)) ** 2 + EPS_2D
    expected = 0.6 * np.exp(-0.5 * (dx * dx / along + dy * dy / across))
    inside = expected > 2 * ALPHA_MIN
    assert np.abs(p.alpha - expected)[inside].max() < 1e-3


def test_a_gaussian_with_its_centre_outside_the_picture_reaches_in(renderer: Renderer) -> None:
    p = draw(renderer, scene((-1.4, 0, 2), scales=0.2, opacities=0.9))  # 3 pixels left of the picture
    assert p.alpha[CENTER[0], 0] > 0.3 and p.alpha[CENTER[0], 30] == 0


def test_spherical_harmonics_by_hand(renderer: Renderer) -> None:
    shN = np.zeros((1, 15, 3), np.float32)
    shN[0, 1] = 0.2, -3.0, 4.0  # the coefficient of z, and the camera looks along +z
    shN[0, 5] = 0.1, 0.0, 0.0   # of 3 z^2 - 1
    shN[0, 11] = 0.3, 0.0, 0.0  # of z (5 z^2 - 3)
    gaussian = scene((0, 0, 2), (0.5, 0.5, 0.5), opacities=0.5, shN=shN, sh_degree=3)
    z1, z2, z3 = 0.4886025119, 2 * 0.3153915653, 2 * 0.3731763326
    red = 0.5 + np.array([0, 0.2 * z1, 0.2 * z1 + 0.1 * z2, 0.2 * z1 + 0.1 * z2 + 0.3 * z3])
    for degree in range(4):
        c = draw(renderer, gaussian, options=RenderOptions(sh_degree=degree)).color[CENTER] / 0.5
        blue = 0.5 + 4 * z1 if degree else 0.5
        green = 0.0 if degree else 0.5  # negative light is cut off; above 1 it stays
        assert c == pytest.approx([red[degree], green, blue], abs=1e-5)


def test_sh_degree_of_the_scene_and_what_it_stores_are_limits(renderer: Renderer) -> None:
    base = random_scene(3, Chance(n=200))
    view = looking_at_origin(80, 60)
    by_degree = [draw(renderer, base, view, RenderOptions(sh_degree=d)).color for d in range(4)]
    assert all(psnr(by_degree[d], by_degree[d + 1]) < 45 for d in range(3)), "every degree shows"
    trained_to_1 = replace(base, sh_degree=1)
    for asked, used in [(None, 1), (0, 0), (3, 1)]:
        assert psnr(draw(renderer, trained_to_1, view, RenderOptions(sh_degree=asked)).color, by_degree[used]) > 100
    stores_2 = replace(base, shN=base.shN[:, :8], sh_degree=3)
    assert psnr(draw(renderer, stores_2, view).color, by_degree[2]) > 100


def test_activation(renderer: Renderer) -> None:
    raw = random_scene(5, Chance(n=100))
    sigmoid = 1 / (1 + np.exp(-raw.opacities))
    done = replace(raw, scales=np.exp(raw.scales), opacities=sigmoid, activated=True)
    view = looking_at_origin(80, 60)
    assert psnr(draw(renderer, raw, view).color, draw(renderer, done, view).color) > 90


BAD = {
    "means": np.nan, "quats": np.inf, "scales": np.nan, "opacities": -np.inf, "sh0": np.nan, "shN": np.inf,
}


@pytest.mark.parametrize("field", sorted(BAD))
def test_bad_numbers_are_left_out_and_counted(renderer: Renderer, field: str) -> None:
    good = random_scene(7, Chance(n=60))
    view = looking_at_origin(80, 60)
    bad = np.array([3, 20, 59])
    spoilt = getattr(good, field).copy()
    spoilt.reshape(60, -1)[bad, -1] = BAD[field]
    p = draw(renderer, replace(good, **{field: spoilt}), view)
    assert renderer.skipped == 3
    rest = {f.name: np.delete(getattr(good, f.name), bad, axis=0) for f in fields(good)
            if isinstance(getattr(good, f.name), np.ndarray)}
    expected = draw(renderer, replace(good, **rest), view)
    assert renderer.skipped == 0
    assert np.array_equal(p.color, expected.color) and np.array_equal(p.alpha, expected.alpha)


def test_zero_quaternions_and_scales_beyond_float_are_left_out(renderer: Renderer) -> None:
    s = random_scene(8, Chance(n=10))
    quats, scales = np.array(s.quats), np.array(s.scales)
    quats[2] = 0
    scales[5, 1] = 100.0  # exp(100) is no float32
    p = draw(renderer, replace(s, quats=quats, scales=scales), looking_at_origin(80, 60))
    assert renderer.left_out == LeftOut(too_large=1, no_rotation=1) and renderer.skipped == 2
    assert np.isfinite(p.color).all()


def test_nothing_but_bad_numbers(renderer: Renderer) -> None:
    p = draw(renderer, scene(np.full((5, 3), np.nan)))
    assert renderer.skipped == 5 and not p.alpha.any()


def test_no_gaussians(renderer: Renderer) -> None:
    draw(renderer, scene((0, 0, 2)))
    p = draw(renderer, scene(np.empty((0, 3))))
    assert renderer.skipped == 0 and not p.alpha.any() and not p.color.any()


def test_extremes_stay_finite(renderer: Renderer) -> None:
    log_scales = np.array([10, 10, 69, 30, -40, -100, -2, -2, -2], np.float32)[:, None].repeat(3, axis=1)
    log_scales[1] = 10, -8, -8  # a needle
    n = len(log_scales)
    logits = np.array([0, 0, 0, 0, 0, 0, 100, -100, 0], np.float32)
    means = np.tile(np.array([[0, 0, 2]], np.float32), (n, 1))
    means[-1, 2] = 0.0100001  # just beyond the near plane
    extreme = replace(scene(means), scales=log_scales, opacities=logits, activated=False)
    for options in (CLASSIC, RenderOptions("antialiased")):
        p = draw(renderer, extreme, options=options)
        assert renderer.left_out == LeftOut(too_large=2)
        assert np.isfinite(p.color).all() and np.isfinite(p.alpha).all() and p.alpha.max() <= 1
        assert p.alpha[0, 0] == pytest.approx(p.alpha[-1, -1], abs=1e-3) and p.alpha[0, 0] >= 0.5  # the huge ball


def test_far_from_the_origin(renderer: Renderer) -> None:
    s = random_scene(9, Chance(n=400))
    means = np.round(s.means * 8) / 8  # floats near 2^20 step by 1/8
    offset = np.array([2.0 ** 20, -(2.0 ** 20), 2.0 ** 19])
    view = looking_at_origin()
    moved = view.viewmat.copy()
    moved[:3, 3] -= moved[:3, :3] @ offset
    near = draw(renderer, replace(s, means=means), view)
    far = draw(renderer, replace(s, means=(means + offset).astype(np.float32)), replace(view, viewmat=moved))
    assert psnr(near.color, far.color) > 70


def test_strided_and_read_only_arrays(renderer: Renderer) -> None:
    s = random_scene(11, Chance(n=300))
    view = looking_at_origin(80, 60)
    expected = draw(renderer, s, view)
    wide = np.concatenate([s.sh0[:, None], s.shN], axis=1)  # as trainers that hold all coefficients in one array
    wide.setflags(write=False)
    means = np.asfortranarray(s.means)
    quats = np.repeat(s.quats, 2, axis=0)[::2]
    p = draw(renderer, replace(s, means=means, quats=quats, sh0=wide[:, 0], shN=wide[:, 1:]), view)
    assert np.array_equal(p.color, expected.color)


def test_the_arrays_may_change_after_load(renderer: Renderer) -> None:
    s = random_scene(12, Chance(n=300))
    view = looking_at_origin(80, 60)
    before = draw(renderer, s, view)
    for f in fields(s):
        if isinstance(array := getattr(s, f.name), np.ndarray):
            array[...] = np.nan
    after = renderer.render(view.resized(81, 60), CLASSIC).pixels()
    again = renderer.render(view, CLASSIC).pixels()
    assert after.alpha.any() and np.array_equal(before.color, again.color)


def test_load_again(renderer: Renderer) -> None:
    view = looking_at_origin(80, 60)
    small, large = random_scene(13, Chance(n=50, sh_degree=1)), random_scene(14, Chance(n=5000, sh_degree=2))
    first = draw(renderer, small, view)
    second = draw(renderer, large, view)
    assert psnr(first.color, second.color) < 30
    assert np.array_equal(draw(renderer, small, view).color, first.color)
    assert np.array_equal(draw(renderer, large, view).color, second.color)


def test_resize_and_options_back_and_forth(renderer: Renderer) -> None:
    renderer.load(random_scene(15, Chance(n=300)))
    view = looking_at_origin(80, 60)
    first = renderer.render(view, CLASSIC).pixels()
    other = [renderer.render(view.resized(120, 60), CLASSIC).pixels(),
             renderer.render(view, RenderOptions("antialiased")).pixels(),
             renderer.render(view, RenderOptions(depth=False)).pixels(),
             renderer.render(replace(view, near=4.0), CLASSIC).pixels()]
    assert other[0].color.shape == (60, 120, 3)
    assert not np.array_equal(other[1].color, first.color)
    assert np.array_equal(other[2].color, first.color) and other[2].depth is None
    assert not np.array_equal(other[3].color, first.color)
    last = renderer.render(view, CLASSIC).pixels()
    assert np.array_equal(last.color, first.color) and last.depth is not None
    assert first.depth is not None and np.array_equal(last.depth, first.depth)


@pytest.mark.parametrize("size", [(0, 10), (10, -1)])
def test_impossible_sizes(renderer: Renderer, size: tuple[int, int]) -> None:
    with pytest.raises(RendererError, match=f"{size[0]}x{size[1]}"):
        renderer.render(replace(camera(), width=size[0], height=size[1]), CLASSIC)


def test_close(renderer: Renderer) -> None:
    draw(renderer, scene((0, 0, 2)))
    renderer.close()
    renderer.close()
    with pytest.raises(RendererError, match="closed"):
        renderer.render(camera(), CLASSIC)
    with pytest.raises(RendererError, match="closed"):
        renderer.load(scene((0, 0, 2)))


def test_sh0_is_the_colour(renderer: Renderer) -> None:
    gaussian = replace(scene((0, 0, 2), opacities=0.5), sh0=np.array([[1.0, 0.0, -1.0]], np.float32))
    expected = 0.5 * (0.5 + SH_C0 * np.array([1, 0, -1]))
    assert draw(renderer, gaussian).color[CENTER] == pytest.approx(expected, abs=1e-6)


def test_the_scene_can_be_had_activated_and_whole(renderer: Renderer) -> None:
    assert len(renderer.scene()) == 0
    raw = random_scene(16, Chance(n=300))
    raw.quats[3], raw.means[7, 1] = 0, np.nan
    renderer.load(raw)
    given = renderer.scene()
    assert given.activated and len(given) == 300 and given.sh_degree == 3
    got = given.to_host()
    assert not got.opacities[[3, 7]].any()
    good = np.setdiff1d(np.arange(300), [3, 7])
    expected = {"means": raw.means, "scales": np.exp(raw.scales), "opacities": 1 / (1 + np.exp(-raw.opacities)),
                "sh0": raw.sh0, "shN": raw.shN}
    for name, values in expected.items():
        np.testing.assert_allclose(getattr(got, name)[good], values[good], rtol=1e-4, atol=1e-5, err_msg=name)
    unit, wanted = (q[good] / np.linalg.norm(q[good], axis=1, keepdims=True) for q in (got.quats, raw.quats))
    np.testing.assert_allclose(unit, wanted, atol=1e-6)
    before = renderer.render(looking_at_origin(80, 60), CLASSIC).pixels()
    again = draw(renderer, got, looking_at_origin(80, 60))
    assert psnr(before.color, again.color) > 70
    renderer.load(random_scene(17, Chance(n=20, sh_degree=1)))
    assert len(renderer.scene()) == 20 and renderer.scene().shN.shape[1] == 3
