"""CUDA kernels that activate and draw Gaussians agree with NumPy and the reference.

They run on the CPU (`support/kernels_on_cpu.h`); `tests/cuda/test_gsplat_renderer.py`
shows that all agrees with gsplat itself.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.frame_target import FrameTarget
from support.on_cpu import OnCpu
from support.packed_on_cpu import activation_kernels
from support.projection import projected
from support.reference import ReferenceRenderer, ellipses
from support.renderer_cases import (
    CLASSIC,
    Chance,
    activated,
    close,
    draw,
    looking_at_origin,
    random_scene,
)

from splatview_viewer.geometry import rotations
from splatview_viewer.geometry.cameras import MODELS, CameraModel
from splatview_viewer.render import activation
from splatview_viewer.render.base import ALPHA_MIN, Pixels, RenderOptions
from splatview_viewer.render.gsplat import drawing
from splatview_viewer.render.gsplat.activation import activate
from splatview_viewer.render.gsplat.drawing import FrameKernels
from splatview_viewer.render.gsplat.float_scene import FloatScene
from splatview_viewer.render.gsplat.to_bytes import over_background
from splatview_viewer.render.paints import PAINTS
from splatview_viewer.scene import EVERYTHING, Selection
from splatview_viewer.scene import flags as flags_of
from splatview_viewer.scene.scene import FIELDS, GaussianScene, as_floats

# -- activation ----------------------------------------------------------------------

NOWHERE = np.zeros(3)


@pytest.fixture(scope="module")
def kernels() -> OnCpu:
    return activation_kernels()


def raw(
    n: int = 300,
    degree: int = 3,
    dtype: torch.dtype = torch.float32,
    activated: bool = False,
) -> GaussianScene:
    gaussians = random_scene(n, Chance(n=n, sh_degree=degree))
    tensors = {name: getattr(gaussians, name).to(dtype) for name in FIELDS}
    if activated:
        tensors["scales"] = tensors["scales"].exp()
        tensors["opacities"] = tensors["opacities"].sigmoid()
    return GaussianScene(**tensors, activated=activated)


def assert_same(
    kernels: OnCpu, r: GaussianScene, terms: int, origin: np.ndarray = NOWHERE
) -> FloatScene:
    """Check that the kernel activates as the CPU does; return its result."""
    fields = {name: getattr(r, name).to(torch.float32) for name in FIELDS}
    fields["means"] = r.means.to(torch.float64)
    fields["shN"] = fields["shN"][:, : terms - 1]
    scene = GaussianScene(**fields, activated=r.activated)
    expected, expected_out = activation.activate(scene)
    shapes = ((3,), (4,), (3,), (), (terms, 3))
    got = FloatScene(*(torch.full((len(r), *shape), 77.0) for shape in shapes))
    left_out = torch.full((3,), 7)
    counters = torch.zeros(4, dtype=torch.int32)
    activate(r, got, origin, left_out, counters, kernels)
    assert not counters.any()
    assert activation.LeftOut(*left_out.tolist()) == expected_out
    # Nothing else of the others is read.
    is_valid = got.opacities != 0
    assert torch.equal(is_valid, expected.opacities != 0)
    means = as_floats(r.means)
    moved = (means - torch.from_numpy(origin).to(means.dtype)).float()
    quats = torch.nn.functional.normalize(got.quats.double(), dim=-1).float()
    for a, b, tolerance in (
        (got.means, moved, 0),
        (quats, expected.quats, 1e-7),
        (got.scales, expected.scales, 0),
        (got.opacities, expected.opacities, 0),
    ):
        torch.testing.assert_close(a[is_valid], b[is_valid], rtol=1e-6, atol=tolerance)
    colors = torch.cat([expected.sh0[:, None], expected.shN], 1)
    assert torch.equal(got.colors[is_valid], colors[is_valid])
    return got


def test_activation_agrees_for_every_size_and_dtype(kernels: OnCpu) -> None:
    for n, degree, done in (
        (1, 0, False),
        (31, 1, True),
        (32, 2, False),
        (33, 3, True),
        (40, 4, False),
    ):
        got = assert_same(kernels, raw(n, degree, activated=done), (degree + 1) ** 2)
        assert (got.opacities > 0).all()
        assert (got.scales > 0).all()
        assert torch.equal(got.quats.abs().amax(1), torch.ones(n))
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn):
        assert_same(kernels, raw(dtype=dtype), 16)
    mixed = replace(
        raw(),
        shN=raw().shN.half(),
        means=raw().means.double(),
        quats=raw().quats.bfloat16(),
    )
    assert_same(kernels, mixed, 16)
    far = np.array([4.21e6, -1.7e5, 4.78e6])
    r = raw(dtype=torch.float64)
    distant = replace(r, means=r.means + torch.from_numpy(far))
    moved = assert_same(kernels, distant, 16, far)
    # Means are rounded after the subtraction.
    assert torch.allclose(moved.means, r.means.float(), rtol=0, atol=2e-6)


def test_activation_applies_to_scales_and_opacities_separately(kernels: OnCpu) -> None:
    r = raw()
    assert_same(kernels, replace(r, scales=r.scales.exp(), activated=(True, False)), 16)
    done = replace(r, opacities=r.opacities.sigmoid(), activated=(False, True))
    assert_same(kernels, done, 16)
    # These Gaussians are flat.
    done.scales[:, 2] = -math.inf
    got = assert_same(kernels, done, 16)
    assert not got.scales[:, 2].any()
    assert (got.opacities > 0).all()


def test_activation_reads_any_strides(kernels: OnCpu) -> None:
    r = raw()
    columns = torch.cat(
        [r.means, r.quats, r.scales, r.opacities[:, None], r.sh0, r.shN.flatten(1)], 1
    )
    means, quats, scales, opacities, sh0, shN = columns.split([3, 4, 3, 1, 3, 45], 1)
    shN = shN.unflatten(1, (15, 3))
    scene = GaussianScene(means, quats, scales, opacities[:, 0], sh0, shN)
    assert_same(kernels, scene, 16)
    expanded = r.means[:1].expand(300, 3)
    assert_same(kernels, replace(r, means=expanded, shN=r.shN.mT.contiguous().mT), 16)


def test_activation_leaves_invalid_numbers_out(kernels: OnCpu) -> None:
    for bad in (float("nan"), float("inf"), float("-inf")):
        r = raw(500)
        for i, name in enumerate(FIELDS):
            getattr(r, name)[40 * i].view(-1)[-1] = bad
        r.quats[300] = 0
        r.scales[301, 1] = 200.0
        r.quats[302] = torch.tensor([1e-42, 0, 0, 1e-42])
        # This one is in the second warp.
        r.shN[33] = bad
        # 0 has a bad mean, 40 a bad quaternion, 80 a scale, 120 an opacity.
        left_out = {0, 33, 40, 80, 120, 160, 200, 300, 301}
        if bad == -math.inf:
            # The sigmoid of -inf is 0, as is the opacity of those that are left out.
            r.opacities[120] = math.nan
            # A flat Gaussian is drawn.
            left_out -= {80}
        if bad == math.inf:
            left_out -= {120}
        got = assert_same(kernels, r, 16)
        assert set((got.opacities == 0).nonzero().flatten().tolist()) == left_out


# -- frames --------------------------------------------------------------------------

KERNELS = (
    "set_frame",
    "choose",
    "shade",
    "shade_as",
    "bodies",
    "fill",
    "gather",
    "blend",
    "blend_bodies",
    "blend_rings",
    "blend_points",
    "blend_overdraw",
)
VIEW = looking_at_origin(75, 50)
LEAST_COMPENSATION = 0.2
RADIUS_CLIP = 1.0
"""Pixels: Gaussians that reach no further are left out."""


def projection(least_compensation: float = 0.0) -> OnCpu:
    defines = {"LEAST_COMPENSATION": f"{least_compensation}f"}
    return OnCpu("projection.cu", ["project"], defines)


@pytest.fixture(scope="module")
def frames() -> FrameKernels:
    macros = {"KEY": "short", "ALPHA_MAX": "0.999f"}
    return FrameKernels(projection(), OnCpu("frame.cu", KERNELS, macros))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("antialiased", [True, False])
def test_projection_follows_gsplat_s_rules(
    model: CameraModel, antialiased: bool
) -> None:
    chance = Chance(n=2000, log_scale=(-3.5, 1.5), logit=(0.0, 4.0))
    s = activated(random_scene(5, chance))
    view = replace(looking_at_origin(75, 50, model=model), far=5.0)
    rotation = view.viewmat[:3, :3]
    p = s.means.double().numpy() @ rotation.T + view.viewmat[:3, 3]
    axes = rotations.matrix(s.quats.numpy()) * s.scales.double().numpy()[:, None]
    centers, _, (xx, xy, yy), det, sharp = ellipses(p, view, rotation @ axes)
    factors = np.ones(len(s))
    if antialiased:
        factors = np.sqrt(np.maximum(sharp / det, LEAST_COMPENSATION**2))
    opacity = s.opacities.double().numpy() * factors
    extend = np.sqrt(2 * np.log(np.maximum(opacity * 255, 1))).clip(max=3.33)
    reach = extend[:, None] * np.sqrt(np.stack([xx, yy], 1))
    sides = np.ceil(reach)
    is_visible = (p[:, 2] >= view.near) & (p[:, 2] <= view.far) & (opacity >= ALPHA_MIN)
    is_visible &= (sides > RADIUS_CLIP).any(1)
    is_visible &= ((centers + sides > 0) & (centers - sides < (75, 50))).all(1)
    kernels = projection(LEAST_COMPENSATION)
    tensors = projected(kernels, s, view, antialiased, RADIUS_CLIP)
    radii, *results = (tensor.numpy() for tensor in tensors)
    expected = [centers, p[:, 2:], np.stack([yy, -xy, xx], 1) / det[:, None]]
    if antialiased:
        expected.append(factors[:, None])
        assert (factors[is_visible] == LEAST_COMPENSATION).any()
    assert 300 < is_visible.sum() < len(s) - 300
    # Rounding decides about a few; determinants of needles are differences.
    is_same = (radii == np.where(is_visible[:, None], sides, 0)).all(1)
    assert is_same.mean() > 0.97
    is_seen = is_visible & (radii > 0).all(1)
    for got, values in zip(results, expected, strict=False):
        is_close = np.isclose(got[is_seen], values[is_seen], 1e-3, 1e-4)
        assert is_close.mean() > 0.97


def drawn(
    kernels: FrameKernels,
    gaussians: GaussianScene,
    options: RenderOptions = CLASSIC,
    slots: int = 16384,
) -> tuple[Pixels, int]:
    """Draw a scene; selections need an activated one.

    Returns:
        The picture, and the number of pairs of Gaussian and tile.
    """
    t = {k: getattr(gaussians, k).clone() for k in FIELDS}
    if not gaussians.activated:
        t["scales"] = t["scales"].exp()
        t["opacities"] = t["opacities"].sigmoid()
    sh = torch.cat([t.pop("sh0")[:, None], t.pop("shN")], 1).contiguous()
    if options.selection == EVERYTHING:
        flags = None
    else:
        flags = flags_of(gaussians, options.selection)
    tensors = FloatScene(**t, colors=sh, flags=flags)
    target = FrameTarget(VIEW, options)
    parameters = target.parameters(kernels.drawing)
    kind = target.kind(tensors.degree, slots)
    drawing.draw(kind, tensors, parameters, kernels)
    return target.pixels, target.needed


FRAMES = [
    (Chance(n=150, sh_degree=1), RenderOptions()),
    (Chance(n=150), RenderOptions(sh_degree=1)),
    (Chance(n=150, sh_degree=4), RenderOptions("antialiased", depth=False)),
    (Chance(n=60, log_scale=(-2.5, 2.0)), RenderOptions("antialiased")),
    (Chance(n=200, logit=(-4.5, 1.0)), RenderOptions("antialiased")),
]
SELECTED = RenderOptions(
    selection=Selection(opacity=(0.3, 0.95), marked=(5, 17)), scale=0.6
)
for paint in [paint for paint in PAINTS if paint != "color"]:
    FRAMES.append((Chance(n=150), replace(SELECTED, paint=paint)))


@pytest.mark.parametrize(("chance", "options"), FRAMES)
def test_frame_agrees_with_the_reference(
    frames: FrameKernels, chance: Chance, options: RenderOptions
) -> None:
    gaussians = activated(random_scene(3, chance))
    picture, _ = drawn(frames, gaussians, options)
    expected = draw(ReferenceRenderer(), gaussians, VIEW, options)
    close(picture, expected, 70 if options.paint == "color" else 50)


def test_frame_with_too_few_slots_reports_them(frames: FrameKernels) -> None:
    gaussians = random_scene(3, Chance(n=200))
    complete, needed = drawn(frames, gaussians)
    for slots in (1, 64, 200):
        short, reported = drawn(frames, gaussians, slots=slots)
        assert reported == needed > slots
        assert np.isfinite(short.color).all()
        assert np.isfinite(short.alpha).all()
    fitting, _ = drawn(frames, gaussians, slots=needed)
    assert np.array_equal(fitting.color, complete.color)


# -- bytes ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("background", [(0.0, 0.0, 0.0), (0.2, 1.0, 0.5)])
def test_picture_over_a_background_becomes_the_nearest_bytes(
    dtype: torch.dtype, background: tuple[float, float, float]
) -> None:
    rgba = torch.rand(7, 59, 4, generator=torch.manual_seed(0)) * 1.4 - 0.2
    rgba = rgba.to(dtype)
    kernels = OnCpu("bytes.cu", ["over_background"])
    rgb = over_background(rgba, background, kernels)
    background_light = (1 - rgba[..., 3:].float().clamp(0, 1)) * torch.tensor(
        background
    )
    exact = (rgba[..., :3].float() + background_light).clamp(0, 1) * 255
    assert rgb.shape == (7, 59, 3)
    assert (rgb - exact).abs().max() < 0.51
