"""Other people's scenes: a COLMAP folder, a nerfstudio `transforms.json`, or an .npz of points and cameras.

Pictures are made smaller as they are read, to a number of pixels that the rasteriser in use trains in minutes; lens
distortion is left out, and said to be.
"""

from __future__ import annotations

import json
import math
from collections import ChainMap
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splatview.demo import colmap, ply, rasterizer
from splatview.demo.bounds import check_memory, open_picture, read_bytes, read_npz
from splatview.demo.capture import Capture, View, fitted, hold_out
from splatview.demo.errors import DemoError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

_JSON_GROWTH = 40
"""Bytes of Python objects for each byte of JSON, at most."""
_BETWEEN = 9
"""Poses drawn between two cameras when an .npz has no pictures."""
_DRAWN_POINTS = 40_000
"""Points that such pictures are drawn from, at most."""


def load(source: Path, *, pixels: int, max_points: int, seed: int = 0,
         progress: Callable[[int, int], None] = lambda done, total: None) -> Capture:
    """Read a capture from a COLMAP folder, a folder with transforms.json or that file, or an .npz.

    pixels: size of the pictures after reading, at most about this many pixels each. max_points: a random choice is
    made of more. Raises DemoError, naming what is wrong and where.
    """
    shape = _Wanted(pixels, max_points, seed, progress)
    try:
        return _load(source, shape)
    except (DemoError, BrokenPipeError):
        raise
    except MemoryError:
        raise DemoError(f"--data {source}: not enough memory to load it") from None
    except Exception as e:  # the net below the readers: a damaged file can make any library raise nearly anything
        raise DemoError(f"--data {source}: damaged, or not what its name says ({type(e).__name__}: {e!s:.200})") from e


def _load(source: Path, shape: _Wanted) -> Capture:
    if not source.exists():
        raise DemoError(f"--data {source}: no such file or folder")
    if source.suffix in (".npz", ".json") and not source.is_file():  # opening a FIFO would wait without end
        raise DemoError(f"--data {source}: not a regular file")
    if source.suffix == ".npz":
        return _read_npz(source, shape)
    if source.suffix == ".json":
        return _read_transforms(source, shape)
    for sparse in ("sparse/0", "sparse", "colmap/sparse/0"):
        if any((source / sparse / f"cameras{e}").is_file() for e in (".bin", ".txt")):
            return _read_colmap(source, source / sparse, shape)
    for name in ("transforms.json", "transforms_train.json"):
        if (source / name).is_file():
            return _read_transforms(source / name, shape)
    raise DemoError(f"--data {source}: needs a COLMAP folder (images/ and sparse/0/), a folder with transforms.json, "
                    "or an .npz with means3d, colors, viewmats, Ks, width, height")


class _Wanted:
    """How much of a data set is kept."""

    def __init__(self, pixels: int, max_points: int, seed: int, progress: Callable[[int, int], None]):
        self.pixels, self.max_points, self.progress = pixels, max_points, progress
        self.rng = np.random.default_rng(seed)

    def capture(self, where: Path, views: list[View], points: np.ndarray, colors: np.ndarray,
                notes: Iterable[str]) -> Capture:
        notes = list(notes)
        if len(views) < 2:
            raise DemoError(f"{where}: {len(views)} views; at least 2 are needed")
        finite = np.isfinite(points).all(1)
        points, colors = points[finite], colors[finite]
        train, held_out = hold_out(views)
        if len(points) < 10:
            notes.append(f"{len(points)} points in the data: starting from random ones between the cameras")
            points, colors = self._random_points(train)
        elif len(points) > self.max_points:
            notes.append(f"starting from {self.max_points:,} of its {len(points):,} points")
            chosen = self.rng.choice(len(points), self.max_points, replace=False)
            points, colors = points[chosen], colors[chosen]
        return Capture(train, held_out, torch.from_numpy(points.astype(np.float32)),
                       torch.from_numpy(colors.astype(np.float32) / 255), train[0].to_json(), tuple(notes))

    def _random_points(self, views: list[View]) -> tuple[np.ndarray, np.ndarray]:
        centres = torch.stack([view.position for view in views]).numpy()
        low, high = centres.min(0), centres.max(0)
        margin = 0.1 * float((high - low).max()) + 1e-3
        points = self.rng.uniform(low - margin, high + margin, (self.max_points, 3))
        return points, self.rng.integers(64, 192, (self.max_points, 3))

    def check(self, views: int, where: Path) -> None:
        """Check the pictures of so many views against the free memory, before any is read. Raises DemoError."""
        check_memory(views * self.pixels * 12, f"{where}: {views:,} views of {self.pixels:,} pixels")

    def view(self, viewmat: np.ndarray, K: np.ndarray, size: tuple[int, int], picture: Path) -> View:
        """A view with the picture of a file; K belongs to a picture of `size`."""
        from PIL import Image

        with open_picture(picture) as opened:
            width, height = fitted(opened.width, opened.height, self.pixels)
            opened.draft("RGB", (width, height))  # JPEG decodes to half or a quarter by itself
            rgba = opened.convert("RGBA" if "A" in opened.getbands() or "transparency" in opened.info else "RGB")
            array = np.asarray(rgba.resize((width, height), Image.Resampling.BOX), np.float32) / 255
        rgb = array[..., :3] * array[..., 3:] if array.shape[2] == 4 else array  # the background is black
        view = _pinhole(viewmat, K, size[0], size[1]).resized(width, height)
        return View(view.viewmat, view.K, width, height, torch.from_numpy(np.ascontiguousarray(rgb)))


