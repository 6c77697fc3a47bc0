"""What the view of Gaussians does with frames on a GPU, as far as it can be told without one: when they are read, and
what happens when one is overwritten."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.device_frames import Reader, Shared
from support.frames import cloud
from support.view_cases import RECT, shown
from support.wait import PATIENCE

from splatview.viewer_app.events import PointerMove, PointerPress
from splatview.viewer_app.views._gaussians import content
from splatview.viewer_app.views.gaussians import GaussianView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview.viewer_app.screens.offscreen import OffscreenScreen


@pytest.fixture(autouse=True)
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: SimpleNamespace(cuda_stream=0))


@pytest.fixture
def reader(screen: OffscreenScreen) -> Reader:
    return Reader(screen.ctx)


@pytest.fixture
def gaussians(screen: OffscreenScreen, reader: Reader) -> Iterator[GaussianView]:
    v = GaussianView(screen.ctx, renderer=reader)
    yield v
    v.close()


def scene(seed: int = 0, **more: Any) -> Shared:
    meta = {"color": "sh", "activated": False, "sh_degree": 0, "antialiased": False} | more
    return Shared("gaussians", cloud(seed=seed), **meta)


def unfinished(seed: int = 0) -> Shared:
    """A scene in place that the trainer's GPU is still writing."""
    return Shared("gaussians", cloud(seed=seed), lambda stream: None, color="sh", sh_degree=0)


def test_a_scene_is_read_with_the_picture_that_shows_it_and_held_until_then(
        gaussians: GaussianView, reader: Reader, screen: OffscreenScreen) -> None:
    shared = scene()
    assert shared.show(gaussians)
    assert not shared.released
    assert not gaussians.busy
    assert reader.loads == 0
    before = shown(gaussians, screen)
    assert before.max() > 50
    assert shared.released
    assert gaussians.path == ["parameters read in place", "gsplat renderer"]
    shown(gaussians, screen)
    assert reader.loads == reader.drawings == 1
    second = scene(seed=5)
    assert second.show(gaussians)
    assert (shown(gaussians, screen) != before).any()
    assert second.released
    assert reader.loads == reader.drawings == 2


def test_a_scene_that_has_not_arrived_comes_again_and_holds_nothing_up(
        gaussians: GaussianView, reader: Reader, screen: OffscreenScreen, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scene().show(gaussians)
    before = shown(gaussians, screen)
    monkeypatch.setattr(content, "_PATIENCE", PATIENCE)
    second = unfinished(5)
    assert not second.show(gaussians)
    assert second.released
    assert (shown(gaussians, screen) == before).all()
    assert reader.loads == 1
    arrived = unfinished(5)
    arrived.arrived = True
    assert arrived.show(gaussians)
    assert (shown(gaussians, screen) != before).any()


def test_of_scenes_between_two_pictures_only_the_last_is_read(gaussians: GaussianView, reader: Reader,
                                                              screen: OffscreenScreen) -> None:
    first, second = scene(), scene(seed=5)
    assert first.show(gaussians)
    assert second.show(gaussians)
    assert first.released
    assert not second.released
    shown(gaussians, screen)
    assert reader.loads == 1
    assert second.released


def test_a_scene_that_is_overwritten_while_it_is_read_is_never_seen(gaussians: GaussianView, reader: Reader,
                                                                    screen: OffscreenScreen) -> None:
    scene().show(gaussians)
    before = shown(gaussians, screen)
    torn = scene(seed=5)
    torn.show(gaussians)
    torn.whole = False
    np.testing.assert_array_equal(shown(gaussians, screen), before)
    assert gaussians.stale
    assert torn.released
    gaussians.orbit.handle(PointerPress(5, 5), RECT)
    gaussians.handle(PointerMove(20, 9), RECT)
    np.testing.assert_array_equal(shown(gaussians, screen), before)  # nothing whole is there to be drawn
    assert scene(seed=5).show(gaussians)
    assert not gaussians.stale
    assert (shown(gaussians, screen) != before).any()


def test_what_is_not_shown_any_more_holds_nothing(gaussians: GaussianView, reader: Reader,
                                                  screen: OffscreenScreen) -> None:
    gaussians.leave()
    shared = scene()
    shared.show(gaussians)
    gaussians.leave()
    assert shared.released
    assert reader.loads == 1
    assert shown(gaussians, screen).max() > 50
