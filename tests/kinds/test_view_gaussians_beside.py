"""What several views of Gaussians share, and what each has for itself: one renderer, pictures that last.

On a real OpenGL context; scenes on a GPU are stand-ins."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from support.beside_cases import LOOKS, VALUES, counted, opened
from support.device_frames import Reader, Shared
from support.frames import cloud
from support.view_cases import RECT, shown

from splatview.viewer_app.events import Wheel
from splatview.viewer_app.state import GaussianSettings
from splatview.viewer_app.views.gaussians import GaussianView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview.viewer_app.screens.offscreen import OffscreenScreen


@pytest.fixture(autouse=True)
def drawn_by_opengl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where gsplat could draw: these tests count what OpenGL's renderer does."""
    monkeypatch.setenv("SPLATVIEW_RENDERER", "gl")


def test_who_sees_the_same_has_it_drawn_once(screen: OffscreenScreen, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch)
    with opened("gaussians", screen, 3) as (a, b, c):
        pictures: list[np.ndarray] = []
        for value in VALUES["gaussians"]:
            a.update(value)
            calls.clear()
            pictures.clear()
            for view in (a, b, c):
                view.like(a)
                pictures.append(shown(view, screen))
            assert calls["drawn"] == 1
            assert all(view.picture._copy is None for view in (a, b, c))  # type: ignore[attr-defined]
            np.testing.assert_array_equal(pictures[1], pictures[0])
            np.testing.assert_array_equal(pictures[2], pictures[0])
        c.handle(Wheel(20, 20, 1), RECT)  # what the other two see is kept
        shown(c, screen)
        for view in (a, b):
            np.testing.assert_array_equal(shown(view, screen), pictures[0])
        assert calls["drawn"] == 2


# -- scenes in place, as far as can be told without a GPU ------------------------------------------------------


def scene(seed: int = 0) -> Shared:
    return Shared("gaussians", cloud(seed=seed), color="sh", activated=False, sh_degree=0, antialiased=False)


@pytest.fixture
def in_place(screen: OffscreenScreen, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[GaussianView]]:
    """Two views in different looks that show a scene in place."""
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: SimpleNamespace(cuda_stream=0))
    # However slow this is, its trainer lives, and what would need CUDA is not done a second time.
    for name in ("_REPLACED", "_LOOK_PERIOD"):
        monkeypatch.setattr(f"splatview.viewer_app.views._gaussians.content.{name}", 1e6)
    first = GaussianView(screen.ctx, renderer=Reader(screen.ctx))
    views = [first, first.beside(GaussianSettings())]
    scene().show(first)
    for view, look in zip(views, (LOOKS[0], LOOKS[2]), strict=True):
        look.take(view, screen)
        view._moved_at = -math.inf
        shown(view, screen)
    yield views
    for view in views:
        view.close()


def test_a_scene_in_place_is_read_with_the_first_picture_of_anybody(in_place: list[GaussianView],
                                                                    screen: OffscreenScreen) -> None:
    reader = in_place[0].content.renderer
    assert isinstance(reader, Reader)
    for k in range(4):
        loads, drawings = reader.loads, reader.drawings
        shared = scene(seed=k + 1)
        assert shared.show(in_place[k % 2])
        assert not shared.released
        before = [view.picture.of for view in in_place]
        for view in in_place:
            shown(view, screen)
            assert shared.released
        assert all(view.picture.of != b for view, b in zip(in_place, before, strict=True))
        assert (reader.loads - loads, reader.drawings - drawings) == (1, 2)


@pytest.mark.parametrize("turn", [0, 1])
def test_what_was_overwritten_while_it_was_read_is_never_seen_by_anybody(
        in_place: list[GaussianView], screen: OffscreenScreen, turn: int) -> None:
    """However many such scenes follow each other: the renderer draws into the memory of earlier pictures again."""
    before = [shown(view, screen) for view in in_place]
    for k in range(5):
        torn = scene(seed=k + 5)
        assert torn.show(in_place[k % 2])
        torn.whole = False
        for i in ((k + turn) % 2, (k + turn + 1) % 2):
            in_place[i].handle(Wheel(20, 20, 1), RECT)  # has it want another picture, too
            np.testing.assert_array_equal(shown(in_place[i], screen), before[i])
        assert torn.released
        assert all(view.stale for view in in_place)
    assert scene(seed=9).show(in_place[0])
    assert not any(view.stale for view in in_place)
    for view, pixels in zip(in_place, before, strict=True):
        assert (shown(view, screen) != pixels).any()


def test_the_last_view_gives_the_frame_back(in_place: list[GaussianView], screen: OffscreenScreen) -> None:
    shared = scene(seed=3)
    shared.show(in_place[0])
    in_place[0].close()
    assert not shared.released
    assert shown(in_place[1], screen).max() > 50
    assert shared.released
    shared = scene(seed=4)
    shared.show(in_place[1])
    in_place[1].close()
    assert shared.released
