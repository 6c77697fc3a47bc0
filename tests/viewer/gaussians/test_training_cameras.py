"""Cameras of a training and their photographs, from their checks to the viewer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
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


def test_frame_of_cameras_is_read() -> None:
    camera_set = cameras(8, 3, ["", "/a/b.png", *[""] * 6])
    views, Ks = ring(8)
    np.testing.assert_array_equal(camera_set.viewmats, views.numpy())
    assert camera_set.photos == 3
    assert camera_set.is_valid.all()
    np.testing.assert_allclose(
        np.linalg.norm(camera_set.positions, axis=1), np.hypot(4, 1)
    )
    assert camera_set.label(0) == "Camera 0"
    assert camera_set.label(1) == "1  b.png"
    camera = camera_set.camera(2)
    assert camera is not None
    np.testing.assert_array_equal(camera.K, Ks[2].numpy())
    assert camera.width == SIZE[0]
    assert camera.height == SIZE[1]
    assert camera_set.camera(8) is None
    assert camera_set.camera(-1) is None
    np.testing.assert_allclose(camera_set.extents[0], [-0.6, -0.4, 0.6, 0.4])
    corner = camera_set.outline(2, 2.0)[1]
    np.testing.assert_allclose(project(camera, corner), [0, 0], atol=1e-9)


def test_invalid_cameras_are_told_apart() -> None:
    views, Ks = ring(6)
    views[1, 0, 0] = torch.nan
    views[2, :3, :3] *= 2
    Ks[3, 0, 0] = -1
    views[4, :3, :3] = torch.diag(torch.tensor([1.0, 1, -1], dtype=torch.float64))
    sizes = torch.tensor([SIZE] * 6, dtype=torch.int32)
    frame = frame_of("cameras", {"viewmats": views, "Ks": Ks, "sizes": sizes})
    camera_set = cameras_of(frame)
    assert camera_set.is_valid.tolist() == [True, False, False, False, False, True]
    assert np.isfinite(camera_set.positions).all()
    assert np.isfinite(camera_set.extents).all()
    assert np.isfinite(camera_set.outline(1, 1.0)).all()
    assert camera_set.camera(1) is None
    assert camera_set.spacing > 0


def test_frames_of_anything_else_are_refused() -> None:
    with pytest.raises(ViewerError, match="part of cameras"):
        cameras_of(photos_frame(photographs(1), 0))
    with pytest.raises(ViewerError, match="2 paths of photographs for 3 cameras"):
        cameras_of(cameras_frame(3, 0, ["/a", "/b"]))


# -- photographs ---------------------------------------------------------------


def test_viewed_photograph_is_requested_and_kept_within_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    photos = photographs(8)
    store = PhotoStore()
    assert store.use_cameras(cameras(8, 1))
    monkeypatch.setattr(photos_module, "MAX_PHOTO_BYTES", 3 * photos[0].nbytes)
    assert store.photo(5) is None
    assert store.requests(0.0) == [(5, 0)]
    # A request on its way is not repeated until it fails to come.
    assert store.requests(0.5) == []
    assert store.requests(2.0) == [(5, 0)]
    assert not store.take_frame(photos_frame(photos[5:6], 5, intact=False))
    assert store.take_frame(photos_frame(photos[5:6], 5))
    np.testing.assert_array_equal(store.photo(5), photos[5])
    assert store.requests(9.0) == []
    of_another_set = photos_frame(photos[4:5], 4, number=2)
    assert store.take_frame(of_another_set)
    assert store.photo(4) is None
    for i in range(8):
        store.photo(i)
        store.take_frame(photos_frame(photos[i : i + 1], i))
    assert [i for i in range(8) if store.photo(i) is not None] == [5, 6, 7]
    store.close()


def has_reading_thread() -> bool:
    return any(t.name == "read photographs" for t in threading.enumerate())


def test_files_are_read_by_a_thread_that_ends(tmp_path: Path) -> None:
    woken = threading.Event()
    store = PhotoStore(woken.set)
    (tmp_path / "damaged.png").write_bytes(b"\x89PNG\r\n nothing")
    Image.new("RGB", SIZE, (10, 20, 30)).save(tmp_path / "a.png")
    paths = [str(tmp_path / name) for name in ("a.png", "missing.png")]
    # Camera 2 has no path: its photograph is in its publisher's memory.
    paths += ["", str(tmp_path / "damaged.png"), str(tmp_path)]
    store.use_cameras(cameras(5, 1, paths))

    def is_settled(camera_id: int) -> bool:
        store.tick(clock())
        return store.photo(camera_id) is not None or bool(store.problem(camera_id))

    def requests_small() -> bool:
        store.tick(clock())
        return (2, 8) in store.requests(clock())

    def has_no_thread() -> bool:
        return not has_reading_thread()

    for camera_id in (0, 1, 3, 4):
        wait_until(partial(is_settled, camera_id))
    assert woken.is_set()
    expected = np.asarray(Image.open(tmp_path / "a.png"))
    np.testing.assert_array_equal(store.photo(0), expected)
    assert store.problem(1) == "missing.png: there is no such file"
    assert store.problem(3).startswith("damaged.png: ")
    assert "not a file" in store.problem(4)
    store.photo(2)
    assert store.requests(0.0) == [(2, 0)]
    store.thumbnails.want(8)
    wait_until(requests_small)
    small = torch.full((3, 8, 8, 3), 77, dtype=torch.uint8)
    store.take_frame(photos_frame(small, 2, 8))
    wait_until(has_no_thread)
    store.tick(clock())
    small_photos = store.thumbnails.take(99)
    assert {i: int(photo[0, 0, 0]) for i, photo in small_photos} == {0: 10, 2: 77}
    store.close()


def photo_of(path: Path, size: tuple[int, int] = SIZE, side: int = 0) -> np.ndarray:
    """Return a camera's photograph in a file, as its store reads it."""
    store = PhotoStore()
    frame = cameras_frame(1, 0, [str(path)])
    store.use_cameras(replace(cameras_of(frame), sizes=np.array([size])))
    store.thumbnails.want(side)
    arrived: list[np.ndarray] = []

    def is_settled() -> bool:
        store.tick(clock())
        if side:
            arrived.extend(photo for _, photo in store.thumbnails.take(1))
            return bool(arrived)
        photo = store.photo(0)
        if photo is not None:
            arrived.append(photo)
        return bool(arrived) or bool(store.problem(0))

    wait_until(is_settled)
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
    middles = pixels[8::16, 12::24]
    assert np.abs(small - middles).max() < 20


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
def test_photographs_are_found_under_names_of_other_programs(
    tmp_path: Path, named: str, stored: str
) -> None:
    (tmp_path / stored).parent.mkdir(exist_ok=True)
    Image.new("RGB", SIZE, (10, 20, 30)).save(tmp_path / stored, quality=100)
    photo = photo_of(tmp_path / named)
    assert np.abs(photo.astype(int) - (10, 20, 30)).max() <= 2


