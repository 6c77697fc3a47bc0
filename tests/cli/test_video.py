"""Films: every picture is the scene from where the path is, in PNGs and in mp4;
transparent; told how far; given up.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.frames import cloud, gaussian_frame
from support.scene_files import ply_columns, truth, write_ply
from support.view_cases import scene_view
from support.wait import PATIENCE_S, wait_until

from splatview_viewer.__main__ import main
from splatview_viewer.core.screen import Rect
from splatview_viewer.formats.camera_paths import Film, write_path
from splatview_viewer.formats.films import PngFolder, make_writer
from splatview_viewer.geometry.cameras import Camera, intrinsics, look_at
from splatview_viewer.geometry.path import CameraPath, Keyframe
from splatview_viewer.render.gl.renderer import GlRenderer
from splatview_viewer.scene_view.film import Camerawork, Filming
from splatview_viewer.screens.offscreen import OffscreenScreen

av = pytest.importorskip("av", reason="needs av: pip install -e '.[video]'")
W = 64
H = 48


def camera(x: float) -> Camera:
    return Camera(look_at((x, -0.5, -4), (0, 0, 0)), intrinsics(50, W, H), W, H)


def short_film(fps: float = 10.0) -> Film:
    return Film(
        CameraPath([Keyframe.of(camera(x), seconds=0.4) for x in (-1.0, 0.5, 1.0)]),
        W,
        H,
        fps,
    )


@pytest.fixture
def view(screen: OffscreenScreen) -> Iterator[Any]:
    scene = scene_view(screen, GlRenderer(screen.ctx))
    scene.update(gaussian_frame(cloud(300, seed=5)))
    yield scene
    scene.close()


def start_filming(
    view: Any, screen: OffscreenScreen, out: Path, **options: Any
) -> Filming:
    filming = Filming(
        Camerawork(screen.ctx, view.view, W, H),
        short_film(),
        make_writer(out, W, H, 10.0, options.get("transparent", False)),
        **options,
    )

    def advance() -> bool:
        filming.advance()
        return filming.is_ended

    try:
        wait_until(advance)
    finally:
        filming.close()
    return filming


def true_picture(
    view: Any, screen: OffscreenScreen, i: int, background: Any = (0, 0, 0)
) -> np.ndarray:
    """Draw the view itself from the camera of the film's picture `i`."""
    other_view = view.another_view()
    other_view.view.change(background=background)
    screen.resize(W, H)
    other_view.view.rig.reset_to(short_film().path.camera_at(i / 10, W, H))
    other_view.draw(screen.framebuffer, Rect(0, 0, W, H))
    other_view.close()
    return screen.pixels()[..., :3]


@pytest.mark.parametrize("name", ["film", "film.mp4"])
def test_every_picture_is_the_scene_from_there(
    name: str, view: Any, screen: OffscreenScreen, tmp_path: Path
) -> None:
    filming = start_filming(view, screen, tmp_path / name)
    assert not filming.fault
    assert filming.drawn == filming.total == 8
    assert [p.name for p in tmp_path.iterdir()] == [name]
    tolerance = 8
    if name == "film":
        tolerance = 0
        files = sorted((tmp_path / name).iterdir())
        assert [f.name for f in files] == [f"{i:06}.png" for i in range(8)]
        pictures = [np.asarray(Image.open(f)) for f in files]
    else:
        with av.open(str(tmp_path / name)) as file:
            stream = file.streams.video[0]
            assert stream.average_rate is not None
            assert (stream.width, stream.height, float(stream.average_rate)) == (
                W,
                H,
                10.0,
            )
            pictures = [
                frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)
            ]
    assert len(pictures) == 8
    assert all((a != b).any() for a, b in pairwise(pictures))
    for i, picture in enumerate(pictures):
        error = np.abs(picture.astype(int) - true_picture(view, screen, i)).mean()
        assert error <= tolerance, f"picture {i} is off by {error} of 255"


