"""Readers of other people's data sets, on tiny folders written here with known
contents.
"""

import json
import math
import os
import struct

import numpy as np
import pytest
import torch
from PIL import Image

from splatview.demo import DemoError, datasets

WIDTH = 40
HEIGHT = 30
N_VIEWS = 9
QUATERNION = (math.cos(0.2), 0.0, math.sin(0.2), 0.0)  # a turn of 0.4 about y
POINTS = np.arange(36, dtype=np.float64).reshape(12, 3) / 7
COLORS = (np.arange(36) * 7 % 256).astype(np.uint8).reshape(12, 3)


def load(path, pixels=10_000, max_points=100):
    return datasets.load(path, pixels=pixels, max_points=max_points)


def all_views(capture):
    """Return training and held-out views in the order of the file.

    Every eighth is held out, from the first.
    """
    train = iter(capture.train)
    held_out = iter(capture.held_out)
    views = []
    for i in range(len(capture.train) + len(capture.held_out)):
        source = held_out if i % 8 == 0 else train
        views.append(next(source))
    return views


def picture(i):
    return np.full((HEIGHT, WIDTH, 3), (10 * i, 200, 5), np.uint8)


def write_pictures(folder):
    folder.mkdir(parents=True)
    for i in range(N_VIEWS):
        Image.fromarray(picture(i)).save(folder / f"{i:02}.png")


def translation(i):
    return (0.5 * i, -0.25, 3.0)


def colmap(root, model=1, parameters=(50, 52, 19.5, 15.5), camera=7, scale=1):
    """A COLMAP folder in binary; model 1 is PINHOLE."""
    write_pictures(root / "images")
    sparse = root / "sparse/0"
    sparse.mkdir(parents=True)
    (sparse / "cameras.bin").write_bytes(
        struct.pack(
            f"<QiiQQ{len(parameters)}d",
            1,
            camera,
            model,
            WIDTH * scale,
            HEIGHT * scale,
            *parameters,
        )
    )
    images = struct.pack("<Q", N_VIEWS)
    for i in reversed(range(N_VIEWS)):  # COLMAP does not sort by name
        images += (
            struct.pack("<i7di", i + 1, *QUATERNION, *translation(i), 7)
            + f"{i:02}.png".encode()
            + b"\0"
        )
        images += struct.pack("<Q", i) + struct.pack("<ddq", 1.0, 2.0, -1) * i
    (sparse / "images.bin").write_bytes(images)
    points = struct.pack("<Q", len(POINTS))
    for i, (p, c) in enumerate(zip(POINTS, COLORS, strict=True)):
        points += (
            struct.pack("<Q3d3BdQ", i, *p, *c, 0.5, i) + struct.pack("<ii", 1, 2) * i
        )
    (sparse / "points3D.bin").write_bytes(points)
    return sparse


def test_colmap_model_gives_poses_intrinsics_pictures_and_points(tmp_path):
    colmap(tmp_path)
    capture = load(tmp_path)
    views = all_views(capture)
    assert (len(capture.train), len(capture.held_out)) == (7, 2)
    np.testing.assert_allclose(capture.points, POINTS, rtol=1e-6)
    np.testing.assert_allclose(capture.colors, COLORS / 255, rtol=1e-6)
    for i, view in enumerate(views):
        c = math.cos(0.4)
        s = math.sin(0.4)
        np.testing.assert_allclose(
            view.viewmat[:3, :3], [[c, 0, s], [0, 1, 0], [-s, 0, c]], atol=1e-6
        )
        np.testing.assert_allclose(view.viewmat[:3, 3], translation(i), atol=1e-6)
        np.testing.assert_allclose(view.K, [[50, 0, 19.5], [0, 52, 15.5], [0, 0, 1]])
        np.testing.assert_allclose(view.image, picture(i) / 255, atol=1e-6)
    assert not capture.notes


def test_pictures_are_made_smaller_and_intrinsics_follow(tmp_path):
    """Also where the files are smaller than the cameras."""
    colmap(tmp_path / "a")
    view = load(tmp_path / "a", pixels=300).train[0]
    assert (view.width, view.height, tuple(view.image.shape)) == (20, 15, (15, 20, 3))
    np.testing.assert_allclose(view.K, [[25, 0, 9.75], [0, 26, 7.75], [0, 0, 1]])
    colmap(tmp_path / "b", parameters=(200, 208, 78, 62), scale=4)
    np.testing.assert_allclose(
        load(tmp_path / "b").train[0].K, [[50, 0, 19.5], [0, 52, 15.5], [0, 0, 1]]
    )


