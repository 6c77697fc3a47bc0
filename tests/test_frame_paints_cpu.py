"""What the viewer's CUDA kernels draw beside colours, on the CPU: the other paints, selections and scales."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from on_cpu import OnCpu
from renderer_cases import Chance, draw, looking_at_origin, psnr, random_scene
from test_frame_graph_cpu import KERNELS, SCENES, drawn

from splatview.viewer_app.cameras import MODELS
from splatview.viewer_app.renderers.activation import activate
from splatview.viewer_app.renderers.base import EPS_2D, PAINTS, RenderOptions
from splatview.viewer_app.renderers.kernels import frame
from splatview.viewer_app.renderers.kernels.frame import BODY_FLOATS, Parameters
from splatview.viewer_app.renderers.reference import ReferenceRenderer, project
from splatview.viewer_app.selecting import Selection

if TYPE_CHECKING:
    from splatview.viewer_app.scene import GaussianScene

OTHERS = [paint for paint in PAINTS if paint != "color"]


@pytest.fixture(scope="module")
def own() -> OnCpu:
    return OnCpu("frame.cu", KERNELS, {"KEY": "short"})


def compare(own: OnCpu, gaussians: GaussianScene, options: RenderOptions, view: Any = None, *, exact: bool = False,
            decibels: float = 60.0) -> None:
    view = view or looking_at_origin(75, 50)
    d = drawn(own, gaussians, view, options, slots=16384, exact=exact)
    expected = draw(ReferenceRenderer(), gaussians, view, options)
    color, alpha = d.rgba[..., :3].numpy(), d.rgba[..., 3].numpy()
    edge = np.abs(alpha - expected.alpha) == 1  # of a body, on a pixel's centre
    assert edge.mean() < 2e-3 and expected.alpha.max() > 0.1
    if options.paint == "overdraw":  # where alpha is just what counts, it may fall to either side
        decibels = min(decibels, 45.0)
    peak = float(expected.color.max())
    assert psnr(color[~edge], expected.color[~edge], peak) > decibels
    assert psnr(alpha[~edge], expected.alpha[~edge]) > decibels
    assert d.depth is not None and expected.depth is not None
    assert psnr(d.depth.numpy()[~edge], expected.depth[~edge], float(expected.depth.max())) > decibels


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("paint", OTHERS)
def test_the_picture_is_the_reference_s(own: OnCpu, paint: Any, name: str) -> None:
    compare(own, random_scene(3, SCENES[name]), RenderOptions("antialiased", paint=paint, point_px=5.0))


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("paint", PAINTS)
def test_selected_marked_and_scaled(own: OnCpu, paint: Any, exact: bool) -> None:
    some = Selection(opacity=(0.3, 0.95), scale=(0.02, 0.4), marked=(3, 17, 100, 199, 10_000))
    raw = random_scene(5, Chance(n=200, log_scale=(-2.6, 0.8)))
    gaussians = replace(raw, scales=np.exp(raw.scales), opacities=1 / (1 + np.exp(-raw.opacities)), activated=True)
    compare(own, gaussians, RenderOptions(paint=paint, selection=some, scale=1.4), exact=exact)


def test_a_selection_of_all_changes_no_bit(own: OnCpu) -> None:
    gaussians, view = random_scene(3, SCENES["usual"]), looking_at_origin(75, 50)
    gaussians = replace(gaussians, scales=np.exp(gaussians.scales), opacities=1 / (1 + np.exp(-gaussians.opacities)),
                        activated=True)
    plain, selected = (drawn(own, gaussians, view, options, exact=False).rgba
                       for options in (RenderOptions(), RenderOptions(selection=Selection(marked=(100_000,)))))
    assert torch.equal(plain, selected)


@pytest.mark.parametrize("paint", OTHERS)
def test_sorted_in_parts(own: OnCpu, monkeypatch: pytest.MonkeyPatch, paint: Any) -> None:
    gaussians, view = random_scene(3, SCENES["usual"]), looking_at_origin(75, 50)
    options = RenderOptions(paint=paint)
    whole = drawn(own, gaussians, view, options, exact=False)
    monkeypatch.setattr(frame, "PART", 128)
    parts = drawn(own, gaussians, view, options, exact=False)
    assert whole.rgba.any() and torch.equal(parts.rgba, whole.rgba)
    assert parts.depth is not None and whole.depth is not None and torch.equal(parts.depth, whole.depth)


@pytest.mark.parametrize("dtype", [torch.float16, torch.uint8])
def test_other_dtypes_of_the_picture(own: OnCpu, dtype: torch.dtype) -> None:
    gaussians, view = random_scene(2, Chance(n=100)), looking_at_origin(37, 21)
    for paint in ("ellipsoids", "rings"):
        whole = drawn(own, gaussians, view, RenderOptions(paint=paint), exact=False).rgba.clamp(0, 1)
        got = drawn(own, gaussians, view, RenderOptions(paint=paint), dtype=dtype, exact=False).rgba.float()
        got = got / 255 if dtype == torch.uint8 else got.clamp(0, 1)
        assert (got - whole).abs().max() < 0.51 / 255


@pytest.mark.parametrize("model", MODELS)
def test_surfaces_by_every_lens(own: OnCpu, model: Any) -> None:
    given, view = activate(random_scene(6, Chance(n=100, log_scale=(-2.5, 1.0)))), looking_at_origin(model=model)
    expected = project(given, view, RenderOptions(paint="ellipsoids"))
    assert expected.bodies is not None and len(expected.centers) > 50
    rgba, needed = torch.zeros(view.height, view.width, 4), torch.zeros(1, dtype=torch.int64)
    parameters = torch.zeros(ctypes.sizeof(Parameters) // 4)
    own.launch("set_frame", 1, 64, Parameters.of(view, rgba, None, needed.data_ptr()), parameters)
    means, quats, scales = (torch.from_numpy(a) for a in (given.means, given.quats, given.scales))
    out, n = torch.zeros(len(means), BODY_FLOATS), ctypes.c_int(len(means))
    own.launch("bodies", 1, 128, n, parameters, means, quats, scales, torch.ones(len(means), dtype=torch.int64),
               ctypes.c_int(MODELS.index(model)), ctypes.c_int(view.width), ctypes.c_int(view.height),
               ctypes.c_float(EPS_2D), out)
    depths = given.means @ view.viewmat[2, :3] + view.viewmat[2, 3]
    which = [int(np.abs(depths - z).argmin()) for z in expected.rgbz[:, 3]]
    got, shapes = out.numpy()[which], expected.bodies
    wholes = shapes.whiten.reshape(-1, 4)[:, [0, 1, 3]], shapes.thickness, shapes.slope, shapes.normals.reshape(-1, 9)
    for values, wanted in zip((got[:, :3], got[:, 3], got[:, 4:6], got[:, 6:15]), wholes, strict=True):
        assert np.abs(values - wanted).max() < 2e-3 * np.abs(wanted).max()