def test_poses_are_compared_anew_when_they_or_the_scene_change() -> None:
    points = cloud()["means"].numpy()
    hints = CameraHints()
    right = cameras(8)
    invalid = replace(right, viewmats=np.linalg.inv(right.viewmats))
    # There are no cameras yet.
    assert not hints.compare(points, 1, 0.0)
    hints.check_intrinsics(right)
    assert not hints.compare(points, 1, 1.0)
    assert not hints.texts
    hints.check_intrinsics(invalid)
    # It is too soon for another comparison.
    assert not hints.compare(points, 1, 2.0)
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


def publish_cameras_and_scene() -> None:
    views, Ks = ring(COUNT)
    colors = torch.tensor(COLORS, dtype=torch.uint8)
    images = colors[:, None, None].repeat(1, SIZE[1], SIZE[0], 1)
    splatview.publish_cameras(views, Ks, *SIZE, images, current=2)
    scene = cloud()
    scene["sh0"] = scene["sh0"][:, None]
    splatview.publish(scene, "splats")


def frustums_of(viewer: Viewer) -> Any:
    """Return the tool of the cameras in the active view, or None without a view."""
    view: Any = viewer.user.view
    if view is None:
        return None
    return view.view.tools["frustums"]


def camera_in_picture(frustums: Any, camera: Any, rect: Any) -> tuple[int, Any]:
    """Return a training camera whose middle is in the picture, and that pixel."""
    outlines = [frustums.cameras.outline(i, frustums.depth) for i in range(COUNT)]
    centers = np.stack([outline[1:].mean(0) for outline in outlines])
    for index, (x, y) in enumerate(project(camera, centers)):
        if 0 < x < rect.width and 0 < y < rect.height:
            return index, (float(x + rect.x), float(y + rect.y))
    raise AssertionError("no camera is in the picture")


