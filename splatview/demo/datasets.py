"""Scenes to train from: the packaged photographs, a COLMAP folder, or a nerfstudio `transforms.json`.

Pictures are made smaller as they are read, to a number of pixels that the rasteriser in use trains in minutes; lens
distortion is left out, and said to be.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from gsplat.utils import normalized_quat_to_rotmat

from splatview.demo import DemoError
from splatview.demo.files import check_memory, open_picture, read_bytes, read_points
from splatview.demo.pictures import LeftOutViews, PictureFinder, ViewError
from splatview_ipc.system.pictures import as_colors, as_stored, stored_size

Gaussians = Mapping[str, torch.Tensor] | torch.nn.ParameterDict
"""As gsplat's trainer holds them: means (N, 3), scales (N, 3) log, quats (N, 4) wxyz of any length, opacities (N,)
logit, sh0 (N, 1, 3), shN (N, K-1, 3)."""
PHOTOS = Path(__file__).parent / "photos"
"""A still life in nerfstudio's format; `tools/make_demo_photos.py` made it."""
_JSON_GROWTH = 40
"""Bytes of Python objects for each byte of JSON, at most."""
_HELD_OUT_EVERY = 8
_MODELS = {
    0: ("SIMPLE_PINHOLE", 3),
    1: ("PINHOLE", 4),
    2: ("SIMPLE_RADIAL", 4),
    3: ("RADIAL", 5),
    4: ("OPENCV", 8),
    6: ("FULL_OPENCV", 12),
}
"""COLMAP's camera models that are a pinhole and a lens: name and number of parameters."""
_ONE_FOCAL = ("SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL")
_MODEL_GROWTH = 12
"""Memory for each byte of a COLMAP model."""


@dataclass(frozen=True)
class DatasetView:
    """A pinhole camera with its place in the world, and its photograph."""

    viewmat: torch.Tensor
    """(4, 4) float world to camera, OpenCV axes: x right, y down, z forward."""
    K: torch.Tensor
    """(3, 3) float in pixels; pixel centres are at +0.5."""
    width: int
    height: int
    image: torch.Tensor = field(default_factory=torch.Tensor)
    """(H, W, 3) float in [0, 1]; empty until it is read."""
    path: Path = Path()
    """The photograph's file; its size may be another one."""
    distorted: bool = False
    """The lens has a distortion that K does not describe."""

    @property
    def position(self) -> torch.Tensor:
        """(3,) the camera's centre in the world."""
        return -self.viewmat[:3, :3].T @ self.viewmat[:3, 3]

    def to(self, device: torch.device | str) -> DatasetView:
        return replace(
            self,
            viewmat=self.viewmat.to(device),
            K=self.K.to(device),
            image=self.image.to(device),
        )


@dataclass(frozen=True)
class Capture:
    """A scene as a camera and structure from motion leave it."""

    train: list[DatasetView]
    held_out: list[DatasetView]
    """Views that no gradient sees: quality is measured on these."""
    points: torch.Tensor
    """(N, 3) float32, world."""
    colors: torch.Tensor
    """(N, 3) float32 in [0, 1]."""
    notes: tuple[str, ...] = ()
    """Notes for the user about the reading."""

    @property
    def extent(self) -> float:
        """The scene's size in world units: the largest distance of a camera from their common middle."""
        centres = torch.stack([view.position for view in self.train])
        return max(float((centres - centres.mean(0)).norm(dim=1).max()), 1e-3)


