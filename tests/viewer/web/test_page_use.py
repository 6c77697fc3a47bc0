"""A viewer in a browser, used as a person does: one after the other, on the same page."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.frames import SIZE, cloud, photographs, ring
from support.house import House
from support.leaks import OpenResources
from support.pages import on_canvas, pages_of
from support.placement import Box, placed_by

import splatview
from splatview_viewer.web.address import local_url

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route
    from playwright.sync_api import Page as Tab

    from splatview_viewer.shell.user import User


def abort(route: Route) -> None:
    """Answer no request."""
    route.abort()


TABS = ("Data", "Compare", "Film", "Look")
PHOTOS = photographs(8)
NO_FONTS = {"**/*.ttf": abort}
KEY_OF_WAY = {"Depth": "depth", "Colour": "color", "Normals": "normals"}
"""Ways to see a scene, by their buttons."""


def publish(step: int) -> None:
    """Publish two scenes and a curve, as a training does."""
    scene = cloud()
    scene["sh0"] = scene["sh0"][:, None]
    for name in ("splats", "others"):
        splatview.publish(scene, name, meta={"step": step})
    splatview.log(step, loss=1 / (1 + step))


class Stage:
    """A page in the browser, and the user of the viewer that it shows."""

    def __init__(self, house: House, tab: Tab, user: User) -> None:
        self.wait_for = house.until
        self.tab = tab
        self.user = user
        self._has_panel = user.interface.state.panel_open

    def start_over(self) -> None:
        """Undo what a test before has left, as one that failed does anywhere."""
        user = self.user
        self.tab.mouse.up()

        def is_closed() -> bool:
            if user.interface.surface.has_popup:
                self.press("Escape")
                self.rest()
            return not user.interface.surface.has_popup

        self.wait_for(is_closed)
        for viewport in user.layout.all[1:]:
            user.layout.remove(viewport)
        [key] = [entry.key for entry in user.state.entries if entry.name == "splats"]
        if user.layout.active.key != key:
            user.select(key)
        state = user.interface.state
        user.choose_tab("look")
        if state.panel_open != self._has_panel:
            user.toggle_panel()
        if state.time_folded:
            user.fold_time()

        self.wait_for_cameras()
        self.rest()
        if self.frustums.through.index is not None:
            self.leave_camera()

    def rest(self) -> None:
        """Take turns until nothing is left to draw."""

        def is_at_rest() -> bool:
            return not self.user.dirty and not self.user.schedule.pictures_dirty

        self.wait_for(is_at_rest)

    def find(self, name: str) -> tuple[float, float]:
        """Return where a control is drawn."""
        self.rest()
        with placed_by(self.user.interface) as widgets:

            def boxes() -> list[Box]:
                self.user.mark_interface()
                return [
                    item.visible_box for item in widgets.controls if item.name == name
                ]

            self.wait_for(boxes)
            # A menu takes its place in the drawings after its first one.
            self.rest()
            self.wait_for(boxes)
            box = boxes()[0]
        return (box.left + box.right) / 2, (box.top + box.bottom) / 2

    def click(self, name: str) -> None:
        self.tab.mouse.click(*self.find(name))

    def press(self, key: str) -> None:
        self.tab.keyboard.press(key)

    def drag(self, dx: int) -> None:
        """Drag in the middle of the active pane, and wait until the camera follows."""
        rect = self.user.layout.active.rect
        x = rect.x + rect.width // 2
        y = rect.y + rect.height // 2
        pose = self.pose()
        self.tab.mouse.move(x, y)
        self.tab.mouse.down()
        self.tab.mouse.move(x + dx, y + 20)
        self.tab.mouse.up()

        def has_moved() -> bool:
            return not np.array_equal(self.pose(), pose)

        self.wait_for(has_moved)
        self.rest_cameras()

    def rest_cameras(self) -> None:
        """Take turns until no camera moves any more."""
        poses: list[np.ndarray] = []

        def rests() -> bool:
            poses.append(self.pose())
            return len(poses) > 9 and np.array_equal(poses[-1], poses[-9])

        self.wait_for(rests)

    def wait_for_cameras(self) -> None:
        """Take turns until the active pane shows a scene and its training cameras."""

        def has_cameras() -> bool:
            view: Any = self.user.view
            tools = getattr(getattr(view, "view", None), "tools", {})
            if "frustums" not in tools or tools["frustums"].cameras is None:
                return False
            return view.view.rig.camera() is not None

        self.wait_for(has_cameras)

    @property
    def view(self) -> Any:
        """Return the view of a scene in the active pane."""
        view: Any = self.user.view
        return view.view

    @property
    def frustums(self) -> Any:
        return self.view.tools["frustums"]

    def pose(self, pane: int | None = None) -> np.ndarray:
        """Return from where a pane looks, the active one's by default."""
        view: Any = self.user.view
        if pane is not None:
            view = self.user.layout.all[pane].view
        return view.view.rig.camera().viewmat.copy()

    def look_through(self) -> None:
        """Look through a training camera by a key, until its photograph is there."""
        self.press("PageDown")
        through = self.frustums.through

        def has_photo() -> bool:
            content = self.frustums.content
            return through.is_there and through.photo(content) is not None

        self.wait_for(has_photo)
        self.rest()

    def leave_camera(self) -> None:
        """Leave a training camera by a key, and wait until the view is back."""
        self.press("Escape")
        through = self.frustums.through

        def has_left() -> bool:
            return through.index is None

        self.wait_for(has_left)
        self.rest_cameras()

    def wait_for_panes(self, count: int) -> None:
        """Take turns until so many panes are open, each with a view."""

        def has_panes() -> bool:
            views = [pane.view for pane in self.user.layout.all]
            return len(views) == count and None not in views

        self.wait_for(has_panes)


