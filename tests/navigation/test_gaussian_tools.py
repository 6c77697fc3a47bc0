"""One conformance suite over all tools of the view of Gaussians, and a look that none was missed."""

from __future__ import annotations

import inspect
import math
import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.frames import gaussian_frame
from support.view_cases import RECT, module_screen, screen_fixture, shown  # noqa: F401

import splatview.viewer_app.views._gaussians
from splatview.viewer_app.controls import Rect
from splatview.viewer_app.events import Key, Pinch, PointerLeave, PointerMove, PointerPress, PointerRelease, Text, Wheel
from splatview.viewer_app.interface.panel import Panel
from splatview.viewer_app.views._gaussians import tool as tools
from splatview.viewer_app.views._gaussians.tool import Tool
from splatview.viewer_app.views.gaussians import GaussianView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview.viewer_app.screens.offscreen import OffscreenScreen

NAMES = list(tools._TOOLS)
EVENTS = (
    PointerMove(40, 30), PointerPress(40, 30), PointerMove(44, 32), PointerRelease(44, 32), PointerLeave(),
    PointerPress(40, 30, "right"), PointerRelease(40, 30, "right"), PointerPress(40, 30, clicks=2),
    PointerRelease(40, 30), Wheel(40, 30, 1.0), Wheel(40, 30, 0.0, 1.0), Pinch(40, 30, 1.1, 2, 1), Text("x"), Text("?"),
    *(Key(name, pressed) for name in ("w", "q", "f", "escape", "space", "shift", "1", "delete")
      for pressed in (True, False)),
)


def test_every_module_with_a_tool_is_registered() -> None:
    found = set()
    for module in pkgutil.iter_modules(splatview.viewer_app.views._gaussians.__path__):
        loaded = import_module(f"splatview.viewer_app.views._gaussians.{module.name}")
        found |= {module.name for _, cls in inspect.getmembers(loaded, inspect.isclass)
                  if issubclass(cls, Tool) and cls is not Tool and cls.__module__ == loaded.__name__}
    assert found == set(tools._TOOLS)


@pytest.fixture
def view(screen: OffscreenScreen) -> Iterator[GaussianView]:
    made = GaussianView(screen.ctx)
    yield made
    made.close()


@pytest.fixture(params=NAMES)
def tool(request: pytest.FixtureRequest, view: GaussianView) -> Tool:
    cls = getattr(import_module(f"splatview.viewer_app.views._gaussians.{request.param}"), tools._TOOLS[request.param])
    return view.tools[cls.name]


@pytest.mark.parametrize("loaded", [False, True], ids=["empty", "loaded"])
def test_it_takes_every_event_with_and_without_a_scene(tool: Tool, view: GaussianView, screen: OffscreenScreen,
                                                       loaded: bool) -> None:
    if loaded:
        assert view.update(gaussian_frame())
        shown(view, screen)
    for event in EVENTS:
        assert tool.handle(event, RECT) in (None, True, False)
        assert tool.tick(0.0) in (True, False)
    shown(view, screen)


@pytest.mark.parametrize("loaded", [False, True], ids=["empty", "loaded"])
def test_it_draws_in_every_place_and_leaves_it_tidy(tool: Tool, view: GaussianView, screen: OffscreenScreen,
                                                    loaded: bool) -> None:
    if loaded:
        assert view.update(gaussian_frame())
        shown(view, screen)
    panel = Panel()
    try:
        for rect, scale in ((RECT, 1.0), (Rect(0, 0, 8, 8), 2.0)):
            def over(_: Rect, s: float, rect: Rect = rect) -> bool:
                changed = [tool.over(rect, s), tool.bar(rect, s), *(part.draw() for part in tool.sections())]
                assert set(changed) <= {True, False}
                return False

            panel.draw_over(screen.framebuffer, over, scale)
            assert all(isinstance(board, Rect) for board in tool.boards(rect))
        assert tool.bar_height() >= 0
        assert math.isfinite(tool.bar_height())
    finally:
        panel.close()


def test_untouched_it_changes_nothing_that_is_seen(view: GaussianView, tool: Tool, screen: OffscreenScreen) -> None:
    assert view.update(gaussian_frame())
    before = shown(view, screen)
    tool.draw(screen.framebuffer, RECT)
    np.testing.assert_array_equal(screen.pixels()[..., :3], before[..., :3])


def test_it_follows_the_same_tool_of_somebody_else(view: GaussianView, tool: Tool) -> None:
    other = view.beside(view.settings)
    try:
        tool.like(other.tools[tool.name])  # type: ignore[attr-defined]
    finally:
        other.close()


def test_its_keys_are_said_in_words(tool: Tool) -> None:
    assert tool.name
    for line in tool.keys:
        assert line.group and line.keys and line.does


def test_closing_twice_is_fine(tool: Tool) -> None:
    tool.close()
    tool.close()


def test_keys_are_told_of_tools_that_have_something_to_do(view: GaussianView) -> None:
    assert view.update(gaussian_frame())
    told = {line.group for line in view.keys}
    assert "Camera" in told
    assert not told & {"Training cameras", "History"}  # there are none
