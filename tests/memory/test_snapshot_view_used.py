"""The view of memory snapshots as a user has it, with imgui: bar, search, axes, panes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.snapshot_cases import small_snapshot
from support.view_cases import module_screen, screen_fixture  # noqa: F401
from support.wait import PATIENCE

from splatview.viewer_app.controls import Rect
from splatview.viewer_app.events import Key, PointerMove, PointerPress, PointerRelease, Text
from splatview.viewer_app.interface.panel import Panel
from splatview.viewer_app.memory.analysis import search
from splatview.viewer_app.shown import Shown
from splatview.viewer_app.state import State
from splatview.viewer_app.views._snapshot.state import TABS
from splatview.viewer_app.views.snapshot import SnapshotView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview.viewer_app.events import Event
    from splatview.viewer_app.memory.model import Snapshot
    from splatview.viewer_app.screens.offscreen import OffscreenScreen

pytestmark = pytest.mark.usefixtures("timeline_kernels")


class User:
    """Looks at a snapshot on a screen of its own size, with a panel."""

    def __init__(self, screen: OffscreenScreen, snapshot: Snapshot, size: tuple[int, int] = (1200, 760)) -> None:
        screen.resize(*size, 1.0)
        self.screen, self.view, self.panel = screen, SnapshotView(screen.ctx), Panel(1.0)
        self.view.update(snapshot)
        self.rect = Rect(0, 0, *size)
        self.settle()

    def draw(self) -> bool:
        view = self.view
        view.draw(self.screen.framebuffer, self.rect)
        shown = Shown(view.panel, view.sections, view.keys, view.over, view.details, view.extras, view.readout,
                      view.path, view.empty)
        return self.panel.draw(self.screen.framebuffer, State(panel_open=False), shown, 1.0).changed

    def settle(self) -> np.ndarray:
        """(H, W, 3): the picture when nothing is missing in it any more."""
        end, again = time.monotonic() + PATIENCE, 3
        while again:
            assert time.monotonic() < end
            again = 3 if self.draw() else again - 1
            if not self.view.complete:
                self.view.wait(1.0)
                again = 3
        return self.screen.pixels()[..., :3].astype(int)

    def do(self, *events: Event) -> None:
        for event in events:
            ours, _ = self.panel.handle(event, self.rect, str, self.view.boards(self.rect))
            if not ours:
                self.view.handle(event, self.rect)
            self.draw()
            self.draw()

    def click(self, x: float, y: float) -> None:
        self.do(PointerMove(x, y), PointerPress(x, y), PointerRelease(x, y))

    def close(self) -> None:
        self.panel.close()
        self.view.close()


@pytest.fixture
def user(screen: OffscreenScreen) -> Iterator[User]:
    made = User(screen, small_snapshot(0, 400))
    yield made
    made.close()


def test_words_stand_around_the_plot(user: User) -> None:
    pixels, layout = user.settle(), user.view._layout(user.rect)
    assert layout.plot is not None
    assert layout.minimap is not None
    assert layout.bar is not None
    p, m, b = layout.plot, layout.minimap, layout.bar
    beside = {"bytes": pixels[p.y: p.y + p.height, :p.x - 4], "events": pixels[p.y + p.height + 3: m.y - 3, p.x:],
              "bar": pixels[b.y: b.y + b.height]}
    for name, part in beside.items():
        assert (part.max(axis=-1) > 120).sum() > 50, name
    assert pixels[m.y: m.y + m.height, m.x: m.x + m.width].std() > 10


@pytest.mark.exhaustive
def test_tabs_are_clicked_and_every_one_is_drawn(user: User) -> None:
    seen = []
    for x in range(20, 900, 26):
        user.click(x, 20)
        if user.view.look.tab not in seen:
            seen.append(user.view.look.tab)
            user.settle()
    assert seen == [tab for tab in TABS if tab != "oom"]


def test_search_lights_what_it_finds(user: User) -> None:
    user.do(Key("slash"))
    user.draw()
    assert user.panel.typing
    user.do(Text("step_3"))
    pixels = user.settle()
    look, snapshot = user.view.look, small_snapshot(0, 400)
    want = search(snapshot, snapshot.traces[0], "step_3").mask
    assert 0 < want.sum() < len(want)
    assert look.hits is not None
    np.testing.assert_array_equal(look.hits, want)
    user.do(Key("escape"))
    look.search = ""
    assert (user.settle() != pixels).any()
    assert look.hits is None


def test_an_error_that_was_recorded_is_shown_at_once(screen: OffscreenScreen) -> None:
    made = User(screen, small_snapshot(1, 200, oom=True))
    assert made.view.look.tab == "oom"
    made.view.look.tab = "timeline"
    made.settle()
    assert made.view.look.tab == "timeline"
    made.close()


def test_a_click_opens_details_beside_the_plot(user: User) -> None:
    plot = user.view._layout(user.rect).plot
    assert plot is not None
    user.click(plot.x + plot.width / 2, plot.y + plot.height - 10)
    user.settle()
    layout = user.view._layout(user.rect)
    assert layout.details is not None
    assert layout.plot is not None
    assert layout.plot.width < plot.width
    before = user.view.look.selected
    user.click(layout.details.x + layout.details.width / 2, layout.details.y + layout.details.height - 20)
    assert user.view.look.selected == before is not None
    user.do(Key("escape"))
    assert user.view._layout(user.rect).details is None


def test_two_devices_have_a_look_of_their_own(screen: OffscreenScreen) -> None:
    made = User(screen, small_snapshot(2, 300, devices=2))
    first = made.settle()
    made.view.look.select(3)
    made.view.look.show_device(1)
    assert made.view.look.selected is None
    assert (made.settle() != first).any()
    assert made.view.details[0] == "2 devices"
    made.close()


@pytest.mark.parametrize("width", [640, 939, 1000, 1500])
def test_the_buttons_of_a_browsers_page_cover_no_search(screen: OffscreenScreen, width: int) -> None:
    """They come over the right end of the bar while the pointer moves."""
    made = User(screen, small_snapshot(0, 40), (width, 500))
    bar = made.settle()[4:36]
    assert (bar[:, -226:] == bar[0, -1]).all()
    made.do(Key("slash"))
    made.draw()
    made.do(Text("step_3"))
    assert made.view.look.search == "step_3"
    typed = made.settle()[4:36]
    assert (typed[:, -226:] == bar[0, -1]).all() and (typed != bar).any()
    made.close()


def test_the_size_of_a_screen_may_be_anything(screen: OffscreenScreen) -> None:
    made = User(screen, small_snapshot(0, 200), (390, 600))
    for tab in TABS:
        made.view.look.tab = tab
        made.view.look.select(2)
        made.settle()
    for size in ((200, 150), (64, 48), (700, 300)):
        screen.resize(*size, 1.0)
        made.rect = Rect(0, 0, *size)
        made.settle()
    made.close()


@pytest.mark.parametrize("tab", ["timeline", "events", "leaks"])
def test_two_beside_each_other_have_their_own_words(user: User, tab: str) -> None:
    """In one panel: the windows of one are not those of the other."""
    other = user.view.beside(user.view.settings)
    width, height = user.screen.size
    places = Rect(0, 0, width // 2, height), Rect(width // 2, 0, width // 2, height)
    try:
        for view in (user.view, other):
            view.look.tab = tab

        def over(_: Rect, scale: float) -> bool:
            return any([view.over(rect, scale) for view, rect in zip((user.view, other), places, strict=True)])

        end, again = time.monotonic() + PATIENCE, 6
        while again:
            assert time.monotonic() < end
            for view, rect in zip((user.view, other), places, strict=True):
                view.draw(user.screen.framebuffer, rect)
                view.wait(0.2)
            user.panel.draw_over(user.screen.framebuffer, over, 1.0)
            again = again - 1 if user.view.complete and other.complete else 6
        pixels = user.screen.pixels()[..., :3].astype(int)
        left, right = (pixels[:, r.x:r.x + r.width] for r in places)
        assert (left[:44].max(-1) > 120).sum() > 50
        np.testing.assert_array_equal(left, right)
    finally:
        other.close()
