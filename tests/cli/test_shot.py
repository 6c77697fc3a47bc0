"""`splatview shot`: one picture of a stream or file, compared pixel by pixel."""

from __future__ import annotations

import json
import os
import signal
import stat
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image
from support.publishers import BOTH, IMAGE
from support.repetitions import exhaustive
from support.scene_files import ply_columns, truth, write_ply

from splatview.viewer_app import shot as shooting
from splatview.viewer_app.__main__ import main
from splatview.viewer_app.errors import ViewerError
from splatview.viewer_app.shot import parse_background

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.programs import Programs

CAMERA = '{"position": [0, 0, -4], "look_at": [0, 0, 0]}'


def shot(*args: object) -> int:
    return main(["shot", *map(str, args)])


def read(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path)).astype(int)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "in.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)).save(path)
    return path


# -- files ---------------------------------------------------------------------------------------------------


def test_a_picture_comes_out_as_it_went_in(picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.png"
    assert shot(out, picture) == 0
    np.testing.assert_array_equal(read(out), read(picture))
    assert f"{out}: 64 x 48" in capsys.readouterr().out
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(out.stat().st_mode) == 0o666 & ~umask
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.png", "out.png"]


def test_a_picture_is_fitted(picture: Path, tmp_path: Path) -> None:
    assert shot(tmp_path / "out.png", picture, "--size", "200x96", "--background", "255,0,127.5") == 0
    pixels = read(tmp_path / "out.png")
    assert pixels.shape == (96, 200, 3)
    np.testing.assert_array_equal(pixels[:, 36:164], np.kron(read(picture), np.ones((2, 2, 1), int)))
    assert np.abs(pixels[:, :36] - (255, 0, 127.5)).max() <= 1
    assert np.abs(pixels[:, 164:] - (255, 0, 127.5)).max() <= 1


def test_alpha_shows_the_background(tmp_path: Path) -> None:
    Image.new("RGBA", (20, 20), (200, 100, 0, 128)).save(tmp_path / "in.png")
    assert shot(tmp_path / "out.png", tmp_path / "in.png", "--background", "0,0,1") == 0
    assert np.abs(read(tmp_path / "out.png") - (100.4, 50.2, 127)).max() <= 1


@pytest.mark.parametrize("name", [exhaustive("biker_0"), exhaustive("biker_2"), "playbot_0", exhaustive("playbot_1")])
def test_scenes_look_as_gsplat_draws_them(data_dir: Path, tmp_path: Path, name: str) -> None:
    """Held against what gsplat 1.5.3 drew on a GPU, from the same camera."""
    reference = data_dir / "gsplat_reference"
    camera = json.loads((reference / "cameras.json").read_text())[name]
    scene = {"biker": "biker.compressed.ply", "playbot": "playbot"}[camera["scene"]]
    view = {k: camera[k] for k in ("viewmat", "K", "width", "height")}
    (tmp_path / "camera.json").write_text(json.dumps(view))
    background = np.array([0.2, 0.5, 0.3])
    size = f"{camera['width']}x{camera['height']}"
    assert shot(tmp_path / "out.png", data_dir / scene, "--camera", tmp_path / "camera.json", "--size", size,
                "--background", "0.2,0.5,0.3") == 0
    with np.load(reference / "renders.npz") as renders:
        drawn = renders[name].astype(np.float64)
    expected = (drawn[..., :3] + (1 - drawn[..., 3:4]) * background).clip(0, 1)
    error = read(tmp_path / "out.png") / 255 - expected
    psnr = -10 * np.log10((error**2).mean())
    print(f"{name}: {psnr:.1f} dB")
    assert psnr > 45


def test_a_camera_may_be_of_another_size(data_dir: Path, tmp_path: Path) -> None:
    for size in ("320x240", "160x120"):
        assert shot(tmp_path / f"{size}.png", data_dir / "playbot", "--camera", CAMERA, "--size", size) == 0
    large = read(tmp_path / "320x240.png").reshape(120, 2, 160, 2, 3).mean(axis=(1, 3))
    assert np.abs(large - read(tmp_path / "160x120.png")).mean() < 6


def test_a_scene_is_seen_whole_over_black(data_dir: Path, tmp_path: Path) -> None:
    assert shot(tmp_path / "out.png", data_dir / "biker.compressed.ply", "--size", "320x240") == 0
    pixels = read(tmp_path / "out.png")
    assert pixels.shape == (240, 320, 3)
    assert pixels[:5].max() < 40
    assert pixels[-5:].max() < 40
    rows = np.flatnonzero(pixels.max(axis=(1, 2)) > 60)
    assert rows[-1] - rows[0] > 240 * 0.7


@pytest.mark.parametrize(("spoilt", "words"), [
    ({}, ""),
    ({"x": 3}, "3 of 40 left out: 3 not finite"),
    ({"x": 2, "scale_1": 5}, "5 of 40 left out: 2 not finite, 3 too large"),
    ({"x": 40}, "40 of 40 left out: 40 not finite"),
])
@pytest.mark.parametrize("background", ["0,0,0", "transparent"])
def test_what_is_left_out_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], spoilt: dict[str, int],
                                  words: str, background: str) -> None:
    """So that nobody wonders about a picture with less in it than the file has, or with nothing."""
    columns = {name: values.copy() for name, values in ply_columns(truth(40)).items()}
    for name, count in spoilt.items():
        columns[name][:count] = np.nan if name == "x" else 100.0
    scene = write_ply(tmp_path / "scene.ply", columns)
    assert shot(tmp_path / "out.png", scene, "--size", "160x120", "--background", background) == 0
    out, err = capsys.readouterr()
    assert err.splitlines() == ([f"splatview: shot: Gaussians: {words}"] if words else [])
    assert "160 x 120" in out
    assert bool(read(tmp_path / "out.png").any()) is not words.startswith("40 ")


