"""What is shown while the camera moves and the GPU has no time: the last picture, moved. On a real OpenGL context, with
the CUDA renderer whose kernels run on the CPU (`test_gsplat_cpu`), and with OpenGL's."""

from __future__ import annotations

import itertools
import math
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from support.device_frames import Shared
from support.frames import gaussian_frame
from support.motion_cases import FRONT, Canvas, Rig, ball, psnr
from support.on_cpu import OnCpu
from support.view_cases import RECT, H, W, module_screen, screen_fixture, shown  # noqa: F401
from test_gsplat_cpu import CPU, Event, compiled, no_gpu  # noqa: F401
from test_warp_cpu import KERNELS as WARP_KERNELS

from splatview.viewer_app.cameras import Camera, intrinsics, look_at
from splatview.viewer_app.controls import Rect
from splatview.viewer_app.events import PointerMove, PointerPress, PointerRelease
from splatview.viewer_app.governor import BROUGHT, SWITCH
from splatview.viewer_app.renderers import gsplat_moving
from splatview.viewer_app.renderers.gl import GlRenderer
from splatview.viewer_app.renderers.gpu_clock import Clock
from splatview.viewer_app.renderers.gsplat import GsplatRenderer
from splatview.viewer_app.renderers.kernels import compiler
from splatview.viewer_app.state import GaussianSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview.viewer_app.screens.offscreen import OffscreenScreen


@pytest.fixture(scope="module")
def own() -> OnCpu:
    return OnCpu("warp.cu", WARP_KERNELS)


