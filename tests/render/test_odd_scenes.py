"""Whatever numbers a scene holds, its picture is defined, what is left out is told, and no picture is endless work."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.odd_cases import SCENES, everywhere
from support.renderer_cases import Chance, camera, draw, looking_at_origin, psnr, random_scene, scene, software
from support.repetitions import one_at_a_time

from splatview.viewer_app.cameras import MODELS
from splatview.viewer_app.controls import Rect
from splatview.viewer_app.renderers import gl_quads, gl_tiles, tile_lists, work
from splatview.viewer_app.renderers.base import ALPHA_MIN, COLOR_MAX, PAINTS, LeftOut, RenderOptions
from splatview.viewer_app.renderers.gl import GlRenderer
from splatview.viewer_app.renderers.gl_quads import footprints
from splatview.viewer_app.renderers.reference import ReferenceRenderer
from splatview.viewer_app.renderers.tile_lists import Chunks
from splatview.viewer_app.views.gaussians import GaussianView

if TYPE_CHECKING:
    from collections.abc import Iterator

    import moderngl

VIEW = looking_at_origin(80, 60)


@pytest.fixture(scope="module", params=["quads", "tiles"])
def gl(request: pytest.FixtureRequest, ctx: moderngl.Context) -> Iterator[GlRenderer]:
    made = GlRenderer(ctx, compositor=request.param)
    yield made
    made.close()


@pytest.fixture(scope="module")
def reference() -> ReferenceRenderer:
    return ReferenceRenderer()


@pytest.mark.parametrize(("name", "model"), one_at_a_time([*SCENES], MODELS))
def test_every_odd_scene_has_the_reference_s_picture(gl: GlRenderer, reference: ReferenceRenderer, name: str,
                                                     model: Any) -> None:
    make, left_out = SCENES[name]
    odd, view = make(), replace(VIEW, model=model)
    expected, got = draw(reference, odd, view), draw(gl, odd, view)
    assert reference.left_out == gl.left_out == left_out and gl.skipped == left_out.total
    for p in (expected, got):
        assert p.depth is not None and np.isfinite(p.color).all() and np.isfinite(p.depth).all()
        assert p.color.max() <= COLOR_MAX and 0 <= p.alpha.min() and p.alpha.max() <= 1
    assert expected.alpha.any() or name == "everything behind"
    # A Gaussian whose alpha is the least that counts is drawn or not as the driver rounds.
    step = 0.0 if software(gl.ctx) else ALPHA_MIN
    difference = np.abs(got.alpha - expected.alpha)
    assert difference.max() < step + 2e-3 and (difference < 2e-3).mean() > 0.99
    assert psnr(np.minimum(got.color, 1), np.minimum(expected.color, 1)) > 50


@pytest.mark.parametrize("paint", PAINTS)
def test_odd_scenes_in_every_paint(gl: GlRenderer, paint: Any) -> None:
    for make, _ in SCENES.values():
        p = draw(gl, make(), VIEW, RenderOptions(paint=paint))
        assert np.isfinite(p.color).all() and np.isfinite(p.alpha).all()


def test_one_far_away_takes_nothing_from_the_others(gl: GlRenderer) -> None:
    good = random_scene(9, Chance(n=300))
    far = np.array(good.means)
    far[7] = 1e20
    there = replace(good, means=far)
    without = replace(good, opacities=np.where(np.arange(300) == 7, -100, good.opacities).astype(np.float32))
    assert psnr(draw(gl, there, VIEW).color, draw(gl, without, VIEW).color) > 90


def test_reasons_are_told_in_words() -> None:
    assert LeftOut(10, 0, 2).words(3000) == "12 of 3,000 left out: 10 not finite, 2 zero quaternions"
    assert LeftOut(0, 1, 1).words(2) == "2 of 2 left out: 1 too large, 1 zero quaternion"
    assert LeftOut().words(3000) == ""


@pytest.mark.parametrize("name", SCENES)
def test_the_panel_tells_what_is_left_out(ctx: moderngl.Context, name: str) -> None:
    make, left_out = SCENES[name]
    framebuffer, view, odd = ctx.simple_framebuffer((64, 48)), GaussianView(ctx), make()
    view.update(odd)
    view.draw(framebuffer, Rect(0, 0, 64, 48))
    assert (left_out.words(len(odd)) in view.details) is bool(left_out.total)
    assert not any("left out" in line for line in view.details) or left_out.total
    view.close()
    framebuffer.release()


# -- the bound on work ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("paint", PAINTS)
def test_lists_end_when_the_work_is_spent(ctx: moderngl.Context, monkeypatch: pytest.MonkeyPatch, paint: Any) -> None:
    made: list[Chunks] = []

    def chunks(boxes: np.ndarray, grid: tuple[int, int]) -> Chunks:
        made.append(Chunks(boxes, grid, 5000))
        return made[-1]

    monkeypatch.setattr(gl_tiles, "Chunks", chunks)
    monkeypatch.setattr(tile_lists, "BUDGET", 1000)
    renderer = GlRenderer(ctx, compositor="tiles")
    tiles = 10 * 8
    many = everywhere(2000)
    p = draw(renderer, many, camera(80, 64), RenderOptions(paint=paint, point_px=1000.0))
    assert made[-1].listed <= 5000 + tiles and np.isfinite(p.color).all()
    if paint == "points":  # whose edges are opaque: tiles are finished before the work is spent
        assert p.alpha.any()
    else:
        assert renderer.thinned.startswith("only the nearest are shown: all would take 3")
        assert p.alpha.min() > 0 or paint == "ellipsoids"  # the camera is inside of these
    draw(renderer, everywhere(20), camera(80, 64), RenderOptions(paint=paint))
    assert renderer.thinned == "" and made[-1].lacking == 0
    renderer.close()


def test_what_is_shown_is_the_nearest(ctx: moderngl.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    many, view = everywhere(500), camera(80, 64)
    nearest = replace(many, **{n: getattr(many, n)[:62] for n in ("means", "quats", "scales", "opacities", "sh0",
                                                                   "shN")})
    monkeypatch.setattr(gl_tiles, "Chunks", lambda boxes, grid: Chunks(boxes, grid, 62 * 80))
    for name in ("PIXELS_MAX", "SOFTWARE_PIXELS_MAX"):
        monkeypatch.setattr(gl_quads, name, 62 * 80 * 64)
    expected = draw(ReferenceRenderer(), nearest, view)
    for compositor in ("quads", "tiles"):
        renderer = GlRenderer(ctx, compositor=compositor)  # type: ignore[arg-type]
        got = draw(renderer, many, view)
        assert renderer.thinned and psnr(got.color, expected.color) > 55, compositor
        renderer.close()


@pytest.mark.parametrize("paint", PAINTS)
@pytest.mark.parametrize("model", MODELS)
def test_pixels_to_be_filled_are_never_counted_too_few(ctx: moderngl.Context, monkeypatch: pytest.MonkeyPatch,
                                                       paint: Any, model: Any) -> None:
    """The quick count, by which nothing is asked of the GPU, is no less than the exact one."""
    told: list[tuple[float, float]] = []
    renderer = GlRenderer(ctx, compositor="quads")
    compositor = renderer._compositor
    assert isinstance(compositor, gl_quads.QuadCompositor)
    exact = compositor._affordable

    def counted(visible: int, size: tuple[int, int]) -> int:
        monkeypatch.setattr(gl_quads, "footprints", lambda *a: told.append((0, footprints(*a).sum())) or footprints(*a))
        return exact(visible, size)

    monkeypatch.setattr(compositor, "_affordable", counted)
    options = RenderOptions(paint=paint, scale=2.0)
    for chance in (Chance(n=300), Chance(n=300, log_scale=(-1.0, 1.5)), Chance(n=300, spread=3.0)):
        renderer.load(random_scene(2, chance))
        compositor.most_pixels = -1 if chance else 0  # always ask
        view = replace(looking_at_origin(120, 90), model=model)
        renderer.render(view, options)
        z = renderer._means @ view.viewmat[2, :3].astype(np.float32) + np.float32(
            view.viewmat[2, :3] @ renderer._origin + view.viewmat[2, 3])
        quick = renderer._pixels_at_most(z, (z >= view.near) & (z <= view.far), view, options)
        assert quick >= told[-1][1] * 0.999 > 0
        monkeypatch.setattr(gl_quads, "footprints", footprints)
    renderer.close()


def test_filled_pixels_are_bounded(ctx: moderngl.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIXELS_MAX", "SOFTWARE_PIXELS_MAX"):
        monkeypatch.setattr(gl_quads, name, 100 * 80 * 64)
    drawn: list[int] = []
    renderer = GlRenderer(ctx, compositor="quads")
    compositor = renderer._compositor
    assert isinstance(compositor, gl_quads.QuadCompositor)
    blend = compositor._blend
    monkeypatch.setattr(compositor, "_blend", lambda target, visible, *d: drawn.append(visible) or blend(
        target, visible, *d))
    p = draw(renderer, everywhere(3000), camera(80, 64))
    assert drawn == [100] and p.alpha.min() > 0
    assert renderer.thinned == "only the nearest are shown: all would take 30 times as long"
    draw(renderer, random_scene(1, Chance(n=300)), VIEW)
    assert drawn[-1] > 200 and renderer.thinned == ""
    renderer.close()


@pytest.mark.exhaustive  # the same bounds as above, lower there
def test_a_million_over_the_whole_picture_are_said_and_shown(ctx: moderngl.Context,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds as they are: 1.4e10 pairs of a Gaussian and a tile are wanted, and a picture comes all the same."""
    made: list[Chunks] = []
    monkeypatch.setattr(gl_tiles, "Chunks", lambda *args: made.append(Chunks(*args)) or made[-1])
    framebuffer, view = ctx.simple_framebuffer((1280, 720)), GaussianView(ctx)
    n = 1_000_000
    g = np.random.default_rng(0)
    turned = np.array([np.cos(0.4), 0, 0, np.sin(0.4)], np.float32)
    quats = np.tile(turned, (n, 1))  # needles across: boxes that hide nothing
    means = np.column_stack([g.uniform(-1, 1, (n, 2)), np.full(n, 3.0)]).astype(np.float32)
    needles = replace(scene(means, opacities=0.9, rgb=(0.2, 0.6, 0.9)), quats=quats,
                      scales=np.tile(np.array([100.0, 1e-4, 1e-4], np.float32), (n, 1)))
    view.update(needles)
    view.use_camera(camera(1280, 720, focal=900.0))
    view.draw(framebuffer, Rect(0, 0, 1280, 720))
    (told,) = [line for line in view.details if line.startswith("only the nearest")]
    times = float(told.split("take ")[1].split()[0].replace(",", ""))
    assert times > 10 and np.frombuffer(framebuffer.read(), np.uint8).any()
    (chunks,) = made
    assert chunks.lacking > 1e9 and chunks.listed <= work.LISTED_MAX + 160 * 90
    view.close()
    framebuffer.release()
