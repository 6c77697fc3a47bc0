"""Viewports of a user: side by side or one alone; hidden ones cost nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.viewer import Viewer

from splatview_viewer.core.events import (
    Key,
    PointerMove,
    PointerPress,
    PointerRelease,
    Wheel,
)
from splatview_viewer.core.screen import Rect
from splatview_viewer.geometry.pan_zoom import FITTED
from splatview_viewer.shell.layout import grid
from splatview_viewer.shell.zones import STRIP_HEIGHT

SIZE = 900, 520
COLORS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200)}


@pytest.fixture
def make(open_viewer: Callable[..., Viewer], tmp_path: Path) -> Callable[..., Viewer]:
    """Return `make(names)`, which opens a viewer of pictures of these colours."""

    def open_pictures(names: tuple[str, ...] = tuple(COLORS)) -> Viewer:
        files = [tmp_path / f"{name}.png" for name in names]
        for name, file in zip(names, files, strict=True):
            Image.new("RGB", (64, 48), COLORS[name]).save(file)
        viewer = open_viewer(SIZE, files=tuple(files))
        viewer.until(viewer.loaded)
        return viewer

    return open_pictures


def key(viewer: Viewer, name: str) -> str:
    return next(e.key for e in viewer.state.entries if e.name == f"{name}.png")


def middle_colors(viewer: Viewer) -> list[tuple[int, ...]]:
    """Return the colour in the middle of each viewport's picture."""
    pixels = viewer.pixels()
    colors = []
    for viewport in viewer.user.layout.visible_viewports:
        rect = viewport.rect
        middle = pixels[rect.y + rect.height // 2, rect.x + rect.width // 2]
        colors.append(tuple(middle))
    return colors


def test_each_viewport_shows_its_own_entry(make: Callable[..., Viewer]) -> None:
    viewer = make()
    assert middle_colors(viewer) == [COLORS["red"]]
    panes = viewer.user.interface.zones.panes
    strip = round(STRIP_HEIGHT)
    picture_top = panes.y + strip
    height = panes.height - strip
    assert viewer.user.layout.active.rect == Rect(
        panes.x, picture_top, panes.width, height
    )
    viewer.user.layout.add(key(viewer, "green"))
    viewer.user.layout.add(key(viewer, "blue"))
    viewer.do()
    assert middle_colors(viewer) == [COLORS["red"], COLORS["green"], COLORS["blue"]]
    assert viewer.state.selected == key(viewer, "blue")
    assert all(
        viewport.head.height == STRIP_HEIGHT
        for viewport in viewer.user.layout.visible_viewports
    )


def test_pointer_is_for_the_viewport_under_it(make: Callable[..., Viewer]) -> None:
    viewer = make()
    viewer.user.layout.add(key(viewer, "green"))
    viewer.do()
    first, second = viewer.user.layout
    for viewport in (first, second):
        view: Any = viewport.view
        assert view.view.state.place == FITTED
        viewer.do(Wheel(viewport.rect.x + 20, viewport.rect.y + 20, 1.0))
        assert view.view.state.place != FITTED
    x = second.rect.x + 20
    y = second.rect.y + 20
    viewer.do(PointerPress(first.rect.x + 20, first.rect.y + 20), PointerMove(x, y))
    # The drag stays in the viewport where it started.
    assert viewer.user.layout.active is first
    assert viewer.state.selected == key(viewer, "red")
    viewer.do(PointerRelease(x, y), Key("tab", mods=frozenset({"ctrl"})))
    assert viewer.user.layout.active is second
    assert viewer.user.has_panel


def test_viewports_are_maximised_and_closed(make: Callable[..., Viewer]) -> None:
    viewer = make()
    layout = viewer.user.layout
    layout.add(key(viewer, "green"))
    layout.add(key(viewer, "blue"))
    viewer.do()
    viewer.click("name 1")
    assert viewer.state.selected == key(viewer, "green")
    x, y = viewer.find("name 1")
    viewer.do(
        PointerMove(x, y),
        PointerPress(x, y),
        PointerRelease(x, y),
        PointerPress(x, y, clicks=2),
        PointerRelease(x, y),
    )
    viewer.until(lambda: layout.maximised)
    assert middle_colors(viewer) == [COLORS["green"]]
    # Hidden viewports cost nothing.
    assert len(viewer.catalogue.watched()) == 1
    layout.maximise(layout.active)
    viewer.do()
    viewer.click("close 0")

    def has_two() -> bool:
        return len(layout) == 2

    viewer.until(has_two)
    assert middle_colors(viewer) == [COLORS["green"], COLORS["blue"]]
    layout.remove(layout.all[0])
    # The last viewport stays.
    layout.remove(layout.all[0])
    viewer.do()
    assert middle_colors(viewer) == [COLORS["blue"]]


def test_grid_suits_the_shape_of_the_window() -> None:
    assert grid(2, 1600, 900) == (2, 1)
    assert grid(2, 600, 1200) == (1, 2)
    assert grid(6, 1600, 1000) == (3, 2)
    assert grid(1, 1, 1) == (1, 1)


def test_pictures_are_kept_as_shown_and_without_a_background(
    make: Callable[..., Viewer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keep pictures of the active viewport by Ctrl + S."""
    monkeypatch.chdir(tmp_path)
    viewer = make(("red",))
    viewer.do(Key("s", mods=frozenset({"ctrl"})))
    viewer.do(Key("s", mods=frozenset({"ctrl", "shift"})))
    with (
        Image.open(tmp_path / "red-2.png") as opaque,
        Image.open(tmp_path / "red-3.png") as transparent,
    ):
        assert opaque.size == SIZE
        assert opaque.mode == "RGB"
        assert transparent.mode == "RGBA"
        middle = SIZE[0] // 2, SIZE[1] // 2
        assert opaque.getpixel(middle) == COLORS["red"]
        assert transparent.getpixel(middle) == (*COLORS["red"], 255)
        # Beside the picture, there is nothing.
        assert transparent.getpixel((2, 2)) == (0, 0, 0, 0)
    assert middle_colors(viewer) == [COLORS["red"]]
