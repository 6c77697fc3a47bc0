"""`splatview export`: scenes of streams and files, for other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image

import splatview
from splatview_viewer.__main__ import main
from splatview_viewer.formats import open_file

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def export(*args: object) -> int:
    return main(["export", *map(str, args)])


def test_a_training_and_files_are_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    means = torch.randn(50, 3)
    splatview.publish(
        {
            "means": means,
            "quats": torch.tensor([1.0, 0, 0, 0]).repeat(50, 1),
            "scales": torch.full((50, 3), -3.0),
            "opacities": torch.full((50,), 2.0),
            "colors": torch.rand(50, 3),
        },
        "scene",
    )
    ply_file = tmp_path / "scene.ply"
    assert export(ply_file, "--stream", "scene") == 0
    assert f"{ply_file}: 50 Gaussians" in capsys.readouterr().out
    torch.testing.assert_close(open_file(ply_file).means, means)
    small = tmp_path / "scene.spz"
    assert export(small, ply_file) == 0
    assert len(open_file(small)) == 50
    size = small.stat().st_size
    assert export(small, small) == 0, "a file may be replaced by itself"
    assert abs(small.stat().st_size - size) < 64
    page = tmp_path / "scene.html"
    camera = '{"position": [0, 0, -9], "look_at": [0, 0, 0]}'
    assert export(page, ply_file, "--camera", camera) == 0
    text = page.read_text()
    assert "50 Gaussians" in text
    assert '<img id="poster"' in text
    assert "<title>scene</title>" in text


def test_what_cannot_be_exported_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "in.png"
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(picture)
    assert export(tmp_path / "out.ply", picture) == 2
    assert "this is of kind image" in capsys.readouterr().err
    assert export(tmp_path / "out.obj", picture) == 2
    assert (
        "end it in .compressed.ply, .ply, .spz, .sog, .html" in capsys.readouterr().err
    )
    assert export(tmp_path / "out.ply", picture, "--path", picture) == 2
    assert "--path is for pages" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in.png"]
