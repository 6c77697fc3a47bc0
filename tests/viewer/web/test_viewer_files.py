"""The whole with files: a scene is dropped on the page and seen there; on a phone all of its panel is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.pages import Hand, until
from support.scene_files import ply_columns, truth, write_ply
from support.wait import PATIENCE
from support.whole import Program, Stage, comes, inside, open_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy as np
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
    """Say how little of the picture has colours, if less than a scene has."""
    shown = inside(canvas).astype(int)
    share = float((shown.max(-1) - shown.min(-1) > 40).mean())
    return "" if share > 0.05 else f"{share:.2%} of the picture has colours"


@pytest.mark.soak
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
