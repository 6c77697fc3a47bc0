"""Forms of published Gaussians, which the viewer converts, from publish to view."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.frames import cloud
from support.renderer_cases import psnr
from support.viewer import PICTURE, Viewer

import splatview
from splatview_viewer.core.events import Key, PointerLeave, PointerMove

RAW = {**cloud(), "scales": cloud()["scales"] + torch.tensor([0.5, 0.0, -0.5])}
SCALES = RAW["scales"].exp()
OPACITIES = RAW["opacities"].sigmoid()
SIZES = torch.linspace(0, 0.2, len(SCALES))
FILTERED = SCALES.hypot(SIZES[:, None])


def picture(viewer: Viewer, name: str, value: Any, device: str, **options: Any) -> Any:
    visible = {k: t.to(device) for k, t in value.items()}
    splatview.publish(visible, name, **options)

    def keys() -> list[str]:
        return [entry.key for entry in viewer.state.entries if entry.name == name]

    viewer.until(keys)
    viewer.user.select(keys()[0])
    viewer.until(viewer.loaded)
    viewer.do(PointerMove(PICTURE.x + 220, 100), Key("f"), PointerLeave())
    return viewer.picture()


FORMS: dict[str, tuple[dict[str, torch.Tensor], Any, torch.Tensor, torch.Tensor]] = {
    "pair": ({"scales": SCALES}, (True, False), SCALES, OPACITIES),
    "flat": (
        {"scales": RAW["scales"][:, :2]},
        None,
        SCALES * torch.tensor([1.0, 1.0, 0.0]),
        OPACITIES,
    ),
    "filter": (
        {"filter_3D": SIZES[:, None]},
        None,
        FILTERED,
        OPACITIES * (SCALES / FILTERED).prod(1),
    ),
}
"""Published values, their `activated`, and the scales and opacities meant."""


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
)
def test_published_form_is_drawn_as_the_values_that_it_means(
    viewer: Viewer, device: str
) -> None:
    for form, (published, activated, scales, opacities) in FORMS.items():
        options = {}
        if activated is not None:
            options["activated"] = activated
        drawn = picture(viewer, form, {**RAW, **published}, device, **options)
        right = {**RAW, "scales": scales, "opacities": opacities}
        expected = picture(viewer, f"right {form}", right, device, activated=True)
        assert expected.max() > 50
        # A picture may still be a coarse one, which thin Gaussians show.
        assert psnr(drawn, expected, 255) > 40, form