def load(
    source: Path,
    *,
    pixels: int,
    max_points: int,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Capture:
    """Read a capture from a COLMAP folder, a folder with transforms.json, or that file.

    Args:
        pixels: size of the pictures after reading, at most about this many pixels each.
        max_points: a random choice is made of more.
        progress: called with (pictures read, pictures to read).

    Raises:
        DemoError: names what is wrong and where.
    """
    try:
        model = _read(source)
    except DemoError:
        raise
    except Exception as e:  # the net below the readers: a damaged file can make any library raise nearly anything
        raise DemoError(
            f"--data {source}: damaged, or not what its name says ({type(e).__name__}: {e!s:.200})"
        ) from e
    total = len(model.views) + model.left_out.count
    check_memory(
        len(model.views) * pixels * 12,
        f"{source}: {len(model.views):,} views of {pixels:,} pixels",
    )
    views = []
    for done, view in enumerate(model.views, 1):
        try:
            views.append(_with_image(view, pixels))
        except ViewError as e:
            model.left_out.add(view.path.name, e)
        progress(done, len(model.views))
    left_out = model.left_out.notes(total)
    if len(views) < 2:
        why = "".join(f"; {note}" for note in left_out)
        raise DemoError(
            f"--data {source}: {len(views)} views; at least 2 are needed{why}"
        )
    held_out = views[::_HELD_OUT_EVERY] if len(views) >= _HELD_OUT_EVERY else []
    if held_out:
        train = [view for i, view in enumerate(views) if i % _HELD_OUT_EVERY]
    else:
        train = views
    notes = [*model.notes, *left_out]
    if any(view.distorted for view in views):
        notes.append(
            "lens distortion is left out; `colmap image_undistorter` gives a sharper result"
        )
    points = model.points
    colors = model.colors
    finite = np.isfinite(points).all(1)
    points = points[finite]
    colors = colors[finite]
    rng = np.random.default_rng(seed)
    if len(points) < 10:
        notes.append(
            f"{len(points)} points in the data: starting from random ones between the cameras"
        )
        centres = torch.stack([view.position.double() for view in train]).numpy()
        low = centres.min(0)
        high = centres.max(0)
        margin = 0.1 * float((high - low).max()) + 1e-3
        points = rng.uniform(low - margin, high + margin, (max_points, 3))
        colors = rng.integers(64, 192, (max_points, 3))
    elif len(points) > max_points:
        notes.append(f"starting from {max_points:,} of its {len(points):,} points")
        chosen = rng.choice(len(points), max_points, replace=False)
        points = points[chosen]
        colors = colors[chosen]
    return Capture(
        train,
        held_out,
        torch.from_numpy(points.astype(np.float32)),
        torch.from_numpy(colors.astype(np.float32) / 255),
        tuple(notes),
    )


@dataclass
class _Model:
    """A data set before its pictures are read."""

    views: list[DatasetView]
    """By name, with the files of their pictures and without these."""
    points: np.ndarray
    """(N, 3)."""
    colors: np.ndarray
    """(N, 3) of 0 to 255."""
    left_out: LeftOutViews
    notes: list[str] = field(default_factory=list)


def _read(source: Path) -> _Model:
    """Read a data set of any layout that is known. Raises DemoError."""
    for root in (source / "sparse", source / "colmap" / "sparse"):
        sparse, notes = _best_model(root)
        if sparse is not None:
            model = _read_model(sparse, source)
            model.notes += notes
            return model
    if source.suffix == ".json":
        names = [source]
    else:
        names = [source / "transforms.json", source / "transforms_train.json"]
    for path in names:
        if path.exists():
            return _read_transforms(path)
    raise DemoError(
        f"--data {source}: no such data set: expected a COLMAP folder (images/ and sparse/0/*.bin, which "
        "colmap model_converter makes of *.txt), or a folder with transforms.json"
    )


def _best_model(root: Path) -> tuple[Path | None, list[str]]:
    """Return the folder of the model that has the most images, of those that COLMAP numbered below `root`, or `root`
    itself; and notes of the choice.
    """
    numbered = []
    if root.is_dir():
        folders = [entry for entry in root.iterdir() if entry.name.isdecimal()]
        folders.sort(key=lambda folder: int(folder.name))
        numbered = [folder for folder in folders if (folder / "cameras.bin").exists()]
    if not numbered:
        return (root if (root / "cameras.bin").exists() else None), []
    best = max(numbered, key=_image_count)
    if len(numbered) == 1:
        return best, []
    return best, [
        f"{len(numbered)} models in {root.name}: {root.name}/{best.name} is used, which has the most images"
    ]


def _image_count(sparse: Path) -> int:
    """Return the number of images that a COLMAP model announces; 0 for one that cannot be read."""
    try:
        with (sparse / "images.bin").open("rb") as file:
            return int.from_bytes(file.read(8), "little")
    except OSError:
        return 0


def _read_model(sparse: Path, source: Path) -> _Model:
    """Read COLMAP's model (https://colmap.github.io/format.html) in a folder with cameras.bin, images.bin and
    points3D.bin, of the data set `source`. Poses are world-to-camera in OpenCV axes already. Raises DemoError.
    """
    path = sparse / "cameras.bin"
    try:
        cameras = _cameras(read_bytes(path, _MODEL_GROWTH))
        path = sparse / "images.bin"
        views = _images(read_bytes(path, _MODEL_GROWTH), cameras)
        path = sparse / "points3D.bin"
        points, colors = _points(read_bytes(path, _MODEL_GROWTH))
    except (struct.error, ValueError) as e:
        raise DemoError(f"{path}: damaged or cut short ({e!s:.200})") from None
    finder = PictureFinder(source)
    left_out = LeftOutViews()
    found = []
    for name, view in sorted(views, key=lambda pair: pair[0]):
        try:
            if isinstance(view, ViewError):
                raise view
            found.append(replace(view, path=finder.find(f"images/{name}").path))
        except ViewError as e:
            left_out.add(name, e)
    return _Model(found, points, colors, left_out)


def _points(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return the points (N, 3) of a points3D.bin, and their colours (N, 3) of 0 to 255."""
    offset = 8
    count = _count(data, 51)
    points = np.zeros((count, 3), np.float32)
    colors = np.zeros((count, 3), np.uint8)
    for i in range(count):
        x, y, z, r, g, b, _, track = struct.unpack_from("<3d3BdQ", data, offset + 8)
        points[i] = x, y, z
        colors[i] = r, g, b
        offset += 51 + 8 * track
    return points, colors


def _count(data: bytes, least: int) -> int:
    """The number of entries, each of at least so many bytes."""
    (n,) = struct.unpack_from("<Q", data)
    if n * least > len(data):
        raise ValueError(f"announces {n} entries in {len(data)} bytes")
    return n


def _cameras(data: bytes) -> dict[int, DatasetView]:
    """Return the cameras by their numbers, at the origin of the world."""
    at = 8
    found = {}
    for _ in range(_count(data, 48)):
        key, number, width, height = struct.unpack_from("<iiQQ", data, at)
        if number not in _MODELS:
            legal = ", ".join(name for name, _ in _MODELS.values())
            raise DemoError(
                f"COLMAP camera model {number} is not one of {legal}; run `colmap image_undistorter` and "
                "use its output"
            )
        model, n = _MODELS[number]
        values = struct.unpack_from(f"<{n}d", data, at + 24)
        at += 24 + 8 * n
        if model in _ONE_FOCAL:
            fx, fy, cx, cy, *lens = values[0], *values
        else:
            fx, fy, cx, cy, *lens = values
        if width <= 0 or height <= 0 or not (fx > 0 and fy > 0):
            raise ValueError(
                f"camera of {width}x{height} pixels with focal lengths {fx}, {fy}: all must be positive"
            )
        K = torch.tensor([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
        found[key] = DatasetView(
            torch.eye(4), K, width, height, distorted=any(abs(k) > 1e-6 for k in lens)
        )
    return found


def _images(
    data: bytes, cameras: dict[int, DatasetView]
) -> list[tuple[str, DatasetView | ViewError]]:
    """Return the names of the pictures in an images.bin, with their views, or why one cannot be used."""
    offset = 8
    views: list[tuple[str, DatasetView | ViewError]] = []
    for _ in range(_count(data, 73)):
        _, *pose, camera = struct.unpack_from("<i7di", data, offset)
        end = data.index(b"\0", offset + 64)
        # COLMAP writes names as the file system has them.
        name = os.fsdecode(data[offset + 64 : end])
        (observed,) = struct.unpack_from("<Q", data, end + 1)
        offset = end + 9 + 24 * observed
        if camera not in cameras:
            fault = f"{name}: its camera {camera} is not in cameras.bin"
            views.append((name, ViewError(fault)))
            continue
        quaternion = torch.tensor(pose[:4], dtype=torch.float64)
        if not 0 < quaternion.norm() < math.inf:
            fault = f"{name}: its quaternion {pose[:4]} is not a rotation"
            views.append((name, ViewError(fault)))
            continue
        viewmat = torch.eye(4)
        viewmat[:3, :3] = normalized_quat_to_rotmat(quaternion / quaternion.norm())
        viewmat[:3, 3] = torch.tensor(pose[4:])
        views.append((name, replace(cameras[camera], viewmat=viewmat)))
    return views


def _read_transforms(path: Path) -> _Model:
    """Read nerfstudio's format (docs.nerf.studio/quickstart/data_conventions.html), of which Blender's NeRF sets are
    one.
    """
    finder = PictureFinder(path.parent)
    left_out = LeftOutViews()
    views = []
    first: Exception | None = None
    try:
        # It finds out itself about a byte order mark, and UTF-16.
        meta = _given(json.loads(read_bytes(path, _JSON_GROWTH)))
        frames = [_given(frame) for frame in meta["frames"] if isinstance(frame, dict)]
        usable = [
            frame
            for frame in frames
            if frame.keys() >= _NEEDED and isinstance(frame["file_path"], str)
        ]
        left_out.nameless = len(meta["frames"]) - len(usable)
        if not usable:
            raise ValueError("no frame has a picture and a pose")
        for frame in sorted(usable, key=lambda frame: frame["file_path"]):
            # No copy of what holds for all frames.
            values = ChainMap(frame, meta)
            name = PurePosixPath(frame["file_path"].replace("\\", "/")).name
            try:
                views.append(_view(path, values, finder))
            except ViewError as e:
                left_out.add(name, e)
            except _NUMBER_ERRORS as e:
                fault = f"the camera of {name}: {type(e).__name__}: {e!s:.200}"
                left_out.add(name, ViewError(fault))
                first = first or e
        if first is not None and not views and not left_out.missing:
            raise first
    except (*_NUMBER_ERRORS, AttributeError, RecursionError) as e:
        raise DemoError(
            f"{path}: {type(e).__name__}: {e!s:.200}; expected a list of frames, each with file_path and a "
            "4x4 transform_matrix, and fl_x or camera_angle_x, there or for all frames"
        ) from None
    points = np.zeros((0, 3), np.float32)
    colors = np.zeros((0, 3), np.uint8)
    if meta.get("ply_file_path"):
        name = str(meta["ply_file_path"])
        named = path.parent / name
        slashed = path.parent / name.replace("\\", "/")
        points, colors = read_points(named if named.exists() else slashed)
    return _Model(views, points, colors, left_out)


_NEEDED = {"file_path", "transform_matrix"}
_NUMBER_ERRORS = (ValueError, KeyError, TypeError, OverflowError)
"""Errors for numbers of a frame that are none."""


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """Return an object of JSON without what is null in it: it is as good as left out."""
    return {name: value for name, value in values.items() if value is not None}


def _view(path: Path, values: ChainMap[str, Any], finder: PictureFinder) -> DatasetView:
    """Return the view of one frame of a transforms.json.

    Raises ViewError for a picture that is missing; DemoError, ValueError, KeyError, TypeError, OverflowError.
    """
    model = values.get("camera_model", "OPENCV")
    if model not in ("OPENCV", "PINHOLE", "SIMPLE_PINHOLE"):
        raise DemoError(
            f"{path}: camera_model {model!r:.60} is not 'OPENCV', 'PINHOLE' or 'SIMPLE_PINHOLE'"
        )
    picture = finder.find(values["file_path"])
    camera_to_world = np.array(values["transform_matrix"], np.float64)
    # OpenGL's camera looks along -z with y up.
    viewmat = np.linalg.inv(
        np.vstack([camera_to_world[:3], [0, 0, 0, 1]]) * [1, -1, -1, 1]
    )
    if "w" in values and "h" in values:
        width = int(values["w"])
        height = int(values["h"])
    else:
        with open_picture(picture.path) as opened:
            width, height = (side * picture.reduced_by for side in stored_size(opened))
    fx, fy = _focal_lengths(values, width, height)
    if width <= 0 or height <= 0 or not (fx > 0 and fy > 0):
        raise ValueError(
            f"size {width}x{height} and focal lengths {fx}, {fy} must be positive"
        )
    cx = float(values.get("cx", width / 2))
    cy = float(values.get("cy", height / 2))
    K = torch.tensor([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
    distorted = any(values.get(k) for k in ("k1", "k2", "k3", "p1", "p2"))
    return DatasetView(
        torch.from_numpy(viewmat).float(),
        K,
        width,
        height,
        path=picture.path,
        distorted=distorted,
    )


def _focal_lengths(
    values: ChainMap[str, Any], width: int, height: int
) -> tuple[float, float]:
    """Return the focal lengths in pixels; of instant-ngp's files, by the angles of both sides."""

    def length(axis: str, side: int) -> float:
        if f"fl_{axis}" in values:
            return float(values[f"fl_{axis}"])
        return side / 2 / math.tan(float(values[f"camera_angle_{axis}"]) / 2)

    fx = length("x", width)
    has_own = "fl_y" in values or "camera_angle_y" in values
    return fx, length("y", height) if has_own else fx


def _with_image(view: DatasetView, pixels: int) -> DatasetView:
    """Read a view's picture at no more than about so many pixels; the intrinsics follow."""
    from PIL import Image

    with open_picture(view.path) as opened:
        width, height = stored_size(opened)
        scale = min(1.0, math.sqrt(pixels / (width * height)))
        width = max(1, round(width * scale))
        height = max(1, round(height * scale))
        # JPEG decodes to half or a quarter by itself.
        opened.draft("RGB", (width, height))
        colors = as_colors(as_stored(opened))
        resized = colors.resize((width, height), Image.Resampling.BOX)
        image = np.asarray(resized, np.float32) / 255
    if image.shape[2] == 4:
        image = image[..., :3] * image[..., 3:]  # on black
    K = view.K * torch.tensor([[width / view.width], [height / view.height], [1]])
    if not all(
        torch.isfinite(values).all() for values in (K, view.viewmat, view.position)
    ):
        raise ViewError(f"{view.path}: its camera has numbers that are not finite")
    return replace(
        view,
        K=K,
        width=width,
        height=height,
        image=torch.from_numpy(np.ascontiguousarray(image)),
    )