def wait_for_text(stage: Stage, *phrases: str) -> list[str]:
    """Take turns until texts with these phrases are drawn; return all texts then."""
    with placed_by(stage.user.interface) as widgets:

        def is_drawn() -> bool:
            stage.user.mark_interface()
            written = "\n".join(text.name for text in widgets.texts)
            return all(phrase in written for phrase in phrases)

        stage.wait_for(is_drawn)
        return [text.name for text in widgets.texts]


def wait_for_same_poses(stage: Stage) -> None:
    """Take turns until the second pane looks from where the first one does."""

    def is_same() -> bool:
        return np.array_equal(stage.pose(1), stage.pose(0))

    stage.wait_for(is_same)


def wait_for_no_popup(stage: Stage) -> None:
    """Take turns until no menu is open."""

    def is_closed() -> bool:
        return not stage.user.interface.surface.has_popup

    stage.wait_for(is_closed)


class Finger:
    """One finger on a page."""

    def __init__(self, tab: Tab) -> None:
        self._session = tab.context.new_cdp_session(tab)

    def put(self, x: float, y: float) -> None:
        self._send("touchStart", {"x": x, "y": y})

    def move(self, x: float, y: float) -> None:
        self._send("touchMove", {"x": x, "y": y})

    def lift(self) -> None:
        self._send("touchEnd")

    def _send(self, kind: str, *points: dict[str, float]) -> None:
        event = {"type": kind, "touchPoints": list(points)}
        self._session.send("Input.dispatchTouchEvent", event)


@pytest.fixture(scope="module", autouse=True)
def nothing_left() -> Iterator[None]:
    """Fail the last test if all of them leave something behind."""
    resources = OpenResources()
    yield
    resources.check()


