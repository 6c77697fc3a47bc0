"""The whole: a trainer's image, the viewer program, a Chromium. What is seen and what the hand does to it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.pages import drawn, until
from support.whole import (
    HEIGHT,
    IMAGE,
    LEFT,
    SIZE,
    WIDTH,
    Program,
    Stage,
    comes,
    differs,
    drag,
    inside,
    is_like,
    open_at,
    placed,
    press,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.pages import Open

PICTURE = drawn(310, 266, 1)
"""Fits twice as large."""
FITTED = placed(PICTURE, 0, 1, 2)


@pytest.fixture(scope="module")
def program(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """A viewer that shows PICTURE."""
    file: Path = tmp_path_factory.mktemp("image") / "picture.npy"
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


@pytest.mark.exhaustive  # each of its steps has a test without a browser
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


@pytest.mark.exhaustive  # quick: keys of the page, the key that hides the panel
def test_keys_hide_the_panel_and_show_it(program: Program, open_page: Open) -> None:
    page = open_at(program.url, open_page)
    whole = placed(PICTURE, (SIZE[0] - 310 * 560 / 266) / 2, 0, 560 / 266, SIZE)
    first = comes(page, is_like(FITTED))
    for hide, show in (("h", "Tab"), ("Tab", "h")):
        page.keyboard.press(hide)
        comes(page, is_like(whole, share=0.99, part=lambda canvas: canvas))
        page.keyboard.press(show)
        again = comes(page, is_like(FITTED))
        np.testing.assert_array_equal(again[-100:-BELOW, :LEFT], first[-100:-BELOW, :LEFT])
    press(page, "#panel")
    comes(page, is_like(whole, share=0.99, part=lambda canvas: canvas))


BELOW = 60
"""Pixels of the panel's end that are its own: nothing stands there but the background and its last line."""


@pytest.mark.exhaustive  # quick: two seats without a browser
def test_two_tabs_have_two_places_until_one_follows_the_other(program: Program, open_page: Open,
                                                              picture_of: Callable[..., np.ndarray]) -> None:
    follower = open_at(program.url, open_page)
    alone = comes(follower, is_like(FITTED))
    leader = open_at(program.url, open_page)
    comes(leader, is_like(FITTED))
    drag(leader, 50, 20)
    moved = placed(PICTURE, 50, 21, 2)
    comes(leader, is_like(moved))
    follower.keyboard.press("h")  # it is drawn again
    comes(follower, differs(FITTED))
    follower.keyboard.press("h")
    both = comes(follower, is_like(FITTED))

    changed = np.flatnonzero((both[:-BELOW, :LEFT] != alone[:-BELOW, :LEFT]).any((1, 2)))
    picture_of(follower, "viewer-two-tabs")
    follower.mouse.click(60, float(changed[-1]) - 6)  # the last line that came: the other's name
    follower.mouse.move(LEFT + WIDTH / 2, HEIGHT / 2)  # or its tooltip stays, over the picture
    comes(follower, is_like(moved))
    leader.mouse.move(LEFT + 100, 100)
    leader.mouse.wheel(0, -200)
    new = placed(PICTURE, 100 - 50 * 1.44, 100 - 79 * 1.44, 2.88)
    led = comes(leader, is_like(new, share=0.99))
    comes(follower, is_like(inside(led)))
    drag(follower, 0, 25)  # its own way again
    comes(follower, is_like(placed(PICTURE, 28, 100 - 79 * 1.44 + 25, 2.88), share=0.99))
    leader.keyboard.press("f")
    comes(leader, is_like(FITTED))
    until(follower, "splatview.state().lossless")
    comes(follower, is_like(placed(PICTURE, 28, 100 - 79 * 1.44 + 25, 2.88), share=0.99))
