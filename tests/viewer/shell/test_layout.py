"""Viewports of a user: side by side, one alone; what is not seen costs nothing."""

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
from splatview_viewer.shell.layout import HEADER, grid

SIZE = 900, 520
COLORS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200)}


@pytest.fixture
def make(open_viewer: Callable[..., Viewer], tmp_path: Path) -> Callable[..., Viewer]:
    def viewer(names: tuple[str, ...] = tuple(COLORS)) -> Viewer:
        files = []
        for name in names:
            files.append(tmp_path / f"{name}.png")
            Image.new("RGB", (64, 48), COLORS[name]).save(files[-1])
        app = open_viewer(SIZE, files=tuple(files))
        app.until(app.loaded)
        return app

    return viewer


def key(viewer: Viewer, name: str) -> str:
    return next(e.key for e in viewer.state.entries if e.name == f"{name}.png")


def seen(viewer: Viewer) -> list[tuple[int, ...]]:
    """The colour in the middle of each viewport's picture."""
    pixels = viewer.pixels()
    return [
        tuple(pixels[r.y + r.height // 2, r.x + r.width // 2])
        for r in (p.rect for p in viewer.user.layout.seen)
    ]


def test_each_pane_shows_its_own(make: Callable[..., Viewer]) -> None:
    viewer = make()
    assert seen(viewer) == [COLORS["red"]]
    assert viewer.user.layout.active.rect == Rect(
        280, 0, 620, 494
    )  # one alone has no strip
    viewer.user.layout.add(key(viewer, "green"))
    viewer.user.layout.add(key(viewer, "blue"))
    viewer.do()
    assert seen(viewer) == [COLORS["red"], COLORS["green"], COLORS["blue"]]
    assert viewer.state.selected == key(viewer, "blue")
    assert all(viewport.head.height == HEADER for viewport in viewer.user.layout.seen)


def test_the_pointer_is_for_the_pane_under_it(make: Callable[..., Viewer]) -> None:
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
    assert viewer.user.layout.active is first and viewer.state.selected == key(
        viewer, "red"
    ), "it stays where it began"
    viewer.do(PointerRelease(x, y), Key("tab", mods=frozenset({"ctrl"})))
    assert viewer.user.layout.active is second
    assert viewer.state.panel_open


def test_one_alone_and_closing(make: Callable[..., Viewer]) -> None:
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
    assert seen(viewer) == [COLORS["green"]]
    assert len(viewer.catalogue.watched()) == 1  # what is not seen costs nothing
    layout.maximise(layout.active)
    viewer.do()
    viewer.click("close 0")
    viewer.until(lambda: len(layout) == 2)
    assert seen(viewer) == [COLORS["green"], COLORS["blue"]]
    layout.remove(layout.all[0])
    layout.remove(layout.all[0])  # the last one stays
    viewer.do()
    assert seen(viewer) == [COLORS["blue"]]


def test_a_grid_of_what_one_likes_to_look_at() -> None:
    assert [
        grid(2, 1600, 900),
        grid(2, 600, 1200),
        grid(6, 1600, 1000),
        grid(1, 1, 1),
    ] == [(2, 1), (1, 2), (3, 2), (1, 1)]


def test_pictures_are_kept_as_shown_and_with_nothing_behind(
    make: Callable[..., Viewer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Ctrl + S; of the active viewport alone."""
    monkeypatch.chdir(tmp_path)
    viewer = make(("red",))
    viewer.do(Key("s", mods=frozenset({"ctrl"})))
    viewer.do(Key("s", mods=frozenset({"ctrl", "shift"})))
    with (
        Image.open(tmp_path / "red-2.png") as shown,
        Image.open(tmp_path / "red-3.png") as through,
    ):
        assert shown.size == SIZE
        assert shown.mode == "RGB"
        assert through.mode == "RGBA"
        assert shown.getpixel((SIZE[0] // 2, SIZE[1] // 2)) == COLORS["red"]
        assert through.getpixel((SIZE[0] // 2, SIZE[1] // 2)) == (*COLORS["red"], 255)
        assert through.getpixel((2, 2)) == (0, 0, 0, 0)  # beside the picture
    assert seen(viewer) == [COLORS["red"]]
