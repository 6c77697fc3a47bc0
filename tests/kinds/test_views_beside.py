"""Several views of the same data: one conformance suite over all kinds, and how one follows another; on a real OpenGL
context."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.beside_cases import LOOKS, VALUES, Look, alone, counted, opened, part, settings
from support.frames import cloud, gaussian_frame, image_frame, memory_frame, memory_samples
from support.training_camera_cases import cameras_frame
from support.view_cases import RECT, WRITTEN, H, W, shown
from support.wait import clock

from splatview.ipc.interop.glapi import GL
from splatview.viewer_app.controls import Rect
from splatview.viewer_app.events import PointerPress, PointerRelease, Wheel
from splatview.viewer_app.views import KINDS
from splatview.viewer_app.views.gaussians import GaussianView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview.viewer_app.screens.offscreen import OffscreenScreen
    from splatview.viewer_app.views.base import View


@pytest.fixture(autouse=True)
def opengl_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """What gsplat does on a GPU is counted in tests of its own."""
    monkeypatch.setenv("SPLATVIEW_RENDERER", "gl")


@pytest.fixture(params=[kind for kind in KINDS if kind not in WRITTEN])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def pair(kind: str, screen: OffscreenScreen) -> Iterator[list[View]]:
    with opened(kind, screen) as views:
        yield views


def objects() -> set[tuple[str, int]]:
    """The OpenGL objects that there are."""
    gl = GL.current()
    gl.glUseProgram(0)  # one in use is there until then, though it was deleted
    found = set()
    for sort in ("Texture", "Framebuffer", "Buffer", "Program", "VertexArray", "Renderbuffer"):
        address = gl._address(f"glIs{sort}".encode())
        assert address is not None
        is_one = ctypes.CFUNCTYPE(ctypes.c_ubyte, ctypes.c_uint)(address)
        found |= {(sort, name) for name in range(1, 4000) if is_one(name)}
    return found


# -- every kind ----------------------------------------------------------------------------------------------


def test_one_update_is_seen_in_all(pair: list[View], kind: str, screen: OffscreenScreen,
                                   monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch)
    a, b = pair
    for value, giver in zip(VALUES[kind], (a, b, a), strict=True):
        assert giver.update(value)
        assert calls["taken"] == 1
        calls.clear()
        np.testing.assert_array_equal(shown(a, screen), shown(b, screen))
        assert shown(a, screen).std() > 5
        assert a.details == b.details != []
        assert not (a.empty or b.empty)
        calls.clear()
    late = a.beside(settings(kind))
    assert shown(late, screen).std() > 5
    late.like(a)  # a scene that it saw first has another camera
    np.testing.assert_array_equal(shown(late, screen), shown(a, screen))
    late.close()
    assert not calls["taken"]
    assert not calls["renderers"]


@pytest.mark.parametrize(("one", "other"), [(0, other) for other in range(1, len(LOOKS))])
def test_each_draws_what_it_would_alone(pair: list[View], kind: str, screen: OffscreenScreen, one: int,
                                        other: int) -> None:
    looks = LOOKS[one], LOOKS[other]
    first, second, _ = VALUES[kind]
    want = [alone(kind, screen, first, look) for look in looks]
    after = [alone(kind, screen, first, look, second) for look in looks]
    pair[0].update(first)
    for view, look in zip(pair, looks, strict=True):
        look.take(view, screen)
    for _ in range(20):
        for view, look, pixels in zip(pair, looks, want, strict=True):
            np.testing.assert_array_equal(part(view, screen, look), pixels)
    pair[1].update(second)
    for view, look, pixels in zip(pair, looks, after, strict=True):
        np.testing.assert_array_equal(part(view, screen, look), pixels)


def test_closing_one_leaves_the_other(kind: str, screen: OffscreenScreen) -> None:
    first, second, _ = VALUES[kind]
    for gone in (0, 1):
        with opened(kind, screen) as views:
            views[0].update(first)
            for view, look in zip(views, LOOKS, strict=False):
                look.take(view, screen)
                shown(view, screen, look.rect)
            left, look = views[1 - gone], LOOKS[1 - gone]
            before = part(left, screen, look)
            views[gone].close()
            views[gone].close()
            np.testing.assert_array_equal(part(left, screen, look), before)
            assert left.update(second)
            np.testing.assert_array_equal(part(left, screen, look), alone(kind, screen, first, look, second))


def test_closing_all_gives_back_everything(kind: str, screen: OffscreenScreen) -> None:
    def use() -> None:
        with opened(kind, screen, 3) as views:
            for value in VALUES[kind]:
                views[1].update(value)
                for _ in range(2):
                    for view, look in zip(views, LOOKS, strict=False):
                        look.take(view, screen)
                        shown(view, screen, look.rect)
                        view.tick(clock())
            assert objects() - before

    before: set[tuple[str, int]] = set()
    use()  # what is made once for the context
    before = objects()
    use()
    assert objects() == before


def test_a_torn_frame_changes_nothing_for_anybody(pair: list[View], kind: str, screen: OffscreenScreen) -> None:
    if kind == "snapshot":
        return  # a file's value is whole
    a, b = pair
    a.update(VALUES[kind][0])
    for view, look in zip(pair, LOOKS, strict=False):
        look.take(view, screen)
    before = [part(view, screen, look) for view, look in zip(pair, LOOKS, strict=False)]
    torn = {"gaussians": lambda: gaussian_frame(cloud(50), intact=False),
            "image": lambda: image_frame(torch.zeros(20, 30, dtype=torch.uint8), intact=False),
            "memory": lambda: memory_frame(memory_samples(40), intact=False),
            "cameras": lambda: cameras_frame(4, distance=9.0, intact=False)}[kind]()
    for view in pair:
        assert not view.update(torn)
        for v, look, pixels in zip(pair, LOOKS, before, strict=False):
            np.testing.assert_array_equal(part(v, screen, look), pixels)
    assert b.update(VALUES[kind][1])
    assert (part(a, screen, LOOKS[0]) != before[0]).any()


def test_who_is_away_keeps_no_picture_and_loses_nothing(pair: list[View], kind: str, screen: OffscreenScreen) -> None:
    def textures() -> set[tuple[str, int]]:
        return {name for name in objects() if name[0] == "Texture"}

    a, b = pair
    a.update(VALUES[kind][0])
    theirs, before = shown(a, screen), textures()
    b.handle(Wheel(W / 2, H / 2, 3.0), RECT)
    ours = shown(b, screen)
    assert (ours != theirs).any()
    if kind == "gaussians":
        assert textures() > before  # the renderer drew for the other: its first picture is a copy now
    a.drop()
    a.drop()
    assert len(textures()) <= len(before)
    np.testing.assert_array_equal(shown(b, screen), ours)
    np.testing.assert_array_equal(shown(a, screen), theirs)


# -- following -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("look", LOOKS[:2])
def test_following_in_the_same_place_shows_the_same(pair: list[View], kind: str, screen: OffscreenScreen,
                                                    look: Look) -> None:
    a, b = pair
    a.update(VALUES[kind][0])
    look.take(a, screen)
    for _ in range(3):
        want = part(a, screen, look)
        b.like(a)
        np.testing.assert_array_equal(part(b, screen, look), want)
        a.handle(Wheel(20, 20, 1), look.rect)
    own = part(b, screen, look)
    b.handle(Wheel(20, 20, 1), look.rect)  # from there on by itself
    assert (part(b, screen, look) != own).any()
    want = part(a, screen, look)
    b.handle(Wheel(20, 20, -3), look.rect)
    np.testing.assert_array_equal(part(a, screen, look), want)


@pytest.mark.parametrize(("rect", "model"), [(Rect(0, 0, 20, 48), "pinhole"), (Rect(4, 6, 60, 10), "ortho"),
                                             (Rect(0, 0, 32, 24), "fisheye")])
def test_all_of_a_scene_that_is_followed_is_seen(screen: OffscreenScreen, rect: Rect, model: Any) -> None:
    with opened("gaussians", screen) as (a, b):
        assert isinstance(a, GaussianView)
        assert isinstance(b, GaussianView)
        a.update(VALUES["gaussians"][0])
        a.orbit.model = model
        LOOKS[0].take(a, screen)
        shown(a, screen)
        b.like(a)
        shown(b, screen, rect)
        theirs, mine = a._current_camera(RECT), b._current_camera(rect)
        np.testing.assert_array_equal(mine.viewmat, theirs.viewmat)
        assert (mine.width, mine.height) == (rect.width, rect.height)
        corners = [np.linalg.solve(theirs.K, [x, y, 1.0]) for x in (0, W) for y in (0, H)]
        seen = np.array([(mine.K @ corner)[:2] for corner in corners])
        size = np.array([rect.width, rect.height])
        np.testing.assert_allclose(seen[0], size - seen[3], atol=1e-6)
        assert seen[0].min() == pytest.approx(0, abs=1e-6)
        before = mine.key
        b.handle(PointerPress(20, 20), rect)  # the hand takes over what is there
        b.handle(PointerRelease(20, 20), rect)
        np.testing.assert_allclose(b._current_camera(rect).K, mine.K, rtol=1e-9)
        np.testing.assert_allclose(b._current_camera(rect).viewmat, mine.viewmat, atol=1e-9)
        assert b.beside(settings("gaussians"))._current_camera(rect).key != before
