"""The switch in the panel between a page that draws a scene and the viewer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support import widgets
from support.house import House
from support.scene_files import ply_columns, truth, write_ply

from splatview_viewer.core import events as ev
from splatview_viewer.core.screen import Favour, Rect, SceneDrawing
from splatview_viewer.core.selection import EVERYTHING
from splatview_viewer.formats.camera_paths import Film
from splatview_viewer.shell.page_corner import HEIGHT
from splatview_viewer.shell.user import User
from splatview_viewer.web import messages as m


class SwitchedPage:
    """A page whose user has a scene and an image to show."""

    def __init__(self, house: House, width: int, height: int) -> None:
        self.house = house
        self.page = house.page(width, height)
        self.user: User = house.users[self.page]
        self.asked: list[str] = []
        self._caption = m.Caption()
        house.until(self.has_view)

    def has_view(self) -> bool:
        return self.user.view is not None and not self.user.view.empty

    @property
    def view(self) -> Any:
        assert self.user.view is not None
        return self.user.view.view

    def key_of(self, name: str) -> str:
        """Return the key of the file of a name."""
        entries = self.house.app.catalogue.entries
        return next(entry.key for entry in entries if entry.name == name)

    def _read(self) -> None:
        """Take what the viewer has sent."""
        for message in self.page.messages():
            if isinstance(message, m.Ask):
                self.asked.append(message.favour)
            elif isinstance(message, m.Caption):
                self._caption = message

    def is_asked(self, favour: Favour) -> bool:
        self._read()
        return favour in self.asked

    def says(self, drawing: m.Draws, state: str | None) -> None:
        """Have the page say who draws, and wait until the panel says so; None: nothing."""
        self.page.send(drawing)
        expected = SceneDrawing(drawing.on, drawing.max_gaussians > 0, drawing.reason)
        self.house.until(lambda: self.user.screen.state.drawing == expected)
        self.until_panel_says(state)

    def until_panel_says(self, state: str | None) -> None:
        self.house.until(lambda: self.panel_state() == state and self.is_settled())

    def change(self, **fields: Any) -> None:
        self.view.change(**fields)
        self.user.mark()

    def is_settled(self) -> bool:
        """Return whether nothing is left to draw or to send."""
        return not self.user.waiting and not self.user.schedule.pictures_dirty

    def panel_state(self) -> str | None:
        sections, _ = self.user.layout.active.describe("look")
        states = [section.state for section in sections if section.title == "Drawing"]
        return states[0] if states else None

    def press(self, name: str) -> None:
        """Press a part of the switch."""
        x, y = widgets.middle(name)
        for event in (ev.PointerMove(x, y), ev.PointerPress(x, y)):
            self.page.send(event)
        self.page.send(ev.PointerRelease(x, y))

    def legend(self) -> Rect:
        """Wait for the legend of the picture, and return where it is."""
        place = partial(self.view.legend_place, self.user.layout.active.rect, 1.0)
        self.house.until(place)
        return place()

    def corner(self) -> Rect | None:
        self._read()
        return self._caption.corner

    def until_corner_ends_at(self, bottom: int | None) -> None:
        """Wait until the free corner of the page ends there; None: there is none."""

        def is_there() -> bool:
            corner = self.corner()
            return (None if corner is None else corner.y + corner.height) == bottom

        self.house.until(is_there)


def mark_gaussians(page: SwitchedPage, count: int) -> None:
    """Have so many Gaussians of the scene that is shown stand out."""
    marked = tuple(range(count))
    page.view.change(selection=replace(EVERYTHING, marked=marked))
    page.user.mark()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    scene = write_ply(tmp_path / "scene.ply", ply_columns(truth(500)))
    other = write_ply(tmp_path / "other.ply", ply_columns(truth(400)))
    image = tmp_path / "image.png"
    Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(image)
    with House(scene, other, image) as new_house:
        yield new_house


def test_panel_switches_who_draws(house: House) -> None:
    page = SwitchedPage(house, 900, 1000)
    assert page.panel_state() is None, "the page has not said anything yet"
    page.says(m.Draws(on=True), "here")
    page.press("There")
    house.until(partial(page.is_asked, "draw_there"))
    page.says(m.Draws(on=False), "there")
    page.press("Here")
    house.until(partial(page.is_asked, "draw_here"))
    # What the viewer has to draw is drawn there for as long as it has to.
    page.says(m.Draws(on=True), "here")
    page.user.compare("pair", page.key_of("other.ply"))
    page.until_panel_says("here")
    page.user.select(page.key_of("scene.ply"))
    house.until(page.has_view)
    mark_gaussians(page, 5000)
    page.until_panel_says("there")
    assert "marked" in page.user.layout.active.reason_against_page
    mark_gaussians(page, 0)
    page.until_panel_says("here")
    # A window draws nothing by itself.
    assert house.app.screen.state.drawing is None
    # Nor is there a switch beside what is no scene.
    page.user.select(page.key_of("image.png"))
    page.until_panel_says(None)
    page.until_corner_ends_at(None)


def test_a_page_that_cannot_draw_says_why(house: House) -> None:
    page = SwitchedPage(house, 900, 1000)
    reason = "This browser has no WebGL2."
    page.says(m.Draws(on=False, reason=reason, max_gaussians=0), "there")
    assert page.user.screen.state.drawing == SceneDrawing(False, False, reason)
    page.press("Here")
    # One that only does not yet can be asked.
    page.says(m.Draws(on=False, reason="This browser has no GPU."), "there")
    page.press("Here")
    house.until(partial(page.is_asked, "draw_here"))
    assert page.asked == ["draw_here"]


def test_a_film_is_rendered_while_the_page_draws(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = SwitchedPage(house, 640, 480)
    page.says(m.Draws(on=True), "here")
    tool = page.view.path
    tool.add_key()
    tool.film = Film(tool.path, 64, 48, 2.0)
    tool.film_maker.as_frames = True
    tool.film_maker.start()
    states = set()

    def is_filmed() -> bool:
        states.add(page.panel_state())
        return tool.film_maker.filming is None

    house.until(is_filmed)
    assert states == {"here"}
    assert list(tmp_path.glob("*/*.png"))


def test_the_corner_of_a_page_covers_nothing(house: House) -> None:
    page = SwitchedPage(house, 900, 1000)
    picture = page.user.layout.active.rect
    page.until_corner_ends_at(picture.y + picture.height)
    page.change(show="depth")
    page.until_corner_ends_at(page.legend().y)
    phone = SwitchedPage(house, 390, 844)
    time_strip = phone.user.interface.zones.time
    phone.until_corner_ends_at(time_strip.y)
    phone.change(show="depth")
    legend = phone.legend()
    assert legend.y + legend.height < time_strip.y
    phone.until_corner_ends_at(legend.y)
    phone.change(show="color")
    # The strip and the corner go up with the sheet.
    phone.user.toggle_panel()
    house.until(lambda: phone.user.interface.zones.time.y < time_strip.y)
    phone.until_corner_ends_at(phone.user.interface.zones.time.y)
    # Where the panel lies over the picture, there is no room below.
    narrow = SwitchedPage(house, 620, 500)
    assert narrow.user.interface.zones.form == "narrow"
    corner = narrow.corner()
    assert corner is None or corner.height >= HEIGHT
