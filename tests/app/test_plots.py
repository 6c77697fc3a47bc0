"""Pictures of what is written over with words, made without a screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.memory_data import small_snapshot
from support.view_cases import module_screen, screen_fixture  # noqa: F401

from splatview.viewer_app.errors import ViewerError
from splatview.viewer_app.plots import draw_plot

if TYPE_CHECKING:
    from splatview.viewer_app.screens.offscreen import OffscreenScreen


def test_a_snapshot_is_painted_to_its_end(screen: OffscreenScreen) -> None:
    pixels = draw_plot(screen, "snapshot", small_snapshot(0), (640, 400))
    assert pixels is not None and pixels.shape == (400, 640, 4)
    assert len(np.unique(pixels[..., :3].reshape(-1, 3), axis=0)) > 30


@pytest.mark.parametrize("function", ["splatview.viewer_app.memory.analysis.colors",
                                      "splatview.viewer_app.memory.timeline.Bands.paint"])
def test_what_fails_is_told_and_no_picture_is_written(function: str, screen: OffscreenScreen,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **options: Any) -> None:
        raise RuntimeError("no colours today")

    monkeypatch.setattr(function, fails)
    with pytest.raises(ViewerError, match="no colours today"):
        draw_plot(screen, "snapshot", small_snapshot(0), (640, 400))
