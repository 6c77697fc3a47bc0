"""Readers of other people's data sets, on tiny folders written here with known contents."""

import json
import math
import struct

import numpy as np
import pytest
import torch
from PIL import Image

from splatview.demo import datasets, ply
from splatview.demo.errors import DemoError
from splatview.demo.training import initial_gaussians

WIDTH, HEIGHT = 40, 30
N_VIEWS = 9
QUATERNION = (math.cos(0.2), 0.0, math.sin(0.2), 0.0)  # a turn of 0.4 about y
POINTS = np.arange(36, dtype=np.float64).reshape(12, 3) / 7
COLORS = (np.arange(36) * 7 % 256).astype(np.uint8).reshape(12, 3)


def load(path, pixels=10_000, max_points=100):
    return datasets.load(path, pixels=pixels, max_points=max_points)


def all_views(capture):
    """Training and held-out views in the order of the file: every eighth is held out, from the first."""
    train, held_out = list(capture.train), list(capture.held_out)
    return [(held_out if i % 8 == 0 else train).pop(0) for i in range(len(train) + len(held_out))]


def picture(i):
    return np.full((HEIGHT, WIDTH, 3), (10 * i, 200, 5), np.uint8)


def write_pictures(folder):
    folder.mkdir(parents=True)
    for i in range(N_VIEWS):
        Image.fromarray(picture(i)).save(folder / f"{i:02}.png")


def translation(i):
    return (0.5 * i, -0.25, 3.0)


def colmap_text(root, model="PINHOLE", parameters="50 52 19.5 15.5"):
    write_pictures(root / "images")
    sparse = root / "sparse/0"
    sparse.mkdir(parents=True)
    (sparse / "cameras.txt").write_text(f"# Camera list\n7 {model} {WIDTH} {HEIGHT} {parameters}\n")
    lines = ["# Image list"]
    for i in reversed(range(N_VIEWS)):  # COLMAP does not sort by name
        numbers = " ".join(map(str, (*QUATERNION, *translation(i))))
        lines += [f"{i + 1} {numbers} 7 {i:02}.png", "" if i % 2 else "1.5 2.5 -1 3.5 4.5 2"]
    (sparse / "images.txt").write_text("\n".join(lines) + "\n")
    rows = [f"{i} {' '.join(map(str, p))} {' '.join(map(str, c))} 0.5 1 0 2 1"
            for i, (p, c) in enumerate(zip(POINTS, COLORS, strict=True))]
    (sparse / "points3D.txt").write_text("\n".join(["# points", *rows]) + "\n")
    return sparse


def colmap_binary(root):
    write_pictures(root / "images")
    sparse = root / "sparse/0"
    sparse.mkdir(parents=True)
    (sparse / "cameras.bin").write_bytes(struct.pack("<QiiQQ4d", 1, 7, 1, WIDTH, HEIGHT, 50, 52, 19.5, 15.5))
    images = struct.pack("<Q", N_VIEWS)
    for i in reversed(range(N_VIEWS)):
        images += struct.pack("<i7di", i + 1, *QUATERNION, *translation(i), 7) + f"{i:02}.png".encode() + b"\0"
        images += struct.pack("<Q", i) + struct.pack("<ddq", 1.0, 2.0, -1) * i
    (sparse / "images.bin").write_bytes(images)
    points = struct.pack("<Q", len(POINTS))
    for i, (p, c) in enumerate(zip(POINTS, COLORS, strict=True)):
        points += struct.pack("<Q3d3BdQ", i, *p, *c, 0.5, i) + struct.pack("<ii", 1, 2) * i
    (sparse / "points3D.bin").write_bytes(points)
    return sparse


