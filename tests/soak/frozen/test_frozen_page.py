"""Pictures of everything that is reached by the panel alone, as a tab of a browser gets them.

Places are points of a TALL tab with four files in the list; `panel.png` shows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import frozen
from support.frozen import PANEL, TALL, VIEW, WIDE, Page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.programs import Programs

OTHER, PICTURE, MEMORY = (100, 77), (100, 108), (100, 139)
"""Lines of the list."""
SHOW, DEGREE, PROJECTION = (174, 220), (174, 277), (174, 461)
CROP, SHAPE, RADIUS = (60, 637), (174, 664), 751
SNAPSHOT_PANE = 340, 15
SHOWS = "depth", "alpha", "normals", "ellipsoids", "rings", "points", "overdraw", "color"
PANES = "timeline", "addresses", "segments", "events", "stacks", "compare", "sql", "about"
"""In the order of the list, which has scrolled by one line, Leaks, from the seventh on."""


@pytest.fixture
def page(served: tuple[int, str], request: pytest.FixtureRequest) -> Iterator[Page]:
    """A tab of its own for each test, which shows scene.ply."""
    with frozen.opened(served, WIDE, request.node.name) as page:
        page.loaded()  # which frames the scene
        page.resize(*TALL)
        yield page


def choose(page: Page, place: tuple[int, int], item: int) -> None:
    """Open a list of choices and take one, from 0 on."""
    page.click(*place)
    page.click(place[0] - 30, place[1] + 29 + 21 * item)


def with_other(page: Page, item: int) -> None:
    """Open the menu of other.ply: 1 beside, 2 split, 3 together."""
    page.click(*OTHER, "right")
    page.click(OTHER[0] + 40, OTHER[1] + 20 + 21 * item)


def test_ways_to_see_a_scene(page: Page, tmp_path: Path) -> None:
    for number, name in enumerate(SHOWS, 1):
        choose(page, SHOW, number % len(SHOWS))
        page.check_kept(f"show-{name}", tmp_path)


def test_panel_of_a_scene(page: Page, tmp_path: Path) -> None:
    page.check_seen("panel", tmp_path, PANEL)
    choose(page, SHOW, 1)
    page.resize(*WIDE)
    page.check_seen("panel-depth-legend", tmp_path, VIEW)
    page.resize(*TALL)
    choose(page, SHOW, 0)


def test_degree_and_projection(page: Page, tmp_path: Path) -> None:
    choose(page, DEGREE, 1)
    choose(page, PROJECTION, 1)
    page.check_kept("page-sh0-ortho", tmp_path)
    choose(page, PROJECTION, 0)
    choose(page, DEGREE, 0)


def test_crop(page: Page, tmp_path: Path) -> None:
    page.click(*CROP)
    choose(page, SHAPE, 2)
    page.check_seen("panel-crop", tmp_path, PANEL)
    for kind, x in (("move", 230), ("press", 230), ("move", 185), ("release", 185)):
        page.send(kind, x=x, y=RADIUS)
        page.settle()
    page.check_kept("page-crop", tmp_path)
    choose(page, SHAPE, 0)


def test_two_scenes(inputs: Path, tmp_path: Path, programs: Programs) -> None:
    """In one picture, and in viewports: with a viewer of its own, whose list they change."""
    where = frozen.serve(programs, inputs / "scene.ply", inputs / "other.ply", inputs / "picture.png",
                         XDG_STATE_HOME=str(tmp_path))
    with frozen.opened(where) as page:
        page.loaded()
        with_other(page, 1)
        page.resize(*WIDE)
        page.check_seen("panes", tmp_path, VIEW)
    with frozen.opened(where, id="other") as page:
        page.loaded()
        page.click(100, 46)
        with_other(page, 2)
        page.check_kept("pair-split", tmp_path)
        page.check_seen("panel-pair", tmp_path, PANEL)


def test_picture_and_list_of_keys(page: Page, tmp_path: Path) -> None:
    page.click(*PICTURE)
    page.check_kept("page-picture", tmp_path)
    page.send("text", text="?")
    page.check_seen("keys-picture", tmp_path, (0, 200, 600, 600))


def test_panes_of_a_snapshot(page: Page, tmp_path: Path) -> None:
    page.click(*MEMORY)
    for number, name in enumerate(PANES):
        if number:
            choose(page, SNAPSHOT_PANE, number)
        page.check_kept(f"snapshot-{name}", tmp_path)
