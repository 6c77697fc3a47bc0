"""The whole: a trainer's image, the viewer program, a Chromium. What is seen and what the hand does to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.pages import drawn, on_canvas, state
from support.wait import turns
from support.web_clients import address

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page
    from support.programs import Programs

SIZE = 900, 560
"""Of the page, in CSS pixels."""
WIDTH, HEIGHT = 620, 534
"""Of the picture beside the panel, over the status line."""
LEFT = SIZE[0] - WIDTH
PICTURE = drawn(310, 266, 1)
"""Fits twice as large."""
BACKDROP = 19, 20, 23
TRAINER = """
import time, torch, splatview
from support.pages import drawn
while True:
    splatview.publish(torch.from_numpy(drawn(310, 266, 1)), "render")
    time.sleep(1)
"""
"""In between the picture rests, and comes without loss."""


@pytest.fixture
def page(programs: Programs, open_page: Callable[..., Page]) -> Page:
    """A page of a viewer that shows PICTURE, with the pointer over its middle."""
    programs.code(TRAINER)
    port, token = address(programs.splatview("serve", "--web", "--port", "0"), [])
    page = open_page(f"http://127.0.0.1:{port}/?token={token}", SIZE)
    page.mouse.move(LEFT + WIDTH / 2, HEIGHT / 2)
    return page


def comes(page: Page, left: float, top: float, zoom: float, share: float = 1.0) -> None:
    """Wait for PICTURE with its corner at (left, top), nearest pixel by pixel. `share`: less than 1 where its pixels
    are no whole ones of the screen, since their borders are rounded."""
    x = np.floor((np.arange(WIDTH) + 0.5 - left) / zoom).astype(int)
    y = np.floor((np.arange(HEIGHT) + 0.5 - top) / zoom).astype(int)
    wanted = np.full((HEIGHT, WIDTH, 3), BACKDROP, np.uint8)
    rows, columns = (y >= 0) & (y < PICTURE.shape[0]), (x >= 0) & (x < PICTURE.shape[1])
    wanted[np.ix_(rows, columns)] = PICTURE[np.ix_(y[rows], x[columns])]
    same = 0.0
    for _ in turns(f"the picture at {left, top}, {zoom} times as large"):
        seen = on_canvas(page)[:HEIGHT, LEFT:]
        same = float((seen == wanted).all(-1).mean()) if seen.shape == wanted.shape else 0.0
        if same >= share and state(page)["lossless"]:
            return
        page.wait_for_timeout(20)  # lets playwright take in what the browser reports


def drag(page: Page, dx: float, dy: float, button: str) -> None:
    """From the middle of the picture, in a few moves."""
    x, y = LEFT + WIDTH / 2, HEIGHT / 2
    page.mouse.move(x, y)
    page.mouse.down(button=button)  # type: ignore[arg-type]
    page.mouse.move(x + dx, y + dy, steps=4)
    page.mouse.up(button=button)  # type: ignore[arg-type]


def test_a_published_image_is_on_the_page_pixel_by_pixel(page: Page) -> None:
    comes(page, 0, 1, 2)
    assert page.title().startswith("render \u00b7 ")


@pytest.mark.soak
def test_what_the_mouse_does_to_an_image(page: Page) -> None:
    comes(page, 0, 1, 2)
    drag(page, 37, -19, "left")
    comes(page, 37, -18, 2)
    drag(page, -7, 30, "right")
    comes(page, 30, 12, 2)
    x, y, grown = 200, 400, 1.2**3
    page.mouse.move(LEFT + x, y)
    page.mouse.wheel(0, -300)
    comes(page, x - (x - 30) * grown, y - (y - 12) * grown, 2 * grown, share=0.99)
    page.mouse.dblclick(LEFT + x, y)
    comes(page, 0, 1, 2)
    page.keyboard.press("1")
    comes(page, WIDTH / 2 - 155, HEIGHT / 2 - 133, 1)
