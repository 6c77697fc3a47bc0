"""Pictures of what is written over with words, made without a screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from support.memory_data import small_snapshot

from splatview.viewer_app.plots import draw_plot

if TYPE_CHECKING:
    from splatview.viewer_app.screens.offscreen import OffscreenScreen


def test_a_snapshot_is_painted_to_its_end(screen: OffscreenScreen) -> None:
    pixels = draw_plot(screen, "snapshot", small_snapshot(0), (640, 400))
    assert pixels is not None and pixels.shape == (400, 640, 4)
    assert len(np.unique(pixels[..., :3].reshape(-1, 3), axis=0)) > 30