def _pinhole(viewmat: np.ndarray, K: np.ndarray, width: int, height: int) -> View:
    return View(torch.from_numpy(np.array(viewmat, np.float32)), torch.from_numpy(np.array(K, np.float32)),
                int(width), int(height))


def _read_colmap(root: Path, sparse: Path, wanted: _Wanted) -> Capture:
    model = colmap.read_model(sparse)
    folder = root / "images"
    if not folder.is_dir():
        raise DemoError(f"{folder}: no such folder; COLMAP's pictures belong there")
    wanted.check(len(model.names), sparse)
    views = []
    for i, (name, viewmat, camera) in enumerate(zip(model.names, model.viewmats, model.cameras, strict=True)):
        views.append(wanted.view(viewmat, camera.K, (camera.width, camera.height), folder / name))
        wanted.progress(i + 1, len(model.names))
    notes = ["lens distortion is left out; `colmap image_undistorter` gives a sharper result"] \
        if any(camera.distorted for camera in model.cameras) else []
    return wanted.capture(sparse, views, model.points, model.colors, notes)


def _read_transforms(path: Path, wanted: _Wanted) -> Capture:
    """nerfstudio's format (docs.nerf.studio/quickstart/data_conventions.html), of which Blender's NeRF sets are one."""
    try:
        meta = json.loads(read_bytes(path, _JSON_GROWTH).decode("utf-8"))
        frames = meta["frames"]
        if not isinstance(frames, list) or not all(isinstance(f, dict) for f in frames):
            raise TypeError("frames is not a list of mappings")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as e:
        raise DemoError(f"{path}: not a transforms.json with a list of frames ({type(e).__name__}: {e!s:.200})"
                        ) from None
    if not all(isinstance(f.get("file_path"), str) for f in frames):
        raise DemoError(f"{path}: a frame has no file_path")
    wanted.check(len(frames), path)
    views, distorted = [], False
    for i, frame in enumerate(sorted(frames, key=lambda f: f["file_path"])):
        values = ChainMap(frame, meta)  # not a copy for each frame
        if (model := values.get("camera_model", "OPENCV")) not in ("OPENCV", "PINHOLE", "SIMPLE_PINHOLE"):
            raise DemoError(f"{path}: camera_model {model!r:.60} is not 'OPENCV', 'PINHOLE' or 'SIMPLE_PINHOLE'")
        distorted |= any(values.get(k) for k in ("k1", "k2", "k3", "p1", "p2"))
        picture = _picture_of(path, frame)
        try:
            camera_to_world = np.array(frame["transform_matrix"], np.float64)
            # OpenGL's camera looks along -z with y up.
            viewmat = np.linalg.inv(np.vstack([camera_to_world[:3], [0, 0, 0, 1]]) * [1, -1, -1, 1])
            K, size = _intrinsics(values, picture)
        except (KeyError, ValueError, TypeError, OverflowError, np.linalg.LinAlgError) as e:
            raise DemoError(f"{path}: frame {frame['file_path']!r:.200}: {e!s:.200}; it needs a 4x4 "
                            "transform_matrix and fl_x or camera_angle_x, here or for all frames") from None
        views.append(wanted.view(viewmat, K, size, picture))
        wanted.progress(i + 1, len(frames))
    points, colors = np.zeros((0, 3), np.float32), np.zeros((0, 3), np.uint8)
    if meta.get("ply_file_path"):
        points, colors = ply.read_points(path.parent / str(meta["ply_file_path"]))
    notes = ["lens distortion is left out"] if distorted else []
    return wanted.capture(path, views, points, colors, notes)


def _picture_of(path: Path, frame: dict[str, Any]) -> Path:
    found = path.parent / frame["file_path"]
    for candidate in (found, *(found.with_name(found.name + e) for e in (".png", ".jpg", ".jpeg"))):
        if candidate.is_file():
            return candidate
    raise DemoError(f"{found}: no such picture (named by {path.name})")


def _intrinsics(values: ChainMap[str, Any], picture: Path) -> tuple[np.ndarray, tuple[int, int]]:
    """K and the size that it belongs to. Blender's sets give one angle, and the picture's own size counts."""
    if "w" in values and "h" in values:
        width, height = int(values["w"]), int(values["h"])
    else:
        with open_picture(picture) as opened:
            width, height = opened.size
    fx = float(values["fl_x"]) if "fl_x" in values else width / 2 / math.tan(float(values["camera_angle_x"]) / 2)
    fy = float(values.get("fl_y", fx))
    if width <= 0 or height <= 0 or not (fx > 0 and fy > 0):
        raise ValueError(f"size {width}x{height} and focal lengths {fx}, {fy} must be positive")
    cx, cy = float(values.get("cx", width / 2)), float(values.get("cy", height / 2))
    return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1.0]]), (width, height)


