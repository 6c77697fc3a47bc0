"""Overlays whose tensors lie on a GPU: the trainer's GPU copies them to the host, and they are seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.viewer import Viewer

from splatview.viewer_app.app import AppOptions
from splatview.viewer_app.screens.offscreen import OffscreenScreen
from splatview.viewer_app.views._overlay.palette import PALETTE
from splatview.viewer_app.views.image import ImageView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.programs import Programs

    from splatview.viewer_app.views._overlay.layers import Layer

pytestmark = pytest.mark.cuda

TRAINER = """
import sys, time, torch, splatview
on = sys.argv[1]
picture = torch.full((120, 160, 3), 90, dtype=torch.uint8, device="cuda")
mask = torch.zeros(2, 120, 160, dtype=torch.bool, device=on)
mask[1, 70:110, 70:110] = True
n = 0
while True:
    splatview.publish(picture, "camera")
    x = 10 + n % 2
    splatview.annotate("camera", boxes=torch.tensor([[x, 20.0, x + 40, 60], [70, 70, 110, 110]], device=on),
                       labels=torch.tensor([0, 1], device=on), names=["cat", "dog"], masks=mask,
                       scores=torch.tensor([0.5, 0.75], device=on), by="network")
    n += 1
    time.sleep(0.02)
"""


@pytest.fixture
def viewer() -> Iterator[Viewer]:
    app = Viewer(OffscreenScreen(700, 400), AppOptions(max_fps=200))
    yield app
    error = app.screen.ctx.error
    app.close()
    assert error == "GL_NO_ERROR"


def layers(viewer: Viewer) -> list[Layer]:
    view = viewer.seat.view
    return view.content.layers.all if isinstance(view, ImageView) else []


@pytest.mark.parametrize("on", ["cuda", "cpu"])
def test_results_of_a_network_are_seen(viewer: Viewer, programs: Programs, on: str) -> None:
    programs.code(TRAINER, on)
    viewer.until(lambda: layers(viewer))
    (stream,) = [s for s in viewer.catalogue.subscriber.streams if s.kind == "overlay"]
    assert stream.sharing == ("host" if on == "cuda" else "ring")

    def result() -> tuple[list[str], list[float]]:
        found = layers(viewer)[0].result
        assert found is not None
        return [found.words(n) for n in range(len(found.boxes))], found.boxes[:, 0].tolist()

    seen = set()

    def both() -> bool:
        seen.add(result()[1][0])
        return seen == {10.0, 11.0}

    viewer.until(both)
    assert result()[0] == ["cat 0.50", "dog 0.75"]
    assert len(layers(viewer)[0].result.masks) == 1  # type: ignore[union-attr]
    pixels = viewer.picture()
    for color in (PALETTE[0], PALETTE[1], 0.6 * 90 + 0.4 * PALETTE[1]):
        assert (np.abs(pixels - color) <= 3).all(-1).sum() > 50
