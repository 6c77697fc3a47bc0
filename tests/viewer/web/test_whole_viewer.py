"""The whole: a trainer's image, the viewer program, a Chromium, and the frame of a notebook."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from support.pages import drawn, elsewhere, on_canvas, seen, state
from support.wait import PATIENCE, turns
from support.web_clients import address

import splatview
from splatview_ipc.control.registry import viewers

if TYPE_CHECKING:
    from support.pages import Open
    from support.programs import Programs

WIDTH, HEIGHT, LEFT = 620, 534, 280
"""Of the picture beside the panel, over the status line; and of the panel."""
PICTURE = drawn(310, 266, 1)
"""Fits twice as large."""
BACKDROP = 19, 20, 23


def publish(picture: np.ndarray) -> None:
    splatview.publish(torch.from_numpy(picture), "render")


@pytest.mark.soak
def test_an_image_is_on_the_page_pixel_by_pixel_and_follows_the_mouse(programs: Programs, open_page: Open) -> None:
    publish(PICTURE)
    port, token = address(programs.splatview("serve", "--web", "--port", "0"), [])
    page = open_page(f"http://127.0.0.1:{port}/?token={token}", (LEFT + WIDTH, 560))

    def comes(left: float, top: float, zoom: float, share: float = 1.0) -> None:
        """Wait for PICTURE with its corner at (left, top), nearest pixel by pixel. `share`: less than 1 where its
        pixels are no whole ones of the screen, since their borders are rounded."""
        x = np.floor((np.arange(WIDTH) + 0.5 - left) / zoom).astype(int)
        y = np.floor((np.arange(HEIGHT) + 0.5 - top) / zoom).astype(int)
        wanted = np.full((HEIGHT, WIDTH, 3), BACKDROP, np.uint8)
        rows, columns = (y >= 0) & (y < PICTURE.shape[0]), (x >= 0) & (x < PICTURE.shape[1])
        wanted[np.ix_(rows, columns)] = PICTURE[np.ix_(y[rows], x[columns])]
        for _ in turns(f"the picture at {left, top}, {zoom} times as large"):
            picture = on_canvas(page)[:HEIGHT, LEFT:]
            same = float((picture == wanted).all(-1).mean()) if picture.shape == wanted.shape else 0.0
            if same >= share and state(page)["lossless"]:
                return
            page.wait_for_timeout(20)  # lets playwright take in what the browser reports

    def drag(dx: float, dy: float, button: str) -> None:
        """From the middle of the picture, in a few moves."""
        page.mouse.move(LEFT + WIDTH / 2, HEIGHT / 2)
        page.mouse.down(button=button)  # type: ignore[arg-type]
        page.mouse.move(LEFT + WIDTH / 2 + dx, HEIGHT / 2 + dy, steps=4)
        page.mouse.up(button=button)  # type: ignore[arg-type]

    comes(0, 1, 2)
    assert page.title().startswith("render \u00b7 ")
    drag(37, -19, "left")
    comes(37, -18, 2)
    drag(-7, 30, "right")
    comes(30, 12, 2)
    x, y, grown = 200, 400, 1.2**3
    page.mouse.move(LEFT + x, y)
    page.mouse.wheel(0, -300)
    comes(x - (x - 30) * grown, y - (y - 12) * grown, 2 * grown, share=0.99)
    page.mouse.dblclick(LEFT + x, y)
    comes(0, 1, 2)
    page.keyboard.press("1")
    comes(WIDTH / 2 - 155, HEIGHT / 2 - 133, 1)


def test_the_viewer_shows_in_a_notebooks_frame(open_page: Open) -> None:
    from splatview.api.session import session

    before = threading.active_count()
    shown = splatview.show(port=0, timeout=PATIENCE, height=400)
    try:
        assert [v.url for v in viewers()] == [shown.url]
        assert threading.active_count() <= before, "no thread of this process is left"
        assert splatview.show(timeout=PATIENCE, width=300).pid == shown.pid, "both show the same viewer"
        halves = np.full((60, 80, 3), (250, 140, 20), np.uint8)
        halves[30:] = 20, 60, 240
        publish(halves)
        with elsewhere(f"<body style='margin: 0'>{shown._repr_html_()}", "localhost") as (url, _):
            tab = open_page(url, (800, 500), expected="ERR_")
            for _ in turns("the frame shows the image"):
                picture = seen(tab, "notebook").astype(int)
                orange, blue = (np.argwhere(np.abs(picture - halves[row, 0].astype(int)).max(-1) < 40)
                                for row in (0, -1))
                if min(len(orange), len(blue)) > 40_000:
                    break
            assert orange[:, 0].mean() < blue[:, 0].mean() and max(orange[:, 0].max(), blue[:, 0].max()) < 400
    finally:
        while programs := session().programs:
            programs.pop().end()
