"""The whole with Gaussians: the camera in the hand, in the clipboard, and typed into the panel."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image
from support.pages import until
from support.wait import PATIENCE
from support.whole import (
    GAUSSIANS,
    HEIGHT,
    LEFT,
    SIZE,
    WIDTH,
    Program,
    Stage,
    comes,
    differs,
    drag,
    fields,
    inside,
    is_like,
    open_at,
)

from splatview.viewer_app.cameras import camera_from_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page
    from support.pages import Open
    from support.programs import Programs

RED, GREEN, BLUE = np.eye(3, dtype=bool)
AXES = 130
"""Pixels from the lower left corner in which the axes of the world lie, which have these colours as well."""
STILL = 0.7
"""Seconds without another picture after which one is no longer coarse, as during a drag, unless pictures come late."""


@pytest.fixture(scope="module")
def program(stage: Stage) -> Program:
    stage.trainer(GAUSSIANS)
    return stage.viewer("--record-memory", "0")  # or a bar with its snapshots comes over the pictures that are compared


def scene(canvas: np.ndarray) -> np.ndarray:
    """The picture without the axes, which no picture to keep has either."""
    picture = inside(canvas).copy()
    picture[-AXES:, :AXES] = 0
    return picture


def of(color: np.ndarray, canvas: np.ndarray) -> np.ndarray:
    """(N, 2) float: places (x, y) in the picture that have mostly this colour."""
    picture = scene(canvas).astype(int)
    return np.argwhere(picture[..., color].min(-1) > picture[..., ~color].max(-1) + 60)[:, ::-1].astype(float)


def seen(page: Page, wrong: Callable[[np.ndarray], str]) -> np.ndarray:
    """(H, W, 3) uint8: the picture after what was just done. On a busy machine the first one may have been drawn amid a
    drag, and the next comes as late as that one did."""
    begin = time.monotonic()
    comes(page, wrong)
    return comes(page, wrong, still=max(STILL, 0.3 + 3 * (time.monotonic() - begin)))


def first(page: Page) -> np.ndarray:
    """The scene as it is seen first: red before blue, green on the right."""
    def wrong(canvas: np.ndarray) -> str:
        red, green = of(RED, canvas), of(GREEN, canvas)
        if len(red) < 1000 or len(green) < 1000:
            return f"{len(red)} red and {len(green)} green pixels"
        return "" if green[:, 0].mean() > red[:, 0].mean() + 50 else "green is not on the right"

    return comes(page, wrong, still=STILL)


def again(page: Page, picture: np.ndarray) -> None:
    """It comes back: OpenGL may sort what lies equally deep in another way."""
    comes(page, is_like(inside(picture), share=0.999, within=2))


def middle(color: np.ndarray, canvas: np.ndarray) -> np.ndarray:
    return of(color, canvas).mean(0)


@pytest.mark.exhaustive  # each of its steps has a test without a browser
def test_the_mouse_orbits_moves_and_comes_closer(program: Program, open_page: Open,
                                                 picture_of: Callable[..., np.ndarray]) -> None:
    page = open_at(program.url, open_page)
    begin = first(page)
    assert len(of(BLUE, begin)) < len(of(RED, begin))
    picture_of(page, "viewer-gaussians")

    drag(page, HEIGHT, 0, start=(LEFT + 40, HEIGHT / 2))  # over the picture's height: half a turn
    behind = seen(page, lambda c: "" if len(of(BLUE, c)) > len(of(RED, c)) else "red is before blue")
    assert middle(GREEN, behind)[0] < middle(BLUE, behind)[0] - 50, "green on the left from behind"
    drag(page, -HEIGHT, 0, start=(LEFT + HEIGHT + 40, HEIGHT / 2))
    again(page, begin)

    drag(page, 0, 100)
    above = seen(page, differs(begin))
    assert middle(RED, above)[1] > middle(RED, begin)[1] + 10, "seen from above, what is near is further down"
    page.keyboard.press("r")
    again(page, begin)

    drag(page, -60, -40, button="right")
    moved = seen(page, differs(begin))
    np.testing.assert_allclose(middle(GREEN, moved) - middle(GREEN, begin), (-60, -40), atol=4)  # at the target's depth
    page.keyboard.press("f")
    again(page, begin)
    page.keyboard.down("Shift")
    drag(page, -60, -40)
    page.keyboard.up("Shift")
    again(page, moved)
    page.keyboard.press("f")
    again(page, begin)

    page.mouse.move(LEFT + WIDTH / 2, HEIGHT / 2)
    page.mouse.wheel(0, -300)
    seen(page, lambda c: "" if len(of(RED, c)) > 1.5 * len(of(RED, begin)) else "not closer")
    page.keyboard.press("f")
    again(page, begin)


@pytest.mark.exhaustive  # as two tabs with an image have two places
def test_two_tabs_have_two_cameras(program: Program, open_page: Open) -> None:
    one, other = open_at(program.url, open_page), open_at(program.url, open_page)
    begin = first(one)
    again(other, begin)
    drag(one, 200, 0)
    turned = seen(one, differs(begin))
    other.keyboard.press("h")  # it is drawn again
    comes(other, lambda canvas: "" if canvas[-10, 20].max() < 5 else "the panel is there")
    other.keyboard.press("h")
    again(other, begin)
    again(one, turned)


def controls(canvas: np.ndarray) -> tuple[tuple[float, float], tuple[float, float]]:
    """Where the panel's button that copies the camera is, and the field of view: the last three buttons in a row are
    Frame, Copy and Paste, and below them are the projection and the field of view."""
    rows = fields(canvas)
    buttons = max(i for i, row in enumerate(rows) if len(row) == 3)
    return rows[buttons][1], rows[buttons + 2][0]


def copied(page: Page, canvas: np.ndarray) -> dict[str, object]:
    """The camera that the panel's button puts on the clipboard."""
    page.evaluate("navigator.clipboard.writeText('nothing')")
    page.mouse.click(*controls(canvas)[0])
    until(page, "navigator.clipboard.readText().then((text) => text.startsWith('{'))")
    page.mouse.move(LEFT + WIDTH / 2, HEIGHT / 2)
    return json.loads(page.evaluate("navigator.clipboard.readText()"))


