"""Menus own pointer and keyboard while they are open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from imgui_bundle import ImVec2, imgui
from PIL import Image
from support import widgets
from support.viewer import Viewer

from splatview_viewer.core.events import Key, PointerMove, PointerPress, PointerRelease
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import Info
from splatview_viewer.shell import top_bar
from splatview_viewer.shell.menu import RULE, MenuRow, draw_menu, open_menu
from splatview_viewer.shell.user import User
from splatview_viewer.ui import controls, theme
from splatview_viewer.ui.boards import board


@pytest.fixture
def done() -> list[str]:
    """Return the rows that were chosen, and the buttons that were pressed."""
    return []


@pytest.fixture
def viewer(
    open_viewer: Callable[..., Viewer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    done: list[str],
) -> Viewer:
    """Return a viewer of a picture, with a menu and a button in its top bar."""

    def rows(user: User) -> list[MenuRow | None]:
        def row(title: str, reason: str | None = None) -> MenuRow:
            return MenuRow(title, lambda: user.do(done.append, title), reason=reason)

        return [row("Cannot", "not now"), row("First"), RULE, row("Second")]

    def draw(user: User, _: Info, rect: Rect, scale: float) -> None:
        with board("top bar", rect):
            imgui.set_cursor_screen_pos(ImVec2(rect.x + 8, rect.y + 8))
            if controls.button("Menu"):
                open_menu("test")
            imgui.same_line()
            if controls.button("Other"):
                user.do(done.append, "Other")
            draw_menu("test", rows(user), (rect.x + 8, rect.y + 44))

    monkeypatch.setattr(top_bar, "draw", draw)
    path = tmp_path / "picture.png"
    Image.fromarray(np.zeros((40, 60, 3), np.uint8)).save(path)
    app = open_viewer((900, 520), files=(path,))
    app.until(app.loaded)
    return app


def press_key(viewer: Viewer, name: str) -> None:
    viewer.do(Key(name))
    viewer.do(Key(name, pressed=False))


def is_open(viewer: Viewer) -> bool:
    widgets.drawn.clear()
    viewer.user.mark()
    viewer.do()
    return "First" in widgets.drawn


def test_menu_of_a_phone_names_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    row = MenuRow("Save", list, keys="Ctrl S")
    assert row.side_text == "Ctrl S"
    monkeypatch.setattr(theme, "_touch", True)
    assert not row.side_text
    assert replace(row, fact="lately").side_text == "lately"
    assert replace(row, reason="nothing is shown").side_text == "nothing is shown"


def test_menu_row_runs_once_and_closes_the_menu(
    viewer: Viewer, done: list[str]
) -> None:
    viewer.click("Menu")
    viewer.click("Second")
    assert done == ["Second"]
    assert not is_open(viewer)


def test_menu_row_that_cannot_be_done_does_nothing(
    viewer: Viewer, done: list[str]
) -> None:
    viewer.click("Menu")
    viewer.click("Cannot")
    assert done == []


def test_menu_is_used_with_arrows_and_enter(viewer: Viewer, done: list[str]) -> None:
    viewer.click("Menu")
    press_key(viewer, "down")
    press_key(viewer, "down")
    press_key(viewer, "enter")
    assert done == ["Second"]
    assert not is_open(viewer)


def test_menu_that_a_key_opened_has_its_first_row_focused(
    viewer: Viewer, done: list[str]
) -> None:
    viewer.click("Menu")
    press_key(viewer, "escape")
    assert not is_open(viewer)
    press_key(viewer, "tab")
    press_key(viewer, "enter")
    assert is_open(viewer)
    press_key(viewer, "enter")
    assert done == ["First"]


def test_press_that_closes_a_menu_does_nothing_else(
    viewer: Viewer, done: list[str]
) -> None:
    other_position = viewer.find("Other")
    for x, y in (other_position, (500, 300)):
        viewer.click("Menu")
        assert is_open(viewer)
        center = viewer.image.state.place.center
        viewer.do(PointerMove(x, y))
        viewer.do(PointerPress(x, y), PointerMove(x + 40, y), PointerRelease(x + 40, y))
        assert not is_open(viewer)
        assert viewer.image.state.place.center == center
    assert done == []
    viewer.click("Other")
    assert done == ["Other"]
