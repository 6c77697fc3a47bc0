"""The page draws packed Gaussians as the viewer does, in WebGL2."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

import moderngl
import numpy as np
import pytest
from support.page_splats import PackedScene, PageSplats, packed
from support.renderer_cases import (
    Chance,
    gl,
    gsplat_picture,
    looking_at_origin,
    psnr,
    random_scene,
    real_scene,
)

from splatview_viewer.core.selection import EVERYTHING
from splatview_viewer.kinds.gaussians.picture import NumberPicture
from splatview_viewer.kinds.gaussians.state import paint_of
from splatview_viewer.render.base import RenderOptions
from splatview_viewer.render.paints import PAINTS
from splatview_viewer.scene import color_maps
from splatview_viewer.scene.scene import empty_scene
from splatview_viewer.splat_page.page_scripts import script_to_serve
from splatview_viewer.splat_page.page_splats import splat_scripts

if TYPE_CHECKING:
    from pathlib import Path

    from support.pages import Open, Viewer

    from splatview_viewer.geometry.cameras import CameraModel
    from splatview_viewer.kinds.gaussians.state import Show

MOST_BYTES = 40_000
"""Bytes that come to a browser for all that draws there."""
LIKENESS = {
    "color": 55,
    "normals": 45,
    "ellipsoids": 35,
    "rings": 44,
    "points": 48,
    "overdraw": 40,
}
"""Decibels to the viewer's picture. Chromium's software GPU has corners at sixteenths of a
pixel, Mesa's at 256ths, and edges show it."""


EMPTY = PackedScene(
    {"count": 0, "sh_stored": 0, "origin": [0, 0, 0]}, [], empty_scene()
)


@pytest.fixture
def splats(viewer: Viewer, open_page: Open) -> PageSplats:
    return PageSplats(open_page(viewer.url, expected="CONTEXT_LOST_WEBGL"))


def test_pictures_are_those_of_gsplat(splats: PageSplats, data_dir: Path) -> None:
    """Two of the references; tests/soak has all."""
    for name in ("playbot_0_aa", "playbot_0"):
        reference = gsplat_picture(data_dir, name)
        if not splats.run("splats.version"):
            splats.load(packed(real_scene(data_dir, reference.scene)))
        got = splats.draw(
            reference.camera, mode=reference.mode, sh_degree=reference.sh_degree
        )
        assert psnr(got[..., :3], reference.color) >= 60, name
        assert psnr(got[..., 3], reference.alpha) >= 60, name


