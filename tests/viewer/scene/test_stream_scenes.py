"""Frames of streams become scenes: activations, flat Gaussians, mip-splatting's filter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.frames import cloud, frame_of

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.recording.packed import pack, read_packed, unpack, write_packed
from splatview_viewer.render.activation import activate
from splatview_viewer.scene.frames import activated_in, scene_of
from splatview_viewer.scene.scene import GaussianScene, merged
from splatview_viewer.scene.turning import Placement, transformed
from splatview_viewer.workspace.join_shards import join

RAW = cloud(40)
SCALES = RAW["scales"].exp()
OPACITIES = RAW["opacities"].sigmoid()


def frame(activated: Any = False, **tensors: torch.Tensor) -> Any:
    return frame_of(
        "gaussians", {**RAW, **tensors}, color="sh", activated=activated, sh_degree=0
    )


def drawn(scene: GaussianScene) -> tuple[np.ndarray, np.ndarray]:
    """Return the scales and opacities with which a scene is drawn."""
    active, left_out = activate(scene)
    assert left_out.total == 0
    return active.scales.numpy(), active.opacities.numpy()


def assert_drawn(scene: GaussianScene, scales: Any, opacities: Any) -> None:
    got_scales, got_opacities = drawn(scene)
    np.testing.assert_allclose(got_scales, scales, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(got_opacities, opacities, rtol=1e-5)


@pytest.mark.parametrize(
    ("activated", "tensors"),
    [
        (False, {}),
        (True, {"scales": SCALES, "opacities": OPACITIES}),
        ((1.0, 0.0), {"scales": SCALES}),
        ((0.0, 1.0), {"opacities": OPACITIES}),
    ],
)
def test_activated_applies_to_scales_and_opacities_separately(
    activated: Any, tensors: dict[str, torch.Tensor], tmp_path: Any
) -> None:
    published = frame(activated, **tensors)
    scene, _ = scene_of(published)
    assert_drawn(scene, SCALES, OPACITIES)
    assert tuple(scene.activation) == tuple(activated_in(published))
    assert_drawn(merged([scene, scene], [False, False])[:40], SCALES, OPACITIES)
    half = transformed(scene, Placement(scale=0.5), np.zeros(3))
    assert_drawn(half, SCALES / 2, OPACITIES)
    np.testing.assert_allclose(scene.sample(99)[1], OPACITIES, rtol=1e-6)
    write_packed(tmp_path / "a", pack(scene))
    unpacked = unpack(read_packed(tmp_path / "a"))
    scales, opacities = drawn(unpacked)
    np.testing.assert_allclose(scales, SCALES, rtol=0.005)
    np.testing.assert_allclose(opacities, OPACITIES, atol=4e-4)


@pytest.mark.parametrize("activated", [False, True, (1.0, 0.0), (0.0, 1.0)])
def test_frames_with_two_scales_hold_flat_gaussians(
    activated: Any, tmp_path: Any
) -> None:
    has_scales = activated is True or activated == (1.0, 0.0)
    has_opacities = activated is True or activated == (0.0, 1.0)
    scales = SCALES if has_scales else RAW["scales"]
    opacities = OPACITIES if has_opacities else RAW["opacities"]
    published = frame(activated, scales=scales[:, :2], opacities=opacities)
    scene, _ = scene_of(published)
    flat = torch.cat([SCALES[:, :2], torch.zeros(40, 1)], 1)
    assert_drawn(scene, flat, OPACITIES)
    assert_drawn(merged([scene], [False]), flat, OPACITIES)
    doubled = transformed(scene, Placement(scale=2.0), np.zeros(3))
    assert_drawn(doubled, 2 * flat, OPACITIES)
    write_packed(tmp_path / "a", pack(scene))
    unpacked_scales, _ = drawn(unpack(read_packed(tmp_path / "a")))
    np.testing.assert_allclose(unpacked_scales, flat, rtol=0.005, atol=1e-30)


@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize("activated", [False, True])
def test_filter_changes_scales_and_opacities(columns: int, activated: bool) -> None:
    sizes = torch.linspace(0, 0.3, 40)
    scales = SCALES[:, :columns]
    if activated:
        tensors = {"scales": scales, "opacities": OPACITIES}
    else:
        tensors = {"scales": scales.log()}
    scene, _ = scene_of(frame(activated, **tensors, filter_3D=sizes))
    filtered = (scales.square() + sizes.square()[:, None]).sqrt()
    shrinking = (scales / filtered).prod(1)
    flat = torch.cat([filtered, torch.zeros(40, 3 - columns)], 1)
    assert_drawn(scene, flat, OPACITIES * shrinking)
    assert tuple(scene.activation) == (True, True)


def test_ranks_with_and_without_a_filter_are_refused() -> None:
    unfiltered = frame()
    filtered = frame(filter_3D=torch.ones(40))
    for shards in ([unfiltered, filtered], [filtered, unfiltered]):
        with pytest.raises(ViewerError, match="filter_3D"):
            join(shards, [0, 1], 1)
    scene, _ = scene_of(join([filtered, filtered], [0, 1], 1))
    alone, _ = scene_of(filtered)
    assert_drawn(scene[40:], *drawn(alone))
    flat = join([frame(scales=RAW["scales"][:, :2]), frame()], [0, 1], 1)
    assert drawn(scene_of(flat)[0])[0][:40, 2].max() == 0


def test_flat_scene_stays_flat_in_a_ply(tmp_path: Any) -> None:
    from splatview_viewer.formats import open_file
    from splatview_viewer.formats.ply import write_ply

    scene, _ = scene_of(frame(scales=RAW["scales"][:, :2]))
    active, _ = activate(replace(scene))
    path, count = write_ply(active, tmp_path / "a.ply")
    reopened = open_file(path)
    assert count == 40
    assert_drawn(reopened, active.scales, OPACITIES)
