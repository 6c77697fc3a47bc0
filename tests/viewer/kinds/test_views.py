"""One conformance suite over the views of all kinds and of the smallest one
(`support.stub_kind`): each alone, and several of the same data beside each other; on a
real OpenGL context.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields
from typing import Any

import numpy as np
import pytest
from support.view_cases import (
    RECT,
    VIEW_USERS,
    WRITTEN,
    H,
    W,
    alone,
    change_state,
    opened,
    user_pixels,
    value,
    view_pixels,
)
from support.wait import clock

from splatview_ipc.gl.glapi import GL
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.events import Key, Wheel
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import Info, ShownView
from splatview_viewer.kinds import shown_kinds as shown_kinds
from splatview_viewer.screens.offscreen import OffscreenScreen

pytestmark = pytest.mark.usefixtures("sharp")
ALL = [*shown_kinds(), "stub"]
STREAMS = [kind for kind in ALL if kind != "snapshot"]
"""The kinds of which trainers publish frames."""
EVENTS = [Wheel(30, 20, 2), *(Key(name) for name in ("l", "e", "left"))]


@pytest.fixture(params=ALL)
def view(
    request: pytest.FixtureRequest, screen: OffscreenScreen
) -> Iterator[ShownView]:
    with opened(request.param, screen, 1) as (made,):
        yield made


@pytest.fixture(params=[kind for kind in ALL if kind not in WRITTEN])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of views beside each other, Gaussians drawn by OpenGL: what gsplat does on a GPU
    is counted in its own tests.
    """
    monkeypatch.setenv("SPLATVIEW_RENDERER", "gl")
    return request.param


@pytest.fixture
def pair(kind: str, screen: OffscreenScreen) -> Iterator[list[ShownView]]:
    with opened(kind, screen) as views:
        yield views


def objects() -> set[tuple[str, int]]:
    """The OpenGL objects that there are."""
    gl = GL.current()
    gl.glUseProgram(0)  # one in use is there until then, though it was deleted
    found = set()
    for sort in (
        "Texture",
        "Framebuffer",
        "Buffer",
        "Program",
        "VertexArray",
        "Renderbuffer",
    ):
        address = gl._address(f"glIs{sort}".encode())
        assert address is not None
        is_one = ctypes.CFUNCTYPE(ctypes.c_ubyte, ctypes.c_uint)(address)
        found |= {(sort, name) for name in range(1, 4000) if is_one(name)}
    return found


# -- one view ------------------------------------------------------------------


def test_it_is_empty_and_then_shows_a_frame(
    view: ShownView, screen: OffscreenScreen
) -> None:
    assert view.empty
    assert view.info == Info()
    pixels = view_pixels(view, screen)
    assert (pixels == pixels[0, 0]).all()
    assert not view.tick(clock())
    assert view.update(value(view.kind))
    assert not view.empty
    pixels = view_pixels(view, screen)
    assert pixels.std() > 10
    assert view.info.details
    assert view.info.path
    assert all(isinstance(ms, float) and ms >= 0 for ms in view.info.timings.values())
    for rect in (
        Rect(0, 0, 1, 1),
        Rect(63, 47, 1, 1),
        Rect(0, 0, W, 1),
        Rect(5, 0, 1, H),
    ):
        view_pixels(view, screen, rect)
    np.testing.assert_array_equal(view_pixels(view, screen), pixels)


def test_it_draws_all_of_its_rectangle_and_nothing_else(
    view: ShownView, screen: OffscreenScreen
) -> None:
    view.update(value(view.kind))
    rect = Rect(11, 5, 30, 21)
    marker = np.array([3, 250, 7])
    screen.framebuffer.clear(3 / 255, 250 / 255, 7 / 255, 1.0)
    pixels = view_pixels(view, screen, rect)
    inside = np.zeros((H, W), bool)
    inside[5:26, 11:41] = True
    np.testing.assert_array_equal((pixels == marker).all(axis=-1), ~inside)
    screen.resize(30, 21)  # what the whole screen would show
    if view.kind == "gaussians":
        view.view.rig.frame_scene()  # type: ignore[attr-defined]
    np.testing.assert_allclose(view_pixels(view, screen), pixels[5:26, 11:41], atol=1)


def test_it_refuses_what_it_cannot_show(view: ShownView) -> None:
    wrong: Any = (
        np.zeros((2, 3, 4, 5))
        if view.kind == "image"
        else np.zeros((5, 5, 3), np.uint8)
    )
    with pytest.raises(ViewerError):
        view.update(wrong)
    assert view.empty


