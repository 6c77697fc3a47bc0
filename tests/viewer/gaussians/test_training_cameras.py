"""Cameras of a training and their photographs, from their checks to the viewer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.frames import (
    SIZE,
    cameras_frame,
    cloud,
    frame_of,
    photographs,
    photos_frame,
    ring,
)
from support.viewer import Viewer
from support.wait import clock, wait_until

import splatview
from splatview_viewer.app.loop import AppOptions
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.events import Key, PointerMove, PointerPress, PointerRelease
from splatview_viewer.geometry.cameras import project
from splatview_viewer.geometry.training_cameras import CameraSet, cameras_of
from splatview_viewer.render.cameras import photos as photos_module
from splatview_viewer.render.cameras.hints import CameraHints
from splatview_viewer.render.cameras.photos import PhotoStore
from splatview_viewer.screens.offscreen import OffscreenScreen


def cameras(
    count: int = 8, photos: int = 0, paths: list[str] | None = None
) -> CameraSet:
    return cameras_of(cameras_frame(count, photos, paths))


def test_what_a_frame_says_is_read() -> None:
    camera_set = cameras(8, 3, ["", "/a/b.png", *[""] * 6])
    views, Ks = ring(8)
    np.testing.assert_array_equal(camera_set.viewmats, views.numpy())
    assert camera_set.photos == 3
    assert camera_set.is_valid.all()
    np.testing.assert_allclose(
        np.linalg.norm(camera_set.positions, axis=1), np.hypot(4, 1)
    )
    assert (camera_set.label(0), camera_set.label(1)) == ("Camera 0", "1  b.png")
    camera = camera_set.camera(2)
    assert camera is not None
    np.testing.assert_array_equal(camera.K, Ks[2].numpy())
    assert (camera.width, camera.height) == SIZE
    assert camera_set.camera(8) is camera_set.camera(-1) is None
    np.testing.assert_allclose(camera_set.extents[0], [-0.6, -0.4, 0.6, 0.4])
    np.testing.assert_allclose(
        project(camera, camera_set.outline(2, 2.0)[1]), [0, 0], atol=1e-9
    )


def test_what_is_no_camera_is_told_apart() -> None:
    views, Ks = ring(6)
    views[1, 0, 0] = torch.nan
    views[2, :3, :3] *= 2
    Ks[3, 0, 0] = -1
    views[4, :3, :3] = torch.diag(torch.tensor([1.0, 1, -1], dtype=torch.float64))
    frame = frame_of(
        "cameras",
        {
            "viewmats": views,
            "Ks": Ks,
            "sizes": torch.tensor([SIZE] * 6, dtype=torch.int32),
        },
    )
    camera_set = cameras_of(frame)
    assert camera_set.is_valid.tolist() == [True, False, False, False, False, True]
    assert all(
        np.isfinite(part).all()
        for part in (
            camera_set.positions,
            camera_set.extents,
            camera_set.outline(1, 1.0),
        )
    )
    assert camera_set.camera(1) is None
    assert camera_set.spacing > 0


def test_frames_that_say_something_else_are_refused() -> None:
    with pytest.raises(ViewerError, match="part of cameras"):
        cameras_of(photos_frame(photographs(1), 0))
    with pytest.raises(ViewerError, match="2 paths of photographs for 3 cameras"):
        cameras_of(cameras_frame(3, 0, ["/a", "/b"]))


# -- photographs ---------------------------------------------------------------


def test_one_that_is_looked_at_is_asked_for_and_kept_within_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    photos = photographs(8)
    held = PhotoStore()
    assert held.use_cameras(cameras(8, 1))
    monkeypatch.setattr(photos_module, "MAX_PHOTO_BYTES", 3 * photos[0].nbytes)
    assert held.photo(5) is None
    assert held.requests(0.0) == [(5, 0)]
    assert held.requests(0.5) == []  # on its way
    assert held.requests(2.0) == [(5, 0)]  # it did not come
    assert not held.take_frame(photos_frame(photos[5:6], 5, intact=False))
    assert held.take_frame(photos_frame(photos[5:6], 5))
    np.testing.assert_array_equal(held.photo(5), photos[5])
    assert held.requests(9.0) == []
    assert held.take_frame(photos_frame(photos[4:5], 4, number=2))  # of another set
    assert held.photo(4) is None
    for i in range(8):
        held.photo(i)
        held.take_frame(photos_frame(photos[i : i + 1], i))
    assert [i for i in range(8) if held.photo(i) is not None] == [5, 6, 7]
    held.close()


def test_files_are_read_by_a_thread_that_ends(tmp_path: Path) -> None:
    woken = threading.Event()
    held = PhotoStore(woken.set)
    (tmp_path / "damaged.png").write_bytes(b"\x89PNG\r\n nothing")
    Image.new("RGB", SIZE, (10, 20, 30)).save(tmp_path / "a.png")
    names = ["a.png", "missing.png", None, "damaged.png", ""]
    held.use_cameras(
        cameras(5, 1, ["" if name is None else str(tmp_path / name) for name in names])
    )

    def settled(number: int) -> bool:
        held.tick(clock())
        return held.photo(number) is not None or bool(held.problem(number))

    for number in (0, 1, 3, 4):
        wait_until(lambda n=number: settled(n))
    assert woken.is_set()
    np.testing.assert_array_equal(
        held.photo(0), np.asarray(Image.open(tmp_path / "a.png"))
    )
    assert held.problem(1) == "missing.png: there is no such file"
    assert held.problem(3).startswith("damaged.png: ")
    assert "not a file" in held.problem(4)
    held.photo(2)
    assert held.requests(0.0) == [(2, 0)]  # it is in the memory of its publisher
    held.want_thumbnails(8)
    wait_until(lambda: (held.tick(clock()), (2, 8) in held.requests(clock()))[1])
    held.take_frame(photos_frame(torch.full((3, 8, 8, 3), 77, dtype=torch.uint8), 2, 8))
    wait_until(
        lambda: not [t for t in threading.enumerate() if t.name == "read photographs"]
    )
    held.tick(clock())
    assert {n: int(p[0, 0, 0]) for n, p in held.take_thumbnails(99)} == {0: 10, 2: 77}
    held.close()


def photo_of(path: Path, size: tuple[int, int] = SIZE, side: int = 0) -> np.ndarray:
    """What a camera's photograph in a file is, as its store reads it."""
    store = PhotoStore()
    frame = cameras_frame(1, 0, [str(path)])
    store.use_cameras(replace(cameras_of(frame), sizes=np.array([size])))
    store.want_thumbnails(side)
    arrived: list[np.ndarray] = []

    def settled() -> bool:
        store.tick(clock())
        if side:
            arrived.extend(photo for _, photo in store.take_thumbnails(1))
            return bool(arrived)
        whole = store.photo(0)
        arrived.extend([] if whole is None else [whole])
        return bool(arrived) or bool(store.problem(0))

    wait_until(settled)
    message = store.problem(0)
    store.close()
    assert not message, message
    return arrived[0]


