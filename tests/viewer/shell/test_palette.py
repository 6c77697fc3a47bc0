"""The palette finds commands, streams and settings by what is typed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support import widgets
from support.scene_files import ply_columns, truth, write_ply
from support.viewer import Viewer, open_pictures, press_key

from splatview_viewer.core.events import Key, Mods, Text
from splatview_viewer.core.settings import Entry
from splatview_viewer.shell.palette_items import NOT_NOW, PaletteItem, find

CTRL: Mods = frozenset({"ctrl"})


@pytest.fixture
def viewer(open_viewer: Callable[..., Viewer], tmp_path: Path) -> Viewer:
    """Return a viewer of two pictures, of which the first is shown."""
    return open_pictures(open_viewer, (1200, 800), tmp_path, "first", "second")


def rows(viewer: Viewer) -> set[str]:
    """Return the names of everything that is drawn now."""
    widgets.drawn.clear()
    viewer.user.mark()
    viewer.do()
    return set(widgets.drawn)


def is_open(viewer: Viewer) -> bool:
    return "palette search" in rows(viewer)


def item(title: str, reason: str | None = None, beside: str = "") -> PaletteItem:
    return PaletteItem(title, list, reason=reason, side_text=beside)


def titles(query: str, *items: PaletteItem) -> list[str]:
    return [match.item.title for match in find(items, query)]


def test_find_puts_beginnings_of_words_first() -> None:
    items = item("Show: overdepth"), item("Range of depths"), item("Depth")
    assert titles("DEP", *items) == ["Depth", "Range of depths", "Show: overdepth"]


def test_find_needs_every_word_in_any_order() -> None:
    items = item("Show: depth"), item("Show: colour"), item("loss", beside="show run")
    assert titles("depth show", *items) == ["Show: depth"]
    assert titles("show lo", *items) == ["Show: colour", "loss"]
    streams = [item(f"stream {number:03}") for number in (2, 12, 200)]
    assert titles("stream 2", *streams)[0] == "stream 200"


def test_find_knows_american_spelling() -> None:
    items = item("Show: colour"), item("Show: centres"), item("color.png")
    assert titles("color", *items) == ["color.png", "Show: colour"]
    assert titles("show center", *items) == ["Show: centres"]


def test_find_lists_what_cannot_be_done_last() -> None:
    cannot = item("Depth", reason="nothing is shown")
    matches = find([cannot, item("the depth of it")], "depth")
    assert [match.item.title for match in matches] == ["the depth of it", "Depth"]
    assert matches[1].item.shown_group == NOT_NOW


def test_find_returns_the_letters_that_were_typed() -> None:
    (match,) = find([item("Show: depth with Viridis")], "dep vi")
    assert match.bold == ((6, 9), (17, 19))


def test_palette_shows_a_stream(viewer: Viewer) -> None:
    press_key(viewer, "k", CTRL)
    viewer.do(Text("second"))
    press_key(viewer, "enter")
    viewer.until(viewer.loaded)
    assert viewer.state.selected == viewer.state.entries[1].key
    assert len(viewer.user.layout) == 1
    assert not is_open(viewer)


def test_palette_shows_a_stream_beside(viewer: Viewer) -> None:
    press_key(viewer, "k", CTRL)
    viewer.do(Text("second"))
    press_key(viewer, "enter", CTRL)
    viewer.until(viewer.loaded)
    assert len(viewer.user.layout) == 2


def test_palette_takes_what_is_typed_right_after_its_key(viewer: Viewer) -> None:
    center = viewer.image.state.place
    viewer.do(Key("k", mods=CTRL), Key("s"), Text("sec"), Key("s", pressed=False))
    assert {viewer.state.entries[1].name, "palette search"} <= rows(viewer)
    assert viewer.user.interface.palette.query == "sec"
    press_key(viewer, "enter")
    viewer.until(viewer.loaded)
    assert viewer.state.selected == viewer.state.entries[1].key
    viewer.user.select(viewer.state.entries[0].key)
    viewer.until(viewer.loaded)
    assert viewer.image.state.place == center


@pytest.mark.parametrize("frames", range(4))
def test_palette_takes_what_is_typed_while_it_opens(
    viewer: Viewer, frames: int
) -> None:
    viewer.screen.push(Key("k", mods=CTRL))
    viewer.step()
    for _ in range(frames):
        viewer.user.draw(0.0)
    keys = [Key("s"), Text("sec"), Key("s", pressed=False)]
    viewer.do(*keys, Key("enter"), Key("enter", pressed=False))
    viewer.until(viewer.loaded)
    assert viewer.state.selected == viewer.state.entries[1].key


def test_palette_runs_the_row_that_arrows_choose(viewer: Viewer) -> None:
    press_key(viewer, "k", CTRL)
    viewer.do(Text("tab"))
    press_key(viewer, "down")
    press_key(viewer, "down")
    press_key(viewer, "up")
    press_key(viewer, "enter")
    assert viewer.user.interface.state.tab == "data"


def test_palette_row_can_be_clicked(viewer: Viewer) -> None:
    press_key(viewer, "k", CTRL)
    viewer.click("Tab: Film")
    assert viewer.user.interface.state.tab == "film"
    assert not is_open(viewer)


def test_palette_does_not_do_what_cannot_be_done(viewer: Viewer) -> None:
    press_key(viewer, "k", CTRL)
    viewer.do(Text("close this pane"))
    press_key(viewer, "enter")
    assert is_open(viewer)
    press_key(viewer, "escape")
    assert not is_open(viewer)
    assert len(viewer.user.layout) == 1


def test_palette_keeps_keys_from_the_picture(viewer: Viewer) -> None:
    press_key(viewer, "k", CTRL)
    press_key(viewer, "h")
    press_key(viewer, "escape")
    assert viewer.user.has_panel
    press_key(viewer, "h")
    assert not viewer.user.has_panel


def test_palette_focuses_the_setting_that_is_chosen(viewer: Viewer) -> None:
    viewer.user.choose_tab("film")
    viewer.user.choose_tab("look")
    viewer.do()
    press_key(viewer, "k", CTRL)
    viewer.do(Text("background"))
    press_key(viewer, "enter")
    assert viewer.user.interface.state.tab == "look"
    assert not is_open(viewer)
    assert viewer.user.interface.surface.input.has_focus


def test_palette_draws_a_bounded_number_of_many_streams(viewer: Viewer) -> None:
    viewer.user.state.entries = [
        Entry(f"key {index}", "run", f"stream {index}") for index in range(500)
    ]
    press_key(viewer, "k", CTRL)
    viewer.do(Text("stream"))
    palette = viewer.user.interface.palette
    assert len(palette.matches) == 500
    press_key(viewer, "page_down")
    for _ in range(20):
        press_key(viewer, "down")
    drawn = [name for name in rows(viewer) if name.startswith("stream ")]
    assert f"stream {palette.index}" in drawn
    assert len(drawn) < 60


def test_palette_finds_settings_of_closed_sections_in_other_tabs(
    open_viewer: Callable[..., Viewer], tmp_path: Path
) -> None:
    path = write_ply(tmp_path / "a.ply", ply_columns(truth(100)))
    scene = open_viewer((920, 900), files=(path,))
    scene.until(scene.loaded)
    state = scene.user.view
    assert state is not None
    initial = state.view.state
    press_key(scene, "k", CTRL)
    items = scene.user.interface.palette.matches
    menu_paths = {
        match.item.side_text for match in items if match.item.icon == "sliders"
    }
    assert {menu_path.split(",")[0] for menu_path in menu_paths} >= {
        "Look",
        "Data",
        "Film",
    }
    assert state.view.state == initial
    scene.do(Text("rate video"))
    press_key(scene, "enter")
    assert scene.user.interface.state.tab == "film"
    assert {"24", "60"} <= rows(scene)
