"""A page that draws a published scene by itself, and moves its camera."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.drawing_pages import DrawingPage
from support.frames import SIZE, cloud, photographs, ring
from support.house import House
from support.pages import pages_of
from support.renderer_cases import psnr

import splatview
from splatview_viewer.core.screen import SceneDrawing
from splatview_viewer.core.selection import EVERYTHING
from splatview_viewer.scene_view.frustums import Frustums
from splatview_viewer.web.address import local_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Route


INTERFACE = {"interface", "layout", "caption"}
"""What comes also while nothing moves: the viewer counts the seconds of a training."""
COMPARISONS: dict[str, float] = {"photo": 45, "side": 42, "wipe": 45}
"""Decibels to the viewer's picture for each place of a photograph, which comes as a JPEG.
Beside it the page draws in the size that is seen, while the viewer makes its picture
smaller."""
PAINTS_BELOW = {"photo": "depth"}
"""What is shown below it other than colours."""
COMPARED = np.s_[40:330, 100:460]
"""The part of a pane where the interface writes nothing."""


def publish_cloud(step: int) -> None:
    scene = cloud()
    scene["sh0"] = scene["sh0"][:, None]
    splatview.publish(scene, "splats", meta={"step": step})


def refuse_script(route: Route) -> None:
    """Answer with a script that no browser can read."""
    route.fulfill(body="}", content_type="text/javascript")


@pytest.fixture
def drawing(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    chromium: Browser,
) -> Iterator[DrawingPage]:
    monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
    publish_cloud(1)
    with House() as house, pages_of(chromium) as open_page:
        url = local_url(house.browsers.server) + "&draw=here"
        tab = open_page(url, (800, 500), expected="ReadPixels")
        page = DrawingPage(house, tab)
        page.until_drawn()
        yield page
    sys.modules["splatview.api.session"].session().close()


def test_camera_moves_in_the_page_and_costs_the_viewer_nothing(
    drawing: DrawingPage,
) -> None:
    mouse = drawing.tab.mouse
    rect = drawing.user.layout.active.rect
    x = rect.x + rect.width // 2
    y = rect.y + rect.height // 2
    mouse.move(x, y)
    first_place = drawing.pane["place"]
    drawing.forget()
    mouse.down()
    mouse.move(x + 60, y + 20)
    mouse.move(x + 90, y + 30)
    drawing.house.until(drawing.is_moving)
    assert drawing.pane["place"]["rotation"] != first_place["rotation"]
    assert set(drawing.sent_kinds) <= {"ack"}
    mouse.up()
    drawing.until_camera_is_known()
    assert drawing.sent_kinds.count("place") == 1
    assert not {"press", "release"} & set(drawing.sent_kinds)
    assert set(drawing.received_kinds) <= INTERFACE | {"handedscene"}
    # A wheel that rests, and keys that are let go, are moves as well.
    drawing.forget()
    mouse.wheel(0, 300)
    drawing.until_sent("place")
    drawing.until_camera_is_known()
    drawing.tab.keyboard.down("d")
    drawing.house.until(drawing.is_moving)
    drawing.tab.keyboard.up("d")
    drawing.until_sent("place", 2)
    drawing.until_camera_is_known()
    assert not {"wheel", "key", "text"} & set(drawing.sent_kinds)
    # A click is the viewer's.
    drawing.forget()
    mouse.click(x, y)
    drawing.until_sent("release")
    assert "press" in drawing.sent_kinds
    assert "place" not in drawing.sent_kinds
    page_pixels = drawing.picture()
    drawing.tab.click("#draws")
    drawing.tab.uncheck("#drawhere")
    drawing.tab.click("#draws")
    drawing.house.until(drawing.is_lossless)
    viewer_pixels = drawing.picture()
    assert np.ptp(viewer_pixels) > 100
    assert psnr(page_pixels, viewer_pixels, 255) >= 55


def own_drawing(page: DrawingPage) -> SceneDrawing:
    """Return what the page has told the viewer last."""
    drawing = page.user.screen.state.drawing
    assert drawing is not None
    return drawing


def is_unable(house: House) -> bool:
    """Return whether a page is there and says that it cannot draw."""
    screens = [user.screen.state for user in house.app.users]
    return any(s.drawing is not None and not s.drawing.is_possible for s in screens)


def has_size_of_pane(page: DrawingPage) -> bool:
    """Return whether the page draws as many pixels as the pane has."""
    script = (
        "(({width, height}) => [width, height])(document.querySelector('canvas.pane'))"
    )
    rect = page.user.layout.active.rect
    return page.tab.evaluate(script) == [rect.width, rect.height]


def until_viewer_draws(page: DrawingPage, last_number: int) -> None:
    """Wait for the viewer's exact picture, one after that of a number."""
    page.house.until(lambda: not own_drawing(page).is_on)
    page.house.until(lambda: picture_number(page) > last_number and page.is_lossless())