@pytest.mark.parametrize("orientation", [1, 2, 3, 6, 8])
@pytest.mark.parametrize("ending", ["jpg", "png", "webp", "tif"])
def test_pixels_count_as_they_lie_whatever_exif_says(
    tmp_path: Path, orientation: int, ending: str
) -> None:
    pixels = np.zeros((32, 48, 3), np.uint8)
    pixels[:16, :24] = 220, 40, 40
    pixels[16:, 24:] = 40, 40, 220
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"turned.{ending}"
    Image.fromarray(pixels).save(path, exif=exif, quality=100)
    assert np.abs(photo_of(path).astype(int) - pixels).mean() < 3
    small = photo_of(path, side=2).astype(int)
    assert np.abs(small - pixels[8::16, 12::24]).max() < 20


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "opaque"])
def test_alpha_of_a_photograph_is_read(tmp_path: Path, mode: str) -> None:
    pixels = np.full((32, 48, 4), 255, np.uint8)
    pixels[:, :24] = 200, 200, 200, 0
    if mode == "opaque":
        pixels[..., 3] = 255
    picture = Image.fromarray(pixels)
    if mode == "P":
        picture = picture.convert("RGB").quantize(2)
        grey = next(c for c in (0, 1) if picture.getpalette()[3 * c] < 255)  # type: ignore[index]
        picture.info["transparency"] = grey
    elif mode == "LA":
        picture = picture.convert("LA")
    path = tmp_path / "photo.png"
    picture.save(path)
    photo = photo_of(path)
    if mode == "opaque":
        np.testing.assert_array_equal(photo, pixels[..., :3])
        return
    np.testing.assert_array_equal(photo[:, 24:], pixels[:, 24:])
    assert not photo[:, :24, 3].any()
    assert photo_of(path, side=2)[0].tolist()[1] == [255, 255, 255, 255]


@pytest.mark.parametrize(
    ("named", "stored"),
    [
        ("train/r_0", "train/r_0.png"),
        ("a.JPG", "a.jpg"),
        ("a.png", "a.PNG"),
        ("a.png", "a.bmp"),
        ("images\\a.png", "images/a.png"),
    ],
)
def test_photographs_are_found_under_other_programs_names(
    tmp_path: Path, named: str, stored: str
) -> None:
    (tmp_path / stored).parent.mkdir(exist_ok=True)
    Image.new("RGB", SIZE, (10, 20, 30)).save(tmp_path / stored, quality=100)
    photo = photo_of(tmp_path / named)
    assert np.abs(photo.astype(int) - (10, 20, 30)).max() <= 2


