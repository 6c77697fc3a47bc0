"""Conformance of the views of all kinds, and of the smallest, `support.stub_kind`.

Each is tested alone, and several of the same data beside each other, on a real OpenGL
context.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields, replace
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
from splatview_viewer.core.command import parse_shortcut
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.events import Key, Wheel
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.shown_view import ShownView
from splatview_viewer.core.view import Info, PlacedState
from splatview_viewer.kinds import shown_kinds as shown_kinds
from splatview_viewer.screens.offscreen import OffscreenScreen

pytestmark = pytest.mark.usefixtures("sharp")
ALL = [*shown_kinds(), "stub"]
STREAMS = [kind for kind in ALL if kind not in ("snapshot", "ranks")]
"""The kinds of which trainers publish frames."""
EVENTS = [Wheel(30, 20, 2), *(Key(name) for name in ("l", "e", "left"))]


@pytest.fixture(params=ALL)
def view(
    request: pytest.FixtureRequest, screen: OffscreenScreen
) -> Iterator[ShownView]:
    with opened(request.param, screen, 1) as (new_view,):
        yield new_view


@pytest.fixture(params=[kind for kind in ALL if kind not in WRITTEN])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a kind, whose Gaussians OpenGL draws.

    What gsplat does on a GPU is counted in its own tests.
    """
    monkeypatch.setenv("SPLATVIEW_RENDERER", "gl")
    return request.param


@pytest.fixture
def pair(kind: str, screen: OffscreenScreen) -> Iterator[list[ShownView]]:
    with opened(kind, screen) as views:
        yield views


def opengl_objects() -> set[tuple[str, int]]:
    """Return the OpenGL objects that exist, by their type and name."""
    gl = GL.current()
    # A deleted program exists as long as it is in use.
    gl.glUseProgram(0)
    objects = set()
    for type_name in (
        "Texture",
        "Framebuffer",
        "Buffer",
        "Program",
        "VertexArray",
        "Renderbuffer",
    ):
        address = gl._address(f"glIs{type_name}".encode())
        assert address is not None
        is_object = ctypes.CFUNCTYPE(ctypes.c_ubyte, ctypes.c_uint)(address)
        objects |= {(type_name, name) for name in range(1, 4000) if is_object(name)}
    return objects


# -- one view ------------------------------------------------------------------