@pytest.mark.parametrize("kind", STREAMS)
def test_only_a_whole_frame_changes_pictures(
    kind: str, screen: OffscreenScreen
) -> None:
    with opened(kind, screen) as views:
        frame = value(kind)
        views[0].update(frame)
        before = [view_pixels(view, screen) for view in views]
        details = views[0].info.details
        for tensor in frame.tensors.values():  # its memory may change after an update
            tensor.array[...] = 0
        for view in views:
            if kind == "gaussians":
                change_state(view, sh_degree=0)  # so that it draws anew
            assert not view.update(value(kind, 1, intact=False))
            assert view.info.details == details
            for v, pixels in zip(views, before, strict=True):
                np.testing.assert_array_equal(view_pixels(v, screen), pixels)
        assert views[1].update(value(kind, 1))
        assert (view_pixels(views[0], screen) != before[0]).any()


@pytest.mark.parametrize("kind", ALL)
def test_a_picture_depends_on_its_state_alone(
    kind: str, screen: OffscreenScreen
) -> None:
    with opened(kind, screen, 1) as (view,):
        assert isinstance(view, ShownView)
        view.update(value(kind))
        first = view.view.state
        seen = [(first, view_pixels(view, screen))]
        for event in EVENTS:
            before = view.view.state
            assert view.handle(event, RECT) == (view.view.state != before)
            seen.append((view.view.state, view_pixels(view, screen)))
        if kind == "memory":  # which the pointer alone moves
            change_state(view, span=5.0)
            seen.append((view.view.state, view_pixels(view, screen)))
        assert seen[-1][0] != first
        assert (seen[-1][1] != seen[0][1]).any()
        for state, pixels in reversed(seen):
            view.view.state = state
            np.testing.assert_array_equal(view_pixels(view, screen), pixels)
            other: Any = view.another_view()
            other.view.state = state
            np.testing.assert_array_equal(view_pixels(other, screen), pixels)
            other.close()
        with pytest.raises(FrozenInstanceError):
            setattr(first, fields(first)[0].name, None)


# -- views beside each other ---------------------------------------------------


@pytest.mark.parametrize("other", [1, 3])
def test_each_draws_what_it_would_alone(
    pair: list[ShownView], kind: str, screen: OffscreenScreen, other: int
) -> None:
    looks = VIEW_USERS[0], VIEW_USERS[other]
    want = [alone(kind, screen, look) for look in looks]
    after = [alone(kind, screen, look, value(kind, 1)) for look in looks]
    pair[0].update(value(kind))
    for view, look in zip(pair, looks, strict=True):
        look.take(view, screen)
    for _ in range(3):
        for view, look, pixels in zip(pair, looks, want, strict=True):
            np.testing.assert_array_equal(user_pixels(view, screen, look), pixels)
    pair[1].update(value(kind, 1))
    for view, look, pixels in zip(pair, looks, after, strict=True):
        np.testing.assert_array_equal(user_pixels(view, screen, look), pixels)


def test_closing_one_leaves_the_other(kind: str, screen: OffscreenScreen) -> None:
    for gone in (0, 1):
        with opened(kind, screen) as views:
            views[0].update(value(kind))
            for view, look in zip(views, VIEW_USERS, strict=False):
                look.take(view, screen)
            left = views[1 - gone]
            look = VIEW_USERS[1 - gone]
            before = user_pixels(left, screen, look)
            for _ in range(2):
                views[gone].close()
            np.testing.assert_array_equal(user_pixels(left, screen, look), before)
            assert left.update(value(kind, 1))
            np.testing.assert_array_equal(
                user_pixels(left, screen, look),
                alone(kind, screen, look, value(kind, 1)),
            )


def test_closing_all_gives_back_everything(kind: str, screen: OffscreenScreen) -> None:
    def use() -> None:
        with opened(kind, screen, 3) as views:
            for k in range(3):
                views[1].update(value(kind, k))
                for view, look in zip(views, VIEW_USERS, strict=False):
                    look.take(view, screen)
                    view_pixels(view, screen, look.rect)
                    view.tick(clock())
            assert objects() - before or kind == "stub"

    before: set[tuple[str, int]] = set()
    use()  # what is made once for the context
    before = objects()
    use()
    assert objects() == before


def test_following_in_the_same_place_shows_the_same(
    pair: list[ShownView], kind: str, screen: OffscreenScreen
) -> None:
    (a, b), look = pair, VIEW_USERS[1]
    a.update(value(kind))
    look.take(a, screen)
    for _ in range(3):
        want = user_pixels(a, screen, look)
        b.follow(a, alike=True)
        np.testing.assert_array_equal(user_pixels(b, screen, look), want)
        a.handle(Wheel(20, 20, 1), look.rect)
    want = user_pixels(a, screen, look)
    b.handle(Wheel(20, 20, -3), look.rect)  # from there on by itself
    assert (user_pixels(b, screen, look) != want).any()
    np.testing.assert_array_equal(user_pixels(a, screen, look), want)