def test_poses_are_compared_anew_when_they_or_the_scene_are_others() -> None:
    points = cloud()["means"].numpy()
    hints = CameraHints()
    right = cameras(8)
    invalid = replace(right, viewmats=np.linalg.inv(right.viewmats))
    assert not hints.compare(points, 1, 0.0)  # there are no cameras
    hints.check_intrinsics(right)
    assert not hints.compare(points, 1, 1.0)
    assert not hints.texts
    hints.check_intrinsics(invalid)
    assert not hints.compare(points, 1, 2.0)  # too soon
    assert hints.compare(points, 1, 20.0)
    assert "camera to world" in hints.texts[0]
    assert not hints.compare(points, 1, 40.0)
    assert not hints.compare(points, 2, 60.0)
    assert hints.texts
    hints.check_intrinsics(replace(right))
    hints.take_photo_hint("images are floats from 0 to 255")
    assert hints.compare(points, 2, 80.0)
    assert hints.texts == ["images are floats from 0 to 255"]
    hints.check_intrinsics(replace(right, photos=2))
    assert not hints.texts


# -- in the viewer -------------------------------------------------------------


COUNT = 6
COLORS = [[200, 30 + 30 * i, 40] for i in range(COUNT)]


@pytest.fixture
def viewer() -> Iterator[Viewer]:
    app = Viewer(OffscreenScreen(680, 420), AppOptions(max_fps=15))
    yield app
    error = app.screen.ctx.error
    app.close()
    assert error == "GL_NO_ERROR"


def test_cameras_come_over_the_scene_and_one_looks_through_them(viewer: Viewer) -> None:
    views, Ks = ring(COUNT)
    images = torch.tensor(COLORS, dtype=torch.uint8)[:, None, None].repeat(
        1, SIZE[1], SIZE[0], 1
    )
    splatview.publish_cameras(views, Ks, *SIZE, images, current=2)
    splatview.publish(cloud() | {"sh0": cloud()["sh0"][:, None]}, "splats")

    def come() -> bool:
        view: Any = viewer.user.view
        return (
            view is not None
            and (content := view.view.tools["frustums"].content) is not None
            and (content.current == 2)
        )

    viewer.until(come)
    assert sorted((e.name, e.kind) for e in viewer.state.entries) == [
        ("cameras", "cameras"),
        ("splats", "gaussians"),
    ]
    # A click looks through the camera, a key through the next, Escape goes back.
    view: Any = viewer.user.view
    frustums = view.view.tools["frustums"]
    viewer.do()
    start = view.view.rig.camera()
    rect = view.rect
    cameras = frustums.cameras
    middles = project(
        start,
        np.stack(
            [cameras.outline(i, frustums.depth)[1:].mean(0) for i in range(COUNT)]
        ),
    )
    number = next(
        i
        for i, (x, y) in enumerate(middles)
        if 0 < x < rect.width and 0 < y < rect.height
    )
    place = float(middles[number][0] + rect.x), float(middles[number][1] + rect.y)
    viewer.do(PointerMove(*place))
    assert frustums.hovered == number
    viewer.do(PointerPress(*place), PointerRelease(*place))
    viewer.until(lambda: frustums.through.is_there)
    assert frustums.through.index == number
    frustums.change(how="photo")
    viewer.until(lambda: frustums.through.photo(frustums.content) is not None)
    viewer.user.mark()
    viewer.do()
    spot = frustums.through.photo_rect(view.rect)
    middle = viewer.pixels()[spot.y + spot.height // 2, spot.x + spot.width // 2]
    assert np.abs(middle - COLORS[number]).max() <= 1
    viewer.until(lambda: frustums.through.meter.psnr is not None)
    viewer.do(Key("page_down"))
    viewer.until(lambda: frustums.through.is_there)
    assert frustums.through.index == (number + 1) % COUNT
    viewer.do(Key("escape"))
    assert frustums.through.index is None
    viewer.until(
        lambda: (
            (now := view.view.rig.camera()) is not None
            and np.allclose(now.viewmat, start.viewmat)
        )
    )


def test_doubts_about_cameras_are_in_the_panel_and_once_in_the_log(
    viewer: Viewer, caplog: pytest.LogCaptureFixture
) -> None:
    views, Ks = ring(COUNT)
    invalid = torch.linalg.inv(views)
    splatview.publish_cameras(invalid, Ks, *SIZE)
    splatview.publish(cloud(), "splats")

    def content() -> Any:
        view: Any = viewer.user.view
        return None if view is None else view.view.tools["frustums"].content

    viewer.until(lambda: content() is not None and content().hints.texts)
    assert "camera to world" in content().hints.texts[0]
    for step in range(3):
        splatview.publish_cameras(invalid, Ks, *SIZE)
        splatview.publish(cloud(seed=step), "splats")
        viewer.do()
    told = [r.getMessage() for r in caplog.records]
    assert len([text for text in told if text.startswith("training cameras")]) == 1
    photos = torch.full((5, SIZE[1], SIZE[0], 3), 130.0)
    splatview.publish_cameras(views[:5], Ks[:5], *SIZE, photos)
    viewer.until(lambda: len(content().cameras) == 5)
    viewer.until(lambda: content().hints.texts)
    assert len(content().hints.texts) == 1
    assert "floats from 0 to 255" in content().hints.texts[0]
    splatview.publish_cameras(views[:5], Ks[:5], *SIZE, photos / 255)
    viewer.until(lambda: not content().hints.texts)