def test_camera_that_is_missing_is_named(tmp_path):
    colmap(tmp_path, camera=8)
    with pytest.raises(DemoError, match="camera 7 is not in"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"P6\n# " + b"x" * 100_000 + b"\n1 1\n255\n123", "a PPM without a size"),
        (b"\xff\xd8" + b"Exif\0\0" * 101, "more than 100 pieces of EXIF"),
        (b"P6\n20000 20000\n255\n", "at most 134,217,728 are read"),
    ],
)
def test_picture_that_exhausts_pillow_is_left_out(tmp_path, data, reason):
    colmap(tmp_path)
    (tmp_path / "images/07.png").write_bytes(data)
    capture = load(tmp_path)
    assert len(capture.train) + len(capture.held_out) == N_VIEWS - 1
    assert reason in capture.notes[0]


@pytest.mark.parametrize("layout", ["colmap", "transforms"])
def test_picture_that_is_missing_or_damaged_costs_its_view(tmp_path, layout):
    {"colmap": colmap, "transforms": transforms}[layout](tmp_path)
    (tmp_path / "images/03.png").unlink()
    (tmp_path / "images/05.png").unlink()
    (tmp_path / "images/07.png").write_bytes(b"\x89PNG\r\n\x1a\n nothing")
    capture = load(tmp_path)
    assert len(capture.train) + len(capture.held_out) == 6
    assert (
        capture.notes[0] == "2 of 9 pictures are missing, and left out: 03.png, 05.png"
    )
    assert capture.notes[1].startswith("1 of 9 views is left out: ")
    assert "07.png: the picture is damaged" in capture.notes[1]
    for view in capture.train:
        index = int(view.path.stem)
        np.testing.assert_allclose(view.image, picture(index) / 255, atol=1e-6)
    for i in range(1, N_VIEWS):
        (tmp_path / f"images/{i:02}.png").unlink(missing_ok=True)
    with pytest.raises(DemoError, match=r"1 views; at least 2 are needed; 8 of 9 pict"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("named", "stored"),
    [
        ("images/{}.png", "images/{}.PNG"),
        ("images/{}.JPG", "images/{}.jpg"),
        ("images/{}.jpg", "images_4/{}.png"),
        ("images\\{}.png", "images/{}.png"),
        (".\\images\\{}.png", "images_2/{}.png"),
        ("C:\\scans\\still life\\images\\{}.png", "images/{}.png"),
        ("/home/someone/still life/images/{}.png", "images/{}.png"),
        ("./train/r_{}", "train/r_{}.png"),
        ("images/{}.png", "images/{}.tiff"),
    ],
)
def test_pictures_are_found_under_other_programs_names(tmp_path, named, stored):
    meta = transforms(tmp_path)
    (tmp_path / stored).parent.mkdir(exist_ok=True)
    for i, frame in enumerate(meta["frames"]):
        frame["file_path"] = named.format(f"{i:02}")
        pixels = Image.open(tmp_path / f"images/{i:02}.png")
        (tmp_path / f"images/{i:02}.png").unlink()
        pixels.save(tmp_path / stored.format(f"{i:02}"), quality=100, subsampling=0)
    (tmp_path / "transforms.json").write_text(json.dumps(meta))
    capture = load(tmp_path)
    assert not any("missing" in note for note in capture.notes)
    for i, view in enumerate(all_views(capture)):
        np.testing.assert_allclose(view.image, picture(i) / 255, atol=0.02)


def test_smaller_copies_of_pictures_have_intrinsics_of_their_size(tmp_path):
    """They have so with and without the size of the pictures that are named."""
    meta = transforms(tmp_path)
    (tmp_path / "images_2").mkdir()
    for i in range(N_VIEWS):
        small = Image.open(tmp_path / f"images/{i:02}.png").resize((20, 15))
        small.save(tmp_path / f"images_2/{i:02}.png")
        (tmp_path / f"images/{i:02}.png").unlink()
    expected = [[25, 0, 9.75], [0, 26, 7.75], [0, 0, 1]]
    np.testing.assert_allclose(load(tmp_path).train[0].K, expected)
    del meta["w"], meta["h"]
    (tmp_path / "transforms.json").write_text(json.dumps(meta))
    view = load(tmp_path).train[0]
    np.testing.assert_allclose(view.K, expected)
    assert (view.width, view.height) == (20, 15)


