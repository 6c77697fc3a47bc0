"""The kernels that pack on a GPU give what torch does; here, compiled for the CPU."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from support.on_cpu import OnCpu

from splatview_viewer.blocks.importance import (
    OUT_OF_VIEW,
    SeenCone,
    cone_of,
    weights_of,
)
from splatview_viewer.blocks.kernels import BlockKernels
from splatview_viewer.blocks.layout import BLOCK, BlockPart
from splatview_viewer.blocks.packing import BlockedScene
from splatview_viewer.geometry.cameras import Camera, look_at
from splatview_viewer.scene.scene import GaussianScene

if TYPE_CHECKING:
    from splatview_viewer.scene.scene import GaussianScene as Scene

COUNT = BLOCK + 100
ORIGIN = (0.1, 0.2, -0.3)
BLOCK_PARTS: tuple[BlockPart, ...] = ("quick", "exact", "harmonics")
KERNELS = ("pack_quick", "pack_exact", "pack_harmonics", "weigh")


@pytest.fixture(scope="module")
def kernels() -> BlockKernels:
    return BlockKernels(OnCpu("blocks.cu", KERNELS))


def make_scene(dtype: torch.dtype = torch.float32, *, activated: bool = False) -> Scene:
    random = torch.Generator().manual_seed(0)

    def normal_values(*shape: int) -> torch.Tensor:
        return torch.randn(COUNT, *shape, generator=random).to(dtype)

    means = normal_values(3)
    scales = normal_values(3) - 4
    opacities = normal_values() * 3
    if activated:
        scales = scales.exp()
        opacities = opacities.sigmoid()
        means = means.double() + 1e5
    return GaussianScene(
        means=means,
        quats=normal_values(4),
        scales=scales,
        opacities=opacities,
        sh0=normal_values(3),
        shN=normal_values(15, 3) * 0.3,
        activated=activated,
    )


def spoiled(scene: Scene) -> Scene:
    """Return a scene in which all that can be wrong is."""
    scene.means[0] = math.nan
    scene.means[1, 1] = math.inf
    scene.means[11, 2] = 1e13
    scene.quats[2] = 0
    scene.quats[3, 1] = math.inf
    scene.quats[4] = 1e-30
    scene.scales[5] = math.nan
    scene.scales[6] = 60.0
    scene.scales[:, 2] = -math.inf
    scene.opacities[7] = math.nan
    scene.sh0[8] = math.nan
    scene.shN[9, 3] = -math.inf
    scene.shN[10, 0] = torch.tensor([1e9, 1.0, -1e9])
    return scene


def rows_of_some() -> torch.Tensor:
    return torch.randperm(COUNT, generator=torch.Generator().manual_seed(1))[:700].int()


@pytest.mark.parametrize(
    ("scene", "rows"),
    [
        (make_scene(), None),
        (spoiled(make_scene()), None),
        (make_scene(), rows_of_some()),
        (make_scene(torch.float16, activated=True), None),
    ],
    ids=["plain", "spoiled", "rows", "far and half"],
)
def test_blocks_are_those_of_torch(
    kernels: BlockKernels, scene: Scene, rows: torch.Tensor | None
) -> None:
    blocked = BlockedScene(scene, ORIGIN, rows)
    blocks = range(blocked.block_count)
    for block_part in BLOCK_PARTS:
        packed = kernels.pack(block_part, scene, rows, blocks, ORIGIN)
        expected = blocked.pack(block_part)
        # exp and log differ in the last place.
        assert np.mean(packed.numpy() != expected.numpy()) < 1e-3
        if len(blocks) > 1:
            last_block = kernels.pack(block_part, scene, rows, blocks[-1:], ORIGIN)
            assert torch.equal(last_block, packed[-1:])


def test_importance_is_that_of_torch(kernels: BlockKernels) -> None:
    scene = spoiled(make_scene())
    viewmat = look_at((0.0, 0.0, -3.0), (0.5, 0.0, 0.0))
    K = np.array([[300.0, 0, 160], [0, 300, 120], [0, 0, 1]])
    cones = [cone_of(Camera(viewmat, K, 320, 240), ORIGIN)]
    weights = kernels.weigh(scene, ORIGIN, cones, OUT_OF_VIEW)
    expected = weights_of(scene, ORIGIN, cones)
    torch.testing.assert_close(weights, expected)
    assert 0.1 < (weights > 0).float().mean() < 1
    all_seen = SeenCone([0.0] * 3, [0.0] * 3, math.inf)
    assert (kernels.weigh(scene, ORIGIN, [all_seen], 0.0) > 0).any()