@pytest.fixture(params=["opengl", "cuda"])
def rig(screen: OffscreenScreen, no_gpu: None, own: OnCpu, request: pytest.FixtureRequest,  # noqa: F811
        monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """By what pictures are moved."""
    monkeypatch.setattr(gsplat_moving, "WITH_CUDA", request.param == "cuda")
    monkeypatch.setattr(gsplat_moving, "BRIDGES", ("host",))
    monkeypatch.setattr(compiler, "kernels", lambda *_: own)
    monkeypatch.setattr(Clock, "news", 0.02)  # ms that it takes to move one
    monkeypatch.setattr(GsplatRenderer, "_make_canvas", lambda renderer: Canvas(renderer._ctx))
    renderer = GsplatRenderer(device=CPU)
    renderer._ctx = screen.ctx
    renderer._canvas_held, renderer._depths_held = Canvas(screen.ctx), Canvas(screen.ctx)
    made = Rig(screen, renderer)
    if request.param == "cuda":  # to which the GPU has to turn for each picture
        made.governor.share = 0.08
    yield made
    assert (renderer._mover_held is not None) is (request.param == "cuda" and not renderer._closed)
    made.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever moves the camera rests when the test says so."""
    monkeypatch.setattr("splatview.viewer_app.views.gaussians._REST", 1e6)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Whether the GPU is through with what it was given."""
    state = {"done": True}
    monkeypatch.setattr(Event, "query", lambda self: state["done"])
    return state


def moving(rig: Rig, gpu: dict[str, bool]) -> None:
    """A drag has begun, and a picture with depth has come."""
    rig.begin()
    rig.later()
    rig.press()
    rig.move()
    rig.shown()
    assert rig.view.content.begun is not None or rig.view.picture.known
    rig.view.tick(time.monotonic())
    assert rig.view.picture.known


def test_nobody_waits_for_a_picture_while_the_camera_moves(rig: Rig, gpu: dict[str, bool]) -> None:
    resting = rig.begin()
    assert rig.drawings == 1
    rig.later()
    gpu["done"] = False
    rig.press()
    seen = [resting]
    for _ in range(4):
        rig.move(2)
        seen.append(rig.shown())
        assert not rig.view.tick(time.monotonic())
    assert rig.drawings == 2  # begun with the first move
    assert rig.view.content.begun is not None
    for before, after in itertools.pairwise(seen):
        assert (before != after).any()
    assert rig.view.light
    gpu["done"] = True
    assert rig.view.tick(time.monotonic())
    assert rig.view.content.begun is None
    assert rig.view.picture.known
    better = rig.shown()
    assert psnr(better, rig.true()) > psnr(seen[-1], rig.true()) + 2  # those were moved as if all were equally far


def test_a_camera_at_rest_sees_the_scene_itself(rig: Rig, gpu: dict[str, bool]) -> None:
    moving(rig, gpu)
    rig.governor.gives(("scene", W, H), "cuda")
    rig.governor.gives(("scene", W, H), "cuda")
    rig.move(3)
    moved = rig.shown()  # for which nothing was begun: that is not paid for yet
    assert rig.view.content.begun is None
    assert rig.view.light
    rig.view.handle(PointerRelease(0, 0), RECT)
    rig.view._moved_at = -math.inf
    assert rig.view.tick(time.monotonic())
    assert not rig.view.light
    pixels = rig.shown()
    assert psnr(pixels, rig.true()) > 45
    assert psnr(moved, rig.true()) < 45
    assert rig.view.light
    assert not rig.view.tick(time.monotonic())
    drawings = rig.drawings
    rig.shown()
    assert rig.drawings == drawings


def test_what_was_begun_for_this_very_camera_is_not_drawn_twice(rig: Rig, gpu: dict[str, bool]) -> None:
    rig.begin()
    rig.later()
    gpu["done"] = False
    rig.press()
    rig.move(3)
    rig.shown()
    rig.view._moved_at = -math.inf
    assert psnr(rig.shown(), rig.true()) > 45
    assert rig.drawings == 2


def test_scenes_are_drawn_as_the_share_allows(rig: Rig, gpu: dict[str, bool]) -> None:
    """60 pictures a second on the screen, of which the share pays a part."""
    rig.begin()
    rig.governor.took(("scene", W, H), 4.0)
    rig.later()
    rig.press()
    drawings, pictures, end = rig.drawings, 0, rig.now + 2.0
    for work in (("scene", W, H), ("scene", W, H, BROUGHT)):
        rig.governor._samples[work].clear()
    while rig.now < end:
        rig.move(0.3 if pictures % 40 < 20 else -0.3)
        rig.governor.took(("scene", W, H), 4.0)
        if rig.view.light:
            assert rig.governor.next_display() <= rig.now
        rig.shown()
        pictures += 1
        rig.now += 1 / 60
    rate = (rig.drawings - drawings) / 2.0
    assert 8 < rate <= rig.governor.share * 1e3 / (1.5 + SWITCH) + 2  # 1.5 ms is what the test's GPU says


@pytest.mark.parametrize("share", [0.005, 0.05])
def test_where_moving_a_picture_costs_too_much_it_is_as_without(rig: Rig, gpu: dict[str, bool], share: float) -> None:
    """Nor are pictures drawn with their depth then."""
    rig.governor.share = share
    if share > 0.01:  # otherwise there is no time to show so many, whatever they cost
        for work in (("warp", W, H), ("warp", W, H, "cuda")):
            rig.governor.took(work, 5.0)
            rig.governor._samples[work].popleft()
        rig.governor._moving_tried_at = rig.now
    rig.begin()
    rig.later()
    rig.press()
    for i in range(3):
        rig.move(2)
        drawings = rig.drawings
        rig.shown()
        assert rig.drawings == drawings + 1
        assert not rig.view.light
        assert rig.view.content.begun is None
        assert not rig.view.picture.known, i


@pytest.fixture
def plain(screen: OffscreenScreen) -> Iterator[Rig]:
    """With OpenGL's renderer; its time is accounted for as a GPU's."""
    made = Rig(screen, GlRenderer(screen.ctx))
    made.begin()
    made.press()
    made.move()
    made.shown()
    assert made.view.picture.known
    for _ in range(3):
        made.governor.gives(("scene", W, H), "opengl")
    yield made
    made.close()


def test_opengl_alone_does_it_where_its_time_is_short(plain: Rig) -> None:
    drawings = plain.drawings
    before = plain.shown()
    plain.move(3)
    moved = plain.shown()
    assert plain.drawings == drawings
    assert plain.view.light
    assert psnr(moved, plain.true()) > max(psnr(before, plain.true()) + 3, 28)
    plain.view._moved_at = -math.inf
    assert psnr(plain.shown(), plain.true()) > 60


@pytest.mark.parametrize("how", ["off", "screenshot", "depth", "overdraw", "far away", "other projection",
                                 "affordable"])
def test_then_the_scene_itself_is_drawn(plain: Rig, how: str) -> None:
    match how:
        case "off":
            plain.view.settings.reproject = False
        case "screenshot":
            plain.view.desk.exact = True
        case "depth" | "overdraw":
            plain.view.settings.show = how
        case "far away":
            plain.view.orbit.orbit(2.0, 0.0)
        case "other projection":
            plain.view.orbit.model = "ortho"
        case "affordable":
            plain.governor.shared = False
    plain.move(4)
    plain.governor._samples.clear()  # nor is it drawn at a lower resolution then
    if how not in ("affordable", "off"):
        plain.governor.affords = lambda name, size: False  # type: ignore[method-assign]
    drawings = plain.drawings
    pixels = plain.shown()
    assert plain.drawings == drawings + 1
    assert not plain.view.light
    assert psnr(pixels, plain.true()) > 60


def test_a_scene_that_is_overwritten_meanwhile_is_never_seen(rig: Rig, gpu: dict[str, bool],
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    moving(rig, gpu)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: type("S", (), {"cuda_stream": 0}))
    meta = {"color": "sh", "activated": False, "sh_degree": 0, "antialiased": False}
    torn = Shared("gaussians", ball(seed=5), **meta)
    assert torn.show(rig.view)
    rig.later()
    rig.move()
    gpu["done"] = False
    before = rig.shown()
    assert rig.view.content.begun is not None
    assert rig.view.content.begun.reads
    assert rig.view.busy
    torn.whole = False
    gpu["done"] = True
    rig.view.tick(time.monotonic())
    assert torn.released
    assert rig.view.stale
    np.testing.assert_array_equal(rig.shown(), before)
    whole = Shared("gaussians", ball(seed=5), **meta)
    assert whole.show(rig.view)
    rig.later()
    rig.move(2)
    rig.shown()
    rig.view.tick(time.monotonic())
    assert whole.released
    assert not rig.view.stale
    assert (rig.shown() != before).any()


def test_it_can_end_at_any_time(rig: Rig, gpu: dict[str, bool]) -> None:
    rig.begin()
    for end in ("leave", "drop", "close"):
        rig.later()
        rig.press()
        rig.move(2)
        gpu["done"] = False
        rig.shown()
        assert rig.view.content.begun is not None
        gpu["done"] = True
        getattr(rig.view, end)()
        if end != "close":
            rig.shown()
    assert rig.view.content.begun is None


def test_two_who_look_do_not_see_each_others_pictures(rig: Rig, gpu: dict[str, bool]) -> None:
    rig.begin()
    other = rig.view.beside(GaussianSettings())
    other.use_camera(Camera(look_at((4, 0, 0), (0, 0, 0)), intrinsics(50, W, H), W, H))
    theirs = rig.shown(other)
    rig.later()
    rig.press()
    rig.move(2)
    gpu["done"] = False
    rig.shown()
    np.testing.assert_array_equal(rig.shown(other), theirs)
    gpu["done"] = True
    rig.view.tick(time.monotonic())
    np.testing.assert_array_equal(rig.shown(other), theirs)
    assert psnr(rig.shown(), rig.true()) > 35
    other.use_camera(Camera(look_at((0, 4, 0.1), (0, 0, 0)), intrinsics(50, W, H), W, H))
    assert (rig.shown(other) != theirs).any()
    assert psnr(rig.shown(), rig.true()) > 35  # a copy of what was lent, its depth still known
    other.close()


def test_a_software_rasteriser_draws_as_ever(screen: OffscreenScreen) -> None:
    """Its drawing costs the GPU nothing, and moving a picture is drawing as well."""
    rig = Rig(screen, GlRenderer(screen.ctx))
    try:
        rig.governor._samples.clear()
        rig.begin()
        rig.press()
        for i in range(3):
            rig.move(2)
            rig.shown()
            assert rig.drawings == 2 + i
        assert not rig.view.picture.known
    finally:
        rig.close()


def test_its_memory_is_given_back_when_nobody_moves_any_more(rig: Rig, gpu: dict[str, bool]) -> None:
    moving(rig, gpu)
    rig.move(2)
    rig.shown()
    rig.view.tick(time.monotonic())
    rig.view._moved_at = -math.inf
    rig.shown()
    rig.view.tick(time.monotonic() + 60)
    assert rig.view.picture.surface.grid is None
    assert rig.view.picture._warp._target is None
    rig.move(2)
    rig.shown()


def test_the_part_of_a_framebuffer_that_is_not_its_own_stays(rig: Rig, gpu: dict[str, bool]) -> None:
    rig.screen.resize(2 * W, H)
    rect = Rect(W // 2, 0, W, H)
    rig.view.update(gaussian_frame(ball()))
    rig.view.use_camera(FRONT)
    shown(rig.view, rig.screen, rect)
    rig.later()
    rig.view.handle(PointerPress(40, 20), rect)
    rig.view.handle(PointerMove(41, 20), rect)
    gpu["done"] = False
    rig.screen.framebuffer.clear(0.0, 1.0, 0.0, 1.0)
    pixels = shown(rig.view, rig.screen, rect)
    assert rig.view.content.begun is not None
    for edge in (pixels[:, :W // 2], pixels[:, W // 2 + W:]):
        assert (edge == (0, 255, 0)).all()
    assert pixels[:, W // 2:W // 2 + W].max() > 50
    gpu["done"] = True