@pytest.mark.soak
def test_paints_and_cameras_are_those_of_the_viewer(
    splats: PageSplats, ctx: moderngl.Context
) -> None:
    gaussians = random_scene(3, Chance(n=1500, sh_degree=3))
    # As deep as each other: the first one is the nearer.
    gaussians.means[750:] = gaussians.means[:750]
    scene = packed(gaussians)
    splats.load(scene)
    renderer = gl("quads", ctx)
    renderer.load(scene.unpacked)
    models: list[CameraModel] = ["pinhole", "ortho", "fisheye"]
    for index, paint in enumerate(PAINTS):
        camera = looking_at_origin(120, 90, model=models[index % 3])
        mode = ("classic", "antialiased")[index // 3]
        options = RenderOptions(mode, paint=paint, scale=0.9, point_px=5)
        expected = renderer.render(camera, options).pixels()
        got = splats.draw(
            camera, mode=mode, paint=paint, scale=0.9, point_reach=options.point_reach
        )
        assert expected.alpha.max() > 0.5
        peak = float(expected.color.max())
        # An edge may fall to either side of a pixel's centre.
        is_same = np.abs(got[..., 3] - expected.alpha) < 0.5
        assert is_same.mean() > 0.997
        likeness = psnr(got[is_same, :3], expected.color[is_same], peak)
        assert likeness >= LIKENESS[paint], (paint, likeness)
    renderer.close()


def test_canvas_shows_background_depth_and_selection(
    splats: PageSplats, ctx: moderngl.Context
) -> None:
    scene = packed(random_scene(1, Chance(n=1500, sh_degree=2)), "quick")
    splats.load(scene)
    camera = looking_at_origin()
    renderer = gl("quads", ctx)
    renderer.load(scene.unpacked)
    drawn = renderer.render(camera, RenderOptions()).pixels()
    assert drawn.depth is not None
    alpha = drawn.alpha[..., None]
    background = np.array([0.2, 0.4, 0.6])
    composed = (drawn.color + (1 - alpha) * background).clip(0, 1) * 255
    got = splats.draw_canvas(camera, background=background.tolist())
    assert psnr(got, composed, 255) >= 50
    depth = drawn.depth / np.maximum(drawn.alpha, 1e-6)
    colors = color_maps.colors("turbo", (depth - 2) / 4) * alpha * 255
    got = splats.draw_canvas(camera, paint="depth", range=[2, 6])
    assert psnr(got, colors, 255) >= 45
    # The range is measured as here, where none is given.
    splats.run("() => { splats.onranged = (range) => { window.range = range; }; }")
    shows: list[Show] = ["depth", "overdraw"]
    for show in shows:
        paint = paint_of(show)
        options = RenderOptions(depth=show == "depth", paint=paint)
        numbers = NumberPicture(ctx)
        numbers.source(renderer.render(camera, options), 0.0, PAINTS[paint])
        measured = splats.draw_canvas(camera, paint=show)
        page_range = splats.run("range")
        assert page_range["show"] == show
        low, high = numbers.range
        assert page_range["low"] == pytest.approx(low, rel=2e-3)
        assert page_range["high"] == pytest.approx(high, rel=2e-3)
        given = splats.draw_canvas(camera, paint=show, range=[low, high])
        assert psnr(measured, given, 255) >= 45
        numbers.close()
    got = splats.draw_canvas(camera, paint="alpha")
    assert psnr(got, np.repeat(alpha, 3, 2) * 255, 255) >= 50
    renderer.close()


def test_marked_gaussians_are_those_of_the_viewer(
    splats: PageSplats, ctx: moderngl.Context
) -> None:
    scene = packed(random_scene(1, Chance(n=1500, sh_degree=0)))
    splats.load(scene)
    camera = looking_at_origin()
    marked = tuple(range(3, 1500, 10))
    renderer = gl("quads", ctx)
    renderer.load(scene.unpacked)
    options = RenderOptions(selection=replace(EVERYTHING, marked=marked))
    expected = renderer.render(camera, options).pixels()
    renderer.close()
    unmarked = splats.draw(camera)
    assert psnr(unmarked[..., :3], expected.color) < 40
    # What stands out belongs to a version, and places that it does not have do not count.
    splats.run("([pass, marked]) => splats.mark(pass, marked)", [1, [*marked, 1 << 30]])
    splats.run("splats.mark(2, [5])")
    got = splats.draw(camera)
    assert psnr(got[..., :3], expected.color) >= 55
    splats.run("splats.mark(1, [])")
    np.testing.assert_array_equal(splats.draw(camera), unmarked)


def test_a_version_is_seen_when_it_is_whole(splats: PageSplats) -> None:
    """Also one that is smaller, empty or larger; parts may come better afterwards."""
    camera = looking_at_origin(120, 90)
    first = packed(random_scene(1, Chance(n=1500)))
    second = packed(random_scene(2, Chance(n=3000)))
    rough = packed(random_scene(2, Chance(n=3000)), "quick")
    splats.load(first)
    first_picture = splats.draw(camera)
    assert splats.run("version => splats.begin(version)", rough.version)
    splats.put(rough)
    np.testing.assert_array_equal(splats.draw(camera), first_picture)
    assert splats.run("splats.commit()")
    quick_picture = splats.draw(camera)
    splats.put(second)
    better_picture = splats.draw(camera)
    splats.load(second)
    exact_picture = splats.draw(camera)
    assert psnr(quick_picture, exact_picture) > 30
    np.testing.assert_array_equal(better_picture, exact_picture)
    splats.load(EMPTY)
    assert not splats.draw(camera).any()
    splats.load(first)
    np.testing.assert_array_equal(splats.draw(camera), first_picture)


def test_what_cannot_be_drawn_is_refused_with_a_reason(splats: PageSplats) -> None:
    camera = looking_at_origin(120, 90)
    scene = packed(random_scene(1, Chance(n=1500)))
    splats.load(scene)
    first_picture = splats.draw(camera)
    assert "without a GPU" in splats.run("splats.reason")
    too_many = scene.version | {"count": 1 << 30}
    assert not splats.run("version => splats.begin(version)", too_many)
    assert "1073741824 Gaussians" in splats.run("splats.reason")
    # Its parts go nowhere.
    splats.run("splats.put(0, 'exact', new ArrayBuffer(8))")
    assert not splats.run("splats.commit()")
    np.testing.assert_array_equal(splats.draw(camera), first_picture)
    assert splats.run("version => splats.begin(version)", scene.version)
    for call in (
        "splats.put(2, 'exact', new ArrayBuffer(32864))",
        "splats.put(0.5, 'exact', new ArrayBuffer(32864))",
        "splats.put(0, 'exact', new ArrayBuffer(32864))",
        "splats.put(0, 'quick', new ArrayBuffer(32864))",
        "splats.put(0, 'other', new ArrayBuffer(32864))",
        "splats.put(0, 'harmonics', new ArrayBuffer(1))",
    ):
        script = f"() => {{ try {{ {call}; }} catch (e) {{ return e.name; }} }}"
        assert splats.run(script) == "RangeError", call


def test_a_lost_context_comes_back(splats: PageSplats) -> None:
    camera = looking_at_origin(120, 90)
    scene = packed(random_scene(1, Chance(n=1500)))
    splats.load(scene)
    first_picture = splats.draw(camera)
    splats.run("""() => {
      const gl = document.getElementById("splats").getContext("webgl2");
      window.loss = gl.getExtension("WEBGL_lose_context");
      window.restored = new Promise((resolve) => { splats.onrestored = resolve; });
      const lost = new Promise((resolve) => {
        document.getElementById("splats").addEventListener("webglcontextlost", resolve);
      });
      loss.loseContext();
      return lost.then(() => {});
    }""")
    assert "taken the GPU away" in splats.run("splats.reason")
    assert not splats.run("version => splats.begin(version)", scene.version)
    splats.run("() => { loss.restoreContext(); return restored.then(() => {}); }")
    splats.load(scene)
    np.testing.assert_array_equal(splats.draw(camera), first_picture)


def test_scripts_stay_small(viewer: Viewer) -> None:
    """As they come to a browser: with the shaders, and nothing for readers alone."""
    size = 0
    for name in splat_scripts():
        url = f"{viewer.bare}splats/{name}"
        request = Request(url, headers={"Accept-Encoding": "gzip"})
        with urlopen(request) as answer:
            packed_script = answer.read()
        script = gzip.decompress(packed_script)
        assert not re.search(rb"^\s*(//|/?\*)|\n\n", script, re.MULTILINE), name
        size += len(packed_script)
    assert size < MOST_BYTES


def test_scripts_keep_what_only_looks_like_a_comment() -> None:
    script = r"""
        // goes
        const url = "http://a/*b*/", c = 'it\'s // here'; // goes
        /** goes
         * too */
        const d = /["'/]*\/\/[/"]/.test(url) ? `//${c}` : 4 / 2 / 1; /* goes */ e();
    """
    assert script_to_serve(script).splitlines() == [
        r"""const url = "http://a/*b*/", c = 'it\'s // here';""",
        r"""const d = /["'/]*\/\/[/"]/.test(url) ? `//${c}` : 4 / 2 / 1;   e();""",
    ]
