"""`splatview.show` as a notebook has it: the returned HTML in a page of another origin, a viewer program behind it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from support.pages import elsewhere
from support.wait import PATIENCE, turns

import splatview
from splatview_ipc.control.registry import viewers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Page

    from splatview.api.notebook import Page as Shown


@pytest.fixture
def shown() -> Iterator[Callable[..., Shown]]:
    """`splatview.show`, whose viewers end with the test."""
    from splatview.api.session import session

    yield lambda **options: splatview.show(**{"port": 0, "timeout": PATIENCE, **options})
    while programs := session().programs:
        programs.pop().end()


def published() -> None:
    """Orange above, blue below."""
    image = torch.zeros(60, 80, 3, dtype=torch.uint8)
    image[:30] = torch.tensor([250, 140, 20], dtype=torch.uint8)
    image[30:] = torch.tensor([20, 60, 240], dtype=torch.uint8)
    splatview.publish(image, "halves")


def share(picture: np.ndarray, color: tuple[int, int, int]) -> float:
    return float((np.abs(picture.astype(int) - color).max(-1) < 40).mean())


@pytest.mark.soak
def test_the_viewer_shows_in_a_notebooks_frame(shown: Callable[..., Shown], open_page: Callable[..., Page],
                                              picture_of: Callable[..., np.ndarray]) -> None:
    before = threading.active_count()
    page = shown(height=400)
    assert [v.url for v in viewers()] == [page.url]
    assert threading.active_count() <= before, "no thread of this process is left"
    published()
    assert shown(width=300).pid == page.pid, "both show the same viewer"
    with elsewhere(f"<body style='margin: 0'>{page._repr_html_()}", "localhost") as notebook:
        tab = open_page(notebook.url, (800, 500))
        picture = picture_of(tab, "notebook")
        for _ in turns("the frame shows the image"):
            top, bottom = share(picture, (250, 140, 20)), share(picture, (20, 60, 240))
            if top > 0.1 and bottom > 0.1:
                break
            published()
            picture = picture_of(tab, "notebook")
        orange = np.argwhere(np.abs(picture.astype(int) - (250, 140, 20)).max(-1) < 40)
        blue = np.argwhere(np.abs(picture.astype(int) - (20, 60, 240)).max(-1) < 40)
        assert orange[:, 0].mean() < blue[:, 0].mean()
        assert max(orange[:, 0].max(), blue[:, 0].max()) < 400, "within the frame"