@pytest.fixture(scope="module", autouse=True)
def runtime_dir(
    nothing_left: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Give all tests of this file one runtime folder, in which one training runs."""
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPLATVIEW_RUNTIME_DIR", str(folder))
        yield folder
        sys.modules["splatview.api.session"].session().close()


@pytest.fixture(scope="module")
def house(runtime_dir: Path) -> Iterator[House]:
    views, Ks = ring(8)
    splatview.publish_cameras(views, Ks, *SIZE, PHOTOS)
    publish(0)
    with House() as new_house:
        yield new_house


@pytest.fixture(scope="module")
def open_stage(house: House, chromium: Browser) -> Iterator[Callable[..., Stage]]:
    """`open_stage(size, **context)`: one more page, which shows the training."""
    with pages_of(chromium) as open_page:

        def open_stage(size: tuple[int, int], **options: Any) -> Stage:
            count = len(house.app.users)
            url = local_url(house.browsers.server)
            # Fonts would come while any test runs.
            tab = open_page(url, size, expected="ERR_", routes=NO_FONTS, **options)
            house.until(lambda: len(house.app.users) > count)
            stage = Stage(house, tab, house.app.users[-1])
            stage.wait_for_cameras()
            stage.rest()
            return stage

        yield open_stage


@pytest.fixture(scope="module")
def desktop_stage(open_stage: Callable[..., Stage]) -> Stage:
    return open_stage((1000, 700))


@pytest.fixture
def desktop(desktop_stage: Stage) -> Stage:
    desktop_stage.start_over()
    return desktop_stage


@pytest.fixture(scope="module")
def phone(open_stage: Callable[..., Stage]) -> Stage:
    return open_stage((390, 844), has_touch=True, is_mobile=True)


def test_sixteen_clicks_work_after_thirty_keys(desktop: Stage) -> None:
    tab_places = {name: desktop.find(name) for name in TABS}
    desktop.tab.keyboard.type("wasdqe" * 5)
    state = desktop.user.interface.state
    for name in TABS * 4:
        desktop.tab.mouse.click(*tab_places[name])
        desktop.tab.wait_for_timeout(30)
        desktop.wait_for(lambda name=name: state.tab == name.lower())


def test_menus_answer_escape_arrows_and_enter(desktop: Stage) -> None:
    user = desktop.user
    light = user.state.light
    desktop.click("Menu")
    desktop.find("Light colours")
    for _ in range(4):
        desktop.press("ArrowUp")
    desktop.press("Escape")
    wait_for_no_popup(desktop)
    assert user.state.light is light
    desktop.click("more 0")
    desktop.find("Save the picture")
    desktop.press("ArrowDown")
    desktop.press("Enter")
    # The first row shows the pane once more, beside.
    desktop.wait_for_panes(2)
    desktop.click("close 1")
    desktop.wait_for_panes(1)


def test_pane_beside_begins_as_the_first_one_and_follows_it(desktop: Stage) -> None:
    desktop.drag(60)
    desktop.press("Control+Enter")
    desktop.wait_for_panes(2)
    wait_for_same_poses(desktop)
    desktop.drag(-90)
    wait_for_same_poses(desktop)
    desktop.click("close 1")
    desktop.wait_for_panes(1)


def test_split_begins_as_what_was_shown(desktop: Stage) -> None:
    user = desktop.user
    pose = desktop.pose()
    [key] = [e.key for e in user.state.entries if e.name == "others"]
    shown_key = user.layout.active.key
    if key == shown_key:
        [key] = [e.key for e in user.state.entries if e.name == "splats"]
    desktop.tab.mouse.click(*desktop.find(key), button="right")
    desktop.click("Split with what is shown")

    def sides() -> list[Any]:
        view: Any = user.view
        views = getattr(getattr(view, "view", view), "views", [])
        return [side for side in views if not side.empty]

    def are_posed() -> bool:
        poses = [side.view.rig.camera().viewmat for side in sides()]
        return len(poses) == 2 and all(np.array_equal(p, pose) for p in poses)

    desktop.wait_for(are_posed)
    wait_for_no_popup(desktop)
    desktop.rest()
    desktop.press("Control+z")
    desktop.wait_for(lambda: user.layout.active.key == shown_key)


def test_panel_stays_under_the_pointer_while_a_training_runs(desktop: Stage) -> None:
    ways = {name: desktop.find(name) for name in ("Depth", "Colour", "Normals")}
    for step in range(1000, 7000, 1000):
        publish(step)
        for name, point in ways.items():
            desktop.tab.mouse.click(*point)
            desktop.wait_for(
                lambda name=name: desktop.view.state.show == KEY_OF_WAY[name]
            )
    desktop.tab.mouse.click(*ways["Colour"])
    assert {name: desktop.find(name) for name in ways} == ways


def test_folded_time_area_is_opened_with_the_pointer(desktop: Stage) -> None:
    interface = desktop.user.interface

    def is_folded() -> bool:
        return interface.zones.time.height == 26

    def is_open() -> bool:
        return interface.zones.time.height == 88

    desktop.press("t")
    desktop.wait_for(is_folded)
    desktop.click("time handle")
    desktop.wait_for(is_open)


def test_escape_from_a_training_camera_brings_the_view_back(desktop: Stage) -> None:
    pose = desktop.pose()
    desktop.look_through()
    assert not np.allclose(desktop.pose(), pose)
    desktop.leave_camera()
    np.testing.assert_allclose(desktop.pose(), pose, atol=1e-9)


def test_phone_compares_a_photograph_and_opens_menus(phone: Stage) -> None:
    phone.press("h")
    phone.tab.touchscreen.tap(*phone.find("Streams"))
    x, y = phone.find(phone.user.layout.active.key or "")
    finger = Finger(phone.tab)
    finger.put(x, y)
    phone.find("Show beside")
    finger.lift()
    phone.press("Escape")
    wait_for_no_popup(phone)
    phone.look_through()
    through = phone.frustums.through
    rect = phone.user.layout.active.rect
    phone.tab.touchscreen.tap(*phone.find("Wipe"))
    phone.wait_for(lambda: phone.frustums.state.comparison == "wipe")
    phone.rest()
    # Photographs have one hue each.
    hue = np.diff(PHOTOS[through.index][0, 0].numpy().astype(int))

    def share_of_photo() -> float:
        canvas = on_canvas(phone.tab).astype(int)
        pane = canvas[rect.y : rect.y + rect.height, rect.x : rect.x + rect.width]
        return float((np.abs(np.diff(pane) - hue).max(-1) < 6).mean())

    # One half is the photograph, the other one is what is rendered.
    photo = through.photo_rect(rect)
    area = photo.width * photo.height / (rect.width * rect.height)
    phone.wait_for(lambda: 0.3 * area < share_of_photo() < 0.7 * area)
    index = through.index
    middle = rect.y + rect.height // 2
    finger.put(rect.x + 40, middle)
    finger.move(rect.x + 100, middle + 30)
    finger.lift()
    phone.tab.touchscreen.tap(*phone.find("camera step"))
    phone.wait_for(lambda: through.is_there and through.index == index + 1)


def test_run_that_ended_cannot_be_paused_and_is_not_live(desktop: Stage) -> None:
    splatview.close()
    entries = desktop.user.state.entries
    desktop.wait_for(lambda: not any(entry.alive for entry in entries))
    texts = wait_for_text(desktop, "Ended")
    assert "Live" not in texts
    desktop.tab.mouse.move(*desktop.find("Pause"))
    wait_for_text(desktop, "\nThe run ended\n")