def test_model_with_the_most_images_is_read(tmp_path):
    sparse = colmap(tmp_path)
    sparse.rename(tmp_path / "sparse/1")
    assert len(load(tmp_path).train) == 7
    (tmp_path / "sparse/0").mkdir()
    for name in ("cameras", "points3D"):
        content = (tmp_path / f"sparse/1/{name}.bin").read_bytes()
        (tmp_path / f"sparse/0/{name}.bin").write_bytes(content)
    (tmp_path / "sparse/0/images.bin").write_bytes(struct.pack("<Q", 0))
    capture = load(tmp_path)
    assert len(capture.train) == 7
    assert "sparse/1 is used" in capture.notes[0]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_json_with_a_byte_order_mark_and_nulls_is_read(tmp_path, encoding):
    meta = transforms(tmp_path, ply_file_path=None, camera_model=None, k1=None)
    meta["frames"][3] |= {"fl_x": None, "w": None, "mask_path": None}
    meta["frames"][5]["transform_matrix"] = None
    meta["frames"][7] = None
    text = json.dumps(meta)
    (tmp_path / "transforms.json").write_bytes(text.encode(encoding))
    capture = load(tmp_path)
    assert len(capture.train) + len(capture.held_out) == 7
    assert capture.notes[0].startswith("2 of 9 frames are without a pose")
    for view in capture.train:
        np.testing.assert_allclose(view.K[0, 0], 50)


@pytest.mark.parametrize("ending", ["jpg", "png", "tif"])
def test_pixels_count_as_they_lie_in_the_file(tmp_path, ending):
    """EXIF says how a picture is to be turned for people; cameras are for its pixels as
    they are stored.
    """
    meta = transforms(tmp_path)
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = picture(0)
    stored[:, :10] = 0
    for i, frame in enumerate(meta["frames"]):
        frame["file_path"] = f"images/{i:02}.{ending}"
        (tmp_path / f"images/{i:02}.png").unlink()
        name = tmp_path / frame["file_path"]
        Image.fromarray(stored).save(name, exif=exif, quality=100, subsampling=0)
    del meta["w"], meta["h"]
    (tmp_path / "transforms.json").write_text(json.dumps(meta))
    view = load(tmp_path).train[0]
    assert (view.width, view.height) == (WIDTH, HEIGHT)
    np.testing.assert_allclose(view.image, stored / 255, atol=0.1)


def opengl_pose(i):
    """Camera to world, OpenGL axes, of a camera at (i, 2, 5) that looks along -z with y
    up.
    """
    pose = np.eye(4)
    pose[:3, 3] = (i, 2, 5)
    return pose.tolist()


def transforms(root, **content):
    write_pictures(root / "images")
    frames = [
        {"file_path": f"images/{i:02}.png", "transform_matrix": opengl_pose(i)}
        for i in range(N_VIEWS)
    ]
    meta = {
        "w": WIDTH,
        "h": HEIGHT,
        "fl_x": 50,
        "fl_y": 52,
        "cx": 19.5,
        "cy": 15.5,
        "frames": frames,
        **content,
    }
    (root / "transforms.json").write_text(json.dumps(meta))
    return meta


def test_transforms_turn_opengl_cameras_to_opencv(tmp_path):
    """A point in front of the OpenGL camera, to its right and above, must come out at
    positive z, right and up.
    """
    transforms(tmp_path)
    capture = load(tmp_path)
    for i, view in enumerate(all_views(capture)):
        np.testing.assert_allclose(view.position, (i, 2, 5), atol=1e-6)
        x, y, z = (view.viewmat @ torch.tensor([i + 1.0, 5.0, 1.0, 1.0]))[:3]
        assert (round(float(x), 4), round(float(y), 4), round(float(z), 4)) == (
            1,
            -3,
            4,
        )
        np.testing.assert_allclose(view.image, picture(i) / 255, atol=1e-6)
    assert "random" in capture.notes[0]  # no ply_file_path: no points
    assert len(capture.points) == 100


def test_transforms_read_their_points_from_a_ply(tmp_path):
    transforms(tmp_path, ply_file_path="sparse.ply")
    header = [
        "ply",
        "format binary_little_endian 1.0",
        "comment test",
        f"element vertex {len(POINTS)}",
        "property float x",
        "property float y",
        "property float z",
        "property uchar red",
        "property uchar green",
        "property uchar blue",
        "element face 0",
        "property list uchar int vertex_indices",
        "end_header",
        "",
    ]
    body = b"".join(
        struct.pack("<3f3B", *p, *c) for p, c in zip(POINTS, COLORS, strict=True)
    )
    (tmp_path / "sparse.ply").write_bytes("\n".join(header).encode() + body)
    capture = load(tmp_path)
    np.testing.assert_allclose(capture.points, POINTS, rtol=1e-6)
    np.testing.assert_allclose(capture.colors, COLORS / 255, rtol=1e-6)
    (tmp_path / "sparse.ply").write_bytes("\n".join(header).encode() + body[:30])
    with pytest.raises(DemoError, match=r"sparse\.ply: damaged"):
        load(tmp_path)


def test_error_for_unknown_data_names_the_known_layouts(tmp_path):
    with pytest.raises(DemoError, match=r"COLMAP folder .* transforms\.json"):
        load(tmp_path)
    (tmp_path / "sparse").mkdir()
    (tmp_path / "sparse/cameras.txt").touch()
    with pytest.raises(DemoError, match="colmap model_converter"):
        load(tmp_path)


