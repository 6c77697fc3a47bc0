"""The CUDA kernels that activate and draw Gaussians, run on the CPU (`support/kernels_on_cpu.h`), against the same in
NumPy and against the reference renderer. gsplat's projection is stood in for by its rules; that the whole agrees with
gsplat itself is what `tests/cuda/test_gsplat_renderer.py` shows.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.on_cpu import OnCpu
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
from splatview_viewer.geometry.cameras import Camera
from splatview_viewer.render import activation
from splatview_viewer.render.base import ALPHA_MIN, Pixels, RenderOptions
from splatview_viewer.render.gsplat import drawing
from splatview_viewer.render.gsplat.drawing import GraphKey, Parameters, Scene
from splatview_viewer.render.gsplat.scene import Active, activate
from splatview_viewer.scene import EVERYTHING, Selection
from splatview_viewer.scene import flags as flags_of
from splatview_viewer.scene.scene import FIELDS, GaussianScene, as_floats

# -- activation ----------------------------------------------------------------------------------------------------

NOWHERE = np.zeros(3)


@pytest.fixture(scope="module")
def own() -> OnCpu:
    return OnCpu("activate.cu", {"activate": True})


def raw(
    n: int = 300,
    degree: int = 3,
    dtype: torch.dtype = torch.float32,
    activated: bool = False,
) -> GaussianScene:
    made = random_scene(n, Chance(n=n, sh_degree=degree))
    tensors = {name: getattr(made, name).to(dtype) for name in FIELDS}
    if activated:
        tensors["scales"], tensors["opacities"] = (
            tensors["scales"].exp(),
            tensors["opacities"].sigmoid(),
        )
    return GaussianScene(**tensors, activated=activated)


def assert_same(
    own: OnCpu, r: GaussianScene, terms: int, origin: np.ndarray = NOWHERE
) -> Active:
    """As on the CPU; returns what the kernel made."""
    fields = {
        name: getattr(r, name).to(torch.float64 if name == "means" else torch.float32)
        for name in FIELDS
    }
    fields["shN"] = fields["shN"][:, : terms - 1]
    expected, expected_out = activation.activate(
        GaussianScene(**fields, activated=r.activated)
    )
    got = Active(
        *(
            torch.full((len(r), *shape), 77.0)
            for shape in ((3,), (4,), (3,), (), (terms, 3))
        )
    )
    left_out = torch.full((3,), 7)
    counters = torch.zeros(4, dtype=torch.int32)
    activate(r, got, origin, left_out, counters, own)
    assert not counters.any()
    assert activation.LeftOut(*left_out.tolist()) == expected_out
    good = got.opacities != 0  # nothing else of the others is read
    assert torch.equal(good, expected.opacities != 0)
    means = as_floats(r.means)
    for a, b in (
        (got.means, (means - torch.from_numpy(origin).to(means.dtype)).float()),
        (
            torch.nn.functional.normalize(got.quats.double(), dim=-1).float(),
            expected.quats,
        ),
        (got.scales, expected.scales),
        (got.opacities, expected.opacities),
    ):
        torch.testing.assert_close(
            a[good], b[good], rtol=1e-6, atol=1e-7 if a.shape[1:] == (4,) else 0
        )
    assert torch.equal(
        got.colors[good], torch.cat([expected.sh0[:, None], expected.shN], 1)[good]
    )
    return got


def test_activation_of_every_size_and_dtype(own: OnCpu) -> None:
    for n, degree, done in (
        (1, 0, False),
        (31, 1, True),
        (32, 2, False),
        (33, 3, True),
        (40, 4, False),
    ):
        got = assert_same(own, raw(n, degree, activated=done), (degree + 1) ** 2)
        assert (got.opacities > 0).all()
        assert (got.scales > 0).all()
        assert torch.equal(got.quats.abs().amax(1), torch.ones(n))
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn):
        assert_same(own, raw(dtype=dtype), 16)
    assert_same(
        own,
        replace(
            raw(),
            shN=raw().shN.half(),
            means=raw().means.double(),
            quats=raw().quats.bfloat16(),
        ),
        16,
    )
    far = np.array([4.21e6, -1.7e5, 4.78e6])
    r = raw(dtype=torch.float64)
    moved = assert_same(own, replace(r, means=r.means + torch.from_numpy(far)), 16, far)
    assert torch.allclose(
        moved.means, r.means.float(), rtol=0, atol=2e-6
    )  # rounded after the subtraction


def test_activation_of_scales_and_opacities_apart(own: OnCpu) -> None:
    r = raw()
    assert_same(own, replace(r, scales=r.scales.exp(), activated=(True, False)), 16)
    done = replace(r, opacities=r.opacities.sigmoid(), activated=(False, True))
    assert_same(own, done, 16)
    done.scales[:, 2] = -math.inf  # flat
    got = assert_same(own, done, 16)
    assert not got.scales[:, 2].any()
    assert (got.opacities > 0).all()


def test_activation_of_any_strides(own: OnCpu) -> None:
    r = raw()
    every = torch.cat(
        [r.means, r.quats, r.scales, r.opacities[:, None], r.sh0, r.shN.flatten(1)], 1
    )
    means, quats, scales, opacities, sh0, rest = every.split([3, 4, 3, 1, 3, 45], 1)
    assert_same(
        own,
        GaussianScene(
            means, quats, scales, opacities[:, 0], sh0, rest.unflatten(1, (15, 3))
        ),
        16,
    )
    assert_same(
        own,
        replace(r, means=r.means[:1].expand(300, 3), shN=r.shN.mT.contiguous().mT),
        16,
    )


def test_activation_leaves_bad_numbers_out(own: OnCpu) -> None:
    for bad in (float("nan"), float("inf"), float("-inf")):
        r = raw(500)
        for i, name in enumerate(FIELDS):
            getattr(r, name)[40 * i].view(-1)[-1] = bad
        r.quats[300] = 0
        r.scales[301, 1] = 200.0
        r.quats[302] = torch.tensor([1e-42, 0, 0, 1e-42])
        r.shN[33] = bad  # the second warp
        left_out = {
            0,
            33,
            40,
            80,
            120,
            160,
            200,
            300,
            301,
        }  # a mean first, then a quaternion, a scale, an opacity
        if bad == -math.inf:
            r.opacities[120] = (
                math.nan
            )  # the sigmoid of -inf is 0 like that of those that are left out
            left_out -= {80}  # a flat Gaussian
        if bad == math.inf:
            left_out -= {120}
        got = assert_same(own, r, 16)
        assert set((got.opacities == 0).nonzero().flatten().tolist()) == left_out


# -- frames --------------------------------------------------------------------------------------------------------

KERNELS = {
    "set_frame": False,
    "choose": False,
    "shade": True,
    "shade_as": True,
    "bodies": False,
    "fill": False,
    "gather": False,
    "blend": True,
    "blend_bodies": True,
    "blend_rings": True,
    "blend_points": True,
    "blend_overdraw": True,
}
VIEW = looking_at_origin(75, 50)


class Projection:
    """gsplat's for one camera, by the reference's rules."""

    CameraModelType = SimpleNamespace(PINHOLE="pinhole")

    def projection_ewa_3dgs_fused_fwd(self, *args: Any) -> tuple[torch.Tensor, ...]:
        (
            means,
            _,
            quats,
            scales,
            opacities,
            viewmats,
            Ks,
            width,
            height,
            _,
            near,
            far,
            _,
            antialiased,
            model,
        ) = args
        view = Camera(
            viewmats[0].double().numpy(), Ks[0].double().numpy(), width, height, model
        )
        turn = view.viewmat[:3, :3]
        opacity = opacities.double().numpy()
        p = means.double().numpy() @ turn.T + view.viewmat[:3, 3]
        m = turn @ (rotations.matrix(quats.numpy()) * scales.double().numpy()[:, None])
        centers, _, (xx, xy, yy), det, sharp = ellipses(p, view, m)
        compensations = np.sqrt(sharp / det)
        opacity = opacity * (compensations if antialiased else 1)
        extend = np.sqrt(2 * np.log(np.maximum(opacity * 255, 1))).clip(max=3.33)
        radii = np.ceil(extend[:, None] * np.sqrt(np.stack([xx, yy], 1)))
        seen = (p[:, 2] >= near) & (p[:, 2] <= far) & (opacity >= ALPHA_MIN)
        seen &= ((centers + radii > 0) & (centers - radii < (width, height))).all(1)
        depths = np.where(seen, p[:, 2], np.nan)  # gsplat leaves what was there
        conics = np.stack([yy, -xy, xx], 1) / det[:, None]
        found = (
            np.where(seen[:, None], radii, 0).astype(np.int32),
            centers,
            depths,
            conics,
            compensations,
        )
        return tuple(
            torch.from_numpy(a if a.dtype == np.int32 else a.astype(np.float32))[None]
            for a in found
        )


@pytest.fixture(scope="module")
def frames() -> OnCpu:
    return OnCpu("frame.cu", KERNELS, {"KEY": "short"})


def drawn(
    own: OnCpu,
    given: GaussianScene,
    options: RenderOptions = CLASSIC,
    slots: int = 16384,
) -> tuple[Pixels, int]:
    """The picture, and how many pairs of Gaussian and tile there were. What is selected is activated."""
    view = VIEW
    t = {k: getattr(given, k).clone() for k in FIELDS}
    if not given.activated:
        t["scales"], t["opacities"] = t["scales"].exp(), t["opacities"].sigmoid()
    sh = torch.cat([t.pop("sh0")[:, None], t.pop("shN")], 1).contiguous()
    if options.selection == EVERYTHING:
        flags = None
    else:
        flags = flags_of(given, options.selection)
    tensors = Scene(**t, sh0=sh[:, 0], shN=sh[:, 1:], flags=flags)
    rgba = torch.full((view.height, view.width, 4), 7.0)
    depth = torch.full((view.height, view.width), 7.0) if options.depth else None
    needed = torch.full((1,), -1)
    parameters = torch.zeros(ctypes.sizeof(Parameters) // 4)
    own.launch(
        "set_frame",
        1,
        64,
        Parameters.of(view, options, rgba, depth, needed.data_ptr()),
        parameters,
    )
    kind = GraphKey(
        view.width,
        view.height,
        view.model,
        view.near,
        view.far,
        options.mode == "antialiased",
        options.depth,
        tensors.degree if options.sh_degree is None else options.sh_degree,
        rgba.element_size(),
        slots,
        paint=options.paint,
        selected=flags is not None,
        scaled=options.scale != 1.0,
    )
    drawing.draw(kind, tensors, parameters, Projection(), own)
    picture = rgba.numpy()
    return Pixels(
        picture[..., :3], picture[..., 3], None if depth is None else depth.numpy()
    ), int(needed)


FRAMES = [
    (Chance(n=150, sh_degree=1), RenderOptions()),
    (Chance(n=150), RenderOptions(sh_degree=1)),
    (Chance(n=150, sh_degree=4), RenderOptions("antialiased", depth=False)),
    (Chance(n=60, log_scale=(-2.5, 2.0)), RenderOptions("antialiased")),
    (Chance(n=200, logit=(-4.5, 1.0)), RenderOptions("antialiased")),
    *(
        (
            Chance(n=150),
            RenderOptions(
                paint=paint,
                selection=Selection(opacity=(0.3, 0.95), marked=(5, 17)),
                scale=0.6,
            ),
        )
        for paint in ("normals", "ellipsoids", "rings", "points", "overdraw")
    ),
]


@pytest.mark.parametrize(("chance", "options"), FRAMES)
def test_frame_is_the_reference_s(
    frames: OnCpu, chance: Chance, options: RenderOptions
) -> None:
    given = activated(random_scene(3, chance))
    close(
        drawn(frames, given, options)[0],
        draw(ReferenceRenderer(), given, VIEW, options),
        70 if options.paint == "color" else 50,
    )


def test_frame_with_too_few_slots_reports_them(frames: OnCpu) -> None:
    given = random_scene(3, Chance(n=200))
    whole, needed = drawn(frames, given)
    for slots in (1, 64, 200):
        short, told = drawn(frames, given, slots=slots)
        assert told == needed > slots
        assert np.isfinite(short.color).all()
        assert np.isfinite(short.alpha).all()
    assert np.array_equal(drawn(frames, given, slots=needed)[0].color, whole.color)