@pytest.mark.parametrize("write", [colmap_text, colmap_binary])
def test_colmap_poses_intrinsics_pictures_and_points(tmp_path, write):
    write(tmp_path)
    capture = load(tmp_path)
    views = all_views(capture)
    assert (len(capture.train), len(capture.held_out)) == (7, 2)
    np.testing.assert_allclose(capture.points, POINTS, rtol=1e-6)
    np.testing.assert_allclose(capture.colors, COLORS / 255, rtol=1e-6)
    for i, view in enumerate(views):
        c, s = math.cos(0.4), math.sin(0.4)
        np.testing.assert_allclose(view.viewmat[:3, :3], [[c, 0, s], [0, 1, 0], [-s, 0, c]], atol=1e-6)
        np.testing.assert_allclose(view.viewmat[:3, 3], translation(i), atol=1e-6)
        np.testing.assert_allclose(view.K, [[50, 0, 19.5], [0, 52, 15.5], [0, 0, 1]])
        assert view.image is not None
        np.testing.assert_allclose(view.image, picture(i) / 255, atol=1e-6)
    assert not capture.notes


def test_pictures_are_made_smaller_and_intrinsics_follow_even_when_the_files_are_smaller_than_the_cameras(tmp_path):
    sparse = colmap_text(tmp_path)
    view = load(tmp_path, pixels=300).train[0]
    assert (view.width, view.height) == (20, 15)
    assert view.image is not None
    assert tuple(view.image.shape) == (15, 20, 3)
    np.testing.assert_allclose(view.K, [[25, 0, 9.75], [0, 26, 7.75], [0, 0, 1]])
    (sparse / "cameras.txt").write_text(f"7 PINHOLE {WIDTH * 4} {HEIGHT * 4} 200 208 78 62\n")
    np.testing.assert_allclose(load(tmp_path).train[0].K, [[50, 0, 19.5], [0, 52, 15.5], [0, 0, 1]])


def test_lens_distortion_is_said_and_fisheye_refused(tmp_path):
    sparse = colmap_text(tmp_path, "SIMPLE_RADIAL", "50 19.5 15.5 0.1")
    capture = load(tmp_path)
    assert "distortion" in capture.notes[0]
    assert capture.train[0].K[1, 1] == 50
    (sparse / "cameras.txt").write_text(f"7 OPENCV_FISHEYE {WIDTH} {HEIGHT} 50 50 20 15 0 0 0 0\n")
    with pytest.raises(DemoError, match="OPENCV_FISHEYE is not one of SIMPLE_PINHOLE"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["cameras.bin", "images.bin", "points3D.bin"])
@pytest.mark.parametrize("keep", [0, 5, 40])
def test_a_cut_binary_model_is_named(tmp_path, name, keep):
    path = colmap_binary(tmp_path) / name
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DemoError, match=f"{name}: damaged or cut short"):
        load(tmp_path)


def test_a_count_beyond_the_file_is_refused_before_memory_is_taken(tmp_path):
    path = colmap_binary(tmp_path) / "points3D.bin"
    path.write_bytes(struct.pack("<Q", 1 << 60) + path.read_bytes()[8:])
    with pytest.raises(DemoError, match="announces"):
        load(tmp_path)


def test_a_camera_that_is_missing_and_a_picture_that_is_missing(tmp_path):
    sparse = colmap_text(tmp_path)
    (tmp_path / "images/03.png").unlink()
    with pytest.raises(DemoError, match=r"03\.png"):
        load(tmp_path)
    (sparse / "cameras.txt").write_text("")
    with pytest.raises(DemoError, match=r"camera 7 is not in cameras\.txt"):
        load(tmp_path)


def opengl_pose(i):
    """Camera to world, OpenGL axes, of a camera at (i, 2, 5) that looks along -z with y up."""
    pose = np.eye(4)
    pose[:3, 3] = (i, 2, 5)
    return pose.tolist()


def transforms(root, **more):
    write_pictures(root / "images")
    frames = [{"file_path": f"images/{i:02}.png", "transform_matrix": opengl_pose(i)} for i in range(N_VIEWS)]
    meta = {"w": WIDTH, "h": HEIGHT, "fl_x": 50, "fl_y": 52, "cx": 19.5, "cy": 15.5, "frames": frames, **more}
    (root / "transforms.json").write_text(json.dumps(meta))
    return meta


