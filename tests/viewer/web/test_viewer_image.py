"""The whole: a trainer's image, the viewer program, a Chromium. What is seen and what the hand does to it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.pages import drawn
from support.whole import HEIGHT, IMAGE, LEFT, WIDTH, Program, Stage, comes, drag, inside, is_like, open_at, placed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.pages import Open

PICTURE = drawn(310, 266, 1)
"""Fits twice as large."""
FITTED = placed(PICTURE, 0, 1, 2)


@pytest.fixture
def program(stage: Stage, tmp_path: Path) -> Program:
    """A viewer that shows PICTURE."""
    file = tmp_path / "picture.npy"
    np.save(file, PICTURE)
    stage.trainer(IMAGE, file)
    return stage.viewer()


def test_a_published_image_is_on_the_page_pixel_by_pixel(
        program: Program, open_page: Open, picture_of: Callable[..., np.ndarray],
        wait_until: Callable[..., Any]) -> None:
    page = open_at(program.url, open_page)
    comes(page, is_like(FITTED))

    def exact() -> bool:  # the panel's numbers may bring another picture, which comes with loss at first
        return np.array_equal(inside(picture_of(page, "viewer-image"))[60:], FITTED[60:])  # the buttons are above

    wait_until(exact)
    assert re.fullmatch(r"render \u00b7 training \u00b7 [0-9]+ \u2013 splatview", page.title())


@pytest.mark.soak
def test_what_the_mouse_does_to_an_image(program: Program, open_page: Open) -> None:
    page = open_at(program.url, open_page)
    comes(page, is_like(FITTED))
    drag(page, 37, -19)
    comes(page, is_like(placed(PICTURE, 37, -18, 2)))
    drag(page, -7, 30, button="right")
    comes(page, is_like(placed(PICTURE, 30, 12, 2)))
    x, y = 200, 400
    page.mouse.move(LEFT + x, y)
    page.mouse.wheel(0, -300)
    grown = 1.2**3
    comes(page, is_like(placed(PICTURE, x - (x - 30) * grown, y - (y - 12) * grown, 2 * grown), share=0.99))
    page.mouse.dblclick(LEFT + x, y)
    comes(page, is_like(FITTED))
    page.keyboard.press("1")
    comes(page, is_like(placed(PICTURE, WIDTH / 2 - 155, HEIGHT / 2 - 133, 1)))
    page.keyboard.press("f")
    comes(page, is_like(FITTED))