def _read_npz(path: Path, wanted: _Wanted) -> Capture:
    needed = {"means3d": (None, 3), "colors": (None, 3), "viewmats": (None, 4, 4), "Ks": (None, 3, 3),
              "width": (), "height": ()}
    try:
        data = read_npz(path, (*needed, "images"))
    except (DemoError, MemoryError):
        raise
    except Exception as e:  # zipfile and numpy's parser of headers raise nearly anything
        raise DemoError(f"{path}: not a readable .npz of plain arrays ({e!s:.200})") from None
    for key, shape in needed.items():
        if key not in data:
            raise DemoError(f"{path}: has no {key!r}; needed are {', '.join(needed)}, and images if there are any")
        found = data[key].shape
        if len(found) != len(shape) or any(w not in (None, f) for w, f in zip(shape, found, strict=True)):
            wish = "(" + ", ".join("N" if s is None else str(s) for s in shape) + ")"
            raise DemoError(f"{path}: {key} has shape {found}; {wish} is needed")
    width, height, n = int(data["width"]), int(data["height"]), len(data["viewmats"])
    if len(data["Ks"]) != n or len(data["colors"]) != len(data["means3d"]) or width <= 0 or height <= 0:
        raise DemoError(f"{path}: {n} viewmats and {len(data['Ks'])} Ks, {len(data['means3d'])} means3d and "
                        f"{len(data['colors'])} colors, {width}x{height} pixels: the counts must match and be positive")
    wanted.check(n if "images" in data else n * (_BETWEEN + 1), path)
    size = fitted(width, height, wanted.pixels)
    cameras = [_pinhole(m, K, width, height).resized(*size) for m, K in zip(data["viewmats"], data["Ks"], strict=True)]
    points, colors = data["means3d"], data["colors"]
    if "images" not in data:
        views = _drawn_from_points(cameras, points, colors, wanted)
        note = (f"{path.name} has no images: {len(views)} views were drawn from its coloured points, as its {n} "
                "cameras see them and from between; real pictures would show more")
        return wanted.capture(path, views, points, colors, [note])
    images = data["images"]
    if images.shape != (n, height, width, 3) or images.dtype != np.uint8:
        raise DemoError(f"{path}: images are {images.dtype} {images.shape}; uint8 {(n, height, width, 3)} is needed")
    return wanted.capture(path, [_with_image(v, i) for v, i in zip(cameras, images, strict=True)], points, colors, [])


def _with_image(view: View, image: np.ndarray) -> View:
    from PIL import Image

    resized = Image.fromarray(image).resize((view.width, view.height), Image.Resampling.BOX)
    return View(view.viewmat, view.K, view.width, view.height, torch.from_numpy(np.asarray(resized, np.float32) / 255))


def _drawn_from_points(cameras: list[View], points: np.ndarray, colors: np.ndarray, wanted: _Wanted) -> list[View]:
    """The views of cameras and of poses between them, seen as opaque Gaussians on the points."""
    from splatview.demo.training import initial_gaussians

    if len(points) > _DRAWN_POINTS:
        chosen = wanted.rng.choice(len(points), _DRAWN_POINTS, replace=False)
        points, colors = points[chosen], colors[chosen]
    gaussians = initial_gaussians(torch.from_numpy(points.astype(np.float32)),
                                  torch.from_numpy(colors.astype(np.float32) / 255))
    views = []
    with torch.no_grad():
        gaussians["opacities"].fill_(4.0)
        scales = gaussians["scales"]
        scales.clamp_(max=float(scales.median()) + math.log(3))  # a lone point is a dot, not a fog
        poses = _with_poses_between(cameras)
        for i, view in enumerate(poses):
            image = rasterizer.draw(gaussians, view).image.clamp(0, 1)
            views.append(View(view.viewmat, view.K, view.width, view.height, image))
            wanted.progress(i + 1, len(poses))
    return views


def _with_poses_between(cameras: list[View]) -> list[View]:
    """Cameras in a ring, with poses between each and the next: centres on the chord, directions in between."""
    out = []
    for first, second in zip(cameras, cameras[1:] + cameras[:1], strict=True):
        for i in range(_BETWEEN + 1):
            t = i / (_BETWEEN + 1)
            mixed = (1 - t) * first.viewmat[:3, :3] + t * second.viewmat[:3, :3]
            u, _, vt = torch.linalg.svd(mixed)  # the nearest rotation to the mean
            rotation = u @ torch.diag(torch.tensor([1.0, 1.0, float(torch.det(u @ vt))])) @ vt
            viewmat = torch.eye(4)
            viewmat[:3, :3] = rotation
            viewmat[:3, 3] = -rotation @ ((1 - t) * first.position + t * second.position)
            out.append(View(viewmat, first.K, first.width, first.height))
    return out
