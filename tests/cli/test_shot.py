"""`splatview shot`: one picture of a stream or file, compared pixel by pixel."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.frames import cloud
from support.pair import OtherRun
from support.scene_files import ply_columns, truth, write_ply

import splatview
from splatview.adapters.series import SCALARS
from splatview_ipc.control.frame import StreamFrame
from splatview_ipc.control.render_requests import RenderRequest
from splatview_ipc.subscriber.remote_stream import RemoteStream
from splatview_viewer.__main__ import main
from splatview_viewer.app import still
from splatview_viewer.app.grab import Grabber
from splatview_viewer.core.errors import LateError
from splatview_viewer.core.shown_view import ShownView


def shot(*args: object) -> int:
    return main(["shot", *map(str, args)])


def read(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path)).astype(int)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "in.png"
    Image.fromarray(
        np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    ).save(path)
    return path


# -- files -----------------------------------------------------------------------------


def test_picture_comes_out_as_it_went_in(
    picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.png"
    assert shot(out, picture) == 0
    np.testing.assert_array_equal(read(out), read(picture))
    assert f"{out}: 64 x 48" in capsys.readouterr().out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.png", "out.png"]


def test_suffix_names_the_format(tmp_path: Path) -> None:
    smooth = np.stack([np.add.outer(range(48), range(64))] * 3, axis=2).astype(np.uint8)
    Image.fromarray(smooth).save(tmp_path / "in.png")
    for name, kind, max_error in (
        ("a.PNG", "PNG", 0),
        ("a.jpg", "JPEG", 3),
        ("a.webp", "WEBP", 3),
    ):
        assert shot(tmp_path / name, tmp_path / "in.png") == 0
        with Image.open(tmp_path / name) as image:
            assert (image.format, image.mode) == (kind, "RGB")
            assert np.abs(np.asarray(image).astype(int) - smooth).max() <= max_error
    scene = write_ply(tmp_path / "scene.ply", ply_columns(truth(40)))
    assert (
        shot(
            tmp_path / "b.webp",
            scene,
            "--size",
            "160x120",
            "--background",
            "transparent",
        )
        == 0
    )
    with Image.open(tmp_path / "b.webp") as image:
        assert image.mode == "RGBA"
        assert image.getchannel("A").getextrema()[0] == 0


def test_picture_is_fitted_into_the_size(picture: Path, tmp_path: Path) -> None:
    assert (
        shot(
            tmp_path / "out.png",
            picture,
            "--size",
            "200x96",
            "--background",
            "255,0,127.5",
        )
        == 0
    )
    pixels = read(tmp_path / "out.png")
    assert pixels.shape == (96, 200, 3)
    np.testing.assert_array_equal(
        pixels[:, 36:164], np.kron(read(picture), np.ones((2, 2, 1), int))
    )
    assert (
        np.abs(pixels[:, [*range(36), *range(164, 200)]] - (255, 0, 127.5)).max() <= 1
    )


@pytest.mark.parametrize(
    "name",
    [
        "postshot_antialiased",
        "nerfstudio_rgb",
        "utm_double",
        "inf_opacity",
        "flat_scale",
        "degree4",
    ],
)
def test_scene_looks_as_an_independent_renderer_draws_it(
    name: str, data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report_folder = data_dir / "reports"
    out = tmp_path / "out.png"
    view = json.loads((report_folder / "cameras.json").read_text())[name]
    camera = json.dumps(view["camera"])
    size = "{}x{}".format(*view["size"])
    assert (
        shot(out, report_folder / f"{name}.ply", "--camera", camera, "--size", size)
        == 0
    )
    error = (read(out) - read(report_folder / f"{name}.want.png")[..., :3]) / 255
    assert (error**2).mean() < 10**-4.5  # 45 dB
    assert not capsys.readouterr().err


def test_scene_of_a_millimetre_looks_like_one_of_a_metre(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures = []
    out = tmp_path / "out.png"
    for size in (1, 1e-3):
        t = truth(100)
        t.means = t.means / 2 * np.float32(size)
        t.scales = t.scales + np.float32(np.log(size))
        scene = write_ply(tmp_path / f"{size}.ply", ply_columns(t))
        camera = {"position": [0, -0.5 * size, -3 * size], "look_at": [0, 0, 0]}
        assert (
            shot(out, scene, "--size", "160x120", "--camera", json.dumps(camera)) == 0
        )
        pictures.append(read(out)[..., :3])
    assert "near" not in capsys.readouterr().err
    assert pictures[0].max() > 100
    assert (((pictures[0] - pictures[1]) / 255) ** 2).mean() < 10**-4.5  # 45 dB
    camera["near"] = 0.5
    assert shot(out, scene, "--size", "160x120", "--camera", json.dumps(camera)) == 0
    assert "everything is nearer than near 0.5" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("spoilt", "count"),
    [({}, 0), ({"x": 3}, 3), ({"x": 2, "scale_1": 5}, 5), ({"x": 40}, 40)],
)
def test_shot_reports_what_it_leaves_out(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    spoilt: dict[str, int],
    count: int,
) -> None:
    columns = {name: values.copy() for name, values in ply_columns(truth(40)).items()}
    for name, rows in spoilt.items():
        columns[name][:rows] = np.nan if name == "x" else 100.0
    scene = write_ply(tmp_path / "scene.ply", columns)
    assert shot(tmp_path / "out.png", scene, "--size", "160x120") == 0
    err = capsys.readouterr().err
    if count:
        assert f"{count} of 40 left out" in err
    else:
        assert not err
    assert bool(read(tmp_path / "out.png").any()) is (count < 40)


def test_scene_is_shown_in_the_way_that_is_named(
    picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = write_ply(tmp_path / "scene.ply", ply_columns(truth(40)))
    pictures = []
    for show in ("color", "depth"):
        out = tmp_path / f"{show}.png"
        assert shot(out, scene, "--show", show, "--size", "64x48") == 0
        pictures.append(read(out))
    assert (pictures[0] != pictures[1]).any()
    assert shot(tmp_path / "out.png", scene, "--show", "colour") == 2
    assert "'colour'; expected one of color, depth" in capsys.readouterr().err
    assert shot(tmp_path / "out.png", picture, "--show", "depth") == 2
    assert "--show is for Gaussians" in capsys.readouterr().err


# -- streams ---------------------------------------------------------------------------


def test_shot_draws_an_image_stream_of_a_run_by_its_process(tmp_path: Path) -> None:
    image = torch.full((40, 60, 3), 77, dtype=torch.uint8)
    image[0, 0] = torch.tensor([255, 0, 0])
    splatview.publish(image, "render")
    for args in ((), ("--run", os.getpid())):
        assert shot(tmp_path / "out.png", *args) == 0
        np.testing.assert_array_equal(read(tmp_path / "out.png"), image.numpy())


def test_shot_prefers_gaussians_and_takes_streams_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    splatview.publish(torch.rand(30, 40, 3), "val/render")
    splatview.publish(cloud(300), "splats")
    assert shot(tmp_path / "splats.png") == 0
    pixels = read(tmp_path / "splats.png")
    assert pixels.shape == (720, 1280, 3)
    assert pixels.max() > 60
    assert pixels[0, 0].tolist() == [0, 0, 0]
    assert shot(tmp_path / "render.png", "--stream", "val/render") == 0
    assert read(tmp_path / "render.png").shape == (30, 40, 3)
    capsys.readouterr()
    assert shot(tmp_path / "none.png", "--stream", "nothing") == 2
    err = capsys.readouterr().err
    assert all(
        text in err for text in ("'nothing'", "val/render (image", "splats (gaussians")
    )


def test_stream_without_a_version_gives_no_picture() -> None:
    """It is announced before: `log` leaves both to a thread of its own."""
    with closing(OtherRun("other")) as run, closing(Grabber()) as grabber:
        run.stream("scalars", "scalars").describe(SCALARS)
        with pytest.raises(LateError, match="brought no frame"):
            grabber.draw(RenderRequest(0.1, stream="scalars"))


def test_shot_loads_what_draws_before_it_reads_a_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer overwrites a frame while torch is loaded, on a busy machine."""
    steps = []
    make_view = still.make_view
    read = RemoteStream.read

    def record_loading(*args: Any) -> ShownView:
        steps.append("load")
        return make_view(*args)

    def record_reading(stream: RemoteStream, after: int = 0) -> StreamFrame | None:
        steps.append("read")
        return read(stream, after)

    monkeypatch.setattr(still, "make_view", record_loading)
    monkeypatch.setattr(RemoteStream, "read", record_reading)
    splatview.publish(torch.rand(6, 8, 3), "image")
    assert shot(tmp_path / "out.png") == 0
    assert steps[0] == "load"
    assert steps.count("load") == 1
