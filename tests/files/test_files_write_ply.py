"""What is written as .ply is read back the same, by this project and by another one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.open_files import open_files
from support.renderer_cases import Chance, random_scene, real_scene

from splatview.viewer_app.errors import FileError
from splatview.viewer_app.files import load_scene
from splatview.viewer_app.files.write_ply import write_ply
from splatview.viewer_app.renderers.activation import activate
from splatview.viewer_app.scene import FIELDS, GaussianScene

if TYPE_CHECKING:
    from pathlib import Path


def activated(given: GaussianScene) -> GaussianScene:
    a = activate(given)
    return GaussianScene(a.means, a.quats, a.scales, a.opacities, a.sh0, a.shN, activated=True, sh_degree=a.sh_degree)


def assert_same(a: GaussianScene, b: GaussianScene) -> None:
    assert len(a) == len(b)
    for name in FIELDS:
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=2e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_it_comes_back(tmp_path: Path, degree: int) -> None:
    given = activated(random_scene(1, Chance(n=500, sh_degree=degree)))
    path, count = write_ply(given, tmp_path / "scene.ply")
    assert (path, count) == (tmp_path / "scene.ply", 500)
    back = load_scene(path)
    assert not back.antialiased
    assert not back.notes
    np.testing.assert_array_equal(back.shN, given.shN)
    np.testing.assert_array_equal(back.means, given.means)
    assert_same(activated(back), given)


def test_many_blocks_come_back(tmp_path: Path, data_dir: Path) -> None:
    given, seen = activated(real_scene(data_dir, "biker")), []
    path, _ = write_ply(given, tmp_path / "biker.ply", progress=lambda what, share: seen.append(share))
    assert seen == sorted(seen) and seen[-1] == 1.0 and len(seen) > 1
    assert_same(activated(load_scene(path)), given)


def test_another_program_reads_it(tmp_path: Path) -> None:
    gsply = pytest.importorskip("gsply")
    given = activated(random_scene(1, Chance(n=200)))
    path, _ = write_ply(given, tmp_path / "scene.ply", antialiased=True)
    data = gsply.plyread(str(path))
    np.testing.assert_array_equal(data.means, given.means)
    np.testing.assert_array_equal(data.sh0, given.sh0)
    np.testing.assert_array_equal(np.asarray(data.shN).reshape(given.shN.shape), given.shN)
    np.testing.assert_allclose(np.exp(data.scales), given.scales, rtol=1e-5)
    np.testing.assert_allclose(1 / (1 + np.exp(-data.opacities)), given.opacities, atol=1e-6)


def test_how_it_was_trained_stands_in_it(tmp_path: Path) -> None:
    given = activated(random_scene(1, Chance(n=3)))
    assert load_scene(write_ply(given, tmp_path / "a.ply", antialiased=True)[0]).antialiased


def test_a_part_of_it_is_written(tmp_path: Path) -> None:
    given = activated(random_scene(1, Chance(n=100)))
    given = replace(given, opacities=np.where(np.arange(100) < 10, 0, given.opacities).astype(np.float32))
    keep = np.arange(100) % 2 == 0
    path, count = write_ply(given, tmp_path / "a.ply", keep=keep)
    assert count == 45  # and of those without opacity none
    np.testing.assert_array_equal(load_scene(path).means, given.means[10::2])


def test_extremes_stay_finite(tmp_path: Path) -> None:
    given = activated(random_scene(1, Chance(n=2)))
    given = replace(given, opacities=np.array([1e-45, 1.0], np.float32), scales=np.zeros((2, 3), np.float32))
    back = load_scene(write_ply(given, tmp_path / "a.ply")[0])
    assert not back.notes  # none of them has an infinity
    np.testing.assert_allclose(activated(back).opacities, [0.0, 1.0], atol=1e-6)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    given = activated(random_scene(1, Chance(n=5)))
    paths = [write_ply(given, tmp_path / "a.ply")[0].name for _ in range(3)]
    assert paths == ["a.ply", "a-2.ply", "a-3.ply"]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(paths)


def test_nothing_is_left_of_what_fails(tmp_path: Path) -> None:
    given = activated(random_scene(1, Chance(n=5)))
    before = open_files()

    def fail(what: str, share: float) -> None:
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        write_ply(given, tmp_path / "a.ply", progress=fail)
    with pytest.raises(FileError, match="none of the Gaussians"):
        write_ply(given, tmp_path / "a.ply", keep=np.zeros(5, bool))
    with pytest.raises(FileError, match="missing"):
        write_ply(given, tmp_path / "missing" / "a.ply")
    assert not list(tmp_path.iterdir())
    assert open_files() <= before