def test_points_of_windows_and_with_fractions_as_colours_are_read(tmp_path):
    transforms(tmp_path, ply_file_path="points.ply")
    header = ["ply", "format ascii 1.0", f"element vertex {len(POINTS)}"]
    names = ("x", "y", "z", "red", "green", "blue")
    header += [f"property float {name}" for name in names]
    rows = np.concatenate([POINTS, COLORS / 255], 1)
    lines = [*header, "end_header", *(" ".join(map(str, row)) for row in rows), ""]
    (tmp_path / "points.ply").write_bytes("\r\n".join(lines).encode())
    capture = load(tmp_path)
    np.testing.assert_allclose(capture.points, POINTS, rtol=1e-6)
    np.testing.assert_allclose(capture.colors, COLORS / 255, atol=1 / 255)


@pytest.mark.parametrize(
    "values",
    [
        {"transform_matrix": [[0] * 4] * 4},
        {"transform_matrix": "none"},
        {"fl_x": -1},
        {"w": 0},
        {"file_path": 3},
    ],
)
def test_camera_without_sense_costs_its_view(tmp_path, values):
    meta = transforms(tmp_path)
    meta["frames"][3].update(values)
    meta["frames"].append("no frame")
    (tmp_path / "transforms.json").write_text(json.dumps(meta))
    capture = load(tmp_path)
    assert len(capture.train) + len(capture.held_out) == N_VIEWS - 1
    if "file_path" not in values:
        assert "the camera of 03.png" in " ".join(capture.notes)


def test_angles_of_both_sides_are_two_focal_lengths(tmp_path):
    angles = {"camera_angle_x": 0.8, "camera_angle_y": 0.5}
    transforms(tmp_path, fl_x=None, fl_y=None, **angles)
    K = load(tmp_path).train[0].K
    np.testing.assert_allclose(K[0, 0], WIDTH / 2 / math.tan(0.4), rtol=1e-6)
    np.testing.assert_allclose(K[1, 1], HEIGHT / 2 / math.tan(0.25), rtol=1e-6)


def test_image_of_colmap_without_a_camera_or_rotation_costs_its_view(tmp_path):
    sparse = colmap(tmp_path)
    data = bytearray((sparse / "images.bin").read_bytes())
    start = 8
    for value in (math.nan, 0.0):
        data[start + 4 : start + 36] = struct.pack("<4d", *[value] * 4)
        end = data.index(b"\0", start + 64)
        (observed,) = struct.unpack_from("<Q", data, end + 1)
        start = end + 9 + 24 * observed
    struct.pack_into("<i", data, start + 60, 99)
    (sparse / "images.bin").write_bytes(data)
    capture = load(tmp_path)
    assert len(capture.train) + len(capture.held_out) == N_VIEWS - 3
    assert "3 of 9 views are left out" in capture.notes[0]


def test_names_of_pictures_that_are_not_utf_8_are_found(tmp_path):
    sparse = colmap(tmp_path)
    path = sparse / "images.bin"
    path.write_bytes(path.read_bytes().replace(b"03.png", b"\xe93.png"))
    images = os.fsencode(tmp_path / "images")
    os.rename(images + b"/03.png", images + b"/\xe93.png")
    capture = load(tmp_path)
    assert len(capture.train) + len(capture.held_out) == N_VIEWS


@pytest.mark.parametrize(
    "change",
    [
        {"frames": 3},
        {"frames": [7, 8]},
        {"fl_x": None},
        {"fl_x": -1},
        {"camera_model": "FISHEYE"},
        {"w": 1e999},
        {"ply_file_path": "absent.ply"},
    ],
)
def test_damaged_transforms_are_named(tmp_path, change):
    transforms(tmp_path, **change)
    with pytest.raises(DemoError, match=r"transforms\.json|absent\.ply"):
        load(tmp_path)


def test_grey_pictures_of_16_bits_and_transparent_ones_are_read(tmp_path):
    """Transparent pixels are black, as the scene is drawn on."""
    transforms(tmp_path)
    wide = np.full((HEIGHT, WIDTH), 0x8080, np.uint16)
    Image.fromarray(wide).save(tmp_path / "images/01.png")
    clear = np.full((HEIGHT, WIDTH, 4), 255, np.uint8)
    clear[:, :20, 3] = 0
    Image.fromarray(clear).save(tmp_path / "images/02.png")
    grey, half = load(tmp_path).train[:2]
    np.testing.assert_allclose(grey.image, 128 / 255, atol=1e-3)
    assert not half.image[:, :20].any()
    assert (half.image[:, 20:] == 1).all()
