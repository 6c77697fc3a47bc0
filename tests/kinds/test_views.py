"""One conformance suite over all views, then what each shows: pixels compared, on a real OpenGL context."""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.frames import cloud, gaussian_frame, image_frame, memory_frame, memory_samples, scalar_rows, scalars_frame
from support.memory_data import small_snapshot
from support.training_camera_cases import cameras_frame
from support.view_cases import H, W, shown
from support.wait import clock

import splatview.viewer_app.views
from splatview.viewer_app.controls import Rect
from splatview.viewer_app.errors import ViewerError
from splatview.viewer_app.state import ViewSettings
from splatview.viewer_app.views import KINDS, make_view
from splatview.viewer_app.views.gaussians import GaussianView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from splatview.viewer_app.screens.offscreen import OffscreenScreen
    from splatview.viewer_app.views.base import View

SAMPLES: dict[str, Callable[..., Any]] = {
    "image": lambda **more: image_frame(torch.rand(20, 30, 3, generator=torch.Generator().manual_seed(1)), **more),
    "gaussians": lambda **more: gaussian_frame(**more),
    "memory": lambda **more: memory_frame(**more),
    "scalars": lambda **more: scalars_frame(**more),
    "snapshot": lambda: small_snapshot(0),
    "cameras": lambda **more: cameras_frame(**more),
}
OTHERS: dict[str, Callable[..., Any]] = {
    "image": lambda **more: image_frame(torch.zeros(7, 9, dtype=torch.uint8), **more),
    "gaussians": lambda **more: gaussian_frame(cloud(50, seed=3), **more),
    "memory": lambda **more: memory_frame(memory_samples(50, 1.0), **more),
    "scalars": lambda **more: scalars_frame(scalar_rows(90, 1), **more),
    "snapshot": lambda: small_snapshot(1),
    "cameras": lambda **more: cameras_frame(3, distance=2.0, **more),
}
STREAMS = [kind for kind in KINDS if kind != "snapshot"]
"""The kinds of which trainers publish frames."""


# -- every view ----------------------------------------------------------------------------------------------


@pytest.fixture(params=KINDS)
def view(request: pytest.FixtureRequest, screen: OffscreenScreen) -> Iterator[View]:
    v = make_view(request.param, screen.ctx, ViewSettings())
    yield v
    v.close()


@pytest.fixture(params=STREAMS)
def stream(request: pytest.FixtureRequest, screen: OffscreenScreen) -> Iterator[View]:
    """A view of what comes as frames."""
    v = make_view(request.param, screen.ctx, ViewSettings())
    yield v
    v.close()


def test_no_view_was_missed() -> None:
    modules = {m.name for m in pkgutil.iter_modules(splatview.viewer_app.views.__path__) if not m.name.startswith("_")}
    assert modules - {"base"} == set(KINDS) == set(SAMPLES)


def test_it_is_empty_at_first(view: View, screen: OffscreenScreen) -> None:
    assert view.empty
    assert view.details == []
    assert view.readout == ""
    pixels = shown(view, screen)
    assert (pixels == pixels[0, 0]).all()
    assert not view.tick(clock())


def test_it_shows_a_frame(view: View, screen: OffscreenScreen) -> None:
    assert view.update(SAMPLES[view.kind]())
    assert not view.empty
    pixels = shown(view, screen)
    assert pixels.std() > 10
    assert view.details
    assert view.path
    assert all(isinstance(ms, float) and ms >= 0 for ms in view.timings.values())
    np.testing.assert_array_equal(shown(view, screen), pixels)


def test_it_draws_all_of_its_rectangle_and_nothing_else(view: View, screen: OffscreenScreen) -> None:
    view.update(SAMPLES[view.kind]())
    rect = Rect(11, 5, 30, 21)
    marker = np.array([3, 250, 7])
    screen.framebuffer.clear(3 / 255, 250 / 255, 7 / 255, 1.0)
    pixels = shown(view, screen, rect)
    inside = np.zeros((H, W), bool)
    inside[5:26, 11:41] = True
    assert (pixels[~inside] == marker).all()
    assert not (pixels[inside] == marker).all(axis=-1).any()


def test_a_part_shows_what_the_whole_would(view: View, screen: OffscreenScreen) -> None:
    view.update(SAMPLES[view.kind]())
    part = shown(view, screen, Rect(11, 5, 30, 21))[5:26, 11:41]
    if isinstance(view, GaussianView):
        view.frame()
    screen.resize(30, 21)
    np.testing.assert_allclose(shown(view, screen), part, atol=1)


def test_a_torn_frame_changes_nothing(stream: View, screen: OffscreenScreen) -> None:
    stream.update(SAMPLES[stream.kind]())
    before = shown(stream, screen)
    details = stream.details
    assert not stream.update(OTHERS[stream.kind](intact=False))
    np.testing.assert_array_equal(shown(stream, screen), before)
    assert stream.details == details
    assert stream.update(OTHERS[stream.kind]())
    assert (shown(stream, screen) != before).any()


def test_memory_may_change_after_an_update(stream: View, screen: OffscreenScreen) -> None:
    frame = SAMPLES[stream.kind]()
    stream.update(frame)
    before = shown(stream, screen)
    for tensor in frame.tensors.values():
        tensor.array[...] = 0
    if isinstance(stream, GaussianView):
        stream.settings.sh_degree = 0  # so that it draws anew
    np.testing.assert_array_equal(shown(stream, screen), before)


def test_it_refuses_what_it_cannot_show(view: View) -> None:
    wrong: Any = np.zeros((2, 3, 4, 5)) if view.kind == "image" else np.zeros((5, 5, 3), np.uint8)
    with pytest.raises(ViewerError):
        view.update(wrong)
    assert view.empty


def test_tiny_rectangles(view: View, screen: OffscreenScreen) -> None:
    view.update(SAMPLES[view.kind]())
    for rect in (Rect(0, 0, 1, 1), Rect(63, 47, 1, 1), Rect(0, 0, W, 1), Rect(5, 0, 1, H)):
        shown(view, screen, rect)


def test_close_is_idempotent(view: View) -> None:
    view.update(SAMPLES[view.kind]())
    view.close()
    view.close()
