"""Views that are tied are where the one is that was moved last."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.frames import gaussian_frame, image_frame
from support.view_cases import RECT, image_view, see, shown

from splatview_viewer.compare.tie import Tie
from splatview_viewer.core.events import PointerMove, PointerPress, PointerRelease, Wheel
from splatview_viewer.core.settings import GaussianSettings
from splatview_viewer.kinds.gaussians.view import GaussianView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview_viewer.screens.offscreen import OffscreenScreen

DRAG = PointerPress(40, 30), PointerMove(52, 24), PointerRelease(52, 24)


@pytest.fixture(params=["gaussians", "image"])
def pair(request: pytest.FixtureRequest, screen: OffscreenScreen) -> Iterator[list[Any]]:
    """Two views of the same content, each loaded by itself."""
    views: list[Any] = []
    for _ in range(2):
        if request.param == "gaussians":
            view: Any = GaussianView(screen.ctx, GaussianSettings(coarse_ms=math.inf, reproject=False))
            assert view.update(gaussian_frame())
        else:
            view = image_view(screen)
            assert view.update(image_frame(np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8)))
        shown(view, screen)
        views.append(view)
    yield views
    for view in views:
        view.close()


def same(views: list[Any], screen: OffscreenScreen) -> bool:
    return bool((shown(views[0], screen) == shown(views[1], screen)).all())


def use(view: Any, *events: Any) -> None:
    for event in events:
        view.handle(event, RECT)


@pytest.mark.parametrize("leader", [0, 1])
def test_whoever_is_moved_leads(pair: list[Any], screen: OffscreenScreen, leader: int) -> None:
    tie = Tie()
    tie.pull(pair)
    use(pair[leader], Wheel(40, 30, 4.0), *DRAG)
    assert not same(pair, screen)
    moved = shown(pair[leader], screen)
    assert tie.pull(pair)
    assert same(pair, screen)
    np.testing.assert_array_equal(shown(pair[leader], screen), moved)
    assert not tie.pull(pair)


def test_new_ones_are_where_the_others_are(pair: list[Any], screen: OffscreenScreen) -> None:
    tie = Tie()
    tie.pull(pair[1:])
    use(pair[1], Wheel(40, 30, 4.0), *DRAG)
    tie.pull(pair[1:])
    moved = shown(pair[1], screen)
    tie.pull(pair)
    np.testing.assert_array_equal(shown(pair[0], screen), moved)


def paint(view: Any, color: tuple[float, float, float]) -> None:
    if view.kind == "image":
        see(view, background=color)
    else:
        view.settings.background = color


def background(view: Any) -> Any:
    return view.view.state.background if view.kind == "image" else view.settings.background


def test_settings_only_if_they_are_tied(pair: list[Any]) -> None:
    tie = Tie()
    tie.pull(pair)
    paint(pair[1], (0.2, 0.3, 0.4))
    before = background(pair[0])
    use(pair[1], Wheel(40, 30, 1.0))
    tie.pull(pair)
    assert background(pair[0]) == before
    tie = Tie(settings=True)
    tie.pull(pair[1:])
    tie.pull(pair)
    assert background(pair[0]) == (0.2, 0.3, 0.4)
    paint(pair[0], (0.5, 0.5, 0.5))
    tie.pull(pair)
    assert background(pair[1]) == (0.5, 0.5, 0.5)