def angle(camera: dict[str, object]) -> float:
    """The vertical field of view in degrees."""
    found = camera_from_json(json.dumps(camera), WIDTH, HEIGHT)
    return float(np.degrees(2 * np.arctan(HEIGHT / 2 / found.K[1, 1])))


@pytest.mark.exhaustive  # quick: the page's clipboard, `shot --camera`
def test_the_camera_goes_through_the_clipboard_to_a_shot(program: Program, stage: Stage, open_page: Open,
                                                         programs: Programs, tmp_path: Path) -> None:
    page = open_at(program.url, open_page, SIZE, permissions=["clipboard-read", "clipboard-write"])
    begin = first(page)
    drag(page, 150, 40)
    turned = seen(page, differs(begin))
    (tmp_path / "camera.json").write_text(json.dumps(copied(page, turned)))
    shot = programs.splatview("shot", "shot.png", "--camera", "camera.json", "--size", f"{WIDTH}x{HEIGHT}",
                               **stage.env)
    assert shot.wait(PATIENCE) == 0, shot.stderr and shot.stderr.read()
    with Image.open(tmp_path / "shot.png") as picture:
        kept = np.array(picture.convert("RGB"))
    kept[-AXES:, :AXES] = 0
    assert not (wrong := is_like(kept, share=0.999, part=scene, within=2)(turned)), wrong


@pytest.mark.exhaustive  # quick: text input of the page, typing into a control
def test_numbers_are_typed_and_pasted_into_the_panel(program: Program, open_page: Open,
                                                     picture_of: Callable[..., np.ndarray]) -> None:
    page = open_at(program.url, open_page, SIZE, permissions=["clipboard-read", "clipboard-write"])
    begin = first(page)
    assert angle(copied(page, begin)) == pytest.approx(50, abs=0.01)
    _, slider = controls(begin)

    def open_field() -> None:
        page.keyboard.down("Control")
        page.mouse.click(*slider)
        page.keyboard.up("Control")
        until(page, "splatview.state().typing")

    open_field()
    page.keyboard.type("80")
    picture_of(page, "viewer-typing")
    page.keyboard.press("Enter")
    until(page, "!splatview.state().typing")
    page.mouse.move(LEFT + WIDTH / 2, HEIGHT / 2)
    wide = seen(page, lambda c: "" if len(of(RED, c)) < 0.7 * len(of(RED, begin)) else "not smaller")
    assert angle(copied(page, wide)) == pytest.approx(80, abs=0.01)

    page.evaluate("navigator.clipboard.writeText('50')")
    open_field()
    page.keyboard.press("Control+v")
    page.keyboard.press("Enter")
    until(page, "!splatview.state().typing")
    page.mouse.move(LEFT + WIDTH / 2, HEIGHT / 2)
    again(page, begin)