def test_transforms_turn_opengl_cameras_to_opencv(tmp_path):
    """A point in front of the OpenGL camera, to its right and above, must come out at positive z, right and up."""
    transforms(tmp_path)
    capture = load(tmp_path)
    for i, view in enumerate(all_views(capture)):
        np.testing.assert_allclose(view.position, (i, 2, 5), atol=1e-6)
        x, y, z = (view.viewmat @ torch.tensor([i + 1.0, 5.0, 1.0, 1.0]))[:3]
        assert (round(float(x), 4), round(float(y), 4), round(float(z), 4)) == (1, -3, 4)
        assert view.image is not None
        np.testing.assert_allclose(view.image, picture(i) / 255, atol=1e-6)
    assert "random" in capture.notes[0]  # no ply_file_path: no points
    assert len(capture.points) == 100


def test_transforms_with_intrinsics_per_frame_an_angle_and_names_without_an_ending(tmp_path):
    meta = transforms(tmp_path)
    for i, frame in enumerate(meta["frames"]):
        frame["file_path"] = f"./images/{i:02}"
        frame["fl_x"] = 100 + i
    for key in ("fl_x", "fl_y", "cx", "cy", "w", "h"):
        del meta[key]
    (tmp_path / "transforms.json").write_text(json.dumps(meta))
    views = all_views(load(tmp_path / "transforms.json"))
    np.testing.assert_allclose(views[3].K, [[103, 0, 20], [0, 103, 15], [0, 0, 1]])
    for frame in meta["frames"]:
        del frame["fl_x"]
    (tmp_path / "transforms.json").write_text(json.dumps({**meta, "camera_angle_x": math.pi / 2}))
    np.testing.assert_allclose(load(tmp_path).train[0].K, [[20, 0, 20], [0, 20, 15], [0, 0, 1]], rtol=1e-6)


@pytest.mark.parametrize("form", ["ascii", "binary_little_endian"])
def test_transforms_read_their_points_from_a_ply(tmp_path, form):
    transforms(tmp_path, ply_file_path="sparse.ply")
    header = ["ply", f"format {form} 1.0", "comment test", f"element vertex {len(POINTS)}", "property float x",
              "property float y", "property float z", "property uchar red", "property uchar green",
              "property uchar blue", "element face 0", "property list uchar int vertex_indices", "end_header", ""]
    if form == "ascii":
        body = "".join(" ".join(map(str, (*p, *c))) + "\n" for p, c in zip(POINTS, COLORS, strict=True)).encode()
    else:
        body = b"".join(struct.pack("<3f3B", *p, *c) for p, c in zip(POINTS, COLORS, strict=True))
    (tmp_path / "sparse.ply").write_bytes("\n".join(header).encode() + body)
    capture = load(tmp_path)
    np.testing.assert_allclose(capture.points, POINTS, rtol=1e-6)
    np.testing.assert_allclose(capture.colors, COLORS / 255, rtol=1e-6)
    (tmp_path / "sparse.ply").write_bytes("\n".join(header).encode() + body[:30])
    with pytest.raises(DemoError, match=r"sparse\.ply: damaged"):
        load(tmp_path)


@pytest.mark.parametrize(("change", "message"), [
    ({"frames": 3}, "list of frames"),
    ({"camera_model": "OPENCV_FISHEYE"}, "'OPENCV_FISHEYE' is not 'OPENCV'"),
    ({"frames": [{"file_path": "images/00.png"}]}, "4x4 transform_matrix"),
    ({"frames": [{"transform_matrix": []}]}, "no file_path"),
    ({"fl_x": -1}, "must be positive"),
])
def test_transforms_that_make_no_sense_are_named(tmp_path, change, message):
    transforms(tmp_path, **change)
    with pytest.raises(DemoError, match=message):
        load(tmp_path)


def npz(path, **changes):
    viewmats = np.tile(np.eye(4, dtype=np.float32), (3, 1, 1))
    viewmats[:, 2, 3] = 4
    viewmats[:, 0, 3] = (-1, 0, 1)
    K = np.array([[50, 0, 20], [0, 50, 15], [0, 0, 1]], np.float32)
    data = {"means3d": POINTS.astype(np.float32) - 2, "colors": COLORS, "viewmats": viewmats,
            "Ks": np.tile(K, (3, 1, 1)), "width": np.int64(WIDTH), "height": np.int64(HEIGHT), **changes}
    np.savez(path, **{key: value for key, value in data.items() if value is not None})


