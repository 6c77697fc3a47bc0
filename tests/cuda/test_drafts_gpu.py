"""Drafts, drawn from packed Gaussians, look like the pictures that replace them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import moderngl
import numpy as np
import pytest
import torch
from support.odd_cases import SCENES, everywhere
from support.renderer_cases import (
    CLASSIC,
    Chance,
    close,
    looking_at_origin,
    random_scene,
    real_scene,
)

from splatview_viewer.geometry.cameras import Camera
from splatview_viewer.render.base import Pixels, RenderOptions
from splatview_viewer.render.gsplat import packed_frames
from splatview_viewer.render.gsplat.device_gaussians import DeviceGaussians
from splatview_viewer.render.gsplat.frame import Capacity
from splatview_viewer.render.gsplat.renderer import GsplatRenderer
from splatview_viewer.scene import EVERYTHING, Selection
from splatview_viewer.scene.scene import FIELDS, GaussianScene

pytestmark = pytest.mark.cuda
VIEW = looking_at_origin()
SELECTION = Selection(opacity=(0.2, 0.97), scale=(0.01, 0.6), marked=(3, 50, 400))
PACKED = "packed while it moves"


@pytest.fixture
def renderer(ctx: moderngl.Context) -> Iterator[GsplatRenderer]:
    renderer = GsplatRenderer(ctx)
    yield renderer
    assert renderer.note == ""
    renderer.close()


def draft_of(
    renderer: GsplatRenderer, view: Camera = VIEW, options: RenderOptions = CLASSIC
) -> Pixels:
    return renderer.render(view, replace(options, is_draft=True)).pixels()


def assert_alike(
    renderer: GsplatRenderer, view: Camera = VIEW, options: RenderOptions = CLASSIC
) -> None:
    """Check that a draft is within 50 dB, drawn at once and by a graph."""
    expected = renderer.render(view, options).pixels()
    for _ in range(5):
        close(draft_of(renderer, view, options), expected)
    assert renderer.draft_note.startswith(PACKED)


@pytest.mark.parametrize("degree", range(5))
def test_every_degree(renderer: GsplatRenderer, degree: int) -> None:
    renderer.load(random_scene(degree, Chance(n=3000, sh_degree=degree)))
    assert_alike(renderer)
    assert_alike(renderer, options=replace(CLASSIC, sh_degree=0))


@pytest.mark.parametrize(
    "options",
    [
        RenderOptions("antialiased"),
        RenderOptions(depth=False),
        RenderOptions(paint="normals"),
        RenderOptions(scale=0.4),
        RenderOptions(scale=3.0),
        RenderOptions(selection=SELECTION),
    ],
    ids=str,
)
def test_every_option(renderer: GsplatRenderer, options: RenderOptions) -> None:
    renderer.load(random_scene(3, Chance(n=20_000)))
    assert_alike(renderer, options=options)
    assert_alike(renderer, looking_at_origin(model="ortho"), options)


@pytest.mark.parametrize("size", [(1, 1), (17, 250), (1920, 1080), (3840, 2160)])
def test_every_size(renderer: GsplatRenderer, size: tuple[int, int]) -> None:
    renderer.load(random_scene(3, Chance(n=100_000, logit=(2.0, 2.0))))
    assert_alike(renderer, looking_at_origin(*size))


def test_what_is_close_covers_all(renderer: GsplatRenderer) -> None:
    """From inside, thousands of Gaussians cover the picture, and few tiles stay open."""
    renderer.load(random_scene(5, Chance(n=60_000, log_scale=(-1.5, 0.8))))
    assert_alike(renderer, looking_at_origin(640, 480, distance=0.3))


def test_gaussians_at_one_depth_keep_their_order(renderer: GsplatRenderer) -> None:
    view = replace(VIEW, viewmat=np.eye(4))
    flat = random_scene(9, Chance(n=2000, log_scale=(-2.0, 0.2), logit=(2.0, 1.0)))
    means = flat.means.clone()
    means[:, 2] = 3.0
    renderer.load(replace(flat, means=means))
    assert_alike(renderer, view)


@pytest.mark.parametrize("name", sorted(SCENES))
def test_odd_scenes(renderer: GsplatRenderer, name: str) -> None:
    odd = SCENES[name].make()
    renderer.load(odd)
    expected = renderer.render(VIEW, CLASSIC).pixels()
    got = draft_of(renderer)
    assert np.isfinite(got.color).all()
    if expected.alpha.max() > 0:
        close(got, expected)
    else:
        assert got.alpha.max() == 0


def test_more_pairs_than_were_expected_are_drawn_all(
    ctx: moderngl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Capacity, "FIRST", 64)
    renderer = GsplatRenderer(ctx)
    renderer.load(everywhere(500))
    assert_alike(renderer)
    renderer.close()


def test_more_pairs_than_may_be_are_drawn_in_the_other_way(
    ctx: moderngl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Capacity, "FIRST", 64)
    monkeypatch.setattr(packed_frames, "PAIRS_MAX", 2048)
    renderer = GsplatRenderer(ctx)
    renderer.load(everywhere(500))
    expected = renderer.render(VIEW, CLASSIC).pixels()
    assert np.array_equal(draft_of(renderer).color, expected.color)
    assert "too many Gaussians" in renderer.draft_note
    renderer.free_pictures()
    renderer.load(everywhere(20))
    assert_alike(renderer)
    renderer.close()


def test_real_scenes(renderer: GsplatRenderer, data_dir) -> None:
    for name in ("biker", "playbot"):
        renderer.load(real_scene(data_dir, name))
        assert_alike(renderer, looking_at_origin(960, 540))


def test_other_cameras_are_drawn_as_ever_and_it_says_so(
    renderer: GsplatRenderer,
) -> None:
    renderer.load(random_scene(3, Chance()))
    view = looking_at_origin(model="fisheye")
    expected = renderer.render(view, CLASSIC).pixels()
    assert np.array_equal(draft_of(renderer, view).color, expected.color)
    assert renderer.draft_note == "moving pictures are not packed: fisheye cameras"


def test_a_new_version_is_packed_anew_and_memory_is_given_back(
    renderer: GsplatRenderer,
) -> None:
    scene = random_scene(3, Chance(n=200_000))
    renderer.load(scene)
    draft_of(renderer)
    other = random_scene(4, Chance(n=200_000))
    renderer.load(other)
    assert_alike(renderer)
    renderer.free_pictures()
    before = torch.cuda.memory_allocated()
    draft_of(renderer)
    packed = 128 * 200_000
    assert packed <= torch.cuda.memory_allocated() - before < 3 * packed
    renderer.free_pictures()
    assert torch.cuda.memory_allocated() - before < packed / 2
    assert renderer.draft_note == ""


def test_a_version_of_more_gaussians_has_the_memory_of_the_one_before(
    renderer: GsplatRenderer,
) -> None:
    n = 200_000
    renderer.load(on_gpu(random_scene(3, Chance(n=n))))
    draft_of(renderer)
    renderer.render(VIEW, CLASSIC).pixels()
    larger = on_gpu(random_scene(4, Chance(n=2 * n)))
    before = torch.cuda.memory_allocated()
    renderer.load(larger)
    renderer.read()
    # Buffers that grow get a quarter more than is needed.
    grown = 236 * (2.5 * n - n)
    assert torch.cuda.memory_allocated() - before < grown + 4e6
    assert_alike(renderer)


def test_a_selection_changes_with_the_next_draft(renderer: GsplatRenderer) -> None:
    renderer.load(random_scene(3, Chance()))
    for selection in (EVERYTHING, SELECTION, EVERYTHING):
        assert_alike(renderer, options=RenderOptions(selection=selection))


def test_there_may_be_too_little_memory(
    renderer: GsplatRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the packed Gaussians do not fit: torch makes room for others otherwise."""

    def fail(*_: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    scene = on_gpu(random_scene(3, Chance()))
    renderer.load(scene)
    expected = renderer.render(VIEW, CLASSIC).pixels()
    monkeypatch.setattr(DeviceGaussians, "_reserve_packed", fail)
    for renderer.expects_drafts in (False, True):
        renderer.load(scene)
        got = draft_of(renderer)
        assert np.array_equal(got.color, expected.color)
        assert (
            renderer.draft_note == "moving pictures are not packed: too little memory"
        )
    monkeypatch.undo()
    assert np.array_equal(draft_of(renderer).color, expected.color), (
        "not again and again"
    )
    renderer.free_pictures()
    assert not np.array_equal(draft_of(renderer).color, expected.color)


def on_gpu(scene: GaussianScene) -> GaussianScene:
    arrays = {name: getattr(scene, name).cuda() for name in FIELDS}
    return replace(scene, **arrays)


def test_versions_that_are_drawn_as_drafts_are_packed_where_they_lie(
    renderer: GsplatRenderer,
) -> None:
    """Everything else is made of the packed ones then, until another load."""
    scene = random_scene(3, Chance(n=20_000))
    renderer.load(scene)
    expected = renderer.render(VIEW, CLASSIC).pixels()
    exact = renderer.scene().to_host()
    for dtype in (torch.float32, torch.float64, torch.float16):
        arrays = {name: getattr(scene, name).to("cuda", dtype) for name in FIELDS}
        renderer.expects_drafts = True
        renderer.load(replace(scene, **arrays))
        close(draft_of(renderer), expected, 45 if dtype == torch.float16 else 50)
        assert renderer.is_coarse
        assert renderer.left_out.total == 0
    renderer.load(on_gpu(scene))
    close(draft_of(renderer), expected)
    for coarse in (renderer.host_scene(), renderer.scene().to_host()):
        for name in set(FIELDS) - {"quats"}:
            torch.testing.assert_close(
                getattr(coarse, name), getattr(exact, name), rtol=2e-3, atol=2e-3
            )
    close(renderer.render(VIEW, CLASSIC).pixels(), expected)
    renderer.expects_drafts = False
    renderer.load(on_gpu(scene))
    assert np.array_equal(renderer.render(VIEW, CLASSIC).pixels().color, expected.color)
    assert not renderer.is_coarse
