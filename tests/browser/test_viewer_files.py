"""The whole with files: a scene is dropped on the page and seen there; on a phone all of its panel is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from browser.test_page_files import Hand
from browser.test_viewer_phone import SIZE as PHONE
from browser.test_viewer_phone import along, fingers
from support.pages import until
from support.scene_files import ply_columns, truth, write_ply
from support.wait import PATIENCE
from support.whole import Program, Stage, comes, inside, open_at

from splatview.viewer_app.interface.panel import SHEET_HEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.pages import Open


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scene") / "fox.ply"
    write_ply(path, ply_columns(truth(300)))
    return path


@pytest.fixture
def program(stage: Stage) -> Iterator[Program]:
    """It ends by itself, and takes what was sent to it along."""
    program = stage.viewer()
    yield program
    program.process.terminate()
    assert program.process.wait(PATIENCE) == 0


def colourful(canvas: np.ndarray) -> str:
    """Whether a scene is seen."""
    shown = inside(canvas).astype(int)
    share = float((shown.max(-1) - shown.min(-1) > 40).mean())
    return "" if share > 0.05 else f"{share:.2%} of the picture has colours"


@pytest.mark.exhaustive  # quick: test_page_files.py and test_browser_files.py, a side each
def test_a_scene_is_dropped_and_its_picture_kept(program: Program, open_page: Open, scene: Path,
                                                 picture_of: Callable[..., np.ndarray]) -> None:
    page = open_at(program.url, open_page)
    comes(page, lambda canvas: "" if colourful(canvas) else "there is something already")
    Hand(page, scene).drop()
    comes(page, colourful, still=0.7)
    picture_of(page, "viewer-dropped")
    until(page, "document.title.includes('fox.ply')")
    with page.expect_download() as waiting:
        page.keyboard.press("Control+s")
    assert waiting.value.suggested_filename == "fox.png"


@pytest.mark.exhaustive  # quick: touch input of the page, scrolling of the panel
def test_a_finger_scrolls_the_panel(program: Program, open_page: Open, scene: Path,
                                    picture_of: Callable[..., np.ndarray]) -> None:
    """On a phone: also where it comes down on a field, which stays as it is."""
    page = open_page(program.url, PHONE, 1, has_touch=True, is_mobile=True)
    until(page, "splatview.state().frames > 0")
    Hand(page, scene).drop()
    alone = comes(page, colourful, still=0.7)
    page.tap("#panel")
    room = PHONE[1] - SHEET_HEIGHT

    def panel(canvas: np.ndarray) -> np.ndarray:
        return canvas[room:, :-12].astype(int)  # beside its scroll bar

    def opened(canvas: np.ndarray) -> str:
        covered = (panel(canvas) != panel(alone)).any(-1).mean()
        return "" if covered > 0.5 and panel(canvas).max() > 200 else f"{covered:.1%} of the panel's place changed"

    before = comes(page, opened, still=0.7)

    def moved(by: int) -> Callable[[np.ndarray], str]:
        def wrong(canvas: np.ndarray) -> str:
            now, then = panel(canvas), panel(before)
            same = (np.abs(now[:len(now) - by] - then[by:]) <= 24).all(-1).mean()
            return "" if same > 0.97 else f"{same:.1%} is as {by} pixels below before"

        return wrong

    fingers(page, along((200, 800), (200, 700), steps=10))
    after = comes(page, lambda canvas: "" if min(
        (moved(by)(canvas) for by in range(85, 105)), key=len) == "" else moved(100)(canvas))
    picture_of(page, "viewer-phone-scrolled")
    fingers(page, along((200, 600), (200, 830), steps=10))
    comes(page, moved(0))
    assert not np.array_equal(before, after)
