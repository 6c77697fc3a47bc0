"""A page that draws several scenes by itself, and the hands that move their cameras."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.drawing_pages import DrawingPage
from support.house import House
from support.pages import pages_of, screenshot, touch
from support.renderer_cases import psnr
from support.scene_files import ply_columns, truth, write_ply

from splatview_viewer.compare.arrangement import pair_view, set_pair_mode
from splatview_viewer.compare.comparisons import Comparisons
from splatview_viewer.core.screen import read_pixels
from splatview_viewer.scene_view.navigate import Navigate
from splatview_viewer.web.address import local_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from splatview_viewer.compare.pair import PairStateMode
    from splatview_viewer.core.screen import KeysOwner
    from splatview_viewer.shell.viewport import Viewport

INTERFACE = {"interface", "layout", "caption"}
"""What comes also while nothing moves: the viewer counts the seconds of a training."""
HANDS = {"ack", "place", "measured"}
"""What the page sends of a hand that moves cameras, and of what it has seen."""
HIDE = """for (const id of ["canvas", "drawcorner"]) {
  document.getElementById(id).style.visibility = "hidden";
}"""
SHOW = HIDE.replace("hidden", "")
SPLIT: PairStateMode = "split"
MODES: tuple[PairStateMode, ...] = (SPLIT, "blend", "difference")


class PanesPage(DrawingPage):
    """A page of two scenes, in one pane or two."""

    def __init__(self, house: House, tab: Page) -> None:
        super().__init__(house, tab)
        self.until_drawn()
        slots = self.user.catalogue.slots
        house.until(lambda: self.user.layout.active.key in slots)
        self.shown_key = self.user.layout.active.key or ""
        self.other_key = next(key for key in slots if key != self.shown_key)

    @property
    def comparisons(self) -> Comparisons:
        features = self.user.catalogue.features
        return next(feature for feature in features if isinstance(feature, Comparisons))

    def until_pane(self, index: int = 0, **expected: Any) -> None:
        """Wait until the state of a pane is so."""

        def is_so() -> bool:
            panes = self.panes
            return len(panes) > index and panes[index].items() >= expected.items()

        self.house.until(is_so)

    def until_all_drawn(self, count: int) -> None:
        """Wait until the page draws so many panes, and no others."""

        def are_drawn() -> bool:
            panes = self.panes
            return len(panes) == count and all(pane["shown"] for pane in panes)

        self.house.until(are_drawn)

    def until_keys_of(self, owner: KeysOwner) -> None:
        """Wait until the page knows what takes keys."""

        def is_known_there() -> bool:
            return self.tab.evaluate("splatview.state().keys") == owner

        self.house.until(is_known_there)

    def center(self) -> tuple[int, int]:
        """Return the middle of the active pane."""
        rect = self.user.layout.active.rect
        return rect.x + rect.width // 2, rect.y + rect.height // 2

    @contextmanager
    def dragging(self, dx: int, dy: int) -> Iterator[None]:
        """Drag the mouse from the middle of the active pane, and hold it there."""
        x, y = self.center()
        mouse = self.tab.mouse
        mouse.move(x, y)
        self.tab.evaluate("0")
        self.forget()
        mouse.down()
        mouse.move(x + dx // 2, y + dy // 2)
        mouse.move(x + dx, y + dy)
        try:
            yield
        finally:
            mouse.up()

    def until_like_the_viewer(self, viewport: Viewport) -> None:
        """Wait until a pane shows what the viewer would draw in it."""
        rect = viewport.rect
        framebuffer = self.user.screen.framebuffer
        viewport.draw(framebuffer)
        drawn = read_pixels(framebuffer)[..., :3].astype(float)
        rows = slice(rect.y, rect.y + rect.height)
        columns = slice(rect.x, rect.x + rect.width)
        expected = drawn[rows, columns]
        assert np.ptp(expected) > 100

        def is_alike() -> bool:
            # What lies over it is not part of the picture.
            self.tab.evaluate(HIDE)
            pixels = screenshot(self.tab)[rows, columns].astype(float)
            self.tab.evaluate(SHOW)
            return psnr(pixels, expected, 255) >= 55

        self.house.until(is_alike)


@pytest.fixture(scope="module")
def opened(
    tmp_path_factory: pytest.TempPathFactory, chromium: Browser
) -> Iterator[PanesPage]:
    """Yield a page with two scenes, of which the first is shown."""
    folder = tmp_path_factory.mktemp("scenes")
    scene = truth(400)
    inverted = replace(scene, sh0=-scene.sh0)
    files = [
        write_ply(folder / "scene.ply", ply_columns(scene)),
        write_ply(folder / "other.ply", ply_columns(inverted)),
    ]
    with House(*files) as house, pages_of(chromium) as open_page:
        url = local_url(house.browsers.server) + "&draw=here"
        tab = open_page(url, (800, 500), expected="ReadPixels", has_touch=True)
        yield PanesPage(house, tab)


@pytest.fixture
def drawing(opened: PanesPage) -> PanesPage:
    """Return the page as it draws the first scene alone."""
    switch = "document.getElementById('drawhere')"
    opened.tab.evaluate(f"{switch}.checked || {switch}.click()")
    layout = opened.user.layout
    for viewport in list(layout)[1:]:
        layout.remove(viewport)
    if layout.active.key != opened.shown_key:
        layout.active.select(opened.shown_key)
    opened.until_all_drawn(1)
    opened.until_camera_is_known()
    opened.forget()
    return opened


def test_two_scenes_are_compared_in_the_page(drawing: PanesPage) -> None:
    viewport = drawing.user.layout.active
    drawing.comparisons.compare("pair", viewport, drawing.other_key)
    view = pair_view(viewport)
    assert view is not None

    def has_psnr() -> bool:
        return view.psnr is not None

    for mode in MODES:
        view.psnr = None
        set_pair_mode(viewport, mode)
        drawing.house.until(has_psnr)
        drawing.until_like_the_viewer(viewport)
    page_psnr = view.psnr
    view.psnr = None
    drawing.tab.click("#draws")
    drawing.tab.uncheck("#drawhere")
    drawing.tab.click("#draws")

    def is_lossless() -> bool:
        is_drawn_here = drawing.pane["shown"]
        return not is_drawn_here and drawing.tab.evaluate("splatview.state().lossless")

    drawing.house.until(is_lossless)
    drawing.house.until(has_psnr)
    assert view.psnr == pytest.approx(page_psnr, abs=0.1)


def test_tied_panes_move_together_in_the_page(drawing: PanesPage) -> None:
    drawing.user.show_beside(drawing.other_key)
    drawing.until_all_drawn(2)
    drawing.until_camera_is_known()
    drawing.forget()
    with drawing.dragging(40, 15):
        drawing.until_pane(0, moving=True)
        drawing.until_pane(1, moving=True)
        first, second = drawing.panes
        assert first["place"]["rotation"] == second["place"]["rotation"]
        assert set(drawing.sent_kinds) <= HANDS
        assert set(drawing.received_kinds) <= INTERFACE
    drawing.until_camera_is_known()
    assert drawing.sent_kinds.count("place") == 1
    for viewport in drawing.user.layout.visible_viewports:
        drawing.until_like_the_viewer(viewport)
    # One that is tied no longer stays where it is.
    untied = drawing.user.layout.visible_viewports[0]
    assert untied is not drawing.user.layout.active
    drawing.comparisons.switch_tie(untied)
    drawing.until_pane(link=None)
    untied_place = drawing.pane["place"]
    with drawing.dragging(-30, 0):
        drawing.until_pane(1, moving=True)
        assert not drawing.pane["moving"]
    drawing.until_camera_is_known()
    assert drawing.pane["place"] == untied_place


def test_fingers_and_pens_move_the_camera_in_the_page(drawing: PanesPage) -> None:
    cdp = drawing.tab.context.new_cdp_session(drawing.tab)
    x, y = drawing.center()
    touch(cdp, "Start", (x, y))
    touch(cdp, "Move", (x + 30, y))
    touch(cdp, "Move", (x + 60, y))
    drawing.until_pane(moving=True)
    touch(cdp, "End")
    drawing.until_sent("place")
    drawing.until_camera_is_known()
    distance = drawing.pane["place"]["distance"]
    touch(cdp, "Start", (x - 40, y))
    touch(cdp, "Start", (x - 40, y), (x + 40, y))
    for step in range(1, 4):
        angle = 0.2 * step
        dx = (40 + 10 * step) * math.cos(angle)
        dy = (40 + 10 * step) * math.sin(angle)
        touch(cdp, "Move", (x - dx, y - dy), (x + dx, y + dy))
    drawing.until_pane(moving=True)
    touch(cdp, "End", (x, y))
    touch(cdp, "End")
    drawing.until_sent("place", 2)
    drawing.until_camera_is_known()
    assert drawing.pane["place"]["distance"] < 0.8 * distance
    pen = {"button": "left", "buttons": 1, "pointerType": "pen"}
    for kind, dx in (("Pressed", 0), ("Moved", 20), ("Moved", 40), ("Released", 40)):
        event = {"type": f"mouse{kind}", "x": x + dx, "y": y, **pen}
        cdp.send("Input.dispatchMouseEvent", event)
    drawing.until_sent("place", 3)
    drawing.until_camera_is_known()
    assert not {"press", "release", "pinch"} & set(drawing.sent_kinds)
    assert set(drawing.received_kinds) <= INTERFACE | {"handedscene"}
    # A double tap is the viewer's, at one point.
    for _ in range(2):
        drawing.tab.touchscreen.tap(x, y)
    drawing.until_sent("release", 2)
    assert drawing.sent_kinds.count("press") == 2
    assert drawing.sent_kinds.count("place") == 3


def test_keys_are_those_of_the_picture_or_of_a_menu(drawing: PanesPage) -> None:
    keyboard = drawing.tab.keyboard
    x, y = drawing.center()
    drawing.tab.mouse.move(x, y)
    keyboard.down("ArrowRight")
    drawing.until_pane(moving=True)
    keyboard.up("ArrowRight")
    drawing.until_sent("place")
    drawing.until_camera_is_known()
    assert "key" not in drawing.sent_kinds

    # The wheel sets the speed of flying.
    view: Any = drawing.user.view

    def is_flying() -> bool:
        return view.view.tools.of(Navigate).drag_looks

    def is_fast() -> bool:
        return drawing.pane["speed"] > 1.2

    keyboard.press("o")
    drawing.house.until(is_flying)
    drawing.forget()
    drawing.tab.mouse.wheel(0, -300)
    drawing.house.until(is_fast)
    assert "place" not in drawing.sent_kinds
    keyboard.press("o")
    # The menu of the strip above the picture.
    rect = drawing.user.layout.active.rect
    drawing.tab.mouse.click(rect.x + rect.width - 17, rect.y - 14)
    drawing.until_keys_of("popup")
    drawing.forget()
    keyboard.press("ArrowDown")
    keyboard.press("d")
    drawing.until_sent("key", 4)
    assert not drawing.pane["moving"]
    # What the menu leaves with a button, a hand in the picture takes back.
    keyboard.press("Escape")
    drawing.until_keys_of("control")
    with drawing.dragging(10, 10):
        drawing.until_pane(moving=True)
    drawing.until_keys_of("picture")


def test_a_camera_stays_when_the_connection_is_lost(drawing: PanesPage) -> None:
    """The last test of the page: its new connection must not outlive it."""
    user = drawing.user
    start = drawing.pane["place"]

    def is_away() -> bool:
        return not drawing.tab.evaluate("splatview.state().connected")

    with drawing.dragging(50, 10):
        drawing.until_pane(moving=True)
        user.screen.close()
        drawing.house.until(is_away)
    moved = drawing.pane["place"]
    assert moved["rotation"] != start["rotation"]

    def has_returned() -> bool:
        return user in drawing.house.app.users

    drawing.house.until(has_returned)
    drawing.until_sent("place")
    drawing.until_camera_is_known()
    assert drawing.pane["place"]["rotation"] == pytest.approx(moved["rotation"])
    drawing.tab.goto("about:blank")
