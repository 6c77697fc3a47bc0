"""Hints over pictures whose values look wrong, and the click that corrects them."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from support.frames import cloud
from support.viewer import PICTURE, Viewer

import splatview
from splatview_viewer.core.events import Key, PointerLeave, PointerMove

RGB = torch.arange(40 * 60 * 3).reshape(40, 60, 3) % 256 / 255
SCENE = {
    **cloud(),
    "quats": torch.tensor([1.0, 0, 0, 0]) + 0.15 * cloud()["quats"],
    "scales": torch.tensor([-1.5, -3.0, -3.0]).expand(400, 3),
}
ACTIVATED = {
    **SCENE,
    "scales": SCENE["scales"].exp(),
    "opacities": SCENE["opacities"].sigmoid(),
}


def publish_and_show(
    viewer: Viewer, value: Any, name: str, device: str, **options: Any
) -> None:
    if isinstance(value, dict):
        moved = {k: t.to(device) for k, t in value.items()}
    else:
        moved = value.to(device)
    splatview.publish(moved, name, **options)

    def keys_of_stream() -> list[str]:
        return [entry.key for entry in viewer.state.entries if entry.name == name]

    viewer.until(keys_of_stream)
    viewer.user.select(keys_of_stream()[0])
    viewer.until(viewer.loaded)


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
)
@pytest.mark.parametrize(
    ("value", "options", "right"),
    [
        (
            (RGB * 255).permute(2, 0, 1).to(torch.bfloat16),
            {},
            (RGB * 255).to(torch.bfloat16).float() / 255,
        ),
        (ACTIVATED, {"activated": False}, SCENE),
        ({**SCENE, "opacities": ACTIVATED["opacities"]}, {}, SCENE),
        ({**SCENE, "quats": SCENE["quats"].roll(-1, 1)}, {}, SCENE),
    ],
    ids=["bytes", "activated", "opacities", "x y z w"],
)
def test_click_on_a_hint_corrects_the_display(
    viewer: Viewer,
    caplog: pytest.LogCaptureFixture,
    value: Any,
    options: dict[str, Any],
    right: Any,
    device: str,
) -> None:
    caplog.set_level(logging.WARNING, "splatview")
    publish_and_show(viewer, value, "odd", device, **options)
    hints = viewer.user.view.content.hints  # type: ignore[union-attr]
    viewer.find(hints.hint.button)
    covered = viewer.user.layout.active.covered
    count = len(covered())
    viewer.click(hints.hint.button)
    viewer.until(lambda: len(covered()) < count)
    x = PICTURE.x + 220
    y = PICTURE.y + 100
    viewer.do(PointerMove(x, y), Key("f"), PointerLeave())
    corrected = viewer.picture()
    publish_and_show(viewer, right, "right", device)
    viewer.do(PointerMove(x, y), Key("f"), PointerLeave())
    np.testing.assert_allclose(corrected, viewer.picture(), atol=8)
    messages = [r.message for r in caplog.records if "over the picture" in r.message]
    assert [message.split(":")[0] for message in messages] == ["odd"]
