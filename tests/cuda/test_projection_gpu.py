"""The viewer projects Gaussians on a GPU as the installed gsplat does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.projection import projected
from support.renderer_cases import Chance, activated, looking_at_origin, random_scene

from splatview_viewer.geometry.cameras import MODELS, Camera, CameraModel
from splatview_viewer.render.base import EPS_2D
from splatview_viewer.render.gsplat.cuda import kernels
from splatview_viewer.render.gsplat.rules import gsplat_rules
from splatview_viewer.scene.scene import FIELDS, GaussianScene

pytestmark = pytest.mark.cuda
DEVICE = torch.device("cuda", 0)
ROUNDING = 8 * 2.0**-24
"""Relative error of a sum of products of float32."""


def odd_scene() -> GaussianScene:
    """Make an activated scene of all sizes, with numbers in it that no trainer means."""
    chance = Chance(n=20000, log_scale=(-4.0, 3.0), logit=(0.0, 4.0), spread=3.0)
    s = activated(random_scene(9, chance))
    s = replace(s, **{name: getattr(s, name).to(DEVICE) for name in FIELDS})
    s.quats[:50] = 0.0
    s.means[50:100] = torch.nan
    s.means[100:150] = 3e38
    s.scales[150:200] = 1e8
    s.scales[200:250] = 0.0
    s.scales[250:300] = torch.inf
    s.opacities[300:350] = torch.nan
    s.quats[350:400] = 1e30
    return s


def gsplat_projects(
    s: GaussianScene, view: Camera, antialiased: bool
) -> list[torch.Tensor]:
    from gsplat import fully_fused_projection

    viewmat, K = (
        torch.tensor(np.asarray(m)[None], dtype=torch.float32, device=DEVICE)
        for m in (view.viewmat, view.K)
    )
    results = fully_fused_projection(
        s.means,
        None,
        s.quats,
        s.scales,
        viewmat,
        K,
        view.width,
        view.height,
        eps2d=EPS_2D,
        near_plane=view.near,
        far_plane=view.far,
        calc_compensations=antialiased,
        camera_model=view.model,
        opacities=s.opacities,
    )
    if not antialiased:
        results = results[:4]
    return [tensor[0].reshape(len(s), -1) for tensor in results]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("antialiased", [True, False])
def test_projection_is_gsplat_s(model: CameraModel, antialiased: bool) -> None:
    """Centres and depths are the same bits.

    What is divided by a determinant differs by that one's rounding where another compiler
    made gsplat's kernels: the more, the thinner an ellipse is.
    """
    s = odd_scene()
    view = replace(looking_at_origin(333, 250, model=model), far=8.0)
    least_compensation = gsplat_rules(DEVICE).least_compensation
    module = kernels("projection.cu", (f"LEAST_COMPENSATION={least_compensation}f",))
    radii, *got = projected(module, s, view, antialiased)
    expected_radii, *expected = gsplat_projects(s, view, antialiased)
    is_seen = (expected_radii > 0).all(1)
    assert 1000 < int(is_seen.sum()) < len(s)
    is_same = (radii == expected_radii).all(1)
    assert is_same.float().mean() > 0.99
    is_seen &= is_same
    centers, depths, conics, *compensations = [t[is_seen].double() for t in got]
    their_centers, their_depths, their_conics, *their_compensations = [
        t[is_seen].double() for t in expected
    ]
    assert torch.equal(centers.nan_to_num(), their_centers.nan_to_num())
    assert torch.equal(depths.nan_to_num(), their_depths.nan_to_num())
    xx, xy, yy = their_conics.unbind(1)
    thinness = xx * yy / (xx * yy - xy * xy).clamp(min=1e-30)
    bound = ROUNDING * thinness * (xx + yy)
    is_close = (conics - their_conics).abs().amax(1) <= bound
    is_finite = torch.isfinite(their_conics).all(1) & torch.isfinite(thinness)
    assert is_close[is_finite].double().mean() > 0.97
    for compensation, their_compensation in zip(
        compensations, their_compensations, strict=True
    ):
        is_close = torch.isclose(
            compensation, their_compensation, rtol=0, atol=0.02, equal_nan=True
        )
        assert is_close.double().mean() > 0.999
