"""What a frame of a stream means: activated apart, flat Gaussians, and mip-splatting's 3D filter."""

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
    """The scales and opacities with which it is drawn."""
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
def test_activated_counts_for_scales_and_opacities_apart(
    activated: Any, tensors: dict[str, torch.Tensor], tmp_path: Any
) -> None:
    given = frame(activated, **tensors)
    scene, _ = scene_of(given)
    assert_drawn(scene, SCALES, OPACITIES)
    assert tuple(scene.activation) == tuple(activated_in(given))
    assert_drawn(merged([scene, scene], [False, False])[:40], SCALES, OPACITIES)
    half = transformed(scene, Placement(scale=0.5), np.zeros(3))
    assert_drawn(half, SCALES / 2, OPACITIES)
    np.testing.assert_allclose(scene.sample(99)[1], OPACITIES, rtol=1e-6)
    write_packed(tmp_path / "a", pack(scene))
    again = unpack(read_packed(tmp_path / "a"))
    assert again.activation == scene.activation
    np.testing.assert_allclose(drawn(again)[0], SCALES, rtol=0.005)
    np.testing.assert_allclose(drawn(again)[1], OPACITIES, atol=4e-4)


@pytest.mark.parametrize("activated", [False, True, (1.0, 0.0), (0.0, 1.0)])
def test_two_scales_are_flat_gaussians(activated: Any, tmp_path: Any) -> None:
    scales = activated is True or activated == (1.0, 0.0)
    pair = (SCALES if scales else RAW["scales"])[:, :2]
    done = activated is True or activated == (0.0, 1.0)
    given = frame(
        activated, scales=pair, opacities=OPACITIES if done else RAW["opacities"]
    )
    scene, _ = scene_of(given)
    flat = torch.cat([SCALES[:, :2], torch.zeros(40, 1)], 1)
    assert_drawn(scene, flat, OPACITIES)
    assert_drawn(merged([scene], [False]), flat, OPACITIES)
    assert_drawn(
        transformed(scene, Placement(scale=2.0), np.zeros(3)), 2 * flat, OPACITIES
    )
    write_packed(tmp_path / "a", pack(scene))
    np.testing.assert_allclose(
        drawn(unpack(read_packed(tmp_path / "a")))[0], flat, rtol=0.005, atol=1e-30
    )


@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize("activated", [False, True])
def test_the_filter_goes_into_scales_and_opacities(
    columns: int, activated: bool
) -> None:
    sizes = torch.linspace(0, 0.3, 40)
    scales = SCALES[:, :columns]
    if activated:
        tensors = {"scales": scales, "opacities": OPACITIES}
    else:
        tensors = {"scales": scales.log()}
    scene, _ = scene_of(frame(activated, **tensors, filter_3D=sizes))
    after = (scales.square() + sizes.square()[:, None]).sqrt()
    shrinking = (scales / after).prod(1)
    flat = torch.cat([after, torch.zeros(40, 3 - columns)], 1)
    assert_drawn(scene, flat, OPACITIES * shrinking)
    assert tuple(scene.activation) == (True, True)


def test_ranks_with_and_without_a_filter_are_refused() -> None:
    parts = [frame(), frame(filter_3D=torch.ones(40))]
    for frames in (parts, parts[::-1]):
        with pytest.raises(ViewerError, match="filter_3D"):
            join(frames, [0, 1], 1)
    whole = join([parts[1], parts[1]], [0, 1], 1)
    scene, _ = scene_of(whole)
    alone, _ = scene_of(parts[1])
    assert_drawn(scene[40:], *drawn(alone))
    flat = join([frame(scales=RAW["scales"][:, :2]), frame()], [0, 1], 1)
    assert drawn(scene_of(flat)[0])[0][:40, 2].max() == 0


def test_a_flat_scene_stays_flat_in_a_ply(tmp_path: Any) -> None:
    from splatview_viewer.formats import open_file
    from splatview_viewer.formats.ply import write_ply

    scene, _ = scene_of(frame(scales=RAW["scales"][:, :2]))
    active, _ = activate(replace(scene))
    path, count = write_ply(active, tmp_path / "a.ply")
    again = open_file(path)
    assert count == 40
    assert_drawn(again, active.scales, OPACITIES)