def test_transparent_pictures_lie_over_anything(
    view: Any, screen: OffscreenScreen, tmp_path: Path
) -> None:
    assert not start_filming(view, screen, tmp_path / "film", transparent=True).fault
    picture = np.asarray(Image.open(tmp_path / "film" / "000003.png")).astype(float)
    assert picture.shape == (H, W, 4)
    assert picture[..., 3].min() == 0
    assert picture[..., 3].max() > 200
    for background in ((0.0, 0.0, 0.0), (0.2, 0.9, 0.4)):
        alpha = picture[..., 3:] / 255
        composited = picture[..., :3] * alpha + (1 - alpha) * 255 * np.array(background)
        np.testing.assert_allclose(
            composited, true_picture(view, screen, 3, background), atol=2.1
        )


def test_film_that_is_given_up_leaves_no_mp4(
    view: Any, screen: OffscreenScreen, tmp_path: Path
) -> None:
    out = tmp_path / "film.mp4"
    filming = Filming(
        Camerawork(screen.ctx, view.view, W, H),
        short_film(),
        make_writer(out, W, H, 10.0, False),
    )
    filming.advance(0.0)
    for _ in range(2):
        filming.close()
    assert filming.is_ended
    assert not list(tmp_path.iterdir())


class Stuck(PngFolder):
    """Writes no picture until it may, as a disk that hangs."""

    def __init__(self, out: Path) -> None:
        super().__init__(out)
        self.has_begun = threading.Event()
        self.may = threading.Event()

    def add(self, picture: np.ndarray) -> None:
        self.has_begun.set()
        assert self.may.wait(PATIENCE_S)
        super().add(picture)


def test_film_whose_picture_cannot_be_drawn_ends_and_leaves_nothing(
    view: Any,
    screen: OffscreenScreen,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("CUDA is out of memory")

    monkeypatch.setattr(Camerawork, "picture", fail)
    filming = start_filming(view, screen, tmp_path / "film.mp4")
    assert filming.is_ended
    assert filming.fault == "CUDA is out of memory"
    assert not list(tmp_path.iterdir())


def test_film_is_given_up_without_waiting_for_a_disk_that_hangs(
    view: Any,
    screen: OffscreenScreen,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = Stuck(tmp_path / "film")
    camerawork = Camerawork(screen.ctx, view.view, W, H)
    filming = Filming(camerawork, short_film(), writer)
    filming.advance(0.0)
    assert writer.has_begun.wait(PATIENCE_S)

    def fail(*_: Any) -> Any:
        raise RuntimeError("no more")

    monkeypatch.setattr(Camerawork, "picture", fail)
    filming.advance(0.0)
    assert filming.is_ended
    assert filming.fault == "no more"
    writer.may.set()
    filming.close()
    assert [p.name for p in (tmp_path / "film").iterdir()] == ["000000.png"]


def test_pictures_that_wait_to_be_written_are_bounded_by_their_size(
    view: Any, screen: OffscreenScreen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def small_picture(*_: Any) -> np.ndarray:
        return np.zeros((2, 2, 3), np.uint8)

    monkeypatch.setattr(Camerawork, "picture", small_picture)
    waiting = {}
    for size in (64, 5000, 16384):
        writer = Stuck(tmp_path / str(size))
        film = Film(short_film().path, size, size, 10.0)
        filming = Filming(Camerawork(screen.ctx, view.view, W, H), film, writer)
        for _ in range(8):
            filming.advance()
        waiting[size] = filming.drawn
        writer.may.set()
        filming.close()
    assert waiting == {64: 5, 5000: 3, 16384: 1}


# -- splatview video -------------------------------------------------------------------


def test_video_command_writes_a_film(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "path.json"
    scene = write_ply(tmp_path / "scene.ply", ply_columns(truth(200)))
    film = json.loads(write_path(short_film(5.0)))
    path.write_text(
        json.dumps(film | {"keyframes": [], "camera_path": film["camera_path"][:3]})
    )
    assert (
        main(
            [
                "video",
                str(tmp_path / "out"),
                str(scene),
                "--path",
                str(path),
                "--background",
                "transparent",
            ]
        )
        == 0
    )
    assert capsys.readouterr().out.strip() == f"{tmp_path / 'out'}: 3 pictures"
    with Image.open(tmp_path / "out" / "000000.png") as picture:
        assert (picture.size, picture.mode) == ((W, H), "RGBA")