@pytest.mark.parametrize(("args", "message"), [
    (["out.png", "missing.ply"], "no such file"),
    (["no/such/folder/out.png", "in.png"], "there is no folder"),
    (["out.png", "in.png", "--size", "0x0"], "out of range"),
    (["out.png", "in.png", "--background", "1,2"], "is not R,G,B"),
    (["out.png", "in.png", "--background", "0,-1,0"], "out of range"),
    (["out.png", "in.png", "--background", "0,nan,0"], "out of range"),
    (["out.png", "in.png", "--camera", CAMERA], "takes no --camera"),
    (["out.png", "in.png", "--stream", "render"], "name one or the other"),
    (["out.png", "text.txt"], "text.txt"),
    (["out.png"], "no run is publishing"),
    (["out.png", "--run", "abc"], "there is no run 'abc'"),
])
def test_what_cannot_be_drawn_is_told(picture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                      capsys: pytest.CaptureFixture[str], args: list[str], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("no scene")
    assert shot(*args) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.startswith("splatview: ")
    assert not Path("out.png").exists()


def test_a_bad_camera_is_told(data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shot(tmp_path / "out.png", data_dir / "playbot", "--camera", '{"position": [0, 0]}') == 2
    assert "camera" in capsys.readouterr().err


def test_a_failed_write_leaves_the_old_picture(picture: Path, tmp_path: Path,
                                               capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken.png").mkdir()
    assert shot(tmp_path / "taken.png", picture) == 2
    assert "cannot write to" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.png", "taken.png"]


def test_backgrounds() -> None:
    assert parse_background("0.1,0.2,1") == (0.1, 0.2, 1.0)
    assert parse_background("255, 0, 51") == (1.0, 0.0, 0.2)
    assert parse_background("1,1,1") == (1.0, 1.0, 1.0)
    for bad in ("", "red", "1,2,3,4", "300,0,0", "inf,0,0"):
        with pytest.raises(ViewerError, match="background"):
            parse_background(bad)


# -- streams -------------------------------------------------------------------------------------------------


def runs(wait_until: Callable[..., object], count: int, streams: int) -> None:
    """Wait until so many runs with so many streams in all can be found."""
    from splatview.ipc import Subscriber

    subscriber = Subscriber(client="test")

    def ready() -> bool:
        subscriber.poll()
        return (len([r for r in subscriber.runs if r.alive]) == count
                and len([s for s in subscriber.streams if s.version > 0]) == streams)

    wait_until(ready)
    subscriber.close()


def test_an_image_stream(programs: Programs, tmp_path: Path, wait_until: Callable[..., object]) -> None:
    programs.code(IMAGE, "77", "render")
    runs(wait_until, 1, 1)
    assert shot(tmp_path / "out.png") == 0
    expected = np.full((40, 60, 3), 77)
    expected[0, 0] = 255, 0, 0
    np.testing.assert_array_equal(read(tmp_path / "out.png"), expected)


def test_gaussians_before_images_and_streams_by_name(programs: Programs, tmp_path: Path,
                                                     wait_until: Callable[..., object],
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    programs.code(BOTH)
    runs(wait_until, 1, 2)
    assert shot(tmp_path / "splats.png") == 0
    assert read(tmp_path / "splats.png").shape == (720, 1280, 3)
    assert read(tmp_path / "splats.png").max() > 60
    assert read(tmp_path / "splats.png")[0, 0].tolist() == [0, 0, 0]
    assert shot(tmp_path / "render.png", "--stream", "render") == 0
    assert read(tmp_path / "render.png").shape == (30, 40, 3)
    capsys.readouterr()
    assert shot(tmp_path / "none.png", "--stream", "nothing") == 2
    err = capsys.readouterr().err
    assert "there is no stream 'nothing'" in err
    assert "render (image" in err
    assert "splats (gaussians" in err


def test_a_run_by_its_process(programs: Programs, tmp_path: Path, wait_until: Callable[..., object]) -> None:
    trainers = {grey: programs.code(IMAGE, str(grey), "render") for grey in (50, 90)}
    runs(wait_until, 2, 2)
    for grey, trainer in trainers.items():
        assert shot(tmp_path / "out.png", "--run", trainer.pid) == 0
        assert read(tmp_path / "out.png")[20, 30].tolist() == [grey] * 3


def test_a_trainer_that_is_stopped_is_said_to_be(programs: Programs, tmp_path: Path,
                                                 wait_until: Callable[..., object],
                                                 capsys: pytest.CaptureFixture[str],
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = programs.code(IMAGE, "77", "render")
    runs(wait_until, 1, 1)
    trainer.send_signal(signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(shooting, "ShotOptions", partial(shooting.ShotOptions, timeout=1.0))
        assert shot(tmp_path / "out.png") == 2
    assert "did not answer: its process is stopped" in capsys.readouterr().err
    trainer.send_signal(signal.SIGCONT)
    assert shot(tmp_path / "out.png") == 0