def test_npz_with_images(tmp_path):
    images = np.stack([picture(i) for i in range(3)])
    npz(tmp_path / "a.npz", images=images)
    capture = load(tmp_path / "a.npz")
    assert not capture.notes and len(capture.train) == 3
    found = [v.image for v in capture.train if v.image is not None]
    np.testing.assert_allclose(torch.stack(found), images / 255, atol=1e-6)


def test_npz_without_images_draws_its_points_and_says_so(tmp_path):
    npz(tmp_path / "a.npz")
    capture = load(tmp_path / "a.npz")
    assert "has no images: 30 views were drawn" in capture.notes[0]
    views = all_views(capture)
    np.testing.assert_allclose(views[10].viewmat[0, 3], 0, atol=1e-6)  # the file's second camera
    np.testing.assert_allclose(views[5].viewmat[:3, 3], (-0.5, 0, 4), atol=1e-6)  # half way to it
    assert all(v.image is not None and float(v.image.max()) > 0.2 for v in views)


@pytest.mark.parametrize(("changes", "message"), [
    ({"Ks": None}, "has no 'Ks'"),
    ({"viewmats": np.zeros((3, 3, 4))}, r"viewmats has shape \(3, 3, 4\); \(N, 4, 4\) is needed"),
    ({"Ks": np.zeros((2, 3, 3))}, "3 viewmats and 2 Ks"),
    ({"images": np.zeros((3, 5, 5, 3), np.uint8)}, r"uint8 \(3, 30, 40, 3\) is needed"),
    ({"means3d": np.array([object()])}, "plain arrays"),
])
def test_npz_that_makes_no_sense_is_named(tmp_path, changes, message):
    npz(tmp_path / "a.npz", **changes)
    with pytest.raises(DemoError, match=message):
        load(tmp_path / "a.npz")


def test_a_source_of_no_known_kind_is_told_what_is(tmp_path):
    with pytest.raises(DemoError, match=r"COLMAP folder .* transforms\.json, or an \.npz"):
        load(tmp_path)
    with pytest.raises(DemoError, match="no such file or folder"):
        load(tmp_path / "absent")


@pytest.mark.parametrize(("vertices", "told"), [
    ("\n \n", "0 vertices of 2"), ("# 1 2 3\n# 4 5 6\n", "could not convert string '#'"),
    ("1 2 3\n\n", "1 vertices of 2"), ("", "0 vertices of 2"), ("1 2 3\n4 5\n", "columns")])
def test_points_without_their_numbers_are_refused(tmp_path, vertices: str, told: str) -> None:
    properties = "".join(f"property float {axis}\n" for axis in "xyz")
    (tmp_path / "a.ply").write_text(f"ply\nformat ascii 1.0\nelement vertex 2\n{properties}end_header\n{vertices}")
    with pytest.raises(DemoError, match=f"damaged.*{told}"):
        ply.read_points(tmp_path / "a.ply")


def test_gaussians_are_written_in_the_inria_layout(tmp_path):
    gaussians = initial_gaussians(torch.rand(5, 3), torch.rand(5, 3))
    with torch.no_grad():
        gaussians["shN"].copy_(torch.arange(45.0).reshape(5, 3, 3))
    ply.write_gaussians(tmp_path / "a.ply", gaussians)
    header, _, body = (tmp_path / "a.ply").read_bytes().partition(b"end_header\n")
    names = [line.split()[-1] for line in header.decode().splitlines() if line.startswith("property")]
    rows = np.frombuffer(body, "<f4").reshape(5, len(names))
    column = {name: rows[:, i] for i, name in enumerate(names)}
    np.testing.assert_array_equal([column[f"f_rest_{i}"][0] for i in range(9)], [0, 3, 6, 1, 4, 7, 2, 5, 8])
    np.testing.assert_array_equal(column["opacity"], gaussians["opacities"].detach())
    np.testing.assert_array_equal(column["scale_1"], gaussians["scales"][:, 1].detach())
    np.testing.assert_array_equal(column["rot_0"], gaussians["quats"][:, 0].detach())
    np.testing.assert_array_equal(column["f_dc_2"], gaussians["sh0"][:, 0, 2].detach())
    points, _ = ply.read_points(tmp_path / "a.ply")
    np.testing.assert_array_equal(points, gaussians["means"].detach())