def test_cameras_are_drawn_over_the_scene_and_can_be_looked_through(
    viewer: Viewer,
) -> None:
    publish_cameras_and_scene()

    def has_cameras() -> bool:
        tool = frustums_of(viewer)
        return (
            tool is not None and tool.content is not None and tool.content.current == 2
        )

    viewer.until(has_cameras)
    entries = sorted((entry.name, entry.kind) for entry in viewer.state.entries)
    assert entries == [("cameras", "cameras"), ("splats", "gaussians")]
    # A click looks through the camera, a key through the next, Escape goes back.
    view: Any = viewer.user.view
    frustums = frustums_of(viewer)
    through = frustums.through
    viewer.do()
    start = view.view.rig.camera()
    index, pixel = camera_in_picture(frustums, start, view.rect)
    viewer.do(PointerMove(*pixel))
    assert frustums.hovered == index
    viewer.do(PointerPress(*pixel), PointerRelease(*pixel))

    def has_arrived() -> bool:
        return through.is_there

    viewer.until(has_arrived)
    assert through.index == index
    frustums.change(comparison="photo")

    def has_photo() -> bool:
        return through.photo(frustums.content) is not None

    viewer.until(has_photo)
    viewer.user.mark()
    viewer.do()
    photo_rect = through.photo_rect(view.rect)
    middle_x = photo_rect.x + photo_rect.width // 2
    middle_y = photo_rect.y + photo_rect.height // 2
    middle = viewer.pixels()[middle_y, middle_x]
    assert np.abs(middle - COLORS[index]).max() <= 1

    def has_psnr() -> bool:
        return through.meter.psnr is not None

    viewer.until(has_psnr)
    viewer.do(Key("page_down"))
    viewer.until(has_arrived)
    assert through.index == (index + 1) % COUNT
    view.view.tools["inspect"].choose(0)
    # Escape ends one layer: the selection, then the camera.
    viewer.do(Key("escape"), Key("escape", pressed=False))
    assert view.view.state.selection.marked == ()
    assert through.index is not None
    viewer.do(Key("escape"))
    assert through.index is None

    def is_back() -> bool:
        camera = view.view.rig.camera()
        return camera is not None and np.allclose(camera.viewmat, start.viewmat)

    viewer.until(is_back)


def test_doubts_about_cameras_are_in_the_panel_and_logged_once(
    viewer: Viewer, caplog: pytest.LogCaptureFixture
) -> None:
    views, Ks = ring(COUNT)
    invalid = torch.linalg.inv(views)
    splatview.publish_cameras(invalid, Ks, *SIZE)
    splatview.publish(cloud(), "splats")

    def content() -> Any:
        tool = frustums_of(viewer)
        return tool.content if tool is not None else None

    def has_doubts() -> bool:
        return content() is not None and bool(content().hints.texts)

    def has_no_doubts() -> bool:
        return not content().hints.texts

    def has_five_cameras() -> bool:
        return len(content().cameras) == 5

    viewer.until(has_doubts)
    assert "camera to world" in content().hints.texts[0]
    for step in range(3):
        splatview.publish_cameras(invalid, Ks, *SIZE)
        splatview.publish(cloud(seed=step), "splats")
        viewer.do()
    messages = [record.getMessage() for record in caplog.records]
    doubts = [text for text in messages if text.startswith("training cameras")]
    assert len(doubts) == 1
    photos = torch.full((5, SIZE[1], SIZE[0], 3), 130.0)
    splatview.publish_cameras(views[:5], Ks[:5], *SIZE, photos)
    viewer.until(has_five_cameras)
    viewer.until(has_doubts)
    assert len(content().hints.texts) == 1
    assert "floats from 0 to 255" in content().hints.texts[0]
    splatview.publish_cameras(views[:5], Ks[:5], *SIZE, photos / 255)
    viewer.until(has_no_doubts)
