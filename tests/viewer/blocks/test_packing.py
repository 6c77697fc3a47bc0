"""Scenes come back from packed blocks as close as their bits allow."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.unpacked_blocks import unpacked

from splatview_viewer.blocks.layout import BLOCK, BlockPart, part_bytes
from splatview_viewer.blocks.packing import BlockedScene
from splatview_viewer.scene.scene import GaussianScene, empty_scene

if TYPE_CHECKING:
    from splatview_viewer.scene.scene import GaussianScene as Scene

COUNT = 2 * BLOCK + 100


def make_scene(**changes: Any) -> Scene:
    """Return Gaussians of all rotations, with coefficients of degree 3."""
    random = torch.Generator().manual_seed(0)
    scales = torch.randn(COUNT, 3, generator=random) - 4
    fields: dict[str, Any] = {
        "means": torch.randn(COUNT, 3, generator=random),
        "quats": torch.randn(COUNT, 4, generator=random),
        "scales": scales,
        "opacities": torch.randn(COUNT, generator=random) * 3,
        "sh0": torch.randn(COUNT, 3, generator=random),
        "shN": torch.randn(COUNT, 15, 3, generator=random) * 0.3,
    }
    return GaussianScene(**(fields | changes))


def way_and_back(scene: Scene, block_part: BlockPart) -> Scene:
    blocked = BlockedScene.of(scene)
    blocks = blocked.pack(block_part)
    harmonics = None
    assert blocks.shape == (blocked.block_count, part_bytes(block_part, 15))
    if blocked.coefficients:
        harmonics = blocked.pack("harmonics").numpy()
    return unpacked(
        blocks.numpy(), harmonics, len(scene), blocked.origin, blocked.coefficients
    )


def rotations(quats: torch.Tensor) -> torch.Tensor:
    w, x, y, z = (quats / quats.norm(dim=1, keepdim=True)).unbind(1)
    columns = [
        torch.stack(
            [1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)]
        ),
        torch.stack(
            [2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x)]
        ),
        torch.stack(
            [2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)]
        ),
    ]
    return torch.stack(columns).movedim(2, 0)


@pytest.mark.parametrize(
    ("block_part", "means_error", "size", "color", "opacity", "rotation_error"),
    [
        ("quick", 2e-4, 0.03, 0.02, 2.1e-3, 0.015),
        ("exact", 1e-6, 0.005, 2e-3, 5e-4, 1.3e-4),
    ],
)
def test_fields_come_back(
    block_part: BlockPart,
    means_error: float,
    size: float,
    color: float,
    opacity: float,
    rotation_error: float,
) -> None:
    scene = make_scene()
    back = way_and_back(scene, block_part)
    assert (back.means - scene.means).abs().max() < means_error
    assert (back.scales.log() - scene.scales).abs().max() < size
    assert (back.sh0 - scene.sh0).abs().max() < color
    assert (back.opacities - scene.opacities.sigmoid()).abs().max() < opacity
    assert (rotations(back.quats) - rotations(scene.quats)).abs().max() < rotation_error
    largest = scene.shN.abs().amax(2, keepdim=True)
    # Half a step of 8 bits below the power of two over the largest.
    assert ((back.shN - scene.shN).abs() <= largest / 255 + 1e-7).all()


@pytest.mark.parametrize("block_part", ["quick", "exact"])
def test_what_cannot_be_drawn_is_invisible(block_part: BlockPart) -> None:
    scene = make_scene()
    scene.means[0] = math.nan
    scene.means[1, 1] = math.inf
    scene.quats[2] = 0
    scene.scales[3] = math.nan
    scene.shN[4, 3] = math.nan
    # Centres that ran away, which a span would overflow with.
    scene.means[5, 2] = 3e38
    scene.means[6, 2] = -3e38
    back = way_and_back(scene, block_part)
    assert (back.opacities[:7] == 0).all()
    assert (back.opacities[7:] > 0).float().mean() > 0.95
    for field in (back.means[7:], back.quats, back.scales, back.sh0, back.shN):
        assert field.isfinite().all()
    # Exact blocks tell them from those that are transparent.
    assert back.means[:7].isnan().all() == (block_part == "exact")
    assert (back.means[7:] - scene.means[7:]).abs().max() < 2e-4


@pytest.mark.parametrize("block_part", ["quick", "exact"])
def test_flat_gaussians_stay_flat(block_part: BlockPart) -> None:
    scene = make_scene()
    scene.scales[:, 2] = -math.inf
    back = way_and_back(scene, block_part)
    assert back.scales[:, 2].max() < 1e-12
    assert (back.scales[:, :2].log() - scene.scales[:, :2]).abs().max() < 0.03


def test_a_scene_far_away_keeps_its_detail() -> None:
    far = make_scene().means.double() + torch.tensor([5e6, -3e5, 100.0])
    back = way_and_back(make_scene(means=far), "exact")
    assert (back.means - far).abs().max() < 1e-5


def test_stored_activated_and_half_precision_are_read() -> None:
    scene = make_scene()
    halves = GaussianScene(
        scene.means,
        scene.quats.half(),
        scene.scales.exp(),
        scene.opacities.sigmoid().half(),
        scene.sh0.half(),
        scene.shN[:, :0],
        activated=True,
    )
    back = way_and_back(halves, "exact")
    assert (back.scales.log() - scene.scales).abs().max() < 0.005
    assert back.shN.shape == (COUNT, 0, 3)


def test_huge_and_tiny_coefficients_are_bounded() -> None:
    scene = make_scene()
    scene.shN[0, 0] = torch.tensor([1e9, 1.0, -1e9])
    scene.shN[1, 0] = 1e-12
    back = way_and_back(scene, "exact")
    assert back.shN[0, 0].tolist() == [65280.0, 0.0, -65280.0]
    assert back.shN[1, 0].tolist() == [0.0, 0.0, 0.0]


def test_blocks_are_packed_alone_as_together() -> None:
    blocked = BlockedScene.of(make_scene())
    for block_part in ("quick", "exact", "harmonics"):
        all_blocks = blocked.pack(block_part)
        assert torch.equal(blocked.pack(block_part, 1, 2), all_blocks[1:2])
        assert torch.equal(blocked.pack(block_part, 2), all_blocks[2:])


def test_nothing_is_no_block() -> None:
    blocked = BlockedScene.of(empty_scene())
    assert blocked.block_count == 0
    with pytest.raises(ValueError, match="one at least"):
        blocked.pack("quick")


@pytest.mark.cuda
def test_a_gpu_packs_the_same_bytes() -> None:
    scene = make_scene()
    tensors: dict[str, Any] = {
        name: getattr(scene, name).cuda()
        for name in ("means", "quats", "scales", "opacities", "sh0", "shN")
    }
    on_gpu = GaussianScene(**tensors)
    on_cpu = scene
    for block_part in ("quick", "exact", "harmonics"):
        packed = BlockedScene.of(on_gpu).pack(block_part).cpu().numpy()
        expected = BlockedScene.of(on_cpu).pack(block_part).numpy()
        # exp and log differ in the last place.
        assert np.mean(packed != expected) < 0.01
