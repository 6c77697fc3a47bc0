"""The whole on a phone: a narrow screen of many pixels, and fingers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from support.pages import drawn, until
from support.whole import IMAGE, Program, Stage, comes, is_like, placed

from splatview.viewer_app.interface.panel import SHEET_HEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page
    from support.pages import Open

SIZE, RATIO = (390, 844), 2
WIDTH, HEIGHT = SIZE[0] * RATIO, SIZE[1] * RATIO
PICTURE = drawn(156, 100, 2)
"""Fits five times as large."""
ZOOM = 5
LEFT, TOP = 0.0, (HEIGHT - 100 * ZOOM) / 2
FITTED = placed(PICTURE, LEFT, TOP, ZOOM, (WIDTH, HEIGHT))


@pytest.fixture(scope="module")
def program(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Program:
    file: Path = tmp_path_factory.mktemp("phone") / "picture.npy"
    np.save(file, PICTURE)
    stage.trainer(IMAGE, file)
    return stage.viewer()


@pytest.fixture
def phone(program: Program, open_page: Open) -> Page:
    page = open_page(program.url, SIZE, RATIO, has_touch=True, is_mobile=True)
    comes(page, whole(FITTED))
    return page


def whole(expected: np.ndarray, share: float = 1.0) -> Callable[[np.ndarray], str]:
    return is_like(expected, share=share, part=lambda canvas: canvas)


def fingers(page: Page, *ways: list[tuple[float, float]]) -> None:
    """Fingers, in CSS pixels: each goes along its way, all at once."""
    session = page.context.new_cdp_session(page)

    def say(kind: str, points: list[dict[str, Any]]) -> None:
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    for i, places in enumerate(zip(*ways, strict=True)):
        say("touchMove" if i else "touchStart", [{"x": x, "y": y, "id": k} for k, (x, y) in enumerate(places)])
    say("touchEnd", [])


def along(*corners: tuple[float, float], steps: int = 4) -> list[tuple[float, float]]:
    """A way in a few steps from corner to corner."""
    (x0, y0), (x1, y1) = corners
    return [(x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps) for i in range(steps + 1)]


@pytest.mark.exhaustive
def test_a_phone_shows_the_picture_and_the_panel_below_it(phone: Page, picture_of: Callable[..., np.ndarray]) -> None:
    picture_of(phone, "viewer-phone")
    phone.tap("#panel")
    room = HEIGHT - SHEET_HEIGHT * RATIO
    above = placed(PICTURE, 0, (room - 100 * ZOOM) / 2, ZOOM, (WIDTH, room))
    canvas = comes(phone, is_like(above, part=lambda canvas: canvas[:room]))
    assert len(np.unique(canvas[room:].reshape(-1, 3), axis=0)) > 10, "the panel's words"
    picture_of(phone, "viewer-phone-panel")
    phone.tap("#panel")
    comes(phone, whole(FITTED))


@pytest.mark.exhaustive  # quick: touch input of the page, touch events in views
def test_fingers_move_and_zoom_the_picture(phone: Page) -> None:
    x, y = 150, 400  # CSS pixels
    fingers(phone, along((x, y), (x + 30, y - 50)))
    comes(phone, whole(placed(PICTURE, LEFT + 30 * RATIO, TOP - 50 * RATIO, ZOOM, (WIDTH, HEIGHT))))
    fingers(phone, along((x - 40, y), (x - 80, y)), along((x + 40, y), (x + 80, y)))
    left = RATIO * x - (RATIO * (x - 30) - LEFT) * 2
    top = RATIO * y - (RATIO * (y + 50) - TOP) * 2
    comes(phone, whole(placed(PICTURE, left, top, 2 * ZOOM, (WIDTH, HEIGHT)), 0.99))
    fingers(phone, along((x, y), (x - 20, y + 60)), along((x + 90, y), (x + 70, y + 60)))
    comes(phone, whole(placed(PICTURE, left - 20 * RATIO, top + 60 * RATIO, 2 * ZOOM, (WIDTH, HEIGHT)), 0.99))
    phone.tap("#fit")
    comes(phone, whole(FITTED))


@pytest.mark.exhaustive  # quick: touch input of the page, touch events in views
def test_two_taps_fit(phone: Page) -> None:
    fingers(phone, along((100, 300), (160, 330)))
    comes(phone, whole(placed(PICTURE, LEFT + 60 * RATIO, TOP + 30 * RATIO, ZOOM, (WIDTH, HEIGHT))))
    for place in (200, 400), (204, 403):
        phone.touchscreen.tap(*place)
    comes(phone, whole(FITTED))


@pytest.mark.exhaustive  # quick: a picture saved from a large page
def test_a_picture_is_saved(phone: Page, tmp_path: Path) -> None:
    phone.tap("#panel")
    until(phone, "splatview.state().lossless")
    with phone.expect_download() as waiting:
        phone.tap("#shot")
    assert waiting.value.suggested_filename.startswith("render-")
    waiting.value.save_as(tmp_path / "saved.png")
    with Image.open(tmp_path / "saved.png") as picture:
        np.testing.assert_array_equal(np.asarray(picture), FITTED)  # whole, and without the panel
