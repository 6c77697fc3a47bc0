"""The list of keys: inside the screen whatever its size."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.view_cases import scene_view

from splatview_viewer.core.screen import Rect
from splatview_viewer.shell.overlay import KEYS, draw_help
from splatview_viewer.shell.panel import Panel

if TYPE_CHECKING:
    from splatview_viewer.screens.offscreen import OffscreenScreen


@pytest.mark.parametrize(("size", "scale"), [((1280, 800), 1.0), ((780, 1400), 2.0)])
def test_it_fits_into_any_screen(screen: OffscreenScreen, size: tuple[int, int], scale: float) -> None:
    with closing(scene_view(screen)) as view:  # a scene has the most keys
        lines = [*(line for tool in view.view.tools.values() for line in tool.keys), *KEYS]
    said = [line.keys for line in lines if line.keys != "Escape"]
    assert len(said) == len(set(said)), "no key does two things"
    x, bar = min(round(280 * scale), size[0] // 2), round(26 * scale)
    picture, panel = Rect(x, 0, size[0] - x, size[1] - bar), Panel(scale)
    screen.resize(*size, scale)
    for _ in range(2):  # letters are made in the first
        screen.framebuffer.clear(1.0, 1.0, 1.0)
        panel.draw_over(screen.framebuffer, lambda _, s: bool(draw_help(picture, s, lines)), scale)
    panel.close()
    rows, columns = np.nonzero((screen.pixels()[..., :3] < 250).any(axis=2))
    left, right = columns.min(), columns.max() + 1
    assert left > 0 and rows.min() > 0 and right < size[0] and rows.max() + 1 < size[1]
    assert np.ptp(columns) > 200 and np.ptp(rows) > 200
    if size[0] >= 1280 * scale:  # in a large one it is in the middle of the picture, and leaves the panel alone
        assert left > picture.x and abs((left + right) / 2 - (picture.x + picture.width / 2)) < 3
