"""Scenes come back from the files that are written for other programs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats import open_file
from splatview_viewer.formats.writers import WRITERS, WrittenScene, write_scene
from splatview_viewer.render.activation import activate
from splatview_viewer.scene.scene import GaussianScene

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 600
SUFFIXES = [writer.suffix for writer in WRITERS]


def make_scene(coefficients: int = 15) -> GaussianScene:
    """Return an activated scene."""
    random = torch.Generator().manual_seed(1)
    quats = torch.randn(COUNT, 4, generator=random)
    return GaussianScene(
        means=torch.randn(COUNT, 3, generator=random),
        quats=quats / quats.norm(dim=1, keepdim=True),
        scales=(torch.randn(COUNT, 3, generator=random) - 4).exp(),
        opacities=torch.rand(COUNT, generator=random) * 0.98 + 0.01,
        sh0=torch.randn(COUNT, 3, generator=random),
        shN=torch.randn(COUNT, coefficients, 3, generator=random) * 0.2,
        activated=True,
    )


def matched(scene: GaussianScene, path: Path) -> GaussianScene:
    """Read a file, activated and in the order of the scene: writers may sort."""
    back, _ = activate(open_file(path))
    nearest = torch.cdist(scene.means, back.means.float()).argmin(1)
    assert len(nearest.unique()) == len(scene)
    return back[nearest]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("coefficients", [0, 3, 8, 15])
def test_scenes_come_back(tmp_path: Path, suffix: str, coefficients: int) -> None:
    scene = make_scene(coefficients)
    path = tmp_path / f"scene{suffix}"
    assert write_scene(WrittenScene(scene), path) == (path, COUNT)
    back = matched(scene, path)
    assert (back.means - scene.means).abs().max() < 5e-3
    assert (back.scales.log() - scene.scales.log()).abs().max() < 0.04
    assert (back.opacities - scene.opacities).abs().max() < 3e-3
    cosines = (back.quats * scene.quats).sum(1).abs()
    assert cosines.min() > 0.999
    assert (back.sh0 - scene.sh0).clamp(-1, 1).abs().median() < 0.02
    assert back.shN.shape == scene.shN.shape
    if coefficients:
        assert (back.shN - scene.shN).abs().max() < 0.07


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_flat_and_hidden_gaussians(tmp_path: Path, suffix: str) -> None:
    scene = make_scene(0)
    scene.scales[:, 2] = 0
    scene.means[:, 1] = 2.0
    scene.opacities[:100] = 0
    path = tmp_path / f"flat{suffix}"
    assert write_scene(WrittenScene(scene), path) == (path, COUNT - 100)
    back = matched(scene[100:], path)
    assert back.scales[:, 2].max() < 1e-4
    assert (back.means[:, 1] - 2).abs().max() < 1e-3
    assert (back.scales[:, :2].log() - scene.scales[100:, :2].log()).abs().max() < 0.04


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_part_is_written_beside_what_is_there(tmp_path: Path, suffix: str) -> None:
    scene = make_scene(3)
    keep = torch.zeros(COUNT, dtype=torch.bool)
    keep[7:17] = True
    path = tmp_path / f"part{suffix}"
    path.write_bytes(b"kept")
    written = WrittenScene(scene, keep=keep)
    part_path, count = write_scene(written, path, numbered=True)
    assert count == 10
    assert part_path != path
    assert path.read_bytes() == b"kept"
    assert (
        matched(scene[keep], part_path).means - scene[keep].means
    ).abs().max() < 0.01


@pytest.mark.parametrize("suffix", [".ply", ".spz", ".sog"])
def test_antialiased_scenes_are_marked(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"smooth{suffix}"
    write_scene(WrittenScene(make_scene(0), antialiased=True), path)
    assert open_file(path).antialiased


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_nothing_is_no_file(tmp_path: Path, suffix: str) -> None:
    scene = make_scene(0)
    scene.opacities[:] = 0
    path = tmp_path / f"none{suffix}"
    with pytest.raises(FileError, match="none of the Gaussians"):
        write_scene(WrittenScene(scene), path)
    assert not path.exists()


def test_scenes_beyond_a_format_are_refused(tmp_path: Path) -> None:
    scene = make_scene(0)
    scene.means[0] = 1e9
    with pytest.raises(FileError, match=r"write \.ply"):
        write_scene(WrittenScene(scene), tmp_path / "far.spz")


def test_harmonics_beyond_the_degree_in_use_are_not_in_a_sog(tmp_path: Path) -> None:
    scene = replace(make_scene(15), sh_degree=1)
    path = tmp_path / "low.sog"
    write_scene(WrittenScene(scene), path)
    assert matched(scene, path).shN.shape == (COUNT, 3, 3)


def test_sog_of_a_sog_is_the_same(tmp_path: Path) -> None:
    first_path = tmp_path / "first.sog"
    write_scene(WrittenScene(make_scene(8)), first_path)
    first, _ = activate(open_file(first_path))
    second_path = tmp_path / "second.sog"
    write_scene(WrittenScene(first), second_path)
    second = matched(first, second_path)
    for name in ("means", "scales", "opacities", "sh0", "shN"):
        before = getattr(first, name)
        torch.testing.assert_close(getattr(second, name), before, atol=1e-5, rtol=1e-5)


def test_scenes_far_from_the_origin_stay_fine_in_a_sog(tmp_path: Path) -> None:
    scene = make_scene(0)
    means = scene.means.double() + torch.tensor([5e5, 5.4e6, 120.0])
    path = tmp_path / "far.sog"
    write_scene(WrittenScene(replace(scene, means=means)), path)
    back = open_file(path).means
    offsets = back.double() - torch.tensor([5e5, 5.4e6, 120.0])
    assert torch.cdist(scene.means.double(), offsets).amin(1).max() < 1e-3


def test_unknown_formats_are_named_with_the_known(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"\.compressed\.ply, \.ply, \.spz, \.sog"):
        write_scene(WrittenScene(make_scene(0)), tmp_path / "scene.obj")