def test_view_is_empty_until_it_shows_a_frame(
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
    for milliseconds in view.timings.values():
        assert isinstance(milliseconds, float)
        assert milliseconds >= 0
    corners = [Rect(0, 0, 1, 1), Rect(63, 47, 1, 1)]
    lines = [Rect(0, 0, W, 1), Rect(5, 0, 1, H)]
    for rect in corners + lines:
        view_pixels(view, screen, rect)
    np.testing.assert_array_equal(view_pixels(view, screen), pixels)
    # A page gets the scene, or a sentence about why it does not.
    handed = view.hand_on(RECT)
    is_explained = handed.drawing is not None or handed.reason.endswith(".")
    assert view.view.shows_scene == is_explained


def test_view_draws_all_of_its_rectangle_and_nothing_else(
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
    # A whole screen of that size would show the same.
    screen.resize(30, 21)
    if view.kind in ("gaussians", "rendered"):
        view.view.rig.frame_scene()  # type: ignore[attr-defined]
    np.testing.assert_allclose(view_pixels(view, screen), pixels[5:26, 11:41], atol=1)


def test_key_of_a_command_is_handled_by_the_command_alone(view: ShownView) -> None:
    view.update(value(view.kind))
    state_before = view.view.state
    for command in view.view.commands():
        for keys in command.keys:
            shortcut = parse_shortcut(keys)
            for is_pressed in (True, False):
                event = Key(shortcut.key, is_pressed, shortcut.mods)
                assert not view.handle(event, RECT), command
                assert view.view.state == state_before, command


def test_view_refuses_values_of_other_kinds(view: ShownView) -> None:
    invalid: Any = np.zeros((5, 5, 3), np.uint8)
    if view.kind == "image":
        invalid = np.zeros((2, 3, 4, 5))
    with pytest.raises(ViewerError):
        view.update(invalid)
    assert view.empty


@pytest.mark.parametrize("kind", STREAMS)
def test_only_an_intact_frame_changes_pictures(
    kind: str, screen: OffscreenScreen
) -> None:
    with opened(kind, screen) as views:
        frame = value(kind)
        views[0].update(frame)
        pictures = [view_pixels(view, screen) for view in views]
        details = views[0].info.details
        # The frame's memory may change after an update.
        for tensor in frame.tensors.values():
            tensor.array[...] = 0
        for view in views:
            if kind == "gaussians":
                # Another degree makes the view draw again.
                change_state(view, sh_degree=0)
            assert not view.update(value(kind, 1, intact=False))
            assert view.info.details == details
            for drawn_view, pixels in zip(views, pictures, strict=True):
                np.testing.assert_array_equal(view_pixels(drawn_view, screen), pixels)
        assert views[1].update(value(kind, 1))
        assert (view_pixels(views[0], screen) != pictures[0]).any()


@pytest.mark.parametrize("kind", ALL)
def test_picture_depends_on_the_state_alone(kind: str, screen: OffscreenScreen) -> None:
    with opened(kind, screen, 1) as (view,):
        assert isinstance(view, ShownView)
        view.update(value(kind))
        states = [view.view.state]
        pictures = [view_pixels(view, screen)]
        for event in EVENTS:
            has_changed = view.handle(event, RECT)
            assert has_changed == (view.view.state != states[-1])
            states.append(view.view.state)
            pictures.append(view_pixels(view, screen))
        # The pointer alone moves these views.
        if kind == "memory":
            change_state(view, span=5.0)
        if kind == "scalars":
            change_state(view, log_up=True)
        if kind in ("memory", "scalars"):
            states.append(view.view.state)
            pictures.append(view_pixels(view, screen))
        assert states[-1] != states[0]
        assert (pictures[-1] != pictures[0]).any()
        for state, pixels in reversed(list(zip(states, pictures, strict=True))):
            view.view.state = state
            np.testing.assert_array_equal(view_pixels(view, screen), pixels)
            second_view: Any = view.another_view()
            second_view.view.state = state
            np.testing.assert_array_equal(view_pixels(second_view, screen), pixels)
            second_view.close()
        with pytest.raises(FrozenInstanceError):
            setattr(states[0], fields(states[0])[0].name, None)


# -- views beside each other ---------------------------------------------------


@pytest.mark.parametrize("second", [1, 3])
def test_each_view_draws_what_it_would_draw_alone(
    pair: list[ShownView], kind: str, screen: OffscreenScreen, second: int
) -> None:
    users = VIEW_USERS[0], VIEW_USERS[second]
    first_pictures = [alone(kind, screen, user) for user in users]
    next_pictures = [alone(kind, screen, user, value(kind, 1)) for user in users]
    pair[0].update(value(kind))
    for view, user in zip(pair, users, strict=True):
        user.take(view, screen)
    for _ in range(3):
        for view, user, pixels in zip(pair, users, first_pictures, strict=True):
            np.testing.assert_array_equal(user_pixels(view, screen, user), pixels)
    pair[1].update(value(kind, 1))
    for view, user, pixels in zip(pair, users, next_pictures, strict=True):
        np.testing.assert_array_equal(user_pixels(view, screen, user), pixels)


def test_closing_one_view_leaves_the_other(kind: str, screen: OffscreenScreen) -> None:
    for closed_index in (0, 1):
        with opened(kind, screen) as views:
            views[0].update(value(kind))
            for view, user in zip(views, VIEW_USERS, strict=False):
                user.take(view, screen)
            open_view = views[1 - closed_index]
            user = VIEW_USERS[1 - closed_index]
            pixels = user_pixels(open_view, screen, user)
            for _ in range(2):
                views[closed_index].close()
            np.testing.assert_array_equal(user_pixels(open_view, screen, user), pixels)
            assert open_view.update(value(kind, 1))
            expected = alone(kind, screen, user, value(kind, 1))
            np.testing.assert_array_equal(
                user_pixels(open_view, screen, user), expected
            )


def test_closing_all_views_frees_everything(kind: str, screen: OffscreenScreen) -> None:
    initial: set[tuple[str, int]] = set()

    def use_views() -> None:
        with opened(kind, screen, 3) as views:
            for k in range(3):
                views[1].update(value(kind, k))
                for view, user in zip(views, VIEW_USERS, strict=False):
                    user.take(view, screen)
                    view_pixels(view, screen, user.rect)
                    view.tick(clock())
            assert opengl_objects() - initial or kind == "stub"

    # The first use makes what a context has once.
    use_views()
    initial = opengl_objects()
    use_views()
    assert opengl_objects() == initial


def test_state_with_a_place_can_be_seen_whole_by_others(
    pair: list[ShownView], kind: str, screen: OffscreenScreen
) -> None:
    leader, follower = pair
    leader.update(value(kind))
    VIEW_USERS[1].take(leader, screen)
    leader.handle(Wheel(20, 20, 1), RECT)
    state = leader.view.state
    has_camera_place = any(field.name == "place" for field in fields(state))
    assert isinstance(state, PlacedState) == has_camera_place
    if not isinstance(state, PlacedState):
        return
    assert leader.another_view().view.state == replace(state, place=type(state.place)())
    leader.rect = Rect(0, 0, 100, 400)
    follower.rect = Rect(0, 0, 400, 100)
    follower.follow(leader)
    assert follower.view.state.place == state.place.seen_from(leader.rect)


def test_following_view_shows_the_same_picture(
    pair: list[ShownView], kind: str, screen: OffscreenScreen
) -> None:
    leader, follower = pair
    user = VIEW_USERS[1]
    leader.update(value(kind))
    user.take(leader, screen)
    for _ in range(3):
        expected = user_pixels(leader, screen, user)
        follower.follow(leader, alike=True)
        np.testing.assert_array_equal(user_pixels(follower, screen, user), expected)
        leader.handle(Wheel(20, 20, 1), user.rect)
    expected = user_pixels(leader, screen, user)
    # From here on the follower moves by itself.
    follower.handle(Wheel(20, 20, -3), user.rect)
    assert (user_pixels(follower, screen, user) != expected).any()
    np.testing.assert_array_equal(user_pixels(leader, screen, user), expected)
