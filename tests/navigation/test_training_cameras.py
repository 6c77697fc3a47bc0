"""Cameras of a training and their photographs as plain data: checked, kept within bounds, found under a pixel."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.frames import frame_of
from support.training_camera_cases import SIZE, cameras_frame, photographs, photos_frame, ring

from splatview.ipc.errors import SharingError
from splatview.viewer_app.cameras import Camera, intrinsics, look_at, project
from splatview.viewer_app.errors import ViewerError
from splatview.viewer_app.training_cameras import photos as photos_module
from splatview.viewer_app.training_cameras.drawing import Grid, side_of
from splatview.viewer_app.training_cameras.model import CameraSet, at_size, cameras_of
from splatview.viewer_app.training_cameras.photos import PhotoStore, read_photo
from splatview.viewer_app.training_cameras.picking import Outlines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def cameras(count: int = 8, photos: int = 0, paths: list[str] | None = None) -> CameraSet:
    return cameras_of(cameras_frame(count, photos, paths))


# -- the cameras ---------------------------------------------------------------------------------------------------


def test_what_a_frame_says_is_read() -> None:
    found = cameras(8, 3, ["", "/a/b.png", *[""] * 6])
    views, Ks = ring(8)
    np.testing.assert_array_equal(found.viewmats, views.numpy())
    assert found.photos == 3
    assert found.fine.all()
    np.testing.assert_allclose(np.linalg.norm(found.positions, axis=1), np.hypot(4, 1))
    assert (found.called(0), found.called(1)) == ("Camera 0", "1  b.png")
    camera = found.camera(2)
    assert camera is not None
    np.testing.assert_array_equal(camera.K, Ks[2].numpy())
    assert (camera.width, camera.height) == SIZE
    assert found.camera(8) is None
    assert found.camera(-1) is None
    np.testing.assert_allclose(found.extents[0], [-0.6, -0.4, 0.6, 0.4])
    corner = found.outline(0, 2.0)[1]
    np.testing.assert_allclose(project(camera_of(found, 0), corner), [0, 0], atol=1e-9)


def camera_of(found: CameraSet, number: int) -> Camera:
    camera = found.camera(number)
    assert camera is not None
    return camera


def test_what_is_no_camera_is_told_apart() -> None:
    views, Ks = ring(6)
    views[1, 0, 0] = torch.nan
    views[2, :3, :3] *= 2
    Ks[3, 0, 0] = -1
    views[4, :3, :3] = torch.diag(torch.tensor([1.0, 1, -1], dtype=torch.float64))
    frame = frame_of("cameras", {"viewmats": views, "Ks": Ks, "sizes": torch.tensor([SIZE] * 6, dtype=torch.int32)})
    found = cameras_of(frame)
    assert found.fine.tolist() == [True, False, False, False, False, True]
    assert np.isfinite(found.positions).all()
    assert np.isfinite(found.extents).all()
    assert np.isfinite(found.outline(1, 1.0)).all()
    assert found.camera(1) is None
    assert found.spacing > 0


@pytest.mark.parametrize("count", [0, 1])
def test_few_cameras_have_a_size_as_well(count: int) -> None:
    assert cameras(count).spacing == 1.0


def test_frames_that_say_something_else_are_refused() -> None:
    with pytest.raises(ViewerError, match="part of cameras"):
        cameras_of(photos_frame(photographs(1), 0))
    with pytest.raises(ViewerError, match="2 paths of photographs for 3 cameras"):
        cameras_of(cameras_frame(3, 0, ["/a", "/b"]))
    frame = cameras_frame(3)

    class OnGpu(type(frame)):  # type: ignore[misc]
        on_gpu = True  # type: ignore[assignment]

    frame.__class__ = OnGpu
    with pytest.raises(SharingError):
        cameras_of(frame)


def test_a_camera_for_a_photograph_of_another_size_sees_the_same() -> None:
    camera = camera_of(cameras(), 3)
    other = at_size(camera, 24, 64)
    points = np.random.default_rng(0).normal(size=(20, 3))
    np.testing.assert_allclose(project(other, points), project(camera, points) * (0.5, 2.0))


# -- photographs ---------------------------------------------------------------------------------------------------


def store(found: CameraSet) -> PhotoStore:
    made = PhotoStore()
    assert made.use(found)
    return made


def test_one_that_is_looked_at_is_asked_for_and_taken() -> None:
    photos, held = photographs(8), store(cameras(8, 1))
    assert held.requests(0.0) == []
    assert held.whole(5) is None
    assert held.requests(0.0) == [(5, 0)]
    assert held.requests(0.5) == []  # on its way
    assert held.requests(2.0) == [(5, 0)]  # it did not come
    assert not held.take(photos_frame(photos[5:6], 5, intact=False))
    assert held.take(photos_frame(photos[5:6], 5))
    np.testing.assert_array_equal(held.whole(5), photos[5])
    assert held.requests(9.0) == []
    assert held.take(photos_frame(photos[4:5], 4, number=2))  # of another set
    assert held.whole(4) is None
    held.close()


def test_one_that_does_not_exist_is_said_to() -> None:
    held = store(cameras(8, 1))
    held.whole(2)
    assert held.take(photos_frame(torch.zeros(1, 0, 0, 3, dtype=torch.uint8), 2))
    assert "without a photograph" in held.trouble(2)
    assert held.requests(5.0) == []
    held.whole(3)
    assert held.requests(5.0) == [(3, 0)]
    nowhere = store(cameras(8))
    assert nowhere.whole(0) is None
    assert "without a photograph" in nowhere.trouble(0)


def test_no_more_are_kept_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    photos, held = photographs(8), store(cameras(8, 1))
    monkeypatch.setattr(photos_module, "KEPT", 3 * photos[0].nbytes)
    for i in range(8):
        held.whole(i)
        held.take(photos_frame(photos[i: i + 1], i))
    assert [i for i in range(8) if i in held._whole] == [5, 6, 7]


def test_other_photographs_take_their_place() -> None:
    photos, held = photographs(8), store(cameras(8, 1))
    held.take(photos_frame(photos[:1], 0))
    assert not held.use(cameras(8, 1))  # other poses, the same photographs
    assert held.whole(0) is not None
    assert held.use(cameras(8, 2))
    assert held.whole(0) is None


def test_small_ones_come_one_after_the_other() -> None:
    held = store(cameras(5, 1))
    held.want_small(4)
    small = torch.arange(5, dtype=torch.uint8)[:, None, None, None].expand(5, 4, 4, 3).contiguous()
    assert held.requests(0.0) == [(0, 4)]
    assert held.take(photos_frame(small[:3], 0, 4))
    assert held.requests(0.0) == [(3, 4)]
    assert held.take(photos_frame(small[:3], 0, 4))  # for somebody else, once more
    assert held.take(photos_frame(small[3:], 3, 4))
    assert held.requests(0.0) == []
    assert [(n, int(p[0, 0, 0])) for n, p in held.take_small(9)] == [(n, n) for n in range(5)]
    assert held.take_small(9) == []


def picture(path: Path, color: tuple[int, int, int], size: tuple[int, int] = SIZE) -> str:
    Image.fromarray(np.full((size[1], size[0], 3), color, np.uint8)).save(path)
    return str(path)


def test_files_are_read_by_a_thread_that_ends(tmp_path: Path, wait_until: Callable[..., Any]) -> None:
    woken = threading.Event()
    held = PhotoStore(woken.set)
    (tmp_path / "damaged.png").write_bytes(b"\x89PNG\r\n nothing")
    held.use(cameras(5, 1, [picture(tmp_path / "a.png", (10, 20, 30)), str(tmp_path / "missing.png"), "",
                            str(tmp_path / "damaged.png"), str(tmp_path)]))

    def settled(number: int) -> bool:
        held.tick(time.monotonic())
        return held.whole(number) is not None or bool(held.trouble(number))

    for number in (0, 1, 3, 4):
        wait_until(lambda n=number: settled(n))
    assert woken.is_set()
    assert held.whole(0).tolist() == np.full((SIZE[1], SIZE[0], 3), (10, 20, 30)).tolist()  # type: ignore[union-attr]
    assert held.trouble(1) == "missing.png: there is no such file"
    assert held.trouble(3).startswith("damaged.png: ")
    assert "not a file" in held.trouble(4)
    held.whole(2)
    assert held.requests(0.0) == [(2, 0)]  # which is in its publisher's memory
    held.want_small(8)
    wait_until(lambda: held.tick(time.monotonic()) or held._small)

    def asked() -> bool:
        held.tick(time.monotonic())
        return (2, 8) in held.requests(time.monotonic())

    wait_until(asked)
    held.take(photos_frame(torch.full((3, 8, 8, 3), 77, dtype=torch.uint8), 2, 8))
    wait_until(lambda: not [t for t in threading.enumerate() if t.name == "read photographs"])
    held.tick(time.monotonic())
    found = dict(held.take_small(99))
    assert {n: int(p[0, 0, 0]) for n, p in found.items()} == {0: 10, 2: 77}
    held.close()


def test_a_file_is_no_larger_than_its_camera(tmp_path: Path) -> None:
    large = np.zeros((64, 96, 3), np.uint8)
    large[:, ::2] = 200
    Image.fromarray(large).save(tmp_path / "large.png")
    read = read_photo(tmp_path / "large.png", SIZE)
    assert read.shape == (32, 48, 3)
    assert (read == 100).all()  # means over areas
    assert read_photo(tmp_path / "large.png", (960, 640)).shape == (64, 96, 3)
    assert read_photo(tmp_path / "large.png", SIZE, 16).shape == (16, 16, 3)
    Image.fromarray((np.arange(16, dtype=np.uint16) << 12).reshape(4, 4)).save(tmp_path / "deep.png")
    assert read_photo(tmp_path / "deep.png", SIZE)[3, 3].tolist() == [240, 240, 240]


def test_too_large_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splatview.viewer_app.files.image.PIXEL_LIMIT", 100)
    with pytest.raises(ValueError, match="48x32 pixels; at most 100"):
        read_photo(tmp_path / picture(tmp_path / "a.png", (1, 2, 3)), SIZE)


# -- under a pixel -------------------------------------------------------------------------------------------------


def eye(model: Any = "pinhole") -> Camera:
    K = intrinsics(60, 200, 150, model)
    if model == "ortho":
        K[[0, 1], [0, 1]] /= 10
    return Camera(look_at((0, -4, 9), (0, 0, 0)), K, 200, 150, model)


@pytest.mark.parametrize("model", ["pinhole", "ortho", "fisheye"])
def test_the_camera_under_a_pixel_is_the_nearest(model: str) -> None:
    found, camera, outlines = cameras(8), eye(model), Outlines()
    for number in range(8):
        x, y = project(camera, found.outline(number, 0.8)[1:].mean(0))
        hit = outlines.at(found, camera, 0.8, x, y, 3.0)
        assert hit is not None
        near, far = (np.linalg.norm(found.positions[n] - camera.position) for n in (hit, number))
        assert hit == number or near < far
        assert outlines.at(found, camera, 0.8, *project(camera, found.positions[number]), reach=3.0) is not None
    assert outlines.at(found, camera, 0.8, 1.0, 1.0, 3.0) is None
    assert outlines.at(found, camera, 0.8, float("nan"), 1.0, 3.0) is None


def test_whoever_stands_in_a_camera_does_not_touch_it() -> None:
    found = cameras(3)
    inside = camera_of(found, 1)
    assert Outlines().at(found, inside, 0.8, SIZE[0] / 2, SIZE[1] / 2, 3.0) != 1


def test_what_lies_behind_is_nowhere() -> None:
    assert np.isnan(project(eye(), np.array([0.0, -8, 20]))).all()


# -- rows ----------------------------------------------------------------------------------------------------------


def test_rows_of_photographs() -> None:
    grid = Grid(3, (30.0, 20.0), 4.0, scroll=25.0)
    assert grid.height(7) == 64
    for number in range(7):
        x, y, width, height = grid.place(number)
        assert (width, height) == (26, 16)
        assert grid.at(x + 1, y + 1, 7) == number
        assert grid.at(x - 1, y + 1, 7) is None
    assert grid.at(*[v + 1 for v in grid.place(7)[:2]], count=7) is None
    first, count = grid.seen(10, 7)
    assert first == 3
    assert first + count == 6


def test_all_small_photographs_fit() -> None:
    for count in (1, 256, 257, 1024, 4096, 10_000):
        assert (2048 // side_of(count)) ** 2 >= count