LOSE_GPU = """() => {
  const gl = document.querySelector("canvas.pane").getContext("webgl2");
  window.loss = gl.getExtension("WEBGL_lose_context");
  loss.loseContext();
}"""
SET_HIDDEN = """(hidden) => {
  Object.defineProperty(document, "hidden", {get: () => hidden, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_the_viewer_draws_while_the_page_cannot(drawing: DrawingPage) -> None:
    house = drawing.house
    tab = drawing.tab
    page_pixels = drawing.picture()
    last_number = picture_number(drawing)
    tab.evaluate(LOSE_GPU)
    until_viewer_draws(drawing, last_number)
    assert "has taken the GPU" in own_drawing(drawing).reason
    assert psnr(page_pixels, drawing.picture(), 255) >= 55
    drawing.forget()
    tab.evaluate("loss.restoreContext()")
    drawing.until_drawn()
    assert own_drawing(drawing) == SceneDrawing(True, True)
    assert "scenebegin" in drawing.received_kinds
    assert psnr(page_pixels, drawing.picture(), 255) >= 55
    # The user's choice, in the viewer's panel.
    last_number = picture_number(drawing)
    drawing.user.screen.desktop.ask("draw_there")
    until_viewer_draws(drawing, last_number)
    assert own_drawing(drawing).is_possible
    assert "draw=there" in tab.url
    drawing.user.screen.desktop.ask("draw_here")
    drawing.until_drawn()
    # The page gets another size and other pixels, and is hidden for a while.
    tab.set_viewport_size({"width": 640, "height": 420})
    house.until(lambda: has_size_of_pane(drawing))
    session = tab.context.new_cdp_session(tab)
    metrics = {"width": 640, "height": 420, "deviceScaleFactor": 2, "mobile": False}
    session.send("Emulation.setDeviceMetricsOverride", metrics)
    house.until(lambda: drawing.user.screen.state.scale == 2)
    house.until(lambda: has_size_of_pane(drawing))
    tab.evaluate(SET_HIDDEN, True)
    house.until(lambda: not drawing.user.screen.state.visible)
    drawing.forget()
    version = drawing.pane["version"]
    publish_cloud(2)
    tab.evaluate(SET_HIDDEN, False)
    house.until(lambda: drawing.pane["version"] > version)
    assert "scenebegin" in drawing.received_kinds
    assert drawing.is_shown()
    # A browser that is too old for the scripts.
    tab.route("**/splats/choice.js", refuse_script)
    tab.reload()
    house.until(lambda: is_unable(house))
    assert "cannot run" in own_drawing(drawing).reason
    house.until(drawing.is_lossless)


def picture_number(drawing: DrawingPage) -> int:
    """Return the number of the viewer's picture that was shown last."""
    return drawing.tab.evaluate("splatview.state().number")


def test_what_lies_over_the_scene_is_that_of_the_viewer(drawing: DrawingPage) -> None:
    """Marks, numbers by colours, and photographs in all places."""
    views, Ks = ring(4)
    splatview.publish_cameras(views, Ks, *SIZE, photographs(4))
    shown_view: Any = drawing.user.view
    view = shown_view.view
    frustums = view.tools.of(Frustums)
    drawing.tab.keyboard.press("h")
    drawing.house.until(lambda: frustums.content is not None)
    frustums.enter(1, 0.0)
    selection = replace(EVERYTHING, marked=tuple(range(0, 400, 10)))
    view.change(selection=selection)

    def compare(name: str) -> None:
        frustums.change(comparison=name, opacity=0.4)
        view.change(show=PAINTS_BELOW.get(name, "color"))
        drawing.user.mark()

    def has_newer_picture(previous: int) -> bool:
        return picture_number(drawing) > previous and drawing.is_lossless()

    def has_photo() -> bool:
        content = frustums.content
        return content is not None and frustums.through.photo(content) is not None

    drawing.house.until(has_photo)
    drawing.user.screen.desktop.ask("draw_there")
    drawing.house.until(drawing.is_lossless)
    expected = {}
    for name in COMPARISONS:
        previous = picture_number(drawing)
        compare(name)
        drawing.house.until(partial(has_newer_picture, previous))
        expected[name] = drawing.picture()[COMPARED]
        assert np.ptp(expected[name]) > 100
    drawing.user.screen.desktop.ask("draw_here")
    drawing.until_drawn()
    drawing.forget()

    def is_alike(name: str) -> bool:
        likeness = psnr(drawing.picture()[COMPARED], expected[name], 255)
        return likeness >= COMPARISONS[name]

    for name in COMPARISONS:
        compare(name)
        drawing.house.until(partial(is_alike, name))
    assert "picture" not in drawing.received_kinds
    assert drawing.received_kinds.count("photo") <= 1, "it is sent once"
    # The line between both is the viewer's to drag.
    rect = drawing.user.layout.active.rect
    x = rect.x + rect.width // 2
    y = rect.y + rect.height // 4
    drawing.tab.mouse.move(x, y)
    drawing.tab.mouse.down()
    drawing.tab.mouse.move(x + 60, y)
    drawing.house.until(lambda: view.state.training.divider_position > 0.55)
    drawing.tab.mouse.up()
    assert frustums.through.is_there
    assert drawing.is_shown()
    # What needs a picture of the viewer's comes as one.
    compare("error")
    drawing.house.until(drawing.is_lossless)
    assert "Errors" in drawing.pane["reason"]
